/*
 * tests/parallel/test_simulate.c - the simulator against published figures of schedules, which
 * are fractions and come out as such, with all that ranks do beside computing; and against what
 * can be worked out by hand.
 */
#include "parallel/pipeline/lower.h"
#include "parallel/simulate/simulate.h"
#include "tests/harness.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 8, STAGES = 64 };

/* A lowered table, and costs of its stages that are all alike. */
typedef struct run {
    wf_pipe_table *table;
    wf_sim_stage stage[STAGES];
    wf_sim_costs costs;
    wf_sim_result result;
} run;

static bool lower(const char *name, int ranks, int v, int micro, const wf_pipe_lowering *what,
                  wf_pipe_table **lowered)
{
    const wf_pipe_shape shape = {ranks, ranks * v, micro, 0};
    const wf_pipe_costs unit = {1, 1, 1, 0, false};
    wf_pipe_lowering how = *what;
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = NULL;
    wf_pipe_depths depths;

    *lowered = NULL;
    if (wf_pipe_generate(name, &shape, &table, &error) == WF_OK &&
        (how.depth || wf_pipe_find_depths(table, &how, &unit, &depths, &error) == WF_OK)) {
        how.depth = how.depth ? how.depth : depths.fastest;
        wf_pipe_lower(table, &how, lowered, &error);
    }
    if (error.code != WF_OK)
        printf("\n    %s: %s\n", name, error.text);
    wf_pipe_table_free(table);
    return error.code == WF_OK;
}

static bool open_run(run *r, const char *name, int ranks, int v, int micro,
                     const wf_pipe_lowering *how)
{
    *r = (run){.costs = {.background = true}};
    r->costs.stage = r->stage;
    for (int s = 0; s < STAGES; s++) {
        r->stage[s].forward.of[WF_SIM_PRODUCTS] = 1;
        r->stage[s].inputs.of[WF_SIM_PRODUCTS] = 1;
        r->stage[s].weights.of[WF_SIM_PRODUCTS] = 1;
    }
    return lower(name, ranks, v, micro, how, &r->table);
}

static bool simulate(run *r, int flags)
{
    wf_error error = {WF_OK, ""};

    wf_sim_result_free(&r->result);
    wf_sim_run(r->table, &r->costs, flags, &r->result, &error);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    return error.code == WF_OK;
}

static void close_run(run *r)
{
    wf_sim_result_free(&r->result);
    wf_pipe_table_free(r->table);
}

static const wf_pipe_lowering plain = {.ahead = 1};

/* F, I and W of a rank take a unit each, so a stage's take 1/v: ticks of which a unit has v. */
static void published_figures(void)
{
    static const struct {
        const char *name;
        int v, micro;
        bool blocks;
        double makespan, idle; /* ticks; of all ranks */
    } figures[] = {
        {"naive", 1, 24, false, 576, 7 * 576},    {"gpipe", 1, 24, false, 93, 8 * 21},
        {"1f1b", 1, 24, false, 93, 8 * 21},       {"interleaved", 2, 24, false, 165, 8 * 21},
        {"interleaved", 4, 24, false, 309, 168},  {"looped-bfs", 2, 24, false, 165, 8 * 21},
        {"zb-h1", 1, 24, false, 79, 8 * 7},       {"zb-h1", 2, 24, false, 151, 8 * 7},
        {"zb-h2", 1, 24, false, 79, 8 * 7},       {"list", 1, 24, false, 81, 8 * 9},
        {"zb-v", 2, 24, false, 151, 8 * 7},       {"dualpipe-v", 2, 24, false, 158, 112},
        {"dualpipe-v", 2, 24, true, 158, 8 * 14}, {"v-half", 2, 24, false, 168, 8 * 24},
        {"v-min", 2, 24, false, 171, 8 * 27},     {"1f1b", 1, 32, false, 117, 8 * 21},
        {"interleaved", 2, 32, false, 213, 168},  {"zb-h1", 1, 32, false, 103, 8 * 7},
        {"zb-v", 2, 32, false, 199, 8 * 7},
    };

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        run r;
        double busy = 0;

        CU_ASSERT_FATAL(
            open_run(&r, figures[i].name, RANKS, figures[i].v, figures[i].micro, &plain));
        r.costs.blocks = figures[i].blocks;
        CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
        for (int k = 0; k < RANKS; k++)
            busy += r.result.rank[k].busy;
        if (r.result.makespan != figures[i].makespan ||
            RANKS * r.result.makespan - busy != figures[i].idle)
            printf("\n    %s, v %d: %g, idle %g\n", figures[i].name, figures[i].v,
                   r.result.makespan, RANKS * r.result.makespan - busy);
        CU_ASSERT_EQUAL(r.result.makespan, figures[i].makespan);
        CU_ASSERT_EQUAL(RANKS * r.result.makespan - busy, figures[i].idle);
        CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), r.result.makespan);
        close_run(&r);
    }
}

/* A lowered table keeps actions that may overlap together, with their messages behind both:
   dualpipe-v takes what its blocks take, with costs as blocks or without. DualPipe's bubble is
   (PP/2 - 1)(F&B + B - 3W), where B is the whole backward pass and F&B a block of both. A V of
   P ranks is half of a DualPipe of PP = 2 P. The formula holds where F and I cost alike; W may
   cost anything. */
static void dualpipe(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int w = 1; w <= 3; w++) {
            int f = 3, in = 3, block = f + in + w;
            run r;

            CU_ASSERT_FATAL(open_run(&r, "dualpipe-v", ranks, 2, 4 * ranks, &plain));
            for (int s = 0; s < STAGES; s++) {
                r.stage[s].forward.of[WF_SIM_PRODUCTS] = f;
                r.stage[s].inputs.of[WF_SIM_PRODUCTS] = in;
                r.stage[s].weights.of[WF_SIM_PRODUCTS] = w;
            }
            r.costs.blocks = true;
            CU_ASSERT_FATAL(simulate(&r, 0));
            CU_ASSERT_EQUAL(r.result.makespan - r.result.rank[0].busy,
                            (ranks - 1) * (block + in + w - 3 * w));
            if (r.result.makespan - r.result.rank[0].busy !=
                (ranks - 1) * (block + in + w - 3 * w))
                printf("\n    %d ranks, W %d: %g\n", ranks, w,
                       r.result.makespan - r.result.rank[0].busy);
            close_run(&r);
        }
}

/* Two ranks, naive: each micro-batch goes there and back, with a message each way. */
static void messages(void)
{
    run r;

    CU_ASSERT_FATAL(open_run(&r, "naive", 2, 1, 4, &plain));
    r.stage[0].send_forward = 2;
    r.stage[1].send_backward = 3;
    r.costs.latency = 1;
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    CU_ASSERT_EQUAL(r.result.makespan, 4 * (1 + 3 + 3 + 4 + 2));
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_PIPELINE], 4 * 7);
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_PRODUCTS], 4 * 6);
    r.costs.background =
        false; /* the receiver moves them: the same, where nobody could overlap */
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    CU_ASSERT_EQUAL(r.result.makespan, 4 * (1 + 3 + 3 + 4 + 2));
    CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), r.result.makespan);
    close_run(&r);
}

/* One rank with gathers, reductions and an update: beside compute, or behind each other. */
static void collectives(void)
{
    const wf_pipe_lowering how = {.ahead = 1, .group = 4, .resident = 1, .prefetch = 1};
    run r;

    CU_ASSERT_FATAL(open_run(&r, "1f1b", 1, 1, 4, &how));
    r.stage[0].gather = 5;
    r.stage[0].reduce = 7;
    r.stage[0].update = 2;
    r.costs.norm = 1;
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    CU_ASSERT_EQUAL(r.result.makespan, 5 + 12 + 7 + 1 + 2);
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_GATHER], 5);
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_REDUCE], 7);
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_OPTIMIZER], 3);
    CU_ASSERT_EQUAL(r.result.rank[0].gathers, 5);
    CU_ASSERT_EQUAL(r.result.rank[0].reductions, 7);
    r.costs.background = false;
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    CU_ASSERT_EQUAL(r.result.makespan, 5 + 12 + 7 + 1 + 2);
    CU_ASSERT_EQUAL(r.result.path.of[WF_SIM_GATHER], 5);
    CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), r.result.makespan);
    close_run(&r);
}

/* All ranks wait in NORM for the last one: rank 1 is done at 4, rank 0 at 6, and whoever
   updates for longest does that behind it. */
static void norm_waits_for_all(void)
{
    for (int slow = 0; slow < 2; slow++) {
        run r;

        CU_ASSERT_FATAL(open_run(&r, "1f1b", 2, 1, 1, &plain));
        r.stage[slow].update = 10;
        r.costs.norm = 1;
        CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
        CU_ASSERT_EQUAL(r.result.makespan, 6 + 1 + 10);
        CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), r.result.makespan);
        close_run(&r);
    }
}

/* The ranks of the first and the last stage sum the gradients of a parameter that they share in
   TIE, before NORM lets all go on: rank 0 is done at 6, and rank 1 waits for it there. */
static void tie_comes_before_norm(void)
{
    static const wf_pipe_lowering tied = {.ahead = 1, .tied = true};
    run r;

    CU_ASSERT_FATAL(open_run(&r, "1f1b", 2, 1, 1, &tied));
    r.stage[1].update = 10;
    r.costs.tie = 1;
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    CU_ASSERT_EQUAL(r.result.makespan, 6 + 1 + 10);
    CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), r.result.makespan);
    for (int rank = 0; rank < 2; rank++) {
        int64_t n, tie = 0;
        const wf_pipe_action *row = wf_pipe_table_row(r.table, rank, &n);

        while (tie < n - 1 && row[tie].kind != WF_PIPE_TIE)
            tie++;
        CU_ASSERT_EQUAL(r.result.start[rank][tie], 6);
        CU_ASSERT_EQUAL(r.result.end[rank][tie], 7);
    }
    close_run(&r);
}

/* A stage whose reduction goes in buckets beside what another stage of its rank computes: what
   is waited for there is on the path, once. */
static void buckets(void)
{
    const wf_pipe_lowering how = {.ahead = 1, .group = 4};
    run r;

    CU_ASSERT_FATAL(open_run(&r, "interleaved", 2, 2, 4, &how));
    for (int s = 0; s < 4; s++) {
        r.stage[s].reduce = 12;
        r.stage[s].buckets = 3;
    }
    for (int background = 0; background < 2; background++) {
        r.costs.background = background;
        CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
        CU_ASSERT(r.result.path.of[WF_SIM_REDUCE] > 12);
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_total(&r.result.path), r.result.makespan, 1e-9);
    }
    close_run(&r);
}

/* Groups of two of four micro-batches: the W or B that completes one sums its gradients, and a
   W of two micro-batches has nothing left to compute beside that. */
static void sums_of_groups(void)
{
    static const struct {
        const char *name;
        int ranks;
        double sums;
    } cases[] = {{"1f1b", 1, 2 * 7}, {"zb-h1", 1, 2 * 5}, {"zb-h1", 2, 5 + 11}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int last = cases[i].ranks - 1;
        run r;

        CU_ASSERT_FATAL(open_run(&r, cases[i].name, cases[i].ranks, 1, 4, &plain));
        r.stage[last].group = 2;
        r.stage[last].sum = 5;
        r.stage[last].sum_joined = 7;
        r.stage[last].sum_after = 11;
        CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
        CU_ASSERT_EQUAL(r.result.rank[last].spent.of[WF_SIM_REDUCE], cases[i].sums);
        if (cases[i].ranks == 1)
            CU_ASSERT_EQUAL(r.result.makespan, 12 + cases[i].sums);
        close_run(&r);
    }
}

/* As many ranks as like on one core take what all of them compute; on as many cores as ranks,
   no longer than with cores of their own. */
static void shared_cores(void)
{
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};

    for (int i = 0; i < 4; i++) {
        double alone, two;
        run r;

        CU_ASSERT_FATAL(open_run(&r, names[i], 4, i == 3 ? 2 : 1, 8, &plain));
        CU_ASSERT_FATAL(simulate(&r, 0));
        alone = r.result.makespan;
        r.costs.cores = 1;
        CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
        CU_ASSERT_DOUBLE_EQUAL(r.result.makespan, 4 * 8 * 3 * (i == 3 ? 2 : 1), 1e-6);
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_total(&r.result.path), r.result.makespan, 1e-6);
        r.costs.cores = 2;
        CU_ASSERT_FATAL(simulate(&r, 0));
        two = r.result.makespan;
        CU_ASSERT(two >= alone && two <= 4 * 8 * 3 * (i == 3 ? 2 : 1));
        r.costs.cores = 4;
        CU_ASSERT_FATAL(simulate(&r, 0));
        CU_ASSERT_EQUAL(r.result.makespan, alone);
        close_run(&r);
    }
}

/* A step gains by one part in a million what the path says that it is worth, where no other
   path comes near. */
static void what_if(void)
{
    run r;
    double before, worth;

    CU_ASSERT_FATAL(open_run(&r, "1f1b", 4, 1, 16, &plain));
    for (int s = 0; s < STAGES; s++) {
        r.stage[s].forward.of[WF_SIM_PRODUCTS] = 1 + .013 * s;
        r.stage[s].inputs.of[WF_SIM_TENSOR] = .37;
        r.stage[s].send_forward = .11;
    }
    r.stage[2].inputs.of[WF_SIM_ELEMENTS] = 2;
    CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
    before = r.result.makespan;
    worth = 1e-6 * r.result.path.of[WF_SIM_TENSOR];
    CU_ASSERT(worth > 0);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_total(&r.result.path), before, 1e-9);
    for (int s = 0; s < STAGES; s++)
        r.stage[s].inputs.of[WF_SIM_TENSOR] *= 1 - 1e-6;
    CU_ASSERT_FATAL(simulate(&r, 0));
    CU_ASSERT_DOUBLE_EQUAL(before - r.result.makespan, worth, 1e-9);
    close_run(&r);
}

/* A table that cannot end, and one that has no messages. */
static void refusals(void)
{
    const wf_pipe_shape shape = {2, 2, 2, 0};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = NULL;
    run r;

    CU_ASSERT_FATAL(open_run(&r, "1f1b", 2, 1, 2, &plain));
    CU_ASSERT_FATAL(wf_pipe_generate("1f1b", &shape, &table, &error) == WF_OK);
    CU_ASSERT_EQUAL(wf_sim_run(table, &r.costs, 0, &r.result, &error), WF_EINVAL);
    CU_ASSERT(strstr(error.text, "lower it first") != NULL);
    wf_pipe_table_free(table);
    close_run(&r);
    CU_ASSERT_FATAL(
        open_run(&r, "zb-v", 4, 2, 16, &(wf_pipe_lowering){.ahead = 1, .depth = 1}));
    r.costs.background = false; /* sends end when they are received: one at a time is too few */
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_sim_run(r.table, &r.costs, 0, &r.result, &error), WF_EINVAL);
    CU_ASSERT(strstr(error.text, "stands still") != NULL);
    close_run(&r);
}

int main(void)
{
    static const wf_test tests[] = {
        {"published makespans and bubbles, as fractions", published_figures},
        {"DualPipe's formula", dualpipe},
        {"messages", messages},
        {"gathers, reductions, updates", collectives},
        {"NORM waits for all ranks", norm_waits_for_all},
        {"TIE comes before NORM", tie_comes_before_norm},
        {"reductions in buckets", buckets},
        {"sums of groups of micro-batches", sums_of_groups},
        {"fewer cores than ranks", shared_cores},
        {"what one part in a million is worth", what_if},
        {"what is refused", refusals},
        {NULL, NULL},
    };

    return wf_test_main("simulator", tests);
}
