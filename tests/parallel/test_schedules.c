/*
 * tests/parallel/test_schedules.c - pipeline schedules against published figures: makespans,
 * both bubbles and live activations as whole numbers and fractions, nothing rounded.
 */
#include "parallel/pipeline/lower.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

enum { RANKS = 8 };

/* Idle time over all, as a fraction; {-1, 0}: not asked. */
typedef struct fraction {
    int64_t over, under;
} fraction;

/* F, I and W of a rank take a unit each, so a stage's take 1/v: ticks of which a unit has v. */
typedef struct figure {
    const char *name;
    int v, micro;
    bool blocks;
    int64_t makespan; /* ticks */
    fraction step, span;
    int peak[RANKS]; /* live activations, in stages */
} figure;

static const figure figures[] = {
    {"naive", 1, 24, false, 576, {7, 8}, {7, 8}, {1, 1, 1, 1, 1, 1, 1, 1}},
    {"gpipe", 1, 24, false, 93, {7, 31}, {7, 31}, {24, 24, 24, 24, 24, 24, 24, 24}},
    {"1f1b", 1, 24, false, 93, {7, 31}, {7, 31}, {8, 7, 6, 5, 4, 3, 2, 1}},
    {"interleaved", 2, 24, false, 165, {21, 165}, {21, 165}, {23, 21, 19, 17, 15, 13, 11, 9}},
    {"interleaved", 4, 24, false, 309, {21, 309}, {21, 309}, {39, 37, 35, 33, 31, 29, 27, 25}},
    {"looped-bfs", 2, 24, false, 165, {21, 165}, {21, 165}, {48, 48, 48, 48, 48, 48, 48, 48}},
    {"zb-h1", 1, 24, false, 79, {7, 79}, {7, 79}, {8, 8, 8, 8, 8, 8, 8, 8}},
    {"zb-h1", 2, 24, false, 151, {7, 151}, {7, 151}, {16, 16, 16, 16, 16, 16, 16, 16}},
    {"zb-h2", 1, 24, false, 79, {7, 79}, {0, 1}, {15, 15, 15, 15, 15, 15, 15, 15}},
    {"list", 1, 24, false, 81, {9, 81}, {9, 81}, {8, 8, 8, 8, 8, 8, 8, 8}},
    {"zb-v", 2, 24, false, 151, {7, 151}, {0, 1}, {16, 16, 16, 16, 16, 16, 16, 16}},
    {"dualpipe-v", 2, 24, true, 158, {14, 158}, {-1, 0}, {17, 17, 17, 17, 17, 17, 17, 17}},
    {"dualpipe-v", 2, 24, false, 151, {7, 151}, {7, 151}, {17, 17, 17, 17, 17, 17, 17, 17}},
    {"v-half", 2, 24, false, 168, {24, 168}, {24, 168}, {10, 11, 10, 11, 10, 11, 10, 11}},
    {"v-min", 2, 24, false, 171, {27, 171}, {27, 171}, {6, 8, 8, 6, 8, 8, 6, 8}},
    {"1f1b", 1, 32, false, 117, {21, 117}, {21, 117}, {8, 7, 6, 5, 4, 3, 2, 1}},
    {"interleaved", 2, 32, false, 213, {21, 213}, {21, 213}, {23, 21, 19, 17, 15, 13, 11, 9}},
    {"interleaved", 4, 32, false, 405, {21, 405}, {21, 405}, {39, 37, 35, 33, 31, 29, 27, 25}},
    {"looped-bfs", 2, 32, false, 213, {21, 213}, {21, 213}, {64, 64, 64, 64, 64, 64, 64, 64}},
    {"zb-h1", 1, 32, false, 103, {7, 103}, {7, 103}, {8, 8, 8, 8, 8, 8, 8, 8}},
    {"zb-v", 2, 32, false, 199, {7, 199}, {0, 1}, {16, 16, 16, 16, 16, 16, 16, 16}},
};

static bool is_ratio(int64_t over, int64_t under, fraction expected)
{
    return expected.under == 0 || over * expected.under == under * expected.over;
}

static bool equals(const figure *f, const wf_pipe_timing *timing)
{
    bool right = timing->makespan == f->makespan &&
                 is_ratio(timing->idle, timing->makespan * RANKS, f->step) &&
                 is_ratio(timing->span_idle, timing->span, f->span);

    for (int r = 0; r < RANKS; r++)
        right = right && timing->rank[r].peak == f->peak[r] &&
                timing->rank[r].busy == 3LL * f->micro * f->v;
    return right;
}

static void published_figures(void)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const figure *f = &figures[i];
        const wf_pipe_shape shape = {RANKS, RANKS * f->v, f->micro, 0};
        const wf_pipe_costs unit = {1, 1, 1, 0, f->blocks};
        wf_error error = {WF_OK, ""};
        wf_pipe_timing timing;
        wf_pipe_table *table;
        bool right = wf_pipe_generate(f->name, &shape, &table, &error) == WF_OK &&
                     wf_pipe_simulate(table, &unit, &timing, &error) == WF_OK;

        if (right) {
            right = equals(f, &timing);
            wf_pipe_timing_free(&timing);
        }
        CU_ASSERT(right);
        if (!right)
            printf("\n    %s, v %d, %d micro-batches: %s\n", f->name, f->v, f->micro,
                   error.text);
        wf_pipe_table_free(table);
    }
}

/* F 1, I 1.15, W .85 and .05 from rank to rank, in hundredths of a stage's unit: the order of
   schedules is another one than with equal costs. */
static void unequal_costs(void)
{
    static const struct {
        const char *name;
        int v;
        double step;
    } cases[] = {{"1f1b", 1, .2027},  {"interleaved", 2, .1111}, {"interleaved", 4, .0800},
                 {"zb-h1", 1, .0986}, {"zb-v", 2, .0558},        {"dualpipe-v", 2, .0650}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int v = cases[i].v;
        const wf_pipe_shape shape = {RANKS, RANKS * v, 32, 0};
        const wf_pipe_costs costs = {100, 115, 85, 5 * v, false};
        wf_error error = {WF_OK, ""};
        wf_pipe_timing timing = {0};
        wf_pipe_table *table;
        double step = 0;

        CU_ASSERT_EQUAL_FATAL(wf_pipe_generate(cases[i].name, &shape, &table, &error), WF_OK);
        CU_ASSERT_EQUAL(wf_pipe_simulate(table, &costs, &timing, &error), WF_OK);
        step = (double)timing.idle / (double)(timing.makespan * RANKS);
        CU_ASSERT(step > cases[i].step - 5e-5 && step < cases[i].step + 5e-5);
        if (!(step > cases[i].step - 5e-5 && step < cases[i].step + 5e-5))
            printf("\n    %s, v %d: %.4f, not %.4f\n", cases[i].name, v, step, cases[i].step);
        wf_pipe_timing_free(&timing);
        wf_pipe_table_free(table);
    }
}

static void refused(const char *name, wf_pipe_shape shape, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    CU_ASSERT_EQUAL(wf_pipe_generate(name, &shape, &table, &error), WF_EINVAL);
    CU_ASSERT(table == NULL && strstr(error.text, words) != NULL);
    if (!strstr(error.text, words))
        printf("\n    %s: %s\n", name, error.text);
}

static void refusals(void)
{
    refused("zb-h3", (wf_pipe_shape){4, 4, 4, 0}, "no schedule is called zb-h3; there are:");
    refused("1f1b", (wf_pipe_shape){4, 8, 4, 0}, "make v 1, or take interleaved");
    refused("zb-v", (wf_pipe_shape){4, 4, 4, 0}, "4 stages on 4 ranks are not 8; make v 2");
    refused("dualpipe-v", (wf_pipe_shape){4, 8, 7, 0}, "7 are fewer than 8; take 8 or more");
    refused("interleaved", (wf_pipe_shape){4, 6, 4, 0}, "take a multiple of 4 stages");
    refused("list", (wf_pipe_shape){4, 16, 4, 3}, "make it 4 or more");
    refused("gpipe", (wf_pipe_shape){0, 0, 4, 0}, "1 to 1024 ranks, not 0");
    refused("gpipe", (wf_pipe_shape){4, 4, 0, 0}, "micro-batches, not 0");
    refused("interleaved", (wf_pipe_shape){1024, 32 * 1023, 1 << 20, 0}, "take fewer");
}

/* A schedule of an application's own: Hanayo's waves, by list scheduling. */
static wf_status waves(const wf_pipe_shape *shape, wf_pipe_table *table)
{
    for (int s = 0; s < shape->stages; s++) {
        int r = s % shape->ranks;

        wf_pipe_table_set_rank(table, s, s / shape->ranks % 2 ? shape->ranks - 1 - r : r);
    }
    return wf_pipe_table_list(table, &(wf_pipe_list_rule){.cap = shape->cap});
}

static wf_status faulty(const wf_pipe_shape *shape, wf_pipe_table *table)
{
    wf_pipe_table_add(table, 0, WF_PIPE_F, shape->stages, 0);
    wf_pipe_table_add(table, 0, WF_PIPE_F, 0, shape->micro);
    return WF_OK; /* errors stay with the table */
}

static void schedules_of_ones_own(void)
{
    const wf_pipe_shape shape = {4, 16, 12, 4};
    const wf_pipe_costs unit = {1, 1, 1, 0, false};
    wf_error error = {WF_OK, ""};
    wf_pipe_timing timing = {0};
    wf_pipe_table *table;

    CU_ASSERT_EQUAL(wf_pipe_register("", waves), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_pipe_register("waves", waves), WF_OK);
    CU_ASSERT_EQUAL(wf_pipe_register("faulty", faulty), WF_OK);
    CU_ASSERT_STRING_EQUAL(wf_pipe_schedule_at(0).name, "waves");
    CU_ASSERT_EQUAL_FATAL(wf_pipe_generate("waves", &shape, &table, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_pipe_table_rank(table, 4), 3);
    CU_ASSERT_EQUAL(wf_pipe_simulate(table, &unit, &timing, &error), WF_OK);
    for (int r = 0; r < 4; r++)
        CU_ASSERT_EQUAL(timing.rank[r].peak, 4);
    wf_pipe_timing_free(&timing);
    wf_pipe_table_free(table);
    refused("faulty", shape, "rank 0: an action on stage 16, but stages go from 0 to 15");
}

/* Every schedule ends for all sizes that it is defined for, and lets nothing of the cap go. */
static void all_sizes(void)
{
    const wf_pipe_costs unit = {1, 1, 1, 0, true};
    int64_t tables = 0;

    for (int ranks = 1; ranks <= 16; ranks++)
        for (int micro = 1; micro <= 40; micro++)
            for (int v = 1; v <= 4; v++)
                for (int i = 2; wf_pipe_schedule_at(i).name; i++) {
                    const wf_pipe_shape shape = {ranks, ranks * v, micro, 0};
                    wf_error error = {WF_OK, ""};
                    wf_pipe_timing timing = {0};
                    wf_pipe_table *table;

                    if (wf_pipe_generate(wf_pipe_schedule_at(i).name, &shape, &table, &error))
                        continue;
                    tables++;
                    if (wf_pipe_simulate(table, &unit, &timing, &error) != WF_OK ||
                        timing.makespan < 3LL * micro * v) {
                        CU_FAIL("a schedule does not end");
                        printf("\n    %s, %d ranks, %d micro-batches, v %d: %s\n",
                               wf_pipe_schedule_at(i).name, ranks, micro, v, error.text);
                    }
                    wf_pipe_timing_free(&timing);
                    wf_pipe_table_free(table);
                }
    /* Five take every v, three v 1, three v 2, and dualpipe-v 41 - 2P sizes of M for each P. */
    CU_ASSERT_EQUAL(tables, 16 * 40 * (5 * 4 + 3 + 3) + 384);
    printf(" %lld tables", (long long)tables);
}

/* From each rank as many receives are begun as are asked for, one where none is but needed:
   before a rank's first action, and behind each message that has come. */
static void receives_ahead(int ahead)
{
    enum { P = 3, MICRO = 6 };
    const wf_pipe_shape shape = {P, P, MICRO, 0};
    const wf_pipe_lowering how = {.depth = 4, .ahead = ahead};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = NULL, *lowered = NULL;

    CU_ASSERT_FATAL(wf_pipe_generate("1f1b", &shape, &table, &error) == WF_OK);
    CU_ASSERT_FATAL(wf_pipe_lower(table, &how, &lowered, &error) == WF_OK);
    for (int r = 0; r < P; r++) {
        int begun[2] = {0}, ended[2] = {0};
        bool right = true;
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(lowered, r, &n);

        for (int64_t i = 0; i < n; i++) {
            bool begins = a[i].kind == WF_PIPE_RECV_F || a[i].kind == WF_PIPE_RECV_B;
            bool ends = a[i].kind == WF_PIPE_RECVD_F || a[i].kind == WF_PIPE_RECVD_B;
            int from = a[i].kind == WF_PIPE_RECV_B || a[i].kind == WF_PIPE_RECVD_B;

            begun[from] += begins;
            ended[from] += ends;
            if (begins || ends)
                continue;
            for (int k = 0; k < 2;
                 k++) { /* a rank beside this one has all messages but those ended */
                int rest = (k ? r == P - 1 : r == 0) ? 0 : MICRO - ended[k];

                right = right && begun[k] - ended[k] == (ahead < rest ? ahead : rest);
            }
        }
        CU_ASSERT(right && ended[0] == (r ? MICRO : 0));
    }
    wf_pipe_table_free(lowered);
    wf_pipe_table_free(table);
}

static void as_many_receives_as_asked_for(void)
{
    for (int ahead = 0; ahead <= 4; ahead++)
        receives_ahead(ahead);
}

int main(void)
{
    static const wf_test tests[] = {
        {"published figures", published_figures},
        {"unequal costs", unequal_costs},
        {"what is refused", refusals},
        {"schedules of one's own", schedules_of_ones_own},
        {"all sizes", all_sizes},
        {"as many receives as asked for", as_many_receives_as_asked_for},
        {NULL, NULL},
    };

    return wf_test_main("schedules", tests);
}
