/* parallel/recovery/elastic_shrink.c - the mesh that a run continues on when ranks are lost;
   see elastic.h. */
#include "parallel/recovery/elastic.h"
#include <inttypes.h>

/* Sets the shape of dp ranks; false: they do not divide groups. */
static bool with_dp(const wf_elastic_shape *asked, int64_t dp, wf_elastic_shape *s)
{
    int64_t most = asked->global_batch / dp;

    *s = *asked;
    s->dp = dp;
    s->micro_batch = 1;
    if (asked->global_batch % dp == 0)
        s->micro_batch = most < asked->micro_batch ? most : asked->micro_batch;
    while (most % s->micro_batch)
        s->micro_batch--;
    if (asked->dp_replicate && asked->dp % asked->dp_replicate == 0) {
        int64_t group = asked->dp / asked->dp_replicate;

        if (dp % group)
            return false;
        s->dp_replicate = dp / group;
    }
    return !asked->shard_group_size || dp % asked->shard_group_size == 0;
}

wf_status wf_elastic_shrink(wf_elastic_shape *shape, int64_t ranks, int64_t min_dp,
                            bool (*serves)(void *arg, const wf_elastic_shape *shape), void *arg,
                            const char *others, wf_error *error)
{
    const wf_elastic_shape asked = *shape;
    int64_t most = ranks / asked.others;

    for (int64_t dp = most < asked.dp ? most : asked.dp; dp >= min_dp && dp > 0; dp--)
        if (with_dp(&asked, dp, shape) && serves(arg, shape))
            return WF_OK;
    *shape = asked;
    return wf_error_set(error, WF_ELOST,
                        "%" PRId64 " ranks are left, and no .dp from .min_dp %" PRId64
                        " on that they are enough for, with %s, and .global_batch_size %" PRId64
                        " keeps the numbers and fits in memory",
                        ranks, min_dp, others, asked.global_batch);
}

wf_status wf_elastic_processes(const wf_elastic_meshes *meshes, void *options, int64_t asked,
                               int *processes, wf_error *error)
{
    int64_t ranks = meshes->ranks(options), each = ranks / asked;
    int n = *processes;

    if (ranks % asked)
        return wf_error_set(error, WF_EINVAL,
                            ".nnodes %" PRId64 " does not divide the %" PRId64 " ranks", asked,
                            ranks);
    if (n < asked && meshes->shrink(options, n * each, error) != WF_OK)
        return error->code;
    ranks = meshes->ranks(options);
    for (n = 1; ranks % n || ranks / n > each; n++)
        continue;
    *processes = n;
    return WF_OK;
}
