/* parallel/train/losses.c - the mean of a global batch's losses; see the header. */
#include "parallel/train/losses_internal.h"
#include "core/host_data.h"
#include "core/memory/blocks.h"
#include "kernels/ops.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <stdlib.h>

wf_status wf_par_losses_open(wf_par_trainer *t, wf_par_losses *l)
{
    l->sum = calloc((size_t)t->micros, sizeof *l->sum);
    if (l->sum)
        return WF_OK;
    return wf_fail(t->par->ctx, WF_ENOMEM, "no memory for %" PRId64 " micro-steps", t->micros);
}

void wf_par_losses_clear(wf_par_trainer *t, wf_par_losses *l)
{
    for (int64_t k = 0; l->sum && k < t->micros; k++) {
        wf_tensor_release(l->sum[k]);
        l->sum[k] = NULL;
    }
    l->put = 0;
}

void wf_par_losses_close(wf_par_trainer *t, wf_par_losses *l)
{
    wf_par_losses_clear(t, l);
    wf_par_sum_free(&l->total);
    free(l->sum);
}

wf_tensor *wf_par_losses_computed(wf_tensor *t)
{
    wf_dtype dtype = t ? wf_context_device(t->ctx)->dtype : WF_F32;

    return t && wf_dtype_is_narrow(t->dtype) ? wf_cast(t, dtype) : t;
}

/* Refuses what has more dims than any field of the batch: a prediction that no target was
   compared with. */
static wf_status check_dims(const wf_par_trainer *t, const wf_par_batch *batch,
                            const wf_tensor *loss)
{
    int most = 2; /* a target without a field of its own is [batch, tokens] at most */
    char text[160];

    for (int f = 0; f < batch->fields; f++) {
        int dims = 1;

        while (dims < WF_MAX_DIMS && batch->field[f].dim[dims - 1].size)
            dims++;
        most = dims > most ? dims : most;
    }
    if (!batch->fields || loss->ndim <= most)
        return WF_OK;
    return wf_fail(t->par->ctx, WF_ESHAPE,
                   "the loss is %s, which has more dims than any field of the batch, as logits "
                   "have: return what a loss makes of them and the targets "
                   "(wf_nn_cross_entropy), or sum its last dim first",
                   wf_tensor_describe(loss, text, sizeof text));
}

/* Refuses what a product, a bias, a norm, a table or a softmax has made, for several classes or
   features: sums of it have no least value, or, of a softmax, always the same one, so that
   there is nothing to train. A number per sequence or token may be a loss all the same, where a
   bound comes from elsewhere: that of a critic. */
static wf_status check_made(const wf_par_trainer *t, const wf_tape *tape, const wf_tensor *loss)
{
    static const wf_op *const makers[] = {&wf_op_linear1,      &wf_op_linear2,
                                          &wf_op_linear3,      &wf_op_linear2_sum,
                                          &wf_op_linear1_fp32, &wf_op_bias_add,
                                          &wf_op_softmax,      &wf_op_embedding,
                                          &wf_op_position_add, &wf_op_layernorm,
                                          &wf_op_rmsnorm,      &wf_op_add_layernorm,
                                          &wf_op_add_rmsnorm,  NULL};
    const char *module = NULL;
    const wf_op *op = NULL;
    char text[160];

    if (loss->ndim > 1 && loss->dim[loss->ndim - 1].size > 1)
        op = wf_tape_made_by(tape, loss, makers, &wf_op_add, &module);
    if (!op)
        return WF_OK;
    return wf_fail(
        t->par->ctx, WF_ESHAPE,
        "the loss is %s, as %s%s%s made it: a prediction or features, which no target "
        "was compared with: return what a loss makes of them and the targets "
        "(wf_nn_cross_entropy; wf_mul(d, d) of differences d)",
        wf_tensor_describe(loss, text, sizeof text), op->name, module && *module ? " in " : "",
        module ? module : "");
}

wf_status wf_par_losses_check(const wf_par_trainer *t, const wf_tensor *loss)
{
    wf_context *ctx = t->par->ctx;
    int64_t sequences = t->options.micro_batch * wf_par_dp(t->par);
    char text[160];

    if (loss->dtype == WF_I32 || (loss->ndim > 0 && (loss->dim[0].size != sequences ||
                                                     loss->dim[0].chunks != WF_CHUNKS_EACH)))
        return wf_fail(ctx, WF_ESHAPE,
                       "the loss is %s, but it has to be of floats: [%" PRId64
                       ", ..] with the batch as its first dim (wf_dim_batch), or without dims, "
                       "a mean of its own",
                       wf_tensor_describe(loss, text, sizeof text), sequences);
    return WF_OK;
}

/* In what order a model sums its own mean is not known: its gradient goes back from each
   one. */
static wf_status report_scalar(const wf_par_trainer *t)
{
    if (t->sequences % (t->ranks * t->options.micro_batch))
        return wf_fail(
            t->par->ctx, WF_ESHAPE,
            "the loss is a mean of its own over each micro-step, and the last one "
            "has fewer sequences than ranks: return a loss per sequence, [batch, ..], "
            "or take a global batch that is a multiple of dp");
    if (t->micros > 1)
        wf_context_report_inexact(
            t->par->ctx,
            "not layout-exact: the loss is a mean of its own over each of "
            "%" PRId64 " micro-steps, which has other bits than one over all: return "
            "a loss per sequence, [batch, ..], or use one micro-step",
            t->micros);
    return WF_OK;
}

/* Returns the sum of each sequence, [batch]; whole, where ranks have split its elements. */
static wf_tensor *sequence_sums(const wf_par_trainer *t, wf_tensor *loss)
{
    const wf_layout *whole;

    loss = wf_token_sum(loss);
    whole = loss ? wf_par_whole_over(t->par, loss->layout, wf_par_tensor_axes(t->par)) : NULL;
    return loss && loss->layout != whole ? wf_redistribute(loss, whole) : loss;
}

wf_status wf_par_losses_keep(wf_par_trainer *t, wf_par_losses *l, int64_t k, wf_tensor *loss,
                             float weight)
{
    wf_context *ctx = t->par->ctx;

    if (l->put++ == 0)
        l->weight = weight;
    else if (weight != l->weight)
        return wf_fail(ctx, WF_ESHAPE,
                       "the loss of micro-step %" PRId64
                       " has another size than those before: in one step all are alike",
                       k + 1);
    if (loss->ndim == 0 && report_scalar(t) != WF_OK)
        return wf_context_status(ctx);
    loss = wf_par_losses_computed(loss);
    if (loss && loss->ndim > 0)
        loss = sequence_sums(t, loss);
    if (loss && loss->ndim > 0 && !t->per_sequence)
        loss = wf_batch_sum(loss);
    else if (loss && loss->ndim == 0)
        loss = wf_tensor_alias(loss); /* without its tape */
    l->sum[k] = wf_tensor_retain(loss);
    return wf_context_status(ctx);
}

wf_status wf_par_losses_put(wf_par_trainer *t, const wf_par_batch *batch, int64_t k,
                            const wf_tape *tape, wf_tensor *loss)
{
    wf_context *ctx = t->par->ctx;

    if (!loss) /* kept only where nothing failed before */
        return wf_fail(ctx, WF_EINVAL, "the loss function returned NULL");
    if (wf_par_losses_check(t, loss) != WF_OK || check_dims(t, batch, loss) != WF_OK ||
        check_made(t, tape, loss) != WF_OK)
        return wf_context_status(ctx);
    return wf_par_losses_keep(t, &t->losses, k, loss,
                              loss->ndim ? wf_par_batch_weight(batch, loss)
                                         : 1.0f / (float)t->micros);
}

/* The losses of a group of micro-steps become one, the first. */
static wf_status sum_group(wf_par_trainer *t, const wf_par_losses *l, int64_t first)
{
    int64_t group = t->par->group;
    wf_par_sum sum = {.node = NULL};

    for (int64_t k = 0; group > 1 && k < group; k++)
        wf_par_sum_add(t->par->ctx, &sum, l->sum[first + k], k, group);
    if (sum.open) {
        wf_tensor_release(l->sum[first]);
        l->sum[first] = wf_tensor_retain(sum.node[0].sum);
    }
    wf_par_sum_free(&sum);
    return wf_context_status(t->par->ctx);
}

/* Add what has come of micro-step k to the total: the sum over its ranks, or the losses of
   their sequences. */
static void add_term(wf_par_trainer *t, wf_par_losses *l, int64_t k, int64_t terms,
                     wf_tensor *loss)
{
    wf_context *ctx = t->par->ctx;
    int64_t first = k * t->ranks, end = first + t->ranks;

    if (!t->per_sequence || loss->ndim == 0) {
        wf_par_sum_add(ctx, &l->total, loss, k, terms);
        return;
    }
    for (int64_t i = first; i < end && i < t->sequences; i++) {
        wf_tensor *row = wf_tensor_rows(loss, i - first, 1);

        if (row)
            wf_par_sum_add(ctx, &l->total, wf_batch_sum(row), i, t->sequences);
    }
}

/* Sums losses of a step over the ranks that each micro-step or group of them sums over, in one
   move of all, then in the tree over micro-steps: in the order in which gradients are. */
static wf_status sum_micro_steps(wf_par_trainer *t, int64_t n, wf_par_losses *const *l,
                                 wf_tensor **moved, const wf_layout **to)
{
    wf_context *ctx = t->par->ctx;
    int64_t group = t->par->group, terms = t->micros / group;

    for (int64_t i = 0; i < n * terms; i++) {
        const wf_par_losses *of = l[i / terms];
        int64_t first = i % terms * group;

        if (sum_group(t, of, first) != WF_OK)
            return wf_context_status(ctx);
        moved[i] = of->sum[first];
        to[i] = wf_par_whole_over(t->par, moved[i]->layout, t->par->reduced);
    }
    wf_scope_open(ctx);
    if (wf_move_run(ctx, n * terms, moved, to, moved) == WF_OK)
        for (int64_t i = 0; i < n * terms; i++)
            add_term(t, l[i / terms], i % terms, terms, moved[i]);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Takes the totals of losses with room for their moves. */
static wf_status total_of(wf_par_trainer *t, int64_t n, wf_par_losses *const *l,
                          wf_tensor **moved, const wf_layout **to, wf_tensor **total)
{
    wf_context *ctx = t->par->ctx;

    if (sum_micro_steps(t, n, l, moved, to) != WF_OK)
        return wf_context_status(ctx);
    for (int64_t i = 0; i < n; i++) {
        moved[i] = l[i]->total.node[0].sum;
        to[i] = NULL;
    }
    if (wf_move_run(ctx, n, moved, to, moved) == WF_OK) /* then all are there */
        for (int64_t i = 0; i < n; i++)
            total[i] = wf_tensor_retain(moved[i]);
    return wf_context_status(ctx);
}

wf_status wf_par_losses_totals(wf_par_trainer *t, int64_t n, wf_par_losses *const *l,
                               wf_tensor **total)
{
    wf_context *ctx = t->par->ctx;
    wf_blocks *blocks = wf_context_blocks(ctx);
    size_t bytes = (size_t)(n * t->micros) * sizeof(void *);
    wf_tensor **moved = wf_blocks_take(blocks, bytes);
    const wf_layout **to = wf_blocks_take(blocks, bytes);

    for (int64_t i = 0; i < n; i++)
        total[i] = NULL;
    if (!moved || !to)
        wf_fail(ctx, WF_ENOMEM, "no memory for losses of %" PRId64 " micro-steps", t->micros);
    wf_scope_open(ctx);
    if (wf_context_status(ctx) == WF_OK)
        total_of(t, n, l, moved, to, total);
    wf_scope_close(ctx);
    for (int64_t i = 0; i < n; i++) {
        wf_par_sum_clear(&l[i]->total);
        wf_par_losses_clear(t, l[i]);
    }
    wf_blocks_give(blocks, moved, bytes);
    wf_blocks_give(blocks, to, bytes);
    return wf_context_status(ctx);
}

wf_tensor *wf_par_losses_total(wf_par_trainer *t, wf_par_losses *l)
{
    wf_tensor *total = NULL;

    if (l->put)
        wf_par_losses_totals(t, 1, &l, &total);
    return total;
}

wf_status wf_par_losses_mean(wf_par_trainer *t, const wf_par_losses *l, wf_tensor *total,
                             float *mean)
{
    wf_context *ctx = t->par->ctx;
    float sum;

    *mean = 0;
    wf_scope_open(ctx);
    total = wf_par_losses_computed(total);
    if (total && !wf_context_dry_run(ctx) && wf_data_get(total, 0, 1, &sum) == WF_OK)
        *mean = sum * l->weight;
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}
