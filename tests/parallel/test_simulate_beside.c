/*
 * tests/parallel/test_simulate_beside.c - a forward and a backward that alternate, simulated:
 * what of their exchanges is hidden, and a critical path that is the step.
 */
#include "parallel/pipeline/lower.h"
#include "parallel/simulate/simulate.h"
#include "tests/harness.h"

enum { STAGES = 16 };

/* A lowered table, and costs of its stages that are all alike. */
typedef struct run {
    wf_pipe_table *table;
    wf_sim_stage stage[STAGES];
    wf_sim_costs costs;
    wf_sim_result result;
} run;

static bool open_run(run *r, int ranks)
{
    const wf_pipe_shape shape = {ranks, 2 * ranks, 4 * ranks, 0};
    const wf_pipe_lowering how = {.ahead = 1, .depth = 2};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = NULL;

    *r = (run){.costs = {.background = true}};
    r->costs.stage = r->stage;
    for (int s = 0; s < STAGES; s++)
        r->stage[s].forward.of[WF_SIM_PRODUCTS] = r->stage[s].inputs.of[WF_SIM_PRODUCTS] =
            r->stage[s].weights.of[WF_SIM_PRODUCTS] = 1;
    if (wf_pipe_generate("dualpipe-v", &shape, &table, &error) == WF_OK)
        wf_pipe_lower(table, &how, &r->table, &error);
    wf_pipe_table_free(table);
    return error.code == WF_OK;
}

static bool simulate(run *r, int flags)
{
    wf_error error = {WF_OK, ""};

    wf_sim_result_free(&r->result);
    return wf_sim_run(r->table, &r->costs, flags, &r->result, &error) == WF_OK;
}

static void close_run(run *r)
{
    wf_sim_result_free(&r->result);
    wf_pipe_table_free(r->table);
}

static int pairs_of(const run *r, int rank)
{
    int64_t n;
    const wf_pipe_action *a = wf_pipe_table_row(r->table, rank, &n);
    int pairs = 0;

    for (int64_t i = 0; i < n; i++)
        pairs += wf_pipe_runs_beside(&a[i]);
    return pairs;
}

/* A part of F and a tick of I are exchanges. Where they alternate those of F are hidden by the
   two ticks that B computes, and are longer than these in the second round; the one of B by
   that of F. */
static void turns(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int exchange = 1; exchange <= 4; exchange += 3) {
            double hidden = 1 + (exchange < 2 ? exchange : 2), apart, busy;
            run r;

            CU_ASSERT_FATAL(open_run(&r, ranks));
            for (int s = 0; s < STAGES; s++) {
                r.stage[s].forward.of[WF_SIM_EXPERTS] = r.stage[s].exchange_forward = exchange;
                r.stage[s].inputs.of[WF_SIM_EXPERTS] = r.stage[s].exchange_back = 1;
            }
            CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
            apart = r.result.makespan;
            busy = r.result.rank[0].busy;
            CU_ASSERT_EQUAL(wf_sim_total(&r.result.path), apart);
            r.costs.beside = true;
            CU_ASSERT_FATAL(simulate(&r, WF_SIM_PATH));
            CU_ASSERT(pairs_of(&r, 0) > 0);
            CU_ASSERT_EQUAL(r.result.rank[0].busy, busy - pairs_of(&r, 0) * hidden);
            CU_ASSERT(r.result.makespan < apart);
            CU_ASSERT_DOUBLE_EQUAL(wf_sim_total(&r.result.path), r.result.makespan, 1e-9);
            close_run(&r);
        }
}

int main(void)
{
    static const wf_test tests[] = {
        {"forward and backward alternate", turns},
        {NULL, NULL},
    };

    return wf_test_main("simulate beside", tests);
}
