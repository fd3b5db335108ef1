/* tests/parallel/test_cost.c - what collectives and stages take on a machine, against figures
   worked out by hand. */
#include "parallel/simulate/cost.h"
#include "tests/harness.h"
#include <stdio.h>

static const wf_sim_machine machine = {.rate[WF_BF16] = 1000,
                                       .rate[WF_F32] = 500,
                                       .products = .5,
                                       .attention = .25,
                                       .bandwidth = 200,
                                       .devices = 8,
                                       .inside = {100, 1},
                                       .network = {10, 3}};

/* All but a rank's own part passes its link inside a host; between hosts all but the host's own
   part, over the links of all members there. */
static void collectives(void)
{
    static const struct {
        wf_sim_move move;
        int64_t ranks, stride;
        double seconds;
    } cases[] = {
        {WF_SIM_ALL_GATHER, 8, 1, 7 + 3},       {WF_SIM_REDUCE_SCATTER, 8, 1, 7 + 3},
        {WF_SIM_ALL_REDUCE, 8, 1, 2 * (7 + 3)}, {WF_SIM_BROADCAST, 8, 1, 8 + 3},
        {WF_SIM_MESSAGE, 2, 1, 8 + 1},          {WF_SIM_MESSAGE, 2, 8, 80 + 3},
        {WF_SIM_ALL_GATHER, 2, 4, 4 + 1},       {WF_SIM_ALL_GATHER, 16, 1, 7.5 + 4 * 3},
        {WF_SIM_ALL_GATHER, 4, 8, 60 + 2 * 3},  {WF_SIM_ALL_REDUCE, 4, 4, 2 * (20 + 2 * 3)},
        {WF_SIM_ALL_REDUCE, 1, 1, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double took =
            wf_sim_collective(&machine, cases[i].move, 800, cases[i].ranks, cases[i].stride);

        if (took != cases[i].seconds)
            printf("\n    case %zu takes %g, not %g\n", i, took, cases[i].seconds);
        CU_ASSERT_EQUAL(took, cases[i].seconds);
    }
}

/* Two blocks of 144 weights on 4 tokens, with 4 features in heads, and a head of 64. */
static const wf_sim_model model = {.layers = 2,
                                   .width = 4,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 2,
                                   .ffn = 8,
                                   .vocabulary = 16,
                                   .seq = 4,
                                   .gated = true};

static void products_are(const wf_sim_layout *layout, double forward, double inputs,
                         double weights)
{
    static const int64_t first[2] = {0, 4};
    wf_sim_stage stage;
    wf_sim_costs costs;

    wf_sim_stages(&machine, &model, layout, first, 1, &stage, &costs);
    CU_ASSERT_DOUBLE_EQUAL(stage.forward.of[WF_SIM_PRODUCTS], forward / 500, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(stage.inputs.of[WF_SIM_PRODUCTS], inputs / 500, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(stage.weights.of[WF_SIM_PRODUCTS], weights / 500, 1e-12);
    if (layout->recompute == WF_SIM_KEEP_ALL) {
        double scores =
            2 * 4.0 * 4 * 4 / (double)layout->tp; /* two blocks, tokens, seq, features */

        CU_ASSERT_DOUBLE_EQUAL(stage.forward.of[WF_SIM_ATTENTION], 2 * scores / 250, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL(stage.inputs.of[WF_SIM_ATTENTION], 5 * scores / 250, 1e-12);
    }
}

static void stages(void)
{
    wf_sim_layout l = {.pp = 1,
                       .replicate = 1,
                       .shard = 1,
                       .tp = 1,
                       .micro = 1,
                       .micros = 1,
                       .dtype = WF_BF16,
                       .parameter_bytes = 2,
                       .gradient_bytes = 4,
                       .group = 1};
    double blocks = 2 * 2 * 4 * 144, head = 6 * 4 * 64, attention = 2 * 2 * 4 * 4 * 2 * (4 + 2);

    CU_ASSERT_EQUAL(wf_sim_block_weights(&model), 144);
    CU_ASSERT_EQUAL(wf_sim_flops(&model, &l), 4 * (2 * (6 * 144 + 6 * 4 * 4) + 6 * 64));
    products_are(&l, blocks, blocks + head, blocks);
    l.tp = 2;
    products_are(&l, blocks / 2, (blocks + head) / 2, blocks / 2);
    l.tp = 1;
    l.recompute = WF_SIM_RECOMPUTE_BLOCK;
    products_are(&l, blocks, 2 * blocks + head, blocks);
    l.recompute = WF_SIM_RECOMPUTE_ATTENTION;
    products_are(&l, blocks, blocks + head + attention, blocks);
}

/* Rows that move beside products that take longer are waited for one block of: of eight, or of
   a micro-batch's sequences; the gather for weights' gradients not at all. A machine that does
   not move in the background waits for all. */
static void beside_products(void)
{
    static const int64_t first[] = {0, 4}; /* the embedding, two blocks, the last norm */
    const double bytes = 4.0 * 4 * 4;      /* a sequence has as many */
    wf_sim_machine slow = machine;
    wf_sim_stage at_once, stage;
    wf_sim_costs costs;

    slow.rate[WF_F32] = 1e-3;
    for (int micro = 1; micro <= 4; micro += 3) {
        wf_sim_layout l = {.pp = 1,
                           .replicate = 1,
                           .shard = 1,
                           .tp = 2,
                           .micro = micro,
                           .micros = 1,
                           .dtype = WF_F32,
                           .parameter_bytes = 4,
                           .gradient_bytes = 4,
                           .group = 1};
        const double n = micro > 1 ? micro : 8,
                     sum = wf_sim_collective(&slow, WF_SIM_REDUCE_SCATTER, micro * bytes, 2, 1),
                     gather = wf_sim_collective(&slow, WF_SIM_ALL_GATHER, micro * bytes, 2, 1);
        const double moves = 2 * 2 * (sum + gather);

        for (int split = 0; split < 2; split++) {
            l.sequence_parallel = split;
            l.row_block = 0;
            wf_sim_stages(&slow, &model, &l, first, 1, &at_once, &costs);
            l.row_block = (size_t)(bytes / 8);
            slow.background = false;
            wf_sim_stages(&slow, &model, &l, first, 1, &stage, &costs);
            CU_ASSERT_EQUAL(stage.forward.of[WF_SIM_TENSOR], at_once.forward.of[WF_SIM_TENSOR]);
            slow.background = true;
            wf_sim_stages(&slow, &model, &l, first, 1, &stage, &costs);
            CU_ASSERT_DOUBLE_EQUAL(at_once.forward.of[WF_SIM_TENSOR] -
                                       stage.forward.of[WF_SIM_TENSOR],
                                   moves * (1 - 1 / n), 1e-9 * moves);
            CU_ASSERT_DOUBLE_EQUAL(at_once.inputs.of[WF_SIM_TENSOR] -
                                       stage.inputs.of[WF_SIM_TENSOR],
                                   moves * (1 - 1 / n), 1e-9 * moves);
            CU_ASSERT_DOUBLE_EQUAL(at_once.weights.of[WF_SIM_TENSOR] -
                                       stage.weights.of[WF_SIM_TENSOR],
                                   split ? 2 * 2 * gather : 0, 1e-9 * moves);
        }
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"collectives", collectives},
        {"products and attention of stages", stages},
        {"rows beside products", beside_products},
        {NULL, NULL},
    };

    return wf_test_main("costs of a machine", tests);
}
