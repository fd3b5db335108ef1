/* parallel/agree.c - agreement of ranks; see the header. */
#include "parallel/agree_internal.h"
#include "core/failed_rank.h"
#include "mesh/comm/collective.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up the tree: what the ranks below have, and `mine`. Down by one broadcast, which ends well on
   all ranks or on none: a rank that knows may fail and leave at once, and its peers know it
   too. */
static wf_status up_and_down(wf_comm *world, size_t bytes, void *mine, void *room,
                             wf_combine *combine, wf_error *error)
{
    int rank = wf_comm_rank(world), size = wf_comm_size(world), child = 2 * rank + 1;
    int64_t n = (int64_t)bytes;
    wf_status status = WF_OK;

    for (int c = child; c <= child + 1 && c < size && status == WF_OK; c++) {
        status = wf_recv(world, 1, c, room, n, error);
        if (status == WF_OK && combine)
            combine(mine, room, bytes);
    }
    if (rank > 0 && status == WF_OK)
        status = wf_send(world, 1, (rank - 1) / 2, mine, n, error);
    return status == WF_OK ? wf_broadcast(world, 1, 0, mine, n, error) : status;
}

wf_status wf_agree_on(wf_par *par, size_t bytes, void *mine, wf_combine *combine)
{
    wf_blocks *blocks = wf_context_blocks(par->ctx);
    void *room = wf_blocks_take(blocks, bytes);
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (!room)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory to agree on %zu bytes", bytes);
    if (wf_context_dry_run(par->ctx)) /* nothing comes */
        combine = NULL;
    status = up_and_down(wf_mesh_world(par->mesh), bytes, mine, room, combine, &error);
    wf_blocks_give(blocks, room, bytes);
    return status == WF_OK ? WF_OK : wf_fail(par->ctx, status, "%s", error.text);
}

static void add(void *into, const void *from, size_t bytes)
{
    const uint64_t *b = from;
    uint64_t *a = into;

    for (size_t i = 0; i < bytes / sizeof *a; i++)
        a[i] += b[i];
}

/* The failure of a rank, as it is sent. */
typedef struct failure {
    int rank;
    wf_error error;
} failure;

static void take_lower(void *into, const void *from, size_t bytes)
{
    const failure *b = from;
    failure *a = into;

    (void)bytes;
    if (b->error.code != WF_OK && (a->error.code == WF_OK || b->rank < a->rank))
        *a = *b;
}

/* Some rank has failed: all learn the first one's error. */
static wf_status share_error(wf_par *par, wf_error *mine)
{
    failure first = {wf_context_rank(par->ctx), *mine};
    char prefix[32] = "";

    if (mine->code != WF_OK && wf_mesh_ranks(par->mesh) > 1)
        wf_comm_locate(wf_mesh_world(par->mesh), &first.error);
    if (wf_agree_on(par, sizeof first, &first, take_lower) != WF_OK)
        /* one that knew already has left */
        return mine->code != WF_OK ? mine->code
                                   : wf_error_set(mine, wf_context_status(par->ctx), "%s",
                                                  wf_context_error(par->ctx)->text);
    *mine = (wf_error){WF_OK, ""};
    if (wf_mesh_ranks(par->mesh) == 1)
        return wf_error_set(mine, first.error.code, "%s", first.error.text);
    if (!wf_names_rank(first.error.text))
        snprintf(prefix, sizeof prefix, "rank %d: ", first.rank);
    return wf_error_set(mine, first.error.code, "%s%.1500s", prefix, first.error.text);
}

wf_status wf_par_fail_as(wf_par *par, int rank, wf_status code, const char *text)
{
    wf_error woken = {WF_OK, ""};

    if (wf_context_rank(par->ctx) != rank) /* the barrier ends when that rank has failed */
        wf_barrier(wf_mesh_world(par->mesh), &woken);
    wf_fail(par->ctx, code, "%s", text);
    if (wf_context_rank(par->ctx) == rank)
        wf_par_abandon(par);
    return wf_context_status(par->ctx);
}

wf_status wf_agree(wf_par *par, int64_t n, uint64_t *sum, wf_error *mine)
{
    size_t bytes = ((size_t)n + 1) * sizeof *sum;
    uint64_t *all = malloc(bytes); /* the numbers, and how many have failed */
    wf_status status;

    if (!all) /* this rank can say no more than that it fails, and its peers wait for it */
        return wf_fail(
            par->ctx,
            wf_error_set(mine, WF_ENOMEM, "no memory to agree on %lld numbers", (long long)n),
            "no memory to agree on %lld numbers", (long long)n);
    if (n)
        memcpy(all, sum, (size_t)n * sizeof *sum);
    all[n] = mine->code != WF_OK;
    status = wf_agree_on(par, bytes, all, add);
    if (status != WF_OK) {
        wf_error_set(mine, status, "%s", wf_context_error(par->ctx)->text);
    } else if (!wf_context_dry_run(par->ctx)) {
        if (n)
            memcpy(sum, all, (size_t)n * sizeof *sum);
        if (all[n])
            status = share_error(par, mine);
    }
    free(all);
    return status;
}
