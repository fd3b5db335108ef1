/*
 * nn/layers/mlp_tiled.c - an MLP in tiles of tokens: of what lies between its linears there is
 * one tile at a time, forward and backward.
 *
 * It is one op on the tape. Its gradient recomputes a tile's features and goes back through
 * them by the ops that go back through the whole. Gradients of weights are nodes of one tree
 * (nn/layers/tiles_internal.h). What a plan moves is moved before and after, for all tokens.
 *
 * So is u of adapters, which is of the rank and not of the features. That of the last linear is
 * made of the features, and may have to be summed over ranks before y is made of it: then there
 * are two ops, each of which makes a tile's features. The first gives u and a y without data,
 * whose gradient is y's; the second fills y in, and its gradient is that of u and B alone.
 */
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/linear_sum.h"
#include "kernels/ops.h"
#include "nn/layers/linear_internal.h"
#include "nn/layers/mlp_tiled_internal.h"
#include <string.h>

bool wf_nn_mlp_is_fake(const wf_nn_mlp_pass *p)
{
    return wf_tensor_is_fake(p->in[WF_MLP_X]) || wf_tensor_is_fake(p->in[WF_MLP_WEIGHT]);
}

wf_tensor *wf_nn_mlp_room(const wf_nn_mlp_pass *p, wf_memory_kind kind, wf_tensor *t)
{
    return t && !wf_nn_mlp_is_fake(p) ? wf_tensor_like(t, kind) : t;
}

wf_tensor *wf_nn_mlp_fake(const wf_tensor *t)
{
    return wf_tensor_fake(t->ctx, t->dtype, t->ndim, t->dim, t->layout);
}

void wf_nn_mlp_choose_tile(wf_nn_mlp_pass *p)
{
    p->tiles = wf_nn_tiles_of(p->in[WF_MLP_X], p->of.bias, false);
    wf_nn_tiles_at_most(&p->tiles, p->mlp->tile);
    p->x = wf_nn_tiled_of(&p->tiles, p->in[WF_MLP_X]);
    for (int i = 0; i < p->of.first; i++)
        if (p->of.adapted[i])
            p->u[i] = wf_nn_tiled_of(&p->tiles, p->in[wf_nn_mlp_u(&p->of, i)]);
}

/* A product of features with a weight, and one of u with B, or none. */
typedef struct last {
    wf_tensor *weight, *u, *b;
} last;

/* Computes the product for pieces [first, first + count), whose features are `out`, into a
   tensor that is there; NULL: a new one. */
static wf_tensor *product(const wf_nn_tiles *tiles, const last *l, wf_tensor *out,
                          int64_t first, int64_t count, wf_tensor *into)
{
    wf_call call = {.op = l->b ? &wf_op_linear2_sum : &wf_op_linear1,
                    .n_in = l->b ? 4 : 2,
                    .in = {out, l->weight},
                    .n_out = 1,
                    .into = {into}};

    if (l->b) {
        const wf_nn_tiled u = wf_nn_tiled_of(tiles, l->u);

        call.in[2] = wf_nn_tile(tiles, &u, first, count);
        call.in[3] = l->b;
    }
    wf_dispatch(&call);
    return call.out[0];
}

/* Returns the product of all tokens, without data. */
static wf_tensor *fake_product(const wf_nn_mlp_pass *p, const last *l)
{
    wf_nn_mlp_pass all = *p;

    all.x = (wf_nn_tiled){wf_nn_mlp_fake(p->in[WF_MLP_X]), NULL};
    all.tiles = wf_nn_tiles_of(all.x.whole, false, true);
    for (int i = 0; i < p->of.first; i++)
        if (p->of.adapted[i])
            all.u[i] = (wf_nn_tiled){wf_nn_mlp_fake(p->in[wf_nn_mlp_u(&p->of, i)]), NULL};
    return product(&all.tiles, l, wf_nn_mlp_tile_features(&all, 0, all.tiles.count), 0,
                   all.tiles.count, NULL);
}

/* Computes the product tile by tile, with no tape. */
static wf_tensor *run_tiles(wf_nn_mlp_pass *p, const last *l)
{
    wf_context *ctx = p->in[WF_MLP_X]->ctx;
    wf_tape *tape = wf_tape_switch(ctx, NULL);
    wf_nn_tiled y;

    wf_scope_open(ctx);
    wf_nn_mlp_choose_tile(p);
    y = wf_nn_tiled_of(&p->tiles, wf_nn_mlp_room(p, WF_MEMORY_ACTIVATION, fake_product(p, l)));
    for (int64_t i = 0; i < p->tiles.count && y.whole; i += p->tiles.tile) {
        int64_t left = p->tiles.count - i, n = left < p->tiles.tile ? left : p->tiles.tile;

        wf_scope_open(ctx);
        product(&p->tiles, l, wf_nn_mlp_tile_features(p, i, n), i, n,
                wf_nn_tile(&p->tiles, &y, i, n));
        wf_scope_close(ctx);
    }
    y.whole = wf_scope_return(ctx, y.whole);
    wf_tape_switch(ctx, tape);
    return y.whole;
}

/* Refuses what cannot be computed in tiles. */
static wf_status check(const wf_nn_mlp *m, wf_nn_linear *const *first, int n,
                       const wf_tensor *x)
{
    wf_context *ctx = m->base.ctx;
    wf_nn_tiles tiles = wf_nn_tiles_of(x, first[0]->bias != NULL, false);
    bool moves = false;
    const char *why;

    for (int i = 0; i < n; i++)
        moves = moves || wf_nn_acts(first[i], "sum");
    why =
        moves ? "does not move what its first linears give: split their weights by columns"
        : m->down->lora.a && m->down->lora.dropout > 0
            ? "drops nothing of a tile's features, as masks count elements of sequences: leave "
              "dropout of its last linear's adapter out"
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

static wf_status record(const wf_nn_mlp_pass *p, wf_nn_mlp *m, int n, wf_tensor *const *y)
{
    wf_nn_mlp_attr a = {m, p->of, 0};
    wf_call call = {.op = &wf_nn_mlp_tiled_op,
                    .ctx = m->base.ctx,
                    .n_in = wf_nn_mlp_operand_count(&p->of),
                    .n_out = n,
                    .attr = &a,
                    .attr_size = sizeof a};

    memcpy(call.out, y, (size_t)n * sizeof *y);
    for (int i = 0; i < call.n_in; i++) {
        call.in[i] = p->in[i];
        a.wants |= p->in[i]->requires_grad ? 1u << i : 0;
    }
    return wf_tape_record(&call);
}

static void summed_backward(wf_gradient *g)
{
    enum { Y, U, B };

    if (g->want[Y])
        g->din[Y] = g->dout[0];
    if (g->want[U])
        g->din[U] = wf_linear_dx(1, &g->dout[0], &g->in[B]);
    if (g->want[B])
        g->din[B] = !g->summed[B] && wf_comes_in_rows(g->dout[0])
                        ? wf_linear_dw_rows(g->dout[0], g->in[U], NULL)
                        : wf_linear_dw(g->dout[0], g->in[U]);
}

/* Operands: y without data, u and B; the output is y. */
static const wf_op summed_op = {.name = "tiled_mlp_sum",
                                .signature = "",
                                .save = WF_SAVE_IN(1) | WF_SAVE_IN(2),
                                .backward = summed_backward};

/* Runs the two ops of a last linear that has an adapter. */
static wf_tensor *run_adapted(wf_nn_mlp_pass *p, wf_nn_mlp *m)
{
    wf_context *ctx = m->base.ctx;
    wf_tensor *weight = p->in[wf_nn_mlp_down(&p->of)], *first[2], *y;
    wf_call call = {.op = &summed_op, .ctx = ctx, .n_in = 3, .n_out = 1};
    last l = {p->in[wf_nn_mlp_a(&p->of)], NULL, NULL};

    first[1] = run_tiles(p, &l);
    l.weight = weight;
    first[0] = first[1] ? fake_product(p, &l) : NULL;
    if (!first[0] || record(p, m, 2, first) != WF_OK)
        return NULL;
    l.u = wf_nn_adapter_scaled(m->down, first[1]);
    l.b = wf_nn_use(m->down, m->down->lora.b);
    if (!l.u || !l.b)
        return NULL;
    p->again = true;
    y = run_tiles(p, &l);
    call.in[0] = first[0];
    call.in[1] = l.u;
    call.in[2] = l.b;
    call.out[0] = y;
    return y && wf_tape_record(&call) == WF_OK ? y : NULL;
}

static void here_backward(wf_gradient *g)
{
    g->din[0] = g->dout[0];
}

static const wf_op here_op = {
    .name = "tiled_mlp_in", .signature = "", .backward = here_backward};

/* Returns x as it is used here: before adapters use it, as in an MLP without tiles, whatever
   comes in between on the tape. Gradients of its uses are added in their order. */
static wf_tensor *used_here(wf_tensor *x)
{
    wf_tensor *y = wf_detach(x);
    wf_call call = {.op = &here_op, .n_in = 1, .in = {x}, .n_out = 1, .out = {y}};

    if (!y)
        return NULL;
    call.ctx = x->ctx;
    return wf_tape_record(&call) == WF_OK ? y : NULL;
}

/* Fills in the operands that adapters have, of an MLP whose x before its point "in" is
   `outside`. */
static void take_adapters(wf_nn_mlp_pass *p, wf_nn_mlp *m, wf_nn_linear *const *first,
                          wf_tensor *outside, wf_tensor **in)
{
    wf_tensor *x = in[WF_MLP_X], *u[WF_MLP_FIRST] = {NULL, NULL};
    bool any = false;

    for (int i = 0; i < p->of.first; i++)
        any |= p->of.adapted[i] = first[i]->lora.a != NULL;
    p->of.adapts_last = m->down->lora.a != NULL;
    if (any)
        in[WF_MLP_X] = used_here(x);
    if (any && m->up)
        u[0] = wf_nn_adapter_of(m->up, outside, x);
    else if (any)
        wf_nn_adapters_of(m->gate_up, m->gate_up->member, p->of.first, outside, x, u);
    for (int i = 0; i < p->of.first; i++)
        if (p->of.adapted[i]) {
            in[wf_nn_mlp_u(&p->of, i)] = u[i];
            in[wf_nn_mlp_u(&p->of, i) + 1] = wf_nn_use(first[i], first[i]->lora.b);
        }
    if (p->of.adapts_last)
        in[wf_nn_mlp_a(&p->of)] = wf_nn_use(m->down, m->down->lora.a);
}

/* Runs the last linear's part that no tile has: its sum over ranks, and its bias. */
static wf_tensor *finish(wf_nn_linear *down, wf_tensor *y)
{
    y = wf_nn_at(down, "sum", y);
    return down->bias ? wf_bias_add(y, wf_nn_use(down, down->bias)) : y;
}

/* Runs the tiles of an MLP that has its operands. */
static wf_tensor *run(wf_nn_mlp_pass *p, wf_nn_mlp *m)
{
    const last l = {p->in[wf_nn_mlp_down(&p->of)], NULL, NULL};
    wf_tensor *y;

    if (p->of.adapts_last)
        y = run_adapted(p, m);
    else
        y = run_tiles(p, &l);
    if (!y || (!p->of.adapts_last && record(p, m, 1, &y) != WF_OK))
        return NULL;
    return finish(m->down, y);
}

wf_tensor *wf_nn_mlp_in_tiles(wf_nn_mlp *m, wf_tensor *x)
{
    wf_nn_linear *first[WF_MLP_FIRST] = {m->up, NULL};
    void *module = m->up ? (void *)m->up : (void *)m->gate_up;
    wf_tensor *in[WF_MAX_INPUTS] = {NULL}, *y = NULL;
    wf_nn_mlp_pass p = {.mlp = m, .of = {.first = m->up ? 1 : WF_MLP_FIRST}, .in = in};
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
    if (good)
        take_adapters(&p, m, first, x, in);
    for (int i = 0; i < wf_nn_mlp_operand_count(&p.of); i++)
        good = good && in[i];
    if (good)
        y = run(&p, m);
    wf_nn_leave(m->down, between, 1, &y);
    wf_nn_leave(module, outside, 1, &y);
    return y;
}
