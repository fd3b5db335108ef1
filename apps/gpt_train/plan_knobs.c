/* apps/gpt_train/plan_knobs.c - see the header. */
#include "apps/gpt_train/plan_knobs.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/strategy_order.h"
#include "core/dtype.h"
#include <string.h>

enum {
    MOST_RANKS =
        1 << 16, /* more are not proposed: the time of a plan grows with their number */
    DOUBLINGS = 6,
    EXACT_TP = 8 /* up to here no layout shows in the numbers */
};

/* A CHOICE as setting i of a knob that has one. */
static plan_set choose(char choice[APP_CHOICE_LENGTH], const char *word, bool possible)
{
    if (!possible || strcmp(choice, word) == 0)
        return PLAN_SKIP;
    snprintf(choice, APP_CHOICE_LENGTH, "%s", word);
    return PLAN_SET;
}

static plan_set set_sequence_parallel(app_options *o, int i)
{
    if (i)
        return PLAN_END;
    if (o->tp < 2 || o->sequence_parallel)
        return PLAN_SKIP;
    o->sequence_parallel = true;
    return PLAN_SET;
}

static plan_set set_async_save(app_options *o, int i)
{
    if (i)
        return PLAN_END;
    if (!o->async_save || !o->save)
        return PLAN_SKIP;
    o->async_save = false;
    return PLAN_SET;
}

static plan_set set_cuda_graph(app_options *o, int i)
{
    if (i)
        return PLAN_END;
    if (!o->cuda_graph)
        return PLAN_SKIP;
    o->cuda_graph = false;
    return PLAN_SET;
}

static plan_set set_prefetch(app_options *o, int i)
{
    if (i)
        return PLAN_END;
    if (!o->prefetch || o->dp < 2)
        return PLAN_SKIP;
    o->prefetch = 0;
    return PLAN_SET;
}

static plan_set set_wrap(app_options *o, int i)
{
    static const char *const type[] = {"mlp", "attention"};

    if (i == 2)
        return PLAN_END;
    return choose(o->wrap_type, type[i],
                  o->dp > 1 && !o->wrap_min_params && strcmp(o->wrap_type, "block") == 0);
}

/* Micro-batches of about a half, a quarter, ... that divide what a rank takes in a step. */
static plan_set set_micro_batch(app_options *o, int i)
{
    int64_t sequences = o->global_batch_size / o->dp, micro = o->micro_batch_size;

    for (; i >= 0; i--) {
        if (micro < 2)
            return PLAN_END;
        micro /= 2;
        while (sequences % micro)
            micro--;
    }
    o->micro_batch_size = micro;
    return PLAN_SET;
}

bool plan_set_strategy(app_options *o, const char *name)
{
    wf_par_options layout;
    int replicate, shard;

    snprintf(o->strategy, sizeof o->strategy, "%s", name);
    layout = app_setup_rank(o, true);
    if (wf_par_axes(&layout, &replicate, &shard, NULL) == WF_OK)
        return true;
    o->dp_replicate = o->shard_group_size = 0; /* strategies without groups take no sizes */
    layout = app_setup_rank(o, true);
    return wf_par_axes(&layout, &replicate, &shard, NULL) == WF_OK;
}

/* Strategies that hold less than the present one, from the one that holds most of them. */
static plan_set set_strategy(app_options *o, int i)
{
    int now = 0;

    while (strategy_by_memory(now) && strcmp(o->strategy, strategy_by_memory(now)->name) != 0)
        now++;
    i += now + 1;
    if (!strategy_by_memory(i) || o->dp < 2)
        return PLAN_END;
    return plan_set_strategy(o, strategy_by_memory(i)->name) ? PLAN_SET : PLAN_SKIP;
}

static plan_set set_reshard(app_options *o, int i)
{
    return i ? PLAN_END : choose(o->reshard_after_forward, "always", o->dp > 1);
}

static plan_set set_recompute(app_options *o, int i)
{
    static const char *const what[] = {"attention", "block"};

    return i == 2 ? PLAN_END
                  : choose(o->recompute, what[i],
                           strcmp(o->recompute, "block") != 0 &&
                               strcmp(o->recompute, "stage") != 0);
}

/* Tensor parallelism above `low` and up to `high`, on the same ranks: without sequence parallelism
   and with it, twice what it was, four times, ... */
static plan_set set_tp_between(app_options *o, int i, int64_t low, int64_t high)
{
    int64_t times = (int64_t)2 << i / 2, tp = o->tp * times;

    if (o->dp % times || tp > high || tp > o->n_head)
        return PLAN_END;
    if (tp <= low || (i % 2 && o->sequence_parallel))
        return PLAN_SKIP;
    o->tp = tp;
    o->dp /= times;
    o->sequence_parallel |= i % 2;
    return PLAN_SET;
}

static plan_set set_tp(app_options *o, int i)
{
    return set_tp_between(o, i, 1, EXACT_TP);
}

/* Stages over 2, 4, .. times as many pipeline ranks, on the same ranks. */
static plan_set set_pp(app_options *o, int i)
{
    int64_t times = (int64_t)2 << i;

    if (o->dp % times || o->pp * times > o->n_layer + 1)
        return PLAN_END;
    if (strcmp(o->transport, "nccl") == 0 || o->cuda_graph)
        return PLAN_END; /* neither takes a pipeline */
    o->pp *= times;
    o->dp /= times;
    return PLAN_SET;
}

static plan_set set_large_tp(app_options *o, int i)
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

static plan_set set_reduce_dtype(app_options *o, int i)
{
    return narrow(i) ? choose(o->reduce_dtype, narrow(i), o->dp > 1) : PLAN_END;
}

/* Activations, parameters, or both in fewer bits, one type after the other. */
static plan_set set_dtype(app_options *o, int i)
{
    const char *type = narrow(i / 3);
    plan_set activations, parameters;

    if (!type)
        return PLAN_END;
    i %= 3;
    activations = choose(o->dtype, type, i != 1);
    app_options_derive_compute(o);
    parameters = choose(o->param_dtype, type, i != 0);
    if (i == 2)
        return activations == PLAN_SET && parameters == PLAN_SET ? PLAN_SET : PLAN_SKIP;
    return activations == PLAN_SET || parameters == PLAN_SET ? PLAN_SET : PLAN_SKIP;
}

static plan_set set_optimizer(app_options *o, int i)
{
    static const char *const method[] = {"muon", "sgd"};

    return i == 2 ? PLAN_END
                  : choose(o->optimizer, method[i], strcmp(o->optimizer, "sgd") != 0);
}

/* 2, 4, ... times the data parallelism, with the same global batch as far as it divides. */
static plan_set set_dp(app_options *o, int i)
{
    if (i >= DOUBLINGS || app_options_ranks(o) > MOST_RANKS >> (i + 1))
        return PLAN_END;
    o->dp <<= i + 1;
    if (o->global_batch_size % o->dp) /* fewer than one for each, or not the same number */
        o->global_batch_size = (o->global_batch_size / o->dp + 1) * o->dp;
    if (o->micro_batch_size > o->global_batch_size / o->dp)
        o->micro_batch_size = o->global_batch_size / o->dp;
    while (o->global_batch_size / o->dp % o->micro_batch_size)
        o->micro_batch_size--;
    return PLAN_SET;
}

static plan_set set_more_tp(app_options *o, int i)
{
    if (i >= DOUBLINGS)
        return PLAN_END;
    o->tp <<= i + 1;
    return o->tp > o->n_head || app_options_ranks(o) > MOST_RANKS ? PLAN_END : PLAN_SET;
}

const plan_knob plan_knobs[PLAN_KNOBS] = {
    {PLAN_FREE, NULL, set_sequence_parallel},
    {PLAN_FREE, "steps wait for what is saved", set_async_save},
    {PLAN_FREE, "the host launches every kernel", set_cuda_graph},
    {PLAN_FREE, "ranks wait for each gather", set_prefetch},
    {PLAN_FREE, NULL, set_wrap},
    {PLAN_FREE, "more micro-steps", set_micro_batch},
    {PLAN_FREE, NULL, set_strategy},
    {PLAN_FREE, NULL, set_reshard},
    {PLAN_FREE, NULL, set_recompute},
    {PLAN_FREE, NULL, set_tp},
    {PLAN_FREE, "stages wait for each other", set_pp},
    {PLAN_NUMBERS, NULL, set_large_tp},
    {PLAN_NUMBERS, NULL, set_reduce_dtype},
    {PLAN_NUMBERS, NULL, set_dtype},
    {PLAN_NUMBERS, NULL, set_optimizer},
    {PLAN_RANKS, NULL, set_dp},
    {PLAN_RANKS, NULL, set_more_tp},
};

/* A key and its new value, as a flag. */
static void add_flag(const char *key, const json_t *value, char *text, size_t size)
{
    char name[48], word[64];
    size_t used = strlen(text);

    snprintf(name, sizeof name, "%s", key);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
    if (json_is_string(value))
        snprintf(word, sizeof word, " %s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(word, sizeof word, " %lld", (long long)json_integer_value(value));
    else
        snprintf(word, sizeof word, "%s", json_is_true(value) ? "" : " off");
    snprintf(text + used, size - used, "%s--%s%s", used ? " " : "", name, word);
}

void plan_flags(const app_options *from, const app_options *other, char *text, size_t size)
{
    json_t *before = app_options_json(from), *after = app_options_json(other), *value;
    const char *key;
    /* what follows from dp, and from dtype, where it is not given */
    bool dtype = strcmp(from->dtype, other->dtype) != 0 &&
                 strcmp(other->dtype, other->param_dtype) != 0 &&
                 !from->given[APP_OPTION_param_dtype];
    bool micro = from->dp != other->dp && !from->given[APP_OPTION_micro_batch_size];

    *text = 0;
    if (before && after)
        json_object_foreach(
            after, key,
            value) if ((!json_equal(value, json_object_get(before, key)) &&
                        (from->given[APP_OPTION_compute] || strcmp(key, "compute") != 0)) ||
                       (micro && strcmp(key, "micro_batch_size") == 0) ||
                       (dtype && strcmp(key, "param_dtype") == 0))
            add_flag(key, value, text, size);
    json_decref(before);
    json_decref(after);
}
