/*
 * nn/layers/mlp_tile.c - one tile of an MLP: its features, and the way back through them, which
 * recomputes them.
 */
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/linear_sum.h"
#include "kernels/ops.h"
#include "nn/layers/mlp_tiled_internal.h"

/* The features of a tile, [rows, tokens, hidden], of each first linear, and those that the last
   one takes; in rows of a vector's chunks, but for `out`. */
typedef struct features {
    wf_tensor *product[WF_MLP_FIRST]; /* x W^T */
    wf_tensor *sum[WF_MLP_FIRST];     /* the same and a bias that is no part of gelu */
    wf_tensor *out;
} features;

/* Returns true where bias and gelu are one op. */
static bool joined(const wf_nn_mlp_pass *p)
{
    return p->of.bias && p->mlp->up && !p->mlp->erf;
}

static wf_tensor *activated(const wf_nn_mlp *m, wf_tensor *const *sum)
{
    if (m->up)
        return m->erf ? wf_gelu_erf(sum[0]) : wf_gelu(sum[0]);
    return m->gelu_gate ? wf_mul(wf_gelu(sum[0]), sum[1]) : wf_swiglu(sum[0], sum[1]);
}

/* Returns a tile in rows of a vector's chunks as the tile that it is. */
static wf_tensor *as_tile(wf_tensor *t, const wf_tensor *like)
{
    return t ? wf_tensor_view(t, like->ndim, like->dim, like->layout) : NULL;
}

/* Computes the products of the first linears with a tile x, and of their adapters, as the
   linears do (nn/layers/linear.c). */
static void products_of(const wf_nn_mlp_pass *p, wf_tensor *x, int64_t first, int64_t count,
                        wf_tensor **product)
{
    const bool *adapted = p->of.adapted;
    wf_tensor *const *w = &p->in[WF_MLP_WEIGHT];

    if (p->mlp->up && adapted[0]) {
        product[0] = wf_linear_sum(x, w[0], wf_nn_tile(&p->tiles, &p->u[0], first, count),
                                   p->in[wf_nn_mlp_u(&p->of, 0) + 1]);
        return;
    }
    wf_linear_group(x, p->of.first, w, product);
    for (int i = 0; i < p->of.first; i++)
        if (adapted[i])
            product[i] =
                wf_add(product[i], wf_linear(wf_nn_tile(&p->tiles, &p->u[i], first, count),
                                             p->in[wf_nn_mlp_u(&p->of, i) + 1]));
}

static features features_of(const wf_nn_mlp_pass *p, wf_tensor *x, int64_t first, int64_t count)
{
    features f = {{NULL}, {NULL}, NULL};
    wf_tensor *product[WF_MLP_FIRST] = {NULL, NULL};

    products_of(p, x, first, count, product);
    for (int i = 0; i < p->of.first; i++) {
        f.sum[i] = f.product[i] = wf_nn_tile_rows(&p->tiles, product[i]);
        if (p->of.bias && !joined(p))
            f.sum[i] = wf_bias_add(f.product[i], p->in[wf_nn_mlp_bias(&p->of, i)]);
    }
    f.out = joined(p) ? wf_bias_gelu(f.product[0], p->in[wf_nn_mlp_bias(&p->of, 0)])
                      : activated(p->mlp, f.sum);
    f.out = as_tile(f.out, product[0]);
    return f;
}

wf_tensor *wf_nn_mlp_tile_features(const wf_nn_mlp_pass *p, int64_t first, int64_t count)
{
    wf_context *ctx = p->in[WF_MLP_X]->ctx;
    wf_tensor *x = wf_nn_tile(&p->tiles, &p->x, first, count), *out;
    double share;

    if (!p->again)
        return features_of(p, x, first, count).out;
    share = wf_context_model_share(ctx, 0);
    out = features_of(p, x, first, count).out;
    wf_context_model_share(ctx, share);
    return out;
}

/* Goes back through what is between the products, which its own ops do on a tape of theirs. */
static void activation_grad(const wf_nn_mlp_pass *p, const features *f, wf_tensor *dout,
                            int64_t first, int64_t count, wf_tensor **dsum)
{
    wf_context *ctx = dout->ctx;
    wf_tensor *source[WF_MLP_FIRST] = {NULL, NULL}, *y;
    wf_tape *outside = wf_tape_switch(ctx, NULL), *tape = wf_tape_open(ctx);

    for (int i = 0; i < p->of.first; i++)
        source[i] = wf_source(f->sum[i]);
    y = activated(p->mlp, source);
    if (y)
        wf_backward(y, dout, false);
    for (int i = 0; i < p->of.first; i++)
        dsum[i] = source[i] && source[i]->grad ? wf_detach(source[i]->grad) : NULL;
    wf_tape_close(tape);
    wf_tape_switch(ctx, outside);
    for (int i = 0; p->of.bias && i < p->of.first; i++)
        if (wf_nn_mlp_wants(p, wf_nn_mlp_bias(&p->of, i)))
            wf_nn_bias_grad_into(dsum[i],
                                 wf_nn_vector_tile(&p->tiles, &p->db[i], first, count));
}

/* The same where bias and gelu are one op. */
static void bias_gelu_grad(const wf_nn_mlp_pass *p, const features *f, wf_tensor *dout,
                           int64_t first, int64_t count, wf_tensor **dsum)
{
    int bias = wf_nn_mlp_bias(&p->of, 0);
    wf_call call = {.op = &wf_op_bias_gelu_grad,
                    .n_in = 3,
                    .in = {f->product[0], p->in[bias], dout},
                    .n_out = 2};

    if (wf_nn_mlp_wants(p, bias))
        call.into[1] = wf_nn_vector_tile(&p->tiles, &p->db[0], first, count);
    wf_dispatch(&call);
    dsum[0] = call.out[0];
}

/* Writes the gradient of matrix i from the first tile of a sequence to the row that this has of
   the gradients; others are added there. */
static wf_tensor *begin_row(const wf_nn_mlp_pass *p, int i, int64_t sequence, wf_tensor *dy,
                            wf_tensor *x)
{
    wf_tensor *rows = p->dw_rows[i];

    return p->tiles.tile < p->tiles.pieces
               ? wf_linear_dw_to_row(dy, x, rows, sequence)
               : wf_linear_dw_rows(dy, x, wf_tensor_rows(rows, sequence, 1));
}

/* Returns older + the gradient of matrix i from a tile, counted as what it is. */
static wf_tensor *weight_grad(const wf_nn_mlp_pass *p, int i, int64_t first, wf_tensor *dy,
                              wf_tensor *x, wf_tensor *older)
{
    int64_t pieces = p->tiles.pieces;
    wf_context *ctx = p->tiles.ctx;
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);
    wf_tensor *dw = p->dw_rows[i] && first % pieces == 0
                        ? begin_row(p, i, first / pieces, dy, x)
                        : wf_linear_dw_add(dy, x, older);

    wf_context_memory_kind(ctx, kind);
    return dw;
}

/* Returns the gradient of a tile's features: from the output, then from the adapter. */
static wf_tensor *features_grad(const wf_nn_mlp_pass *p, wf_tensor *dy, wf_tensor *du)
{
    wf_tensor *dout = wf_linear_dx(1, &dy, &p->in[wf_nn_mlp_down(&p->of)]);

    return p->of.adapts_last
               ? wf_partial_add_to(dout, wf_linear_dx(1, &du, &p->in[wf_nn_mlp_a(&p->of)]))
               : dout;
}

/* Goes back from what the first linears give to x, their weights and their adapters. */
static void first_back(const wf_nn_mlp_pass *p, int64_t first, int64_t count, wf_tensor *x,
                       wf_tensor **d, wf_tensor **dw)
{
    for (int i = 0; i < p->of.first; i++) {
        int u = wf_nn_mlp_u(&p->of, i), b = WF_MLP_B + i;

        if (wf_nn_mlp_wants_matrix(p, i))
            dw[i] = weight_grad(p, i, first, d[i], x, dw[i]);
        if (!p->of.adapted[i])
            continue;
        if (wf_nn_mlp_wants(p, u))
            wf_linear_dx_into(1, &d[i], &p->in[u + 1],
                              wf_nn_tile(&p->tiles, &p->du[i], first, count));
        if (wf_nn_mlp_wants_matrix(p, b))
            dw[b] = weight_grad(p, b, first, d[i],
                                wf_nn_tile(&p->tiles, &p->u[i], first, count), dw[b]);
    }
    if (wf_nn_mlp_wants(p, WF_MLP_X))
        wf_linear_dx_into(p->of.first, d, &p->in[WF_MLP_WEIGHT],
                          wf_nn_tile(&p->tiles, &p->dx, first, count));
}

void wf_nn_mlp_tile_back(const wf_nn_mlp_pass *p, int64_t first, int64_t count, wf_tensor **dw)
{
    wf_tensor *x = wf_nn_tile(&p->tiles, &p->x, first, count), *du = NULL;
    wf_tensor *dy = wf_nn_tile(&p->tiles, &p->dy, first, count), *dout,
              *d[WF_MLP_FIRST] = {NULL};
    double share = x ? wf_context_model_share(x->ctx, 0) : 0;
    features f = features_of(p, x, first, count);

    if (x)
        wf_context_model_share(x->ctx, share);
    if (p->of.adapts_last)
        du = wf_nn_tile(&p->tiles, &p->dlast, first, count);
    dout = features_grad(p, dy, du);
    if (wf_nn_mlp_wants_matrix(p, WF_MLP_DOWN))
        dw[WF_MLP_DOWN] = weight_grad(p, WF_MLP_DOWN, first, dy, f.out, dw[WF_MLP_DOWN]);
    if (wf_nn_mlp_wants_matrix(p, WF_MLP_A))
        dw[WF_MLP_A] = weight_grad(p, WF_MLP_A, first, du, f.out, dw[WF_MLP_A]);
    dout = wf_nn_tile_rows(&p->tiles, dout);
    if (!dout || !f.out)
        return;
    if (joined(p))
        bias_gelu_grad(p, &f, dout, first, count, d);
    else
        activation_grad(p, &f, dout, first, count, d);
    for (int i = 0; i < p->of.first; i++)
        d[i] = as_tile(d[i], f.out);
    first_back(p, first, count, x, d, dw);
}
