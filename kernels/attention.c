/*
 * kernels/attention.c - scaled dot-product attention (Vaswani et al. 2017) of query heads in
 * groups that share keys and values (Ainslie et al. 2023), causal (j <= i) or bidirectional:
 *
 *     s[i, j] = q_i . k_j / sqrt(dim);  lse_i = log sum_j exp(s[i, j])
 *     y_i     = sum_j keep[i, j] exp(s[i, j] - lse_i) v_j
 *
 * keep is 1, or under dropout 0 with its probability and 1 / (1 - dropout) else: word i *
 * keys + j of the head's Philox stream decides. lse is an output because the gradient reads
 * it. On a mesh k and v may be whole where the heads are split: group = global head / (heads /
 * groups). In attention_from token i sees first[i] <= j <= i, with a window i - window < j <=
 * i, and of its chunk alone where these are given. With a cap c, c * tanh(s / c) replaces s,
 * whose gradient is then multiplied by 1 - tanh(s / c)^2.
 *
 * attention_sinks has a logit z of each query head, its sink, as one more term of the sum:
 *
 *     lse_i = log(exp(z) + sum_j exp(s[i, j]))
 *
 * The gradient of q, k and v is that of attention from this lse and y; that of z is the sum
 * over tokens of attention_sinks_rows, -exp(z - lse_i) (y_i . dy_i).
 *
 * attention_general is every other kind: k and v of another length (cross attention), a mask of
 * keys and a bias,
 *
 *     s[i, j] = q_i . k_j / sqrt(dim) + bias[h, i, j] where mask[j] != 0, else -infinity
 *
 * whose gradient is ds before the factor 1 / sqrt(dim). A query that sees no key has y = 0, and
 * gives no gradient.
 *
 * The reference loops are in kernels/attention_reference.c, the CPU's kernels in
 * kernels/cpu/attention.c.
 */
#include "kernels/attention_internal.h"
#include "kernels/attention_part.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>
#include <string.h>

bool wf_attention_complete(const wf_tensor *q, const wf_tensor *k,
                           const wf_attention_options *o)
{
    bool other = k->ndim == 4 && q->ndim == 4 && q->dim[1].size != k->dim[1].size;

    if (!(o->dropout >= 0 && o->dropout < 1) || o->site < 0)
        wf_fail(q->ctx, WF_EINVAL,
                "attention: dropout %g at site %d; the probability must be in [0, 1) and the "
                "site not negative",
                (double)o->dropout, o->site);
    else if (o->window < 0 || o->window > INT32_MAX)
        wf_fail(q->ctx, WF_EINVAL,
                "attention: a window of %" PRId64 " tokens; it must be at least 1 and below "
                "2^31, or 0 for none",
                o->window);
    else if (o->chunk < 0 || o->chunk > INT32_MAX || (o->chunk && o->window))
        wf_fail(q->ctx, WF_EINVAL,
                "attention: chunks of %" PRId64
                " tokens%s; they have at least 1 and fewer than "
                "2^31, or 0 for none, and no window beside them",
                o->chunk, o->window ? " in a window" : "");
    else if ((o->first || o->window || o->chunk) && !o->causal)
        wf_fail(
            q->ctx, WF_EINVAL,
            "attention: tokens that see all others have no first one that they see; make it "
            "causal, or leave `%s` out",
            o->first    ? "first"
            : o->window ? "window"
                        : "chunk");
    else if (o->causal && other)
        wf_fail(q->ctx, WF_EINVAL,
                "attention: %" PRId64 " tokens are causal over %" PRId64
                " others; leave `causal` out, or say by a mask or a bias of -infinity what "
                "they see",
                q->dim[1].size, k->dim[1].size);
    else if (o->first && (o->mask || o->bias))
        wf_fail(q->ctx, WF_EINVAL,
                "attention: `first` beside a %s; say by a bias of -infinity where the "
                "documents begin, and leave `first` out",
                o->mask ? "mask" : "bias");
    else if (!(o->cap >= 0) || (o->cap > 0 && o->bias))
        wf_fail(q->ctx, WF_EINVAL,
                "attention: a cap of scores of %g%s; it is 0 for none, or above it and without "
                "a bias",
                (double)o->cap, o->bias ? " beside a bias" : "");
    else if (o->sinks && (o->mask || o->bias || other))
        wf_fail(
            q->ctx, WF_EINVAL,
            "attention: `sinks` beside %s; they are of attention to a sequence's own tokens: "
            "leave one of them out",
            o->mask   ? "a mask"
            : o->bias ? "a bias"
                      : "keys of another sequence");
    else if (o->bias && o->bias->ndim != 3 && o->bias->ndim != 4)
        wf_fail(q->ctx, WF_EINVAL,
                "attention: a bias of %d dims; it is [heads, tokens, keys], or [batch, heads, "
                "tokens, keys]",
                o->bias->ndim);
    else
        return true;
    return false;
}

/* Returns true where the row of most options is needed: keys that are no tokens of q's
   sequences, a mask or a bias. */
static bool is_general(const wf_tensor *q, const wf_tensor *k, const wf_attention_options *o)
{
    return o->mask || o->bias ||
           (q->ndim == 4 && k->ndim == 4 && !wf_dim_equal(q->dim[1], k->dim[1]));
}

wf_tensor *wf_attention(wf_tensor *q, wf_tensor *k, wf_tensor *v,
                        const wf_attention_options *options)
{
    const wf_attention_options o = options ? *options : (wf_attention_options){.causal = false};
    wf_attention_attr a = {
        .bidirectional = !o.causal, .window = wf_attention_window(&o), .cap = o.cap};
    wf_call call = {.op = &wf_op_attention,
                    .n_in = 3,
                    .in = {q, k, v},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};

    if (!q || (k && !wf_attention_complete(q, k, &o)))
        return NULL;
    if (o.sinks) {
        call.op = &wf_op_attention_sinks;
        call.in[call.n_in++] = o.sinks;
    } else if (o.first) {
        call.op = &wf_op_attention_from;
    }
    if (o.first) {
        call.in[call.n_in++] = o.first;
    } else if (k && !o.sinks && is_general(q, k, &o)) {
        call.op = &wf_op_attention_general;
        a.masked = o.mask != NULL;
        a.bias_dims = o.bias ? (int8_t)o.bias->ndim : 0;
        if (o.mask)
            call.in[call.n_in++] = o.mask;
        if (o.bias)
            call.in[call.n_in++] = o.bias;
    }
    if (wf_context_is_training(q->ctx)) {
        a.dropout = o.dropout;
        a.step = wf_context_step(q->ctx);
        a.sequences = wf_context_sequences(q->ctx);
        a.key = wf_dropout_key(q->ctx, o.site, &a.site);
    }
    wf_dispatch(&call);
    return call.out[0];
}

/* The signatures of attention_general and its gradient, by the bias's dims and the mask. */
enum { BIASES = 3 }; /* none, [h, s, t], [b, h, s, t] */
#define GENERAL(mask, bias) "bs!hd!,bt!gd!,bt!gd!" mask bias "->bs!hd!,bs!h"
#define GENERAL_GRAD(mask, bias, dbias)                                                        \
    "bs!hd!,bt!gd!,bt!gd!,bs!hd!,bs!h,bs!hd!" mask bias "->bs!hd!,bt!gd!,bt!gd!" dbias
#define MASK   ",bt!"
#define SHARED ",hs!t!"
#define BIAS   ",bhs!t!"

static int bias_row(const wf_attention_attr *a)
{
    return a->bias_dims ? a->bias_dims - 2 : 0;
}

static const char *general_signature(const wf_call *call, char *text)
{
    static const char *const rows[2][BIASES] = {
        {GENERAL("", ""), GENERAL("", SHARED), GENERAL("", BIAS)},
        {GENERAL(MASK, ""), GENERAL(MASK, SHARED), GENERAL(MASK, BIAS)}};
    const wf_attention_attr *a = call->attr;

    (void)text;
    return rows[a->masked][bias_row(a)];
}

static const char *general_grad_signature(const wf_call *call, char *text)
{
    static const char *const rows[2][BIASES] = {
        {GENERAL_GRAD("", "", ""), GENERAL_GRAD("", SHARED, ""), GENERAL_GRAD("", BIAS, "")},
        {GENERAL_GRAD(MASK, "", ""), GENERAL_GRAD(MASK, SHARED, ""),
         GENERAL_GRAD(MASK, BIAS, "")}};
    static const char *const with_bias[2][BIASES] = {
        {NULL, GENERAL_GRAD("", SHARED, BIAS), GENERAL_GRAD("", BIAS, BIAS)},
        {NULL, GENERAL_GRAD(MASK, SHARED, BIAS), GENERAL_GRAD(MASK, BIAS, BIAS)}};
    const wf_attention_attr *a = call->attr;

    (void)text;
    return (call->n_out > 3 ? with_bias : rows)[a->masked][bias_row(a)];
}

/* Writes the signature of attention_sinks: `first` may be missing. */
static const char *sinks_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 4 ? "bs!hd!,bs!gd!,bs!gd!,h,bs!->bs!hd!,bs!h"
                          : "bs!hd!,bs!gd!,bs!gd!,h->bs!hd!,bs!h";
}

static bool is_gradient(const wf_call *call)
{
    return call->n_out > 2;
}

/* Outputs are as the signature says: here the heads are held against the groups, for every
   caller of these ops and on every device. */
static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *q = call->in[0], *k = call->in[1];
    const wf_attention_attr *a = call->attr;
    const wf_tensor *like = call->in[is_gradient(call) ? out : 0];
    bool is_lse = !is_gradient(call) && out == 1;

    if (k->dim[2].size < 1 || q->dim[2].size % k->dim[2].size != 0)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " query heads can't share %" PRId64
                       " key-value heads alike; make the first a multiple of the second",
                       call->op->name, q->dim[2].size, k->dim[2].size);
    if (!a->bidirectional && q->dim[1].size != k->dim[1].size)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " tokens are causal over %" PRId64
                       " others; make it bidirectional",
                       call->op->name, q->dim[1].size, k->dim[1].size);
    if (out == 3) { /* the bias's gradient, of each sequence */
        *ndim = 4;
        memcpy(dims, (wf_dim[]){q->dim[0], q->dim[2], q->dim[1], k->dim[1]}, 4 * sizeof *dims);
        return WF_OK;
    }
    *ndim = is_lse ? like->ndim - 1 : like->ndim;
    for (int d = 0; d < *ndim; d++)
        dims[d] = like->dim[d];
    return WF_OK;
}

/* Fills in the gradient's row, whose operands after the first six are those of forward from
   `more` on. */
static void backward_of(wf_gradient *g, const wf_op *op, int more)
{
    const wf_attention_attr *a = g->attr;
    wf_call call = {.op = op,
                    .ctx = g->ctx,
                    .n_in = 6,
                    .in = {g->in[0], g->in[1], g->in[2], g->out[0], g->out[1], g->dout[0]},
                    .n_out = 3,
                    .attr = g->attr,
                    .attr_size = sizeof(wf_attention_attr)};
    int bias = a->bias_dims ? g->n_in - 1 : 0;

    if (!g->dout[0])
        return;
    for (int i = more; i < g->n_in; i++)
        call.in[call.n_in++] = g->in[i];
    call.n_out += bias && g->want[bias];
    wf_dispatch(&call);
    for (int i = 0; i < 3; i++)
        g->din[i] = call.out[i];
    if (call.n_out > 3)
        g->din[bias] = a->bias_dims == 3 ? wf_batch_sum(call.out[3]) : call.out[3];
}

static void backward(wf_gradient *g)
{
    backward_of(g, g->n_in > 3 ? &wf_op_attention_from_grad : &wf_op_attention_grad, 3);
}

wf_tensor *wf_attention_sinks_grad(wf_tensor *y, wf_tensor *dy, wf_tensor *lse,
                                   wf_tensor *sinks)
{
    return wf_bias_grad(wf_apply(&wf_op_attention_sinks_rows, NULL, 0, 4, y, dy, lse, sinks));
}

static void sinks_backward(wf_gradient *g)
{
    enum { SINKS = 3 };

    backward_of(g, g->n_in > 4 ? &wf_op_attention_from_grad : &wf_op_attention_grad, 4);
    if (g->dout[0] && g->want[SINKS])
        g->din[SINKS] = wf_vector_gradient(
            g, SINKS, wf_attention_sinks_grad(g->out[0], g->dout[0], g->out[1], g->in[SINKS]));
}

static void general_backward(wf_gradient *g)
{
    backward_of(g, &wf_op_attention_general_grad, 3);
}

/* Counts two products over the scores, the causal half of them, or what a window leaves of
   that; backward makes five, of which the scores are one that forward had made. */
static double product_flops(const wf_call *call, int products)
{
    const wf_attention_attr *a = call->attr;
    const wf_tensor *q = call->in[0];
    double tokens = (double)q->local[1], window = (double)a->window;
    double keys = a->bidirectional                ? 2 * (double)call->in[1]->local[1]
                  : window > 0 && window < tokens ? window * (2 - window / tokens)
                  : window < 0 && tokens > 0 ? 2 * wf_attention_pairs(tokens, window) / tokens
                                             : tokens;

    return products * (double)wf_tensor_local_count(q) * keys;
}

static double forward_flops(const wf_call *call)
{
    return product_flops(call, 2);
}

static double grad_flops(const wf_call *call)
{
    return product_flops(call, 5);
}

static double grad_model_flops(const wf_call *call)
{
    return product_flops(call, 4);
}

#define FORWARD                                                                                \
    .keep_fp32 = 1 << 1,                                                                       \
    .reference = {.run = wf_attention_reference,                                               \
                  .workspace = wf_attention_reference_workspace},                              \
    .shape = shape, .flops = forward_flops
#define GRADIENT                                                                               \
    .reference = {.run = wf_attention_reference_grad}, .shape = shape, .flops = grad_flops,    \
    .model_flops = grad_model_flops

enum {
    SAVED = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_IN(2) | WF_SAVE_OUT(0) | WF_SAVE_OUT(1)
};

const wf_op wf_op_attention = {WF_OP_ROW(attention), .save = SAVED, FORWARD,
                               .backward = backward};
const wf_op wf_op_attention_grad = {WF_OP_ROW(attention_grad), GRADIENT};
const wf_op wf_op_attention_from = {WF_OP_ROW(attention_from), .integers = 1 << 3,
                                    .save = SAVED | WF_SAVE_IN(3), FORWARD,
                                    .backward = backward};
const wf_op wf_op_attention_from_grad = {WF_OP_ROW(attention_from_grad), .integers = 1 << 6,
                                         GRADIENT};
const wf_op wf_op_attention_sinks = {WF_OP_ROW(attention_sinks),
                                     .write_signature = sinks_signature,
                                     .integers = 1 << 4,
                                     .save = SAVED | WF_SAVE_IN(3) | WF_SAVE_IN(4),
                                     FORWARD,
                                     .backward = sinks_backward};
const wf_op wf_op_attention_sinks_rows = {WF_OP_ROW(attention_sinks_rows), .keep_fp32 = 1,
                                          .reference = {.run = wf_attention_sinks_reference}};
const wf_op wf_op_attention_general = {
    WF_OP_ROW(attention_general), .write_signature = general_signature,
    .save = SAVED | WF_SAVE_IN(3) | WF_SAVE_IN(4), FORWARD, .backward = general_backward};
/* The gradient of a bias is a parameter's, or becomes one. */
const wf_op wf_op_attention_general_grad = {WF_OP_ROW(attention_general_grad),
                                            .write_signature = general_grad_signature,
                                            .keep_fp32 = 1 << 3, GRADIENT};
