/* kernels/linear_sum.h - a product with a weight and one with its adapter, as one
   contraction. */
#ifndef WF_KERNELS_LINEAR_SUM_H
#define WF_KERNELS_LINEAR_SUM_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_linear_sum - computes y = x W^T + u B^T: a weight and its adapter (LoRA)
 *
 * @param x, weight  [b, .., k] and [n, k]
 * @param u, more    [b, .., m] and [n, m]
 * Layout:      "b...k,nk,b...m,nm->b...n": k and m are split by the same axes, and y is one
 *              partial sum
 * Sum:         chunk l is one chain through chunk l of k, then chunk l of m
 * Gradient:    to x, u and the weights, as wf_linear's
 */
WF_API wf_tensor *wf_linear_sum(wf_tensor *x, wf_tensor *weight, wf_tensor *u, wf_tensor *more);

WF_END_DECLS

#endif
