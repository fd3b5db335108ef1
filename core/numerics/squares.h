/*
 * core/numerics/squares.h - the sum of the squares of many tensors, added up on their device:
 * nothing waits, and only the sum is copied to the host at the end.
 */
#ifndef WF_CORE_NUMERICS_SQUARES_H
#define WF_CORE_NUMERICS_SQUARES_H

#include "core/context.h"
#include "core/numerics/exact_sum.h"

WF_BEGIN_DECLS

/** wf_squares - a sum of squares that is being added up. */
typedef struct wf_squares {
    wf_context *ctx;
    wf_exact_sum sum;
    wf_exact_sum *there; /* sum, or device memory; NULL: no memory */
    int64_t added;       /* chunks, since the device's sum was last copied to the host */
} wf_squares;

/**
 * wf_squares_begin - begins an empty sum; wf_squares_end frees its memory
 *
 * In a dry run nothing is added, and memory is counted.
 * Errors:  WF_ENOMEM in the context
 */
WF_API void wf_squares_begin(wf_squares *s, wf_context *ctx);
/** wf_squares_add - adds the squares of the local parts of n tensors of the device's own
 * floats, in any order: their sum is exact. */
WF_API void wf_squares_add(wf_squares *s, int64_t n, wf_tensor *const *tensor);
/**
 * wf_squares_end - ends a sum and gives this rank's value, for the caller to merge over ranks
 *
 * Collective:  no
 * Errors:      the context's, returned
 */
WF_API wf_status wf_squares_end(wf_squares *s, wf_exact_sum *sum);

/** wf_squares_fit - returns true where the squares of these tensors are added without the host
 * in between, which a capture needs (core/graph.h): all of their rows are counted, so that
 * ranks that have parts of them know the same. */
WF_API bool wf_squares_fit(int64_t n, wf_tensor *const *tensor);
/** wf_squares_drop - ends a sum whose value is read on its device: wf_squares.there, by work
 * that was queued before. */
WF_API void wf_squares_drop(wf_squares *s);

WF_END_DECLS

#endif
