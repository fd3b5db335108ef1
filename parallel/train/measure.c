/* parallel/train/measure.c - global norm and digest. */
#include "parallel/train/measure_internal.h"
#include "core/numerics/digest.h"
#include "core/host_data.h"
#include "core/offload.h"
#include "core/numerics/squares.h"
#include "parallel/agree_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool wf_par_counts_here(const wf_par *par, const wf_nn_parameter *parameter, const wf_tensor *t)
{
    int owner = wf_par_state_of(parameter)->owning_rank;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (wf_layout_split_dim(t->layout, axis) < 0 &&
            wf_mesh_coordinate(par->mesh, axis) != (axis == par->pp_axis ? owner : 0))
            return false;
    return true;
}

/* Adds the squares of a tensor that is not of the device's floats. */
static void add_cast(wf_tensor *t, wf_squares *squares)
{
    wf_context *ctx = t->ctx;
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_WORKSPACE);

    wf_scope_open(ctx);
    t = wf_cast(t, wf_context_device(ctx)->dtype);
    if (t)
        wf_squares_add(squares, 1, &t);
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
}

/* Those of floats at once. */
void wf_par_squares_add(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                        wf_tensor *const *tensor, wf_squares *squares)
{
    wf_blocks *blocks = wf_context_blocks(par->ctx);
    size_t bytes = ((size_t)count + 1) * sizeof *tensor;
    wf_tensor **floats = wf_blocks_take(blocks, bytes);
    int64_t n = 0;

    if (!floats) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a list of %lld gradients",
                (long long)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (!tensor[i] || parameter[i]->counted ||
            !wf_par_counts_here(par, parameter[i], tensor[i]))
            continue;
        if (tensor[i]->dtype == wf_context_device(par->ctx)->dtype)
            floats[n++] = tensor[i];
        else
            add_cast(tensor[i], squares);
    }
    wf_squares_add(squares, n, floats);
    wf_blocks_give(blocks, floats, bytes);
}

/* The message of a norm, and what goes along: a number, and the first rank that knows a reason
   why the layout is not exact. */
typedef struct norm_message {
    wf_exact_sum sum;
    uint64_t beside;
    int64_t inexact;
} norm_message;

static void merge(void *into, const void *from, size_t bytes)
{
    norm_message *a = into;
    const norm_message *b = from;

    (void)bytes;
    wf_exact_merge(&a->sum, &b->sum);
    a->beside += b->beside;
    a->inexact = a->inexact < b->inexact ? a->inexact : b->inexact;
}

int64_t wf_par_inexact_here(const wf_par *par)
{
    return wf_par_inexact(par) ? wf_context_rank(par->ctx) : INT64_MAX;
}

void wf_par_inexact_on(wf_par *par, int64_t rank)
{
    if (!par->inexact_rank && rank < INT64_MAX)
        par->inexact_rank = (int)rank;
}

wf_status wf_par_norm_beside(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                             wf_tensor *const *tensor, uint64_t *beside, double *norm)
{
    const wf_trace_mark begun = wf_context_host_begin(par->ctx);
    norm_message message;
    wf_squares squares;

    wf_squares_begin(&squares, par->ctx);
    wf_par_squares_add(par, count, parameter, tensor, &squares);
    wf_squares_end(&squares, &message.sum);
    wf_context_host_end(par->ctx, begun, "gradient norm");
    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    message.beside = *beside;
    message.inexact = wf_par_inexact_here(par);
    if (wf_agree_on(par, sizeof message, &message, merge) != WF_OK)
        return wf_context_status(par->ctx);
    *norm = sqrt(wf_exact_value(&message.sum));
    *beside = message.beside;
    wf_par_inexact_on(par, message.inexact);
    return WF_OK;
}

wf_status wf_par_norm(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                      wf_tensor *const *tensor, double *norm)
{
    uint64_t nothing = 0;

    return wf_par_norm_beside(par, count, parameter, tensor, &nothing, norm);
}

uint64_t wf_par_digest_held(const wf_tensor *t, const char *path, uint32_t kind)
{
    int64_t size[WF_MAX_DIMS];
    wf_host_data view;
    const float *data;
    uint64_t hash = wf_digest_path(path);
    const wf_device *device = wf_context_device(t->ctx);
    uint64_t digest = 0;

    if (wf_tensor_is_fake(t))
        return 0;
    if (device->memory && t->dtype == WF_F32 && !wf_tensor_is_offloaded(t)) {
        device->memory->digest(t, hash, kind, &digest);
        return digest;
    }
    for (int i = 0; i < t->ndim; i++)
        size[i] = t->dim[i].size;
    data = wf_data_read_f32(t, &view);
    if (data)
        digest = wf_digest_part(hash, kind, t->ndim, size, t->start, t->local, data);
    wf_data_close(&view);
    return digest;
}

/* Returns the part of the digest of the local part of a tensor: 0 where another rank counts it,
   or where it is fake: a parameter of another stage. */
static uint64_t digest_here(const wf_par *par, const wf_nn_parameter *parameter,
                            const wf_tensor *t, uint32_t kind)
{
    return wf_par_counts_here(par, parameter, t) ? wf_par_digest_held(t, parameter->path, kind)
                                                 : 0;
}

/* After a failure the parameters are those of no step. */
static wf_status check_values(const wf_par *par)
{
    if (wf_context_status(par->ctx) != WF_OK || !wf_context_dry_run(par->ctx))
        return wf_context_status(par->ctx);
    return wf_fail(par->ctx, WF_EINVAL,
                   "a plan has no values, and so no digest: open a context that does not plan");
}

wf_tensor *wf_par_kept(const wf_nn_parameter *parameter, const wf_nn_optimizer *optimizer,
                       int64_t i, int kind)
{
    if (kind == 0)
        return parameter->tensor;
    return optimizer ? wf_nn_optimizer_moment(optimizer, i, kind - 1) : NULL;
}

wf_status wf_par_digest(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                        const wf_nn_optimizer *optimizer, uint64_t *digest)
{
    uint64_t sum = 0;
    wf_error error = {WF_OK, ""};

    if (check_values(par) != WF_OK)
        return wf_context_status(par->ctx);
    for (int64_t i = 0; i < count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_tensor *t = wf_par_kept(parameter[i], optimizer, i, kind);

            if (t)
                sum += digest_here(par, parameter[i], t, (uint32_t)kind);
        }
    if (wf_agree(par, 1, &sum, &error) != WF_OK)
        return wf_context_status(par->ctx);
    *digest = sum;
    return WF_OK;
}

wf_status wf_par_digests(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                         const wf_nn_optimizer *optimizer, wf_par_tensor_digest **list,
                         int64_t *n)
{
    wf_par_tensor_digest *of = calloc((size_t)count * WF_PAR_KINDS + 1, sizeof *of);
    uint64_t *sum = calloc((size_t)count * WF_PAR_KINDS + 1, sizeof *sum);
    wf_error error = {WF_OK, ""};

    *list = of;
    *n = 0;
    if (!of || !sum)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the digests of %lld parameters",
                (long long)count);
    else
        check_values(par);
    for (int64_t i = 0; wf_context_status(par->ctx) == WF_OK && i < count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_tensor *t = wf_par_kept(parameter[i], optimizer, i, kind);

            if (!t)
                continue;
            sum[*n] = digest_here(par, parameter[i], t, (uint32_t)kind);
            of[(*n)++] = (wf_par_tensor_digest){.path = parameter[i]->path, .kind = kind};
        }
    if (wf_context_status(par->ctx) == WF_OK && wf_agree(par, *n, sum, &error) != WF_OK)
        wf_fail(par->ctx, error.code, "%s", error.text); /* kept where there is none yet */
    for (int64_t i = 0; i < *n; i++)
        of[i].digest = sum[i];
    free(sum);
    return wf_context_status(par->ctx);
}
