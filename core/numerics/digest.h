/*
 * core/numerics/digest.h - the digest of a model: the sum mod 2^64 of a mix of (path, kind,
 * global index, bits) over its elements. A sum has no order, so the digest doesn't depend on
 * how the elements are spread; each rank sums its own and the sums are added.
 */
#ifndef WF_CORE_NUMERICS_DIGEST_H
#define WF_CORE_NUMERICS_DIGEST_H

#include "core/export.h"
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_digest_path - returns the hash of a parameter's path, "block.3.attn.qkv.weight" for
 * instance. */
WF_API uint64_t wf_digest_path(const char *path);

/**
 * wf_digest_element - returns the term of one element in a digest
 *
 * @param path_hash  of wf_digest_path
 * @param kind       distinguishes the tensors of one parameter (value, moments)
 * @param index      of the element in the whole tensor
 * @param bits       of its value
 */
WF_API uint64_t wf_digest_element(uint64_t path_hash, uint32_t kind, uint64_t index,
                                  uint32_t bits);

/** wf_digest_run - returns the sum of wf_digest_element over x[0 .. n - 1], elements
 * first_index and on of the tensor. */
WF_API uint64_t wf_digest_run(uint64_t path_hash, uint32_t kind, uint64_t first_index,
                              const float *x, int64_t n);

/** wf_digest_part - returns the sum over a part of a tensor, held row by row: elements [start,
 * start + local) of each dim of `size` elements. */
WF_API uint64_t wf_digest_part(uint64_t path_hash, uint32_t kind, int ndim, const int64_t *size,
                               const int64_t *start, const int64_t *local, const float *x);

WF_END_DECLS

#endif
