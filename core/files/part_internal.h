/*
 * core/files/part_internal.h - a part of a tensor, the runs of elements that two parts have in
 * common, and a part written to its positions in a file that has the whole tensor.
 */
#ifndef WF_CORE_FILES_PART_INTERNAL_H
#define WF_CORE_FILES_PART_INTERNAL_H

#include "core/tensor.h"
#include "core/files/files_internal.h"

/* Elements [start, start + local) of each dim, held row by row. */
typedef struct wf_part {
    int ndim;
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];
} wf_part;

int64_t wf_part_count(const wf_part *part);
wf_part wf_part_of_tensor(const wf_tensor *t);

/* A part in slabs of rows of its dim 0, of some 256 KiB, which stay in a core's caches: how
   many rows a slab has (1 at least); the slab from a row on. */
int64_t wf_part_slab_rows(const wf_part *part);
wf_part wf_part_slab(const wf_part *part, int64_t row, int64_t rows);

/*
 * Call `run` for every run of elements that a and b have in common: `n` elements from element
 * at_a of a and at_b of b on, in ascending order, runs as long as both allow. Stops as above.
 */
wf_status wf_part_runs(const wf_part *a, const wf_part *b,
                       wf_status (*run)(void *arg, int64_t at_a, int64_t at_b, int64_t n),
                       void *arg);

/* Writes a part, of elements of `element` bytes, to its positions in a file that has the whole
   tensor from byte `at` on. */
wf_status wf_part_write(const wf_part *part, const wf_part *whole, const void *data,
                        int64_t element, const wf_file *file, int64_t at, wf_error *error);

#endif
