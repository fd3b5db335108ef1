/* core/dynamic8_tensor.h - rows that are stored in 8 bits a number
   (core/numerics/dynamic8.h). */
#ifndef WF_CORE_DYNAMIC8_TENSOR_H
#define WF_CORE_DYNAMIC8_TENSOR_H

#include "core/numerics/dynamic8.h"
#include "core/tensor.h"

WF_BEGIN_DECLS

/* Returns the levels that the codes of a type represent. */
static inline const float *wf_dynamic8_levels(wf_dtype dtype)
{
    return dtype == WF_DYNAMIC8 ? wf_dynamic8_signed : wf_dynamic8_unsigned;
}

/* Returns the columns of a row that this rank holds. */
static inline wf_dynamic8_row wf_dynamic8_row_of_tensor(const wf_tensor *t)
{
    const int last = t->ndim - 1;

    return wf_dynamic8_row_of(t->dim[last].size, t->dim[last].grain, t->start[last],
                              t->local[last]);
}

/* Returns this rank's rows: those of all dims but the last. */
static inline int64_t wf_dynamic8_rows(const wf_tensor *t)
{
    int64_t rows = 1;

    for (int d = 0; d < t->ndim - 1; d++)
        rows *= t->local[d];
    return rows;
}

WF_END_DECLS

#endif
