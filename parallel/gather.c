/* parallel/gather.c - see the header. */
#include "parallel/gather.h"
#include "mesh/transport/launcher.h"
#include <stdlib.h>
#include <string.h>

enum { SLAB = 1 << 18 };

/* The bytes that rank 0 has received from another one so far. */
typedef struct part {
    char *data;
    uint64_t bytes;
} part;

static void free_parts(part *p, size_t n)
{
    for (size_t r = 0; p && r < n; r++)
        free(p[r].data);
    free(p);
}

/* Room for what comes; NULL: there is none, and the context says so. */
static part *make_parts(wf_context *ctx, const uint64_t *bytes, size_t n)
{
    part *p = calloc(n, sizeof *p);
    bool good = p;

    for (size_t r = 0; good && r < n; r++) {
        p[r] = (part){malloc((size_t)bytes[r] + 1), bytes[r]};
        good = p[r].data;
    }
    if (good)
        return p;
    free_parts(p, n);
    wf_fail(ctx, WF_ENOMEM, "no memory for what ranks of other processes have");
    return NULL;
}

wf_status wf_par_gather(wf_rank *rank, wf_par *par, const void *mine, size_t bytes,
                        wf_par_gather_take *take, void *arg)
{
    wf_context *ctx = wf_par_context(par);
    const uint64_t own = bytes, *sizes = wf_mesh_gather(wf_par_mesh(par), &own, sizeof own);
    char *slab = calloc(1, SLAB);
    part *parts = NULL;
    uint64_t most = 0;

    for (int r = 0; sizes && r < rank->size; r++)
        most = sizes[r] > most ? sizes[r] : most;
    if (!slab)
        wf_fail(ctx, WF_ENOMEM, "no memory for what is handed over");
    else if (sizes && rank->index == 0)
        parts = make_parts(ctx, sizes, (size_t)rank->size);
    for (uint64_t at = 0; at < most && wf_context_status(ctx) == WF_OK; at += SLAB) {
        const char *all;

        if (at < own)
            memcpy(slab, (const char *)mine + at, own - at < SLAB ? own - at : SLAB);
        all = wf_mesh_gather(wf_par_mesh(par), slab, SLAB);
        for (int r = 0; all && parts && r < rank->size; r++)
            if (at < parts[r].bytes)
                memcpy(parts[r].data + at, all + (size_t)r * SLAB,
                       parts[r].bytes - at < SLAB ? parts[r].bytes - at : SLAB);
    }
    for (int r = 0; parts && r < rank->size && wf_context_status(ctx) == WF_OK; r++)
        take(arg, par, r, parts[r].data, (size_t)parts[r].bytes);
    if (parts)
        free_parts(parts, (size_t)rank->size);
    free(slab);
    return wf_context_status(ctx);
}

bool wf_par_gather_needed(const wf_rank *rank)
{
    return rank->local_size < rank->size;
}

/* Rank 0 is in the first process. */
bool wf_par_gather_from(const wf_rank *rank)
{
    return wf_par_gather_needed(rank) && wf_launcher_detected().process > 0;
}
