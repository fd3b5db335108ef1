/* parallel/recovery/missing.c - what of a tensor has not been found yet; see
   snapshot_internal.h. */
#include "parallel/recovery/snapshot_internal.h"
#include <stdlib.h>

bool wf_missing_add(wf_missing *m, const wf_part *part)
{
    if (m->n == m->room) {
        int64_t room = m->room ? 2 * m->room : 8;
        wf_part *longer = realloc(m->part, (size_t)room * sizeof *longer);

        if (!longer)
            return false;
        m->part = longer;
        m->room = room;
    }
    m->part[m->n++] = *part;
    return true;
}

static bool overlaps(const wf_part *a, const wf_part *b)
{
    for (int d = 0; d < a->ndim; d++)
        if (a->start[d] >= b->start[d] + b->local[d] ||
            b->start[d] >= a->start[d] + a->local[d])
            return false;
    return true;
}

/* Replaces part number j by the rest of it without `found`: slabs below and above it, dim by
   dim. */
static bool subtract(wf_missing *m, int64_t j, const wf_part *found)
{
    wf_part rest = m->part[j];

    m->part[j] = m->part[--m->n];
    for (int d = 0; d < rest.ndim; d++) {
        int64_t end = rest.start[d] + rest.local[d],
                found_end = found->start[d] + found->local[d];
        wf_part slab = rest;

        if (found->start[d] > rest.start[d]) {
            slab.local[d] = found->start[d] - rest.start[d];
            if (!wf_missing_add(m, &slab))
                return false;
            rest.local[d] -= slab.local[d];
            rest.start[d] = found->start[d];
        }
        slab = rest;
        if (found_end < end) {
            slab.start[d] = found_end;
            slab.local[d] = end - found_end;
            if (!wf_missing_add(m, &slab))
                return false;
            rest.local[d] = found_end - rest.start[d];
        }
    }
    return true;
}

bool wf_missing_found(wf_missing *m, const wf_part *found, bool *wanted)
{
    bool good = true;

    *wanted = false;
    for (int64_t j = m->n - 1; j >= 0 && good; j--)
        if (overlaps(&m->part[j], found)) {
            *wanted = true;
            good = subtract(m, j, found);
        }
    return good;
}
