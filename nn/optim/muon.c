/* nn/optim/muon.c - see the header. Every product is one of kernels/linear.c, so its bits are
   fixed. */
#include "nn/optim/muon.h"
#include "core/numerics/squares.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include <math.h>
#include <string.h>

enum { STEPS = 5 };

static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;

/* The Frobenius norm; 0 in a plan. */
static double norm_of(const wf_tensor *x)
{
    wf_squares squares;
    wf_exact_sum sum;

    wf_squares_begin(&squares, x->ctx);
    wf_squares_add(&squares, x);
    wf_squares_end(&squares, &sum);
    return sqrt(wf_exact_value(&sum));
}

/* a x + (b A + c A A) x, A being symmetric to the bit: so A A is A A^T, and x A is x A^T. */
static wf_tensor *step(wf_tensor *x)
{
    bool tall = x->dim[0].size > x->dim[1].size;
    wf_tensor *gram, *mix, *y;

    wf_scope_open(x->ctx);
    gram = tall ? wf_linear_dw(x, x) : wf_linear(x, x);
    mix = wf_add(wf_scale(gram, b), wf_scale(wf_linear(gram, gram), c));
    y = wf_add(wf_scale(x, a), tall ? wf_linear(x, mix) : wf_linear_dx(1, &mix, &x));
    return wf_scope_return(x->ctx, y);
}

wf_status wf_nn_orthogonalize(wf_tensor *x)
{
    wf_update copy = {.lr = -1, .grad_scale = 1};
    char text[256];
    wf_context *ctx = x->ctx;
    wf_dim dims[2];
    wf_tensor *y;

    if (x->ndim != 2 || wf_tensor_local_count(x) != wf_tensor_count(x))
        return wf_fail(ctx, WF_ESHAPE,
                       "orthogonalize: %s is not a whole matrix on this rank: gather it first",
                       wf_tensor_describe(x, text, sizeof text));
    wf_scope_open(ctx);
    for (int d = 0; d < 2; d++) /* the model's splits have no meaning here: one chain each */
        dims[d] = wf_dim_width(x->dim[d].size);
    x = wf_tensor_view(x, 2, dims, NULL);
    y = x ? wf_scale(x, (float)(1 / (norm_of(x) + 1e-7))) : NULL;
    for (int i = 0; i < STEPS && y; i++)
        y = step(y);
    if (y && wf_init_fill(x, 0) == WF_OK)
        wf_sgd(x, y, y, &copy);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}
