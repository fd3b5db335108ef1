/*
 * tests/parallel/test_sim_cost.c - machine files, what collectives take, and what stages cost:
 * FLOPs are those of a plan, and sums over stages do not depend on where a model is cut.
 */
#include "parallel/simulate/cost.h"
#include "tests/parallel/plan_harness.h"
#include <unistd.h>

static const wf_sim_machine machine = {.name = "of the test",
                                       .memory = 1e9,
                                       .rate[WF_BF16] = 1e12,
                                       .rate[WF_F32] = 1e12,
                                       .products = 1,
                                       .attention = 1,
                                       .bandwidth = 1e12,
                                       .devices = 8,
                                       .background = true,
                                       .inside = {100e9, 1e-6},
                                       .network = {10e9, 1e-5}};

static const wf_sim_model gpt2 = {.layers = 2,
                                  .width = WIDTH,
                                  .heads = HEADS,
                                  .kv_heads = HEADS,
                                  .head_dim = WIDTH / HEADS,
                                  .ffn = 4 * WIDTH,
                                  .vocabulary = VOCABULARY,
                                  .seq = TOKENS,
                                  .tied = true};

static wf_sim_layout layout_of(int pp, int shard, int tp, int micro, int micros)
{
    return (wf_sim_layout){.pp = pp,
                           .replicate = 1,
                           .shard = shard,
                           .tp = tp,
                           .micro = micro,
                           .micros = micros,
                           .dtype = WF_F32,
                           .parameter_bytes = 4,
                           .gradient_bytes = 4,
                           .group = 1};
}

/* The model FLOPs of a step are what the plans of all ranks say. */
static void flops(void)
{
    static reports planned;

    for (int k = 0; k < 4; k++) {
        training t = new_training(k % 2 ? LLAMA : GPT2, k % 2 ? 3 : HEADS, 4);
        wf_sim_model m = gpt2;
        wf_sim_layout l = layout_of(1, 1, k / 2 + 1, 2, 2);
        double all = 0;

        m.kv_heads = k % 2 ? 3 : HEADS;
        m.gated = k % 2;
        t.layout.tp = k / 2 + 1;
        t.options.micro_batch = 2;
        t.steps = 2;
        t.watch = report_step;
        t.arg = &planned;
        if (!plan(&t))
            return;
        for (int r = 0; r <= k / 2; r++)
            all += planned.of[r].model_flops;
        CU_ASSERT_DOUBLE_EQUAL(wf_sim_flops(&m, &l), all, 1e-9 * all);
        if (fabs(wf_sim_flops(&m, &l) - all) > 1e-9 * all)
            printf("\n    %d: %.9g, planned %.9g", k, wf_sim_flops(&m, &l), all);
    }
}

static double work(const wf_sim_stage *stage, int stages, wf_sim_term term)
{
    double sum = 0;

    for (int s = 0; s < stages; s++)
        sum += stage[s].forward.of[term] + stage[s].inputs.of[term] + stage[s].weights.of[term];
    return sum;
}

/* The time of products and attention is FLOPs over rate, however the model is cut, where
   attention makes its scores a second time in backward: 7 products in place of a model's 6.
   Recomputation is a forward more. */
static void stages(void)
{
    static const int64_t whole[] = {0, 4}, cut[] = {0, 2, 2, 4};
    wf_sim_layout l = layout_of(1, 1, 1, 1, 1);
    wf_sim_stage one[1], three[3];
    wf_sim_costs costs;
    double all, recompute;

    wf_sim_stages(&machine, &gpt2, &l, whole, 1, one, &costs);
    wf_sim_stages(&machine, &gpt2, &l, cut, 3, three, &costs);
    all = work(one, 1, WF_SIM_PRODUCTS) + work(one, 1, WF_SIM_ATTENTION) * 6 / 7;
    CU_ASSERT_DOUBLE_EQUAL(all, wf_sim_flops(&gpt2, &l) / 1e12, 1e-9 * all);
    for (int t = 0; t < WF_SIM_TERMS; t++)
        CU_ASSERT_DOUBLE_EQUAL(work(one, 1, (wf_sim_term)t), work(three, 3, (wf_sim_term)t),
                               1e-12);
    CU_ASSERT_EQUAL(work(three + 1, 1, WF_SIM_PRODUCTS), 0); /* it has no step */
    recompute = one[0].forward.of[WF_SIM_PRODUCTS];
    all = work(one, 1, WF_SIM_PRODUCTS);
    l.recompute = WF_SIM_RECOMPUTE_BLOCK;
    wf_sim_stages(&machine, &gpt2, &l, whole, 1, one, &costs);
    CU_ASSERT_DOUBLE_EQUAL(work(one, 1, WF_SIM_PRODUCTS), all + recompute, 1e-12);
    l.tp = 2;
    wf_sim_stages(&machine, &gpt2, &l, whole, 1, one, &costs);
    CU_ASSERT_DOUBLE_EQUAL(work(one, 1, WF_SIM_PRODUCTS), (all + recompute) / 2, 1e-12);
    CU_ASSERT(work(one, 1, WF_SIM_TENSOR) > 0);
}

/* Returns the time of attention of four blocks, three of which have a window, in pairs of a
   query and a key of a sequence: forward, or backward. */
static double pairs_of(wf_sim_model m, wf_sim_layout l, bool back)
{
    static const int64_t all[] = {0, 6};
    const double products = back ? 10 : 4;
    wf_sim_stage stage;
    wf_sim_costs costs;

    wf_sim_stages(&machine, &m, &l, all, 1, &stage, &costs);
    return (back ? stage.inputs : stage.forward).of[WF_SIM_ATTENTION] * 1e12 /
           (products * 4 * WIDTH * (double)l.micro);
}

/* There are 8 * 8 / 2 pairs of 8 tokens, 2 * (8 - 2 / 2) with a window of 2, and 2 * 4 * 4 / 2
   in chunks of 4. Of two ranks that gather keys the second has 24 of 32, and 8 of the window's
   14; the first rank's keys are in 24 and 8, its queries in 8 and 6. */
static void windows(void)
{
    wf_sim_model full = gpt2, window, chunks;
    wf_sim_layout l = layout_of(1, 1, 1, 3, 2), gather = l;

    full.layers = 4;
    full.seq = 8;
    window = chunks = full;
    window.windowed = chunks.windowed = .75;
    window.window = 2;
    chunks.window = -4;
    gather.cp = 2;
    gather.gather_keys = true;
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_keys(&full), 4, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_keys(&window), (32 + 3 * 14) / 4. / 8, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_keys(&chunks), (32 + 3 * 16) / 4. / 8, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_flops(&full, &l) - wf_sim_flops(&window, &l),
                           3. * 2 * 12 * 3 * (32 - 14) * WIDTH, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(window, l, false), 18.5, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(window, l, true), 18.5, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(chunks, l, true), 20, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(full, gather, false), 24, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(window, gather, false), (24 + 3 * 8) / 4., 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(full, gather, true), (2 * 24 + 8 + 2 * 24) / 5., 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(window, gather, true),
                           (104 + 3 * (2 * 8 + 6 + 2 * 8)) / 4. / 5, 1e-9);
    l.cp = 2;
    CU_ASSERT_DOUBLE_EQUAL(pairs_of(window, l, true), 18.5 / 2, 1e-9);
}

/* Attention that is made again takes its collectives again, and with sequence parallelism its
   input is in parts again. */
static void attention_recompute(void)
{
    static const int64_t whole[] = {0, 4};
    wf_sim_layout l = layout_of(1, 1, 2, 1, 1);
    wf_sim_stage stage;
    wf_sim_costs costs;
    double more[2], all = TOKENS * WIDTH * 4;

    for (int sp = 0; sp < 2; sp++) {
        l.sequence_parallel = sp;
        l.recompute = WF_SIM_KEEP_ALL;
        wf_sim_stages(&machine, &gpt2, &l, whole, 1, &stage, &costs);
        more[sp] = -work(&stage, 1, WF_SIM_TENSOR);
        l.recompute = WF_SIM_RECOMPUTE_ATTENTION;
        wf_sim_stages(&machine, &gpt2, &l, whole, 1, &stage, &costs);
        more[sp] += work(&stage, 1, WF_SIM_TENSOR);
    }
    all = wf_sim_collective(&machine, WF_SIM_REDUCE_SCATTER, all, 2, 1) +
          wf_sim_collective(&machine, WF_SIM_ALL_GATHER, all, 2, 1);
    CU_ASSERT_DOUBLE_EQUAL(more[0], (double)gpt2.layers * all, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(more[0], more[1], 1e-12);
}

/* The embedding's output is summed as fp32, and gathered in forward, in the bytes of
   activations; with sequence parallelism it stays in parts, and its gradient is gathered in
   place of it. */
static void embedding(void)
{
    static const int64_t cut[] = {0, 1, 4};
    const double all = TOKENS * WIDTH,
                 sum = wf_sim_collective(&machine, WF_SIM_REDUCE_SCATTER, 4 * all, 2, 1);
    wf_sim_layout l = layout_of(2, 1, 2, 1, 1);
    wf_sim_stage stage[2];
    wf_sim_costs costs;

    l.dtype = WF_BF16;
    wf_sim_stages(&machine, &gpt2, &l, cut, 2, stage, &costs);
    CU_ASSERT_DOUBLE_EQUAL(stage[0].forward.of[WF_SIM_TENSOR],
                           sum + wf_sim_collective(&machine, WF_SIM_ALL_GATHER, 2 * all, 2, 1),
                           1e-12);
    CU_ASSERT_EQUAL(stage[0].weights.of[WF_SIM_TENSOR], 0);
    l.sequence_parallel = true;
    wf_sim_stages(&machine, &gpt2, &l, cut, 2, stage, &costs);
    CU_ASSERT_DOUBLE_EQUAL(stage[0].forward.of[WF_SIM_TENSOR], sum, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(stage[0].weights.of[WF_SIM_TENSOR],
                           wf_sim_collective(&machine, WF_SIM_ALL_GATHER, 2 * all, 2, 1),
                           1e-12);
}

/* The head's ranks sum the gradient of its input, and agree on a token's largest logit, 4
   bytes, and on two sums, 8. */
static void head(void)
{
    static const int64_t cut[] = {0, 3, 4};
    const double all = TOKENS * WIDTH * 4;
    wf_sim_layout l = layout_of(2, 1, 2, 1, 1);
    wf_sim_stage stage[2];
    wf_sim_costs costs;

    wf_sim_stages(&machine, &gpt2, &l, cut, 2, stage, &costs);
    CU_ASSERT_DOUBLE_EQUAL(
        stage[1].inputs.of[WF_SIM_TENSOR],
        wf_sim_collective(&machine, WF_SIM_REDUCE_SCATTER, all, 2, 1) +
            wf_sim_collective(&machine, WF_SIM_ALL_GATHER, all, 2, 1) +
            wf_sim_collective(&machine, WF_SIM_ALL_REDUCE, 4 * TOKENS, 2, 1) +
            wf_sim_collective(&machine, WF_SIM_ALL_REDUCE, 8 * TOKENS, 2, 1),
        1e-12);
}

/* Replicas sum once a step, or, where groups of micro-batches are summed, each unit of a
   group. */
static void replicas(void)
{
    static const int64_t whole[] = {0, 4};
    wf_sim_layout l = layout_of(1, 2, 1, 1, 4);
    wf_sim_stage one, two;
    wf_sim_costs costs;

    l.reduce = WF_SIM_EACH;
    l.sharded = true;
    l.group = 2;
    wf_sim_stages(&machine, &gpt2, &l, whole, 1, &one, &costs);
    l.replicate = 2;
    wf_sim_stages(&machine, &gpt2, &l, whole, 1, &two, &costs);
    CU_ASSERT_EQUAL(two.reduce, 0);
    CU_ASSERT(two.sum > one.sum && two.sum_joined > one.sum_joined);
    l.group = 1;
    wf_sim_stages(&machine, &gpt2, &l, whole, 1, &two, &costs);
    CU_ASSERT(two.reduce > 0);
}

/* Within a host the link inside; beyond, what comes into a host over the links of all that are
   there. */
static void collectives(void)
{
    const double bytes = 8e9;

    CU_ASSERT_EQUAL(wf_sim_collective(&machine, WF_SIM_ALL_GATHER, bytes, 1, 1), 0);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_collective(&machine, WF_SIM_ALL_GATHER, bytes, 8, 1),
                           bytes * 7 / 8 / 100e9 + 3e-6, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_collective(&machine, WF_SIM_REDUCE_SCATTER, bytes, 4, 8),
                           bytes * 3 / 4 / 10e9 + 2e-5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_collective(&machine, WF_SIM_ALL_REDUCE, bytes, 32, 1),
                           2 * (bytes * 31 / 32 / 100e9 + 5e-5), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_collective(&machine, WF_SIM_ALL_REDUCE, bytes, 8, 4),
                           2 * (bytes * 3 / 4 / 20e9 + 3e-5), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_collective(&machine, WF_SIM_MESSAGE, bytes, 2, 8),
                           bytes / 10e9 + 1e-5, 1e-12);
}

static void refused(const char *text, const char *words)
{
    char path[] = "/tmp/weft-machine-XXXXXX";
    int file = mkstemp(path);
    wf_error error = {WF_OK, ""};
    wf_sim_machine m;

    CU_ASSERT_FATAL(file >= 0);
    CU_ASSERT(write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    CU_ASSERT_EQUAL(wf_sim_machine_read(path, &m, &error), WF_EDATA);
    CU_ASSERT(strstr(error.text, words) != NULL);
    if (!strstr(error.text, words))
        printf("\n    %s", error.text);
    unlink(path);
}

static void files(void)
{
    char path[] = "/tmp/weft-machine-XXXXXX";
    wf_error error = {WF_OK, ""};
    wf_sim_machine m;

    close(mkstemp(path));
    CU_ASSERT_EQUAL(wf_sim_machine_write(&machine, path, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_sim_machine_read(path, &m, &error), WF_OK);
    CU_ASSERT(strcmp(m.name, machine.name) == 0 && m.memory == machine.memory &&
              m.devices == 8 && m.background && m.network.latency == 1e-5);
    unlink(path);
    CU_ASSERT_EQUAL(wf_sim_machine_read(path, &m, &error), WF_EIO);
    refused("{", "machine file");
    refused("{\"weft_machine\": 2}", "weft_machine");
    refused("{\"weft_machine\": 1}", "device.memory is missing");
    refused("{\"weft_machine\": 1, \"device\": {\"memroy\": 1}}",
            "nothing is called device.memroy");
    refused("{\"weft_machine\": 1, \"colour\": 1}", "nothing is called colour");
    refused("{\"weft_machine\": 1, \"device\": {\"memory\": -1}}", "device.memory is -1");
    refused("{\"weft_machine\": 1, \"device\": {\"memory\": \"much\"}}", "is not a number");
    refused("{\"weft_machine\": 1, \"device\": {\"memory\": 1e9, \"bf16\": 1e9, \"fp32\": 1}}",
            "device.fp32 is 1: give a number from 1e+06 to 1e+21, in FLOP/s");
}

/* Experts are one op where a gated MLP has two, and a router two more; their gradient is one
   where it has four, and the router's two; of weights a router has one, and an MLP three. Their
   result is added by an op of its own, which beside tp an MLP's is, too. */
static void launches_of_experts(void)
{
    const wf_sim_layout l = layout_of(1, 4, 1, 2, 1);
    const int64_t whole[] = {0, gpt2.layers + 2};
    wf_sim_machine slow = machine;
    wf_sim_stage stage[2];
    wf_sim_costs costs;

    slow.launch = 1;
    for (int mixtures = 0; mixtures < 2; mixtures++) {
        wf_sim_model m = gpt2;

        m.gated = true;
        if (mixtures) {
            m.experts = 4;
            m.top_k = 2;
            m.expert_ffn = (double)m.ffn;
            m.mixtures = 1;
        }
        wf_sim_stages(&slow, &m, &l, whole, 1, &stage[mixtures], &costs);
    }
    CU_ASSERT_DOUBLE_EQUAL(
        stage[1].forward.of[WF_SIM_LAUNCH],
        stage[0].forward.of[WF_SIM_LAUNCH] + (l.tp > 1 ? 1 : 2) * (double)gpt2.layers, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(stage[1].inputs.of[WF_SIM_LAUNCH],
                           stage[0].inputs.of[WF_SIM_LAUNCH] - (double)gpt2.layers, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(stage[1].weights.of[WF_SIM_LAUNCH],
                           stage[0].weights.of[WF_SIM_LAUNCH] - 2 * (double)gpt2.layers, 1e-9);
}

int main(void)
{
    static const wf_test tests[] = {
        {"FLOPs are the plan's", flops},
        {"costs of stages", stages},
        {"windows and chunks", windows},
        {"attention that is made again", attention_recompute},
        {"the embedding's collectives", embedding},
        {"the head's collectives", head},
        {"sums over replicas", replicas},
        {"what collectives take", collectives},
        {"launches of experts", launches_of_experts},
        {"machine files", files},
        {NULL, NULL},
    };

    return wf_test_main("costs", tests);
}
