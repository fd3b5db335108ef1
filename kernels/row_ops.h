/*
 * kernels/row_ops.h - ops on rows: the greatest of a row, order, selection by index, running
 * sums, and tensors joined, padded and masked, as PyTorch names them (docs/torch.md). A row is
 * all of the last dim, which is whole on each rank; functions that take a dim work on another
 * one by transposing it there and back.
 *
 * Indices are whole numbers in a tensor of floats, exact up to 2^24, and never stored as bf16;
 * they take no gradient.
 */
#ifndef WF_KERNELS_ROW_OPS_H
#define WF_KERNELS_ROW_OPS_H

#include "core/op.h"

WF_BEGIN_DECLS

/**
 * wf_topk - the k greatest of each row in order, and where they are; wf_sort - all of a row,
 * ascending or descending. NaNs count as greatest, equal ones come in the order of their
 * indices
 *
 * @param values, index  filled with [.., k], [.., n]
 * Layout:      "...n!->...k!,...k!"
 * Gradient:    to x of the values, by wf_scatter
 */
WF_API void wf_topk(wf_tensor *x, int64_t k, wf_tensor **values, wf_tensor **index);
WF_API void wf_sort(wf_tensor *x, bool descending, wf_tensor **values, wf_tensor **index);

/**
 * wf_max, wf_min - the greatest and the least over one dim, which the result lacks; wf_argmax -
 * the index of the first greatest
 *
 * Layout:      "bi!j->bj" for dim 1
 * Gradient:    to x, at that index alone; of wf_argmax none
 */
WF_API wf_tensor *wf_max(wf_tensor *x, int dim);
WF_API wf_tensor *wf_min(wf_tensor *x, int dim);
WF_API wf_tensor *wf_argmax(wf_tensor *x, int dim);

/**
 * wf_gather - y[.., i] = x[.., index[.., i]]; wf_scatter - zeros like a tensor, to which values
 * are added at their indices, one after the other
 *
 * @param like  for its shape
 * Layout:      "...n!,...k!->...k!" and "...n!,...k!,...k!->...n!"
 * Errors:      also WF_EINVAL for an index that is no whole number of [0, n); on a GPU its
 *              element is NaN, and what is to be added there is not
 * Gradient:    to x and to values, each by the other function
 */
WF_API wf_tensor *wf_gather(wf_tensor *x, wf_tensor *index);
WF_API wf_tensor *wf_scatter(wf_tensor *like, wf_tensor *index, wf_tensor *values);

/**
 * wf_one_hot - y[.., i] = 1 where index[..] is i, else 0, for i < classes
 *
 * Layout:      "...->...n!"
 * Gradient:    none
 */
WF_API wf_tensor *wf_one_hot(wf_tensor *index, int64_t classes);

/**
 * wf_cumsum - y[.., i] = x[.., 0] + .. + x[.., i], one chain
 *
 * Layout:      "...n!->...n!"
 * Gradient:    to x, the sums from the end
 */
WF_API wf_tensor *wf_cumsum(wf_tensor *x);

/**
 * wf_tril, wf_triu - matrices of the last two dims, with zeros above and below a diagonal
 *
 * @param diagonal  0 the main one, above it > 0, below it < 0
 * Layout:      "...mn->...mn"
 * Gradient:    to x
 */
WF_API wf_tensor *wf_tril(wf_tensor *x, int64_t diagonal);
WF_API wf_tensor *wf_triu(wf_tensor *x, int64_t diagonal);

/**
 * wf_concat - tensors one after the other along a dim; wf_split - parts of `each` indices, the
 * last one what is left; wf_pad - `before` and `after` more indices along a dim, which hold a
 * value
 *
 * @param count  1 or more; of wf_split, how many parts there are, as ceil(size / each) says
 * Layout:      "bi!j,bz!j->bi!j" for dim 1: the dim is whole on each rank. Its kind
 *              (wf_dim_heads, ..) is the same in all of them
 * Gradient:    to each
 */
WF_API wf_tensor *wf_concat(int count, wf_tensor *const *x, int dim);
WF_API void wf_split(wf_tensor *x, int dim, int64_t each, int count, wf_tensor **parts);
WF_API wf_tensor *wf_pad(wf_tensor *x, int dim, int64_t before, int64_t after, float value);

/**
 * wf_expand - y like a tensor that has one dim more, each index of which holds y: what binary
 * ops broadcast by
 * wf_variance - the mean of squared distances to the mean, over one dim, which the result lacks
 *
 * @param like        for its shape
 * @param correction  subtracted from the number of elements that the sum is divided by: 1 as
 *                    PyTorch's default
 * Layout:      "bj,bij->bij" for dim 1; of a variance "bi!j->bj"
 * Gradient:    to y and to x
 */
WF_API wf_tensor *wf_expand(wf_tensor *y, wf_tensor *like, int dim);
WF_API wf_tensor *wf_variance(wf_tensor *x, int dim, int64_t correction);

/**
 * wf_logsumexp - returns log(sum of exp(x)) over one dim, which the result lacks;
 * wf_log_softmax - x less that of the last dim
 *
 * Both are of the greatest of a row, exponentials of what lies below it, and their sum, by
 * those ops: no exponential overflows. A row of -infinity gives a NaN.
 *
 * Layout:      the dim is whole on each rank
 * Gradient:    to x, by those of the ops
 */
WF_API wf_tensor *wf_logsumexp(wf_tensor *x, int dim);
WF_API wf_tensor *wf_log_softmax(wf_tensor *x);

WF_END_DECLS

#endif
