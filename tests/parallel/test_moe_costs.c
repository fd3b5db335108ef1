/*
 * tests/parallel/test_moe_costs.c - what a mixture takes on a machine: the bytes of its tokens
 * over ep are those that a plan counts, which are a run's; FLOPs are the plan's; and loads of
 * experts that are uneven by a factor make products longer.
 *
 * ctest: builds plain
 */
#include "core/dtype.h"
#include "parallel/plan/imbalance.h"
#include "parallel/plan/request_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include "tests/parallel/slow_links.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 4, WIDTH = 64, TOKENS = 32, BATCH = 16, STEPS = BLOCKS + 2 };

typedef struct row {
    int tp, dp, ep, micro;
    const char *dtype, *recompute;
    bool sequence_parallel, exchange;
    int etp;
} row;

static const row rows[] = {
    {1, 4, 2, 2, "fp32", "none", false, false, 1},
    {1, 4, 4, 1, "fp32", "none", false, false, 1},
    {1, 4, 2, 4, "bf16", "none", false, false, 1},
    {2, 4, 4, 2, "bf16", "none", false, false, 1},
    {2, 4, 8, 1, "bf16", "none", true, false, 1},
    {2, 4, 4, 4, "fp32", "none", true, false, 1},
    {1, 4, 2, 1, "fp32", "block", false, false, 1},
    {2, 2, 4, 2, "bf16", "block", true, false, 1},
    {1, 4, 4, 2, "bf16", "none", false, true, 1},
    {2, 4, 8, 1, "fp32", "none", true, true, 1},
    {2, 4, 8, 1, "bf16", "block", false, true, 1},
    {2, 4, 2, 2, "fp32", "none", false, false, 2},
    {2, 4, 4, 1, "bf16", "none", true, false, 2},
    {2, 4, 4, 1, "bf16", "block", true, true, 2},
    {4, 2, 2, 2, "fp32", "none", false, true, 4},
};

static int ep_of(const row *k)
{
    return k->ep * (k->etp > 1 ? k->etp : 1) / k->tp;
}

static wf_plan_request *ask(const row *k, const char *strategy, gpt_request *made)
{
    wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, WIDTH, TOKENS, BATCH, made);

    r->tp = k->tp;
    r->dp = k->dp;
    r->ep = k->ep;
    r->etp = k->etp;
    r->job.mesh.dispatch = k->exchange ? WF_PAR_DISPATCH_EXCHANGE : WF_PAR_DISPATCH_GATHER;
    r->micro_batch_size = k->micro;
    r->sequence_parallel = k->sequence_parallel;
    snprintf(r->strategy, sizeof r->strategy, "%s", strategy);
    snprintf(r->dtype, sizeof r->dtype, "%s", k->dtype);
    snprintf(r->compute, sizeof r->compute, "%s", k->dtype);
    snprintf(r->recompute, sizeof r->recompute, "%s", k->recompute);
    r->rank = wf_plan_ranks(r) - 1;
    return r;
}

static wf_sim_layout layout_of(const wf_plan_request *r, const row *k)
{
    int ep = ep_of(k);

    return (wf_sim_layout){.pp = 1,
                           .replicate = 1,
                           .shard = k->dp / ep,
                           .ep = ep,
                           .exchange = k->exchange,
                           .tp = k->tp,
                           .features = k->etp > 1,
                           .sequence_parallel = k->sequence_parallel,
                           .micro = k->micro,
                           .micros = wf_plan_micro_steps(r),
                           .dtype = wf_dtype_find(k->dtype),
                           .parameter_bytes = 4,
                           .gradient_bytes = 4,
                           .group = 1,
                           .recompute = strcmp(k->recompute, "block") == 0
                                            ? WF_SIM_RECOMPUTE_BLOCK
                                            : WF_SIM_KEEP_ALL};
}

/* Bytes of tokens that a rank receives over an axis by collectives that gather and scatter. */
static double planned_bytes(const wf_plan *plan, const char *axis)
{
    double bytes = 0;

    for (int i = 0; i < plan->report.n_traffic; i++) {
        const wf_par_traffic *t = &plan->report.traffic[i];

        if (strcmp(t->axis, axis) == 0)
            bytes += (double)(t->counters.of[WF_ALL_GATHER].bytes +
                              t->counters.of[WF_ALL_TO_ALL].bytes +
                              t->counters.of[WF_REDUCE_SCATTER].bytes -
                              t->parameters.of[WF_ALL_GATHER].bytes -
                              t->parameters.of[WF_REDUCE_SCATTER].bytes);
    }
    return bytes;
}

/* Bytes by which replicas sum what they hold, once a step: all that ep has not split. */
static double replicas_bytes(const wf_plan *plan)
{
    for (int i = 0; i < plan->report.n_traffic; i++)
        if (strcmp(plan->report.traffic[i].axis, "replicate") == 0)
            return (double)plan->report.traffic[i].counters.of[WF_ALL_REDUCE].bytes;
    return 0;
}

/* Those of tokens, whatever parameters a strategy moves beside them. */
static void bytes_of(const char *strategy)
{
    static const int64_t whole[] = {0, STEPS};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_error error = {WF_OK, ""};
        gpt_request made;
        wf_plan_request *r = ask(&rows[i], strategy, &made);
        wf_sim_layout l = layout_of(r, &rows[i]);
        wf_sim_stage stage;
        wf_sim_costs costs;
        wf_plan plan;
        double said, counted, reduced, off;

        CU_ASSERT_EQUAL_FATAL(wf_plan_request_step(r, &plan, &error), WF_OK);
        l.reduce = WF_SIM_ONCE;
        wf_sim_stages(&slow_links, &made.sizes, &l, whole, 1, &stage, &costs);
        reduced = replicas_bytes(&plan); /* a norm is beside gradients */
        if (strcmp(strategy, "no_shard") == 0)
            CU_ASSERT_DOUBLE_EQUAL(stage.reduce, reduced, 1e-2 * reduced);
        said = (double)l.micros * seconds_of(&stage, WF_SIM_EXPERTS);
        counted = planned_bytes(&plan, "ep");
        off = rows[i].exchange ? 0.05 : 1e-9; /* whole rows */
        CU_ASSERT(counted > 0);
        CU_ASSERT_DOUBLE_EQUAL(said, counted, off * counted);
        if (fabs(said - counted) > off * counted)
            printf("\n    row %zu: %.0f bytes simulated, %.0f planned", i, said, counted);
    }
}

static void bytes(void)
{
    bytes_of("no_shard");
    bytes_of("full_shard");
}

/* Over tp, which splits tokens too, a gradient of what experts gave is gathered: of a rank's
   own tokens where rows are exchanged, of those of all ranks of ep where they are not. That
   of what experts took is combined as tokens are split. */
static void gathered_bytes(void)
{
    enum { EP = 4, MICROS = BATCH / EP, OTHER_HALF = TOKENS * WIDTH * sizeof(float) / 2 };
    int64_t gathered[2] = {0, 0};

    for (int exchange = 0; exchange < 2; exchange++) {
        const row k = {2, EP, 2 * EP, 1, "fp32", "none", true, exchange, 1};
        wf_error error = {WF_OK, ""};
        gpt_request made;
        wf_plan plan;

        CU_ASSERT_EQUAL_FATAL(wf_plan_request_step(ask(&k, "full_shard", &made), &plan, &error),
                              WF_OK);
        for (int i = 0; i < plan.report.n_traffic; i++)
            if (strcmp(plan.report.traffic[i].axis, "tp") == 0)
                gathered[exchange] += plan.report.traffic[i].counters.of[WF_ALL_GATHER].bytes;
    }
    CU_ASSERT_EQUAL(gathered[0] - gathered[1],
                    (int64_t)BLOCKS * MICROS * (EP - 1) * OTHER_HALF);
}

/* Model FLOPs of all ranks; those of attention are of scores that are made once. */
static void flops(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_error error = {WF_OK, ""};
        gpt_request made;
        wf_plan_request *r = ask(&rows[i], "full_shard", &made);
        wf_sim_layout l = layout_of(r, &rows[i]);
        double all = 0, said;
        wf_plan plan;

        for (r->rank = 0; r->rank < wf_plan_ranks(r); r->rank++) {
            CU_ASSERT_EQUAL_FATAL(wf_plan_request_step(r, &plan, &error), WF_OK);
            all += plan.report.model_flops;
        }
        said = wf_sim_flops(&made.sizes, &l);
        CU_ASSERT_DOUBLE_EQUAL(said, all, 1e-9 * all);
        if (fabs(said - all) > 1e-9 * all)
            printf("\n    row %zu: %.9g FLOPs, planned %.9g", i, said, all);
    }
}

static double products_of(const wf_sim_model *model, const wf_sim_layout *l)
{
    static const int64_t whole[] = {0, STEPS};
    wf_sim_machine machine = slow_links;
    wf_sim_stage stage;
    wf_sim_costs costs;

    machine.rate[WF_F32] = 1;
    wf_sim_stages(&machine, model, l, whole, 1, &stage, &costs);
    return seconds_of(&stage, WF_SIM_PRODUCTS);
}

/* The fullest rank's experts take a factor more, where experts are split, and never more than
   all tokens. */
static void factors(void)
{
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = ask(&rows[0], "full_shard", &made);
    wf_sim_layout l = layout_of(r, &rows[0]);
    double even = products_of(&made.sizes, &l), twice, most, alone;
    double experts = 2.0 * 11 / 3 * (double)(rows[0].micro * TOKENS) * BLOCKS *
                     wf_sim_expert_weights(&made.sizes) * 2 / 8; /* two of 8 are chosen */

    CU_ASSERT_EQUAL(wf_plan_imbalance("1.5", &made.sizes, &error), WF_OK);
    twice = products_of(&made.sizes, &l);
    CU_ASSERT_DOUBLE_EQUAL(twice - even, .5 * experts, 1e-9 * even);
    CU_ASSERT_EQUAL(wf_plan_imbalance("5", &made.sizes, &error), WF_OK);
    most = products_of(&made.sizes, &l);
    CU_ASSERT_DOUBLE_EQUAL(most - even, experts, 1e-9 * even); /* one of two ranks has all */
    l.ep = 1;
    l.shard = 4;
    alone = products_of(&made.sizes, &l);
    CU_ASSERT_DOUBLE_EQUAL(alone, even - experts * 2 / 11, 1e-9 * even); /* gate, up are kept */
    CU_ASSERT_EQUAL(wf_plan_imbalance("0.5", &made.sizes, &error), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_plan_imbalance("/nowhere/rows", &made.sizes, &error), WF_EIO);
}

/* Seconds that a layout takes for tokens of experts, where `factor` says how much more than the
   mean the fullest rank takes. */
static double experts_by(const char *factor, const row *k)
{
    static const int64_t whole[] = {0, STEPS};
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = ask(k, "no_shard", &made);
    wf_sim_layout l = layout_of(r, k);
    wf_sim_stage stage;
    wf_sim_costs costs;

    CU_ASSERT_EQUAL(wf_plan_imbalance(factor, &made.sizes, &error), WF_OK);
    wf_sim_stages(&slow_links, &made.sizes, &l, whole, 1, &stage, &costs);
    return seconds_of(&stage, WF_SIM_EXPERTS);
}

/* The fullest rank of an exchange takes and sends back a factor more of the rows, and never
   more than all of them, which are what each rank gathers. */
static void fullest_of_an_exchange(void)
{
    enum { EP = 4, F32 = 4 };
    row k = {1, EP, EP, 2, "fp32", "none", false, true, 1};
    const double all = 2.0 * TOKENS * EP * WIDTH * BLOCKS, of_ranks = (EP - 1.0) / EP;
    const double share = 1 - (6 * 5) / (8 * 7.0); /* rows that choose one of 2 experts of 8 */
    const double rows_take = 4 * F32 * all * of_ranks; /* to experts and home, and back again */
    double even = experts_by("1", &k), most = experts_by("4", &k), gathered;

    CU_ASSERT_DOUBLE_EQUAL(experts_by("1.5", &k) - even, .5 * share * rows_take, 1e-9 * even);
    CU_ASSERT_DOUBLE_EQUAL(most - even, (1 - share) * rows_take, 1e-9 * even);
    k.exchange = false;
    gathered = experts_by("1", &k);
    CU_ASSERT_DOUBLE_EQUAL(most, gathered, 1e-9 * even);
    CU_ASSERT_DOUBLE_EQUAL(experts_by("4", &k), gathered, 1e-9 * even);
}

/* In waves the links of one rank of four move what is sent, and come home, at a time, and
   tokens are sent again for backward: a fifth move beside four. */
static void in_waves(void)
{
    enum { EP = 4, F32 = 4 };
    static const int64_t whole[] = {0, STEPS};
    static const row k = {1, EP, EP, 2, "fp32", "none", false, true, 1};
    const double all = 2.0 * TOKENS * EP * WIDTH * BLOCKS, of_ranks = (EP - 1.0) / EP;
    const double move = (1 - (6 * 5) / (8 * 7.0)) * F32 * all * of_ranks;
    static const double buffers[] = {0, 0.5, 0.25, 1e-3, 2};
    static const double turns[] = {1, 4, 4, 4, 1};
    double even = 0;

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        gpt_request made;
        wf_plan_request *r = ask(&k, "no_shard", &made);
        wf_sim_layout l = layout_of(r, &k);
        wf_sim_stage stage;
        wf_sim_costs costs;
        double said;

        made.sizes.buffer = buffers[i];
        made.sizes.expert_ffn = 8 * made.sizes.mixtures;
        wf_sim_stages(&slow_links, &made.sizes, &l, whole, 1, &stage, &costs);
        said = seconds_of(&stage, WF_SIM_EXPERTS);
        even = i == 0 ? said : even;
        CU_ASSERT_DOUBLE_EQUAL(said - even, turns[i] > 1 ? (5 * turns[i] - 4) * move : 0,
                               1e-9 * even);
    }
}

/* Exchanges run beside the shared expert's products, where the machine moves in the background:
   what is exposed is what they take longer; and a plan counts no byte of theirs as exposed. */
static void overlapped_over(int tp)
{
    static const int64_t whole[] = {0, STEPS};
    enum { RATE = 100 }; /* moves take longer */
    row k = {tp, 4, 4 * tp, 2, "fp32", "none", false, true, 1};
    wf_error error = {WF_OK, ""};
    wf_sim_machine machine = slow_links;
    double waits[2], took[2], product;
    gpt_request made;
    wf_sim_stage stage;
    wf_sim_costs costs;
    wf_plan plan;

    for (int on = 0; on < 2; on++) {
        wf_plan_request *r = ask(&k, "no_shard", &made);
        wf_sim_layout l = layout_of(r, &k);

        made.config.shared_ffn = WIDTH;
        made.sizes = wf_par_gpt_sizes(&made.config, TOKENS);
        product = 2.0 * k.micro * TOKENS * WIDTH * WIDTH / RATE / tp;
        l.overlap = true;
        machine.rate[WF_F32] = RATE;
        machine.background = on;
        wf_sim_stages(&machine, &made.sizes, &l, whole, 1, &stage, &costs);
        took[on] = seconds_of(&stage, WF_SIM_EXPERTS);
        r->job.mesh.moe_overlap_off = !on;
        CU_ASSERT_EQUAL_FATAL(wf_plan_request_step(r, &plan, &error), WF_OK);
        waits[on] = 0;
        for (int i = 0; i < plan.report.n_traffic; i++)
            waits[on] += (double)plan.report.traffic[i].counters.of[WF_ALL_TO_ALL].exposed;
    }
    CU_ASSERT(waits[0] > 0 && waits[1] == 0);
    CU_ASSERT(took[0] > took[1]);
    CU_ASSERT_DOUBLE_EQUAL(took[0] - took[1], BLOCKS * 6 * product, 1e-6 * took[0]);
}

static void overlapped(void)
{
    overlapped_over(1);
    overlapped_over(2);
}

/* With ep gradients of vectors are summed in every micro-step, and the gradient of a tied
   embedding that stages exchange is a part of one more axis. */
static void sums(void)
{
    static const int64_t two[] = {0, STEPS / 2, STEPS};
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = ask(&rows[4], "full_shard", &made);
    wf_sim_layout l = layout_of(r, &rows[4]);
    wf_sim_stage stage[2];
    wf_sim_costs costs;
    double each, tie;

    CU_ASSERT_EQUAL(error.code, WF_OK);
    made.sizes.tied = true;
    l.pp = 2;
    l.sharded = true;
    l.reduce = WF_SIM_EACH;
    wf_sim_stages(&slow_links, &made.sizes, &l, two, 2, stage, &costs);
    each = stage[0].weights.of[WF_SIM_TENSOR];
    tie = costs.tie;
    CU_ASSERT(each > 0 && tie > 0);
    l.reduce = WF_SIM_ONCE;
    wf_sim_stages(&slow_links, &made.sizes, &l, two, 2, stage, &costs);
    CU_ASSERT_DOUBLE_EQUAL(stage[0].weights.of[WF_SIM_TENSOR], each, 1e-12 * each);
    l.ep = 1;
    wf_sim_stages(&slow_links, &made.sizes, &l, two, 2, stage, &costs);
    CU_ASSERT(stage[0].weights.of[WF_SIM_TENSOR] < each);
    CU_ASSERT_DOUBLE_EQUAL(costs.tie, 4 * tie, 1e-9 * tie);
}

int main(void)
{
    static const wf_test tests[] = {
        {"bytes of tokens over ep are a plan's", bytes},
        {"bytes of tokens that are gathered over tp", gathered_bytes},
        {"FLOPs are the plan's", flops},
        {"loads by a factor", factors},
        {"the fullest rank of an exchange", fullest_of_an_exchange},
        {"exchanges in waves", in_waves},
        {"exchanges beside products", overlapped},
        {"sums with ep", sums},
        {NULL, NULL},
    };

    return wf_test_main("costs of mixtures", tests);
}
