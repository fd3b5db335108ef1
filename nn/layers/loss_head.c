/*
 * nn/layers/loss_head.c - cross-entropy with the linear layer that makes the logits, in tiles
 * of tokens: whole sequences, or pieces of a long one.
 *
 * The weight's gradient is the tree of nn/layers/tiles_internal.h, and tiles are its nodes: any
 * size gives the same bits.
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/layers/loss_internal.h"
#include "nn/layers/tiles_internal.h"

/* One pass over a rank's tokens. */
typedef struct pass {
    wf_context *ctx;
    wf_nn_linear *head;
    wf_nn_loss *loss;
    wf_nn_tiles tiles;
    wf_tensor *weight, *bias; /* bias: NULL where the head has none */
    wf_nn_tiled x, targets;
    wf_nn_tiled losses;          /* [batch, tokens] */
    wf_nn_tiled seed;            /* their gradient; NULL where none is wanted */
    wf_nn_tiled dx;              /* NULL where it is not wanted */
    wf_tensor *dw_rows;          /* the weight's, where it comes with a row per sequence */
    wf_nn_vector_grad db;        /* the bias's, where it is wanted */
    bool want_x, want_w, want_b; /* the gradients that are wanted */
    float smoothing, z;
} pass;

/* The tensors of one tile; they belong to its scope. */
typedef struct chunk {
    int64_t first, count; /* pieces */
    wf_tensor *x, *targets, *logits, *max, *part[2];
    wf_tensor *inner; /* the input of tanh, where the head has a cap */
} chunk;

/*
 * Halves a rank's tokens, as long as that saves memory: the first cut halves the logits and
 * costs nothing, and every further one keeps one more open node of the weight's gradient, which
 * pays while that has less rows than the logits lose. Where all logits are SMALL nothing is
 * won. Sizes of the whole decide, so that ranks which share a reduction agree.
 */
static void choose_tiles(wf_nn_tiles *tiles, const wf_nn_loss *m, const wf_tensor *x,
                         const wf_tensor *weight)
{
    enum { SMALL = 16 << 20 };
    int64_t width = weight->dim[1].size;
    int64_t row = weight->dim[0].size * (int64_t)wf_dtype_size(x->dtype);

    if (m->chunk > 0) {
        wf_nn_tiles_at_most(tiles, m->chunk);
        return;
    }
    for (bool first = true; tiles->tile * tiles->tokens * row > SMALL; first = false) {
        int64_t half = wf_nn_tiles_half(tiles, tiles->tile);

        if (half == tiles->tile || (!first && half * tiles->tokens <= width))
            break;
        tiles->tile = half;
    }
}

static bool computes_nothing(const pass *p)
{
    return wf_tensor_is_fake(p->x.whole) || wf_tensor_is_fake(p->weight) ||
           wf_tensor_is_fake(p->targets.whole);
}

/* Makes a number for each token, of the type that ops compute in: losses and their
   gradients. */
static wf_tensor *room_for_losses(const pass *p)
{
    const wf_tensor *t = p->targets.whole;
    wf_dtype dtype = wf_context_device(p->ctx)->dtype;

    if (computes_nothing(p))
        return wf_tensor_fake(p->ctx, dtype, t->ndim, t->dim, t->layout);
    return wf_tensor_new(p->ctx, dtype, t->ndim, t->dim, t->layout, WF_MEMORY_ACTIVATION);
}

/* Makes room for the gradients of x and bias, whose types and layouts follow from the ops that
   make them, run on nothing. */
static void make_room(pass *p)
{
    const wf_tensor *x = p->x.whole;
    wf_tensor *fake = wf_tensor_fake(p->ctx, x->dtype, x->ndim, x->dim, x->layout);
    wf_tensor *logits = wf_linear(fake, p->weight);
    wf_tensor *dx = p->want_x ? wf_linear_dx(1, &logits, &p->weight) : NULL;

    if (p->want_x)
        p->dx = wf_nn_tiled_of(
            &p->tiles, computes_nothing(p) ? dx : wf_tensor_like(dx, WF_MEMORY_ACTIVATION));
    if (p->want_b)
        p->db = wf_nn_vector_grad_of(&p->tiles, logits, computes_nothing(p));
}

/* Makes the weight's gradient with a row per sequence, whose layout follows likewise. */
static wf_tensor *room_for_dw_rows(const pass *p)
{
    const wf_tensor *x = p->x.whole;
    wf_tensor *fake = wf_tensor_fake(p->ctx, x->dtype, x->ndim, x->dim, x->layout);
    wf_tensor *dw = wf_linear_dw_rows(wf_linear(fake, p->weight), fake, NULL);

    return computes_nothing(p) ? dw : wf_tensor_like(dw, WF_MEMORY_GRADIENT);
}

/* Nothing may happen at the head's point "sum", since no tape would go back over it. */
static wf_tensor *logits_of(const pass *p, wf_tensor *x)
{
    const char *outside = wf_nn_enter(p->head);
    wf_tensor *y = NULL, *after, *weight = p->weight, *bias = p->bias;

    if (bias)
        wf_linear_bias(x, 1, &weight, &bias, &y);
    else
        y = wf_linear(x, weight);
    after = wf_nn_at(p->head, "sum", y);
    if (y && after && (after->layout != y->layout || after->data != y->data)) {
        wf_fail(
            p->ctx, WF_EUNSUPPORTED,
            "linear_cross_entropy: the plan moves logits at the head's point \"sum\", which "
            "a head fused with its loss cannot: split its weight by columns, or use "
            "wf_nn_cross_entropy on the logits");
        y = NULL;
    }
    wf_nn_leave(p->head, outside, 1, &y);
    return y;
}

/* Makes the gradient of the logits, which it overwrites; losses are there. */
static wf_tensor *logits_gradient(const pass *p, const chunk *c)
{
    wf_tensor *seed = wf_nn_tile(&p->tiles, &p->seed, c->first, c->count);
    wf_tensor *dsum, *dpicked;

    wf_cross_entropy_grad(c->part[WF_NN_SUM], seed, &dsum, &dpicked);
    if (p->z > 0)
        dsum = wf_nn_z_loss_grad(dsum, c->part[WF_NN_SUM], c->max, seed, p->z);
    return wf_logit_sum_grad_into(c->logits, c->max, c->targets, dsum, dpicked, p->smoothing,
                                  c->logits);
}

/* Fills rows of dx, and returns older + the weight's gradient, or fills rows of that. */
static wf_tensor *gradients(const pass *p, const chunk *c, wf_tensor *dlogits, wf_tensor *older)
{
    if (c->inner) /* as the ops of wf_nn_soft_cap go back */
        dlogits =
            wf_scale(wf_tanh_grad(c->inner, wf_scale(dlogits, p->head->cap)), 1 / p->head->cap);
    if (p->want_x)
        wf_linear_dx_into(1, &dlogits, &p->weight,
                          wf_nn_tile(&p->tiles, &p->dx, c->first, c->count));
    if (p->want_b)
        wf_nn_bias_grad_into(wf_nn_tile_rows(&p->tiles, dlogits),
                             wf_nn_vector_tile(&p->tiles, &p->db, c->first, c->count));
    if (p->dw_rows)
        wf_linear_dw_rows(dlogits, c->x, wf_tensor_rows(p->dw_rows, c->first, c->count));
    return p->want_w && !p->dw_rows ? wf_linear_dw_add(dlogits, c->x, older) : NULL;
}

/* Returns true where one op makes losses and the logits' gradient: their sums are all here, and
   no hook or further loss takes part in them. */
static bool at_once(const pass *p, const wf_tensor *logits)
{
    int last = logits->ndim - 1;

    return p->seed.whole && !(p->z > 0) && !wf_nn_acts(p->loss, "max") &&
           !wf_nn_acts(p->loss, "sum") && logits->local[last] == logits->dim[last].size;
}

/* Fills losses, and returns the gradient of the logits where it is wanted. */
static wf_tensor *losses_of(const pass *p, chunk *c)
{
    wf_tensor *losses = wf_nn_tile(&p->tiles, &p->losses, c->first, c->count);

    if (c->logits && at_once(p, c->logits)) {
        wf_logit_loss_into(c->logits, c->targets,
                           wf_nn_tile(&p->tiles, &p->seed, c->first, c->count), p->smoothing,
                           c->logits, losses);
        return c->logits;
    }
    wf_nn_loss_reduce(p->loss, c->logits, c->targets, p->smoothing, &c->max, c->part);
    losses = wf_cross_entropy_into(c->part[WF_NN_SUM], c->part[WF_NN_PICKED], c->max, losses);
    if (p->z > 0)
        wf_partial_add_to(losses, wf_nn_z_loss(c->part[WF_NN_SUM], c->max, p->z));
    return p->seed.whole && wf_context_status(p->ctx) == WF_OK ? logits_gradient(p, c) : NULL;
}

static wf_tensor *run_chunk(const pass *p, int64_t first, int64_t count, wf_tensor *older)
{
    const char *outside = wf_nn_enter(p->loss);
    wf_tensor *dw = NULL, *dlogits;
    chunk c = {.first = first, .count = count};

    c.x = wf_nn_tile(&p->tiles, &p->x, first, count);
    c.targets = wf_nn_tile(&p->tiles, &p->targets, first, count);
    c.logits = logits_of(p, c.x);
    if (p->head->cap > 0) {
        c.inner = wf_scale(c.logits, 1 / p->head->cap);
        c.logits = wf_scale(wf_tanh(c.inner), p->head->cap);
    }
    dlogits = losses_of(p, &c);
    if (dlogits && wf_context_status(p->ctx) == WF_OK)
        dw = gradients(p, &c, dlogits, older);
    wf_nn_leave(p->loss, outside, 1, &dw);
    return dw;
}

/* Returns older + the node of the batch's tree over pieces [from, to), and drops older; NULL:
   the node alone. */
static wf_tensor *run_node(const pass *p, int64_t from, int64_t to, wf_tensor *older)
{
    int64_t middle = wf_nn_tiles_middle(&p->tiles, from, to);
    wf_tensor *node;

    if (to - from <= p->tiles.tile || wf_context_status(p->ctx) != WF_OK)
        return run_chunk(p, from, to - from, older);
    wf_scope_open(p->ctx);
    node = run_node(p, middle, to, run_node(p, from, middle, NULL));
    if (older)
        node = wf_partial_add_to(older, node);
    return wf_scope_return(p->ctx, node);
}

typedef struct made_for {
    float weight;
    int bias; /* the operand that is the bias; -1: none */
} made_for;

/* Returns true where all elements are `weight`; false with an error where they cannot be
   read. */
static bool all_weigh(const wf_tensor *t, float weight)
{
    int64_t n = wf_tensor_local_count(t), same = 0;
    wf_host_data view;
    const void *data = wf_data_read(t, &view);

    while (data && same < n &&
           (t->dtype == WF_F64 ? ((const double *)data)[same] == (double)weight
                               : ((const float *)data)[same] == weight))
        same++;
    wf_data_close(&view);
    return data && same == n;
}

/* Operands are pairs of a tensor and its gradient, made when the losses were. What is recorded
   has run before, and its weights were looked at then. */
static void fused_backward(wf_gradient *g)
{
    float weight = ((const made_for *)g->attr)->weight;
    const wf_tensor *dloss = g->dout[0];
    bool values = dloss->data && !wf_context_dry_run(g->ctx) && !wf_graph_is_captured(g->ctx);

    if (values && !all_weigh(dloss, weight)) {
        wf_fail(g->ctx, WF_EINVAL,
                "linear_cross_entropy: its gradients were made for losses that are all "
                "weighted with %.9g, but the weight that comes back is another one: give it "
                "the weight that losses have in what is differentiated, or use "
                "wf_nn_cross_entropy on the logits, which takes any",
                (double)weight);
        return;
    }
    for (int i = 0; i < g->n_in; i += 2)
        g->din[i] = i == ((const made_for *)g->attr)->bias
                        ? wf_nn_vector_gradient(g, i, g->in[i + 1])
                        : g->in[i + 1];
}

static const wf_op fused_op = {.name = "linear_cross_entropy",
                               .signature = "",
                               .save = WF_SAVE_IN(1) | WF_SAVE_IN(3) | WF_SAVE_IN(5),
                               .backward = fused_backward};

static void record(const pass *p, wf_tensor *dw, float weight)
{
    made_for attr = {weight, -1};
    wf_call call = {.op = &fused_op,
                    .ctx = p->ctx,
                    .n_out = 1,
                    .out = {p->losses.whole},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    if (p->want_x) {
        call.in[call.n_in++] = p->x.whole;
        call.in[call.n_in++] = p->dx.whole;
    }
    if (p->want_w) {
        call.in[call.n_in++] = p->weight;
        call.in[call.n_in++] = dw;
    }
    if (p->want_b) {
        attr.bias = call.n_in;
        call.in[call.n_in++] = p->bias;
        call.in[call.n_in++] = p->db.rows;
    }
    /* nothing is kept of this run: it shows only whether they want a gradient */
    if (!call.n_in) {
        call.in[call.n_in++] = p->x.whole;
        call.in[call.n_in++] = p->weight;
        if (p->bias)
            call.in[call.n_in++] = p->bias;
    }
    if (p->losses.whole && wf_context_status(p->ctx) == WF_OK)
        wf_tape_record(&call);
}

/* Refuses losses that cannot be computed in chunks. */
static wf_status check(const pass *p)
{
    const wf_tensor *x = p->x.whole;
    char text[256];

    if (wf_nn_loss_check(p->loss) != WF_OK)
        return wf_context_status(p->ctx);
    if (x->ndim < 2 || x->dim[0].chunks != WF_CHUNKS_EACH)
        return wf_fail(p->ctx, WF_ESHAPE,
                       "linear_cross_entropy: x is %s, but its first dim must be a batch "
                       "(wf_dim_batch), a sequence per row; use wf_nn_cross_entropy on the "
                       "logits",
                       wf_tensor_describe(x, text, sizeof text));
    return WF_OK;
}

/* Runs all tiles, with no tape: they leave losses, the gradients of x and bias, and return the
   weight's. */
static wf_tensor *run_pass(pass *p, float weight)
{
    wf_tape *tape = wf_tape_switch(p->ctx, NULL);
    wf_tensor *dw = NULL, *x = p->x.whole, *targets = p->targets.whole;

    p->tiles = wf_nn_tiles_of(x, p->want_b, wf_comes_in_rows(x));
    choose_tiles(&p->tiles, p->loss, x, p->weight);
    p->x = wf_nn_tiled_of(&p->tiles, x);
    p->targets = wf_nn_tiled_of(&p->tiles, targets);
    p->losses = wf_nn_tiled_of(&p->tiles, room_for_losses(p));
    if (p->want_x || p->want_b)
        make_room(p);
    if (p->want_w && wf_comes_in_rows(x))
        p->dw_rows = room_for_dw_rows(p);
    if (p->want_x || p->want_w || p->want_b) {
        p->seed = wf_nn_tiled_of(&p->tiles, room_for_losses(p));
        if (p->seed.whole)
            wf_init_fill(p->seed.whole, weight);
    }
    if (wf_context_status(p->ctx) == WF_OK)
        dw = run_node(p, 0, p->tiles.count, NULL);
    if (p->want_b)
        wf_nn_vector_finish(&p->tiles, &p->db);
    wf_tape_switch(p->ctx, tape);
    return p->dw_rows ? p->dw_rows : dw;
}

wf_tensor *wf_nn_linear_cross_entropy(wf_nn_linear *head, wf_nn_loss *loss, wf_tensor *x,
                                      wf_tensor *targets, float weight)
{
    pass p = {.head = head, .loss = loss, .targets = {targets, NULL}};
    const char *outside;

    if (!head || !loss || !x || !targets)
        return NULL;
    p.ctx = x->ctx;
    p.smoothing = wf_nn_loss_in_training(loss, loss->smoothing);
    p.z = wf_nn_loss_in_training(loss, loss->z);
    outside = wf_nn_enter(head);
    p.x.whole = wf_nn_at(head, "in", x);
    p.weight = wf_nn_use(head, head->weight);
    p.bias = head->bias ? wf_nn_use(head, head->bias) : NULL;
    if (p.x.whole && p.weight && check(&p) == WF_OK) {
        bool recording = wf_context_recording(p.ctx);

        p.want_x = recording && p.x.whole->requires_grad;
        p.want_w = recording && p.weight->requires_grad;
        p.want_b = recording && p.bias && p.bias->requires_grad;
        record(&p, run_pass(&p, weight), weight);
    }
    if (wf_context_status(p.ctx) != WF_OK)
        p.losses.whole = NULL;
    wf_nn_leave(head, outside, 1, &p.losses.whole);
    return p.losses.whole;
}
