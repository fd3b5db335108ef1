/*
 * nn/layers/loss_head.c - cross-entropy with the linear layer that makes the logits, in chunks
 * of whole sequences.
 *
 * The weight's gradient is the batch's midpoint tree with a chunk per sequence, so chunks are
 * its nodes: any size gives the same bits.
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "kernels/elementwise_ops.h"
#include "kernels/linear_rows.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/layers/loss_internal.h"

/* One pass over a rank's sequences. */
typedef struct pass {
    wf_context *ctx;
    wf_nn_linear *head;
    wf_nn_loss *loss;
    wf_tensor *x, *weight, *targets;
    wf_tensor *losses;   /* [batch, tokens] */
    wf_tensor *seed;     /* their gradient; NULL where none is wanted */
    wf_tensor *dx;       /* NULL where it is not wanted */
    wf_tensor *dw_rows;  /* the weight's, where it comes with a row per sequence; else NULL */
    bool want_x, want_w; /* the gradients that are wanted */
    int64_t chunk;       /* sequences, at most */
    float smoothing, z;
} pass;

/* The tensors of one chunk; they belong to its scope. */
typedef struct chunk {
    int64_t first, count;
    wf_tensor *x, *targets, *logits, *max, *part[2];
    wf_tensor *inner; /* the input of tanh, where the head has a cap */
} chunk;

/*
 * Halves of a rank's sequences, as long as that saves memory: the first cut halves the logits
 * and costs nothing, and every further one keeps one more open node of the weight's gradient,
 * which pays while that has less rows than the logits lose. Where all logits are SMALL nothing
 * is won. Sizes of the whole decide, so that ranks which share a reduction agree.
 */
static int64_t chunk_size(const wf_nn_loss *m, const wf_tensor *x, const wf_tensor *weight)
{
    enum { SMALL = 16 << 20 };
    int64_t n = x->local[0], tokens = 1, width = weight->dim[1].size;
    int64_t row = weight->dim[0].size * (int64_t)wf_dtype_size(x->dtype);

    if (m->chunk > 0)
        return m->chunk;
    for (int i = 1; i < x->ndim - 1; i++)
        tokens *= x->dim[i].size;
    for (bool first = true; n > 1 && n * tokens * row > SMALL; first = false) {
        if (!first && n / 2 * tokens <= width)
            break;
        n -= n / 2;
    }
    return n;
}

static bool computes_nothing(const pass *p)
{
    return wf_tensor_is_fake(p->x) || wf_tensor_is_fake(p->weight) ||
           wf_tensor_is_fake(p->targets);
}

/* Makes a number for each token, of the type that ops compute in: losses and their
   gradients. */
static wf_tensor *room_for_losses(const pass *p)
{
    const wf_tensor *t = p->targets;
    wf_dtype dtype = wf_context_device(p->ctx)->dtype;

    if (computes_nothing(p))
        return wf_tensor_fake(p->ctx, dtype, t->ndim, t->dim, t->layout);
    return wf_tensor_new(p->ctx, dtype, t->ndim, t->dim, t->layout, WF_MEMORY_ACTIVATION);
}

/* Makes dx, whose type and layout follow from the ops that make it, run on nothing. */
static wf_tensor *room_for_dx(const pass *p)
{
    const wf_tensor *x = p->x;
    wf_tensor *fake = wf_tensor_fake(p->ctx, x->dtype, x->ndim, x->dim, x->layout);
    wf_tensor *logits = wf_linear(fake, p->weight);
    wf_tensor *dx = wf_linear_dx(1, &logits, &p->weight);

    return computes_nothing(p) ? dx : wf_tensor_like(dx, WF_MEMORY_ACTIVATION);
}

/* Makes the weight's gradient with a row per sequence, whose layout follows likewise. */
static wf_tensor *room_for_dw_rows(const pass *p)
{
    const wf_tensor *x = p->x;
    wf_tensor *fake = wf_tensor_fake(p->ctx, x->dtype, x->ndim, x->dim, x->layout);
    wf_tensor *dw = wf_linear_dw_rows(wf_linear(fake, p->weight), fake, NULL);

    return computes_nothing(p) ? dw : wf_tensor_like(dw, WF_MEMORY_GRADIENT);
}

/* Nothing may happen at the head's point "sum", since no tape would go back over it. */
static wf_tensor *logits_of(const pass *p, wf_tensor *x)
{
    const char *outside = wf_nn_enter(p->head);
    wf_tensor *y = wf_linear(x, p->weight), *after = wf_nn_at(p->head, "sum", y);

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

/* Fills rows of dx, and returns older + the weight's gradient, or fills rows of that. */
static wf_tensor *gradients(const pass *p, const chunk *c, wf_tensor *older)
{
    wf_tensor *seed = wf_tensor_rows(p->seed, c->first, c->count);
    wf_tensor *dsum, *dpicked, *dlogits;

    wf_cross_entropy_grad(c->part[WF_NN_SUM], seed, &dsum, &dpicked);
    if (p->z > 0)
        dsum = wf_nn_z_loss_grad(dsum, c->part[WF_NN_SUM], c->max, seed, p->z);
    dlogits = wf_logit_sum_grad_into(c->logits, c->max, c->targets, dsum, dpicked, p->smoothing,
                                     c->logits);
    if (c->inner) /* as the ops of wf_nn_soft_cap go back */
        dlogits =
            wf_scale(wf_tanh_grad(c->inner, wf_scale(dlogits, p->head->cap)), 1 / p->head->cap);
    if (p->want_x)
        wf_linear_dx_into(1, &dlogits, &p->weight, wf_tensor_rows(p->dx, c->first, c->count));
    if (p->dw_rows)
        wf_linear_dw_rows(dlogits, c->x, wf_tensor_rows(p->dw_rows, c->first, c->count));
    return p->want_w && !p->dw_rows ? wf_linear_dw_add(dlogits, c->x, older) : NULL;
}

static wf_tensor *run_chunk(const pass *p, int64_t first, int64_t count, wf_tensor *older)
{
    const char *outside = wf_nn_enter(p->loss);
    wf_tensor *dw = NULL, *losses;
    chunk c = {.first = first, .count = count};

    c.x = wf_tensor_rows(p->x, first, count);
    c.targets = wf_tensor_rows(p->targets, first, count);
    c.logits = logits_of(p, c.x);
    if (p->head->cap > 0) {
        c.inner = wf_scale(c.logits, 1 / p->head->cap);
        c.logits = wf_scale(wf_tanh(c.inner), p->head->cap);
    }
    wf_nn_loss_reduce(p->loss, c.logits, c.targets, p->smoothing, &c.max, c.part);
    losses = wf_cross_entropy_into(c.part[WF_NN_SUM], c.part[WF_NN_PICKED], c.max,
                                   wf_tensor_rows(p->losses, first, count));
    if (p->z > 0)
        wf_partial_add_to(losses, wf_nn_z_loss(c.part[WF_NN_SUM], c.max, p->z));
    if (p->seed && wf_context_status(p->ctx) == WF_OK)
        dw = gradients(p, &c, older);
    wf_nn_leave(p->loss, outside, 1, &dw);
    return dw;
}

/* Returns older + the node of the batch's tree over sequences [from, to), and drops older;
   NULL: the node alone. */
static wf_tensor *run_node(const pass *p, int64_t from, int64_t to, wf_tensor *older)
{
    int64_t middle = from + (to - from) / 2;
    wf_tensor *node;

    if (to - from <= p->chunk || wf_context_status(p->ctx) != WF_OK)
        return run_chunk(p, from, to - from, older);
    wf_scope_open(p->ctx);
    node = run_node(p, middle, to, run_node(p, from, middle, NULL));
    if (older)
        node = wf_partial_add_to(older, node);
    return wf_scope_return(p->ctx, node);
}

typedef struct made_for {
    float weight;
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
        g->din[i] = g->in[i + 1];
}

static const wf_op fused_op = {.name = "linear_cross_entropy",
                               .signature = "",
                               .save = WF_SAVE_IN(1) | WF_SAVE_IN(3),
                               .backward = fused_backward};

static void record(const pass *p, wf_tensor *dw, float weight)
{
    made_for attr = {weight};
    wf_call call = {.op = &fused_op,
                    .ctx = p->ctx,
                    .n_out = 1,
                    .out = {p->losses},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    if (p->want_x) {
        call.in[call.n_in++] = p->x;
        call.in[call.n_in++] = p->dx;
    }
    if (p->want_w) {
        call.in[call.n_in++] = p->weight;
        call.in[call.n_in++] = dw;
    }
    /* nothing is kept of this run: it shows only whether they want a gradient */
    if (!call.n_in) {
        call.in[call.n_in++] = p->x;
        call.in[call.n_in++] = p->weight;
    }
    if (p->losses && wf_context_status(p->ctx) == WF_OK)
        wf_tape_record(&call);
}

/* Refuses losses that cannot be computed in chunks. */
static wf_status check(const pass *p)
{
    char text[256];

    if (wf_nn_loss_check(p->loss) != WF_OK)
        return wf_context_status(p->ctx);
    if (p->head->bias)
        return wf_fail(p->ctx, WF_EUNSUPPORTED,
                       "linear_cross_entropy: the head has a bias, which a head fused with its "
                       "loss has not; use wf_nn_cross_entropy on the logits");
    if (p->x->ndim < 2 || p->x->dim[0].chunks != WF_CHUNKS_EACH)
        return wf_fail(p->ctx, WF_ESHAPE,
                       "linear_cross_entropy: x is %s, but its first dim must be a batch "
                       "(wf_dim_batch), a sequence per row; use wf_nn_cross_entropy on the "
                       "logits",
                       wf_tensor_describe(p->x, text, sizeof text));
    return WF_OK;
}

/* Runs all chunks, with no tape: they leave losses, dx and the returned gradient. */
static wf_tensor *run_pass(pass *p, float weight)
{
    wf_tape *tape = wf_tape_switch(p->ctx, NULL);
    wf_tensor *dw = NULL;

    p->losses = room_for_losses(p);
    if (p->want_x)
        p->dx = room_for_dx(p);
    if (p->want_w && wf_comes_in_rows(p->x))
        p->dw_rows = room_for_dw_rows(p);
    if (p->want_x || p->want_w) {
        p->seed = room_for_losses(p);
        if (p->seed)
            wf_init_fill(p->seed, weight);
    }
    if (wf_context_status(p->ctx) == WF_OK)
        dw = run_node(p, 0, p->x->local[0], NULL);
    wf_tape_switch(p->ctx, tape);
    return p->dw_rows ? p->dw_rows : dw;
}

wf_tensor *wf_nn_linear_cross_entropy(wf_nn_linear *head, wf_nn_loss *loss, wf_tensor *x,
                                      wf_tensor *targets, float weight)
{
    pass p = {.head = head, .loss = loss, .targets = targets};
    const char *outside;

    if (!head || !loss || !x || !targets)
        return NULL;
    p.ctx = x->ctx;
    p.smoothing = wf_nn_loss_in_training(loss, loss->smoothing);
    p.z = wf_nn_loss_in_training(loss, loss->z);
    outside = wf_nn_enter(head);
    p.x = wf_nn_at(head, "in", x);
    p.weight = wf_nn_use(head, head->weight);
    if (p.x && p.weight && check(&p) == WF_OK) {
        bool recording = wf_context_recording(p.ctx);

        p.want_x = recording && p.x->requires_grad;
        p.want_w = recording && p.weight->requires_grad;
        p.chunk = chunk_size(loss, p.x, p.weight);
        record(&p, run_pass(&p, weight), weight);
    }
    if (wf_context_status(p.ctx) != WF_OK)
        p.losses = NULL;
    wf_nn_leave(head, outside, 1, &p.losses);
    return p.losses;
}
