/*
 * mesh/array/exact.c - whether ranks add what one rank would add, in its order.
 *
 * A sum over dims is a midpoint tree over the chunks of one of them (wf_chunk_dim), each a
 * chain over everything else; ranks are added in the midpoint tree of each axis, the innermost
 * axis of the mesh first. The bits are those of one rank where every node of the ranks' tree is
 * a node of the chunks'. This file alone checks that: for every call, every dim that it sums
 * and that axes split. Where it is not so, wf_context_inexact has the first one found.
 */
#include "mesh/array/array_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint32_t letters_of(const wf_signature *sig, int row)
{
    uint32_t letters = 0;

    for (int d = 0; d < sig->ndim[row]; d++)
        letters |= 1u << sig->letter[row][d];
    return letters;
}

uint32_t wf_layout_summed(const wf_call *call, const wf_signature *sig, int o)
{
    const uint32_t g = 1u << ('g' - 'a'), h = 1u << ('h' - 'a');
    uint32_t has = letters_of(sig, call->n_in + o), letters = sig->contracted;

    if (call->op->flags & WF_OP_OWN_SUMS) /* no axis splits a letter that is whole */
        for (int i = 0; i < call->n_in; i++)
            letters |= letters_of(sig, i) & ~sig->whole;
    if (call->op->flags & WF_OP_GROUPS) {
        letters &= ~g;
        letters |= has & g ? h : 0; /* the gradient of a group is that of all of its heads */
    }
    if ((call->op->flags & WF_OP_SUM_LAST) && o == call->n_out - 1)
        letters |= letters_of(sig, call->n_in);
    return letters & ~has;
}

/* Returns the axes that split dim 0 of the first operand. */
static uint8_t axes_of_experts(const wf_call *call)
{
    const wf_layout *layout = call->in[0]->layout;
    uint8_t axes = 0;

    for (int i = 0; layout && i < layout->n_axes[0]; i++)
        axes |= (uint8_t)(1u << layout->axis[0][i]);
    return axes;
}

bool wf_layout_is_picked(const wf_call *call)
{
    const wf_tensor *last = call->in[call->n_in - 1];
    bool picked = call->op->flags & WF_OP_PICKED;

    if (picked && (call->op->flags & WF_OP_EXPERTS)) {
        for (int i = 0; i < call->n_in; i++)
            picked &= !wf_layout_is_partial(call->in[i]->layout, -1) ||
                      (call->in[i]->layout->sum == axes_of_experts(call) &&
                       !call->in[i]->layout->max);
        return picked;
    }
    for (int i = 0; i < call->n_in; i++)
        if (wf_layout_is_partial(call->in[i]->layout, -1))
            picked &= call->in[i]->ndim == last->ndim && last->layout &&
                      call->in[i]->layout->sum == last->layout->sum &&
                      !call->in[i]->layout->max;
    return picked;
}

/* A dim that an output sums: of the first operand that has it, split by these axes. */
typedef struct summed {
    const wf_tensor *operand;
    int dim, n_axes;
    const int8_t *axis;
    int64_t chunks;
} summed;

/* Lists the summed dims, in the order of the operands; returns how many. */
static int list_summed(const wf_call *call, const wf_signature *sig, int o, summed *list)
{
    uint32_t letters = wf_layout_summed(call, sig, o);
    int n = 0;

    for (int i = 0; i < call->n_in; i++)
        for (int d = 0; d < sig->ndim[i]; d++) {
            const wf_layout *layout = call->in[i]->layout;
            uint32_t letter = 1u << sig->letter[i][d];

            if (!(letters & letter))
                continue;
            letters &= ~letter;
            list[n++] = (summed){.operand = call->in[i],
                                 .dim = d,
                                 .n_axes = layout ? layout->n_axes[d] : 0,
                                 .axis = layout ? layout->axis[d] : NULL,
                                 .chunks = 1};
        }
    return n;
}

/* Returns true where the first summed dim is that of a mixture's experts, in an op that knows
   them. */
static bool sums_experts(const wf_call *call, const summed *first)
{
    return (call->op->flags & WF_OP_EXPERTS) && first->operand == call->in[0] &&
           first->operand->dim[first->dim].chunks == WF_CHUNKS_EXPERTS;
}

/* Returns true where the second one is an expert's features, whose sum is complete before that
   over experts. */
static bool sums_features(const wf_call *call, int n, const summed *list)
{
    return n > 1 && sums_experts(call, list) && list[1].operand == list[0].operand &&
           list[1].operand->dim[list[1].dim].chunks == WF_CHUNKS_8;
}

/* Returns true where the list is a batch and its tokens, in an op that is a chain in each
   sequence, or in chunks of a long one. */
static bool sums_sequences(const wf_call *call, int n, const summed *list)
{
    return (call->op->flags & WF_OP_CHAIN) && n > 1 && list[0].dim == 0 && list[1].dim == 1 &&
           list[0].operand->dim[0].chunks == WF_CHUNKS_EACH &&
           list[1].operand->dim[1].chunks == WF_CHUNKS_8;
}

/* Returns true where the list begins with the tokens of a batch that is not summed, in such an
   op: its result has a row per sequence. */
static bool sums_each_sequence(const wf_call *call, const summed *list)
{
    const wf_tensor *t = list[0].operand;

    return (call->op->flags & WF_OP_CHAIN) && list[0].dim == 1 &&
           t->dim[0].chunks == WF_CHUNKS_EACH && t->dim[1].chunks == WF_CHUNKS_8;
}

/* Which of them has chunks; in a sum of terms each has its own. */
static void give_chunks(const wf_call *call, int n, summed *list)
{
    wf_dim dims[WF_LETTERS];
    int which;

    for (int i = 0; i < n; i++) {
        dims[i] = list[i].operand->dim[list[i].dim];
        if ((call->op->flags & WF_OP_TERMS) && dims[i].chunks == WF_CHUNKS_8)
            list[i].chunks = wf_context_chunks(call->ctx);
    }
    if (call->op->flags & WF_OP_TERMS)
        return;
    if (list[0].dim == 0 && (dims[0].chunks == WF_CHUNKS_EACH || sums_experts(call, list))) {
        list[0].chunks = dims[0].size;
        if (sums_features(call, n, list))
            list[1].chunks = wf_context_chunks(call->ctx);
        if (sums_sequences(call, n, list))
            list[1].chunks = wf_token_chunks(dims[1].size);
        return;
    }
    if (sums_each_sequence(call, list))
        list[0].chunks = wf_token_chunks(dims[0].size);
    which = call->op->flags & WF_OP_CHAIN ? -1 : wf_chunk_dim(dims, 0, n);
    if (which >= 0)
        list[which].chunks = wf_context_chunks(call->ctx);
    if (which >= 0 && (call->op->flags & WF_OP_TOKENS) && list[which].dim == 1 &&
        list[which].chunks < wf_token_chunks(dims[which].size))
        list[which].chunks = wf_token_chunks(dims[which].size);
}

/* The two trees over one dim: of chunks, and of ranks, axis by axis. */
typedef struct trees {
    const wf_dim *dim;
    int64_t chunks;
    int n_axes;
    wf_cutter axis[WF_MAX_AXES];
    int64_t stride[WF_MAX_AXES], parts; /* parts from a member to the next one; all of them */
} trees;

static trees trees_of(const wf_mesh *mesh, const summed *s)
{
    trees t = {.dim = &s->operand->dim[s->dim], .chunks = s->chunks, .parts = 1};

    t.n_axes = wf_layout_cutters(mesh, s->operand->layout, s->dim, 0, t.axis);
    for (int i = t.n_axes - 1; i >= 0; i--) {
        t.stride[i] = t.parts;
        t.parts *= t.axis[i].parts;
    }
    return t;
}

/* Returns where a part begins, by its number; where a chunk does. */
static int64_t part_at(const trees *t, int64_t p)
{
    wf_cutter axis[WF_MAX_AXES];

    if (p == t->parts)
        return t->dim->size;
    memcpy(axis, t->axis, sizeof axis);
    for (int i = 0; i < t->n_axes; i++) {
        axis[i].index = p / t->stride[i];
        p %= t->stride[i];
    }
    return wf_cut_together(t->dim, t->n_axes, axis);
}

static int64_t chunk_at(const trees *t, int64_t chunk)
{
    return wf_cut(t->dim->size, t->dim->chunks == WF_CHUNKS_8 ? t->dim->grain : 1, t->chunks,
                  chunk);
}

/*
 * Returns true where n members of axis i, from part p on, have a tree that is the node over the
 * chunks [chunk, chunk + chunks), which are the same elements. Empty parts change no sum, on
 * either side.
 */
static bool nests(const trees *t, int i, int64_t p, int64_t n, int64_t chunk, int64_t chunks)
{
    int64_t middle, begin = part_at(t, p), end = part_at(t, p + n * t->stride[i]);

    if (begin == end)
        return true;
    if (n == 1)
        return i + 1 == t->n_axes || nests(t, i + 1, p, t->axis[i + 1].parts, chunk, chunks);
    middle = part_at(t, p + n / 2 * t->stride[i]);
    if (middle == begin)
        return nests(t, i, p + n / 2 * t->stride[i], n - n / 2, chunk, chunks);
    if (middle == end)
        return nests(t, i, p, n / 2, chunk, chunks);
    while (chunks > 1 && chunk_at(t, chunk + chunks / 2) != middle) {
        int64_t half = chunk_at(t, chunk + chunks / 2);

        if (half != begin && half != end)
            return false;
        chunk += half == begin ? chunks / 2 : 0;
        chunks = half == begin ? chunks - chunks / 2 : chunks / 2;
    }
    return chunks > 1 && nests(t, i, p, n / 2, chunk, chunks / 2) &&
           nests(t, i, p + n / 2 * t->stride[i], n - n / 2, chunk + chunks / 2,
                 chunks - chunks / 2);
}

static bool in_order(const summed *s)
{
    for (int i = 1; i < s->n_axes; i++)
        if (s->axis[i] < s->axis[i - 1])
            return false;
    return true;
}

/* Returns true in the common case, without a walk over all ranks: powers of two, as many as cut
   the dim. */
static bool plainly_nests(const trees *t)
{
    for (int i = 0; i < t->n_axes; i++)
        if (t->axis[i].fine && t->dim->grain > 1)
            return false;
    return (t->parts & (t->parts - 1)) == 0 && t->chunks % t->parts == 0;
}

static char *print_axes(const wf_mesh *mesh, const summed *s, char *text, size_t size)
{
    size_t n = 0;

    for (int i = 0; i < s->n_axes && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "/" : "", mesh->name[s->axis[i]]);
    return text;
}

/* Returns true where ranks' rows of a batch are kept per sequence and not summed over ranks. */
static bool is_unreduced(const summed *s)
{
    return s->operand->dim[s->dim].chunks == WF_CHUNKS_EACH &&
           wf_context_has_rows_unreduced(s->operand->ctx);
}

/* Returns the reason why a sum in chunks is not what one rank adds. */
static const char *reason_of_cuts(const summed *s, bool terms)
{
    int chunks = wf_context_chunks(s->operand->ctx);

    if (s->chunks > 1 && s->chunks != chunks && !terms)
        return "its cuts are not those of a long sequence's chunks, of 1,024 tokens or more "
               "each";
    if (chunks == 1)
        return "exact_tp is 1, so that its sum is one chain";
    if (terms)
        return chunks == 8
                   ? "members of a group are added inside of each chunk, so the ranks' "
                     "parts must be chunks of all of them: 8 each, over 2, 4 or 8 ranks"
                   : "members of a group are added inside of each chunk, so the ranks' "
                     "parts must be chunks of all of them: as many each as exact_tp says";
    return chunks == 8 ? "its cuts are not those of the dim's 8 chunks"
                       : "its cuts are not those of the dim's chunks, as many as exact_tp says";
}

/* Returns the reason why one of n summed dims is not what one rank adds; NULL: exact. Of
   several terms each has to nest by itself: an empty part of one of them may not be empty in
   another. */
static const char *reason(const wf_mesh *mesh, const summed *s, int n, bool terms)
{
    trees t = trees_of(mesh, s);

    if (t.n_axes == 0 || (plainly_nests(&t) && in_order(s)) || is_unreduced(s))
        return NULL;
    if (!in_order(s))
        return "they are added in the order of the mesh, which is another one";
    if (terms && n > 1)
        return reason_of_cuts(s, true);
    if (nests(&t, 0, 0, t.axis[0].parts, 0, t.chunks))
        return NULL;
    if (s->operand->dim[s->dim].chunks == WF_CHUNKS_EACH && t.chunks != 1)
        return "its cuts are not at the halves of the batch, and their halves";
    if (s->operand->dim[s->dim].chunks == WF_CHUNKS_EXPERTS && t.chunks != 1)
        return "its cuts are not at the halves of the experts, and their halves";
    if (t.chunks != 1 || (s->operand->dim[s->dim].chunks == WF_CHUNKS_8 &&
                          wf_context_chunks(s->operand->ctx) == 1))
        return reason_of_cuts(s, false);
    return n > 1 ? "the dim is one chain inside the chunks of another one"
                 : "the dim has one chunk (wf_dim_chunked and wf_dim_heads make 8)";
}

/*
 * Returns the reason why tokens that are split show in a sum over sequences and their tokens;
 * NULL: they don't. Ranks add a sequence's chunks to one another after each has added all that
 * it has, so it must have one sequence alone, and nothing else that is added before.
 */
static const char *reason_of_sequences(const wf_call *call, const wf_signature *sig, int o,
                                       const summed *list)
{
    const wf_mesh *mesh = wf_mesh_of(call->ctx);
    const summed *batch = &list[0], *tokens = &list[1];
    int with_batch = 0;

    for (int i = 0; i < call->n_in; i++)
        with_batch += (letters_of(sig, i) >> sig->letter[0][0] & 1) != 0;
    if (tokens->n_axes == 0 || tokens->chunks == 1)
        return NULL; /* a chain has a reason of its own */
    if (with_batch > 2 || call->into[o] ||
        wf_layout_largest_part(mesh, batch->operand->layout, batch->dim,
                               &batch->operand->dim[batch->dim]) > 1)
        return "a rank adds several sequences before ranks add their tokens: take one sequence "
               "of a rank at a time";
    for (int i = 0; i < batch->n_axes; i++)
        if (batch->axis[i] > tokens->axis[0])
            return "sequences are added over ranks before tokens are, in the order of the mesh";
    return NULL;
}

static void report(const wf_call *call, const summed *s, const char *why)
{
    const char *path = wf_context_path(call->ctx);
    char tensor[192], axes[96];

    wf_context_report_inexact(call->ctx,
                              "not layout-exact: %s%s%s sums dim %d of %s, which %s splits: %s",
                              call->op->name, path && *path ? " in " : "", path ? path : "",
                              s->dim, wf_tensor_describe(s->operand, tensor, sizeof tensor),
                              print_axes(wf_mesh_of(call->ctx), s, axes, sizeof axes), why);
}

void wf_layout_report_sums(const wf_call *call, const wf_signature *sig,
                           const wf_layout *const *out)
{
    const wf_mesh *mesh = wf_mesh_of(call->ctx);
    unsigned before = 0;

    if (!wf_context_exact(call->ctx) || wf_context_inexact(call->ctx) ||
        (call->op->flags & (WF_OP_SELECT | WF_OP_COUNTS)))
        return;
    for (int i = 0; i < call->n_in; i++)
        before |= call->in[i]->layout ? call->in[i]->layout->sum : 0;
    for (int o = 0; o < call->n_out; o++) {
        summed list[WF_LETTERS];
        int n = out[o] && (out[o]->sum & ~before) ? list_summed(call, sig, o, list) : 0;

        if (n)
            give_chunks(call, n, list);
        for (int i = 0; i < n; i++) {
            bool terms = call->op->flags & WF_OP_TERMS;
            const char *why = list[i].n_axes ? reason(mesh, &list[i], n, terms) : NULL;

            if (!why && i == 1 && sums_sequences(call, n, list))
                why = reason_of_sequences(call, sig, o, list);
            if (why)
                report(call, &list[i], why);
        }
    }
}
