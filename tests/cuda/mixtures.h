/*
 * tests/cuda/mixtures.h - operands of calls of experts (kernels/moe_internal.h) for tests of
 * their kernels on the GPU.
 */
#ifndef WF_TESTS_CUDA_MIXTURES_H
#define WF_TESTS_CUDA_MIXTURES_H

#include "kernels/moe_internal.h"
#include "tests/cuda/device_parts.h"

/* Sizes of a mixture; a rank of 0: without adapters. */
typedef struct mixture {
    int64_t experts, k, sequences, tokens, d, f, rank;
    wf_dtype dtype;
} mixture;

enum { OPERANDS = 12, RESULTS = 7, WEIGHTS = 3 };

/* Fills in all but factors; indices are of chosen experts, ascending, but for some of none, as
   a capacity leaves them. The caller frees all `host`. */
void fill_mixture(const mixture *m, numbers *in);
void fill_factors(const mixture *m, numbers *in);

/* Makes a result of an operand's shape. */
numbers result_like(const numbers *operand, wf_dtype dtype);

void free_all(numbers *n, int count);

/* A split over experts (WHOLE), whose sums are partial, or over a dim of tokens. Eight ranks
   nest in the tree over 8 experts. */
split split_of(const wf_call *call, const numbers *in, int dim, bool gradient);

#endif
