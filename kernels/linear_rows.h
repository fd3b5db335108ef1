/*
 * kernels/linear_rows.h - gradients of matrices with a row per sequence, as those of vectors
 * have: for ranks that split the tokens of sequences, and add those of each sequence before
 * sequences are added.
 */
#ifndef WF_KERNELS_LINEAR_ROWS_H
#define WF_KERNELS_LINEAR_ROWS_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_comes_in_rows - returns true where gradients of matrices over the rows of dy [b, .., n]
 * come with a row per sequence: where a context is exact, ranks split the tokens of each
 * sequence (dim 1), and some have several sequences
 *
 * Leaves then have gradients of one dim more than their own, [b, n, k], partial over what
 * splits tokens; wf_par_trainer sums them, and a loop of one's own has to.
 */
WF_API bool wf_comes_in_rows(const wf_tensor *dy);

/**
 * wf_linear_dw_rows - returns dW[b, n, k] = sum over the rows r of sequence b of dy[b, r, n]
 * x[b, r, k], wf_linear_dw of each sequence
 *
 * @param dy    [b, .., n]
 * @param x     [b, .., k]
 * @param into  NULL, or where to write it (rows of a larger tensor)
 * Layout:      "b...n,b...k->bnk"
 * Collective:  no
 * Owner:       scope, or as of into
 * Errors:      WF_ESHAPE, WF_ELAYOUT; result is then NULL
 * Gradient:    none
 */
WF_API wf_tensor *wf_linear_dw_rows(wf_tensor *dy, wf_tensor *x, wf_tensor *into);

/**
 * wf_linear_dw_to_row - writes dW of a part of a sequence to row i of the gradients of all, to
 * which wf_linear_dw_add adds other parts
 *
 * @param dy    [parts, tokens, n]
 * @param x     [parts, tokens, k]
 * @param rows  [b, n, k], as of wf_linear_dw_rows; a fake one gives a fake result
 * Layout:      as of wf_linear_dw
 * Collective:  no
 * Owner:       scope; the result is a view of the row, [n, k]
 * Errors:      WF_ESHAPE, WF_ELAYOUT; result is then NULL
 * Gradient:    none
 */
WF_API wf_tensor *wf_linear_dw_to_row(wf_tensor *dy, wf_tensor *x, wf_tensor *rows, int64_t i);

WF_END_DECLS

#endif
