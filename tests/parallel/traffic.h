/*
 * tests/parallel/traffic.h - what the ranks of a step called and received, group by group,
 * against what a formula says.
 */
#ifndef WF_TESTS_PARALLEL_TRAFFIC_H
#define WF_TESTS_PARALLEL_TRAFFIC_H

#include "tests/parallel/parallel_harness.h"

enum { MAX_RANKS = 32, MAX_GROUPS = 4 };

/* The calls of each rank, and the bytes that all of them received. */
typedef struct traffic {
    int64_t calls[WF_COLLECTIVE_KINDS], bytes[WF_COLLECTIVE_KINDS];
    int64_t agreements; /* besides, up a binary tree of ranks: calls of send and recv */
} traffic;

/* The counters of every rank, over every group that it is in. */
typedef struct counted {
    wf_comm_counters of[MAX_RANKS][MAX_GROUPS];
} counted;

static inline int64_t expected_calls(const traffic *expected, int kind, int rank, int ranks)
{
    int64_t up = kind == WF_SEND   ? rank > 0
                 : kind == WF_RECV ? (2 * rank + 1 < ranks) + (2 * rank + 2 < ranks)
                                   : 0;

    return expected->calls[kind] + expected->agreements * up;
}

/* Every rank made the expected calls over a group; together they received the expected
   bytes. */
static inline bool same_traffic(const training *t, const counted *n, int group,
                                const char *name, const traffic *expected)
{
    bool same = true;

    for (int k = 0; k < WF_COLLECTIVE_KINDS; k++) {
        const char *kind = wf_collective_name((wf_collective_kind)k);
        int64_t bytes = 0;

        for (int r = 0; r < t->layout.tp * t->layout.dp; r++) {
            int64_t calls = n->of[r][group].of[k].calls;
            int64_t right = expected_calls(expected, k, r, t->layout.tp * t->layout.dp);

            bytes += n->of[r][group].of[k].bytes;
            if (calls == right)
                continue;
            same = false;
            printf("\n    rank %d, %s: %" PRId64 " %s instead of %" PRId64, r, name, calls,
                   kind, right);
        }
        if (bytes != expected->bytes[k]) {
            same = false;
            printf("\n    %s: %" PRId64 " bytes of %s instead of %" PRId64, name, bytes, kind,
                   expected->bytes[k]);
        }
    }
    return same;
}

#endif
