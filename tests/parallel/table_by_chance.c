/* tests/parallel/table_by_chance.c - tables of all schedules, lowered somehow; copies of
   them. */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/table_internal.h"
#include "tests/parallel/table_mutants.h"
#include <string.h>

static unsigned state = 1;

void table_chance_seed(unsigned seed)
{
    state = seed;
}

int table_chance(int64_t n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (unsigned)n);
}

static wf_pipe_table *empty_like(const wf_pipe_table *table)
{
    wf_error error = {WF_OK, ""};
    wf_pipe_table *like;

    wf_pipe_table_new(&table->shape, &like, &error);
    memcpy(like->stage_rank, table->stage_rank,
           (size_t)table->shape.stages * sizeof *like->stage_rank);
    like->facts = table->facts;
    return like;
}

wf_pipe_table *table_copy(const wf_pipe_table *table)
{
    wf_pipe_table *copy = empty_like(table);

    for (int r = 0; r < table->shape.ranks; r++)
        for (int64_t i = 0; i < table->row[r].n; i++)
            wf_pipe_table_append(copy, r, &table->row[r].action[i]);
    return copy;
}

static bool same_action(const wf_pipe_action *a, const wf_pipe_action *b)
{
    return a->kind == b->kind && a->with_next == b->with_next && a->stage == b->stage &&
           a->micro == b->micro && a->last == b->last;
}

bool table_same(const wf_pipe_table *a, const wf_pipe_table *b)
{
    bool same = a->facts.lowered == b->facts.lowered && a->facts.group == b->facts.group &&
                a->facts.resident == b->facts.resident && a->facts.tied == b->facts.tied;

    for (int s = 0; s < a->shape.stages; s++)
        same = same && a->stage_rank[s] == b->stage_rank[s];
    for (int r = 0; r < a->shape.ranks; r++) {
        same = same && a->row[r].n == b->row[r].n;
        for (int64_t i = 0; same && i < a->row[r].n; i++)
            same = same_action(&a->row[r].action[i], &b->row[r].action[i]);
    }
    return same;
}

/* W of micro-batches that follow each other as one action. */
static wf_pipe_table *join_weights(const wf_pipe_table *table)
{
    wf_pipe_table *joined = empty_like(table);

    for (int r = 0; r < table->shape.ranks; r++)
        for (int64_t i = 0; i < table->row[r].n; i++) {
            const wf_pipe_action *a = &table->row[r].action[i];
            wf_pipe_row *row = &joined->row[r];
            wf_pipe_action *last = row->n ? &row->action[row->n - 1] : NULL;

            if (last && last->kind == WF_PIPE_W && a->kind == WF_PIPE_W && !a->with_next &&
                last->stage == a->stage && last->last + 1 == a->micro &&
                !(row->n > 1 && row->action[row->n - 2].with_next))
                last->last = a->last;
            else
                wf_pipe_table_append(joined, r, a);
        }
    return joined;
}

static wf_pipe_table *lowered(const wf_pipe_table *table)
{
    const wf_pipe_lowering how = {.depth = table_chance(4),
                                  .ahead = table_chance(3),
                                  .recompute = table_chance(3) == 0,
                                  .group = table_chance(2) ? 1 << table_chance(3) : 0,
                                  .resident = table_chance(3),
                                  .prefetch = table_chance(3),
                                  .frozen = table_chance(3) ? 0 : table_chance(3),
                                  .tied = table_chance(2)};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *out;

    wf_pipe_lower(table, &how, &out, &error);
    return out;
}

static wf_pipe_table *compute_actions(void)
{
    int schedules = 0, ranks = 1 + table_chance(4);
    const wf_pipe_shape shape = {ranks, ranks * (1 + table_chance(2)), 1 + table_chance(6), 0};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    while (wf_pipe_schedule_at(schedules).name)
        schedules++;
    wf_pipe_generate(wf_pipe_schedule_at(table_chance(schedules)).name, &shape, &table, &error);
    return table;
}

wf_pipe_table *table_by_chance(void)
{
    wf_pipe_table *table = NULL, *other;

    /* Not every schedule is defined for every shape, nor can each be lowered in every way. */
    while (!table) {
        table = compute_actions();
        if (table && table_chance(2)) {
            other = join_weights(table);
            wf_pipe_table_free(table);
            table = other;
        }
        if (table && table_chance(3)) {
            other = lowered(table);
            wf_pipe_table_free(table);
            table = other;
        }
    }
    return table;
}
