/*
 * kernels/cpu/gemm_blocking_internal.h - how a product of matrices is cut, the same for every
 * instruction set but for the sizes in wf_gemm_limits. No cut can be seen in the result.
 *
 * C is cut in blocks, one after the other, and a thread pool shares each of them; a block is
 * cut in tiles of mr rows and nr columns, which live in registers. The long dimension is cut in
 * KC blocks of at most kc elements, which may hold many short chunks or a run of a long one.
 * The microkernel takes a tile through all steps of a KC block with its running chain in
 * registers. What it leaves for the next KC block, an open chain and the open nodes of its
 * tree, are spilled partial sums: they wait in the block's scratch, one level per node.
 *
 * The rows (A) and the columns (B) of a tile come from panels packed in the order in which it
 * reads them, or, where too few tiles would share a panel to pay for it, from where they lie.
 */
#ifndef WF_KERNELS_CPU_GEMM_BLOCKING_INTERNAL_H
#define WF_KERNELS_CPU_GEMM_BLOCKING_INTERNAL_H

#include "kernels/cpu/simd_internal.h"

enum {
    WF_GEMM_STEPS = 64, /* at most, in a KC block */
    /* Nodes that are open at a time of those that a KC block opens: lefts of a midpoint tree
       are at least (1, 1, 2, 3, 5, 9, 17, ...) chunks, newest first, so 64 chunks have seven of
       them; where chunks are empty a KC block may end for want of room. */
    WF_GEMM_LOCAL = 8
};

typedef struct wf_gemm_limits {
    int64_t mr, nr;                 /* a tile */
    int64_t kc;                     /* a KC block, a multiple of pad */
    int64_t block_rows, block_cols; /* a member's part of a block */
    /* panels fill up each part with zeros to a multiple of it; above 1 all is packed */
    int64_t pad;
} wf_gemm_limits;

/* x(i, p) is element i * across + p * along after `at`; p along the long dimension, i a row or
   column of what is computed. */
typedef struct wf_gemm_operand {
    const void *at;
    int64_t across, along;
    int64_t size; /* bytes of an element */
} wf_gemm_operand;

/* Returns the operand from x(i, p) on. */
static inline wf_gemm_operand wf_gemm_from(wf_gemm_operand x, int64_t i, int64_t p)
{
    x.at = (const char *)x.at + (i * x.across + p * x.along) * x.size;
    return x;
}

/* Returns the size of k elements of a part in a panel. */
static inline int64_t wf_gemm_padded(int64_t k, int64_t pad)
{
    return (k + pad - 1) / pad * pad;
}

/* A step is a run of one part. `level` and `spilled` are of the moment when the step's chunk
   began. */
typedef struct wf_gemm_step {
    const wf_gemm_part *part;
    int64_t first, k;           /* columns first .. first + k - 1 of the part's A */
    wf_gemm_operand rows, cols; /* all that is computed, for these k */
    int merges;       /* open nodes to add when its chunk ends here; -1: the chunk continues */
    int level;        /* open nodes */
    uint64_t spilled; /* bit l: node l is spilled, else it is in the tile's own stack */
    bool spills;      /* the node that it opens is spilled */
} wf_gemm_step;

typedef struct wf_gemm_kc_block {
    wf_gemm_step step[WF_GEMM_STEPS];
    int n_steps;
    int64_t k;   /* the sum over all steps, padded */
    bool resume; /* the first step continues the spilled chain */
    bool last;   /* the last chunk ends here */
} wf_gemm_kc_block;

/* The beginning of the next KC block. Chunks without terms are left out, and so are nodes
   without them, but where an empty chunk's index in the tree requires that older nodes are
   added. */
typedef struct wf_gemm_cursor {
    const wf_gemm_part *parts;
    int64_t n_parts, n_chunks, each; /* each: as in wf_gemm, 1 or more */
    int64_t pad, size;               /* as in the limits and the operands */
    bool transpose;                  /* as in the blocking */
    int64_t part, first;             /* next element to take */
    int64_t chunk;                   /* its chunk */
    int level;                       /* open nodes */
    bool open;                       /* the chunk has begun */
    int depth;                       /* open nodes of the whole tree */
    uint64_t filled;                 /* those that have terms: bit d is the node at depth d */
} wf_gemm_cursor;

typedef struct wf_gemm_blocking {
    bool transpose; /* compute C^T = B^T A^T: the same chains, with long rows to the right */
    int64_t m, n;   /* rows and columns of what is computed */
    int64_t rows, cols; /* a block's, multiples of a tile's */
    int64_t row_blocks, col_blocks;
    int64_t group; /* rows of a block for which columns are packed once, a multiple of a tile */
    bool rows_in_place, cols_in_place; /* whole tiles read them where they lie */
    int64_t kc;                        /* the length of the longest KC block */
    int64_t levels;                    /* nodes that a tile has spilled, at most */
} wf_gemm_blocking;

/* Returns how many of the threads are worth waking. */
int wf_gemm_threads(const wf_gemm *g, int threads);

wf_gemm_blocking wf_gemm_blocking_of(const wf_gemm *g, const wf_gemm_limits *limits,
                                     int threads);

/* Returns true where no part has a term. */
bool wf_gemm_is_empty(const wf_gemm *g);

/* Returns the cursor of the first KC block; `transpose` as in the blocking, `pad` as in the
   limits. */
wf_gemm_cursor wf_gemm_begin(const wf_gemm *g, bool transpose, int64_t pad);

/* Gives the next KC block of at most kc, a multiple of pad; call it until a KC block is the
   last. Needs a term. */
void wf_gemm_next(wf_gemm_cursor *cursor, int64_t kc, wf_gemm_kc_block *kc_block);

#endif
