/*
 * nn/optim/adafactor.c - Adafactor (Shazeer & Stern 2018, "Adafactor: adaptive learning rates
 * with sublinear memory cost"), with transformers' numbers. Of a tensor with rows and columns,
 * its last two dims, the second moment is kept as that of rows and that of columns:
 *
 *     b = 1 - step^-0.8
 *     r = b r + (1 - b) mean over columns (g^2 + 1e-30),  c likewise over rows
 *     u = g / sqrt(r / mean(r)) / sqrt(c);  without rows u = g / sqrt(v), v as r of elements
 *     u = u / max(1, rms(u) / threshold)
 *     p = p - rate weight_decay p - rate u,  rate = lr max(1e-3, rms(p))
 *
 * with beta1 above 0 along m = beta1 m + (1 - beta1) rate u. The "relative step" of the paper
 * is a schedule: inverse-sqrt with lr 1e-2 and a warm-up of 10,000 steps is transformers'
 * relative_step with warmup_init.
 *
 * Numbers of wf_nn_optimizer_options.own, each 0 for the one above: [0] threshold, [1]
 * exponent, [2] the least scale of a parameter, 1e-3; [3] 1: rate = lr (scale_parameter =
 * False).
 *
 * Rows and columns are added up where they are whole, so any layout has the same bits.
 */
#include "core/numerics/math.h"
#include "core/context.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/reshape.h"
#include "nn/optim/method_internal.h"
#include <math.h>
#include <string.h>

enum { FIRST, ROWS, COLUMNS }; /* states; ROWS is all of it where there are no columns */

static const float tiny = 1e-30f;

static wf_nn_state_shape shape(int k, int ndim, const wf_dim *dims)
{
    wf_nn_state_shape s = {WF_NN_STATE_OWN, .ndim = ndim - 1};
    int gone = k == ROWS ? ndim - 1 : ndim - 2;

    if (k == FIRST)
        s.kind = WF_NN_STATE_MOMENTUM;
    else if (k == COLUMNS && ndim == 2)
        s.like = 1;
    if (ndim < 2 && k != FIRST)
        s.kind = k == ROWS ? WF_NN_STATE_LIKE : WF_NN_STATE_NONE;
    for (int d = 0, to = 0; d < ndim; d++)
        if (d != gone)
            s.dim[to++] = dims[d];
    return s;
}

/* s = b s + (1 - b) x, in place */
static wf_status decay(wf_tensor *s, float b, wf_tensor *x)
{
    const wf_update u = {.lr = 1, .weight_decay = 1 - b, .grad_scale = b - 1};

    return wf_sgd(s, x, x, &u);
}

/* Returns g^2 + 1e-30. */
static wf_tensor *squares(wf_tensor *g)
{
    return wf_add_constant(wf_mul(g, g), tiny);
}

/* Updates this rank's part of a state from the mean of squares over one dim of a part in which
   that is whole. */
static wf_tensor *mean_squares(wf_tensor *part, int dim, float b, float scale, wf_tensor *state)
{
    wf_tensor *s = wf_nn_parts_local(state);

    if (!part || !s || !wf_tensor_local_count(part))
        return s;
    wf_scope_open(s->ctx);
    decay(s, b, wf_mean(squares(wf_scale(wf_nn_parts_local(part), scale)), dim));
    wf_scope_close(s->ctx);
    return s;
}

/* Returns g times the factors of rows and of columns, r / mean and c. */
static wf_tensor *factored(wf_tensor *g, float scale, wf_tensor *r, wf_tensor *mean,
                           wf_tensor *c)
{
    const int last = g->ndim - 1;
    wf_tensor *y;

    wf_scope_open(g->ctx);
    mean = wf_unsqueeze(wf_mean(mean, mean->ndim - 1), mean->ndim - 1);
    y = wf_mul(wf_scale(wf_nn_parts_local(g), scale),
               wf_unsqueeze(wf_rsqrt(wf_div(r, mean)), last));
    y = wf_mul(y, wf_unsqueeze(wf_rsqrt(c), last - 1));
    return wf_scope_return(g->ctx, y);
}

/* Returns the direction of what has rows and columns, split along dim 0. */
static wf_tensor *by_factors(const wf_update *u, const wf_nn_parts *parts, float b,
                             wf_tensor *grad, wf_tensor *const *state)
{
    const bool matrix = grad->ndim == 2; /* else what is split along dim 0 has both whole */
    wf_tensor *g = wf_nn_parts_split(parts, grad, 0), *r, *c, *mean, *y;

    r = mean = mean_squares(g, grad->ndim - 1, b, u->grad_scale, state[ROWS]);
    c = mean_squares(matrix ? wf_nn_parts_split(parts, grad, 1) : g, grad->ndim - 2, b,
                     u->grad_scale, state[COLUMNS]);
    if (matrix) {
        mean = wf_nn_parts_local(wf_nn_parts_split(parts, state[ROWS], -1));
        c = wf_nn_parts_local(wf_nn_parts_split(parts, state[COLUMNS], -1));
    }
    if (!g || !r || !mean || !c || !wf_tensor_local_count(g))
        return g;
    y = factored(g, u->grad_scale, r, mean, c);
    return y ? wf_tensor_view(y, g->ndim, g->dim, g->layout) : NULL;
}

/* Returns the direction of what has none. */
static wf_tensor *by_elements(const wf_update *u, float b, wf_tensor *grad, wf_tensor *state)
{
    wf_tensor *g = wf_nn_parts_local(grad), *v = wf_nn_parts_local(state), *y = NULL;

    if (!g || !v || !wf_tensor_local_count(g))
        return grad;
    g = wf_scale(g, u->grad_scale);
    if (g && decay(v, b, squares(g)) == WF_OK)
        y = wf_mul(g, wf_rsqrt(v));
    return y ? wf_tensor_view(y, grad->ndim, grad->dim, grad->layout) : NULL;
}

static float or_else(float own, float usual)
{
    return own > 0 ? own : usual;
}

static wf_status adafactor(const wf_update *u, const wf_nn_parts *parts, wf_tensor *t,
                           wf_tensor *grad, wf_tensor *const *state)
{
    const float exponent = or_else(u->own[1], 0.8f), threshold = or_else(u->own[0], 1);
    const float b = (float)(1 - wf_powd((double)u->step, -(double)exponent));
    float rate = u->lr, clip;
    wf_update change = {.lr = 1};
    wf_tensor *y, *m;

    if (!(u->own[3] > 0))
        rate *= fmaxf(or_else(u->own[2], 1e-3f), wf_nn_parts_rms(parts, t));
    y = state[COLUMNS] ? by_factors(u, parts, b, grad, state)
                       : by_elements(u, b, grad, state[ROWS]);
    clip = fmaxf(1, wf_nn_parts_rms(parts, y) / threshold);
    y = y ? wf_nn_parts_local(wf_nn_parts_like(parts, y, t)) : NULL;
    if (!y || !wf_tensor_local_count(y))
        return wf_context_status(t->ctx);
    change.weight_decay = rate * u->weight_decay;
    change.grad_scale = rate / clip;
    if (state[FIRST]) { /* its terms have the rates of their steps */
        m = wf_nn_parts_local(state[FIRST]);
        if (!m || decay(m, u->beta1, wf_scale(y, rate / clip)) != WF_OK)
            return wf_context_status(t->ctx);
        y = m;
        change.grad_scale = 1;
    }
    return wf_sgd(wf_nn_parts_local(t), y, y, &change);
}

const wf_nn_method_row wf_nn_adafactor = {"adafactor", .states = 3, .shape = shape,
                                          .uses = WF_NN_USES_BETA1, .together = adafactor};
