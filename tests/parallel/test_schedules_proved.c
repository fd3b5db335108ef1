/*
 * tests/parallel/test_schedules_proved.c - lowering and proof of pipeline schedules: the depths
 * of messages that each needs, and what is proved of every one at all sizes.
 *
 * ctest: builds plain
 */
#include "parallel/pipeline/lower.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

static wf_pipe_table *generate(const char *name, int ranks, int v, int micro)
{
    const wf_pipe_shape shape = {ranks, ranks * v, micro, 0};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    wf_pipe_generate(name, &shape, &table, &error);
    return table;
}

/* 8 ranks, 32 micro-batches: the least depth without a deadlock, and without loss of time. */
static void depths(void)
{
    static const struct {
        const char *name;
        int v, least, fastest;
        int64_t makespan; /* ticks of 1/v */
    } cases[] = {{"gpipe", 1, 1, 1, 117},       {"1f1b", 1, 1, 1, 117},
                 {"interleaved", 2, 1, 1, 213}, {"zb-h1", 1, 1, 1, 103},
                 {"v-half", 2, 1, 1, 216},      {"v-min", 2, 1, 1, 219},
                 {"zb-v", 2, 2, 2, 199},        {"dualpipe-v", 2, 2, 2, 206},
                 {"zb-h1", 2, 4, 6, 199},       {"looped-bfs", 2, 4, 24, 213}};
    const wf_pipe_lowering how = {.ahead = 1};
    const wf_pipe_costs unit = {1, 1, 1, 0, true};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_pipe_table *table = generate(cases[i].name, 8, cases[i].v, 32);
        wf_error error = {WF_OK, ""};
        wf_pipe_depths found = {0};

        CU_ASSERT_EQUAL(wf_pipe_find_depths(table, &how, &unit, &found, &error), WF_OK);
        CU_ASSERT_EQUAL(found.least, cases[i].least);
        CU_ASSERT_EQUAL(found.fastest, cases[i].fastest);
        CU_ASSERT_EQUAL(found.makespan, cases[i].makespan);
        wf_pipe_table_free(table);
    }
}

/* Few buffers cost time: looped-bfs at the least depth that does not stand still. */
static void few_buffers_cost_time(void)
{
    wf_pipe_table *table = generate("looped-bfs", 8, 2, 32), *lowered;
    const wf_pipe_costs unit = {1, 1, 1, 0, true};
    wf_error error = {WF_OK, ""};
    wf_pipe_timing timing = {0};

    CU_ASSERT_EQUAL_FATAL(
        wf_pipe_lower(table, &(wf_pipe_lowering){.depth = 4, .ahead = 4}, &lowered, &error),
        WF_OK);
    CU_ASSERT_EQUAL(wf_pipe_simulate(lowered, &unit, &timing, &error), WF_OK);
    CU_ASSERT_EQUAL(timing.makespan, 273);
    wf_pipe_timing_free(&timing);
    wf_pipe_table_free(lowered);
    wf_pipe_table_free(table);
}

/* Returns true where a schedule is proved at a depth; `reported` is the proof's error. */
static bool proved_at(const wf_pipe_table *table, wf_pipe_lowering how, int depth,
                      wf_error *reported)
{
    wf_pipe_table *lowered = NULL;
    wf_pipe_proof proof;
    bool proved;

    how.depth = depth;
    *reported = (wf_error){WF_OK, ""};
    proved = wf_pipe_lower(table, &how, &lowered, reported) == WF_OK &&
             wf_pipe_prove(lowered, &proof, reported) == WF_OK && proof.in_flight <= depth;
    wf_pipe_table_free(lowered);
    return proved;
}

static bool right_at_size(const wf_pipe_table *table, const wf_pipe_lowering *how,
                          wf_error *reported)
{
    const wf_pipe_costs unit = {1, 1, 1, 0, true};
    wf_pipe_depths depths = {0};

    if (wf_pipe_find_depths(table, how, &unit, &depths, reported) != WF_OK ||
        !proved_at(table, *how, depths.least, reported))
        return false;
    return depths.least == 1 || (!proved_at(table, *how, depths.least - 1, reported) &&
                                 strncmp(reported->text, "deadlock: rank ", 15) == 0);
}

static bool everything; /* by hand: --all */

/* Small sizes all; of the others a fifth, in which every rank count, stage count and schedule
   meets every choice of lowering: these repeat after 12 micro-batches. */
static bool is_taken(int ranks, int v, int micro, int schedule)
{
    return everything || (ranks <= 6 && micro <= 12) ||
           (ranks + v + 3 * micro + schedule) % 5 == 0;
}

/* Every schedule at the sizes that it is defined for, with everything that lowering adds. */
static void all_sizes(void)
{
    int64_t tables = 0;

    for (int ranks = 1; ranks <= 16; ranks++)
        for (int micro = 1; micro <= 40; micro++)
            for (int v = 1; v <= 4; v++)
                for (int i = 0; wf_pipe_schedule_at(i).name; i++) {
                    const char *name = wf_pipe_schedule_at(i).name;
                    /* A chunk that overlaps is on two stages, which have to be gathered
                       both. */
                    const wf_pipe_lowering how = {.ahead = micro % 3,
                                                  .recompute = micro % 2,
                                                  .group = micro % 4 == 3 ? 0 : 1 << micro % 4,
                                                  .resident = 2 + ranks % 2,
                                                  .prefetch = v - 1,
                                                  .tied = ranks % 2};
                    wf_pipe_table *table;
                    wf_error reported = {WF_OK, ""};

                    if (!is_taken(ranks, v, micro, i) ||
                        !(table = generate(name, ranks, v, micro)))
                        continue;
                    tables++;
                    if (!right_at_size(table, &how, &reported)) {
                        CU_FAIL("a schedule is not proved where it should be");
                        printf("\n    %s, %d ranks, v %d, %d micro-batches: %s\n", name, ranks,
                               v, micro, reported.text);
                    }
                    wf_pipe_table_free(table);
                }
    printf(" %lld tables", (long long)tables);
    CU_ASSERT_EQUAL(tables, everything ? 17024 : 4930);
}

static void one_line(void)
{
    wf_pipe_table *table = generate("zb-v", 8, 2, 32), *lowered;
    const wf_pipe_lowering how = {.depth = 2, .ahead = 1};
    wf_error error = {WF_OK, ""};
    wf_pipe_proof proof;
    char text[512];

    CU_ASSERT_EQUAL(wf_pipe_lower(table, &how, &lowered, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_pipe_prove(lowered, &proof, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(
        wf_pipe_proof_text("zb-v", lowered, &proof, text, sizeof text),
        "schedule zb-v: 8 ranks, 16 stages, 32 micro-batches, 1536 actions, 896 messages, at "
        "most 2 in flight; no deadlock; peak 16 activations");
    wf_pipe_table_free(table);
    CU_ASSERT_EQUAL(wf_pipe_lower(lowered, &how, &table, &error), WF_EINVAL);
    CU_ASSERT(table == NULL && strstr(error.text, "it is lowered") != NULL);
    wf_pipe_table_free(lowered);
}

/* 786,432 compute actions and half a million messages; `schedule check` says how long its proof
   takes. */
static void large(void)
{
    wf_pipe_table *table = generate("list", 64, 4, 1024), *lowered;
    const wf_pipe_lowering how = {.depth = 32, .ahead = 1, .group = 1024, .resident = 4};
    wf_error error = {WF_OK, ""};
    wf_pipe_proof proof;

    CU_ASSERT_EQUAL_FATAL(wf_pipe_lower(table, &how, &lowered, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_pipe_prove(lowered, &proof, &error), WF_OK);
    CU_ASSERT_EQUAL(proof.compute, 786432);
    CU_ASSERT_EQUAL(proof.messages, 522240);
    wf_pipe_table_free(lowered);
    wf_pipe_table_free(table);
}

static void lowering_refuses(wf_pipe_lowering how, const char *words)
{
    wf_pipe_table *table = generate("dualpipe-v", 2, 2, 4), *lowered;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_pipe_lower(table, &how, &lowered, &error), WF_EINVAL);
    CU_ASSERT(lowered == NULL && strstr(error.text, words) != NULL);
    if (!strstr(error.text, words))
        printf("\n    %s\n", error.text);
    wf_pipe_table_free(table);
}

static void numbers_out_of_range(void)
{
    lowering_refuses((wf_pipe_lowering){.depth = -1}, "a depth of -1: give 0 or more");
    lowering_refuses((wf_pipe_lowering){.group = 3}, "groups of a power of two micro-batches");
    lowering_refuses((wf_pipe_lowering){.resident = 1}, "make resident 2 or more");
}

int main(int argc, char **argv)
{
    static const wf_test tests[] = {
        {"depths", depths},     {"few buffers cost time", few_buffers_cost_time},
        {"one line", one_line}, {"all sizes", all_sizes},
        {"large", large},       {"what lowering refuses", numbers_out_of_range},
        {NULL, NULL},
    };

    everything = argc > 1 && strcmp(argv[1], "--all") == 0;
    return wf_test_main("schedules proved", tests);
}
