/*
 * kernels/squares.c - the chunks of a norm: one row of dim 0 times one of dim 1's 8 cuts, each
 * element of a vector; of experts' matrices one row of a matrix times one of 8 cuts of it. They
 * are the same for every layout, and are added without rounding.
 */
#include "core/numerics/exact_sum.h"
#include "kernels/shared_internal.h"

void wf_add_squares(const wf_tensor *t, int64_t begin, int64_t end,
                    double (*chunk)(const float *x, int64_t n), wf_exact_sum *sum)
{
    int d = t->ndim > 2 && t->dim[0].chunks == WF_CHUNKS_EXPERTS ? 2 : 1; /* the dim cut */
    int64_t inner = wf_extent(t, d + 1, t->ndim), at[WF_MAX_CHUNKS + 1] = {0};
    int64_t columns = t->ndim > 1 ? t->local[d] * inner : 1;
    int64_t rows = t->ndim > 1 ? wf_extent(t, 1, d) : 1; /* below an index of dim 0 */
    int chunks = t->ndim > 1 ? WF_MAX_CHUNKS : 1;
    const float *x = (const float *)t->data + begin * rows * columns;

    for (int l = 1; l <= chunks && t->ndim > 1; l++) {
        int64_t cut = wf_cut(t->dim[d].size, t->dim[d].grain, WF_MAX_CHUNKS, l) - t->start[d];

        at[l] = (cut < 0 ? 0 : cut > t->local[d] ? t->local[d] : cut) * inner;
    }
    if (t->ndim <= 1)
        at[1] = 1;
    for (int64_t r = begin * rows; r < end * rows; r++, x += columns)
        for (int l = 0; l < chunks; l++)
            if (at[l + 1] > at[l])
                wf_exact_add(sum, chunk(x + at[l], at[l + 1] - at[l]));
}
