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
#include "nn/layers/mlp_internal.h"
#include "nn/layers/tiles_internal.h"

enum { FIRST = 2 }; /* first linears, at most: gate and up */

/* The operands of the op: x, the first weights, the last one, biases of the first. */
typedef struct operands {
    int first; /* first linears */
    bool bias; /* they have biases */
} operands;

enum { X, WEIGHT };

static int down_of(const operands *o)
{
    return WEIGHT + o->first;
}

static int bias_of(const operands *o, int i)
{
    return WEIGHT + o->first + 1 + i;
}

static int operand_count(const operands *o)
{
    return WEIGHT + o->first + 1 + (o->bias ? o->first : 0);
}

typedef struct attr {
    wf_nn_mlp *mlp;
    operands of;
    unsigned wants; /* a bit for each operand that has a gradient */
} attr;

/* One pass over a rank's tokens. */
typedef struct pass {
    const wf_nn_mlp *mlp;
    operands of;
    wf_tensor *const *in; /* the op's operands */
    wf_nn_tiles tiles;
    wf_nn_tiled x, y, dy, dx;
    unsigned wants;
    wf_nn_vector_grad db[FIRST];
} pass;

/* The features of a tile, [rows, tokens, hidden], of each first linear, and those that the last
   one takes; in rows of a vector's chunks, but for `out`. */
typedef struct features {
    wf_tensor *product[FIRST]; /* x W^T */
    wf_tensor *sum[FIRST];     /* the same and a bias that is no part of gelu */
    wf_tensor *out;
} features;

static bool wants(const pass *p, int operand)
{
    return p->wants >> operand & 1;
}

/* Returns true where bias and gelu are one op. */
static bool joined(const pass *p)
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

static features features_of(const pass *p, wf_tensor *x)
{
    features f = {{NULL}, {NULL}, NULL};
    wf_tensor *product[FIRST] = {NULL, NULL};

    wf_linear_group(x, p->of.first, &p->in[WEIGHT], product);
    for (int i = 0; i < p->of.first; i++) {
        f.sum[i] = f.product[i] = wf_nn_tile_rows(&p->tiles, product[i]);
        if (p->of.bias && !joined(p))
            f.sum[i] = wf_bias_add(f.product[i], p->in[bias_of(&p->of, i)]);
    }
    f.out = joined(p) ? wf_bias_gelu(f.product[0], p->in[bias_of(&p->of, 0)])
                      : activated(p->mlp, f.sum);
    f.out = as_tile(f.out, product[0]);
    return f;
}

/* y = features of the tile by the last weight, into a tensor that is there; NULL: a new one. */
static wf_tensor *last_product(const pass *p, wf_tensor *out, wf_tensor *y)
{
    wf_call call = {.op = &wf_op_linear1,
                    .n_in = 2,
                    .in = {out, p->in[down_of(&p->of)]},
                    .n_out = 1,
                    .into = {y}};

    wf_dispatch(&call);
    return call.out[0];
}

/* Goes back through what is between the products, which its own ops do on a tape of theirs. */
static void activation_grad(const pass *p, const features *f, wf_tensor *dout, int64_t first,
                            int64_t count, wf_tensor **dsum)
{
    wf_context *ctx = dout->ctx;
    wf_tensor *source[FIRST] = {NULL, NULL}, *y;
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
        if (wants(p, bias_of(&p->of, i)))
            wf_nn_bias_grad_into(dsum[i],
                                 wf_nn_vector_tile(&p->tiles, &p->db[i], first, count));
}

/* The same where bias and gelu are one op. */
static void bias_gelu_grad(const pass *p, const features *f, wf_tensor *dout, int64_t first,
                           int64_t count, wf_tensor **dsum)
{
    int bias = bias_of(&p->of, 0);
    wf_call call = {.op = &wf_op_bias_gelu_grad,
                    .n_in = 3,
                    .in = {f->product[0], p->in[bias], dout},
                    .n_out = 2};

    if (wants(p, bias))
        call.into[1] = wf_nn_vector_tile(&p->tiles, &p->db[0], first, count);
    wf_dispatch(&call);
    dsum[0] = call.out[0];
}

/* Returns older + the gradient of a weight from a tile, counted as what it is. */
static wf_tensor *weight_grad(wf_tensor *dy, wf_tensor *x, wf_tensor *older)
{
    wf_context *ctx = x->ctx;
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);
    wf_tensor *dw = wf_linear_dw_add(dy, x, older);

    wf_context_memory_kind(ctx, kind);
    return dw;
}

/* Goes back through a tile; dw[i]: the sums of earlier nodes, which become theirs and this. */
static void tile_back(const pass *p, int64_t first, int64_t count, wf_tensor **dw)
{
    wf_tensor *x = wf_nn_tile(&p->tiles, &p->x, first, count), *const *in = p->in;
    wf_tensor *dy = wf_nn_tile(&p->tiles, &p->dy, first, count), *dout, *d[FIRST] = {NULL};
    double share = x ? wf_context_model_share(x->ctx, 0) : 0;
    features f = features_of(p, x);
    int down = down_of(&p->of);

    if (x)
        wf_context_model_share(x->ctx, share);
    dout = wf_linear_dx(1, &dy, &in[down]);
    if (wants(p, down))
        dw[p->of.first] = weight_grad(dy, f.out, dw[p->of.first]);
    dout = wf_nn_tile_rows(&p->tiles, dout);
    if (!dout || !f.out)
        return;
    if (joined(p))
        bias_gelu_grad(p, &f, dout, first, count, d);
    else
        activation_grad(p, &f, dout, first, count, d);
    for (int i = 0; i < p->of.first; i++) {
        d[i] = as_tile(d[i], f.out);
        if (wants(p, WEIGHT + i))
            dw[i] = weight_grad(d[i], x, dw[i]);
    }
    if (wants(p, X))
        wf_linear_dx_into(p->of.first, d, &in[WEIGHT],
                          wf_nn_tile(&p->tiles, &p->dx, first, count));
}

/* dw[i] becomes dw[i] + the node of the tree over pieces [from, to); NULL: the node alone. */
static void node_back(const pass *p, int64_t from, int64_t to, wf_tensor **dw)
{
    int64_t middle = wf_nn_tiles_middle(&p->tiles, from, to);
    bool leaf = to - from <= p->tiles.tile, fresh = true;
    wf_tensor *node[FIRST + 1] = {NULL};
    int n = p->of.first + 1;

    if (wf_context_status(p->tiles.ctx) != WF_OK)
        return;
    for (int i = 0; i < n; i++)
        fresh &= !dw[i];
    wf_scope_open(p->tiles.ctx);
    if (leaf) {
        for (int i = 0; i < n; i++)
            node[i] = dw[i];
        tile_back(p, from, to - from, node);
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

static bool computes_nothing(const pass *p)
{
    return wf_tensor_is_fake(p->in[X]) || wf_tensor_is_fake(p->in[WEIGHT]);
}

/* Makes a tensor like t, which is fake, or leaves it so. */
static wf_tensor *room(const pass *p, wf_tensor *t)
{
    return t && !computes_nothing(p) ? wf_tensor_like(t, WF_MEMORY_ACTIVATION) : t;
}

/* Makes room for the gradients of x and the biases, like what ops give that run on nothing. */
static void make_room(pass *p)
{
    const wf_tensor *x = p->in[X];
    wf_tensor *fake = wf_tensor_fake(x->ctx, x->dtype, x->ndim, x->dim, x->layout);
    wf_tensor *product[FIRST] = {NULL, NULL};

    wf_linear_group(fake, p->of.first, &p->in[WEIGHT], product);
    if (wants(p, X))
        p->dx = wf_nn_tiled_of(&p->tiles,
                               room(p, wf_linear_dx(p->of.first, product, &p->in[WEIGHT])));
    for (int i = 0; p->of.bias && i < p->of.first; i++)
        if (wants(p, bias_of(&p->of, i)))
            p->db[i] = wf_nn_vector_grad_of(&p->tiles, product[i], computes_nothing(p));
}

static void choose_tile(pass *p)
{
    p->tiles = wf_nn_tiles_of(p->in[X], p->of.bias);
    wf_nn_tiles_at_most(&p->tiles, p->mlp->tile);
    p->x = wf_nn_tiled_of(&p->tiles, p->in[X]);
}

static void backward(wf_gradient *g)
{
    const attr *a = g->attr;
    pass p = {.mlp = a->mlp, .of = a->of, .in = g->in, .wants = a->wants};
    wf_tensor *dw[FIRST + 1] = {NULL};

    choose_tile(&p);
    p.dy = wf_nn_tiled_of(&p.tiles, g->dout[0]);
    make_room(&p);
    node_back(&p, 0, p.tiles.count, dw);
    g->din[X] = p.dx.whole;
    for (int i = 0; i <= p.of.first; i++)
        g->din[WEIGHT + i] = dw[i];
    for (int i = 0; p.of.bias && i < p.of.first; i++) {
        int bias = bias_of(&p.of, i);

        if (!wants(&p, bias))
            continue;
        wf_nn_vector_finish(&p.tiles, &p.db[i]);
        g->din[bias] = wf_nn_vector_gradient(g, bias, p.db[i].rows);
    }
}

/* Every gradient reads x and the weights, since features are recomputed from them. */
static const wf_op tiled_op = {.name = "tiled_mlp",
                               .signature = "",
                               .save = (WF_SAVE_IN(FIRST + 2 + FIRST) - 1),
                               .backward = backward};

/* Computes y tile by tile, with no tape. */
static wf_tensor *run_tiles(pass *p)
{
    const wf_tensor *x = p->in[X];
    wf_tape *tape = wf_tape_switch(x->ctx, NULL);
    wf_tensor *fake = wf_tensor_fake(x->ctx, x->dtype, x->ndim, x->dim, x->layout);

    wf_scope_open(x->ctx);
    choose_tile(p);
    fake = last_product(
        p, features_of(&(pass){.mlp = p->mlp, .of = p->of, .in = p->in}, fake).out, NULL);
    p->y = wf_nn_tiled_of(&p->tiles, room(p, fake));
    for (int64_t i = 0; i < p->tiles.count && p->y.whole; i += p->tiles.tile) {
        int64_t left = p->tiles.count - i, n = left < p->tiles.tile ? left : p->tiles.tile;

        wf_scope_open(x->ctx);
        last_product(p, features_of(p, wf_nn_tile(&p->tiles, &p->x, i, n)).out,
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
    const char *why =
        m->down->lora.a ? "has no adapters yet: adapt other linears"
        : wf_comes_in_rows(x)
            ? "is of one sequence at a time where ranks split tokens: take micro-batches of one"
            : NULL;
    wf_nn_tiles tiles = wf_nn_tiles_of(x, first[0]->bias != NULL);

    for (int i = 0; i < n && !why; i++)
        why = first[i]->lora.a ? "has no adapters yet: adapt other linears"
              : wf_nn_acts(first[i], "sum")
                  ? "does not move what its first linears give: split their weights by columns"
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

static wf_status record(const pass *p, wf_nn_mlp *m, wf_tensor *y)
{
    attr a = {m, p->of, 0};
    wf_call call = {.op = &tiled_op,
                    .ctx = m->base.ctx,
                    .n_in = operand_count(&p->of),
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
    wf_nn_linear *first[FIRST] = {m->up, NULL};
    void *module = m->up ? (void *)m->up : (void *)m->gate_up;
    wf_tensor *in[WF_MAX_INPUTS] = {NULL}, *y = NULL;
    pass p = {.mlp = m, .of = {m->up ? 1 : FIRST, false}, .in = in};
    const char *outside = wf_nn_enter(module), *between;
    bool good;

    for (int i = 0; i < p.of.first && !m->up; i++)
        first[i] = (wf_nn_linear *)m->gate_up->member[i];
    p.of.bias = first[0]->bias != NULL;
    in[X] = wf_nn_at(module, "in", x);
    for (int i = 0; i < p.of.first; i++)
        in[WEIGHT + i] = wf_nn_use(first[i], first[i]->weight);
    for (int i = 0; i < p.of.first && p.of.bias; i++)
        in[bias_of(&p.of, i)] = wf_nn_use(first[i], first[i]->bias);
    between = wf_nn_enter(m->down);
    in[down_of(&p.of)] = wf_nn_use(m->down, m->down->weight);
    good = in[X] && check(m, first, p.of.first, in[X]) == WF_OK;
    for (int i = 0; i < operand_count(&p.of); i++)
        good = good && in[i];
    if (good && run_tiles(&p) && record(&p, m, p.y.whole) == WF_OK)
        y = finish(m->down, p.y.whole);
    wf_nn_leave(m->down, between, 1, &y);
    wf_nn_leave(module, outside, 1, &y);
    return y;
}
