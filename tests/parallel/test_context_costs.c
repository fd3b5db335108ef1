/*
 * tests/parallel/test_context_costs.c - what ranks that split tokens take on a machine: their
 * bytes over cp are those that a plan counts, which are a run's; FLOPs are the plan's; and a
 * search splits tokens where nothing else fits.
 *
 * ctest: builds plain
 */
#include "core/dtype.h"
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search.h"
#include "parallel/simulate/cost_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include "tests/parallel/slow_links.h"
#include <math.h>
#include <string.h>

enum {
    BLOCKS = 2,
    WIDTH = 64,
    TOKENS = 64,
    BATCH = 8,
    LONG = 8192,
    RANKS = 8,
    STEPS = BLOCKS + 2
};

typedef struct row {
    const char *family;
    int kv_heads, cp, tp, dp, ep, micro;
    const char *dtype, *recompute, *form;
    bool sequence_parallel, chunks;
    int window; /* the first block has it, and the second has none */
} row;

static const row rows[] = {
    {"llama", 4, 2, 1, 1, 0, 1, "fp32", "none", .form = "heads"},
    {"llama", 4, 2, 2, 2, 0, 2, "bf16", "none", .form = "heads"},
    {"llama", 1, 4, 1, 1, 0, 1, "fp32", "none", .form = "heads"}, /* heads that ranks share */
    {"llama", 2, 2, 2, 1, 0, 2, "bf16", "block", .form = "heads"},
    {"llama", 2, 2, 1, 2, 0, 1, "bf16", "attention", .form = "heads"},
    {"llama", 2, 4, 1, 1, 0, 1, "bf16", "none", .form = "gather"},
    {"llama", 1, 2, 4, 1, 0, 4, "fp32", "block", .form = "gather"},
    {"llama", 4, 2, 2, 1, 0, 2, "bf16", "none", .form = "gather", .sequence_parallel = true},
    {"qwen3", 2, 4, 2, 1, 0, 2, "bf16", "none", .form = "gather"}, /* norms of heads */
    {"mixtral", 4, 2, 1, 2, 0, 1, "bf16", "none", .form = "heads"},
    {"llama", 4, 2, 1, 1, 0, 1, "fp32", "none", .form = "heads", .window = 24},
    {"llama", 2, 4, 1, 1, 0, 1, "fp32", "block", .form = "gather", .window = 24},
    {"llama", 2, 4, 2, 1, 0, 1, "fp32", "none", .form = "gather", .chunks = true, .window = 20},
    {"mixtral", 4, 2, 2, 2, 4, 2, "fp32", "none", .form = "heads"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static wf_plan_request *ask(const row *k, gpt_request *made)
{
    wf_plan_request *r = gpt_request_make(k->family, BLOCKS, WIDTH, TOKENS, BATCH, made);

    made->config.kv_heads = k->kv_heads;
    made->config.window = k->window;
    made->config.window_skip = BLOCKS;
    made->config.window_chunks = k->chunks;
    made->sizes = wf_par_gpt_sizes(&made->config, TOKENS);
    r->job.mesh.dispatch = WF_PAR_DISPATCH_GATHER;
    r->cp = k->cp;
    r->tp = k->tp;
    r->dp = k->dp;
    r->ep = k->ep;
    r->micro_batch_size = k->micro;
    r->sequence_parallel = k->sequence_parallel;
    snprintf(r->cp_form, sizeof r->cp_form, "%s", k->form);
    snprintf(r->strategy, sizeof r->strategy, "no_shard");
    snprintf(r->dtype, sizeof r->dtype, "%s", k->dtype);
    snprintf(r->compute, sizeof r->compute, "%s", k->dtype);
    snprintf(r->recompute, sizeof r->recompute, "%s", k->recompute);
    r->rank = wf_plan_ranks(r) - 1;
    return r;
}

static wf_sim_layout layout_of(const wf_plan_request *r, const row *k)
{
    int ep = k->ep > k->tp ? k->ep / k->tp : 1;

    return (wf_sim_layout){
        .pp = 1,
        .replicate = 1,
        .shard = k->dp / ep,
        .ep = ep,
        .tp = k->tp,
        .cp = k->cp,
        .gather_keys = strcmp(k->form, "gather") == 0,
        .sequence_parallel = k->sequence_parallel,
        .micro = k->micro,
        .micros = wf_plan_micro_steps(r),
        .dtype = wf_dtype_find(k->dtype),
        .parameter_bytes = 4,
        .gradient_bytes = 4,
        .group = 1,
        .recompute = strcmp(k->recompute, "block") == 0       ? WF_SIM_RECOMPUTE_BLOCK
                     : strcmp(k->recompute, "attention") == 0 ? WF_SIM_RECOMPUTE_ATTENTION
                                                              : WF_SIM_KEEP_ALL};
}

static double bytes_over_cp(const wf_plan *plan)
{
    double bytes = 0;

    for (int i = 0; i < plan->report.n_traffic; i++)
        for (int k = 0; k < WF_COLLECTIVE_KINDS; k++)
            if (strcmp(plan->report.traffic[i].axis, "cp") == 0)
                bytes += (double)plan->report.traffic[i].counters.of[k].bytes;
    return bytes;
}

/* Figures of plans: bytes that come over cp, in the mean of ranks, since heads that they do not
   divide are whole on some; and model FLOPs of all. */
typedef struct planned {
    double bytes, flops;
} planned;

static planned planned_of(wf_plan_request *r)
{
    int64_t ranks = wf_plan_ranks(r);
    wf_error error = {WF_OK, ""};
    planned all = {0, 0};
    wf_plan plan;

    for (r->rank = 0; r->rank < ranks; r->rank++) {
        CU_ASSERT_EQUAL(wf_plan_request_step(r, &plan, &error), WF_OK);
        if (error.code != WF_OK)
            break;
        all.bytes += bytes_over_cp(&plan) / (double)ranks;
        all.flops += plan.report.model_flops;
    }
    return all;
}

static void costs(void)
{
    static const int64_t whole[] = {0, STEPS};

    for (int i = 0; i < ROWS; i++) {
        gpt_request made;
        wf_plan_request *r = ask(&rows[i], &made);
        wf_sim_layout l = layout_of(r, &rows[i]);
        planned counted = planned_of(r);
        wf_sim_stage stage;
        wf_sim_costs costs;
        double said;

        wf_sim_stages(&slow_links, &made.sizes, &l, whole, 1, &stage, &costs);
        said = (double)l.micros * seconds_of(&stage, WF_SIM_CONTEXT);
        CU_ASSERT(counted.bytes > 0);
        CU_ASSERT_DOUBLE_EQUAL(said, counted.bytes, 2e-3 * counted.bytes);
        if (fabs(said - counted.bytes) > 2e-3 * counted.bytes)
            printf("\n    row %d: %.0f bytes simulated, %.0f planned", i, said, counted.bytes);
        said = wf_sim_flops(&made.sizes, &l); /* though ranks that gather compute pairs twice */
        CU_ASSERT_DOUBLE_EQUAL(counted.flops, said, 1e-9 * said);
    }
}

/* Counts pairs of a query and a key by hand, of 64 tokens, a head, and the one block that has a
   window: 64 * 64 / 2 without one, 24 * (64 - 24 / 2) of 24, 3 * 20 * 20 / 2 + 4 * 4 / 2 in
   chunks of 20. A pair has 12 model FLOPs a feature. */
static void pairs_by_hand(void)
{
    static const double pairs[] = {2048, 1248, 608};
    double full = 0;

    for (int i = 0; i < 3; i++) {
        row k = rows[0];
        gpt_request made;
        double flops;

        k.window = i == 0 ? 0 : i == 1 ? 24 : 20;
        k.chunks = i == 2;
        flops = planned_of(ask(&k, &made)).flops;
        full = i == 0 ? flops : full;
        CU_ASSERT_DOUBLE_EQUAL(full - flops, 12. * WIDTH * BATCH * (pairs[0] - pairs[i]), 1);
    }
}

/* With ep gradients are summed block by block in every micro-step, whenever others are: each
   sum waits for its messages. */
static void messages(void)
{
    static const int64_t whole[] = {0, STEPS};
    wf_sim_machine machine = slow_links;
    double took[2][2];
    gpt_request made;
    wf_plan_request *r = ask(&rows[ROWS - 1], &made); /* ep 4 of tp 2 */
    wf_sim_layout l = layout_of(r, &rows[ROWS - 1]);

    machine.inside.latency = machine.network.latency = 1e6;
    for (int alone = 0; alone < 2; alone++) {
        l.ep = alone ? 1 : l.ep;
        for (int each = 0; each < 2; each++) {
            wf_sim_stage stage;
            wf_sim_costs costs;

            l.reduce = each ? WF_SIM_EACH : WF_SIM_ONCE;
            wf_sim_stages(&machine, &made.sizes, &l, whole, 1, &stage, &costs);
            took[alone][each] = stage.weights.of[WF_SIM_CONTEXT];
        }
    }
    CU_ASSERT_DOUBLE_EQUAL(took[0][0], took[0][1], 1e-12 * took[0][1]);
    /* in a step there is one sum of matrices and one of vectors, of two messages, in place of
       as many for each block beside them; a norm's bytes are beside it */
    CU_ASSERT_DOUBLE_EQUAL(took[1][1] - took[1][0], 4 * BLOCKS * machine.inside.latency, 2e3);
}

/* One long sequence on 8 ranks: what a search finds where tokens may be split, as `form` says,
   or not. */
static void find(const char *form, int64_t cp, wf_plan_list *list)
{
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = gpt_request_make("llama", BLOCKS, WIDTH, LONG, 1, &made);

    r->ranks = RANKS;
    r->device_memory = 60 << 20;
    r->cp = cp ? cp : 1;
    r->given[WF_SETTING_cp] = cp > 0;
    snprintf(r->cp_form, sizeof r->cp_form, "%s", form);
    r->given[WF_SETTING_cp_form] = strcmp(form, "auto") != 0;
    CU_ASSERT_EQUAL(wf_plan_search(r, list, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
}

static void search(void)
{
    wf_plan_list with, gathered, without;

    find("auto", 0, &with);
    find("gather", 2, &gathered);
    find("auto", 1, &without);
    CU_ASSERT_FATAL(with.count > 0 && gathered.count > 0);
    CU_ASSERT(with.layout[0].request.cp > 1);
    CU_ASSERT(strstr(with.layout[0].flags, "--cp ") != NULL);
    CU_ASSERT(without.count == 0 || without.layout[0].seconds > with.layout[0].seconds);
    CU_ASSERT(gathered.layout[0].seconds >= with.layout[0].seconds);
    for (int64_t i = 0; i < gathered.count; i++)
        CU_ASSERT_STRING_EQUAL(gathered.layout[i].request.cp_form, "gather");
    wf_plan_list_free(&with);
    wf_plan_list_free(&gathered);
    wf_plan_list_free(&without);
}

enum { EACH = 200 }; /* tokens of a rank */

/* Returns the pairs of a query and a key, of a window or chunks, and those of the slowest rank
   of gathered keys: forward, and backward, where scores and their gradients are of all its
   pairs, dq of its queries', dk and dv of its keys', as five products each. */
static double count_pairs(int cp, int window, double most[2])
{
    double queries[RANKS] = {0}, products[RANKS] = {0}, pairs = 0;

    for (int q = 0; q < cp * EACH; q++) {
        int first = window > 0 ? q - window + 1 : window < 0 ? q / -window * -window : 0;

        for (int k = first > 0 ? first : 0; k <= q; k++, pairs++) {
            queries[q / EACH]++;
            products[q / EACH] += 3;
            products[k / EACH] += q / EACH == k / EACH ? 2 : 4;
        }
    }
    for (int rank = 0; rank < cp; rank++) {
        most[0] = fmax(most[0], queries[rank]);
        most[1] = fmax(most[1], products[rank] / 5);
    }
    return pairs;
}

/* A pair of a token and itself counts half in costs. */
static void slowest_ranks(void)
{
    static const int windows[] = {0, 150, 330, -90, -350};
    const double NEAR = .02;

    for (int i = 0; i < 15; i++) {
        int cp = 2 << i % 3, window = windows[i / 3];
        wf_sim_layout split = {.cp = cp}, gather = {.cp = cp, .gather_keys = true};
        wf_sim_model m = {.seq = cp * EACH, .windowed = .75, .window = window};
        double most[2] = {0}, full[2] = {0}, pairs = count_pairs(cp, window, most);
        double all = count_pairs(cp, 0, full);

        for (int k = 0; k < 2; k++)
            most[k] = .25 * full[k] + .75 * most[k];
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_forward_pairs(&m, &gather) / most[0], 1, NEAR);
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_backward_pairs(&m, &gather) / most[1], 1, NEAR);
        pairs = (.25 * all + .75 * pairs) / cp;
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_forward_pairs(&m, &split) / pairs, 1, NEAR);
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_backward_pairs(&m, &split) / pairs, 1, NEAR);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"bytes over cp and FLOPs are the plan's", costs},
        {"pairs by hand", pairs_by_hand},
        {"slowest ranks", slowest_ranks},
        {"messages of sums with ep", messages},
        {"a search splits tokens", search},
        {NULL, NULL},
    };

    return wf_test_main("costs of context parallelism", tests);
}
