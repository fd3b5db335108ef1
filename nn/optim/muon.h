/*
 * nn/optim/muon.h - the direction of Muon (Jordan et al. 2024): a matrix with its singular
 * values brought near 1.
 */
#ifndef WF_NN_OPTIM_MUON_H
#define WF_NN_OPTIM_MUON_H

#include "core/context.h"

WF_BEGIN_DECLS

/**
 * wf_nn_orthogonalize - makes five Newton-Schulz steps on a whole matrix, in place
 *
 *     x = x / (|x| + 1e-7), then x = a x + (b A + c A A) x with A = x x^T, each step
 *     (a, b, c) = (3.4445, -4.7750, 2.0315); the smaller of the two sides is that of A
 *
 * @param x  [rows, columns], whole on this rank, f32, not on a tape
 * Collective:  no: one rank may do it alone
 * Errors:      WF_ESHAPE where it is no matrix or not whole, WF_ENOMEM
 */
WF_API wf_status wf_nn_orthogonalize(wf_tensor *x);

WF_END_DECLS

#endif
