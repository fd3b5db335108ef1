/* parallel/pipeline/table.c - tables: the rank of each stage, and rows that grow. */
#include "parallel/pipeline/table_internal.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1024, MOST_STAGES = INT16_MAX, MOST_MICRO = 1 << 20, MOST_NODES = 1 << 26 };

const wf_pipe_kind_info wf_pipe_kind_table[WF_PIPE_KINDS] = {
#define COMPUTE                         false
#define DERIVED                         true
#define ACTION(name, operands, derived) {#name, WF_PIPE_##operands, derived},
#include "parallel/pipeline/actions.def"
#undef ACTION
};

static wf_status check_shape(const wf_pipe_shape *s, wf_error *error)
{
    const struct {
        const char *what;
        int n, most;
    } size[] = {{"ranks", s->ranks, MOST_RANKS},
                {"stages", s->stages, MOST_STAGES},
                {"micro-batches", s->micro, MOST_MICRO}};

    for (int i = 0; i < 3; i++)
        if (size[i].n < 1 || size[i].n > size[i].most)
            return wf_error_set(error, WF_EINVAL, "a schedule has 1 to %d %s, not %d",
                                size[i].most, size[i].what, size[i].n);
    if ((int64_t)s->stages * s->micro > MOST_NODES)
        return wf_error_set(error, WF_EINVAL,
                            "%d stages and %d micro-batches: a schedule has at most %d of both "
                            "multiplied, so take fewer micro-batches",
                            s->stages, s->micro, MOST_NODES);
    if (s->cap < 0)
        return wf_error_set(error, WF_EINVAL, "a cap of %d live activations: give 0 or more",
                            s->cap);
    return WF_OK;
}

wf_status wf_pipe_table_new(const wf_pipe_shape *shape, wf_pipe_table **table, wf_error *error)
{
    wf_status status = check_shape(shape, error);
    wf_pipe_table *t;

    *table = NULL;
    if (status != WF_OK)
        return status;
    t = calloc(1, sizeof *t);
    if (t) {
        t->shape = *shape;
        t->stage_rank = malloc((size_t)shape->stages * sizeof *t->stage_rank);
        t->row = calloc((size_t)shape->ranks, sizeof *t->row);
    }
    if (!t || !t->stage_rank || !t->row) {
        wf_pipe_table_free(t);
        return wf_error_set(error, WF_ENOMEM, "no memory for a schedule of %d ranks",
                            shape->ranks);
    }
    for (int s = 0; s < shape->stages; s++)
        t->stage_rank[s] = -1;
    *table = t;
    return WF_OK;
}

void wf_pipe_table_free(wf_pipe_table *table)
{
    if (!table)
        return;
    for (int r = 0; table->row && r < table->shape.ranks; r++)
        free(table->row[r].action);
    free(table->row);
    free(table->stage_rank);
    free(table);
}

wf_status wf_pipe_table_refuse(wf_pipe_table *table, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    wf_error_vset(&table->error, WF_EINVAL, format, args);
    va_end(args);
    return table->error.code;
}

const wf_error *wf_pipe_table_error(const wf_pipe_table *table)
{
    return &table->error;
}

wf_status wf_pipe_table_set_rank(wf_pipe_table *table, int stage, int rank)
{
    if (stage < 0 || stage >= table->shape.stages)
        return wf_pipe_table_refuse(table, "stage %d is placed, but stages go from 0 to %d",
                                    stage, table->shape.stages - 1);
    if (rank < 0 || rank >= table->shape.ranks)
        return wf_pipe_table_refuse(table,
                                    "stage %d is placed on rank %d, but ranks go from 0 to %d",
                                    stage, rank, table->shape.ranks - 1);
    table->stage_rank[stage] = (int16_t)rank;
    return table->error.code;
}

wf_status wf_pipe_table_add(wf_pipe_table *table, int rank, wf_pipe_kind kind, int stage,
                            int micro)
{
    if (stage < 0 || stage >= table->shape.stages)
        return wf_pipe_table_refuse(table,
                                    "rank %d: an action on stage %d, but stages go from 0 to "
                                    "%d",
                                    rank, stage, table->shape.stages - 1);
    return wf_pipe_table_append(
        table, rank, &(wf_pipe_action){(uint8_t)kind, false, (int16_t)stage, micro, micro});
}

static wf_status check_action(wf_pipe_table *t, int rank, const wf_pipe_action *a)
{
    char text[64];

    if (rank < 0 || rank >= t->shape.ranks)
        return wf_pipe_table_refuse(t, "an action of rank %d, but ranks go from 0 to %d", rank,
                                    t->shape.ranks - 1);
    if (a->kind >= WF_PIPE_KINDS)
        return wf_pipe_table_refuse(t, "rank %d: action kind %d is none", rank, a->kind);
    if (a->stage < 0 || a->stage >= t->shape.stages)
        return wf_pipe_table_refuse(t, "rank %d: %s%d, but stages go from 0 to %d", rank,
                                    wf_pipe_kind_table[a->kind].name, a->stage,
                                    t->shape.stages - 1);
    if (a->micro < 0 || a->last < a->micro || a->last >= t->shape.micro)
        return wf_pipe_table_refuse(
            t, "rank %d: %s, but micro-batches go from 0 to %d, upwards", rank,
            wf_pipe_action_text(a, text, sizeof text), t->shape.micro - 1);
    if (a->last > a->micro && wf_pipe_kind_table[a->kind].operands != WF_PIPE_RANGE)
        return wf_pipe_table_refuse(t, "rank %d: %s, but %s takes one micro-batch", rank,
                                    wf_pipe_action_text(a, text, sizeof text),
                                    wf_pipe_kind_table[a->kind].name);
    return t->error.code;
}

wf_status wf_pipe_table_append(wf_pipe_table *table, int rank, const wf_pipe_action *action)
{
    wf_status status = check_action(table, rank, action);
    wf_pipe_row *row;

    if (status != WF_OK)
        return status;
    row = &table->row[rank];
    if (row->n == row->room) {
        int64_t room = row->room ? 2 * row->room : 64;
        wf_pipe_action *larger = realloc(row->action, (size_t)room * sizeof *larger);

        if (!larger)
            return wf_error_set(&table->error, WF_ENOMEM,
                                "no memory for %lld actions of rank %d", (long long)room, rank);
        row->action = larger;
        row->room = room;
    }
    row->action[row->n++] = *action;
    return WF_OK;
}

wf_pipe_shape wf_pipe_table_shape(const wf_pipe_table *table)
{
    return table->shape;
}

wf_pipe_facts wf_pipe_table_facts(const wf_pipe_table *table)
{
    return table->facts;
}

int wf_pipe_table_rank(const wf_pipe_table *table, int stage)
{
    return table->stage_rank[stage];
}

const wf_pipe_action *wf_pipe_table_row(const wf_pipe_table *table, int rank, int64_t *n)
{
    *n = table->row[rank].n;
    return table->row[rank].action;
}

bool wf_pipe_runs_beside(const wf_pipe_action *a)
{
    const wf_pipe_action *f = a, *back = a + 1;

    if (!a->with_next)
        return false;
    if (f->kind != WF_PIPE_F) {
        f = a + 1;
        back = a;
    }
    return f->kind == WF_PIPE_F && (back->kind == WF_PIPE_B || back->kind == WF_PIPE_I) &&
           f->stage != back->stage;
}

char *wf_pipe_action_text(const wf_pipe_action *a, char *text, size_t size)
{
    const wf_pipe_kind_info *kind = &wf_pipe_kind_table[a->kind];

    if (kind->operands == WF_PIPE_NONE)
        snprintf(text, size, "%s", kind->name);
    else if (kind->operands == WF_PIPE_STAGE)
        snprintf(text, size, "%s%d", kind->name, a->stage);
    else if (a->last == a->micro)
        snprintf(text, size, "%s%d.%d", kind->name, a->stage, a->micro);
    else
        snprintf(text, size, "%s%d.%d-%d", kind->name, a->stage, a->micro, a->last);
    return text;
}

void wf_pipe_assign_loop(wf_pipe_table *t)
{
    for (int s = 0; s < t->shape.stages; s++)
        wf_pipe_table_set_rank(t, s, s % t->shape.ranks);
}

wf_status wf_pipe_assign_v(const char *name, wf_pipe_table *t)
{
    int ranks = t->shape.ranks, stages = t->shape.stages;

    if (stages != 2 * ranks)
        return wf_pipe_table_refuse(t,
                                    "%s has 2 stages a rank, on a V: %d stages on %d ranks are "
                                    "not %d; make v 2",
                                    name, stages, ranks, 2 * ranks);
    for (int r = 0; r < ranks; r++) {
        wf_pipe_table_set_rank(t, r, r);
        wf_pipe_table_set_rank(t, stages - 1 - r, r);
    }
    return t->error.code;
}

wf_status wf_pipe_one_stage(const char *name, wf_pipe_table *t, const char *instead)
{
    if (t->shape.stages != t->shape.ranks)
        return wf_pipe_table_refuse(t,
                                    "%s has 1 stage a rank: %d stages on %d ranks are more; "
                                    "make v 1, or take %s",
                                    name, t->shape.stages, t->shape.ranks, instead);
    wf_pipe_assign_loop(t);
    return t->error.code;
}
