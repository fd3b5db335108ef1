/* core/nf4_tensor.h - matrices that are stored as NF4 (core/numerics/nf4.h): made, filled and
   read. */
#ifndef WF_CORE_NF4_TENSOR_H
#define WF_CORE_NF4_TENSOR_H

#include "core/numerics/nf4.h"
#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_nf4_new - makes a matrix of this rank's part as NF4, contents undefined
 *
 * @param as  WF_F32 or WF_BF16: the type of the numbers that it represents: level times scale,
 *            rounded to this. Ops take them as they would take a tensor of that type
 * Owner:     the innermost open scope
 * Errors:    as wf_tensor_new; WF_ELAYOUT: of more than three dims, two between the first and
 *            the last are split
 */
WF_API wf_tensor *wf_nf4_new(wf_context *ctx, int ndim, const wf_dim *dims,
                             const wf_layout *layout, wf_memory_kind kind, wf_dtype as);

/** wf_nf4_absent - makes a tensor like t whose memory comes later (wf_tensor_absent), in
 * another layout of the same rows; it shares t's scales. Owner: the innermost open scope. */
WF_API wf_tensor *wf_nf4_absent(wf_tensor *t, const wf_layout *layout);

/** wf_nf4_part_of - returns the part of its matrix that this rank holds: rows are those of all
 * dims but the last, one after the other; wf_nf4_part_at - the part of a tensor that is not
 * made yet. */
WF_API wf_nf4_part wf_nf4_part_of(const wf_tensor *t);
WF_API wf_nf4_part wf_nf4_part_at(int ndim, const wf_dim *dims, const int64_t *start,
                                  const int64_t *local);

/** wf_nf4_scale_count - returns the number of scales of a matrix: one for all of it, and one
 * for each 16,384 of its elements. */
WF_API int64_t wf_nf4_scale_count(int ndim, const wf_dim *dims);

/**
 * wf_nf4_store - quantizes values into this rank's part
 *
 * @param values  of this part
 * @param absmax  of all blocks of the matrix (wf_nf4_absmax), over all ranks
 * Errors:        WF_ENOMEM in the context
 */
WF_API wf_status wf_nf4_store(wf_tensor *t, const float *values, const float *absmax);

/** wf_nf4_values - dequantizes rows [row, row + rows) of this rank's part, from data that the
 * host can read. */
WF_API void wf_nf4_values(const wf_tensor *t, const uint8_t *bytes, const float *scales,
                          int64_t row, int64_t rows, float *to);

WF_END_DECLS

#endif
