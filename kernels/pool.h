/*
 * kernels/pool.h - what vision and audio models have around convolutions: pooling, more pixels,
 * transposed convolutions, group norms. Channels are the last dim, as in kernels/conv.h: x is
 * [batch, length, channels] or [batch, rows, columns, channels].
 */
#ifndef WF_KERNELS_POOL_H
#define WF_KERNELS_POOL_H

#include "kernels/conv.h"

WF_BEGIN_DECLS

/**
 * wf_avg_pool, wf_max_pool - the mean and the greatest of the numbers under a kernel at each of
 * its positions
 *
 * @param kernel   its length, or rows and columns
 * @param options  a stride of 0 is the kernel's size; padding is at most half of the kernel:
 *                 its zeros count in a mean, and it is never the greatest. groups is 0 or 1.
 *                 NULL: none
 * Layout:      as wf_patches: the dims that a kernel moves over are whole on each rank,
 *              channels and batch as they are
 * Gradient:    to x; of a greatest to the first one under the kernel
 */
WF_API wf_tensor *wf_avg_pool(wf_tensor *x, const int *kernel, const wf_conv_options *options);
WF_API wf_tensor *wf_max_pool(wf_tensor *x, const int *kernel, const wf_conv_options *options);

/**
 * wf_upsample - repeats each index of the dims between batch and channels: torch's "nearest"
 * wf_upsample_linear - puts points on the lines between them: its "linear" and "bilinear", with
 * align_corners=False
 *
 * @param factor  of the length, or of rows and columns; 1 or more
 * Layout:      those dims are whole on each rank, channels and batch as they are
 * Gradient:    to x
 */
WF_API wf_tensor *wf_upsample(wf_tensor *x, const int *factor);
WF_API wf_tensor *wf_upsample_linear(wf_tensor *x, const int *factor);

/**
 * wf_conv_transpose - adds weight[n, c, tap] x[b, o.., n] to y[b, o * stride - padding + tap *
 * dilation, c]: the transpose of wf_conv, a product and then wf_patches_grad
 *
 * @param weight   [n, c, taps] for sequences, [n, c, rows, columns] for images, as torch's
 * @param options  groups is 0 or 1
 * @param more     further indices of each dim, fewer than its stride; NULL: none
 * Layout:      n may be split, which leaves a partial sum, or c; dims that the kernel moves
 *              over are whole on each rank
 * Gradient:    to x and weight, a chunk per sequence
 */
WF_API wf_tensor *wf_conv_transpose(wf_tensor *x, wf_tensor *weight,
                                    const wf_conv_options *options, const int *more);

/**
 * wf_group_norm - the norm of each sequence and group of channels, over all that is between,
 * with a weight and a bias for each channel
 *
 * @param x             [batch, .., channels]
 * @param groups        divide the channels
 * @param weight, bias  [channels], or NULL
 * @param eps           added to the variance
 * Layout:      the batch may be split, and channels that are wf_dim_heads(groups, ..), by whole
 *              groups; the dims between are whole on each rank
 * Gradient:    to x, weight and bias; of the last two as of wf_bias_add
 */
WF_API wf_tensor *wf_group_norm(wf_tensor *x, int64_t groups, wf_tensor *weight,
                                wf_tensor *bias, float eps);

WF_END_DECLS

#endif
