/*
 * parallel/checkpoint/agree.c - agreement of ranks; see the header.
 *
 * Sums of integers go as floats, byte by byte: those of 65,536 ranks are below 2^24, so they are
 * exact in any order.
 */
#include "parallel/checkpoint/agree.h"
#include <stdlib.h>

enum { BYTES = 8 };

static void to_floats(int64_t n, const uint64_t *sum, float *bytes)
{
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < BYTES; b++)
            bytes[i * BYTES + b] = (float)(sum[i] >> 8 * b & 0xff);
}

static void from_floats(int64_t n, const float *bytes, uint64_t *sum)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] = 0;
        for (int b = 0; b < BYTES; b++)
            sum[i] += (uint64_t)bytes[i * BYTES + b] << 8 * b;
    }
}

/* Some rank has failed: everybody learns what the first of them has to say. */
static wf_status tell(wf_par *par, wf_error *mine)
{
    const wf_error *all = wf_mesh_gather(par->mesh, mine, sizeof *mine);
    int ranks = wf_mesh_ranks(par->mesh), r = 0;
    wf_error first;

    if (!all)
        return wf_context_status(par->ctx);
    while (r < ranks - 1 && all[r].code == WF_OK)
        r++;
    first = all[r];
    *mine = (wf_error){WF_OK, ""};
    if (ranks == 1)
        return wf_error_set(mine, first.code, "%s", first.text);
    return wf_error_set(mine, first.code, "rank %d: %.1500s", r, first.text);
}

wf_status wf_agree(wf_par *par, int64_t n, uint64_t *sum, wf_error *mine)
{
    float *bytes = calloc((size_t)(n * BYTES + 1), sizeof *bytes);
    wf_error lost = {WF_OK, ""};
    wf_status status;

    if (!bytes) { /* this rank can say no more than that it fails; its peers wait for it */
        wf_error_set(mine, WF_ENOMEM, "no memory to agree on %lld numbers", (long long)n);
        return wf_fail(par->ctx, WF_ENOMEM, "%s", mine->text);
    }
    to_floats(n, sum, bytes);
    bytes[n * BYTES] = mine->code != WF_OK;
    status = wf_all_reduce(wf_mesh_world(par->mesh), WF_REDUCE_SUM, bytes, bytes, n * BYTES + 1,
                           &lost);
    if (status != WF_OK) {
        wf_error_set(mine, status, "%s", lost.text);
        wf_fail(par->ctx, status, "%s", lost.text);
    } else if (!wf_context_planning(par->ctx)) {
        from_floats(n, bytes, sum);
        if (bytes[n * BYTES] > 0)
            status = tell(par, mine);
    }
    free(bytes);
    return status;
}
