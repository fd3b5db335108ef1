/* kernels/attention_reference.c - the reference loops of attention, in double
   (kernels/attention.c). */
#include "core/numerics/math.h"
#include "core/numerics/random.h"
#include "kernels/attention_internal.h"
#include <math.h>

/* Local head `head` of local sequence b, for the reference loops. Rows of q, out and their
   gradients are q_row apart, those of k, v and theirs k_row. */
typedef struct head_view {
    int64_t tokens, keys, dim, q_row, k_row;
    bool bidirectional;
    int64_t q_at, k_at, lse_at, heads; /* offsets of token 0; lse's rows are `heads` apart */
    int64_t own, own_end;              /* the tokens of which there are rows of results */
    int64_t own_q_at, own_k_at;        /* offsets of the first of them in results */
    double scale, dropout, cap;
    const int32_t *first; /* [tokens], or NULL */
    const double *mask;   /* [keys], or NULL */
    const double *bias;   /* [tokens][keys], or NULL; its gradient alike */
    double *dbias;
    const double *sink; /* one, or NULL */
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
                   .keys = k->local[1],
                   .dim = q->local[3],
                   .q_row = q->local[2] * q->local[3],
                   .k_row = k->local[2] * k->local[3],
                   .heads = q->local[2],
                   .key = a->key,
                   .bidirectional = a->bidirectional,
                   .window = a->window,
                   .dropout = (double)a->dropout,
                   .cap = (double)a->cap};
    const wf_tensor *first = wf_attention_first(call), *mask = wf_attention_mask(call);
    const wf_tensor *bias = wf_attention_bias(call), *dbias = wf_attention_dbias(call);
    const wf_tensor *own = wf_attention_own(call), *sinks = wf_attention_sinks(call);
    int64_t scores = h.tokens * h.keys;

    h.first = first ? (const int32_t *)first->data + b * first->local[1] : NULL;
    h.own_end = h.tokens > h.keys ? h.tokens : h.keys;
    h.mask = mask ? (const double *)mask->data + b * h.keys : NULL;
    if (bias)
        h.bias = (const double *)bias->data + wf_attention_bias_matrix(bias, b, head) * scores;
    if (dbias)
        h.dbias = (double *)dbias->data + (b * h.heads + head) * scores;
    h.sink = sinks ? (const double *)sinks->data + head : NULL;
    h.q_at = b * h.tokens * h.q_row + head * h.dim;
    h.k_at = b * h.keys * h.k_row + group * h.dim;
    h.lse_at = b * h.tokens * h.heads + head;
    h.own_q_at = h.q_at;
    h.own_k_at = h.k_at;
    if (own) {
        h.own = own->start[1];
        h.own_end = own->start[1] + own->local[1];
        h.own_q_at = b * own->local[1] * h.q_row + head * h.dim;
        h.own_k_at = b * own->local[1] * h.k_row + group * h.dim;
    }
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
    uint64_t word = (uint64_t)(i * h->keys + j);
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
    return h->bidirectional ? h->keys : i + 1;
}

/* Returns the score of query i and key j; -infinity where the mask takes the key. */
static double score_of(const head_view *h, const double *q, const double *k, int64_t i,
                       int64_t j)
{
    double bias = h->bias ? h->bias[i * h->keys + j] : 0;

    if (h->mask && h->mask[j] == 0)
        return -INFINITY;
    return wf_attention_capped(dot(q + i * h->q_row, k + j * h->k_row, h->dim) * h->scale,
                               h->cap) +
           bias;
}

/* Rows of queries begin with the first own one here. */
static void reference_head(const wf_call *call, const head_view *h, double *score)
{
    const double *q = (const double *)call->in[0]->data + h->q_at - h->own * h->q_row;
    const double *k = (const double *)call->in[1]->data + h->k_at;
    const double *v = (const double *)call->in[2]->data + h->k_at;
    double *y = (double *)call->out[0]->data + h->q_at - h->own * h->q_row;
    double *lse = (double *)call->out[1]->data + h->lse_at - h->own * h->heads;

    for (int64_t i = h->own; i < h->own + h->tokens; i++) {
        double max = h->sink ? *h->sink : -INFINITY, sum;

        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            score[j] = score_of(h, q, k, i, j);
            max = score[j] > max ? score[j] : max;
        }
        sum = h->sink ? wf_expd(*h->sink - max) : 0;
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++)
            sum += max > -INFINITY ? wf_expd(score[j] - max) : 0;
        lse[i * h->heads] = sum > 0 ? max + wf_logd(sum) : sum;
        for (int64_t d = 0; d < h->dim; d++)
            y[i * h->q_row + d] = 0;
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            double p = keep(h, i, j) * wf_expd(score[j] - lse[i * h->heads]);

            for (int64_t d = 0; d < h->dim; d++)
                y[i * h->q_row + d] += p * v[j * h->k_row + d];
        }
    }
}

size_t wf_attention_reference_workspace(const wf_call *call)
{
    return (size_t)call->in[1]->local[1] * sizeof(double);
}

wf_status wf_attention_reference(const wf_call *call, void *workspace)
{
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        for (int64_t head = 0; head < call->in[0]->local[2]; head++) {
            head_view h = view(call, b, head);

            reference_head(call, &h, workspace);
        }
    return WF_OK;
}

/* With p = exp(s - lse), g = keep (v_j . dy_i) and ds = p (g - y_i . dy_i): dv_j += keep p
   dy_i, dk_j += ds q_i / sqrt(dim), dq_i += ds k_j / sqrt(dim). A query that sees no key has y,
   lse and p of 0. */
static void reference_head_grad(const wf_call *call, const head_view *h)
{
    const double *q = (const double *)call->in[0]->data + h->q_at;
    const double *k = (const double *)call->in[1]->data + h->k_at;
    const double *v = (const double *)call->in[2]->data + h->k_at;
    const double *y = (const double *)call->in[3]->data + h->q_at;
    const double *lse = (const double *)call->in[4]->data + h->lse_at;
    const double *dy = (const double *)call->in[5]->data + h->q_at;
    double *dq = (double *)call->out[0]->data + h->own_q_at - h->own * h->q_row;
    double *dk = (double *)call->out[1]->data + h->own_k_at - h->own * h->k_row;
    double *dv = (double *)call->out[2]->data + h->own_k_at - h->own * h->k_row;

    for (int64_t i = 0; i < h->tokens; i++)
        for (int64_t j = keys_begin(h, i); j < keys_end(h, i); j++) {
            bool own_i = i >= h->own && i < h->own_end, own_j = j >= h->own && j < h->own_end;
            int64_t qi = i * h->q_row, kj = j * h->k_row;
            double score = score_of(h, q, k, i, j), p = wf_expd(score - lse[i * h->heads]);
            double kept = keep(h, i, j), g = kept * dot(v + kj, dy + qi, h->dim);
            double ds = p * (g - dot(y + qi, dy + qi, h->dim));

            if (h->cap > 0 && isfinite(score))
                ds *= 1 - score / h->cap * (score / h->cap);
            if (h->dbias)
                h->dbias[i * h->keys + j] = ds;
            ds *= h->scale;
            for (int64_t d = 0; own_i && d < h->dim; d++)
                dq[qi + d] += ds * k[kj + d];
            for (int64_t d = 0; own_j && d < h->dim; d++) {
                dk[kj + d] += ds * q[qi + d];
                dv[kj + d] += kept * p * dy[qi + d];
            }
        }
}

wf_status wf_attention_reference_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    for (int o = 0; o < call->n_out; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[o]); i++)
            ((double *)call->out[o]->data)[i] = 0;
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        for (int64_t head = 0; head < call->in[0]->local[2]; head++) {
            head_view h = view(call, b, head);

            reference_head_grad(call, &h);
        }
    return WF_OK;
}

wf_status wf_attention_sinks_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *y = call->in[0];
    const double *out = y->data, *dy = call->in[1]->data, *lse = call->in[2]->data;
    const double *sink = call->in[3]->data;
    int64_t heads = y->local[2], dim = y->local[3], rows = y->local[0] * y->local[1] * heads;

    (void)workspace;
    for (int64_t r = 0; r < rows; r++)
        ((double *)call->out[0]->data)[r] =
            -wf_expd(sink[r % heads] - lse[r]) * dot(out + r * dim, dy + r * dim, dim);
    return WF_OK;
}
