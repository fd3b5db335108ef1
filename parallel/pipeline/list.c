/* parallel/pipeline/list.c - list scheduling: a free rank begins an action that can begin. */
#include "parallel/pipeline/table_internal.h"
#include <stdlib.h>
#include <string.h>

enum { LF, LI, LW, LIST_KINDS };

/* The progress of each stage, in micro-batches, which it takes in order. */
typedef struct list {
    wf_pipe_table *table;
    int cap;
    int (*done)[LIST_KINDS]; /* [stages] what has ended */
    int (*began)[LIST_KINDS];
    int *live;    /* [ranks] activations */
    int *after;   /* [stages] later stages of the same rank */
    int *earlier; /* [stages] the stage before it on the same rank; -1 */
    int *latest;  /* [ranks] the last stage; -1 */
} list;

static bool can_begin(const list *l, int s, int kind)
{
    const wf_pipe_shape *shape = &l->table->shape;
    int m = l->began[s][kind];

    if (m >= shape->micro)
        return false;
    switch (kind) {
    case LF:
        return (s == 0 || l->done[s - 1][LF] > m) &&
               l->live[l->table->stage_rank[s]] + l->after[s] < l->cap;
    case LI:
        return l->done[s][LF] > m && (s == shape->stages - 1 || l->done[s + 1][LI] > m);
    default:
        return l->done[s][LI] > m;
    }
}

/* Begins the first in order of priority; false: nothing of this rank can. */
static bool begin_one(list *l, int rank)
{
    static const int priority[LIST_KINDS] = {LI, LF, LW};
    static const wf_pipe_kind kinds[LIST_KINDS] = {WF_PIPE_F, WF_PIPE_I, WF_PIPE_W};

    for (int p = 0; p < LIST_KINDS; p++)
        for (int s = l->latest[rank]; s >= 0; s = l->earlier[s])
            if (can_begin(l, s, priority[p])) {
                int kind = priority[p];

                wf_pipe_table_add(l->table, rank, kinds[kind], s, l->began[s][kind]++);
                l->live[rank] += (kind == LF) - (kind == LW);
                return true;
            }
    return false;
}

static wf_status run(list *l)
{
    const wf_pipe_shape *shape = &l->table->shape;
    int64_t left = (int64_t)LIST_KINDS * shape->stages * shape->micro;

    while (left && l->table->error.code == WF_OK) {
        int64_t before = left;

        for (int r = 0; r < shape->ranks; r++)
            left -= begin_one(l, r);
        if (left == before)
            return wf_pipe_table_refuse(
                l->table,
                "list scheduling stands still under a cap of %d live activations: "
                "raise the cap",
                l->cap);
        memcpy(l->done, l->began, (size_t)shape->stages * sizeof *l->done);
    }
    return l->table->error.code;
}

static wf_status check(wf_pipe_table *t)
{
    for (int s = 0; s < t->shape.stages; s++)
        if (t->stage_rank[s] < 0)
            return wf_pipe_table_refuse(t, "stage %d has no rank: place all %d stages first", s,
                                        t->shape.stages);
    for (int r = 0; r < t->shape.ranks; r++)
        if (t->row[r].n)
            return wf_pipe_table_refuse(t, "rank %d has actions: list scheduling fills rows",
                                        r);
    return t->error.code;
}

/* Which stages share a rank; refuses a cap that is smaller than their number. */
static wf_status link_stages(list *l)
{
    wf_pipe_table *t = l->table;

    for (int r = 0; r < t->shape.ranks; r++)
        l->latest[r] = -1;
    for (int s = 0; s < t->shape.stages; s++) {
        l->earlier[s] = l->latest[t->stage_rank[s]];
        l->latest[t->stage_rank[s]] = s;
    }
    for (int r = 0; r < t->shape.ranks; r++) {
        int own = 0;

        for (int s = l->latest[r]; s >= 0; s = l->earlier[s])
            l->after[s] = own++;
        if (l->cap < own)
            return wf_pipe_table_refuse(t,
                                        "rank %d has %d stages, and a cap of %d live "
                                        "activations lets no micro-batch through; make it %d "
                                        "or more",
                                        r, own, l->cap, own);
    }
    return WF_OK;
}

wf_status wf_pipe_table_list(wf_pipe_table *table, const wf_pipe_list_rule *rule)
{
    size_t stages = (size_t)table->shape.stages, ranks = (size_t)table->shape.ranks;
    list l = {.table = table, .cap = rule->cap};
    int *numbers;
    wf_status status = check(table);

    if (status != WF_OK)
        return status;
    if (!l.cap)
        l.cap = table->shape.cap ? table->shape.cap : table->shape.stages;
    l.done = calloc(2 * stages, sizeof *l.done);
    numbers = calloc(2 * (stages + ranks), sizeof *numbers);
    if (!l.done || !numbers) {
        status = wf_error_set(&table->error, WF_ENOMEM, "no memory to list %d stages",
                              table->shape.stages);
    } else {
        l.began = l.done + stages;
        l.after = numbers;
        l.earlier = numbers + stages;
        l.latest = numbers + 2 * stages;
        l.live = l.latest + ranks;
        status = link_stages(&l);
        if (status == WF_OK)
            status = run(&l);
    }
    free(l.done);
    free(numbers);
    return status;
}
