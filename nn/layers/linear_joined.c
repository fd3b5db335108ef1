/* nn/layers/linear_joined.c - linears that are finished by what follows them, in one op: an
   addition to the residual stream, SwiGLU, the rotation of queries and keys. */
#include "kernels/attention_cached.h"
#include "kernels/ops.h"
#include "nn/hooks_internal.h"
#include "nn/layers/linear_internal.h"

bool wf_nn_linear_joins_sum(wf_nn_linear *m)
{
    return wf_nn_as_linear(&m->base) && wf_nn_leaves_product(m) && !m->gelu &&
           !m->base.recompute && !wf_nn_hooks_see_result(&m->base);
}

wf_tensor *wf_nn_linear_add(wf_nn_linear *m, wf_tensor *residual, wf_tensor *x)
{
    const char *outside;
    wf_tensor *y = NULL;

    if (!x || !residual)
        return NULL;
    outside = wf_nn_enter(m);
    x = wf_nn_at(m, "in", wf_nn_hooks_pre_forward(&m->base, x));
    if (x) {
        wf_tensor *weight = wf_nn_use(m, m->weight);

        y = wf_linear_add(residual, x, weight, m->bias ? wf_nn_use(m, m->bias) : NULL);
    }
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

/* Returns true where the first members of a group are products and nothing else. */
static bool are_products(const wf_nn_linear_group *m, int count)
{
    bool all = true;

    for (int i = 0; i < count && all; i++) {
        const wf_nn_linear *member = (const wf_nn_linear *)m->member[i];

        all = !member->bias && !member->gelu && wf_nn_leaves_product(member);
    }
    return all;
}

wf_tensor *wf_nn_call_swiglu(wf_nn_linear_group *m, wf_tensor *x)
{
    enum { GATE, UP, BOTH };
    const char *outside;
    wf_tensor *y[BOTH];

    if (!m || !x || m->count != BOTH || !are_products(m, BOTH)) {
        wf_nn_call_group(m, x, y);
        return wf_swiglu(y[GATE], y[UP]);
    }
    outside = wf_nn_enter(m);
    x = wf_nn_at(m, "in", x);
    for (int i = 0; i < BOTH; i++)
        y[i] = wf_nn_use(m->member[i], ((wf_nn_linear *)m->member[i])->weight);
    y[0] = wf_linear_swiglu(x, y[GATE], y[UP]);
    wf_nn_leave(m, outside, 1, y);
    return y[0];
}

bool wf_nn_call_rotated(wf_nn_linear_group *m, wf_tensor *x, wf_tensor *positions,
                        const wf_rope_options *options, wf_tensor *y[3])
{
    enum { Q, K, V, ALL };
    wf_tensor *weight[ALL];
    const char *outside;

    if (!m || !x || m->count != ALL || !are_products(m, ALL))
        return false;
    outside = wf_nn_enter(m);
    x = wf_nn_at(m, "in", x);
    for (int i = Q; i < ALL; i++)
        weight[i] = wf_nn_use(m->member[i], ((wf_nn_linear *)m->member[i])->weight);
    wf_linear_rope(x, weight, positions, options, y);
    wf_nn_leave(m, outside, ALL, y);
    return true;
}
