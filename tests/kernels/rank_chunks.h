/*
 * tests/kernels/rank_chunks.h - parts of products as ranks have them: a rank has terms of some
 * chunks, and the others are empty there.
 */
#ifndef WF_TESTS_RANK_CHUNKS_H
#define WF_TESTS_RANK_CHUNKS_H

#include "core/numerics/tree.h"
#include "kernels/cpu/simd_internal.h"

enum { RANK_CHUNKS = 512 }; /* room of `parts` */

static int64_t within(int64_t at, int64_t first, int64_t end)
{
    return at < first ? first : at > end ? end : at;
}

/* A rank's part of the chunks of k terms. */
static int64_t cut_for_rank(int64_t k, int64_t ranks, int64_t rank, wf_gemm_part *parts)
{
    int64_t first = wf_cut(k, 1, ranks, rank), end = wf_cut(k, 1, ranks, rank + 1);

    for (int64_t l = 0; l < WF_MAX_CHUNKS; l++) {
        int64_t from = within(wf_cut(k, 1, WF_MAX_CHUNKS, l), first, end);
        int64_t to = within(wf_cut(k, 1, WF_MAX_CHUNKS, l + 1), first, end);

        parts[l] = (wf_gemm_part){.k = to - from, .chunk = true};
    }
    return WF_MAX_CHUNKS;
}

/* Case 0, 1, ..: how many parts it has, 0: there is no such case. */
static int64_t rank_chunks(int which, wf_gemm_part *parts)
{
    static const int64_t ranks[] = {2, 3, 4, 5, 8, 13};
    enum { CUTS = 3 * sizeof ranks / sizeof *ranks, SPARSE = 3, CASES = CUTS + SPARSE + 2 };

    if (which >= CASES)
        return 0;
    if (which < CUTS) {
        int64_t n = ranks[which / 3];

        return cut_for_rank(which % 2 ? 430 : 24, n, which % 3 * (n - 1) / 2, parts);
    }
    for (int64_t l = 0; l < RANK_CHUNKS; l++) {
        int64_t left = RANK_CHUNKS - l;
        bool node = (left & (left - 1)) == 0; /* the left ones at every depth of the tree */

        parts[l] = (wf_gemm_part){.chunk = true};
        if (which < CUTS + SPARSE)
            parts[l].k = l * 7919 % 1009 % (1 << 2 * (which - CUTS + 1)) ? 0 : 1 + l % 40;
        else
            parts[l].k = node && (left > 1 || which % 2) ? 9 : 0;
    }
    return RANK_CHUNKS;
}

#endif
