/*
 * tests/parallel/test_moe_balance.c - what balances experts: biases that are stepped by counts,
 * losses of each sequence, and of the global batch by the counts of the step before; and
 * experts with a capacity. They have the bits of one rank on every layout.
 *
 * ctest: cost 40
 */
#include "nn/layers/moe.h"
#include "parallel/report/expert_load.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4, EXPERTS = 12, TOP_K = 3, FFN = 16 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 2},
    {"full_shard", .tp = 2, .dp = 2, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .wrap_type = "attention", .sequence_parallel = true, .buffer = .3},
    {"no_shard", .tp = 2, .dp = 2, .ep = 4, .dispatch = WF_PAR_DISPATCH_GATHER, .micro = 1,
     .recompute = "block", .accumulate = WF_PAR_REDUCED},
    {"shard_grad_op", .tp = 1, .dp = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_GATHER, .micro = 1,
     .accumulate = WF_PAR_LOCAL},
    {"full_shard", .tp = 1, .dp = 3, .micro = 1}, /* ranks without a sequence in a micro-step */
    {"zero1", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE,
     .micro = 2, .recompute = "block", .buffer = 1.25},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training mixture(wf_dtype dtype)
{
    training t = new_training(LLAMA, 3, BATCH);

    t.model.experts = EXPERTS;
    t.model.top_k = TOP_K;
    t.model.expert_ffn = FFN;
    t.steps = STEPS;
    t.layout.dtype = t.layout.param_dtype = dtype;
    return t;
}

/* Each stage has the counts of its own blocks. */
static void check_pipeline(const training *one, const char *schedule)
{
    training t = on_row(*one, &(row){"zero1", .tp = 1, .dp = 2, .ep = 2, .micro = 2});

    t.layout.pp = 2;
    t.pipeline = (wf_par_pipeline_options){.schedule = schedule};
    if (train(&t))
        check_same(&t, one);
}

/* A bias that is stepped by counts of a step, which recomputation does not count again, and
   which norms leave out; and losses of balance, means over the sequences of a step, or by the
   counts of the step before, of which the first has none, beside experts with a capacity. */
static void balance(void)
{
    enum { BIAS, BF16_BIAS, SEQUENCE, GLOBAL, BF16_GLOBAL, KINDS };

    for (int kind = 0; kind < KINDS; kind++) {
        const bool is_bf16 = kind == BF16_BIAS || kind == BF16_GLOBAL;
        training plain = mixture(is_bf16 ? WF_BF16 : WF_F32), one = plain;

        plain.model.expert_capacity = one.model.expert_capacity = kind == GLOBAL ? 3 : 0;
        one.model.bias_step = kind <= BF16_BIAS ? 0.05 : 0;
        one.model.sequence_weight = kind == SEQUENCE ? 0.1 : 0;
        one.model.z_weight = kind == SEQUENCE ? 0.1 : 0;
        one.model.global_weight = kind >= GLOBAL ? 0.1 : 0;
        if (!train(&plain) || !train(&one))
            return;
        CU_ASSERT_NOT_EQUAL(one.digest, plain.digest);
        CU_ASSERT_EQUAL(one.loss[0], plain.loss[0]);
        if (!is_bf16) /* sums of gradients of logits are rounded there */
            CU_ASSERT((one.grad_norm[0] == plain.grad_norm[0]) == (kind != SEQUENCE));
        CU_ASSERT(kind < GLOBAL || one.grad_norm[1] != plain.grad_norm[1]);
        CU_ASSERT_EQUAL(one.added_by, kind >= SEQUENCE ? one.model.layers : 0); /* logged */
        check_rows(&one, rows, ROWS, UNDER_SANITIZER ? 3 : 1);
        if (kind == GLOBAL || (kind == BIAS && !UNDER_SANITIZER))
            check_pipeline(&one, kind == BIAS ? "1f1b" : "zb-v");
    }
}

/* After a step each expert of more tokens than the mean has less of a bias, by the step. */
static wf_status look_at_bias(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                              int step)
{
    const wf_nn_parameter *bias = ((const wf_nn_block *)model->block[0])->moe->bias;
    const float *b = bias->tensor->data;
    wf_expert_load **load = t->arg;
    const wf_layer_load *layer;

    (void)rank;
    if (step == 0)
        *load = wf_expert_load_open(par, &model->base);
    NEED(*load);
    if (step == 1)
        NEED(wf_expert_load_step(*load, &layer) == 2);
    for (int e = 0; e < EXPERTS && step == 1; e++) {
        int64_t excess = (int64_t)layer->tokens[e] * EXPERTS - BATCH * TOKENS * TOP_K;

        NEED(b[e] == (excess > 0 ? -0.05F : excess < 0 ? 0.05F : 0));
    }
    if (step == t->steps)
        wf_expert_load_close(*load);
    return WF_OK;
}

/* Biases move by their step, whatever the rate is. */
static void steps_of_biases(void)
{
    training t = mixture(WF_F32);
    wf_expert_load *load = NULL;

    t.arg = &load;
    t.model.bias_step = 0.05;
    t.options.schedule.lr = t.options.schedule.min_lr = 1e-9F; /* the rate is none of theirs */
    t.watch = look_at_bias;
    CU_ASSERT(train(&t));
}

/* Counts are those of the step that has just been, over all its sequences: whole numbers. */
static wf_status look_at_counts(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                int step)
{
    const wf_nn_moe *moe = ((const wf_nn_block *)model->block[1])->moe;
    const float *counts = moe->counts->tensor->data;
    wf_expert_load **load = t->arg;
    const wf_layer_load *layer = NULL;

    (void)rank;
    if (step == 0)
        *load = wf_expert_load_open(par, &model->base);
    NEED(*load);
    if (step > 0)
        NEED(wf_expert_load_step(*load, &layer) == 2);
    for (int e = 0; e < EXPERTS; e++)
        NEED((int64_t)counts[e] == (step > 0 ? (int64_t)layer[1].tokens[e] : 0));
    if (step == t->steps)
        wf_expert_load_close(*load);
    return WF_OK;
}

static void counts_of_steps(void)
{
    training t = mixture(WF_F32);
    wf_expert_load *load = NULL;

    t.arg = &load;
    t.model.global_weight = 0.1;
    t.options.micro_batch = 4;
    t.watch = look_at_counts;
    CU_ASSERT(train(&t));
}

int main(void)
{
    static const wf_test tests[] = {
        {"biases and losses of balance", balance},
        {"a step of biases", steps_of_biases},
        {"counts of each step", counts_of_steps},
        {NULL, NULL},
    };

    return wf_test_main("moe_balance", tests);
}
