/*
 * parallel/shard/expert_waves.c - an exchange in waves: some sequences' tokens go to the ranks
 * that have their experts, are computed and come home before the next ones go.
 *
 * A wave is a node of the batch's midpoint tree, so gradients of matrices are sums of waves in
 * that tree, with as many open sums as it has levels above them. Nothing of a wave is kept:
 * backward sends its tokens once more, beside the gradients of their sums.
 */
#include "core/distribution.h"
#include "core/tape.h"
#include "nn/layers/moe.h"
#include "parallel/shard/sharding_plan_internal.h"
#include <string.h>

enum { GATE, UP, DOWN, X, WEIGHTS, INDEX, OPERANDS };

/* Factors of adapters, which are operands after these. */
enum { GATE_UP_A = OPERANDS, GATE_B, UP_B, DOWN_A, DOWN_B, ADAPTED, MATRICES = 5 };

/* The attributes of the op that the tape has. */
typedef struct waves {
    int axis, inner; /* as in wf_row_owners */
    const wf_layout *layout;
    wf_dim experts;
    int64_t sequences;      /* a wave's, at most */
    float scale;            /* the adapters' */
    wf_experts_bound bound; /* a wave's, of its rows */
} waves;

static wf_row_owners owners_of(const waves *a, wf_tensor *index)
{
    return (wf_row_owners){a->axis, a->inner, index, a->experts, a->layout};
}

/* Takes a wave's indices and weights; those of the batch are `in`. */
static wf_row_wave take_wave(wf_tensor *const *in, int64_t first, int64_t count, wf_tensor **of)
{
    of[WEIGHTS] = wf_tensor_rows(in[WEIGHTS], first, count);
    of[INDEX] = wf_tensor_rows(in[INDEX], first, count);
    return (wf_row_wave){.first = first,
                         .end = first + count,
                         .batch = of[INDEX] ? of[INDEX]->dim[0] : in[INDEX]->dim[0]};
}

/* Returns x with the tokens of each sequence whole over the inner axis. */
static wf_tensor *with_all_tokens(const waves *a, wf_tensor *x)
{
    const wf_layout *to = wf_layout_whole(wf_mesh_of(x->ctx), x->layout, a->inner);

    return wf_layout_split_dim(x->layout, a->inner) != 1 ||
                   wf_move_run(x->ctx, 1, &x, &to, &x) == WF_OK
               ? x
               : NULL;
}

/* Returns rows that have come home, rounded, in a layout; `sum` was retained. */
static wf_tensor *come_home(wf_context *ctx, wf_tensor *sum, const wf_layout *to)
{
    wf_tensor *y = sum ? wf_rounded(wf_scope_adopt(ctx, sum)) : NULL;

    return y && (y->layout == to || wf_move_run(ctx, 1, &y, &to, &y) == WF_OK) ? y : NULL;
}

/* Brings a wave's sums home, to *all of them, which is retained. */
static void bring_home(const wf_row_owners *owners, wf_row_wave *wave, wf_tensor *sums,
                       wf_tensor **all)
{
    wf_tensor *y;

    wave->sum = *all;
    y = sums ? wf_rows_move(owners, wave, sums, NULL) : NULL;
    if (!*all)
        *all = wf_tensor_retain(y);
}

/* ---- backward ---- */

typedef struct walk {
    const wf_gradient *g;
    const waves *a;
    wf_row_owners owners;
    wf_tensor *x, *dy;    /* this rank's tokens */
    wf_tensor *dx, *dw;   /* sums over experts, and gradients of weights; retained */
    int matrix, matrices; /* the operands that are summed over waves: the first, their number */
} walk;

/* Writes a wave's gradient of weights to its rows of all. */
static void put_weights(walk *w, int64_t first, const wf_tensor *wave)
{
    const wf_tensor *weights = w->g->in[WEIGHTS];
    wf_tensor *rows;

    if (!wave)
        return;
    if (!w->dw)
        w->dw = wf_tensor_retain(wf_tensor_new(w->g->ctx, wave->dtype, weights->ndim,
                                               weights->dim, wave->layout,
                                               wf_context_memory_kind_now(w->g->ctx)));
    rows = w->dw ? wf_tensor_rows(w->dw, first, wave->local[0]) : NULL;
    if (rows && !wf_context_dry_run(w->g->ctx))
        memcpy(rows->data, wave->data, wf_tensor_bytes(wave));
}

/* Computes the gradients of a wave; d: those of matrices, NULL where they are frozen. */
static void go_back(walk *w, int64_t first, int64_t count, wf_tensor **d)
{
    const wf_gradient *g = w->g;
    const wf_trace_mark begun = wf_context_host_begin(g->ctx);
    wf_gradient of = {.ctx = g->ctx, .n_in = g->n_in, .n_out = 1};
    wf_row_wave wave;

    wf_scope_open(g->ctx);
    memcpy(of.in, g->in, sizeof of.in);
    wave = take_wave(g->in, first, count, of.in);
    of.in[X] = wf_rows_move(&w->owners, &wave, w->x, NULL);
    of.dout[0] = of.in[X] ? wf_rows_move(&w->owners, &wave, w->dy, NULL) : NULL;
    if (of.dout[0])
        wf_experts_backward(&of, w->a->scale, &w->a->bound);
    put_weights(w, first, of.din[WEIGHTS]);
    bring_home(&w->owners, &wave, of.din[X], &w->dx);
    for (int i = 0; i < w->matrices; i++)
        d[i] = of.din[w->matrix + i];
    wf_scope_keep(g->ctx, w->matrices, d);
    wf_context_host_end(g->ctx, begun, "wave of experts");
}

/* Computes those of a node of the tree over sequences. */
static void go_back_over(walk *w, int64_t first, int64_t count, wf_tensor **d)
{
    const int64_t left = count / 2;
    wf_tensor *right[MATRICES] = {NULL};

    if (count <= w->a->sequences) {
        go_back(w, first, count, d);
        return;
    }
    go_back_over(w, first, left, d);
    wf_scope_open(w->g->ctx);
    go_back_over(w, first + left, count - left, right);
    for (int i = 0; i < w->matrices; i++)
        if (d[i] && right[i])
            wf_partial_add_to(d[i], right[i]);
    wf_scope_close(w->g->ctx);
}

static void backward(wf_gradient *g)
{
    const waves *a = g->attr;
    const bool adapted = g->n_in == ADAPTED;
    walk w = {.g = g,
              .a = a,
              .owners = owners_of(a, g->in[INDEX]),
              .x = with_all_tokens(a, g->in[X]),
              .dy = with_all_tokens(a, g->dout[0]),
              .matrix = adapted ? GATE_UP_A : GATE,
              .matrices = adapted ? ADAPTED - GATE_UP_A : DOWN - GATE + 1};

    if (w.x && w.dy)
        go_back_over(&w, 0, g->in[INDEX]->local[0], g->din + w.matrix);
    g->din[X] = come_home(g->ctx, w.dx, g->in[X]->layout);
    g->din[WEIGHTS] = w.dw ? wf_scope_adopt(g->ctx, w.dw) : NULL;
}

/* Tokens are those before they are whole over the inner axis. */
static const wf_op waves_op = {.name = "experts_in_waves",
                               .signature = "",
                               .save = WF_SAVE_IN(OPERANDS) - 1,
                               .backward = backward};
static const wf_op adapted_op = {.name = "experts_in_waves",
                                 .signature = "",
                                 .save = WF_SAVE_IN(ADAPTED) - 1,
                                 .backward = backward};

/* ---- forward ---- */

static void take_operands(wf_call *call, wf_nn_moe *m, wf_tensor *const *x)
{
    wf_nn_parameter *const matrices[] = {m->gate,           m->up,          m->down,
                                         m->lora_gate_up_a, m->lora_gate_b, m->lora_up_b,
                                         m->lora_down_a,    m->lora_down_b};

    call->n_in = m->lora_gate_up_a ? ADAPTED : OPERANDS;
    call->op = m->lora_gate_up_a ? &adapted_op : &waves_op;
    for (int i = 0; i < call->n_in; i++)
        if (i < X || i > INDEX)
            call->in[i] = wf_nn_use(m, matrices[i < X ? i : i - X]);
    call->in[X] = x[3];
    call->in[WEIGHTS] = x[1];
    call->in[INDEX] = x[2];
}

/* Computes a wave of x, into its rows of *y, which is retained. */
static void go(const wf_call *call, wf_tensor *x, int64_t first, int64_t count, wf_tensor **y)
{
    const waves *a = call->attr;
    const wf_trace_mark begun = wf_context_host_begin(call->ctx);
    const wf_row_owners owners = owners_of(a, call->in[INDEX]);
    wf_tensor *in[ADAPTED], *sums;
    wf_row_wave wave;

    wf_scope_open(call->ctx);
    memcpy(in, call->in, sizeof in);
    wave = take_wave(call->in, first, count, in);
    in[X] = wf_rows_move(&owners, &wave, x, NULL);
    sums =
        call->n_in == OPERANDS
            ? wf_experts(in[GATE], in[UP], in[DOWN], in[X], in[WEIGHTS], in[INDEX], &a->bound)
            : wf_experts_adapted(in[GATE], in[UP], in[DOWN], in[X], in[WEIGHTS], in[INDEX],
                                 &(wf_experts_adapters){in[GATE_UP_A], in[GATE_B], in[UP_B],
                                                        in[DOWN_A], in[DOWN_B], a->scale},
                                 &a->bound);
    bring_home(&owners, &wave, sums, y);
    wf_scope_close(call->ctx);
    wf_context_host_end(call->ctx, begun, "wave of experts");
}

static void go_over(const wf_call *call, wf_tensor *x, int64_t first, int64_t count,
                    wf_tensor **y)
{
    const waves *a = call->attr;

    if (count <= a->sequences) {
        go(call, x, first, count, y);
        return;
    }
    go_over(call, x, first, count / 2, y);
    go_over(call, x, first + count / 2, count - count / 2, y);
}

void wf_par_compute_waves(const wf_par_plan_hook *p, const wf_row_owners *owners, int64_t n,
                          const wf_layout *to, wf_tensor **x)
{
    wf_nn_moe *m = (wf_nn_moe *)p->module;
    wf_context *ctx = p->par->ctx;
    const int64_t all = owners->index->local[0];
    const wf_experts_bound bound = wf_nn_moe_bound(m);
    const waves a = {.axis = owners->axis,
                     .inner = owners->inner,
                     .layout = owners->layout,
                     .experts = owners->dim,
                     .sequences = n,
                     .scale = m->lora_scale,
                     .bound = {bound.buffer * (float)all / (float)n, bound.taken}};
    wf_call call = {.ctx = ctx, .n_out = 1, .attr = &a, .attr_size = sizeof a};
    wf_tensor *y = NULL;
    wf_tape *tape;

    take_operands(&call, m, x);
    wf_scope_open(ctx);
    tape = wf_tape_switch(ctx, NULL);
    go_over(&call, x[0], 0, all, &y);
    call.out[0] = come_home(ctx, y, to);
    wf_tape_switch(ctx, tape);
    if (call.out[0] && wf_tape_record(&call) != WF_OK)
        call.out[0] = NULL;
    x[0] = wf_scope_return(ctx, call.out[0]);
    x[1] = NULL;
}
