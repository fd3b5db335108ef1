/* tests/kernels/test_ops_norms.c - norms, alone and after a residual addition: the checks of
 * op_harness.h. */
#include "tests/kernels/op_harness.h"

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

/* Gradients of rows alone, and of vectors alone: each has a kernel of its own. */
static void layernorm_rows(op_case *c, const op_shape *s)
{
    layernorm(c, s);
    c->in[1].wanted = c->in[2].wanted = false;
}

static void layernorm_vectors(op_case *c, const op_shape *s)
{
    layernorm(c, s);
    c->in[0].wanted = false;
}

static void rmsnorm_rows(op_case *c, const op_shape *s)
{
    rmsnorm(c, s);
    c->in[1].wanted = false;
}

static void rmsnorm_vectors(op_case *c, const op_shape *s)
{
    rmsnorm(c, s);
    c->in[0].wanted = false;
}

static void add_layernorm_rows(op_case *c, const op_shape *s)
{
    add_layernorm(c, s);
    c->in[2].wanted = c->in[3].wanted = false;
}

static void add_rmsnorm_rows(op_case *c, const op_shape *s)
{
    add_rmsnorm(c, s);
    c->in[2].wanted = false;
}

static const op_entry entries[] = {{"layernorm", layernorm},
                                   {"layernorm, gradient of rows", layernorm_rows},
                                   {"layernorm, gradient of vectors", layernorm_vectors},
                                   {"rmsnorm", rmsnorm},
                                   {"rmsnorm, gradient of rows", rmsnorm_rows},
                                   {"rmsnorm, gradient of a vector", rmsnorm_vectors},
                                   {"rmsnorm of [batch, width]", rmsnorm_of_rows},
                                   {"rmsnorm of heads", rmsnorm_of_heads},
                                   {"add_layernorm", add_layernorm},
                                   {"add_layernorm, norm not used", add_layernorm_sum},
                                   {"add_layernorm, gradient of rows", add_layernorm_rows},
                                   {"add_rmsnorm", add_rmsnorm},
                                   {"add_rmsnorm, sum not used", add_rmsnorm_norm},
                                   {"add_rmsnorm, gradient of rows", add_rmsnorm_rows},
                                   {NULL, NULL}};

int main(void)
{
    return op_main(OP_SUITE_NORMS, entries, NULL);
}
