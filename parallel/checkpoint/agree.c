/*
 * parallel/checkpoint/agree.c - agreement of ranks; see the header.
 *
 * Sums go up a binary tree of ranks and come down again: a rank talks to its parent and two
 * children at most, however many ranks there are.
 */
#include "parallel/checkpoint/agree_internal.h"
#include "mesh/health/recorder_events.h"
#include <stdlib.h>
#include <string.h>

/* Some rank has failed: everybody learns what the first of them has to say. */
static wf_status tell(wf_par *par, wf_error *mine)
{
    int ranks = wf_mesh_ranks(par->mesh), r = 0;
    const wf_error *all;
    wf_error first;

    if (mine->code != WF_OK && ranks > 1)
        wf_recorder_locate(wf_mesh_world(par->mesh), mine);
    all = wf_mesh_gather(par->mesh, mine, sizeof *mine);

    if (!all && mine->code == WF_OK) /* one that knew already has left */
        wf_error_set(mine, wf_context_status(par->ctx), "%s", wf_context_error(par->ctx)->text);
    if (!all)
        return mine->code;
    while (r < ranks - 1 && all[r].code == WF_OK)
        r++;
    first = all[r];
    *mine = (wf_error){WF_OK, ""};
    if (ranks == 1)
        return wf_error_set(mine, first.code, "%s", first.text);
    return wf_error_set(mine, first.code, "rank %d: %.1500s", r, first.text);
}

/* sum[0 .. n) of the ranks below this one and its own, then those of all; room has n too. */
static wf_status add_up(wf_comm *world, int64_t n, uint64_t *sum, uint64_t *room,
                        wf_error *error)
{
    int rank = wf_comm_rank(world), size = wf_comm_size(world), child = 2 * rank + 1;
    wf_status status = WF_OK;

    for (int c = child; c <= child + 1 && c < size && status == WF_OK; c++) {
        status = wf_recv(world, sizeof *sum, c, room, n, error);
        for (int64_t i = 0; i < n; i++)
            sum[i] += room[i];
    }
    if (rank > 0 && status == WF_OK)
        status = wf_send(world, sizeof *sum, (rank - 1) / 2, sum, n, error);
    if (rank > 0 && status == WF_OK)
        status = wf_recv(world, sizeof *sum, (rank - 1) / 2, sum, n, error);
    for (int c = child; c <= child + 1 && c < size && status == WF_OK; c++)
        status = wf_send(world, sizeof *sum, c, sum, n, error);
    return status;
}

wf_status wf_agree(wf_par *par, int64_t n, uint64_t *sum, wf_error *mine)
{
    uint64_t *all = calloc(2 * (size_t)n + 2, sizeof *all); /* the numbers, and who failed */
    wf_error lost = {WF_OK, ""};
    wf_status status;

    if (!all) /* this rank can say no more than that it fails, and its peers wait for it */
        return wf_fail(
            par->ctx,
            wf_error_set(mine, WF_ENOMEM, "no memory to agree on %lld numbers", (long long)n),
            "no memory to agree on %lld numbers", (long long)n);
    if (n)
        memcpy(all, sum, (size_t)n * sizeof *sum);
    all[n] = mine->code != WF_OK;
    status = add_up(wf_mesh_world(par->mesh), n + 1, all, all + n + 1, &lost);
    if (status != WF_OK) {
        wf_error_set(mine, status, "%s", lost.text);
        wf_fail(par->ctx, status, "%s", lost.text);
    } else if (!wf_context_dry_run(par->ctx)) {
        if (n)
            memcpy(sum, all, (size_t)n * sizeof *sum);
        if (all[n])
            status = tell(par, mine);
    }
    free(all);
    return status;
}
