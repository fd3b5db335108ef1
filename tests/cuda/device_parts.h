/*
 * tests/cuda/device_parts.h - kernels of the GPU against the reference loops in double; and a
 * rank that holds a part computes that part, bit for bit, as tests/kernels/op_parts.h has it
 * for the CPU.
 */
#ifndef WF_TESTS_CUDA_DEVICE_PARTS_H
#define WF_TESTS_CUDA_DEVICE_PARTS_H

#include "core/context.h"
#include "kernels/ops.h"
#include "tests/harness.h"

enum { WHOLE = -1, SUM = -2, MAX = -3, MOST_PARTS = 8 };

#define TREE (1u << 2 | 1u << 8) /* ranks nest in the 8 chunks */
#define ANY  (1u << 3 | 1u << 8) /* nothing is summed */

/* Which dim of each operand and output is split; bit p of parts: over p ranks. */
typedef struct split {
    const char *name;
    int in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    unsigned parts;
} split;

/* A tensor's local data on the host, in the type that it has on the device. */
typedef struct numbers {
    wf_tensor t;
    void *host;
    void *block; /* the device's, while a kernel runs */
} numbers;

/* A context on the emulated GPU, one at a time. */
void open_context(bool exact_off);
void close_context(void);

/* Make the numbers of a whole tensor; the caller frees `host`. */
numbers numbers_of(int ndim, const wf_dim *dims, wf_dtype dtype);
numbers random_numbers(int ndim, const wf_dim *dims, wf_dtype dtype);
/* Every element of an f32 becomes x. */
void fill(numbers *n, float x);
size_t bytes_of(const wf_tensor *t);

/* The part of a dim that rank r of p has (WHOLE: all); the caller frees `host`. */
numbers part_of(const numbers *whole, int dim, int p, int r);

/* Sets the number of elements by which data lie after an aligned address from now on. */
void shift_to(size_t elements);

/* Makes one call on the device: operands go there, results come back (of an op in place:
   operands). `add`: results go there too. */
void run_on_device(const wf_call *call, numbers *in, numbers *out, bool add);

/* Results against the reference loop over the same operands and what was there before (NULL: no
   matter what). */
void check_reference(const wf_call *call, const numbers *in, const numbers *out,
                     const numbers *before);

/* The results that the device has of whole operands are the CPU's, bit for bit. */
void check_cpu(const wf_call *call, const numbers *in, const numbers *out);

/* Whole, against the reference (but for numbers that vanish), then parts. Of the call only op,
   attr and counts are read. */
void check(const wf_call *call, numbers *in, numbers *out, const split *s, bool vanishing);

#endif
