/* parallel/shard/update.c - the optimizer's step; see the header. */
#include "parallel/shard/update_internal.h"
#include "parallel/shard/muon_internal.h"
#include "core/device.h"
#include "core/offload.h"
#include "core/together.h"
#include <stdlib.h>

/* Returns the layout that splits dim `to_dim` by all axes of another: those of its dim `dim`,
   then those that leave other dims, the innermost first. */
static const wf_layout *split(void *arg, const wf_layout *of, int dim, int to_dim)
{
    const wf_par *par = arg;
    const wf_layout *to = NULL;
    int axis[WF_MAX_AXES];
    int n = dim < 0 ? 0 : wf_layout_dim_axes(of, dim, axis);

    for (int i = 0; i < n; i++)
        to = wf_layout_split(par->mesh, to, to_dim, axis[i]);
    for (int d = WF_MAX_DIMS - 1; d >= 0 && dim >= 0; d--) {
        n = d == dim ? 0 : wf_layout_dim_axes(of, d, axis);
        for (int i = n - 1; i >= 0; i--)
            to = wf_layout_split(par->mesh, to, to_dim, axis[i]);
    }
    return to;
}

static wf_tensor *move(void *arg, wf_tensor *t, const wf_layout *to)
{
    if (t->layout == to)
        return t;
    return wf_par_move_run(arg, WF_MEMORY_BUFFER, 1, &t, &to, &t) == WF_OK ? t : NULL;
}

wf_nn_optimizer *wf_par_optimizer_new(wf_par *par, const wf_nn_optimizer_options *options,
                                      int64_t count, wf_nn_parameter *const *parameter)
{
    const wf_layout **layout = calloc((size_t)count + 1, sizeof *layout);
    const wf_nn_mover mover = {split, move, par};
    wf_nn_optimizer_options o = *options;
    wf_nn_optimizer *optimizer = NULL;

    o.offload = o.offload || par->options.offload_optimizer;
    if (!layout)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the layouts of an optimizer's state");
    for (int64_t i = 0; layout && i < count; i++)
        layout[i] = wf_par_state_of(parameter[i])->optimizer;
    if (layout)
        optimizer = wf_nn_optimizer_new(par->ctx, &o, count, parameter, layout, &mover);
    free(layout);
    return optimizer;
}

/* Parameters whose parts are updated and gathered together. */
typedef struct bucket {
    wf_par *par;
    wf_nn_optimizer *optimizer;
    wf_nn_parameter *const *parameter;
    wf_tensor *const *grad;
    int64_t n, *index; /* the numbers of the parameters */
    wf_tensor **list;  /* [2 n]: their parts, then those of their gradients */
    const wf_layout **to;
    size_t bytes;
} bucket;

static bool bucket_open(bucket *b, int64_t count)
{
    wf_blocks *blocks = wf_context_blocks(b->par->ctx);
    size_t n = (size_t)count;

    b->index = wf_blocks_take(blocks, n * sizeof *b->index);
    b->list = wf_blocks_take(blocks, 2 * n * sizeof *b->list);
    b->to = wf_blocks_take(blocks, 2 * n * sizeof *b->to);
    if (b->index && b->list && b->to)
        return true;
    wf_fail(b->par->ctx, WF_ENOMEM, "no memory for a bucket of %lld parameters",
            (long long)count);
    return false;
}

static void bucket_close(bucket *b, int64_t count)
{
    wf_blocks *blocks = wf_context_blocks(b->par->ctx);
    size_t n = (size_t)count;

    wf_blocks_give(blocks, b->index, n * sizeof *b->index);
    wf_blocks_give(blocks, b->list, 2 * n * sizeof *b->list);
    wf_blocks_give(blocks, b->to, 2 * n * sizeof *b->to);
}

/* Cut this rank's parts, which moves nothing, and update them. */
static wf_status update_parts(bucket *b)
{
    for (int64_t k = 0; k < b->n; k++) {
        int64_t i = b->index[k];

        b->list[k] = b->parameter[i]->tensor;
        b->list[b->n + k] = b->grad[i];
        b->to[k] = b->to[b->n + k] = wf_par_state_of(b->parameter[i])->optimizer;
    }
    wf_par_move_run(b->par, WF_MEMORY_BUFFER, 2 * b->n, b->list, b->to, b->list);
    for (int64_t k = 0; k < b->n && wf_context_status(b->par->ctx) == WF_OK; k++)
        wf_nn_optimizer_update(b->optimizer, b->index[k], b->list[k], b->list[b->n + k]);
    return wf_together_run(b->par->ctx);
}

/* Puts what was gathered in a parameter's memory, which stays where captured steps look for
   it. */
static void put_in_place(wf_tensor *t, const wf_tensor *from)
{
    wf_device *device = wf_context_device(t->ctx);
    const wf_copy copy = {
        .from = from->data, .to = t->data, .bytes = wf_tensor_bytes(t), .rows = 1};

    if (!wf_context_dry_run(t->ctx))
        device->memory->copy(device, &copy, false,
                             NULL); /* it keeps a failure, and reports it */
}

static wf_status gather_parts(bucket *b)
{
    wf_status status;

    for (int64_t k = 0; k < b->n; k++)
        b->to[k] = wf_par_state_of(b->parameter[b->index[k]])->shard_layout;
    status = wf_par_move_run(b->par, WF_MEMORY_PARAMETER, b->n, b->list, b->to, b->list);
    for (int64_t k = 0; k < b->n && status == WF_OK; k++) {
        wf_tensor *t = b->parameter[b->index[k]]->tensor;

        if (b->list[k] == t) /* a master, which is updated where it rests */
            continue;
        if (b->par->options.cuda_graph) {
            put_in_place(t, b->list[k]);
            continue;
        }
        wf_tensor_drop(t);
        status = wf_tensor_take(t, b->list[k]);
    }
    return status;
}

static void flush(bucket *b)
{
    if (!b->n || wf_context_status(b->par->ctx) != WF_OK)
        return;
    wf_scope_open(b->par->ctx);
    for (int64_t k = 0; k < b->n; k++)
        wf_tensor_fetch(b->parameter[b->index[k]]->tensor);
    if (update_parts(b) == WF_OK)
        gather_parts(b);
    wf_scope_close(b->par->ctx);
    for (int64_t k = 0; k < b->n; k++)
        wf_tensor_put_back(b->parameter[b->index[k]]->tensor);
    b->n = 0;
    b->bytes = 0;
}

/* Updates the moving averages of weights, each from this rank's part, which cutting out moves
   nothing for. */
static void average(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                    wf_nn_parameter *const *parameter)
{
    for (int64_t i = 0; i < count && wf_context_status(par->ctx) == WF_OK; i++) {
        const wf_par_parameter_state *h = wf_par_state_of(parameter[i]);
        wf_tensor *e = wf_nn_optimizer_moment(optimizer, i, WF_NN_STATES);
        wf_tensor *t = parameter[i]->tensor;

        if (!e || wf_tensor_is_fake(e))
            continue;
        wf_tensor_fetch(t);
        wf_scope_open(par->ctx);
        if (h->optimizer != h->shard_layout)
            wf_par_move_run(par, WF_MEMORY_BUFFER, 1, &t, &h->optimizer, &t);
        wf_nn_optimizer_average(optimizer, i, t);
        wf_scope_close(par->ctx);
        wf_tensor_put_back(parameter[i]->tensor);
    }
}

wf_status wf_par_update_parameters(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                                   wf_nn_parameter *const *parameter, wf_tensor *const *grad)
{
    bucket b = {.par = par, .optimizer = optimizer, .parameter = parameter, .grad = grad};

    if (bucket_open(&b, count)) {
        wf_together_begin(par->ctx);
        for (int64_t i = 0; i < count && wf_context_status(par->ctx) == WF_OK; i++) {
            const wf_par_parameter_state *h = wf_par_state_of(parameter[i]);
            wf_tensor *t = parameter[i]->tensor;

            if (wf_nn_optimizer_is_matrix(optimizer, i))
                continue; /* below */
            if (h->optimizer == h->shard_layout && h->optimizer == h->gradient) {
                if (grad[i])
                    wf_tensor_fetch(t);
                wf_nn_optimizer_update(optimizer, i, t, grad[i]);
                wf_tensor_put_back(t);
            } else if (grad[i]) {
                b.index[b.n++] = i;
                b.bytes += (size_t)wf_tensor_local_count(t) * wf_dtype_size(t->dtype);
                if (b.bytes >= WF_PAR_BUCKET_BYTES)
                    flush(&b);
            }
        }
        flush(&b);
        wf_together_end(par->ctx);
        wf_par_muon_update(par, optimizer, count, parameter, grad);
        average(par, optimizer, count, parameter);
    }
    bucket_close(&b, count);
    return wf_context_status(par->ctx);
}

wf_status wf_par_update(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                        wf_nn_parameter *const *parameter, wf_tensor *const *grad, float lr,
                        float scale)
{
    wf_nn_optimizer_begin(optimizer, lr, scale);
    return wf_par_update_parameters(par, optimizer, count, parameter, grad);
}
