/*
 * tests/parallel/test_expert_parallel.c - experts that ranks of tp and dp split: a run has the
 * bits of one rank, of losses, norms and state, under each strategy, and every expert is
 * counted once. What a layout cannot have is refused by name.
 *
 * ctest: builds plain, cost 50
 */
#include "nn/layers/moe.h"
#include "parallel/report/expert_load.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4, EXPERTS = 12, TOP_K = 3, FFN = 16 };

/* Every second and third one is tried without a shared expert, too, which is of type mlp. */
static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 2},
    {"full_shard", .tp = 2, .dp = 4, .ep = 8, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .wrap_type = "mlp", .sequence_parallel = true, .buffer = .3},
    {"full_shard", .tp = 4, .dp = 2, .ep = 8, .dispatch = WF_PAR_DISPATCH_GATHER,
     .recompute = "block", .buffer = .9},
    {"full_shard", .tp = 1, .dp = 8, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .wrap_type = "moe", .prefetch = 2, .buffer = 1e-3},
    {"shard_grad_op", .tp = 1, .dp = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_GATHER, .micro = 1,
     .accumulate = WF_PAR_LOCAL},
    {"no_shard", .tp = 1, .dp = 4, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 2,
     .waits = true},
    {"no_shard", .tp = 2, .dp = 4, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .accumulate = WF_PAR_REDUCED, .buffer = 1},
    {"zero1", .tp = 2, .dp = 4, .ep = 4, .dispatch = WF_PAR_DISPATCH_GATHER, .micro = 1,
     .sequence_parallel = true},
    {"mics", .tp = 1, .dp = 4, .group = 2, .ep = 2, .dispatch = WF_PAR_DISPATCH_GATHER,
     .micro = 2, .buffer = .5},
    {"hybrid_shard", .tp = 1, .dp = 8, .group = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_GATHER,
     .micro = 1},
    {"hybrid_shard_zero2", .tp = 2, .dp = 4, .group = 2, .ep = 4,
     .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 2, .accumulate = WF_PAR_LOCAL},
    {"zero1", .tp = 1, .dp = 8, .ep = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .recompute = "mlp", .buffer = 1.25},
    {"full_shard", .tp = 1, .dp = 16}, /* more ranks than experts: cut inside of them */
    {"full_shard", .tp = 4, .dp = 1, .buffer = .1},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .sequence_parallel = true},
    /* features of experts split over tp */
    {"full_shard", .tp = 4, .dp = 1, .ep = 1, .etp = 4, .buffer = .3},
    {"full_shard", .tp = 2, .dp = 4, .ep = 2, .etp = 2, .dispatch = WF_PAR_DISPATCH_GATHER,
     .micro = 1, .sequence_parallel = true},
    {"zero1", .tp = 2, .dp = 4, .ep = 4, .etp = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE,
     .micro = 2, .recompute = "block", .buffer = 1.25},
    {"no_shard", .tp = 4, .dp = 2, .ep = 2, .etp = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE,
     .micro = 1, .sequence_parallel = true, .waits = true},
    {"shard_grad_op", .tp = 8, .dp = 2, .ep = 2, .etp = 8, .dispatch = WF_PAR_DISPATCH_GATHER},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training mixture(wf_dtype dtype)
{
    training t = new_training(LLAMA, 3, BATCH);

    t.model.experts = EXPERTS;
    t.model.top_k = TOP_K;
    t.model.expert_ffn = FFN;
    t.model.shared_ffn = dtype == WF_F32 ? FFN : 0;
    t.model.shared_gate = dtype == WF_F32;
    t.steps = STEPS;
    t.layout.dtype = t.layout.param_dtype = dtype;
    return t;
}

/* Norms are one rank's too, so that no expert is left out or counted more than once: the bits
   of parameters alone would show it where gradients are clipped. */
static void one_digest(wf_dtype dtype, int every)
{
    training one = mixture(dtype);

    one.options.clip = 0.05f; /* below all norms */
    if (!train(&one))
        return;
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    CU_ASSERT(one.grad_norm[0] > 0.05);
    for (int i = 0; i < ROWS; i += every) {
        training t = on_row(one, &rows[i]);

        if (!train(&t))
            continue;
        check_same(&t, &one);
        for (int k = 0; k < STEPS; k++)
            CU_ASSERT_EQUAL(t.grad_norm[k], one.grad_norm[k]);
    }
}

static void fp32(void)
{
    one_digest(WF_F32, UNDER_SANITIZER ? 4 : 1);
}

static void bf16(void)
{
    one_digest(WF_BF16, UNDER_SANITIZER ? 7 : 2);
}

/* Muon takes an expert's matrix for one; moments of experts in 8 bits; experts in 4 bits below
   adapters of attention and of their own. */
static void storage(void)
{
    for (int kind = 0; kind < 3; kind++) {
        training plain = mixture(kind == 1 ? WF_BF16 : WF_F32), one;

        if (kind == 2)
            plain.lora = (wf_nn_lora_options){
                .rank = 4, .alpha = 8, .targets = "q,experts", .site = 1000};
        one = plain;
        if (kind < 2)
            one.options.optimizer.method = kind ? WF_NN_ADAMW8BIT : WF_NN_MUON;
        else
            one.layout.base_dtype = WF_NF4;
        if (!train(&plain) || !train(&one))
            return;
        CU_ASSERT_NOT_EQUAL(one.digest, plain.digest);
        CU_ASSERT(UNDER_SANITIZER || one.loss[STEPS - 1] < one.loss[0]); /* two steps are few */
        check_rows(&one, rows, ROWS, UNDER_SANITIZER ? 5 : 2);
    }
}

/* Adapters of experts, whose gradients are chains of sequences as those of experts are; with
   the router trained beside them. */
static void adapters(void)
{
    for (int kind = 0; kind < 2; kind++) {
        training one = mixture(kind ? WF_BF16 : WF_F32);

        one.options.clip = 0.05f;
        one.lora = (wf_nn_lora_options){.rank = 3,
                                        .alpha = 8,
                                        .targets = "experts",
                                        .train = kind ? "block.*.moe.router" : NULL};
        if (!train(&one))
            return;
        CU_ASSERT(UNDER_SANITIZER || one.loss[STEPS - 1] < one.loss[0]);
        check_rows(&one, rows, ROWS, UNDER_SANITIZER ? 7 : kind ? 2 : 1);
    }
}

/* Counters of each rank of a layout, and the loads of a step. */
typedef struct counted {
    wf_expert_load *of[16]; /* as many ranks as a row has at most */
    uint64_t tokens[2][EXPERTS];
} counted;

static wf_status count_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    counted *c = t->arg;
    wf_expert_load **load = &c->of[rank->index];
    const wf_layer_load *layer;

    if (step == 0)
        *load = wf_expert_load_open(par, &model->base);
    NEED(*load);
    if (step > 0)
        NEED(wf_expert_load_step(*load, &layer) == 2);
    for (int i = 0; i < 2 && step > 0; i++) {
        uint64_t sum = 0;

        NEED(layer[i].experts == EXPERTS);
        for (int e = 0; e < EXPERTS; e++)
            sum += layer[i].tokens[e];
        NEED(sum == (uint64_t)BATCH * TOKENS * TOP_K);
        NEED(wf_expert_load_ratio(&layer[i]) >= 1);
        if (rank->index == 0)
            memcpy(c->tokens[i], layer[i].tokens, sizeof c->tokens[i]);
    }
    if (step == t->steps)
        wf_expert_load_close(*load);
    return WF_OK;
}

/* Each token is counted once, whatever ranks have it, and recomputed or not; a rank that has no
   sequence in a micro-step, and takes those of another one, counts none. */
static void counts(void)
{
    static const row idle = {"full_shard", .tp = 1, .dp = 3, .micro = 1};
    training one = mixture(WF_F32), t;
    counted reference, c;

    one.watch = count_step;
    one.arg = &reference;
    if (!train(&one))
        return;
    for (int i = 0; i < ROWS; i += UNDER_SANITIZER ? 5 : 2) {
        t = on_row(one, &rows[i]);
        t.arg = &c;
        if (train(&t))
            CU_ASSERT_EQUAL(memcmp(c.tokens, reference.tokens, sizeof c.tokens), 0);
    }
    t = on_row(one, &idle);
    t.arg = &c;
    if (train(&t))
        CU_ASSERT_EQUAL(memcmp(c.tokens, reference.tokens, sizeof c.tokens), 0);
}

/* Twelve experts, three for each of 4 ranks, of which a rank holds 1/shard at rest. */
static wf_status look_at_parts(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                               int step)
{
    const wf_nn_moe *moe = ((const wf_nn_block *)model->block[0])->moe;
    const wf_tensor *gate = moe->gate->tensor, *router = moe->router->tensor;
    const wf_mesh *mesh = wf_par_mesh(par);
    int ep = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "ep"));
    int tp = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "tp"));

    (void)t, (void)step;
    NEED(wf_mesh_size(mesh, wf_mesh_axis(mesh, "shard")) == 1);
    NEED(gate->local[0] == EXPERTS / 4);
    NEED(gate->start[0] == (2 * ep + tp) * (EXPERTS / 4));
    NEED(router->local[0] == EXPERTS / 2); /* dense: over both data-parallel ranks */
    return WF_OK;
}

/* A router, which all data-parallel ranks split, is cut over ep first, their innermost
   axis. */
static wf_status look_at_cuts(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                              int step)
{
    const wf_tensor *router = ((const wf_nn_block *)model->block[0])->moe->router->tensor;
    const wf_mesh *mesh = wf_par_mesh(par);
    int ep = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "ep"));
    int shard = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "shard"));

    (void)t, (void)step;
    NEED(router->local[0] == EXPERTS / 4);
    NEED(router->start[0] == (2 * ep + shard) * (EXPERTS / 4));
    return WF_OK;
}

/* Six experts for each of 2 ranks of ep, of whose features each rank of tp has half. */
static wf_status look_at_features(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                  int step)
{
    const wf_nn_moe *moe = ((const wf_nn_block *)model->block[0])->moe;
    const wf_mesh *mesh = wf_par_mesh(par);
    int ep = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "ep"));
    int tp = wf_mesh_coordinate(mesh, wf_mesh_axis(mesh, "tp"));

    (void)t, (void)step;
    NEED(wf_mesh_size(mesh, wf_mesh_axis(mesh, "ep")) == 2);
    for (int i = 0; i < 3; i++) {
        const wf_nn_parameter *const of[] = {moe->gate, moe->up, moe->down};
        const wf_tensor *m = of[i]->tensor;

        NEED(m->local[0] == EXPERTS / 2 && m->start[0] == ep * (EXPERTS / 2));
        NEED(m->local[i < 2 ? 1 : 2] == FFN / 2 && m->start[i < 2 ? 1 : 2] == tp * (FFN / 2));
    }
    return WF_OK;
}

static void parts(void)
{
    training t = mixture(WF_F32);

    t.layout.tp = t.layout.dp = 2;
    t.layout.ep = 4;
    t.watch = look_at_parts;
    CU_ASSERT(train(&t));
    t.layout = (wf_par_options){.tp = 1, .dp = 4, .ep = 2, .seed = t.layout.seed};
    t.watch = look_at_cuts;
    CU_ASSERT(train(&t));
    t.layout = (wf_par_options){.tp = 2, .dp = 2, .ep = 2, .etp = 2, .seed = t.layout.seed};
    t.watch = look_at_features;
    CU_ASSERT(train(&t));
}

/* Runs, and expects this text in the error. */
static void refused(training t, const char *text)
{
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t.layout)};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_NOT_EQUAL(wf_launch(&launch, training_rank, &t, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, text));
    if (!strstr(error.text, text))
        printf("\n    %s\n", error.text);
}

static void refusals(void)
{
    training t = mixture(WF_F32);

    t.layout.dp = 4;
    t.layout.ep = 3;
    refused(t, ".ep 3 with .tp 1 splits experts over 3 data-parallel ranks, which do not "
               "divide .dp 4");
    t.layout.tp = 2;
    refused(t, ".ep 3 with .tp 2: the tokens of a sequence meet on its .tp ranks");
    t.layout.etp = 2;
    refused(t, ".ep 3 with .tp 2 and .etp splits experts over 3 data-parallel ranks, which do "
               "not divide .dp 4: use a number that does");
    t.layout.tp = 4;
    refused(
        t,
        ".etp 2 with .tp 4: the ranks of .tp are one axis of the mesh, which splits experts, "
        "or the features of each expert, and cannot split both; a rank has as much of "
        "them either way: use .etp 1 or .etp 4");
    t.layout.etp = 0;
    t.layout.tp = 1;
    t.layout.ep = 1;
    t.layout.dispatch = WF_PAR_DISPATCH_EXCHANGE;
    refused(t, "dispatch EXCHANGE moves tokens between data-parallel ranks that split experts, "
               "and none do: use .ep 2");
    t.layout.dispatch = WF_PAR_DISPATCH_AUTO;
    t.layout.ep = 2;
    t.layout.accumulate = WF_PAR_GROUP;
    t.layout.accumulate_group = 2;
    t.options.micro_batch = 1;
    refused(t, "gradients of experts that data-parallel ranks split are summed over these in "
               "each micro-step");
    t.layout.accumulate = WF_PAR_AUTO;
    t.layout.accumulate_group = 0;
    t.options.global_batch = 6;
    refused(t, "gradients of experts are sums over these ranks' sequences");
}

int main(void)
{
    static const wf_test tests[] = {
        {"one digest, fp32", fp32},
        {"one digest, bf16", bf16},
        {"a rank's experts", parts},
        {"Muon, 8 bits, 4 bits", storage},
        {"adapters", adapters},
        {"loads of experts", counts},
        {"what a layout cannot have", refusals},
        {NULL, NULL},
    };

    return wf_test_main("expert_parallel", tests);
}
