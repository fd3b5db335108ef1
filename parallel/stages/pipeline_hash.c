/*
 * parallel/stages/pipeline_hash.c - a pipeline as a text with a hash that all ranks compare:
 * those of other processes have made theirs by themselves, maybe of another file.
 */
#include "parallel/stages/pipeline_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(uint64_t *hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

static uint64_t hash_of(const wf_par_pipeline *p)
{
    uint64_t hash = 14695981039346656037u;
    int ranks = wf_pipe_table_shape(p->table).ranks;

    add(&hash, p->first, ((size_t)p->stages + 1) * sizeof *p->first);
    for (int s = 0; s < p->stages; s++) {
        int rank = wf_pipe_table_rank(p->table, s);

        add(&hash, &rank, sizeof rank);
    }
    for (int r = 0; r < ranks; r++) {
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(p->table, r, &n);

        add(&hash, &n, sizeof n);
        for (int64_t i = 0; i < n; i++) {
            int field[] = {a[i].kind, a[i].with_next, a[i].stage, a[i].micro, a[i].last};

            add(&hash, field, sizeof field);
        }
    }
    return hash;
}

void wf_par_pipeline_describe(wf_par_pipeline *p)
{
    char *text = p->head.job;
    const size_t size = sizeof p->head.job;
    size_t schedule = strcspn(p->text, ";"), used;

    used = (size_t)snprintf(text, size, "%.*s (%016" PRIx64 "), cut before steps",
                            schedule < 120 ? (int)schedule : 120, p->text, hash_of(p));
    for (int s = 1; s < p->stages && used < size; s++)
        used += (size_t)snprintf(text + used, size - used, "%s %" PRId64, s > 1 ? "," : "",
                                 p->first[s]);
}
