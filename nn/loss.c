/*
 * nn/loss.c - cross-entropy: loss = log sum_v exp(logit_v - max) + max - logit_target.
 *
 * The maximum is taken over the whole vocabulary before any exponential, so that the terms are
 * the same however the vocabulary is split.
 */
#include "kernels/ops.h"
#include "nn/gpt.h"

static const wf_nn_type loss_type = {"loss", sizeof(wf_nn_module), NULL, NULL};

wf_nn_module *wf_nn_loss_new(wf_context *ctx)
{
    return wf_nn_new(ctx, &loss_type);
}

wf_tensor *wf_nn_cross_entropy(wf_nn_module *m, wf_tensor *logits, wf_tensor *targets)
{
    enum { SUM, PICKED };
    wf_tensor *max, *part[2], *loss;
    const char *outside;

    if (!m || !logits)
        return NULL;
    outside = wf_nn_enter(m);
    max = wf_nn_at(m, "max", wf_logit_max(logits));
    wf_logit_sum(logits, max, targets, &part[SUM], &part[PICKED]);
    wf_nn_at_many(m, "sum", 2, part);
    loss = wf_cross_entropy(part[SUM], part[PICKED], max);
    wf_nn_leave(m, outside, 1, &loss);
    return loss;
}
