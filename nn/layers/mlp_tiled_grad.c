/*
 * nn/layers/mlp_tiled_grad.c - the way back through an MLP in tiles (nn/layers/mlp_tiled.c):
 * tile by tile, by the ops that go back through the whole. Gradients of weights are nodes of
 * one tree (nn/layers/tiles_internal.h).
 */
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/ops.h"
#include "nn/layers/mlp_tiled_internal.h"
#include <string.h>

/* dw[i] becomes dw[i] + the node of the tree over pieces [from, to); NULL: the node alone. */
static void node_back(const wf_nn_mlp_pass *p, int64_t from, int64_t to, wf_tensor **dw)
{
    int64_t middle = wf_nn_tiles_middle(&p->tiles, from, to);
    bool leaf = to - from <= p->tiles.tile, fresh = true;
    wf_tensor *node[WF_MLP_MATRICES] = {NULL};
    const int n = WF_MLP_MATRICES;

    if (wf_context_status(p->tiles.ctx) != WF_OK)
        return;
    for (int i = 0; i < n; i++)
        fresh &= !dw[i];
    wf_scope_open(p->tiles.ctx);
    if (leaf) {
        memcpy(node, dw, sizeof node);
        wf_nn_mlp_tile_back(p, from, to - from, node);
    } else {
        node_back(p, from, middle, node);
        node_back(p, middle, to, node);
        for (int i = 0; i < n && !fresh; i++)
            node[i] = dw[i] ? wf_partial_add_to(dw[i], node[i]) : node[i];
    }
    wf_scope_keep(p->tiles.ctx, n, node);
    memcpy(dw, node, sizeof node);
}

/* Goes back through the sequences one by one, each of which has a row of the gradients. */
static void sequences_back(const wf_nn_mlp_pass *p)
{
    int64_t pieces = p->tiles.pieces;

    for (int64_t s = 0; s < p->tiles.count / pieces; s++) {
        wf_tensor *node[WF_MLP_MATRICES] = {NULL};

        wf_scope_open(p->tiles.ctx);
        node_back(p, s * pieces, (s + 1) * pieces, node);
        wf_scope_close(p->tiles.ctx);
    }
}

/* Makes room for the gradients of matrices with a row per sequence; `out` is like the features,
   and fake. */
static void make_rows(wf_nn_mlp_pass *p, wf_tensor *out)
{
    wf_tensor *x = wf_nn_mlp_fake(p->in[WF_MLP_X]), *dy = wf_nn_mlp_fake(p->dy.whole);

    for (int m = 0; m < WF_MLP_MATRICES; m++) {
        wf_tensor *from = m < WF_MLP_DOWN ? x : out, *to = m == WF_MLP_DOWN ? dy : out;

        if (!wf_nn_mlp_wants_matrix(p, m))
            continue;
        if (m == WF_MLP_A)
            to = wf_nn_mlp_fake(p->dlast.whole);
        else if (m >= WF_MLP_B)
            from = wf_nn_mlp_fake(p->u[m - WF_MLP_B].whole);
        p->dw_rows[m] =
            wf_nn_mlp_room(p, WF_MEMORY_GRADIENT, wf_linear_dw_rows(to, from, NULL));
    }
}

/* Makes room for the gradients of x, of adapters' u and the biases, and those that come in
   rows, like what ops give that run on nothing. */
static void make_room(wf_nn_mlp_pass *p, bool rows)
{
    wf_tensor *fake = wf_nn_mlp_fake(p->in[WF_MLP_X]);
    wf_tensor *product[WF_MLP_FIRST] = {NULL, NULL};

    wf_linear_group(fake, p->of.first, &p->in[WF_MLP_WEIGHT], product);
    if (wf_nn_mlp_wants(p, WF_MLP_X))
        p->dx = wf_nn_tiled_of(&p->tiles, wf_nn_mlp_room(p, WF_MEMORY_ACTIVATION,
                                                         wf_linear_dx(p->of.first, product,
                                                                      &p->in[WF_MLP_WEIGHT])));
    for (int i = 0; i < p->of.first; i++) {
        int u = wf_nn_mlp_u(&p->of, i);

        if (p->of.bias && wf_nn_mlp_wants(p, wf_nn_mlp_bias(&p->of, i)))
            p->db[i] = wf_nn_vector_grad_of(&p->tiles, product[i], wf_nn_mlp_is_fake(p));
        if (p->of.adapted[i] && wf_nn_mlp_wants(p, u))
            p->du[i] = wf_nn_tiled_of(
                &p->tiles, wf_nn_mlp_room(p, WF_MEMORY_ACTIVATION,
                                          wf_linear_dx(1, &product[i], &p->in[u + 1])));
    }
    if (rows && product[0])
        make_rows(p, product[0]);
}

/* Hands out what tiles have made. */
static void fill(const wf_nn_mlp_pass *p, wf_gradient *g, wf_tensor *const *dw)
{
    g->din[WF_MLP_X] = p->dx.whole;
    for (int m = 0; m < WF_MLP_MATRICES; m++)
        if (wf_nn_mlp_wants_matrix(p, m))
            g->din[wf_nn_mlp_matrix(&p->of, m)] = dw[m];
    for (int i = 0; i < p->of.first; i++) {
        int bias = wf_nn_mlp_bias(&p->of, i);

        if (p->of.adapted[i])
            g->din[wf_nn_mlp_u(&p->of, i)] = p->du[i].whole;
        if (!p->of.bias || !wf_nn_mlp_wants(p, bias))
            continue;
        wf_nn_vector_finish(&p->tiles, &p->db[i]);
        g->din[bias] = wf_nn_vector_gradient(g, bias, p->db[i].rows);
    }
}

static void backward(wf_gradient *g)
{
    const wf_nn_mlp_attr *a = g->attr;
    wf_nn_mlp_pass p = {.mlp = a->mlp, .of = a->of, .in = g->in, .wants = a->wants};
    wf_tensor *dw[WF_MLP_MATRICES] = {NULL};
    bool rows = wf_comes_in_rows(g->in[WF_MLP_X]);

    wf_nn_mlp_choose_tile(&p);
    p.dy = wf_nn_tiled_of(&p.tiles, g->dout[0]);
    if (p.of.adapts_last)
        p.dlast = wf_nn_tiled_of(&p.tiles, g->dout[1]);
    for (int m = 0; m < WF_MLP_MATRICES; m++)
        rows =
            rows && !(wf_nn_mlp_wants_matrix(&p, m) && g->summed[wf_nn_mlp_matrix(&p.of, m)]);
    make_room(&p, rows);
    if (rows)
        sequences_back(&p);
    else
        node_back(&p, 0, p.tiles.count, dw);
    fill(&p, g, rows ? p.dw_rows : dw);
}

/* Every gradient reads x and the weights, since features are recomputed from them. */
const wf_op wf_nn_mlp_tiled_op = {.name = "tiled_mlp",
                                  .signature = "",
                                  .save = (WF_SAVE_IN(WF_MAX_INPUTS) - 1),
                                  .backward = backward};
