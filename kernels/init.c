/*
 * kernels/init.c - initialisation in place: element i of the whole is a function of (seed,
 * stream, i) alone, so that a shard is the slice of the whole.
 *
 *     init_fill     t = a
 *     init_normal   t = mean + deviation * normal(i)
 *     init_uniform  t = low + (high - low) * uniform(i)
 *
 * The values are those of fp32 on every device, also where they are stored as f64.
 */
#include "core/random.h"
#include "kernels/shared.h"

static wf_status in_place(const wf_op *op, wf_tensor *t, wf_init_attr *attr)
{
    wf_call call = {.op = op, .n_in = 1, .in = {t}, .attr = attr, .attr_size = sizeof *attr};

    if (t)
        attr->key = wf_random_key(wf_context_seed(t->ctx), WF_RANDOM_INIT);
    return wf_dispatch(&call);
}

wf_status wf_init_fill(wf_tensor *t, float value)
{
    wf_init_attr attr = {.a = value};

    return in_place(&wf_op_init_fill, t, &attr);
}

wf_status wf_init_normal(wf_tensor *t, float mean, float deviation, uint64_t stream)
{
    wf_init_attr attr = {.stream = stream, .a = mean, .b = deviation};

    return in_place(&wf_op_init_normal, t, &attr);
}

wf_status wf_init_uniform(wf_tensor *t, float low, float high, uint64_t stream)
{
    wf_init_attr attr = {.stream = stream, .a = low, .b = high};

    return in_place(&wf_op_init_uniform, t, &attr);
}

static wf_status fill_reference(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    double *x = call->in[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        x[i] = attr->a;
    return WF_OK;
}

static wf_status normal_reference(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    double *x = call->in[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]), run;

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)wf_global_index(call->in[0], 0, i, &run);

        x[i] = attr->a + attr->b * wf_random_normal(attr->key, attr->stream, index);
    }
    return WF_OK;
}

static wf_status uniform_reference(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    double *x = call->in[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]), run;

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)wf_global_index(call->in[0], 0, i, &run);

        x[i] =
            attr->a + (attr->b - attr->a) * wf_random_uniform(attr->key, attr->stream, index);
    }
    return WF_OK;
}

const wf_op wf_op_init_fill = {WF_OP_ROW(init_fill), .reference = {.run = fill_reference},
                               .cpu = &wf_cpu_init_fill};
const wf_op wf_op_init_normal = {WF_OP_ROW(init_normal), .reference = {.run = normal_reference},
                                 .cpu = &wf_cpu_init_normal};
const wf_op wf_op_init_uniform = {WF_OP_ROW(init_uniform),
                                  .reference = {.run = uniform_reference},
                                  .cpu = &wf_cpu_init_uniform};
