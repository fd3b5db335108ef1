/*
 * kernels/row_chunks_internal.h - the chunks of sums over the tokens of sequences, on the CPU
 * and on GPUs: a long sequence has several (wf_token_chunks), by its whole length, and a rank
 * that holds a part of it has some of these; the others are empty there.
 *
 * Gradients of matrices are a tree over sequences of trees over these chunks, those of vectors
 * a tree over eight chunks of each sequence, or over as many as these where there are more.
 */
#ifndef WF_KERNELS_ROW_CHUNKS_INTERNAL_H
#define WF_KERNELS_ROW_CHUNKS_INTERNAL_H

#include "kernels/op_table_internal.h"

/* Rows of `sequences` sequences, one after the other. In each of them chunk l has the rows
   from at[l] to at[l + 1]. */
typedef struct wf_token_cuts {
    int64_t sequences, rows; /* on this rank; rows that each has here */
    int chunks;              /* a sequence's, a power of two */
    int64_t at[WF_MAX_TOKEN_CHUNKS + 1];
} wf_token_cuts;

/* at[]: where this rank's part of a dim is cut in the whole dim's chunks. */
WF_HOST_DEVICE static inline void wf_cut_part(const wf_tensor *t, int dim, int chunks,
                                              int64_t *at)
{
    const int64_t local = t->local[dim];

    at[0] = 0;
    at[chunks] = local;
    for (int l = 1; l <= chunks && chunks > 1; l++) {
        int64_t cut = wf_cut(t->dim[dim].size, t->dim[dim].grain, chunks, l) - t->start[dim];

        at[l] = cut < 0 ? 0 : cut > local ? local : cut;
    }
}

/* Returns the chunks of a sum over the dims [0, end) of t, a gradient's of a matrix: those of
   each sequence where dim 0 is a batch and the context is exact, else one of all rows. */
static inline wf_token_cuts wf_token_cuts_of(const wf_tensor *t, int end, bool exact)
{
    bool batch = exact && t->dim[0].chunks == WF_CHUNKS_EACH;
    wf_token_cuts c = {batch ? t->local[0] : 1, wf_extent(t, batch ? 1 : 0, end), 1, {0}};

    c.at[1] = c.rows;
    if (!batch || end < 2 || t->dim[1].chunks != WF_CHUNKS_8)
        return c;
    c.chunks = wf_token_chunks(t->dim[1].size);
    wf_cut_part(t, 1, c.chunks, c.at);
    for (int l = 0; l <= c.chunks; l++)
        c.at[l] *= wf_extent(t, 2, end);
    return c;
}

/* Returns how many chunks there are; where chunk i of all begins, or the last one ends. */
WF_HOST_DEVICE static inline int64_t wf_token_chunks_of(const wf_token_cuts *c)
{
    return c->sequences * c->chunks;
}

WF_HOST_DEVICE static inline int64_t wf_token_chunk_at(const wf_token_cuts *c, int64_t i)
{
    return i / c->chunks * c->rows + c->at[i % c->chunks];
}

/* Returns the rows of chunk i of all. */
WF_HOST_DEVICE static inline int64_t wf_token_chunk_rows(const wf_token_cuts *c, int64_t i)
{
    return c->at[i % c->chunks + 1] - c->at[i % c->chunks];
}

/* Returns the chunk of all that has this row. */
WF_HOST_DEVICE static inline int64_t wf_token_chunk_with(const wf_token_cuts *c, int64_t row)
{
    const int64_t sequence = row / c->rows, within = row % c->rows;
    int l = 0;

    for (int half = c->chunks / 2; half > 0; half /= 2)
        l += c->at[l + half] <= within ? half : 0;
    return sequence * c->chunks + l;
}

/* The part of a call that is one sequence's, of an op whose result has a row per sequence. */
typedef struct wf_sequence_call {
    wf_call call;
    wf_tensor in[WF_MAX_INPUTS], out;
} wf_sequence_call;

/* Makes *t its local row b: with a batch of one, or without. */
static inline void wf_take_row(wf_tensor *t, int64_t b, bool batch)
{
    const int64_t row = wf_extent(t, 1, t->ndim);
    const size_t size = t->dtype == WF_BF16 ? 2 : t->dtype == WF_F64 ? 8 : 4;

    if (t->data)
        t->data = (char *)t->data + (size_t)(b * row) * size;
    t->start[0] += b;
    t->local[0] = 1;
    t->ndim -= !batch;
    for (int d = 0; d < t->ndim && !batch; d++) {
        t->dim[d] = t->dim[d + 1];
        t->local[d] = t->local[d + 1];
        t->start[d] = t->start[d + 1];
    }
}

/* Fills *s with the part of a call that is local sequence b's, as a call without rows; operands
   from `first` on have a batch. */
static inline void wf_sequence_call_of(const wf_call *call, int first, int64_t b,
                                       wf_sequence_call *s)
{
    s->call = *call;
    s->call.attr = NULL;
    for (int i = first; i < call->n_in; i++) {
        s->in[i] = *call->in[i];
        wf_take_row(&s->in[i], b, true);
        s->call.in[i] = &s->in[i];
    }
    s->out = *call->out[0];
    wf_take_row(&s->out, b, false);
    s->call.out[0] = &s->out;
}

/* Runs a call whose result has a row per sequence, a sequence after the other; until one fails,
   whose status it returns. */
static inline wf_status wf_run_by_sequence(const wf_call *call, int first,
                                           wf_status (*run)(const wf_call *call,
                                                            void *workspace),
                                           void *workspace)
{
    wf_status status = WF_OK;
    wf_sequence_call s;

    for (int64_t b = 0; b < call->out[0]->local[0] && status == WF_OK; b++) {
        wf_sequence_call_of(call, first, b, &s);
        status = run(&s.call, workspace);
    }
    return status;
}

/* at[]: the chunks of a sum over dim d of t and others of each sequence, a gradient's of a
   vector, where there are n by wf_chunk_cuts, which at[] has; returns how many there are. */
static inline int wf_cut_tokens(const wf_tensor *t, int d, int n, bool exact,
                                int64_t at[WF_MAX_TOKEN_CHUNKS + 1])
{
    int tokens = exact && d == 1 ? wf_token_chunks(t->dim[d].size) : 1;

    if (tokens <= n)
        return n;
    wf_cut_part(t, d, tokens, at);
    return tokens;
}

#endif
