/*
 * core/numerics/squares.h - the sum of the squares of many tensors, added up where they lie: on a device of
 * its own memory nothing waits, and nothing but the sum comes to the host at the end.
 */
#ifndef WF_CORE_NUMERICS_SQUARES_H
#define WF_CORE_NUMERICS_SQUARES_H

#include "core/context.h"
#include "core/numerics/exact_sum.h"

typedef struct wf_squares {
    wf_context *ctx;
    wf_exact_sum sum;
    wf_exact_sum *there; /* sum, or device memory; NULL: there was none */
    int64_t added;       /* chunks, since what is there was last brought here */
} wf_squares;

/* Errors are the context's. Of a plan nothing is added, and memory is counted. */
void wf_squares_begin(wf_squares *s, wf_context *ctx);
/* The local part of a tensor of the device's own floats. */
void wf_squares_add(wf_squares *s, const wf_tensor *t);
wf_status wf_squares_end(wf_squares *s, wf_exact_sum *sum);

#endif
