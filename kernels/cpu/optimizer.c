/* kernels/cpu/optimizer.c - optimizer steps, in tasks over the elements, or over rows where
   moments have 8 bits. */
#include "core/dynamic8_tensor.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/shared_internal.h"
#include "kernels/unit_norm_internal.h"
#include <string.h>

static wf_adamw_constants constants(const wf_update *u)
{
    return (wf_adamw_constants){.lr = u->lr,
                                .beta1 = u->beta1,
                                .beta2 = u->beta2,
                                .eps = u->eps,
                                .weight_decay = u->weight_decay,
                                .bias1 = u->bias1,
                                .bias2 = u->bias2,
                                .grad_scale = u->grad_scale};
}

static float *at(const wf_tensor *t, int64_t i)
{
    return (float *)t->data + i;
}

static void adamw_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    wf_adamw_constants c = constants(call->attr);

    (void)worker;
    wf_cpu_of(call)->simd->adamw(at(in[0], begin), at(in[1], begin), at(in[2], begin),
                                 at(in[3], begin), end - begin, &c);
}

static void sgd_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    wf_adamw_constants c = constants(call->attr);

    (void)worker;
    wf_cpu_of(call)->simd->sgd(at(in[0], begin), at(in[1], begin), at(in[2], begin),
                               end - begin, &c);
}

/* Updates rows of a matrix whose moments are stored in 8 bits. */
static void adamw8_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    const wf_adamw_constants c = constants(call->attr);
    const wf_dynamic8_row row = wf_dynamic8_row_of_tensor(in[2]);
    const wf_dynamic8_map *map = wf_cpu_of(call)->dynamic8;
    size_t first = (size_t)begin * wf_dynamic8_row_bytes(&row);
    uint8_t *m = (uint8_t *)in[2]->data + first, *v = (uint8_t *)in[3]->data + first;
    int64_t i = begin * in[0]->local[in[0]->ndim - 1];

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t column = 0, n; (n = wf_dynamic8_block(&row, column)) > 0; column += n) {
            wf_cpu_of(call)->simd->adamw8(at(in[0], i), at(in[1], i), m, v, n, map, &c);
            m += WF_DYNAMIC8_SCALE + n;
            v += WF_DYNAMIC8_SCALE + n;
            i += n;
        }
}

static void run_rows(const wf_call *call, void (*task)(void *, int64_t, int64_t, int))
{
    const wf_tensor *t = call->in[0];

    wf_thread_pool_run(wf_cpu_of(call)->pool, wf_dynamic8_rows(t),
                       wf_task_rows(t->local[t->ndim - 1]), task, (void *)call);
}

static wf_status adamw(const wf_call *call, void *workspace)
{
    (void)workspace;
    if (wf_dtype_is_dynamic8(call->in[2]->dtype)) {
        run_rows(call, adamw8_task);
        return WF_OK;
    }
    wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(call->in[0]),
                       WF_TASK_ELEMENTS, adamw_task, (void *)call);
    return WF_OK;
}

static wf_status sgd(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(call->in[0]),
                       WF_TASK_ELEMENTS, sgd_task, (void *)call);
    return WF_OK;
}

/* States of n elements from element i on, whose codes, where they are stored in 8 bits, are at
   `bytes`. */
static void update_run(const wf_call *call, int64_t i, int64_t n, uint8_t *const *bytes)
{
    const wf_update_attr *attr = call->attr;
    const wf_dynamic8_map *map = wf_cpu_of(call)->dynamic8;
    float wide[WF_UPDATE_STATES][WF_DYNAMIC8_BLOCK], g[WF_DYNAMIC8_BLOCK];
    float *state[WF_UPDATE_STATES] = {NULL}, *grad = at(call->in[1], i);

    for (int64_t k = 0; k < n; k++)
        g[k] = grad[k] * attr->update.grad_scale;
    for (int k = 0; k < attr->states; k++) {
        const wf_tensor *t = call->in[2 + k];

        state[k] = wf_dtype_is_dynamic8(t->dtype) ? wide[k] : at(t, i);
        if (state[k] == wide[k])
            wf_dynamic8_widen_block(wf_dynamic8_levels(t->dtype), bytes[k], n, wide[k]);
    }
    attr->run(&attr->update, n, at(call->in[0], i), g, state);
    for (int k = 0; k < attr->states; k++)
        if (state[k] == wide[k])
            wf_dynamic8_pack_block(&map[call->in[2 + k]->dtype == WF_DYNAMIC8U], wide[k], n,
                                   bytes[k]);
}

static void update_task(void *arg, int64_t begin, int64_t end, int worker)
{
    uint8_t *const none[WF_UPDATE_STATES] = {NULL};

    (void)worker;
    for (int64_t i = begin; i < end; i += WF_DYNAMIC8_BLOCK)
        update_run(arg, i, wf_least(end - i, WF_DYNAMIC8_BLOCK), none);
}

/* Updates rows of a matrix that has states in 8 bits. */
static void update8_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_dynamic8_row row = wf_dynamic8_row_of_tensor(call->in[0]);
    const size_t first = (size_t)begin * wf_dynamic8_row_bytes(&row);
    uint8_t *bytes[WF_UPDATE_STATES];
    int64_t i = begin * call->in[0]->local[call->in[0]->ndim - 1];

    (void)worker;
    for (int k = 0; k < WF_UPDATE_STATES; k++)
        bytes[k] = (uint8_t *)call->in[2 + k]->data + first;
    for (int64_t r = begin; r < end; r++)
        for (int64_t column = 0, n; (n = wf_dynamic8_block(&row, column)) > 0; column += n) {
            update_run(call, i, n, bytes);
            for (int k = 0; k < WF_UPDATE_STATES; k++)
                bytes[k] += WF_DYNAMIC8_SCALE + n;
            i += n;
        }
}

static wf_status update_elements(const wf_call *call, void *workspace)
{
    const wf_update_attr *attr = call->attr;
    bool narrow = false;

    (void)workspace;
    for (int k = 0; k < attr->states; k++)
        narrow = narrow || wf_dtype_is_dynamic8(call->in[2 + k]->dtype);
    if (narrow)
        run_rows(call, update8_task);
    else
        wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(call->in[0]),
                           WF_TASK_ELEMENTS, update_task, (void *)call);
    return WF_OK;
}

typedef struct scaling {
    float *x, by;
} scaling;

static void scale_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const scaling *s = arg;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->x[i] = s->by * s->x[i];
}

static wf_status unit_norm(const wf_call *call, void *workspace)
{
    const double *eps = call->attr;
    wf_tensor *x = call->in[0];
    scaling s = {.x = x->data};
    wf_exact_sum sum;

    (void)workspace;
    memset(&sum, 0, sizeof sum);
    wf_context_device(call->ctx)->sum_squares(1, &x, &sum);
    s.by = wf_unit_factor(&sum, *eps);
    wf_thread_pool_run(wf_cpu_of(call)->pool, wf_tensor_local_count(x), WF_TASK_ELEMENTS,
                       scale_task, &s);
    return WF_OK;
}

const wf_kernel wf_cpu_unit_norm = {.run = unit_norm};
const wf_kernel wf_cpu_adamw = {.run = adamw, .dynamic8_ok = WF_IN(2) | WF_IN(3)};
const wf_kernel wf_cpu_sgd = {.run = sgd};
const wf_kernel wf_cpu_update_elements = {.run = update_elements,
                                          .dynamic8_ok = WF_IN(2) | WF_IN(3) | WF_IN(4)};
