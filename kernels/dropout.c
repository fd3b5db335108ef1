/*
 * kernels/dropout.c - y = keep ? x / (1 - p) : 0, alone and added to something. The word of
 * Philox that decides about an element is a function of (seed, site, step, global sequence,
 * index inside the whole sequence) alone, so no mask is stored.
 */
#include "core/numerics/random.h"
#include "kernels/attention_internal.h"
#include "kernels/shared_internal.h"

/* Returns the key of a site. The first sites have one, the next ones another: a counter has
   room for no more numbers beside attention's heads, and a mask of any site is its own. */
uint64_t wf_dropout_key(const wf_context *ctx, int site, int *counted)
{
    uint64_t key = wf_random_key(wf_context_seed(ctx), WF_RANDOM_DROPOUT);
    uint32_t further = (uint32_t)site >> WF_ATTENTION_SITE_BITS;

    *counted = site & ((1 << WF_ATTENTION_SITE_BITS) - 1);
    return further ? wf_random_key(key, further) : key;
}

wf_status wf_dropout_here(wf_context *ctx, const char *op, float p, int site,
                          wf_dropout_attr *attr)
{
    *attr = (wf_dropout_attr){.site = 0};
    if (!(p >= 0 && p < 1))
        return wf_fail(ctx, WF_EINVAL, "%s: the probability must be in [0, 1), not %g", op,
                       (double)p);
    if (p == 0 || !wf_context_is_training(ctx))
        return WF_OK;
    attr->p = p;
    attr->step = wf_context_step(ctx);
    attr->sequences = wf_context_sequences(ctx);
    attr->key = wf_dropout_key(ctx, site, &attr->site);
    return WF_OK;
}

double wf_dropout_factor(const wf_dropout_attr *attr, const wf_tensor *t, int64_t i)
{
    int64_t run, per_sequence = wf_extent(t, 1, t->ndim);
    int64_t at = wf_global_index(t, 1, i % per_sequence, &run);
    uint32_t word[4] = {
        (uint32_t)(at / 4), (uint32_t)attr->site, (uint32_t)attr->step,
        (uint32_t)wf_sequence_of(&attr->sequences, t->start[0] + i / per_sequence)};

    if (attr->p == 0)
        return 1;
    wf_philox(word, attr->key, word);
    return word[at % 4] >= (uint32_t)((double)attr->p * 0x1p32) ? 1 / (1 - (double)attr->p) : 0;
}

wf_tensor *wf_dropout(wf_tensor *x, float p, int site)
{
    wf_dropout_attr attr;

    if (!x || wf_dropout_here(x->ctx, "dropout", p, site, &attr) != WF_OK)
        return NULL;
    return attr.p > 0 ? wf_apply(&wf_op_dropout, &attr, sizeof attr, 1, x) : x;
}

wf_tensor *wf_dropout_add(wf_tensor *x, wf_tensor *y, float p, int site)
{
    wf_dropout_attr attr;

    if (!x || wf_dropout_here(x->ctx, "dropout_add", p, site, &attr) != WF_OK)
        return NULL;
    return attr.p > 0 ? wf_apply(&wf_op_dropout_add, &attr, sizeof attr, 2, x, y)
                      : wf_add(x, y);
}

static void backward(wf_gradient *g)
{
    g->din[0] = wf_apply(&wf_op_dropout, g->attr, sizeof(wf_dropout_attr), 1, g->dout[0]);
}

static void add_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = g->dout[0];
    if (g->want[1])
        g->din[1] = wf_apply(&wf_op_dropout, g->attr, sizeof(wf_dropout_attr), 1, g->dout[0]);
}

static wf_status reference(const wf_call *call, void *workspace)
{
    bool add = call->n_in == 2;
    const wf_tensor *t = call->in[add];
    const double *base = call->in[0]->data, *x = t->data;
    double *y = call->out[0]->data;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(t); i++)
        y[i] = (add ? base[i] : 0) + x[i] * wf_dropout_factor(call->attr, t, i);
    return WF_OK;
}

const wf_op wf_op_dropout = {WF_OP_ROW(dropout), .follows = 1, .reference = {.run = reference},
                             .backward = backward};
const wf_op wf_op_dropout_add = {WF_OP_ROW(dropout_add), .follows = 1,
                                 .reference = {.run = reference}, .backward = add_backward};
