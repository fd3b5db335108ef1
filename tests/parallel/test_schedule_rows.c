/* tests/parallel/test_schedule_rows.c - rows of schedules.def: what their columns promise to
   searches holds for tables. */
#include "parallel/pipeline/schedule.h"
#include "tests/harness.h"
#include <stdio.h>

/* Returns how many actions of a kind a table has. */
static int64_t count_kind(const wf_pipe_table *table, wf_pipe_kind kind)
{
    int64_t found = 0, n;

    for (int r = 0; r < wf_pipe_table_shape(table).ranks; r++) {
        const wf_pipe_action *row = wf_pipe_table_row(table, r, &n);

        for (int64_t i = 0; i < n; i++)
            found += row[i].kind == kind;
    }
    return found;
}

/* Compares a table with its row: actions, and the activations of the first rank. */
static void check_table(const wf_pipe_schedule *s, const wf_pipe_table *table)
{
    const wf_pipe_shape shape = wf_pipe_table_shape(table);
    const wf_pipe_costs costs = {100, 100, 100, .message = 5, false};
    const double live = wf_pipe_least_live(s, &shape);
    wf_pipe_timing timing;
    wf_error error = {WF_OK, ""};
    double peak;

    if (s->whole)
        CU_ASSERT_EQUAL(count_kind(table, WF_PIPE_I) + count_kind(table, WF_PIPE_W), 0);
    CU_ASSERT_EQUAL_FATAL(wf_pipe_simulate(table, &costs, &timing, &error), WF_OK);
    peak = (double)timing.rank[0].peak * shape.ranks / shape.stages;
    CU_ASSERT(peak >= live - 1e-9);
    if (peak < live - 1e-9)
        printf("\n    %s, %d ranks, %d stages, %d micro-batches: %g live, promised %g\n",
               s->name, shape.ranks, shape.stages, shape.micro, peak, live);
    wf_pipe_timing_free(&timing);
}

static void columns_hold(void)
{
    wf_pipe_schedule s;
    int tables = 0;

    for (int i = 0; (s = wf_pipe_schedule_at(i)).name; i++) {
        CU_ASSERT_EQUAL(wf_pipe_schedule_find(s.name), i);
        CU_ASSERT(s.per_rank >= 1 && s.live >= 0 && s.needs >= 0);
        for (int ranks = 1; ranks <= 8; ranks += 1 + ranks / 4)
            for (int micro = 1; micro <= 24; micro += 1 + micro / 3)
                for (int v = s.per_rank; v <= (s.searched ? s.searched : s.per_rank); v *= 2) {
                    const wf_pipe_shape shape = {ranks, ranks * v, micro, 0};
                    wf_error error = {WF_OK, ""};
                    wf_pipe_table *table;

                    if (wf_pipe_generate(s.name, &shape, &table, &error) == WF_OK) {
                        check_table(&s, table);
                        tables++;
                    } else {
                        CU_ASSERT(micro < s.needs * ranks);
                    }
                    wf_pipe_table_free(table);
                }
    }
    CU_ASSERT(tables > 500);
}

/* A schedule that an application registers promises nothing, and is tried. */
static void a_registered_one(void)
{
    wf_pipe_schedule s;

    CU_ASSERT_EQUAL(wf_pipe_schedule_find("of one's own"), -1);
    CU_ASSERT_EQUAL(
        wf_pipe_register("of one's own",
                         wf_pipe_schedule_at(wf_pipe_schedule_find("gpipe")).generate),
        WF_OK);
    s = wf_pipe_schedule_at(wf_pipe_schedule_find("of one's own"));
    CU_ASSERT(s.searched == 1 && s.per_rank == 1 && !s.whole && s.live == 0 && !s.needs);
}

int main(void)
{
    static const wf_test tests[] = {
        {"columns hold", columns_hold},
        {"a registered one", a_registered_one},
        {NULL, NULL},
    };

    return wf_test_main("schedule_rows", tests);
}
