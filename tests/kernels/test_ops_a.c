/*
 * tests/kernels/test_ops_a.c - the ops that work element by element, sum, look up and view:
 * cases for op_harness.h.
 */
#include "tests/kernels/op_harness.h"

/* element by element */

static void apply_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add(in[0], in[1]);
}

static void add(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_add);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
}

static void apply_sub(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_sub(in[0], in[1]);
}

static void sub(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_sub);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
}

static void apply_mul(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_mul(in[0], in[1]);
    out[1] = wf_mul(in[0], in[0]); /* both gradients go to one operand */
}

static void mul(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 2, apply_mul);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
}

static void apply_scale(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_scale(in[0], -1.7F);
}

static void scale(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_scale);
    c->in[0] = op_activations(s, op_width(s));
}

static void apply_add_constant(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add_constant(in[0], 0.7F);
}

static void add_constant(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_add_constant);
    c->in[0] = op_activations(s, op_width(s));
}

static void apply_silu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_silu(in[0]);
}

static void silu(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_silu);
    c->in[0] = op_activations(s, op_width(s));
    c->in[0].low = -9;
    c->in[0].high = 9;
}

static void apply_swiglu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_swiglu(in[0], in[1]);
}

static void swiglu(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_swiglu);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
    c->in[0].low = -9;
    c->in[0].high = 9;
}

static void apply_gelu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_gelu(in[0]);
}

static void gelu(op_case *c, const op_shape *s)
{
    silu(c, s);
    c->apply = apply_gelu;
}

static void apply_dropout(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_dropout(in[0], 0.25F, 9);
}

static void dropout(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_dropout);
    c->in[0] = op_activations(s, op_width(s));
}

static void apply_dropout_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_dropout_add(in[0], in[1], 0.25F, 9);
}

static void dropout_add(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_dropout_add);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
}

static void dropout_of_heads(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_dropout);
    c->in[0] = op_heads(s, s->heads);
}

static void dropout_per_token(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_dropout);
    c->in[0] = op_per_token(s);
}

/* sums */

static void apply_bias_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_bias_add(in[0], in[1]);
}

static void bias_add(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_bias_add);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_vector(op_width(s));
}

static void apply_bias_gelu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_bias_gelu(in[0], in[1]);
}

static void bias_gelu(op_case *c, const op_shape *s)
{
    bias_add(c, s);
    c->apply = apply_bias_gelu;
}

static void bias_gelu_of_heads(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_bias_gelu);
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = op_vector(wf_dim_width(s->head_dim));
}

static void bias_add_of_heads(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_bias_add);
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = op_vector(wf_dim_width(s->head_dim));
}

static void bias_add_without_tokens(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_bias_add);
    c->in[0] = op_matrix(wf_dim_batch(s->batch), wf_dim_chunked(s->width));
    c->in[1] = op_vector(wf_dim_chunked(s->width));
}

static void apply_batch_sum(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_batch_sum(in[0]);
}

static void batch_sum(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_batch_sum);
    c->in[0] = op_activations(s, op_width(s));
}

static void batch_sum_of_tokens(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_batch_sum);
    c->in[0] = op_matrix(wf_dim_chunked(s->tokens), op_width(s));
}

static void apply_batch_expand(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_batch_expand(in[0], in[1]);
}

static void batch_expand(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_batch_expand);
    c->in[0] = op_matrix(wf_dim_chunked(s->tokens), op_width(s));
    c->in[1] = op_unwanted(op_activations(s, op_width(s)));
}

static void apply_token_sum(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_token_sum(in[0]);
}

static void token_sum(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_token_sum);
    c->in[0] = op_per_token(s);
}

static void token_sum_of_activations(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_token_sum);
    c->in[0] = op_activations(s, op_width(s));
}

static void apply_token_expand(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_token_expand(in[0], in[1]);
}

static void token_expand(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_token_expand);
    c->in[0] = op_vector(wf_dim_batch(s->batch));
    c->in[1] = op_unwanted(op_activations(s, op_width(s)));
}

/* views and tables */

static void apply_split_heads(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_split_heads(in[0], in[0]->dim[2].grain);
}

static void split_heads(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_split_heads);
    c->in[0] = op_activations(s, wf_dim_heads(s->heads, s->head_dim));
}

static void apply_merge_heads(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_merge_heads(in[0]);
}

static void merge_heads(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_merge_heads);
    c->in[0] = op_heads(s, s->heads);
}

static void apply_embedding(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_embedding(in[0], in[1]);
}

static void embedding(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_embedding);
    c->in[0] = op_matrix(wf_dim_chunked(s->vocabulary), op_width(s));
    c->in[1] = op_token_ids(s);
}

static void embedding_without_tokens(op_case *c, const op_shape *s)
{
    embedding(c, s);
    c->in[1].ndim = 1;
}

static void apply_rows(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_rows(in[0], in[0]->dim[0].size - 2);
}

static void rows(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_rows);
    c->in[0] = op_matrix(wf_dim_width(s->tokens + 2), op_width(s));
}

static void apply_position_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_position_add(in[0], in[1]);
}

static void position_add(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_position_add);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(wf_dim_chunked(s->tokens), op_width(s));
}

static const op_entry cases[] = {
    {"add", add},
    {"sub", sub},
    {"mul", mul},
    {"scale", scale},
    {"add_constant", add_constant},
    {"silu", silu},
    {"swiglu", swiglu},
    {"gelu", gelu},
    {"dropout", dropout},
    {"dropout_add", dropout_add},
    {"dropout of heads", dropout_of_heads},
    {"dropout per token", dropout_per_token},
    {"bias_add", bias_add},
    {"bias_add of heads", bias_add_of_heads},
    {"bias_add without tokens", bias_add_without_tokens},
    {"bias_gelu", bias_gelu},
    {"bias_gelu of heads", bias_gelu_of_heads},
    {"batch_sum", batch_sum},
    {"batch_sum of tokens", batch_sum_of_tokens},
    {"batch_expand", batch_expand},
    {"token_sum", token_sum},
    {"token_sum of activations", token_sum_of_activations},
    {"token_expand", token_expand},
    {"split_heads", split_heads},
    {"merge_heads", merge_heads},
    {"embedding", embedding},
    {"embedding without tokens", embedding_without_tokens},
    {"rows", rows},
    {"position_add", position_add},
    {NULL, NULL},
};

int main(void)
{
    return op_main(OP_SUITE_A, cases, NULL);
}
