/*
 * kernels/cpu/rows_internal.h - ops that go row by row, over operands that are stored as floats
 * or as bf16: inner loops see floats. A few rows at a time are widened into room that stays in
 * the first-level cache, and results are rounded from there, so that memory is passed once and
 * in the type of what is stored.
 */
#ifndef WF_KERNELS_CPU_ROWS_INTERNAL_H
#define WF_KERNELS_CPU_ROWS_INTERNAL_H

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"

enum {
    WF_NEAR = 2048
}; /* elements of an operand that are worked on together: a few rows, or one */

/* Some rows, as an inner loop sees them. */
typedef struct wf_row_run {
    const wf_call *call;
    const wf_simd *simd;
    const void *with; /* the caller's */
    int64_t first, n; /* rows first .. first + n - 1 */
    /* Data of an operand that is cut by rows, from row `first` on; of another one, all. */
    const float *in[WF_MAX_INPUTS];
    float *out[WF_MAX_OUTPUTS];
} wf_row_run;

typedef void wf_row_loop(const wf_row_run *rows);

/*
 * wf_cpu_run_rows - runs the loop over all rows of a call, some at a time, over the thread
 * pool.
 *
 * @param by_rows  WF_IN, WF_OUT: operands that are cut in `rows` equal parts. Those alone may
 *                 be stored as bf16: the kernel's mixed_ok is a part of them
 */
wf_status wf_cpu_run_rows(const wf_call *call, void *workspace, int64_t rows, unsigned by_rows,
                          wf_row_loop *loop);

/* Runs rows by a loop that is given `with`, not NULL, and passes over them once: all rows of a
   task together, where no operand is widened or rounded. */
wf_status wf_cpu_run_rows_with(const wf_call *call, void *workspace, int64_t rows,
                               unsigned by_rows, wf_row_loop *loop, const void *with);

/* Returns the workspace of a call in bytes, where no row has more than `width` elements: for
   operands stored as bf16. */
size_t wf_cpu_rows_bytes(const wf_call *call, int64_t width);

/* Returns the workspace where a row is an element, or all of a tensor's last dim: a kernel's
   workspace function. */
size_t wf_cpu_rows_workspace(const wf_call *call);

/* A kernel whose operands by rows are these, and whose room is that of rows or elements. */
#define WF_ROWS_KERNEL(function, operands)                                                     \
    {                                                                                          \
        .run = (function), .workspace = wf_cpu_rows_workspace, .mixed_ok = (operands)          \
    }

/* Returns how many rows of `width` elements are worked on together. */
static inline int64_t wf_block_rows(int64_t width)
{
    return width < WF_NEAR ? WF_NEAR / (width > 0 ? width : 1) : 1;
}

/* Floats of room for them. */
static inline int64_t wf_block_elements(int64_t width)
{
    return width < WF_NEAR ? WF_NEAR : width;
}

/* Returns elements of t from element `begin` on as floats: where they lie, or n of them widened
   into room. */
static inline const float *wf_as_floats(const wf_simd *simd, const wf_tensor *t, int64_t begin,
                                        int64_t n, float *room)
{
    if (t->dtype != WF_BF16)
        return (const float *)t->data + begin;
    simd->widen((const uint16_t *)t->data + begin, room, n);
    return room;
}

/* Returns the buffer of floats for t that belong at element `begin` of it; the second function
   stores them there. */
static inline float *wf_floats_for(const wf_tensor *t, int64_t begin, float *room)
{
    return t->dtype == WF_BF16 ? room : (float *)t->data + begin;
}

static inline void wf_floats_done(const wf_simd *simd, const wf_tensor *t, int64_t begin,
                                  int64_t n, const float *room)
{
    if (t->dtype == WF_BF16)
        simd->narrow(room, (uint16_t *)t->data + begin, n);
}

#endif
