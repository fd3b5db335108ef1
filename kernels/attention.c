/*
 * kernels/attention.c - scaled dot-product attention (Vaswani et al. 2017) of query heads in
 * groups that share keys and values (Ainslie et al. 2023), causal (j <= i) or bidirectional:
 *
 *     s[i, j] = q_i . k_j / sqrt(dim);  lse_i = log sum_j exp(s[i, j])
 *     y_i     = sum_j keep[i, j] exp(s[i, j] - lse_i) v_j
 *
 * keep is 1, or under dropout 0 with its probability and 1 / (1 - dropout) else: word i *
 * tokens + j of the head's Philox stream decides. lse is an output because the gradient reads
 * it. On a mesh k and v may be whole where the heads are split: group = global head / (heads /
 * groups). In attention_from token i sees first[i] <= j <= i, with a window i - window < j <=
 * i. The CPU's kernels are in kernels/cpu/attention.c.
 */
#include "core/numerics/math.h"
#include "core/numerics/random.h"
#include "kernels/attention_internal.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>
#include <math.h>

wf_tensor *wf_attention(wf_tensor *q, wf_tensor *k, wf_tensor *v,
                        const wf_attention_options *options)
{
    const wf_attention_options o = options ? *options : (wf_attention_options){.causal = false};
    wf_attention_attr a = {.bidirectional = !o.causal, .window = (int32_t)o.window};
    wf_call call = {.op = o.first ? &wf_op_attention_from : &wf_op_attention,
                    .n_in = o.first ? 4 : 3,
                    .in = {q, k, v, o.first},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};

    if (!q)
        return NULL;
    if (!(o.dropout >= 0 && o.dropout < 1) || o.site < 0) {
        wf_fail(q->ctx, WF_EINVAL,
                "attention: dropout %g at site %d; the probability must be in [0, 1) and the "
                "site not negative",
                (double)o.dropout, o.site);
        return NULL;
    }
    if (o.window < 0 || o.window > INT32_MAX) {
        wf_fail(q->ctx, WF_EINVAL,
                "attention: a window of %" PRId64 " tokens; it must be at least 1 and below "
                "2^31, or 0 for none",
                o.window);
        return NULL;
    }
    if ((o.first || o.window) && !o.causal) {
        wf_fail(
            q->ctx, WF_EINVAL,
            "attention: tokens that see all others have no first one that they see; make it "
            "causal, or leave `%s` out",
            o.first ? "first" : "window");
        return NULL;
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

/* Outputs are as the signature says: here the heads are held against the groups, for every
   caller of these ops and on every device. */
static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *q = call->in[0], *k = call->in[1];
    bool gradient = call->op == &wf_op_attention_grad || call->op == &wf_op_attention_from_grad;
    const wf_tensor *like = call->in[gradient ? out : 0];
    bool is_lse = !gradient && out == 1;

    if (k->dim[2].size < 1 || q->dim[2].size % k->dim[2].size != 0)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " query heads can't share %" PRId64
                       " key-value heads alike; make the first a multiple of the second",
                       call->op->name, q->dim[2].size, k->dim[2].size);
    *ndim = is_lse ? like->ndim - 1 : like->ndim;
    for (int d = 0; d < *ndim; d++)
        dims[d] = like->dim[d];
    return WF_OK;
}

static void backward(wf_gradient *g)
{
    bool from = g->n_in > 3;
    wf_call call = {.op = from ? &wf_op_attention_from_grad : &wf_op_attention_grad,
                    .ctx = g->ctx,
                    .n_in = from ? 7 : 6,
                    .in = {g->in[0], g->in[1], g->in[2], g->out[0], g->out[1], g->dout[0],
                           from ? g->in[3] : NULL},
                    .n_out = 3,
                    .attr = g->attr,
                    .attr_size = sizeof(wf_attention_attr)};

    if (!g->dout[0])
        return;
    wf_dispatch(&call);
    for (int i = 0; i < 3; i++)
        g->din[i] = call.out[i];
}

/* Local head `head` of local sequence b, for the reference loops. Rows of q, out and their
   gradients are q_row apart, those of k, v and theirs k_row. */
typedef struct head_view {
    int64_t tokens, dim, q_row, k_row;
    bool bidirectional;
    int64_t q_at, k_at, lse_at, heads; /* offsets of token 0; lse's rows are `heads` apart */
    double scale, dropout;
    const int32_t *first; /* [tokens], or NULL */
    int64_t window;
    uint64_t key;
    uint32_t counter[3];
} head_view;

static head_view view(const wf_call *call, int64_t b, int64_t head)
{
    const wf_attention_attr *a = call->attr;
    const wf_tensor *q = call->in[0], *k = call->in[1];
    int64_t global = q->start[2] + head;
    int64_t group = global / (q->dim[2].size / k->dim[2].size) - k->start[2];
    head_view h = {.tokens = q->local[1],
                   .dim = q->local[3],
                   .q_row = q->local[2] * q->local[3],
                   .k_row = k->local[2] * k->local[3],
                   .heads = q->local[2],
                   .key = a->key,
                   .bidirectional = a->bidirectional,
                   .window = a->window,
                   .dropout = (double)a->dropout};
    const wf_tensor *first = wf_attention_first(call);

    h.first = first ? (const int32_t *)first->data + b * h.tokens : NULL;
    h.q_at = b * h.tokens * h.q_row + head * h.dim;
    h.k_at = b * h.tokens * h.k_row + group * h.dim;
    h.lse_at = b * h.tokens * h.heads + head;
    h.scale = 1 / sqrt((double)h.dim);
    wf_attention_counter(a, global, q->start[0] + b, h.counter);
    return h;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double keep(const head_view *h, int64_t i, int64_t j)
{
    uint64_t word = (uint64_t)(i * h->tokens + j);
    uint32_t out[4] = {(uint32_t)(word / 4), h->counter[0], h->counter[1], h->counter[2]};

    if (h->dropout == 0)
        return 1;
    wf_philox(out, h->key, out);
    return out[word % 4] >= (uint32_t)(h->dropout * 0x1p32) ? 1 / (1 - h->dropout) : 0;
}

/* Query i sees the keys from the first on, and before the second. */
static int64_t keys_begin(const head_view *h, int64_t i)
{
    return h->bidirectional ? 0 : wf_attention_from(h->first, h->window, i);
}

static int64_t keys_end(const head_view *h, int64_t i)
{
    return h->bidirectional ? h->tokens : i + 1;
}

static void reference_head(const wf_call *call, const head_view *h, double *score)
{
    const double *q = (const double *)call->in[0]->data + h->q_at;
    const double *k = (const double *)call->in[1]->data + h->k_at;
    const double *v = (const double *)call->in[2]->data + h->k_at;
    double *y = (double *)call->out[0]->data + h->q_at;
    double *lse = (double *)call->out[1]->data + h->lse_at;

    for (int64_t i = 0; i < h->tokens; i++) {
        double max = -INFINITY, sum = 0;

        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            score[j] = dot(q + i * h->q_row, k + j * h->k_row, h->dim) * h->scale;
            max = score[j] > max ? score[j] : max;
        }
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++)
            sum += wf_expd(score[j] - max);
        lse[i * h->heads] = max + wf_logd(sum);
        for (int64_t d = 0; d < h->dim; d++)
            y[i * h->q_row + d] = 0;
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            double p = keep(h, i, j) * wf_expd(score[j] - lse[i * h->heads]);

            for (int64_t d = 0; d < h->dim; d++)
                y[i * h->q_row + d] += p * v[j * h->k_row + d];
        }
    }
}

static size_t reference_workspace(const wf_call *call)
{
    return (size_t)call->in[0]->local[1] * sizeof(double);
}

static wf_status reference(const wf_call *call, void *workspace)
{
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        for (int64_t head = 0; head < call->in[0]->local[2]; head++) {
            head_view h = view(call, b, head);

            reference_head(call, &h, workspace);
        }
    return WF_OK;
}

/* With p = exp(s - lse), g = keep (v_j . dy_i) and ds = p (g - y_i . dy_i): dv_j += keep p
   dy_i, dk_j += ds q_i / sqrt(dim), dq_i += ds k_j / sqrt(dim). */
static void reference_head_grad(const wf_call *call, const head_view *h)
{
    const double *q = (const double *)call->in[0]->data + h->q_at;
    const double *k = (const double *)call->in[1]->data + h->k_at;
    const double *v = (const double *)call->in[2]->data + h->k_at;
    const double *y = (const double *)call->in[3]->data + h->q_at;
    const double *lse = (const double *)call->in[4]->data + h->lse_at;
    const double *dy = (const double *)call->in[5]->data + h->q_at;
    double *dq = (double *)call->out[0]->data + h->q_at;
    double *dk = (double *)call->out[1]->data + h->k_at;
    double *dv = (double *)call->out[2]->data + h->k_at;

    for (int64_t i = 0; i < h->tokens; i++)
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            int64_t qi = i * h->q_row, kj = j * h->k_row;
            double p = wf_expd(dot(q + qi, k + kj, h->dim) * h->scale - lse[i * h->heads]);
            double kept = keep(h, i, j), g = kept * dot(v + kj, dy + qi, h->dim);
            double ds = p * (g - dot(y + qi, dy + qi, h->dim)) * h->scale;

            for (int64_t d = 0; d < h->dim; d++) {
                dq[qi + d] += ds * k[kj + d];
                dk[kj + d] += ds * q[qi + d];
                dv[kj + d] += kept * p * dy[qi + d];
            }
        }
}

static wf_status reference_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    for (int o = 0; o < 3; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[o]); i++)
            ((double *)call->out[o]->data)[i] = 0;
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        for (int64_t head = 0; head < call->in[0]->local[2]; head++) {
            head_view h = view(call, b, head);

            reference_head_grad(call, &h);
        }
    return WF_OK;
}

/* Two products over the scores, the causal half of them, or what a window leaves of that;
   backward makes five, of which the scores are one that forward had made. */
static double product_flops(const wf_call *call, int products)
{
    const wf_attention_attr *a = call->attr;
    const wf_tensor *q = call->in[0];
    double tokens = (double)q->local[1], window = (double)a->window;
    double keys = a->bidirectional                ? 2 * tokens
                  : window > 0 && window < tokens ? window * (2 - window / tokens)
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

#define FORWARD                                                                                \
    .keep_fp32 = 1 << 1, .reference = {.run = reference, .workspace = reference_workspace},    \
    .backward = backward, .shape = shape, .flops = forward_flops
#define GRADIENT                                                                               \
    .reference = {.run = reference_grad}, .shape = shape, .flops = grad_flops, .repeats = .2

enum {
    SAVED = WF_SAVE_IN(0) | WF_SAVE_IN(1) | WF_SAVE_IN(2) | WF_SAVE_OUT(0) | WF_SAVE_OUT(1)
};

const wf_op wf_op_attention = {WF_OP_ROW(attention), .save = SAVED, FORWARD};
const wf_op wf_op_attention_grad = {WF_OP_ROW(attention_grad), GRADIENT};
const wf_op wf_op_attention_from = {WF_OP_ROW(attention_from), .integers = 1 << 3,
                                    .save = SAVED | WF_SAVE_IN(3), FORWARD};
const wf_op wf_op_attention_from_grad = {WF_OP_ROW(attention_from_grad), .integers = 1 << 6,
                                         GRADIENT};
