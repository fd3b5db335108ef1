/*
 * kernels/conv.h - convolutions of sequences and images as exact products over patches. The
 * channels are the last dim, as the features of linear layers are: x is [batch, length,
 * channels] or [batch, rows, columns, channels] (PyTorch's channels_last); weights lie as
 * PyTorch's do.
 */
#ifndef WF_KERNELS_CONV_H
#define WF_KERNELS_CONV_H

#include "core/op.h"

WF_BEGIN_DECLS

/** wf_conv_options - zeros: stride 1, no padding, dilation 1, one group. Rows, then columns; of
 * a sequence the first number alone is read. */
typedef struct wf_conv_options {
    int stride[2], padding[2], dilation[2];
    int groups;
} wf_conv_options;

/**
 * wf_patches - returns the numbers under a kernel at each of its positions: torch's unfold
 *
 * @param x        [b, length, c] or [b, rows, columns, c]
 * @param kernel   its length, or rows and columns
 * @param options  groups are not read; NULL: none
 * Returns:     [b, positions.., c, taps], +0 for what lies in the padding
 * Layout:      "bs!c->bn!ck!": the dims that a kernel moves over are whole on each rank,
 *              channels and batch as they are
 * Gradient:    to x, each pixel the sum over the taps that read it in their order: by
 *              wf_patches_grad (like for its shape)
 */
WF_API wf_tensor *wf_patches(wf_tensor *x, const int *kernel, const wf_conv_options *options);
WF_API wf_tensor *wf_patches_grad(wf_tensor *like, wf_tensor *dy, const int *kernel,
                                  const wf_conv_options *options);

/**
 * wf_conv - y[b, o.., n] = sum over c and taps of x[b, o * stride - padding + tap * dilation,
 * c] weight[n, c, tap]: wf_linear over wf_patches, with its order of sums, forward and backward
 *
 * @param weight   [n, c / groups, taps] for sequences, [n, c / groups, rows, columns] for
 *                 images; n and c are made of `groups` parts alike
 * Layout:      as wf_patches and then wf_linear: n may be split, or c, which leaves a partial
 *              sum. With groups, where c and n are wf_dim_heads(groups, ..), whole groups
 * Gradient:    to x and weight, a chunk per sequence
 */
WF_API wf_tensor *wf_conv(wf_tensor *x, wf_tensor *weight, const wf_conv_options *options);

/** wf_conv_patched - multiplies patches that are there, [b, o.., c, taps], as wf_conv does. */
WF_API wf_tensor *wf_conv_patched(wf_tensor *patches, wf_tensor *weight, int groups);

WF_END_DECLS

#endif
