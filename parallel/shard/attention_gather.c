/*
 * parallel/shard/attention_gather.c - attention over tokens that ranks of cp have split:
 * queries stay, keys and values are gathered.
 *
 * Backward gathers queries, results and their gradients, too: dk and dv of a rank's own keys
 * are chains over all queries that see them, in the order of one rank. So each rank makes the
 * gradients of its own tokens, and nothing is summed over cp.
 */
#include "kernels/attention_part.h"
#include "nn/layers/attention.h"
#include "parallel/shard/sharding_plan_internal.h"

enum { MOST = 6 };

/* The attributes of the op that the tape has. */
typedef struct gathered {
    wf_attention_time time;
    int64_t window, chunk;
    float dropout, cap;
    int site, cp;
    bool causal, sinks; /* operand 3 is sinks, and `first` comes after it */
} gathered;

static wf_attention_options options_of(const gathered *a, wf_tensor *first)
{
    return (wf_attention_options){.causal = a->causal,
                                  .dropout = a->dropout,
                                  .site = a->site,
                                  .first = first,
                                  .window = a->window,
                                  .chunk = a->chunk,
                                  .cap = a->cap};
}

/* Gathers tokens over cp, all tensors together. */
static wf_status gather(wf_context *ctx, int cp, int n, wf_tensor **x)
{
    const wf_layout *to[MOST];

    for (int i = 0; i < n; i++) {
        if (!x[i])
            return wf_context_status(ctx);
        to[i] = wf_layout_whole(wf_mesh_of(ctx), x[i]->layout, cp);
    }
    return wf_move_run(ctx, n, x, to, x);
}

/* Returns the gradient of a vector from its rows, one per sequence. */
static wf_tensor *vector_of(const wf_gradient *g, int i, wf_tensor *rows)
{
    return rows && g->summed[i] ? wf_batch_sum(rows) : rows;
}

static void backward(wf_gradient *g)
{
    enum { Q, K, V, Y, LSE, DY, SINKS = 3 };
    const gathered *a = g->attr;
    wf_tensor *x[MOST] = {g->in[Q], g->in[K], g->in[V], g->out[0], g->out[1], g->dout[0]};
    const int first = a->sinks ? SINKS + 1 : SINKS;
    const wf_attention_options o = options_of(a, g->n_in > first ? g->in[first] : NULL);

    if (a->sinks && g->dout[0] && g->want[SINKS])
        g->din[SINKS] = vector_of(
            g, SINKS, wf_attention_sinks_grad(g->out[0], g->dout[0], g->out[1], g->in[SINKS]));
    if (gather(g->ctx, a->cp, MOST, x) == WF_OK)
        wf_attention_part_grad(&(wf_attention_operands){x[Q], x[K], x[V], x[Y], x[LSE], x[DY]},
                               g->in[Q], &o, &a->time, g->din);
}

static const wf_op gathered_op = {.name = "attention_gathered",
                                  .signature = "",
                                  .save = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_IN(2) |
                                          WF_SAVE_IN(3) | WF_SAVE_IN(4) | WF_SAVE_OUT(0) |
                                          WF_SAVE_OUT(1),
                                  .backward = backward};

void wf_par_attend(const wf_par_plan_hook *p, const wf_nn_attention *m, wf_tensor *sinks,
                   wf_tensor **x)
{
    wf_context *ctx = p->par->ctx;
    wf_attention_options o = wf_nn_attention_options_now(m);
    const gathered a = {.time = wf_attention_time_now(ctx),
                        .window = o.window,
                        .chunk = o.chunk,
                        .dropout = o.dropout,
                        .cap = o.cap,
                        .site = o.site,
                        .cp = p->par->cp_axis,
                        .causal = o.causal,
                        .sinks = sinks != NULL};
    wf_call call = {.op = &gathered_op,
                    .ctx = ctx,
                    .n_in = 3,
                    .in = {x[0], x[1], x[2]},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};
    wf_tensor *all[] = {x[1], x[2]};

    o.sinks = sinks;
    if (sinks)
        call.in[call.n_in++] = sinks;
    if (o.first)
        call.in[call.n_in++] = o.first;
    wf_scope_open(ctx);
    if (gather(ctx, a.cp, 2, all) == WF_OK)
        call.out[0] = wf_attention_part(x[0], all[0], all[1], &o, &a.time, &call.out[1]);
    if (call.out[0] && wf_tape_record(&call) != WF_OK)
        call.out[0] = NULL;
    x[0] = wf_scope_return(ctx, call.out[0]);
    x[1] = x[2] = NULL;
}
