/*
 * tests/kernels/test_fused.c - an op that joins several has their bits: outputs and gradients,
 * for 1 and 3 threads and sizes on and off the width of a vector.
 */
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

enum { INPUTS = 7, OUTPUTS = 3, SITE = 5 };

typedef void forward(wf_tensor *const *in, wf_tensor **out);

typedef struct pair {
    const char *name;
    /* operands, in this order: [batch, tokens, width], [width, width], [width] */
    int activations, matrices, vectors;
    int outputs;
    forward *joined, *separate;
} pair;

static void bias_gelu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_bias_gelu(in[0], in[1]);
}

static void bias_gelu_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_gelu(wf_bias_add(in[0], in[1]));
}

static void swiglu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_swiglu(in[0], in[1]);
}

static void swiglu_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_mul(wf_silu(in[0]), in[1]);
}

static void dropout_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_dropout_add(in[0], in[1], 0.3F, SITE);
}

static void dropout_add_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add(in[0], wf_dropout(in[1], 0.3F, SITE));
}

static void add_layernorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add_layernorm(in[0], in[1], in[2], in[3], 1e-5F, 0.3F, SITE, &out[1]);
}

static void add_layernorm_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[1] = wf_add(in[0], wf_dropout(in[1], 0.3F, SITE));
    out[0] = wf_layernorm(out[1], in[2], in[3], 1e-5F);
}

static void add_rmsnorm(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add_rmsnorm(in[0], in[1], in[2], 1e-5F, 0, SITE, &out[1]);
}

static void add_rmsnorm_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[1] = wf_add(in[0], in[1]);
    out[0] = wf_rmsnorm(out[1], in[2], 1e-5F);
}

static void linear_bias(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_bias(in[0], 1, &in[1], &in[2], out);
}

static void linear_bias_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_bias_add(wf_linear(in[0], in[1]), in[2]);
}

static void linear3_bias(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_bias(in[0], 3, &in[1], &in[4], out);
}

static void linear3_bias_apart(wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_group(in[0], 3, &in[1], out);
    for (int m = 0; m < 3; m++)
        out[m] = wf_bias_add(out[m], in[4 + m]);
}

static void linear_bias_gelu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_bias_gelu(in[0], in[1], in[2]);
}

static void linear_bias_gelu_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_bias_gelu(wf_linear(in[0], in[1]), in[2]);
}

/* x, what its product is added to, weight, bias */
static void linear_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_add(in[1], in[0], in[2], NULL);
}

static void linear_add_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add(in[1], wf_linear(in[0], in[2]));
}

static void linear_bias_add(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_add(in[1], in[0], in[2], in[3]);
}

static void linear_bias_add_apart(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_add(in[1], wf_bias_add(wf_linear(in[0], in[2]), in[3]));
}

static void linear_swiglu(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_linear_swiglu(in[0], in[1], in[2]);
}

static void linear_swiglu_apart(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *y[2];

    wf_linear_group(in[0], 2, &in[1], y);
    out[0] = wf_swiglu(y[0], y[1]);
}

static const pair pairs[] = {
    {"linear1_bias", 1, 1, 1, 1, linear_bias, linear_bias_apart},
    {"linear3_bias", 1, 3, 3, 3, linear3_bias, linear3_bias_apart},
    {"linear1_bias_gelu", 1, 1, 1, 1, linear_bias_gelu, linear_bias_gelu_apart},
    {"linear2_swiglu", 1, 2, 0, 1, linear_swiglu, linear_swiglu_apart},
    {"linear1_add", 2, 1, 0, 1, linear_add, linear_add_apart},
    {"linear1_bias_add", 2, 1, 1, 1, linear_bias_add, linear_bias_add_apart},
    {"bias_gelu", 1, 0, 1, 1, bias_gelu, bias_gelu_apart},
    {"swiglu", 2, 0, 0, 1, swiglu, swiglu_apart},
    {"dropout_add", 2, 0, 0, 1, dropout_add, dropout_add_apart},
    {"add_layernorm", 2, 0, 2, 2, add_layernorm, add_layernorm_apart},
    {"add_rmsnorm", 2, 0, 1, 2, add_rmsnorm, add_rmsnorm_apart},
};

static wf_tensor *random_of(wf_context *ctx, int ndim, const wf_dim *dims, uint64_t stream)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_EQUAL_FATAL(wf_init_normal(t, 0, 1, stream), WF_OK);
    return t;
}

typedef struct result {
    wf_tensor *of[OUTPUTS + INPUTS]; /* outputs, then gradients */
    int n;
} result;

/* Activations are made by an op, matrices and vectors are leaves, as in a model: `defer` or
   not, both must get their gradients. */
static result run(wf_context *ctx, const pair *p, forward *f, const wf_dim *dims, bool defer)
{
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf[INPUTS], *in[INPUTS], *out[OUTPUTS] = {NULL}, *root = NULL;
    result r = {.n = 0};
    int first_vector = p->activations + p->matrices, n_in = first_vector + p->vectors;
    const wf_dim square[] = {dims[2], dims[2]};

    for (int i = 0; i < n_in; i++) {
        bool activation = i < p->activations, vector = i >= first_vector;
        const wf_dim *of = activation ? dims : vector ? dims + 2 : square;

        leaf[i] = wf_leaf(random_of(ctx, activation ? 3 : vector ? 1 : 2, of, (uint64_t)i));
        in[i] = activation ? wf_scale(leaf[i], 1.5F) : leaf[i];
    }
    f(in, out);
    for (int o = 0; o < p->outputs; o++) {
        wf_tensor *term = wf_mul(out[o], random_of(ctx, 3, dims, 20 + (uint64_t)o));

        root = root ? wf_add(root, term) : term;
        r.of[r.n++] = out[o];
    }
    CU_ASSERT_EQUAL(wf_backward(root, random_of(ctx, 3, dims, 30), defer), WF_OK);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    for (int i = 0; i < n_in; i++)
        r.of[r.n++] = leaf[i]->grad;
    wf_tape_close(tape);
    return r;
}

static void compare(wf_context *ctx, const pair *p, const wf_dim *dims, bool defer)
{
    result a, b;

    wf_scope_open(ctx);
    a = run(ctx, p, p->joined, dims, defer);
    b = run(ctx, p, p->separate, dims, defer);
    for (int i = 0; i < a.n; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(a.of[i]);
        CU_ASSERT_PTR_NOT_NULL_FATAL(b.of[i]);
        if (memcmp(a.of[i]->data, b.of[i]->data,
                   (size_t)wf_tensor_count(a.of[i]) * sizeof(float)) != 0) {
            printf("\n    %s: result %d of %d differs", p->name, i, a.n);
            CU_FAIL("not the bits of the ops apart");
        }
    }
    wf_scope_close(ctx);
}

static void bits_of_the_ops_apart(void)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {2, 7, 5}, {3, 16, 64}, {2, 33, 203}, {2, 40, 2500}};

    for (int threads = 1; threads <= 3; threads += 2) {
        const wf_context_options options = {.seed = 7};
        wf_error error = {WF_OK, ""};
        wf_context *ctx = wf_context_open(wf_cpu_device(threads, &error), &options, &error);

        CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
        wf_context_position(ctx, 3, (wf_sequences){.first = 5});
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const wf_dim dims[] = {wf_dim_batch(sizes[s][0]), wf_dim_chunked(sizes[s][1]),
                                   wf_dim_width(sizes[s][2])};

            for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
                if (pairs[p].matrices && sizes[s][2] > 1000)
                    continue; /* to see nothing more, for minutes under a sanitizer */
                compare(ctx, &pairs[p], dims, false);
                compare(ctx, &pairs[p], dims, true);
            }
        }
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* Ops that a walk back has called, of norms. */
typedef struct gradients {
    int both, rows, vectors;
} gradients;

static void count(void *arg, const wf_call *call)
{
    gradients *g = arg;
    const char *norm = strstr(call->op->name, "norm_");

    g->both += norm && strcmp(norm, "norm_grad") == 0;
    g->rows += norm && strcmp(norm, "norm_dx") == 0;
    g->vectors += norm && strcmp(norm, "norm_dw") == 0;
}

/* The walk back over a norm of what an op has made; trained: gain and bias are leaves. */
static gradients gradients_of(wf_context *ctx, bool added, bool trained, bool defer)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(9), wf_dim_width(12)};
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x = wf_scale(wf_leaf(random_of(ctx, 3, dims, 1)), 2), *y, *sum;
    wf_tensor *gain = random_of(ctx, 1, dims + 2, 2), *bias = random_of(ctx, 1, dims + 2, 3);
    gradients g = {0};

    if (trained) {
        gain = wf_leaf(gain);
        bias = wf_leaf(bias);
    }
    y = added ? wf_add_layernorm(x, x, gain, bias, 1e-5F, 0, SITE, &sum)
              : wf_layernorm(x, gain, bias, 1e-5F);
    wf_context_observe(ctx, count, &g);
    CU_ASSERT_EQUAL(wf_backward(y, random_of(ctx, 3, dims, 4), defer), WF_OK);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    wf_context_observe(ctx, NULL, NULL);
    CU_ASSERT(!trained || (gain->grad && bias->grad));
    wf_tape_close(tape);
    return g;
}

/* Rows and vectors of a norm are one op, where gradients of leaves can wait too; what is not
   trained costs nothing. */
static void gradients_in_one_pass(void)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    for (int way = 0; way < 8; way++) {
        const bool trained = way & 1;
        gradients g;

        wf_scope_open(ctx);
        g = gradients_of(ctx, way & 4, trained, way & 2);
        CU_ASSERT_EQUAL(g.both, trained);
        CU_ASSERT_EQUAL(g.rows, !trained);
        CU_ASSERT_EQUAL(g.vectors, 0);
        wf_scope_close(ctx);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"bits of the ops apart", bits_of_the_ops_apart},
                                    {"gradients in one pass", gradients_in_one_pass},
                                    {NULL, NULL}};

    return wf_test_main("fused", tests);
}
