/* core/files/part.c - parts of tensors; see the header. */
#include "core/files/part_internal.h"
#include <string.h>

int64_t wf_part_count(const wf_part *part)
{
    int64_t n = 1;

    for (int d = 0; d < part->ndim; d++)
        n *= part->local[d];
    return n;
}

wf_part wf_part_of_tensor(const wf_tensor *t)
{
    wf_part part = {.ndim = t->ndim};

    memcpy(part.start, t->start, sizeof part.start);
    memcpy(part.local, t->local, sizeof part.local);
    return part;
}

int64_t wf_part_slab_rows(const wf_part *part)
{
    enum { ELEMENTS = 1 << 16 };
    int64_t row = part->ndim && part->local[0] ? wf_part_count(part) / part->local[0] : 0;

    return row && row < ELEMENTS ? ELEMENTS / row : 1;
}

wf_part wf_part_slab(const wf_part *part, int64_t row, int64_t rows)
{
    wf_part slab = *part;

    if (part->ndim) {
        slab.start[0] += row;
        slab.local[0] = rows < part->local[0] - row ? rows : part->local[0] - row;
    }
    return slab;
}

/* Returns the index of an element of the whole in a part. */
static int64_t index_in(const wf_part *part, const int64_t *at)
{
    int64_t index = 0;

    for (int d = 0; d < part->ndim; d++)
        index = index * part->local[d] + at[d] - part->start[d];
    return index;
}

wf_status wf_part_runs(const wf_part *a, const wf_part *b,
                       wf_status (*run)(void *arg, int64_t at_a, int64_t at_b, int64_t n),
                       void *arg)
{
    int64_t from[WF_MAX_DIMS], to[WF_MAX_DIMS], at[WF_MAX_DIMS], n = 1;
    int outer = a->ndim; /* dims [outer, ndim) make up one run */

    for (int d = 0; d < a->ndim; d++) {
        int64_t end_a = a->start[d] + a->local[d], end_b = b->start[d] + b->local[d];

        at[d] = from[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        to[d] = end_a < end_b ? end_a : end_b;
        if (from[d] >= to[d])
            return WF_OK;
    }
    while (outer > 0) {
        int64_t common = to[outer - 1] - from[outer - 1];
        bool all = common == a->local[outer - 1] && common == b->local[outer - 1];

        n *= common;
        outer--;
        if (!all)
            break;
    }
    for (;;) {
        wf_status status = run(arg, index_in(a, at), index_in(b, at), n);
        int d = outer - 1;

        if (status != WF_OK)
            return status;
        while (d >= 0 && ++at[d] == to[d]) {
            at[d] = from[d];
            d--;
        }
        if (d < 0)
            return WF_OK;
    }
}

typedef struct target {
    const char *data;
    int64_t element, at;
    const wf_file *file;
    wf_error *error;
} target;

static wf_status write_run(void *arg, int64_t at_part, int64_t at_whole, int64_t n)
{
    const target *t = arg;

    return wf_file_write(t->file, t->data + at_part * t->element, (size_t)(n * t->element),
                         t->at + at_whole * t->element, t->error);
}

wf_status wf_part_write(const wf_part *part, const wf_part *whole, const void *data,
                        int64_t element, const wf_file *file, int64_t at, wf_error *error)
{
    target t = {data, element, at, file, error};

    return wf_part_runs(part, whole, write_run, &t);
}
