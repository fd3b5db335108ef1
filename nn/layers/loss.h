/*
 * nn/layers/loss.h - cross-entropy over a vocabulary that may be split: of logits, or together
 * with the linear layer that makes them, a tile of tokens at a time.
 */
#ifndef WF_NN_LAYERS_LOSS_H
#define WF_NN_LAYERS_LOSS_H

#include "nn/layers/linear.h"

WF_BEGIN_DECLS

typedef struct wf_nn_loss {
    wf_nn_module base;
    /* tokens of a rank whose logits are in memory at once, at most, where that is a sequence or
       a chunk of a long one (wf_token_chunks); 0: as many as take the least memory. No result
       depends on it */
    int64_t chunk;
    /* terms of training, which evaluation and generation do not have. smoothing, 0 to below 1:
       the target's share of it that all V tokens have alike, (1 - smoothing) * loss + smoothing
       / V * (sum of the losses of all tokens as targets), as label_smoothing of
       torch.nn.functional.cross_entropy. z, 0 or more: z * (log of the sum of the
       exponentials)^2 (PaLM, Chowdhery et al. 2022) */
    float smoothing, z;
} wf_nn_loss;

/**
 * wf_nn_loss_new - makes a cross-entropy loss
 *
 * Points: "max" (the largest logits), "sum" (sum of exponentials and picked logits, together)
 * Owner:  its parent
 */
WF_API wf_nn_loss *wf_nn_loss_new(wf_context *ctx);

/** wf_nn_cross_entropy - returns the loss of every token, [batch, tokens]; targets i32 [batch,
 * tokens]; with target -1 a token's loss is +0, and its gradient zero. Collective: where a plan
 * has borders. */
WF_API wf_tensor *wf_nn_cross_entropy(wf_nn_loss *loss, wf_tensor *logits, wf_tensor *targets);

/**
 * wf_nn_logsumexp - returns the log of the sum of the exponentials of all logits of a token,
 * [batch, tokens]
 *
 * The log probability of token v is its logit less this, and its negative the loss of target v,
 * with the bits of wf_nn_cross_entropy.
 *
 * @param logits  [batch, tokens, vocabulary]
 * Collective:  where a plan has borders
 * Owner:       scope
 * Gradient:    none: for generation
 */
WF_API wf_tensor *wf_nn_logsumexp(wf_nn_loss *loss, wf_tensor *logits);

/**
 * wf_nn_linear_cross_entropy - computes wf_nn_cross_entropy(loss, wf_nn_call(head, x),
 * targets), bit by bit, without ever holding the logits of all tokens
 *
 * Where a tape records, the gradients are made in the same pass, for the given weight.
 * wf_backward then demands that weight as the gradient of every token's loss.
 *
 * @param head    linear [vocabulary, width], whose point "sum" moves nothing
 * @param x       [batch, tokens, width]
 * @param weight  factor of every token's loss in the sum that is differentiated
 * Collective:  where a plan has borders: those of `loss` once per tile
 * Owner:       scope
 * Errors:      WF_EUNSUPPORTED (a border at "sum"), WF_ESHAPE (dim 0 is no batch);
 *              result is then NULL. In wf_backward, WF_EINVAL for another gradient
 * Gradient:    to x and the head's weight and bias
 */
WF_API wf_tensor *wf_nn_linear_cross_entropy(wf_nn_linear *head, wf_nn_loss *loss, wf_tensor *x,
                                             wf_tensor *targets, float weight);

WF_END_DECLS

#endif
