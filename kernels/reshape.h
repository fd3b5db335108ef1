/*
 * kernels/reshape.h - the same elements under other dims, and tensors of unlike shapes made
 * alike, as PyTorch names these (docs/torch.md).
 */
#ifndef WF_KERNELS_RESHAPE_H
#define WF_KERNELS_RESHAPE_H

#include "core/op.h"

WF_BEGIN_DECLS

/**
 * wf_reshape - the elements of x in their order, under other dims; no copy is made
 *
 * @param dims  their product is that of x's; one size may be -1, what the others leave
 * Layout:      dims of both shapes belong together from where the products of all dims before
 *              them are equal to where they are next equal. The first dim of such a group that
 *              is not 1 keeps its axes where both are cut at the same elements: heads of grain
 *              1 and wf_dim_heads(heads, dim), dims of one size. All others are whole on each
 *              rank: WF_ELAYOUT names the one that is not, to be redistributed first
 * Gradient:    to x
 */
WF_API wf_tensor *wf_reshape(wf_tensor *x, int ndim, const wf_dim *dims);

/**
 * wf_unsqueeze - a dim of size 1 more, before dim `dim` of x; wf_squeeze - one less
 * wf_flatten - the dims first .. last as one, which is cut between indices of the first
 * wf_stack - tensors of one shape along a new dim, wf_dim_width(count)
 *
 * Layout, gradient:  as wf_reshape, and wf_concat for wf_stack
 */
WF_API wf_tensor *wf_unsqueeze(wf_tensor *x, int dim);
WF_API wf_tensor *wf_squeeze(wf_tensor *x, int dim);
WF_API wf_tensor *wf_flatten(wf_tensor *x, int first, int last);
WF_API wf_tensor *wf_stack(int count, wf_tensor *const *x, int dim);

/**
 * wf_broadcast_like - repeats x along the dims of a partner: dims are counted from the last
 * one, and one that x lacks, or has with size 1, is the partner's. Ops of two and three
 * operands element by element do so with all of them
 *
 * @param like  for its shape; where that has size 1 the result has x's size
 * Layout:      "n,bsn->bsn", "s1!,bsn->bsn": each dim of the result is split as where it comes
 *              from, and dims that both have are split alike
 * Gradient:    to x, summed over one repeated dim after the other, the last one first; of a
 *              vector as of wf_bias_add
 * Collective:  that gradient, where ranks split repeated dims besides dim 0: each sum over one
 *              is made whole before the next
 */
WF_API wf_tensor *wf_broadcast_like(wf_tensor *x, wf_tensor *like);

/** wf_broadcast_all - makes n operands alike by wf_broadcast_like where their shapes differ and
 * fit; leaves others as they are, for the op that takes them to refuse. */
WF_API void wf_broadcast_all(int n, wf_tensor **x);

WF_END_DECLS

#endif
