/*
 * kernels/dropout.c - y = keep ? x / (1 - p) : 0. The word of Philox that decides about an
 * element is a function of (seed, site, step, global sequence, index inside the whole sequence)
 * alone.
 */
#include "core/random.h"
#include "kernels/shared.h"

wf_tensor *wf_dropout(wf_tensor *x, float p, int site)
{
    wf_dropout_attr attr = {.p = p, .site = site};

    if (!x)
        return NULL;
    if (!(p >= 0 && p < 1)) {
        wf_fail(x->ctx, WF_EINVAL, "dropout: the probability must be in [0, 1), not %g",
                (double)p);
        return NULL;
    }
    if (p == 0 || !wf_context_is_training(x->ctx))
        return x;
    attr.step = wf_context_step(x->ctx);
    attr.first_sequence = wf_context_first_sequence(x->ctx);
    attr.key = wf_random_key(wf_context_seed(x->ctx), WF_RANDOM_DROPOUT);
    return wf_apply(&wf_op_dropout, &attr, sizeof attr, 1, x);
}

static void backward(wf_gradient *g)
{
    g->din[0] = wf_apply(&wf_op_dropout, g->attr, sizeof(wf_dropout_attr), 1, g->dout[0]);
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const wf_dropout_attr *attr = call->attr;
    const wf_tensor *t = call->in[0];
    const double *x = t->data;
    double *y = call->out[0]->data;
    double scale = 1 / (1 - (double)attr->p);
    uint32_t limit = (uint32_t)((double)attr->p * 0x1p32);
    int64_t n = wf_tensor_local_count(t), per_sequence = wf_extent(t, 1, t->ndim);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        int64_t run, at = wf_global_index(t, 1, i % per_sequence, &run);
        uint32_t word[4] = {(uint32_t)(at / 4), (uint32_t)attr->site, (uint32_t)attr->step,
                            (uint32_t)(attr->first_sequence + i / per_sequence)};

        wf_philox(word, attr->key, word);
        y[i] = word[at % 4] >= limit ? x[i] * scale : 0;
    }
    return WF_OK;
}

const wf_op wf_op_dropout = {WF_OP_ROW(dropout), .reference = {.run = reference},
                             .backward = backward, .cpu = &wf_cpu_dropout};
