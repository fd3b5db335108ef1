/* nn/layers/mlp.c - two linear layers with gelu in between, or three with a gate. */
#include "nn/layers/mlp_internal.h"
#include "nn/hooks_internal.h"
#include "nn/layers/linear_internal.h"
#include "nn/numbers_internal.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"

/* Returns the features in between, which the last linear takes. */
static wf_tensor *features(wf_nn_mlp *m, wf_tensor *x)
{
    enum { GATE, UP };
    wf_tensor *y[2];

    if (m->up) {
        x = wf_nn_call(m->up, x); /* it ends in gelu, but for that by erf */
        return m->erf ? wf_gelu_erf(x) : x;
    }
    if (m->gelu_gate) {
        wf_nn_call_group(m->gate_up, x, y); /* one op: they share an input */
        x = wf_mul(wf_gelu(y[GATE]), y[UP]);
    } else {
        x = wf_nn_call_swiglu(m->gate_up, x);
    }
    if (m->between)
        m->between(m->between_arg);
    return x;
}

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_mlp *m = (wf_nn_mlp *)self;

    return m->tile ? wf_nn_mlp_in_tiles(m, x) : wf_nn_call(m->down, features(m, x));
}

static const wf_nn_field fields[] = {{"up", WF_NN_CHILD, offsetof(wf_nn_mlp, up), 0},
                                     {"gate_up", WF_NN_CHILD, offsetof(wf_nn_mlp, gate_up), 0},
                                     {"down", WF_NN_CHILD, offsetof(wf_nn_mlp, down), 0},
                                     {NULL, 0, 0, 0}};

static const wf_nn_type mlp_type = {"mlp", sizeof(wf_nn_mlp), fields, forward, NULL, NULL};

wf_tensor *wf_nn_mlp_add(wf_nn_mlp *m, wf_tensor *residual, wf_tensor *x)
{
    const char *outside;
    wf_tensor *y;

    if (!m || !x || !residual)
        return NULL;
    if (m->base.type != &mlp_type || m->tile || m->base.recompute ||
        wf_nn_hooks_see_result(&m->base) || !wf_nn_linear_joins_sum(m->down))
        return wf_add(residual, wf_nn_call(m, x));
    outside = wf_nn_enter(m);
    y = wf_nn_linear_add(m->down, residual, features(m, wf_nn_hooks_pre_forward(&m->base, x)));
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

/* Completes the options of the linears up and down; false where the sizes make no MLP. */
static bool complete(wf_context *ctx, const wf_nn_mlp_options *o, wf_nn_linear_options *up,
                     wf_nn_linear_options *down)
{
    wf_dim width = wf_dim_width(o->width);
    wf_dim hidden = wf_dim_chunked(o->hidden ? o->hidden : 4 * o->width);
    float deviation = o->deviation > 0 ? o->deviation : 0.02f;

    if (o->width < 1 || o->hidden < 0)
        wf_fail(ctx, WF_EINVAL,
                "an MLP of width %lld with %lld features in between: each must be at least 1",
                (long long)o->width, (long long)o->hidden);
    wf_nn_numbers_check(
        ctx, "an MLP",
        WF_NN_NUMBERS({"deviation", o->deviation}, {"out_deviation", o->out_deviation}));
    *up = (wf_nn_linear_options){
        .in = width, .out = hidden, .bias = o->bias, .deviation = deviation};
    *down = (wf_nn_linear_options){.in = hidden,
                                   .out = width,
                                   .bias = o->bias,
                                   .deviation =
                                       o->out_deviation > 0 ? o->out_deviation : deviation};
    return wf_context_status(ctx) == WF_OK;
}

wf_nn_mlp *wf_nn_gelu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options)
{
    wf_nn_linear_options up, down;
    wf_nn_mlp *m = complete(ctx, options, &up, &down) ? wf_nn_new(ctx, &mlp_type) : NULL;

    if (!m)
        return NULL;
    up.gelu = !options->erf;
    m->erf = options->erf;
    m->up = wf_nn_linear_new(ctx, &up);
    m->down = wf_nn_linear_new(ctx, &down);
    return m;
}

wf_nn_mlp *wf_nn_swiglu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options)
{
    static const char *const name[] = {"gate", "up"};
    wf_nn_linear_options up, down;
    wf_nn_mlp *m = complete(ctx, options, &up, &down) ? wf_nn_new(ctx, &mlp_type) : NULL;

    if (!m)
        return NULL;
    m->gate_up = wf_nn_linear_group_new(ctx, 2, name, (wf_nn_linear_options[]){up, up});
    m->down = wf_nn_linear_new(ctx, &down);
    return m;
}

wf_nn_mlp *wf_nn_geglu_mlp_new(wf_context *ctx, const wf_nn_mlp_options *options)
{
    wf_nn_mlp *m = wf_nn_swiglu_mlp_new(ctx, options);

    if (m)
        m->gelu_gate = true;
    return m;
}

typedef struct tiling {
    int64_t tokens, found;
} tiling;

static void tile(void *arg, wf_nn_module *m)
{
    tiling *t = arg;

    if (m->type == &mlp_type) {
        ((wf_nn_mlp *)m)->tile = t->tokens;
        t->found++;
    }
}

wf_status wf_nn_tile_mlps(wf_nn_module *root, int64_t tokens)
{
    tiling t = {tokens, 0};

    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    if (tokens < 0)
        return wf_fail(root->ctx, WF_EINVAL,
                       "tiles of %lld tokens: give 1 or more, or 0 for MLPs that are computed "
                       "at once",
                       (long long)tokens);
    wf_nn_visit(root, tile, NULL, &t);
    return !tokens || t.found ? WF_OK
                              : wf_fail(root->ctx, WF_EINVAL,
                                        "MLPs in tiles of %lld tokens: the model has no MLP",
                                        (long long)tokens);
}
