/* nn/optim/muon.c - see the header. Every product is one of kernels/linear.c, so its bits are
   fixed. */
#include "nn/optim/muon.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/optim/method_internal.h"
#include <math.h>
#include <string.h>

enum { STEPS = 5 };

static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;

/* a x + (b A + c A A) x, A being symmetric to the bit: so A A is A A^T, and x A is x A^T. */
static wf_tensor *step(wf_tensor *x)
{
    bool tall = x->dim[0].size > x->dim[1].size;
    wf_tensor *gram, *mix, *y;

    wf_scope_open(x->ctx);
    gram = tall ? wf_linear_dw(x, x) : wf_linear(x, x);
    mix = wf_axpby(b, gram, c, wf_linear(gram, gram));
    y = tall ? wf_linear(x, mix) : wf_linear_dx(1, &mix, &x);
    return wf_scope_return(x->ctx, wf_axpby(a, x, 1, y));
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
    y = x && wf_unit_norm(x, 1e-7) == WF_OK ? x : NULL;
    for (int i = 0; i < STEPS && y; i++)
        y = step(y);
    if (y && wf_init_fill(x, 0) == WF_OK)
        wf_sgd(x, y, y, &copy);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* m = beta1 m + g; direction = g + beta1 m (Nesterov) */
static wf_status direct(const wf_update *u, wf_tensor *grad, wf_tensor *const *state,
                        wf_tensor *direction)
{
    wf_update change = {.lr = -u->beta1,
                        .beta1 = u->beta1,
                        .grad_scale = u->grad_scale,
                        .step_scale = u->step_scale};
    wf_update add = {.lr = -1, .grad_scale = u->grad_scale, .step_scale = u->step_scale};
    wf_status status = wf_init_fill(direction, 0);

    if (status == WF_OK && state[0])
        status = wf_sgd(direction, grad, state[0], &change); /* m, and direction = beta1 m */
    return status == WF_OK ? wf_sgd(direction, grad, grad, &add) : status;
}

/* p = p - lr (0.2 sqrt(max(rows, columns)) direction + weight_decay p) */
static wf_status apply(const wf_update *u, wf_tensor *t, wf_tensor *direction)
{
    int64_t rows = t->dim[t->ndim - 2].size, columns = t->dim[t->ndim - 1].size;
    wf_update change = {.lr = u->lr,
                        .weight_decay = u->weight_decay,
                        .step_lr = u->step_lr,
                        .lr_times = u->lr_times};

    change.grad_scale = (float)(0.2 * sqrt((double)(rows > columns ? rows : columns)));
    return wf_sgd(t, direction, direction, &change);
}

static const wf_nn_matrix_update matrices = {.states = 1,
                                             .needs_beta1 = true,
                                             .direction = direct,
                                             .whole = wf_nn_orthogonalize,
                                             .apply = apply};

const wf_nn_method_row wf_nn_muon = {"muon",
                                     .states = 2,
                                     .uses =
                                         WF_NN_USES_BETA1 | WF_NN_USES_BETA2 | WF_NN_USES_EPS,
                                     .update = wf_nn_adamw_update,
                                     .matrix = &matrices,
                                     .captured = true};
