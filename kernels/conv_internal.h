/*
 * kernels/conv_internal.h - parameters of the ops of kernels/conv.c, and which elements meet in
 * them, for reference loops and kernels. Sequences of one dim are images of one row.
 */
#ifndef WF_KERNELS_CONV_INTERNAL_H
#define WF_KERNELS_CONV_INTERNAL_H

#include "kernels/op_table_internal.h"

/* Rows, then columns. */
typedef struct wf_patch_attr {
    int32_t kernel[2], stride[2], padding[2], dilation[2];
} wf_patch_attr;

typedef struct wf_patch_job {
    wf_patch_attr a;
    int64_t batch, channels, taps; /* taps: elements of the kernel */
    /* rows and columns of images and of the kernel's positions */
    int64_t in[2], out[2];
} wf_patch_job;

/* Describes x [b, (rows,) columns, c] and patches [b, (rows,) columns, c, taps]. */
static inline wf_patch_job wf_patch_job_of(const wf_call *call, const wf_tensor *x,
                                           const wf_tensor *patches)
{
    int n = x->ndim - 2; /* 1 or 2 */
    wf_patch_job j = {*(const wf_patch_attr *)call->attr,
                      x->local[0],
                      x->local[n + 1],
                      0,
                      {n == 2 ? x->local[1] : 1, x->local[n]},
                      {n == 2 ? patches->local[1] : 1, patches->local[n]}};

    j.taps = patches->local[patches->ndim - 1];
    return j;
}

/* Returns the index of the image that position o and tap k read along one dim; -1 in the
   padding. */
WF_HOST_DEVICE static inline int64_t wf_patch_reads(const wf_patch_job *j, int dim, int64_t o,
                                                    int64_t k)
{
    int64_t i = o * j->a.stride[dim] - j->a.padding[dim] + k * j->a.dilation[dim];

    return i >= 0 && i < j->in[dim] ? i : -1;
}

/* Returns the position whose tap k reads index i along one dim; -1 where there is none. */
WF_HOST_DEVICE static inline int64_t wf_patch_read_by(const wf_patch_job *j, int dim, int64_t i,
                                                      int64_t k)
{
    int64_t at = i + j->a.padding[dim] - k * j->a.dilation[dim];

    if (at < 0 || at % j->a.stride[dim])
        return -1;
    at /= j->a.stride[dim];
    return at < j->out[dim] ? at : -1;
}

/* Returns the pixel that a tap reads at a position, both counted over a sequence; -1 in the
   padding. */
WF_HOST_DEVICE static inline int64_t wf_patch_pixel(const wf_patch_job *j, int64_t position,
                                                    int64_t tap)
{
    int64_t row = wf_patch_reads(j, 0, position / j->out[1], tap / j->a.kernel[1]);
    int64_t column = wf_patch_reads(j, 1, position % j->out[1], tap % j->a.kernel[1]);

    return row < 0 || column < 0 ? -1 : row * j->in[1] + column;
}

/* Returns the position at which a tap reads a pixel; -1 where there is none. */
WF_HOST_DEVICE static inline int64_t wf_patch_position(const wf_patch_job *j, int64_t pixel,
                                                       int64_t tap)
{
    int64_t row = wf_patch_read_by(j, 0, pixel / j->in[1], tap / j->a.kernel[1]);
    int64_t column = wf_patch_read_by(j, 1, pixel % j->in[1], tap % j->a.kernel[1]);

    return row < 0 || column < 0 ? -1 : row * j->out[1] + column;
}

#endif
