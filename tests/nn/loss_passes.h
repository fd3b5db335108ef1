/*
 * tests/nn/loss_passes.h - passes there and back over a model whose head is fused with its
 * loss, and over one whose logits are whole, compared bit by bit.
 */
#ifndef WF_TESTS_NN_LOSS_PASSES_H
#define WF_TESTS_NN_LOSS_PASSES_H

#include "kernels/ops.h"
#include "parallel/shard/gradient_reduce_internal.h"
#include "tests/nn/model_ranks.h"

enum { SEQUENCES = 6, TOKENS = 8, VOCABULARY = 257 };

static const float weight = 1.0f / (SEQUENCES * TOKENS);

static inline wf_nn_gpt_config config_of(const char *family)
{
    wf_nn_gpt_config config = *wf_nn_gpt_family(family);

    config.vocabulary = VOCABULARY;
    config.positions = TOKENS;
    config.layers = 1, config.heads = 6;
    config.kv_heads = 3;
    config.width = config.ffn = 24;
    config.dropout = 0.2f;
    return config;
}

/* Tokens, or targets, of `batch` sequences: any, but the same on all layouts. */
static inline wf_tensor *any_tokens(model_rank *r, int64_t batch, int64_t vocabulary,
                                    uint64_t which)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(TOKENS)};
    wf_tensor *t = wf_tensor_new(r->ctx, WF_I32, 2, dims, wf_par_batch_layout(r->par),
                                 WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((int32_t *)t->data)[e] =
            (int32_t)(wf_mix64(which + (uint64_t)whole_index(t, e)) % (uint64_t)vocabulary);
    return t;
}

static inline wf_tensor *filled(const wf_tensor *like, float value)
{
    wf_tensor *t = like ? wf_tensor_new(like->ctx, WF_F32, like->ndim, like->dim, like->layout,
                                        WF_MEMORY_ACTIVATION)
                        : NULL;

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = value;
    return t;
}

static inline wf_tensor *plain_loss(model_rank *r, wf_tensor *tokens, wf_tensor *targets)
{
    return wf_nn_cross_entropy(r->model->loss, wf_nn_gpt_logits(r->model, tokens), targets);
}

static inline bool same_data(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->layout == b->layout && a->ndim == b->ndim &&
           wf_tensor_local_count(a) == wf_tensor_local_count(b) &&
           memcmp(a->data, b->data,
                  (size_t)wf_tensor_local_count(a) * wf_dtype_size(a->dtype)) == 0;
}

/* One pass there and back, every fourth token without a target; uses keep their gradients. */
static inline wf_tensor *there_and_back(model_rank *r, int64_t batch, bool fused, bool deferred)
{
    wf_tensor *tokens = any_tokens(r, batch, VOCABULARY, 1);
    wf_tensor *targets = any_tokens(r, batch, VOCABULARY, 1 << 20), *loss;
    wf_tape *tape;

    for (int64_t e = 0; targets && e < wf_tensor_local_count(targets); e += 4)
        ((int32_t *)targets->data)[e] = -1;
    wf_context_position(r->ctx, 3, (wf_sequences){.first = 0});
    tape = wf_tape_open(r->ctx);
    loss = fused ? wf_nn_gpt_loss(r->model, tokens, targets, weight)
                 : plain_loss(r, tokens, targets);
    if (loss && wf_backward(loss, filled(loss, weight), deferred) == WF_OK && deferred)
        wf_backward_weights(tape);
    wf_tape_close(tape);
    return loss;
}

/* The gradients of all uses, in order, taken out of the parameters. */
static inline int64_t take_gradients(model_rank *r, wf_par_gradients *g, wf_tensor **grad)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->count; i++)
        for (int u = 0; u < wf_nn_leaves_of(r->parameter[i], NULL)->uses; u++)
            grad[n++] = wf_tensor_retain(wf_nn_leaves_of(r->parameter[i], NULL)->use[u]->grad);
    wf_par_gradients_reset(g);
    return n;
}

static inline wf_status compare(model_rank *r, void *arg)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 100};
    const int64_t batch = *(const int64_t *)arg;
    wf_rank *rank = r->rank;
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_tensor *plain[64], *fused[64], *loss, *again;
    int64_t n;

    NEED(g && r->count * 2 < 64);
    wf_scope_open(r->ctx);
    loss = there_and_back(r, batch, false, false);
    n = take_gradients(r, g, plain);
    NEED(loss && n > 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        r->model->loss->chunk = sizes[s] * TOKENS;
        again = there_and_back(r, batch, true, s % 2);
        NEED(same_data(again, loss));
        NEED(take_gradients(r, g, fused) == n);
        for (int64_t i = 0; i < n; i++) {
            NEED(same_data(fused[i], plain[i]));
            wf_tensor_release(fused[i]);
        }
    }
    for (int64_t i = 0; i < n; i++)
        wf_tensor_release(plain[i]);
    wf_scope_close(r->ctx);
    wf_par_gradients_close(g);
    return wf_context_status(r->ctx);
}

#endif
