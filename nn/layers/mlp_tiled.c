/*
 * nn/layers/mlp_tiled.c - an MLP in tiles of tokens: of what lies between its linears there is
 * one tile at a time, forward and backward.
 *
 * It is one op on the tape. Its gradient recomputes a tile's features and goes back through
 * them by the ops that go back through the whole. Gradients of weights are nodes of one tree
 * (nn/layers/tiles_internal.h). What a plan moves is moved before and after, for all tokens.
 */
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/ops.h"
#include "nn/layers/mlp_tiled_internal.h"

typedef struct attr {
    wf_nn_mlp *mlp;
    wf_nn_mlp_operands of;
    unsigned wants; /* a bit for each operand that has a gradient */
} attr;

/* y = features of the tile by the last weight, into a tensor that is there; NULL: a new one. */
static wf_tensor *last_product(const wf_nn_mlp_pass *p, wf_tensor *out, wf_tensor *y)
{
    wf_call call = {.op = &wf_op_linear1,
                    .n_in = 2,
                    .in = {out, p->in[wf_nn_mlp_down(&p->of)]},
                    .n_out = 1,
                    .into = {y}};

    wf_dispatch(&call);
    return call.out[0];
}

/* dw[i] becomes dw[i] + the node of the tree over pieces [from, to); NULL: the node alone. */
static void node_back(const wf_nn_mlp_pass *p, int64_t from, int64_t to, wf_tensor **dw)
{
    int64_t middle = wf_nn_tiles_middle(&p->tiles, from, to);
    bool leaf = to - from <= p->tiles.tile, fresh = true;
    wf_tensor *node[WF_MLP_FIRST + 1] = {NULL};
    int n = p->of.first + 1;

    if (wf_context_status(p->tiles.ctx) != WF_OK)
        return;
    for (int i = 0; i < n; i++)
        fresh &= !dw[i];
    wf_scope_open(p->tiles.ctx);
    if (leaf) {
        for (int i = 0; i < n; i++)
            node[i] = dw[i];
        wf_nn_mlp_tile_back(p, from, to - from, node);
    } else {
        node_back(p, from, middle, node);
        node_back(p, middle, to, node);
        for (int i = 0; i < n && !fresh; i++)
            node[i] = dw[i] ? wf_partial_add_to(dw[i], node[i]) : node[i];
    }
    wf_scope_keep(p->tiles.ctx, n, node);
    for (int i = 0; i < n; i++)
        dw[i] = node[i];
}

/* Goes back through the sequences one by one, each of which has a row of the gradients. */
static void sequences_back(const wf_nn_mlp_pass *p)
{
    int64_t pieces = p->tiles.pieces;

    for (int64_t s = 0; s < p->tiles.count / pieces; s++) {
        wf_tensor *node[WF_MLP_FIRST + 1] = {NULL};

        wf_scope_open(p->tiles.ctx);
        node_back(p, s * pieces, (s + 1) * pieces, node);
        wf_scope_close(p->tiles.ctx);
    }
}

static bool computes_nothing(const wf_nn_mlp_pass *p)
{
    return wf_tensor_is_fake(p->in[WF_MLP_X]) || wf_tensor_is_fake(p->in[WF_MLP_WEIGHT]);
}

/* Makes a tensor like t, which is fake, or leaves it so. */
static wf_tensor *room_of(const wf_nn_mlp_pass *p, wf_tensor *t, wf_memory_kind kind)
{
    return t && !computes_nothing(p) ? wf_tensor_like(t, kind) : t;
}

static wf_tensor *room(const wf_nn_mlp_pass *p, wf_tensor *t)
{
    return room_of(p, t, WF_MEMORY_ACTIVATION);
}

static wf_tensor *fake_of(const wf_tensor *t)
{
    return wf_tensor_fake(t->ctx, t->dtype, t->ndim, t->dim, t->layout);
}

/* Makes room for the gradients of weights with a row per sequence; `out` is like
   the features, and fake. */
static void make_rows(wf_nn_mlp_pass *p, wf_tensor *out)
{
    wf_tensor *x = fake_of(p->in[WF_MLP_X]), *dy = fake_of(p->dy.whole);
    int last = p->of.first;

    for (int i = 0; i <= last; i++)
        if (wf_nn_mlp_wants(p, WF_MLP_WEIGHT + i))
            p->dw_rows[i] =
                room_of(p, wf_linear_dw_rows(i < last ? out : dy, i < last ? x : out, NULL),
                        WF_MEMORY_GRADIENT);
}

/* Makes room for the gradients of x and the biases, and those that come in rows, like what ops
   give that run on nothing. */
static void make_room(wf_nn_mlp_pass *p, bool rows)
{
    wf_tensor *fake = fake_of(p->in[WF_MLP_X]);
    wf_tensor *product[WF_MLP_FIRST] = {NULL, NULL};

    wf_linear_group(fake, p->of.first, &p->in[WF_MLP_WEIGHT], product);
    if (wf_nn_mlp_wants(p, WF_MLP_X))
        p->dx = wf_nn_tiled_of(
            &p->tiles, room(p, wf_linear_dx(p->of.first, product, &p->in[WF_MLP_WEIGHT])));
    for (int i = 0; p->of.bias && i < p->of.first; i++)
        if (wf_nn_mlp_wants(p, wf_nn_mlp_bias(&p->of, i)))
            p->db[i] = wf_nn_vector_grad_of(&p->tiles, product[i], computes_nothing(p));
    if (rows && product[0])
        make_rows(p, product[0]);
}

static void choose_tile(wf_nn_mlp_pass *p)
{
    p->tiles = wf_nn_tiles_of(p->in[WF_MLP_X], p->of.bias, false);
    wf_nn_tiles_at_most(&p->tiles, p->mlp->tile);
    p->x = wf_nn_tiled_of(&p->tiles, p->in[WF_MLP_X]);
}

static void backward(wf_gradient *g)
{
    const attr *a = g->attr;
    wf_nn_mlp_pass p = {.mlp = a->mlp, .of = a->of, .in = g->in, .wants = a->wants};
    wf_tensor *dw[WF_MLP_FIRST + 1] = {NULL};
    bool rows = wf_comes_in_rows(g->in[WF_MLP_X]);

    choose_tile(&p);
    p.dy = wf_nn_tiled_of(&p.tiles, g->dout[0]);
    for (int i = 0; i <= p.of.first; i++)
        rows =
            rows && !(wf_nn_mlp_wants(&p, WF_MLP_WEIGHT + i) && g->summed[WF_MLP_WEIGHT + i]);
    make_room(&p, rows);
    if (rows)
        sequences_back(&p);
    else
        node_back(&p, 0, p.tiles.count, dw);
    g->din[WF_MLP_X] = p.dx.whole;
    for (int i = 0; i <= p.of.first; i++)
        g->din[WF_MLP_WEIGHT + i] = rows ? p.dw_rows[i] : dw[i];
    for (int i = 0; p.of.bias && i < p.of.first; i++) {
        int bias = wf_nn_mlp_bias(&p.of, i);

        if (!wf_nn_mlp_wants(&p, bias))
            continue;
        wf_nn_vector_finish(&p.tiles, &p.db[i]);
        g->din[bias] = wf_nn_vector_gradient(g, bias, p.db[i].rows);
    }
}

/* Every gradient reads x and the weights, since features are recomputed from them. */
static const wf_op tiled_op = {.name = "tiled_mlp",
                               .signature = "",
                               .save = (WF_SAVE_IN(WF_MLP_FIRST + 2 + WF_MLP_FIRST) - 1),
                               .backward = backward};

/* Computes y tile by tile, with no tape. */
static wf_tensor *run_tiles(wf_nn_mlp_pass *p)
{
    const wf_tensor *x = p->in[WF_MLP_X];
    wf_tape *tape = wf_tape_switch(x->ctx, NULL);
    wf_tensor *fake = fake_of(x);

    wf_scope_open(x->ctx);
    choose_tile(p);
    fake = last_product(p,
                        wf_nn_mlp_tile_features(
                            &(wf_nn_mlp_pass){.mlp = p->mlp, .of = p->of, .in = p->in}, fake),
                        NULL);
    p->y = wf_nn_tiled_of(&p->tiles, room(p, fake));
    for (int64_t i = 0; i < p->tiles.count && p->y.whole; i += p->tiles.tile) {
        int64_t left = p->tiles.count - i, n = left < p->tiles.tile ? left : p->tiles.tile;

        wf_scope_open(x->ctx);
        last_product(p, wf_nn_mlp_tile_features(p, wf_nn_tile(&p->tiles, &p->x, i, n)),
                     wf_nn_tile(&p->tiles, &p->y, i, n));
        wf_scope_close(x->ctx);
    }
    p->y.whole = wf_scope_return(x->ctx, p->y.whole);
    wf_tape_switch(x->ctx, tape);
    return p->y.whole;
}

/* Refuses what cannot be computed in tiles. */
static wf_status check(const wf_nn_mlp *m, wf_nn_linear *const *first, int n,
                       const wf_tensor *x)
{
    wf_context *ctx = m->base.ctx;
    wf_nn_tiles tiles = wf_nn_tiles_of(x, first[0]->bias != NULL, false);
    bool adapted = m->down->lora.a != NULL, moves = false;
    const char *why;

    for (int i = 0; i < n; i++) {
        adapted = adapted || first[i]->lora.a;
        moves = moves || wf_nn_acts(first[i], "sum");
    }
    why = adapted ? "has no adapters yet: adapt other linears"
          : moves ? "does not move what its first linears give: split their weights by columns"
                  : NULL;
    if (why)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "module %s: an MLP in tiles of tokens %s, or compute it whole",
                       m->base.path, why);
    wf_nn_tiles_at_most(&tiles, m->tile);
    if (tiles.tile * tiles.tokens > m->tile && wf_context_recording(ctx))
        return wf_fail(ctx, WF_EINVAL,
                       "module %s: tiles of %lld tokens are less than this sequence is cut in, "
                       "%lld tokens: give at least as many",
                       m->base.path, (long long)m->tile,
                       (long long)(tiles.tile * tiles.tokens));
    return WF_OK;
}

static wf_status record(const wf_nn_mlp_pass *p, wf_nn_mlp *m, wf_tensor *y)
{
    attr a = {m, p->of, 0};
    wf_call call = {.op = &tiled_op,
                    .ctx = m->base.ctx,
                    .n_in = wf_nn_mlp_operand_count(&p->of),
                    .n_out = 1,
                    .out = {y},
                    .attr = &a,
                    .attr_size = sizeof a};

    for (int i = 0; i < call.n_in; i++) {
        call.in[i] = p->in[i];
        a.wants |= p->in[i]->requires_grad ? 1u << i : 0;
    }
    return wf_tape_record(&call);
}

/* Runs the last linear's part that no tile has: its sum over ranks, and its bias. */
static wf_tensor *finish(wf_nn_linear *down, wf_tensor *y)
{
    y = wf_nn_at(down, "sum", y);
    return down->bias ? wf_bias_add(y, wf_nn_use(down, down->bias)) : y;
}

wf_tensor *wf_nn_mlp_in_tiles(wf_nn_mlp *m, wf_tensor *x)
{
    wf_nn_linear *first[WF_MLP_FIRST] = {m->up, NULL};
    void *module = m->up ? (void *)m->up : (void *)m->gate_up;
    wf_tensor *in[WF_MAX_INPUTS] = {NULL}, *y = NULL;
    wf_nn_mlp_pass p = {.mlp = m, .of = {m->up ? 1 : WF_MLP_FIRST, false}, .in = in};
    const char *outside = wf_nn_enter(module), *between;
    bool good;

    for (int i = 0; i < p.of.first && !m->up; i++)
        first[i] = (wf_nn_linear *)m->gate_up->member[i];
    p.of.bias = first[0]->bias != NULL;
    in[WF_MLP_X] = wf_nn_at(module, "in", x);
    for (int i = 0; i < p.of.first; i++)
        in[WF_MLP_WEIGHT + i] = wf_nn_use(first[i], first[i]->weight);
    for (int i = 0; i < p.of.first && p.of.bias; i++)
        in[wf_nn_mlp_bias(&p.of, i)] = wf_nn_use(first[i], first[i]->bias);
    between = wf_nn_enter(m->down);
    in[wf_nn_mlp_down(&p.of)] = wf_nn_use(m->down, m->down->weight);
    good = in[WF_MLP_X] && check(m, first, p.of.first, in[WF_MLP_X]) == WF_OK;
    for (int i = 0; i < wf_nn_mlp_operand_count(&p.of); i++)
        good = good && in[i];
    if (good && run_tiles(&p) && record(&p, m, p.y.whole) == WF_OK)
        y = finish(m->down, p.y.whole);
    wf_nn_leave(m->down, between, 1, &y);
    wf_nn_leave(module, outside, 1, &y);
    return y;
}
