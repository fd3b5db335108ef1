/* tests/kernels/test_ops_b.c - norms, rope, attention and cross-entropy: the checks of
 * op_harness.h, and what is theirs alone. */
#include "tests/kernels/op_harness.h"
#include <string.h>

static void apply_layernorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_layernorm(in[0], in[1], in[2], 1e-5F);
}

static void layernorm(op_case *c, const op_shape *s)
{
    wf_dim d = wf_dim_width(s->width);

    *c = (op_case){.n_in = 3, .n_out = 1, .apply = apply_layernorm};
    c->in[0] = op_activations(s, d);
    c->in[1] = c->in[2] = op_vector(d);
}

static void apply_rmsnorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_rmsnorm(in[0], in[1], 1e-5F);
}

static void rmsnorm(op_case *c, const op_shape *s)
{
    wf_dim d = wf_dim_width(s->width);

    *c = (op_case){.n_in = 2, .n_out = 1, .apply = apply_rmsnorm};
    c->in[0] = op_activations(s, d);
    c->in[1] = op_vector(d);
}

/* One token per sequence, and tokens in two dims: the chunks of a sequence are other ones. */
static void rmsnorm_of_rows(op_case *c, const op_shape *s)
{
    rmsnorm(c, s);
    c->in[0].ndim = 2;
    c->in[0].dim[1] = c->in[0].dim[2];
}

static void rmsnorm_of_heads(op_case *c, const op_shape *s)
{
    rmsnorm(c, s);
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = op_vector(wf_dim_width(s->head_dim));
}

/* Both outputs are used: the gradient of the sum is added inside. */
static void apply_add_layernorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add_layernorm(in[0], in[1], in[2], in[3], 1e-5F, 0.25F, 9, &out[1]);
}

static void add_layernorm(op_case *c, const op_shape *s)
{
    wf_dim d = wf_dim_width(s->width);

    *c = (op_case){.n_in = 4, .n_out = 2, .apply = apply_add_layernorm};
    c->in[0] = c->in[1] = op_activations(s, d);
    c->in[2] = c->in[3] = op_vector(d);
}

static void apply_add_rmsnorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add_rmsnorm(in[0], in[1], in[2], 1e-5F, 0, 0, &out[1]);
}

static void add_rmsnorm(op_case *c, const op_shape *s)
{
    add_layernorm(c, s);
    c->n_in = 3;
    c->apply = apply_add_rmsnorm;
}

/* The sum alone is used, or the norm alone. */
static void add_layernorm_sum(op_case *c, const op_shape *s)
{
    add_layernorm(c, s);
    c->constant[0] = true;
    c->in[2].wanted = c->in[3].wanted = false;
}

static void add_rmsnorm_norm(op_case *c, const op_shape *s)
{
    add_rmsnorm(c, s);
    c->constant[1] = true;
}

static void apply_rope(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_rope(in[0], 10000, false);
}

static void rope(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 1, .n_out = 1, .apply = apply_rope};
    c->in[0] = op_heads(s, s->heads);
}

static void apply_rope_inverse(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_rope(in[0], 500, true);
}

static void rope_inverse(op_case *c, const op_shape *s)
{
    rope(c, s);
    c->apply = apply_rope_inverse;
}

static wf_tensor *causal(wf_tensor *q, wf_tensor *k, wf_tensor *v, float dropout, int site)
{
    return wf_attention(
        q, k, v, &(wf_attention_options){.causal = true, .dropout = dropout, .site = site});
}

static void apply_attention(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = causal(in[0], in[1], in[2], 0, 0);
}

static void attention(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 1, .apply = apply_attention};
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = c->in[2] = op_heads(s, s->groups);
}

static void apply_attention_dropout(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = causal(in[0], in[1], in[2], 0.3F, 2);
}

static void attention_dropout(op_case *c, const op_shape *s)
{
    attention(c, s);
    c->apply = apply_attention_dropout;
}

static void apply_attention_bidirectional(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_attention(in[0], in[1], in[2], NULL);
    out[1] =
        wf_attention(in[0], in[1], in[2], &(wf_attention_options){.dropout = 0.3F, .site = 2});
}

static void attention_bidirectional(op_case *c, const op_shape *s)
{
    attention(c, s);
    c->n_out = 2;
    c->apply = apply_attention_bidirectional;
}

static void apply_logit_max(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_logit_max(in[0]);
}

static void logit_max(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 1, .n_out = 1, .constant = {true}, .apply = apply_logit_max};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[0].wanted = false;
}

static void apply_logit_sum(wf_tensor *const *in, wf_tensor **out)
{
    wf_logit_sum(in[0], in[1], in[2], &out[0], &out[1]);
}

/* The maximum is any number here: to differences it is a constant, as it is to gradients. */
static void logit_sum(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 2, .apply = apply_logit_sum};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[1] = op_per_token(s);
    c->in[1].wanted = false;
    c->in[2] = op_token_ids(s);
}

static void logit_sum_alone(op_case *c, const op_shape *s)
{
    logit_sum(c, s);
    c->constant[1] = true;
}

static void picked_alone(op_case *c, const op_shape *s)
{
    logit_sum(c, s);
    c->constant[0] = true;
}

static void apply_cross_entropy(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_cross_entropy(in[0], in[1], in[2]);
}

static void cross_entropy(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 1, .apply = apply_cross_entropy};
    c->in[0] = c->in[1] = c->in[2] = op_per_token(s);
    c->in[0].low = 1;
    c->in[0].high = 50;
    c->in[2].wanted = false;
}

static void apply_loss(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *max = wf_logit_max(in[0]), *sum, *picked;

    wf_logit_sum(in[0], max, in[1], &sum, &picked);
    out[0] = wf_cross_entropy(sum, picked, max);
}

/* All of it, where the maximum does depend on the logits, and cancels out. */
static void loss(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 2, .n_out = 1, .apply = apply_loss};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[0].low = -20;
    c->in[0].high = 20;
    c->in[1] = op_token_ids(s);
}

static const op_entry entries[] = {{"layernorm", layernorm},
                                   {"rmsnorm", rmsnorm},
                                   {"rmsnorm of [batch, width]", rmsnorm_of_rows},
                                   {"rmsnorm of heads", rmsnorm_of_heads},
                                   {"rope", rope},
                                   {"rope, inverse", rope_inverse},
                                   {"attention", attention},
                                   {"attention with dropout", attention_dropout},
                                   {"attention to all tokens", attention_bidirectional},
                                   {"logit_max", logit_max},
                                   {"logit_sum", logit_sum},
                                   {"logit_sum, picked not used", logit_sum_alone},
                                   {"logit_sum, sum not used", picked_alone},
                                   {"cross_entropy", cross_entropy},
                                   {"loss of logits", loss},
                                   {"add_layernorm", add_layernorm},
                                   {"add_layernorm, norm not used", add_layernorm_sum},
                                   {"add_rmsnorm", add_rmsnorm},
                                   {"add_rmsnorm, sum not used", add_rmsnorm_norm},
                                   {NULL, NULL}};

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

static void wrong_parameters(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *q = tensor(ctx, 1, 3, 6, 4), *k = tensor(ctx, 1, 3, 4, 4);
    wf_tensor *odd = tensor(ctx, 1, 3, 6, 5), *none = tensor(ctx, 1, 3, 0, 4);
    wf_tensor *gain = wf_tensor_new(ctx, WF_F32, 1, &q->dim[3], NULL, WF_MEMORY_ACTIVATION);

    refused(ctx, causal(q, k, k, 0, 0), WF_ESHAPE, "6 query heads can't share 4");
    refused(ctx, causal(q, none, none, 0, 0), WF_ESHAPE, "can't share 0");
    refused(ctx, causal(q, q, q, 1, 0), WF_EINVAL, "dropout 1 ");
    refused(ctx, causal(q, q, q, -0.1F, 0), WF_EINVAL, "dropout -0.1");
    refused(ctx, causal(q, q, q, 0.1F, -1), WF_EINVAL, "site -1");
    refused(ctx, wf_rope(odd, 10000, false), WF_ESHAPE, "heads have 5");
    refused(ctx, wf_rope(q, 0, false), WF_EINVAL, "base is 0");
    refused(ctx, wf_rmsnorm(q, gain, 0), WF_EINVAL, "rmsnorm: eps is 0");
    refused(ctx, wf_layernorm(q, gain, gain, -1), WF_EINVAL, "layernorm: eps is -1");
    refused(ctx, causal(q, NULL, k, 0, 0), WF_EINVAL, "operand 1 is NULL");
    refused(ctx, wf_layernorm(NULL, gain, gain, 1), WF_EINVAL, "operand 0 is NULL");
    CU_ASSERT_PTR_NULL(causal(NULL, k, k, 0, 0));
    CU_ASSERT_PTR_NULL(wf_rope(NULL, 10000, false));
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
    wf_logit_sum(logits, max, targets, &sum, &picked);
    CU_ASSERT_PTR_NULL(picked);
    refused(ctx, sum, WF_EINVAL, words);
    wf_context_close(ctx);
}

static void wrong_targets(void)
{
    target_outside(9, "token 9 of sequence 1, position 1,");
    target_outside(-1, "token -1 of sequence 1, position 1,");
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
    plain = causal(x, x, x, 0, 4);
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    y = causal(x, x, x, 0.5F, 4);
    wf_context_position(ctx, 3, (wf_sequences){.first = 11});
    one = causal(second, second, second, 0.5F, 4);
    other = causal(x, x, x, 0.5F, 4);
    CU_ASSERT(memcmp(one->data, (float *)y->data + 20 * 2 * 8, 20 * 2 * 8 * sizeof(float)) ==
              0);
    CU_ASSERT(!alike(y, other));
    CU_ASSERT(!alike(y, plain));
    wf_context_position(ctx, 4, (wf_sequences){.first = 10});
    CU_ASSERT(!alike(y, causal(x, x, x, 0.5F, 4)));
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    CU_ASSERT(!alike(y, causal(x, x, x, 0.5F, 5)));
    CU_ASSERT(alike(y, causal(x, x, x, 0.5F, 4)));
    wf_context_training(ctx, false);
    CU_ASSERT(alike(plain, causal(x, x, x, 0.5F, 4)));
    wf_context_close(ctx);
}

/* dq of attention with dropout, the context having moved on before the way back, or not. */
static wf_tensor *late_gradient(wf_context *ctx, bool moved)
{
    wf_tensor *x = tensor(ctx, 2, 20, 2, 8), *q = wf_leaf(x), *y;
    wf_tape *tape = wf_tape_open(ctx);

    wf_context_training(ctx, true);
    wf_context_position(ctx, 3, (wf_sequences){.first = 10});
    y = causal(q, x, x, 0.5F, 4);
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
    wf_tensor *y = causal(q, k, k, 0, 0);
    double forward = 2.0 * 2 * 6 * 20 * 20 * 8;

    CU_ASSERT_EQUAL(wf_context_flops(ctx), forward);
    wf_backward(y, y, false);
    CU_ASSERT_EQUAL(wf_context_flops(ctx), 3.5 * forward);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test more[] = {{"wrong parameters are refused", wrong_parameters},
                                   {"wrong targets are refused", wrong_targets},
                                   {"dropout depends on the global position", dropout_position},
                                   {"the gradient has its forward's dropout", dropout_gradient},
                                   {"attention counts its work", flops},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_B, entries, more);
}
