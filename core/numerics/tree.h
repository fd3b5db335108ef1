/*
 * core/numerics/tree.h - cuts and trees: the two formulas that keep the layout out of the
 * numbers.
 *
 * A dim of `size` elements made of indivisible grains is cut in p pieces at
 *     cut(i) = grain * floor(i * (size / grain) / p),      i = 0 .. p
 * for layouts and for the chunks of a contraction alike, so the cuts of 8 chunks contain those
 * of 2 and 4 ranks and nothing has to divide. Axes that cut a dim together are one of all their
 * parts, so 2 x 4 ranks have the cuts of 8.
 *
 * A sum of n chunks is a binary tree halved top-down at the midpoint, a perfect one where n is
 * a power of two. Walking the chunks in order, wf_tree_merges(n, i) says how many pairs of open
 * nodes to add after chunk i, always (older + newer).
 *
 * A long sequence is several chunks of a sum over tokens (wf_token_chunks), a power of two. A
 * batch of them is a tree over sequences, each leaf of which is a tree over the sequence's
 * chunks: n counts the chunks of all, and `each` those of one sequence, 1 for a plain tree.
 */
#ifndef WF_CORE_NUMERICS_TREE_H
#define WF_CORE_NUMERICS_TREE_H

#include "core/export.h"
#include <stdint.h>

enum { WF_MAX_CHUNKS = 8, WF_MAX_TOKEN_CHUNKS = 32, WF_TREE_DEPTH = 64 };

WF_HOST_DEVICE static inline int64_t wf_cut(int64_t size, int64_t grain, int64_t parts,
                                            int64_t i)
{
    return grain * (i * (size / grain) / parts);
}

/* Returns the chunks in which a sum over the tokens of a sequence is cut: a function of its
   length alone, the largest power of two up to a chunk for each 1,024 tokens, 32 at most. */
WF_HOST_DEVICE static inline int wf_token_chunks(int64_t tokens)
{
    enum { SHORTEST = 1024 };
    int chunks = 1;

    while (chunks < WF_MAX_TOKEN_CHUNKS && tokens / (2 * chunks) >= SHORTEST)
        chunks *= 2;
    return chunks;
}

/* Returns the chunks of the left half of a node of n chunks, 2 or more. */
WF_HOST_DEVICE static inline int64_t wf_tree_left(int64_t n, int64_t each)
{
    return n > each ? n / each / 2 * each : n / 2;
}

/* Returns how many nodes of the tree over n chunks, `each` of a sequence, are complete with
   chunk i (0 <= i < n). */
WF_HOST_DEVICE static inline int wf_tree_merges_each(int64_t n, int64_t each, int64_t i)
{
    int64_t first = 0;
    int merges = 0;

    while (n > 1) {
        int64_t left = wf_tree_left(n, each);

        if (i < first + left) {
            n = left;
            merges = 0;
        } else {
            first += left;
            n -= left;
            merges++;
        }
    }
    return merges;
}

/* Returns how many nodes of the midpoint tree over n chunks are complete with chunk i (0 <= i <
   n). */
WF_HOST_DEVICE static inline int wf_tree_merges(int64_t n, int64_t i)
{
    return wf_tree_merges_each(n, 1, i);
}

/* Returns the chunks of the largest node of the midpoint tree over n chunks that begins with
   chunk i, ends before chunk `end` (i < end <= n) and has 2^k chunks, at most `most` (>= 1). */
static inline int64_t wf_tree_node(int64_t n, int64_t i, int64_t end, int64_t most)
{
    int64_t first = 0, count = n;

    while (first != i || count > most || (count & (count - 1)) || first + count > end) {
        if (i < first + count / 2) {
            count /= 2;
        } else {
            first += count / 2;
            count -= count / 2;
        }
    }
    return count;
}

#endif
