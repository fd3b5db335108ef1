/* tests/cuda/stored.h - tensors that are stored in 8 and 4 bits, on the CPU and on the GPU, as
   a rank of several has them. */
#ifndef WF_TESTS_CUDA_STORED_H
#define WF_TESTS_CUDA_STORED_H

#include "core/context.h"

enum { CPU, GPU, DEVICES };

/* Columns [from, from + columns) of rows of `size`; all of them: from 0, columns size. */
typedef struct region {
    int64_t rows, size, from, columns;
} region;

wf_context *open_stored(int device);

/* Makes a matrix of this part, contents undefined. */
wf_tensor *stored_part(wf_context *ctx, wf_dtype dtype, region at);

/* Writes numbers of both signs, of several magnitudes, and zeros. */
void write_numbers(wf_tensor *t, int member, int salt);

bool same_bytes(const wf_tensor *a, const wf_tensor *b);

/* Returns how much work this thread has asked of a device; 0: nothing is queued there. */
int64_t launches_of(wf_context *ctx);

#endif
