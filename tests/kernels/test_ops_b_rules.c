/*
 * tests/kernels/test_ops_b_rules.c - norms, rope, attention and cross-entropy, what cases
 * cannot say: that mistakes are reported, where dropout's random numbers come from, and what
 * work is counted.
 */
#include "tests/kernels/op_harness.h"
#include <string.h>

static wf_tensor *tensor(wf_context *ctx, int64_t batch, int64_t tokens, int64_t heads,
                         int64_t dim)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens), wf_dim_chunked(heads),
                           wf_dim_width(dim)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((float *)t->data)[i] = (float)(i * 37 % 101) / 50 - 1;
    return t;
}

/* The call has failed with this code and a text that contains `words`; forget it. */
static void refused(wf_context *ctx, const wf_tensor *result, wf_status code, const char *words)
{
    CU_ASSERT_PTR_NULL(result);
    CU_ASSERT_EQUAL(wf_context_status(ctx), code);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    wf_context_clear(ctx);
}

/* Numbers of a scaling beyond all that models have, whose angles floats cannot hold. */
static void wrong_scalings(wf_context *ctx, wf_tensor *q)
{
    const wf_rope_scaling yarn = {
        .kind = WF_ROPE_YARN, .factor = 4, .original_positions = 16, .attention_factor = 1};
    wf_rope_scaling wrong[] = {yarn, yarn, yarn, yarn};

    wrong[0].factor = 1e-300;
    wrong[1].original_positions = INFINITY;
    wrong[2].beta_slow = NAN;
    wrong[3].attention_factor = 1e-46;
    for (int i = 0; i < 4; i++)
        refused(ctx, wf_rope(q, &(wf_rope_options){.base = 500, .scaling = wrong[i]}, false),
                WF_EINVAL, "its numbers must be from 1e-6 to 1e12");
    wrong[0] =
        (wf_rope_scaling){.kind = WF_ROPE_DYNAMIC, .factor = 0.5, .original_positions = 16};
    refused(ctx, wf_rope(q, &(wf_rope_options){.base = 500, .scaling = wrong[0]}, false),
            WF_EINVAL, "its factor must be 1 or more");
    wrong[0].factor = 2;
    refused(
        ctx,
        wf_rope(q, &(wf_rope_options){.base = 500, .scaling = wrong[0], .features = 2}, false),
        WF_EINVAL, "the first pair stays");
}

static void wrong_parameters(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *q = tensor(ctx, 1, 3, 6, 4), *k = tensor(ctx, 1, 3, 4, 4);
    wf_tensor *odd = tensor(ctx, 1, 3, 6, 5), *none = tensor(ctx, 1, 3, 0, 4);
    wf_tensor *gain = wf_tensor_new(ctx, WF_F32, 1, &q->dim[3], NULL, WF_MEMORY_ACTIVATION);

    refused(ctx, op_causal(q, k, k, 0, 0), WF_ESHAPE, "6 query heads can't share 4");
    refused(ctx, op_causal(q, none, none, 0, 0), WF_ESHAPE, "can't share 0");
    refused(ctx, op_causal(q, q, q, 1, 0), WF_EINVAL, "dropout 1 ");
    refused(ctx, op_causal(q, q, q, -0.1F, 0), WF_EINVAL, "dropout -0.1");
    refused(ctx, op_causal(q, q, q, 0.1F, -1), WF_EINVAL, "site -1");
    refused(ctx, wf_rope(odd, &(wf_rope_options){.base = 10000}, false), WF_ESHAPE,
            "heads have 5");
    refused(ctx, wf_rope(q, &(wf_rope_options){.base = 0}, false), WF_EINVAL, "base is 0");
    refused(ctx, wf_rmsnorm(q, gain, 0), WF_EINVAL, "rmsnorm: eps is 0");
    refused(ctx, wf_layernorm(q, gain, gain, -1), WF_EINVAL, "layernorm: eps is -1");
    refused(ctx, wf_layernorm(q, gain, gain, INFINITY), WF_EINVAL, "layernorm: eps is inf");
    refused(ctx, op_causal(q, NULL, k, 0, 0), WF_EINVAL, "operand 1 is NULL");
    refused(ctx, wf_layernorm(NULL, gain, gain, 1), WF_EINVAL, "operand 0 is NULL");
    CU_ASSERT_PTR_NULL(op_causal(NULL, k, k, 0, 0));
    refused(
        ctx,
        wf_rope(q, &(wf_rope_options){.base = 500, .scaling = {.kind = WF_ROPE_LINEAR}}, false),
        WF_EINVAL, "its factor must be greater than 0");
    refused(ctx,
            wf_rope(q,
                    &(wf_rope_options){.base = 500,
                                       .scaling = {.kind = WF_ROPE_LLAMA3,
                                                   .factor = 8,
                                                   .low_freq_factor = 4,
                                                   .high_freq_factor = 1,
                                                   .original_positions = 16}},
                    false),
            WF_EINVAL, "high_freq_factor not below that");
    refused(ctx, wf_rope(q, &(wf_rope_options){.base = 500, .features = 3}, false), WF_ESHAPE,
            "heads have 3");
    refused(ctx, wf_rope(q, &(wf_rope_options){.base = 500, .features = 6}, false), WF_ESHAPE,
            "rotates 6 features of heads that have 4");
    refused(
        ctx,
        wf_rope(q,
                &(wf_rope_options){.base = 500,
                                   .scaling = {.kind = WF_ROPE_LONG, .original_positions = 16}},
                false),
        WF_EINVAL, "a short and a long factor for each pair");
    wrong_scalings(ctx, q);
    CU_ASSERT_PTR_NULL(wf_rope(NULL, &(wf_rope_options){.base = 10000}, false));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void target_outside(int32_t target, const char *words)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *logits = tensor(ctx, 2, 3, 1, 9), *sum = logits, *picked = logits;
    wf_tensor *max = wf_logit_max(logits);
    wf_tensor *targets = wf_tensor_new(ctx, WF_I32, 3, logits->dim, NULL, WF_MEMORY_ACTIVATION);

    for (int i = 0; i < 6; i++)
        ((int32_t *)targets->data)[i] = i;
    ((int32_t *)targets->data)[4] = target;
    wf_logit_sum(logits, max, targets, 0, &sum, &picked);
    CU_ASSERT_PTR_NULL(picked);
    refused(ctx, sum, WF_EINVAL, words);
    wf_context_close(ctx);
}

static void wrong_targets(void)
{
    target_outside(9, "token 9 of sequence 1, position 1,");
    target_outside(-2, "token -2 of sequence 1, position 1,");
}

/* Returns true for +0, with that sign. */
static bool is_zero(const void *at, size_t size)
{
    static const char zeros[256];

    return size <= sizeof zeros && memcmp(at, zeros, size) == 0;
}

/* A row without a target has a loss and gradients of +0; those of other rows are unchanged by
   it. */
static void no_target(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *logits = tensor(ctx, 2, 3, 1, 9), *max = wf_logit_max(logits);
    wf_tensor *targets = wf_tensor_new(ctx, WF_I32, 3, logits->dim, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *loss[2], *dx[2];

    for (int masked = 0; masked < 2; masked++) {
        wf_tensor *sum, *picked, *dsum, *dpicked;

        for (int i = 0; i < 6; i++)
            ((int32_t *)targets->data)[i] = masked && i == 4 ? -1 : i;
        wf_logit_sum(logits, max, targets, 0, &sum, &picked);
        loss[masked] = wf_cross_entropy(sum, picked, max);
        wf_cross_entropy_grad(sum, loss[masked], &dsum, &dpicked);
        dx[masked] = wf_logit_sum_grad(logits, max, targets, dsum, dpicked, 0);
        CU_ASSERT_PTR_NOT_NULL_FATAL(dx[masked]);
    }
    for (int i = 0; i < 6; i++) {
        const float *l[2] = {loss[0]->data, loss[1]->data};
        const float *d[2] = {dx[0]->data, dx[1]->data};
        size_t row = 9 * sizeof(float);

        if (i == 4)
            CU_ASSERT(is_zero(&l[1][i], sizeof(float)) && is_zero(d[1] + 9 * i, row));
        if (i != 4)
            CU_ASSERT(memcmp(&l[0][i], &l[1][i], sizeof(float)) == 0 &&
                      memcmp(d[0] + 9 * i, d[1] + 9 * i, row) == 0 && l[0][i] > 0);
    }
    wf_context_close(ctx);
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return memcmp(a->data, b->data, (size_t)wf_tensor_count(a) * sizeof(float)) == 0;
}

/* The mask belongs to the training step and the global sequence, not to where they are
 * computed. */
static void dropout_position(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *x = tensor(ctx, 2, 20, 2, 8), *other, *plain, *y, *one;
    wf_tensor *second = tensor(ctx, 1, 20, 2, 8);

    memcpy(second->data, (float *)x->data + 20 * 2 * 8, 20 * 2 * 8 * sizeof(float));
    plain = op_causal(x, x, x, 0, 4);
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    y = op_causal(x, x, x, 0.5F, 4);
    wf_context_position(ctx, 3, (wf_sequences){.first = 11});
    one = op_causal(second, second, second, 0.5F, 4);
    other = op_causal(x, x, x, 0.5F, 4);
    CU_ASSERT(memcmp(one->data, (float *)y->data + 20 * 2 * 8, 20 * 2 * 8 * sizeof(float)) ==
              0);
    CU_ASSERT(!alike(y, other));
    CU_ASSERT(!alike(y, plain));
    wf_context_position(ctx, 4, (wf_sequences){.first = 10});
    CU_ASSERT(!alike(y, op_causal(x, x, x, 0.5F, 4)));
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    CU_ASSERT(!alike(y, op_causal(x, x, x, 0.5F, 5)));
    CU_ASSERT(alike(y, op_causal(x, x, x, 0.5F, 4)));
    wf_context_training(ctx, false);
    CU_ASSERT(alike(plain, op_causal(x, x, x, 0.5F, 4)));
    wf_context_close(ctx);
}

/* dq of attention with dropout, the context having moved on before the way back, or not. */
static wf_tensor *late_gradient(wf_context *ctx, bool moved)
{
    wf_tensor *x = tensor(ctx, 2, 20, 2, 8), *q = wf_leaf(x), *y;
    wf_tape *tape = wf_tape_open(ctx);

    wf_context_training(ctx, true);
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    y = op_causal(q, x, x, 0.5F, 4);
    if (moved) {
        wf_context_position(ctx, 9, (wf_sequences){.first = 50});
        wf_context_training(ctx, false);
    }
    CU_ASSERT_EQUAL(wf_backward(y, x, false), WF_OK);
    wf_tape_close(tape);
    return q->grad;
}

static void dropout_gradient(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *here = late_gradient(ctx, false), *moved = late_gradient(ctx, true);

    CU_ASSERT_PTR_NOT_NULL_FATAL(here);
    CU_ASSERT_PTR_NOT_NULL_FATAL(moved);
    CU_ASSERT(alike(here, moved));
    wf_context_close(ctx);
}

/* Two products of the causal half forward, five on the way back. */
static void flops(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *q = wf_leaf(tensor(ctx, 2, 20, 6, 8)), *k = tensor(ctx, 2, 20, 3, 8);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *y = op_causal(q, k, k, 0, 0);
    double forward = 2.0 * 2 * 6 * 20 * 20 * 8;

    CU_ASSERT_EQUAL(wf_context_flops(ctx), forward);
    wf_backward(y, y, false);
    CU_ASSERT_EQUAL(wf_context_flops(ctx), 3.5 * forward);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"wrong parameters are refused", wrong_parameters},
        {"wrong targets are refused", wrong_targets},
        {"a row without a target", no_target},
        {"dropout depends on the global position", dropout_position},
        {"the gradient has its forward's dropout", dropout_gradient},
        {"attention counts its work", flops},
        {NULL, NULL}};

    return wf_test_main("rules of ops b", tests);
}
