/* parallel/plan/strategy_order.c - see the header. */
#include "parallel/plan/strategy_order_internal.h"
#include <string.h>

/* Returns true where two rows are one strategy under two names. */
static bool alike(const wf_par_strategy *a, const wf_par_strategy *b)
{
    return a->groups == b->groups && a->split_parameters == b->split_parameters &&
           a->keep_gathered == b->keep_gathered && a->split_gradients == b->split_gradients &&
           a->split_optimizer == b->split_optimizer && a->reduce_each == b->reduce_each &&
           a->splits == b->splits;
}

/* The more is split, over more ranks, and the shorter it is whole, the less a rank holds. */
static int splits(const wf_par_strategy *s)
{
    return 16 * s->split_parameters + 8 * (s->split_parameters && !s->groups) +
           4 * (s->split_parameters && !s->keep_gathered) + 2 * s->split_gradients +
           s->split_optimizer;
}

/* Counts strategies that come before one, by `before`; those of the same rank in the order of
   their rows. */
static const wf_par_strategy *ranked(int i, bool search)
{
    for (int k = 0; wf_par_strategy_at(k); k++) {
        const wf_par_strategy *s = wf_par_strategy_at(k), *other;
        bool listed = false;
        int before = 0;

        for (int j = 0; (other = wf_par_strategy_at(j)); j++) {
            bool first = true; /* a search takes one of rows that are alike */

            for (int l = 0; search && l < j; l++)
                first = first && !alike(wf_par_strategy_at(l), other);
            listed = listed || (search && j < k && alike(other, s));
            if (!first || j == k)
                continue;
            if (search && other->groups != s->groups)
                before += s->groups;
            else
                before += splits(other) < splits(s) || (splits(other) == splits(s) && j < k);
        }
        if (!listed && before == i)
            return s;
    }
    return NULL;
}

const wf_par_strategy *wf_strategy_to_search(int i)
{
    static _Thread_local const wf_par_strategy *list[WF_STRATEGY_MOST];
    static _Thread_local int known; /* rows when the list was made */
    int rows = 0;

    if (i < 0 || i >= WF_STRATEGY_MOST)
        return NULL;
    while (wf_par_strategy_at(rows))
        rows++;
    if (rows != known)
        memset(list, 0, sizeof list);
    known = rows;
    if (!list[i])
        list[i] = ranked(i, true);
    return list[i];
}

const wf_par_strategy *wf_strategy_by_memory(int i)
{
    return ranked(i, false);
}

int wf_strategy_index(const char *name)
{
    const wf_par_strategy *s = NULL;

    for (int i = 0; wf_par_strategy_at(i); i++)
        if (strcmp(wf_par_strategy_at(i)->name, name) == 0)
            s = wf_par_strategy_at(i);
    for (int i = 0; s && wf_strategy_to_search(i); i++)
        if (alike(s, wf_strategy_to_search(i)))
            return i;
    return -1;
}
