/*
 * tests/kernels/test_ops_computed.c - operands that other ops made, and groups whose members
 * differ: cases for op_harness.h. A weight, a bias or a gain that is computed before it is used
 * has a gradient of its own shape, which flows to what it was computed from.
 */
#include "tests/kernels/op_harness.h"
#include "tests/sanitizer.h"

static wf_dim width(const op_shape *s)
{
    return wf_dim_width(s->width);
}

static wf_dim columns(const op_shape *s)
{
    return wf_dim_chunked(s->tokens + 2);
}

/* A scaled weight under a mask; nothing else has a gradient: x is data. */
static void apply_masked(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear(in[0], wf_mul(wf_scale(in[1], 0.3F), in[2]));
}

static void masked(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 1, apply_masked);
    c->in[0] = op_unwanted(op_activations(s, width(s)));
    c->in[1] = op_matrix(columns(s), width(s));
    c->in[2] = op_unwanted(c->in[1]);
}

/* w[n] = g[n] v[n] / |v[n]|, by rows. */
static void apply_weight_norm(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *direction = wf_rmsnorm(in[1], in[3], 1e-3F);

    out[0] = wf_linear(in[0], wf_mul(direction, wf_token_expand(in[2], in[1])));
}

static void weight_norm(op_case *c, const op_shape *s)
{
    *c = op_case_of(4, 1, apply_weight_norm);
    c->in[0] = op_activations(s, width(s));
    c->in[1] = op_matrix(columns(s), width(s));
    c->in[2] = op_vector(columns(s));
    c->in[3] = op_unwanted(op_vector(width(s)));
}

/* y = x (W + 2 B A)^T with W frozen. */
static void apply_low_rank(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear(in[0], wf_add(in[1], wf_scale(wf_linear(in[2], in[3]), 2)));
}

static void low_rank(op_case *c, const op_shape *s)
{
    wf_dim rank = wf_dim_width(3);

    *c = op_case_of(4, 1, apply_low_rank);
    c->in[0] = op_activations(s, width(s));
    c->in[1] = op_unwanted(op_matrix(columns(s), width(s)));
    c->in[2] = op_matrix(columns(s), rank);
    c->in[3] = op_matrix(width(s), rank);
}

/* A leaf beside a weight that is computed, in one group. */
static void apply_mixed(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *weights[] = {in[1], wf_scale(in[2], -2), in[3]};

    wf_linear_group(in[0], 3, weights, out);
}

static void mixed(op_case *c, const op_shape *s)
{
    *c = op_case_of(4, 3, apply_mixed);
    c->in[0] = op_activations(s, width(s));
    c->in[1] = c->in[2] = c->in[3] = op_matrix(columns(s), width(s));
}

/* Biases and gains: a row per sequence is what only leaves get. */
static void apply_vectors(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *bias = wf_mul(in[1], in[2]);

    out[0] = wf_bias_gelu(wf_bias_add(in[0], bias), wf_scale(in[1], 3));
}

static void vectors(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 1, apply_vectors);
    c->in[0] = op_activations(s, columns(s));
    c->in[1] = c->in[2] = op_vector(columns(s));
}

/* Takes a leaf as the gain and a computed bias, and the other way round. */
static void apply_norms(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *sum, *made = wf_mul(in[2], in[3]);

    out[0] = wf_layernorm(in[0], in[4], made, 1e-3F);
    out[1] = wf_layernorm(in[0], made, in[5], 1e-3F);
    out[2] = wf_add_layernorm(in[0], in[1], made, made, 1e-3F, 0, 1, &sum);
    out[3] = wf_add_rmsnorm(sum, wf_rmsnorm(in[1], made, 1e-3F), made, 1e-3F, 0, 1, &sum);
}

static void norms(op_case *c, const op_shape *s)
{
    *c = op_case_of(6, 4, apply_norms);
    c->in[0] = c->in[1] = op_activations(s, width(s));
    for (int i = 2; i < 6; i++)
        c->in[i] = op_vector(width(s));
}

/* Members whose columns are cut in 8 leaves beside others with one. */
static void apply_group(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_group(in[0], 3, &in[1], out);
}

static void group(op_case *c, const op_shape *s)
{
    *c = op_case_of(4, 3, apply_group);
    c->in[0] = op_activations(s, width(s));
    c->in[1] = c->in[3] = op_matrix(columns(s), width(s));
    c->in[2] = op_matrix(wf_dim_width(s->width + 1), width(s));
}

static const op_entry cases[] = {
    {"a masked weight", masked},
    {"weight norm", weight_norm},
    {"a merged low-rank weight", low_rank},
    {"a group with a weight that is computed", mixed},
    {"vectors that are computed", vectors},
    {"gains and biases that are computed", norms},
    {"a group of 8, 1 and 8 leaves", group},
    {NULL, NULL},
};

int main(void)
{
    /* under a sanitizer vectors and the group alone: the rest repeats what products do */
    return op_main(OP_SUITE_COMPUTED, cases + (UNDER_SANITIZER ? 4 : 0), NULL);
}
