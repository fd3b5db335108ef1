/*
 * parallel/shard/strategies.c - strategies by name: the table of rows, those that programs add,
 * and how they lay the dp ranks out in groups.
 */
#include "parallel/shard/units_internal.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const wf_par_strategy own[] = {
#define STRATEGY(name, groups, parameters, keep, gradients, optimizer, reduce)                 \
    {#name, groups, parameters, keep, gradients, optimizer, reduce, NULL},
#include "parallel/shard/strategies.def"
#undef STRATEGY
};

enum { OWN = sizeof own / sizeof *own };

/* Rows that are registered; those below the count never change. */
static const wf_par_strategy *registered[WF_PAR_MOST_STRATEGIES];
static atomic_int registered_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const wf_par_strategy *wf_par_strategy_at(int i)
{
    if (i >= 0 && i < OWN)
        return &own[i];
    i -= OWN;
    return i >= 0 && i < atomic_load(&registered_count) ? registered[i] : NULL;
}

const char *wf_par_strategy_name(int i)
{
    const wf_par_strategy *s = wf_par_strategy_at(i);

    return s ? s->name : NULL;
}

/* Refuses rows that no run could be of. */
static wf_status check_row(const wf_par_strategy *s, wf_error *error)
{
    size_t n = s->name ? strspn(s->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_")
                       : 0;

    if (n == 0 || n > 31 || s->name[n])
        return wf_error_set(error, WF_EINVAL,
                            "a strategy called '%s': names are 1 to 31 letters, digits and _",
                            s->name ? s->name : "NULL");
    if ((s->split_parameters && !s->split_gradients) ||
        (s->split_gradients && !s->split_optimizer) ||
        (s->keep_gathered && !s->split_parameters))
        return wf_error_set(error, WF_EINVAL,
                            "strategy %s: who splits parameters splits gradients, who splits "
                            "gradients splits the optimizer's state, and who keeps parameters "
                            "gathered splits them",
                            s->name);
    if (s->splits && !s->split_optimizer)
        return wf_error_set(error, WF_EINVAL,
                            "strategy %s says which parameters it splits, and splits nothing",
                            s->name);
    return WF_OK;
}

wf_status wf_par_strategy_register(const wf_par_strategy *row, wf_error *error)
{
    const wf_par_strategy *s;
    wf_status status = WF_OK;
    int n;

    *error = (wf_error){WF_OK, ""};
    if (!row)
        return wf_error_set(error, WF_EINVAL, "a strategy that is registered is NULL");
    if (check_row(row, error) != WF_OK)
        return error->code;
    pthread_mutex_lock(&lock);
    n = atomic_load(&registered_count);
    for (int i = 0; (s = wf_par_strategy_at(i)) && s != row && status == WF_OK; i++)
        if (strcmp(s->name, row->name) == 0)
            status = wf_error_set(error, WF_EINVAL, "there is a strategy %s: take another name",
                                  row->name);
    if (status == WF_OK && s != row && n == WF_PAR_MOST_STRATEGIES)
        status = wf_error_set(error, WF_EINVAL,
                              "strategy %s: %d are registered, and no more fit", row->name, n);
    if (status == WF_OK && s != row) {
        registered[n] = row;
        atomic_store(&registered_count, n + 1);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void wf_par_add_name(char *list, size_t size, const char *name)
{
    static const char full[] = ", ..";
    size_t n = strlen(name), used = strlen(list);

    if (!n)
        return;
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ','))
            return;
    if (used + n + sizeof full + 2 <= size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", name);
    else if (used < sizeof full || strcmp(list + used + 1 - sizeof full, full) != 0)
        snprintf(list + used, size - used, "%s", full);
}

const wf_par_strategy *wf_par_strategy_find(const char *name, wf_error *error)
{
    const wf_par_strategy *s;
    char names[256] = "";

    for (int i = 0; (s = wf_par_strategy_at(i)); i++) {
        if (strcmp(s->name, name) == 0)
            return s;
        wf_par_add_name(names, sizeof names, s->name);
    }
    wf_error_set(error, WF_EINVAL, "there is no strategy %s; use one of: %s", name, names);
    return NULL;
}

/* The groups of a hybrid strategy: their number and size, either of which the user may give. */
static wf_status find_groups(const wf_par_options *o, const char *name, int dp, int *replicate,
                             int *shard, wf_error *error)
{
    *replicate = o->dp_replicate;
    *shard = o->shard_group_size;
    if (*replicate < 0 || *shard < 0)
        return wf_error_set(error, WF_EINVAL,
                            "dp-replicate %d, shard-group-size %d: neither "
                            "can be negative",
                            *replicate, *shard);
    if (!*replicate && !*shard && dp > 1)
        return wf_error_set(
            error, WF_EINVAL,
            "strategy %s has groups of ranks: say how many (dp-replicate) or how "
            "large (shard-group-size), or use full_shard",
            name);
    if (*replicate && *shard && (int64_t)*replicate * *shard != dp)
        return wf_error_set(error, WF_EINVAL,
                            "dp %d is not %d group%s of %d rank%s: dp-replicate x "
                            "shard-group-size must be dp, and one of the two is enough",
                            dp, *replicate, *replicate == 1 ? "" : "s", *shard,
                            *shard == 1 ? "" : "s");
    if (dp % (*shard ? *shard : *replicate ? *replicate : 1))
        return wf_error_set(error, WF_EINVAL,
                            "dp %d cannot be laid out in groups with %s %d: use a number that "
                            "divides dp",
                            dp, *shard ? "shard-group-size" : "dp-replicate",
                            *shard ? *shard : *replicate);
    if (!*shard)
        *shard = *replicate ? dp / *replicate : 1;
    *replicate = dp / *shard;
    return WF_OK;
}

static wf_status refuse_groups(const wf_par_strategy *s, wf_error *error)
{
    const wf_par_strategy *other;
    char names[256] = "";

    for (int i = 0; (other = wf_par_strategy_at(i)); i++)
        if (other->groups)
            wf_par_add_name(names, sizeof names, other->name);
    return wf_error_set(error, WF_EINVAL,
                        "strategy %s has no groups of ranks: dp-replicate and shard-group-size "
                        "belong to %s",
                        s->name, names);
}

const char *wf_par_strategy_of(const wf_par *par)
{
    const char *name = NULL;

    for (const wf_par_units *all = par->models; all; all = all->next)
        for (int64_t u = 0; u < all->count; u++) {
            const char *of = all->unit[u].policy.strategy->name;

            if (name && strcmp(name, of) != 0)
                return "per_module";
            name = of;
        }
    return name ? name : par->policy.strategy->name;
}

wf_status wf_par_axes(const wf_par_options *o, int *replicate, int *shard, wf_error *error)
{
    const wf_par_strategy *s =
        wf_par_strategy_find(o->strategy ? o->strategy : WF_PAR_STRATEGY, error);
    int dp = o->dp ? o->dp : 1;

    *replicate = *shard = 1;
    if (!s)
        return WF_EINVAL;
    if (s->groups)
        return find_groups(o, s->name, dp, replicate, shard, error);
    if (o->dp_replicate || o->shard_group_size)
        return refuse_groups(s, error);
    *(s->split_optimizer ? shard : replicate) = dp;
    return WF_OK;
}
