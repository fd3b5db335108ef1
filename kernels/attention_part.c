/*
 * kernels/attention_part.c - attention of some of a sequence's tokens (kernels/attention.c):
 *
 *     attention_part       the rows of those tokens that q has, over all keys
 *     attention_part_sinks the same beside a sink for each head
 *     attention_part_grad  dq, dk and dv of those tokens, from q, k, v, y, lse and dy of all
 *
 * A row is that of attention, and so is an element of dk and dv, a chain over all queries: so
 * parts have the bits of the whole. A pair of a query and a key is computed by the part that
 * has the query, and by the one that has the key.
 *
 * The reference loops are in kernels/attention_reference.c, the CPU's kernels in
 * kernels/cpu/attention.c and kernels/cpu/attention_part.c.
 */
#include "kernels/attention_part.h"
#include "kernels/attention_internal.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>
#include <string.h>

wf_attention_time wf_attention_time_now(const wf_context *ctx)
{
    return (wf_attention_time){wf_context_is_training(ctx), wf_context_step(ctx),
                               wf_context_sequences(ctx)};
}

static wf_attention_attr attr_of(const wf_context *ctx, const wf_attention_options *o,
                                 const wf_attention_time *time)
{
    wf_attention_attr a = {.bidirectional = !o->causal,
                           .window = wf_attention_window(o),
                           .cap = o->cap,
                           .part = true};

    if (time->training) {
        a.dropout = o->dropout;
        a.step = time->step;
        a.sequences = time->sequences;
        a.key = wf_dropout_key(ctx, o->site, &a.site);
    }
    return a;
}

wf_tensor *wf_attention_part(wf_tensor *q, wf_tensor *k, wf_tensor *v,
                             const wf_attention_options *options, const wf_attention_time *time,
                             wf_tensor **lse)
{
    wf_attention_attr a;
    wf_call call = {.op = &wf_op_attention_part,
                    .n_in = 3,
                    .in = {q, k, v},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};

    *lse = NULL;
    if (!q || !k || !wf_attention_complete(q, k, options))
        return NULL;
    if (options->mask || options->bias) {
        wf_fail(q->ctx, WF_EUNSUPPORTED,
                "attention_part: a mask or a bias of scores, which belong to attention of all "
                "tokens: leave them out");
        return NULL;
    }
    a = attr_of(q->ctx, options, time);
    if (options->sinks) {
        call.op = &wf_op_attention_part_sinks;
        call.in[call.n_in++] = options->sinks;
    }
    if (options->first)
        call.in[call.n_in++] = options->first;
    wf_dispatch(&call);
    *lse = call.out[1];
    return call.out[0];
}

void wf_attention_part_grad(const wf_attention_operands *all, wf_tensor *own,
                            const wf_attention_options *options, const wf_attention_time *time,
                            wf_tensor *grad[3])
{
    wf_attention_attr a;
    wf_call call = {.op = &wf_op_attention_part_grad,
                    .n_in = 7,
                    .in = {all->q, all->k, all->v, all->y, all->lse, all->dy, own},
                    .n_out = 3,
                    .attr = &a,
                    .attr_size = sizeof a};

    if (own)
        a = attr_of(own->ctx, options, time);
    if (options->first)
        call.in[call.n_in++] = options->first;
    if (own)
        wf_dispatch(&call);
    for (int i = 0; i < 3; i++)
        grad[i] = call.out[i];
}

static bool is_gradient(const wf_call *call)
{
    return call->n_out > 2;
}

/* Writes the signature: `first` may be missing. */
static const char *write_signature(const wf_call *call, char *text)
{
    (void)text;
    if (is_gradient(call))
        return call->n_in > 7 ? "bt!hd!,bt!gd!,bt!gd!,bt!hd!,bt!h,bt!hd!,bshd!,bt!->"
                                "bshd!,bsgd!,bsgd!"
                              : "bt!hd!,bt!gd!,bt!gd!,bt!hd!,bt!h,bt!hd!,bshd!->"
                                "bshd!,bsgd!,bsgd!";
    return call->n_in > 3 ? "bshd!,bt!gd!,bt!gd!,bt!->bshd!,bsh"
                          : "bshd!,bt!gd!,bt!gd!->bshd!,bsh";
}

static const char *write_sinks_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 4 ? "bshd!,bt!gd!,bt!gd!,h,bt!->bshd!,bsh"
                          : "bshd!,bt!gd!,bt!gd!,h->bshd!,bsh";
}

/* Outputs are as the signature says; tokens are those of all, and heads of groups. */
static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *own = wf_attention_own(call), *k = call->in[1];
    const wf_tensor *like = is_gradient(call) && out > 0 ? k : own;

    if (k->dim[2].size < 1 || own->dim[2].size % k->dim[2].size != 0)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " query heads can't share %" PRId64
                       " key-value heads alike; make the first a multiple of the second",
                       call->op->name, own->dim[2].size, k->dim[2].size);
    if (own->dim[1].size != k->dim[1].size)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " tokens over the keys of %" PRId64
                       ": give it those of the same sequences",
                       call->op->name, own->dim[1].size, k->dim[1].size);
    *ndim = !is_gradient(call) && out == 1 ? 3 : 4;
    for (int d = 0; d < *ndim; d++)
        dims[d] = d == 1 ? own->dim[1] : like->dim[d];
    return WF_OK;
}

/* Returns the pairs whose key is among the first n of a causal sequence of `all`. */
static double first_keys(double n, double all, double window)
{
    double whole = window < 0 ? floor(n / -window) : 0, left = n + whole * window;
    double chunk = all + whole * window;

    if (window >= 0)
        return wf_attention_pairs(all, window) - wf_attention_pairs(all - n, window);
    chunk = chunk < -window ? chunk : -window;
    return wf_attention_pairs(n - left, window) + left * (chunk - left / 2);
}

/* Returns the pairs of n tokens of a causal sequence from `before` on. */
static double own_pairs(double before, double n, double window)
{
    double first = window < 0 ? fmin(n, -window - fmod(before, -window)) : 0;

    return first * first / 2 + wf_attention_pairs(n - first, window);
}

wf_attention_part_pairs wf_attention_pairs_of(double all, double before, double n,
                                              double window)
{
    wf_attention_part_pairs p = {
        wf_attention_pairs(before + n, window) - wf_attention_pairs(before, window),
        first_keys(before + n, all, window) - first_keys(before, all, window), 0};

    p.both = p.queries + p.keys - own_pairs(before, n, window);
    return p;
}

static wf_attention_part_pairs pairs_of(const wf_call *call)
{
    const wf_attention_attr *a = call->attr;
    const wf_tensor *own = wf_attention_own(call);
    double n = (double)own->local[1], all = (double)own->dim[1].size;

    if (a->bidirectional)
        return (wf_attention_part_pairs){n * all, n * all, 2 * n * all - n * n};
    return wf_attention_pairs_of(all, (double)own->start[1], n, (double)a->window);
}

/* Two products over the pairs of the part's queries. */
static double forward_flops(const wf_call *call)
{
    const wf_tensor *q = call->in[0];

    return 4 * pairs_of(call).queries * (double)(q->local[0] * q->local[2] * q->local[3]);
}

/* Scores and their gradients of all pairs, one product for dq, two for dk and dv. */
static double grad_flops(const wf_call *call)
{
    const wf_tensor *q = call->in[0];
    wf_attention_part_pairs p = pairs_of(call);

    return 2 * (2 * p.both + p.queries + 2 * p.keys) *
           (double)(q->local[0] * q->local[2] * q->local[3]);
}

/* Four products, each of the pairs of one rank. */
static double grad_model_flops(const wf_call *call)
{
    const wf_tensor *q = call->in[0];
    wf_attention_part_pairs p = pairs_of(call);

    return 2 * (2 * p.queries + 2 * p.keys) * (double)(q->local[0] * q->local[2] * q->local[3]);
}

#define FORWARD                                                                                \
    .keep_fp32 = 1 << 1,                                                                       \
    .reference = {.run = wf_attention_reference,                                               \
                  .workspace = wf_attention_reference_workspace},                              \
    .shape = shape, .flops = forward_flops

const wf_op wf_op_attention_part = {
    WF_OP_ROW(attention_part), .write_signature = write_signature, .integers = 1 << 3, FORWARD};
const wf_op wf_op_attention_part_sinks = {WF_OP_ROW(attention_part_sinks),
                                          .write_signature = write_sinks_signature,
                                          .integers = 1 << 4, FORWARD};
const wf_op wf_op_attention_part_grad = {WF_OP_ROW(attention_part_grad),
                                         .write_signature = write_signature,
                                         .integers = 1 << 7,
                                         .shapes = 1 << 6,
                                         .reference = {.run = wf_attention_reference_grad},
                                         .shape = shape,
                                         .flops = grad_flops,
                                         .model_flops = grad_model_flops};
