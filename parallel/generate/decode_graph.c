/*
 * parallel/generate/decode_graph.c - decode steps as graphs of the device (core/graph.h): all
 * ops of a token are one launch, which reads token ids, positions and slots from tensors that
 * are written before it.
 *
 * There is one graph, of the number of texts that steps have: while prompts wait for slots it
 * is the number of slots, and at the end, where texts are fewer step by step, a graph for each
 * would keep its memory for nothing.
 */
#include "parallel/generate/engine_internal.h"

void wf_gen_decode_forget(wf_gen_engine *e)
{
    wf_gen_decode_graph *d = &e->decode;

    wf_tensor_release(d->tokens);
    wf_tensor_release(d->logits);
    wf_tensor_release(d->logsumexp);
    wf_nn_cache_tokens_free(&d->at);
    wf_graph_free(d->graph);
    *d = (wf_gen_decode_graph){.rows = 0};
}

/* Writes what a step reads. */
static wf_status write_step(wf_gen_engine *e, const int32_t *ids,
                            const wf_nn_cache_position *sequence)
{
    wf_gen_decode_graph *d = &e->decode;

    if (wf_nn_cache_at(e->cache, d->rows, 1, sequence) != WF_OK)
        return wf_context_status(e->ctx);
    if (!d->tokens) {
        d->tokens = wf_gen_engine_tokens(e, d->rows, 1);
        if (d->tokens)
            wf_tensor_retain(d->tokens);
    }
    wf_gen_engine_write(d->tokens, ids);
    return wf_context_status(e->ctx);
}

static wf_status capture(wf_gen_engine *e)
{
    wf_gen_decode_graph *d = &e->decode;
    wf_dtype storage;

    if (d->graph || wf_graph_begin(e->ctx) != WF_OK)
        return wf_context_status(e->ctx);
    storage = wf_context_storage(e->ctx, wf_par_dtype(e->o.par));
    wf_scope_open(e->ctx);
    d->logits = wf_gen_engine_forward(e, d->tokens, true, d->sums ? &d->logsumexp : NULL);
    if (d->logits)
        wf_tensor_retain(d->logits);
    if (d->logsumexp)
        wf_tensor_retain(d->logsumexp);
    wf_scope_close(e->ctx);
    wf_context_storage(e->ctx, storage);
    d->graph = wf_graph_end(e->ctx);
    return wf_context_status(e->ctx);
}

wf_status wf_gen_decode(wf_gen_engine *e, int64_t rows, const int32_t *ids,
                        const wf_nn_cache_position *sequence, float *logits, float *logsumexp)
{
    wf_gen_decode_graph *d = &e->decode;
    const bool sums = logsumexp != NULL;

    if (d->rows != rows || d->sums != sums) {
        wf_gen_decode_forget(e);
        d->rows = rows;
        d->sums = sums;
        return wf_gen_engine_run(e, rows, 1, ids, sequence, true, logits, logsumexp);
    }
    wf_scope_open(e->ctx);
    wf_nn_cache_swap(e->cache, &d->at);
    if (write_step(e, ids, sequence) == WF_OK && capture(e) == WF_OK &&
        wf_graph_run(d->graph, NULL, 0) == WF_OK) {
        if (sums)
            wf_gen_engine_share(e, d->logsumexp, rows, logsumexp);
        wf_gen_engine_share(e, d->logits, rows * e->vocabulary, logits);
    }
    wf_nn_cache_swap(e->cache, &d->at);
    wf_scope_close(e->ctx);
    if (wf_context_status(e->ctx) != WF_OK)
        wf_gen_decode_forget(e);
    return wf_context_status(e->ctx);
}
