/* parallel/plan/tunables.c - see the header. */
#include "parallel/plan/tunables_internal.h"
#include "parallel/plan/request_internal.h"
#include "parallel/plan/strategy_order_internal.h"
#include "core/dtype.h"
#include "core/numerics/tree.h"
#include <string.h>

enum {
    MOST_RANKS =
        1 << 16, /* more are not proposed: the time of a plan grows with their number */
    DOUBLINGS = 6,
    EXACT_TP = 8 /* up to here no layout shows in the numbers */
};

/* Sets a CHOICE to the one setting of a tunable that has one. */
static wf_plan_set choose(char choice[WF_WORD], const char *word, bool possible)
{
    if (!possible || strcmp(choice, word) == 0)
        return WF_PLAN_SKIP;
    snprintf(choice, WF_WORD, "%s", word);
    return WF_PLAN_SET;
}

/* Returns the heads of a model, over which tp divides attention. */
static int64_t most_tp(const wf_plan_request *o)
{
    return o->job.sizes ? o->job.sizes->heads : MOST_RANKS;
}

static wf_plan_set set_sequence_parallel(wf_plan_request *o, int i)
{
    if (i)
        return WF_PLAN_END;
    if (o->tp < 2 || o->sequence_parallel)
        return WF_PLAN_SKIP;
    o->sequence_parallel = true;
    return WF_PLAN_SET;
}

static wf_plan_set set_async_save(wf_plan_request *o, int i)
{
    if (i)
        return WF_PLAN_END;
    if (!o->async_save)
        return WF_PLAN_SKIP;
    o->async_save = false;
    return WF_PLAN_SET;
}

static wf_plan_set set_cuda_graph(wf_plan_request *o, int i)
{
    if (i)
        return WF_PLAN_END;
    if (!o->cuda_graph)
        return WF_PLAN_SKIP;
    o->cuda_graph = false;
    return WF_PLAN_SET;
}

static wf_plan_set set_prefetch(wf_plan_request *o, int i)
{
    if (i)
        return WF_PLAN_END;
    if (!o->prefetch || o->dp < 2)
        return WF_PLAN_SKIP;
    o->prefetch = 0;
    return WF_PLAN_SET;
}

static wf_plan_set set_wrap(wf_plan_request *o, int i)
{
    static const char *const type[] = {"mlp", "attention"};

    if (i == 2)
        return WF_PLAN_END;
    return choose(o->wrap_type, type[i],
                  o->dp > 1 && !o->job.mesh.wrap_min_params &&
                      strcmp(o->wrap_type, "block") == 0);
}

/* Micro-batches of about a half, a quarter, ... that divide what a rank takes in a step. */
static wf_plan_set set_micro_batch(wf_plan_request *o, int i)
{
    int64_t sequences = o->global_batch_size / o->dp, micro = o->micro_batch_size;

    for (; i >= 0; i--) {
        if (micro < 2)
            return WF_PLAN_END;
        micro /= 2;
        while (sequences % micro)
            micro--;
    }
    o->micro_batch_size = micro;
    return WF_PLAN_SET;
}

int64_t wf_plan_most_pp(const wf_plan_request *o)
{
    return o->job.sizes ? o->job.sizes->layers + 1 : MOST_RANKS;
}

bool wf_plan_set_strategy(wf_plan_request *o, const char *name)
{
    wf_plan_job made;
    int replicate, shard;

    snprintf(o->strategy, sizeof o->strategy, "%s", name);
    if (wf_par_axes(&wf_plan_request_job(o, &made)->mesh, &replicate, &shard, NULL) == WF_OK)
        return true;
    o->dp_replicate = o->shard_group_size = 0; /* strategies without groups take no sizes */
    return wf_par_axes(&wf_plan_request_job(o, &made)->mesh, &replicate, &shard, NULL) == WF_OK;
}

/* Strategies that hold less than the present one, from the one that holds most of them. */
static wf_plan_set set_strategy(wf_plan_request *o, int i)
{
    int now = 0;

    while (wf_strategy_by_memory(now) &&
           strcmp(o->strategy, wf_strategy_by_memory(now)->name) != 0)
        now++;
    i += now + 1;
    if (!wf_strategy_by_memory(i) || o->dp < 2)
        return WF_PLAN_END;
    return wf_plan_set_strategy(o, wf_strategy_by_memory(i)->name) ? WF_PLAN_SET : WF_PLAN_SKIP;
}

/* Experts over 2, 4, .. times as many data-parallel ranks, which gather fewer and move
   tokens. */
static wf_plan_set set_ep(wf_plan_request *o, int i)
{
    int64_t part = wf_plan_ep(o) * ((int64_t)2 << i);
    int64_t experts = o->job.sizes ? o->job.sizes->experts : 0;

    if (o->dp % part || (o->etp > 1 ? 1 : o->tp) * part > experts)
        return WF_PLAN_END;
    wf_plan_set_ep(o, part);
    return WF_PLAN_SET;
}

static wf_plan_set set_reshard(wf_plan_request *o, int i)
{
    return i ? WF_PLAN_END : choose(o->reshard_after_forward, "always", o->dp > 1);
}

static wf_plan_set set_recompute(wf_plan_request *o, int i)
{
    static const char *const what[] = {"attention", "block"};

    return i == 2 ? WF_PLAN_END
                  : choose(o->recompute, what[i],
                           strcmp(o->recompute, "block") != 0 &&
                               strcmp(o->recompute, "stage") != 0);
}

/* Tensor parallelism above `low` and up to `high`, on the same ranks: without sequence
   parallelism and with it, twice what it was, four times, ... */
static wf_plan_set set_tp_between(wf_plan_request *o, int i, int64_t low, int64_t high)
{
    int64_t times = (int64_t)2 << i / 2, tp = o->tp * times;

    if (o->dp % times || tp > high || tp > most_tp(o))
        return WF_PLAN_END;
    if (tp <= low || (i % 2 && o->sequence_parallel))
        return WF_PLAN_SKIP;
    if (o->etp > 1)
        o->etp = tp;
    o->tp = tp;
    o->dp /= times;
    o->sequence_parallel |= i % 2;
    return WF_PLAN_SET;
}

static wf_plan_set set_tp(wf_plan_request *o, int i)
{
    return set_tp_between(o, i, 1, EXACT_TP);
}

/* Stages over 2, 4, .. times as many pipeline ranks, on the same ranks. */
static wf_plan_set set_pp(wf_plan_request *o, int i)
{
    int64_t times = (int64_t)2 << i;

    if (o->dp % times || o->pp * times > wf_plan_most_pp(o))
        return WF_PLAN_END;
    if (o->no_pipeline || o->cuda_graph)
        return WF_PLAN_END; /* neither takes a pipeline */
    o->pp *= times;
    o->dp /= times;
    return WF_PLAN_SET;
}

static wf_plan_set set_large_tp(wf_plan_request *o, int i)
{
    return set_tp_between(o, i, EXACT_TP, MOST_RANKS);
}

/* The word of the i-th type that rounds to fewer bits; NULL after the last. */
static const char *narrow(int i)
{
    for (int d = 0; d < WF_DTYPES; d++)
        if (wf_dtype_is_narrow((wf_dtype)d) && i-- == 0)
            return wf_dtype_word((wf_dtype)d);
    return NULL;
}

static wf_plan_set set_reduce_dtype(wf_plan_request *o, int i)
{
    return narrow(i) ? choose(o->reduce_dtype, narrow(i), o->dp > 1) : WF_PLAN_END;
}

/* Activations, parameters, or both in fewer bits, one type after the other. */
static wf_plan_set set_dtype(wf_plan_request *o, int i)
{
    const char *type = narrow(i / 3);
    wf_plan_set activations, parameters;

    if (!type)
        return WF_PLAN_END;
    i %= 3;
    activations = choose(o->dtype, type, i != 1);
    wf_plan_derive_compute(o);
    parameters = choose(o->param_dtype, type, i != 0);
    if (i == 2)
        return activations == WF_PLAN_SET && parameters == WF_PLAN_SET ? WF_PLAN_SET
                                                                       : WF_PLAN_SKIP;
    return activations == WF_PLAN_SET || parameters == WF_PLAN_SET ? WF_PLAN_SET : WF_PLAN_SKIP;
}

static wf_plan_set set_optimizer(wf_plan_request *o, int i)
{
    static const char *const method[] = {"muon", "sgd"};

    return i == 2 ? WF_PLAN_END
                  : choose(o->optimizer, method[i], strcmp(o->optimizer, "sgd") != 0);
}

/* 2, 4, ... times the data parallelism, with the same global batch as far as it divides. */
static wf_plan_set set_dp(wf_plan_request *o, int i)
{
    if (i >= DOUBLINGS || wf_plan_ranks(o) > MOST_RANKS >> (i + 1))
        return WF_PLAN_END;
    o->dp <<= i + 1;
    if (o->global_batch_size % o->dp) /* fewer than one for each, or not the same number */
        o->global_batch_size = (o->global_batch_size / o->dp + 1) * o->dp;
    if (o->micro_batch_size > o->global_batch_size / o->dp)
        o->micro_batch_size = o->global_batch_size / o->dp;
    while (o->global_batch_size / o->dp % o->micro_batch_size)
        o->micro_batch_size--;
    return WF_PLAN_SET;
}

static wf_plan_set set_more_tp(wf_plan_request *o, int i)
{
    if (i >= DOUBLINGS)
        return WF_PLAN_END;
    o->tp <<= i + 1;
    return o->tp > most_tp(o) || wf_plan_ranks(o) > MOST_RANKS ? WF_PLAN_END : WF_PLAN_SET;
}

/* 2, 4, ... times the ranks that split tokens, where sequences have a chunk for each. */
static wf_plan_set set_more_cp(wf_plan_request *o, int i)
{
    if (i >= DOUBLINGS || !o->job.sizes)
        return WF_PLAN_END;
    o->cp <<= i + 1;
    return o->cp > wf_token_chunks(wf_par_job_tokens(&o->job)) || wf_plan_ranks(o) > MOST_RANKS
               ? WF_PLAN_END
               : WF_PLAN_SET;
}

const wf_plan_tunable wf_plan_tunables[WF_PLAN_TUNABLES] = {
    {WF_PLAN_FREE, NULL, set_sequence_parallel},
    {WF_PLAN_FREE, "steps wait for what is saved", set_async_save},
    {WF_PLAN_FREE, "the host launches every kernel", set_cuda_graph},
    {WF_PLAN_FREE, "ranks wait for each gather", set_prefetch},
    {WF_PLAN_FREE, NULL, set_wrap},
    {WF_PLAN_FREE, "more micro-steps", set_micro_batch},
    {WF_PLAN_FREE, NULL, set_strategy},
    {WF_PLAN_FREE, "tokens move to experts", set_ep},
    {WF_PLAN_FREE, NULL, set_reshard},
    {WF_PLAN_FREE, NULL, set_recompute},
    {WF_PLAN_FREE, NULL, set_tp},
    {WF_PLAN_FREE, "stages wait for each other", set_pp},
    {WF_PLAN_NUMBERS, NULL, set_large_tp},
    {WF_PLAN_NUMBERS, NULL, set_reduce_dtype},
    {WF_PLAN_NUMBERS, NULL, set_dtype},
    {WF_PLAN_NUMBERS, NULL, set_optimizer},
    {WF_PLAN_RANKS, NULL, set_dp},
    {WF_PLAN_RANKS, NULL, set_more_tp},
    {WF_PLAN_RANKS, NULL, set_more_cp},
};
