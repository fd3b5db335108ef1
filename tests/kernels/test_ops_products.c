/* tests/kernels/test_ops_products.c - linear layers, joined and in groups: cases for
   op_harness.h. */
#include "kernels/attention_cached.h"
#include "kernels/linear_sum.h"
#include "tests/kernels/op_harness.h"

static void apply_linear(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear(in[0], in[1]);
}

static void linear(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_linear);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(wf_dim_chunked(s->vocabulary), op_width(s));
}

/* As after attention: the summed dim is made of heads. */
static void linear_over_heads(op_case *c, const op_shape *s)
{
    wf_dim heads = wf_dim_heads(s->heads, s->head_dim);

    *c = op_case_of(2, 1, apply_linear);
    c->in[0] = op_activations(s, heads);
    c->in[1] = op_matrix(op_width(s), heads);
}

static void apply_linear2(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_group(in[0], 2, &in[1], out);
}

static void linear2(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 2, apply_linear2);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = c->in[2] = op_matrix(wf_dim_chunked(s->vocabulary), op_width(s));
}

static void apply_linear3(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_group(in[0], 3, &in[1], out);
}

static void linear3(op_case *c, const op_shape *s)
{
    *c = op_case_of(4, 3, apply_linear3);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(wf_dim_heads(s->heads, s->head_dim), op_width(s));
    c->in[2] = c->in[3] = op_matrix(wf_dim_heads(s->groups, s->head_dim), op_width(s));
}

static void apply_linear_sum(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_sum(in[0], in[1], in[2], in[3]);
}

/* Both summed dims have chunks, as with tensor parallelism. */
static void linear_sum(op_case *c, const op_shape *s)
{
    wf_dim heads = wf_dim_heads(s->heads, s->head_dim), rank = wf_dim_chunked(s->groups + 3);

    *c = op_case_of(4, 1, apply_linear_sum);
    c->in[0] = op_activations(s, heads);
    c->in[1] = op_matrix(op_width(s), heads);
    c->in[2] = op_activations(s, rank);
    c->in[3] = op_matrix(op_width(s), rank);
}

/* Dims of one chunk, and of other chunks than each other. */
static void linear_sum_apart(op_case *c, const op_shape *s)
{
    linear_sum(c, s);
    c->in[2] = op_activations(s, wf_dim_width(s->groups));
    c->in[3] = op_matrix(op_width(s), wf_dim_width(s->groups));
}

static void apply_linear_bias(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_bias(in[0], 1, &in[1], &in[2], out);
}

static void linear_bias(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 1, apply_linear_bias);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(wf_dim_chunked(s->vocabulary), op_width(s));
    c->in[2] = op_vector(wf_dim_chunked(s->vocabulary));
}

static void apply_linear3_bias(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_bias(in[0], 3, &in[1], &in[4], out);
}

static void linear3_bias(op_case *c, const op_shape *s)
{
    const wf_dim queries = wf_dim_heads(s->heads, s->head_dim);
    const wf_dim keys = wf_dim_heads(s->groups, s->head_dim);

    *c = op_case_of(7, 3, apply_linear3_bias);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = op_matrix(queries, op_width(s));
    c->in[2] = c->in[3] = op_matrix(keys, op_width(s));
    c->in[4] = op_vector(queries);
    c->in[5] = c->in[6] = op_vector(keys);
}

static void apply_linear_bias_gelu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_bias_gelu(in[0], in[1], in[2]);
}

static void linear_bias_gelu(op_case *c, const op_shape *s)
{
    linear_bias(c, s);
    c->apply = apply_linear_bias_gelu;
}

static void apply_linear_swiglu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_swiglu(in[0], in[1], in[2]);
}

static void linear_swiglu(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 1, apply_linear_swiglu);
    c->in[0] = op_activations(s, op_width(s));
    c->in[1] = c->in[2] = op_matrix(wf_dim_chunked(s->vocabulary), op_width(s));
}

static void apply_linear_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_add(in[2], in[0], in[1], NULL);
}

static void linear_add(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 1, apply_linear_add);
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[1] = op_matrix(op_width(s), wf_dim_chunked(s->vocabulary));
    c->in[2] = op_activations(s, op_width(s));
}

static void apply_linear_bias_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_add(in[2], in[0], in[1], in[3]);
}

static void linear_bias_add(op_case *c, const op_shape *s)
{
    linear_add(c, s);
    c->n_in = 4;
    c->in[3] = op_vector(op_width(s));
    c->apply = apply_linear_bias_add;
}

/* Queries, keys and values, of which the first two rotate: at the tokens' places, and at places
   of their own. */
static void apply_linear_rope(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_rope(in[0], &in[1], NULL, &(wf_rope_options){.base = 500}, out);
}

static void linear_rope(op_case *c, const op_shape *s)
{
    linear3(c, s);
    c->apply = apply_linear_rope;
}

static void apply_linear_rope_at(wf_tensor *const *in, wf_tensor **out)
{
    const wf_rope_options neighbours = {.base = 500, .neighbours = true};

    wf_linear_rope(in[0], &in[1], in[4], &neighbours, out);
}

static void linear_rope_at(op_case *c, const op_shape *s)
{
    linear3(c, s);
    c->n_in = 5;
    c->in[4] = op_token_ids(s);
    c->apply = apply_linear_rope_at;
}

static const op_entry cases[] = {
    {"linear1", linear},
    {"linear1 over heads", linear_over_heads},
    {"linear2", linear2},
    {"linear3", linear3},
    {"linear2_sum", linear_sum},
    {"linear2_sum of chunks apart", linear_sum_apart},
    {"linear1_bias", linear_bias},
    {"linear3_bias", linear3_bias},
    {"linear1_bias_gelu", linear_bias_gelu},
    {"linear2_swiglu", linear_swiglu},
    {"linear1_add", linear_add},
    {"linear1_bias_add", linear_bias_add},
    {"linear3_rope", linear_rope},
    {"linear3_rope_at", linear_rope_at},
    {NULL, NULL},
};

int main(void)
{
    return op_main(OP_SUITE_PRODUCTS, cases, NULL);
}
