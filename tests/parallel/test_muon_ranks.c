/*
 * tests/parallel/test_muon_ranks.c - Muon needs whole matrices, Adafactor whole rows and
 * columns, and their result is one rank's
 * whatever they are split by: layouts, strategies, storage. Matrices are dealt out, so that
 * each is orthogonalised on one rank of a group alone.
 *
 * ctest: builds plain
 */
#include "nn/optim/optimizer.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 5, MAX_RANKS = 8 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 8, .micro = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 4, .accumulate = WF_PAR_LOCAL,
     .sequence_parallel = true},
    {"full_shard", .tp = 8, .dp = 1, .micro = 16, .sequence_parallel = true},
    {"full_shard", .tp = 4, .dp = 2, .micro = 2},
    {"shard_grad_op", .tp = 2, .dp = 4, .micro = 2},
    {"no_shard", .tp = 1, .dp = 4, .micro = 2},
    {"no_shard", .tp = 4, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED,
     .sequence_parallel = true},
    {"zero1", .tp = 1, .dp = 8, .micro = 1},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED,
     .sequence_parallel = true},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 2,
     .accumulate = WF_PAR_LOCAL},
    {"mics", .tp = 1, .dp = 8, .group = 1, .micro = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind, wf_dtype dtype)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.options.optimizer.method = WF_NN_MUON;
    t.layout.param_dtype = dtype;
    t.frozen = "block.0.attn.out.weight";
    return t;
}

static void one_digest(model_kind kind, wf_dtype dtype)
{
    training one = make_training(kind, dtype), adamw = one;

    adamw.options.optimizer.method = WF_NN_ADAMW;
    if (!train(&one) || !train(&adamw))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, adamw.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows, ROWS, 1);
}

/* The moving average of what Muon updates whole, and others by elements. */
static void averages(void)
{
    training one = make_training(GPT2, WF_F32), none = one;

    one.options.optimizer.ema = 0.9f;
    one.options.optimizer.groups = none.options.optimizer.groups = "block.1:lr=0.5";
    if (!train(&one) || !train(&none))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, none.digest); /* it counts */
    CU_ASSERT_EQUAL(one.loss[STEPS - 1], none.loss[STEPS - 1]);
    check_rows(&one, rows, ROWS, 1);
}

/* Momenta of Lion in floats and in 8 bits. */
static void lion(void)
{
    training one = make_training(LLAMA, WF_BF16);

    for (int narrow = 0; narrow < 2; narrow++) {
        one.options.optimizer.method = narrow ? WF_NN_LION8BIT : WF_NN_LION;
        one.options.optimizer.ema = narrow ? 0.9f : 0;
        one.options.optimizer.groups = narrow ? "embed:lr=0.5,wd=0; block.*.attn:wd=0.3" : NULL;
        if (train(&one))
            check_rows(&one, rows, ROWS, 1);
    }
}

/* Adagrad with momentum, to have states with and without signs. */
static void own(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    for (int64_t i = 0; i < n; i++) {
        state[1][i] += g[i] * g[i];
        state[0][i] = u->beta1 * state[0][i] + g[i] / (sqrtf(state[1][i]) + 1e-8f);
        p[i] -= u->lr * (state[0][i] + u->weight_decay * p[i]);
    }
}

/* Second moments of rows and columns, which ranks add up where they are whole; with a first
   moment and without, and what the paper leaves free. */
static void adafactor(void)
{
    training one = make_training(LLAMA, WF_BF16);

    one.options.optimizer.method = WF_NN_ADAFACTOR;
    for (int plain = 0; plain < 2; plain++) {
        one.options.optimizer.ema = plain ? 0 : 0.9f;
        one.options.optimizer.beta1 = plain ? 0 : 0.9f;
        one.options.optimizer.own[3] = (float)plain;
        one.options.optimizer.groups = plain ? NULL : "embed:lr=0.5,wd=0; block.*.attn:wd=0.3";
        if (train(&one))
            check_rows(&one, rows, ROWS, UNDER_SANITIZER ? 4 : 1);
    }
}

/* An optimizer that is registered from outside, with states in floats or by its row in 8
   bits. */
static void own_in_8_bits(void)
{
    static const wf_nn_method_row wide = {"test-own", .states = 2, .uses = WF_NN_USES_BETA1,
                                          .elements = own};
    static const wf_nn_method_row narrow = {"test-own8bit", .states = 2,
                                            .state = {WF_DYNAMIC8, WF_DYNAMIC8U},
                                            .uses = WF_NN_USES_BETA1, .elements = own};
    training floats = make_training(LLAMA, WF_F32), codes = floats;

    floats.options.optimizer.method = wf_nn_method_of(&wide);
    codes.options.optimizer.method = wf_nn_method_of(&narrow);
    if (!train(&floats) || !train(&codes))
        return;
    CU_ASSERT_NOT_EQUAL(floats.digest, codes.digest);
    CU_ASSERT(fabsf(floats.loss[STEPS - 1] - codes.loss[STEPS - 1]) < 0.05f);
    CU_ASSERT(wf_nn_optimizer_least_bytes(&codes.options.optimizer) == 2);
    check_rows(&codes, rows, ROWS, UNDER_SANITIZER ? 4 : 1);
}

static void gpt2(void)
{
    one_digest(GPT2, WF_F32);
}

static void llama(void)
{
    one_digest(LLAMA, WF_F32);
}

static void masters(void)
{
    one_digest(LLAMA, WF_BF16);
}

/* Work of a rank in a step, that of the model's products taken off by a run with AdamW. */
static wf_status count_work(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    double *work = t->arg;

    (void)model, (void)step;
    work[rank->index] = wf_context_flops(wf_par_context(par));
    return WF_OK;
}

static void work_of(int dp, const char *strategy, wf_nn_method method, double work[MAX_RANKS])
{
    training t = new_training(LLAMA, HEADS, BATCH);

    t.model.layers = 8;
    t.layout.dp = dp;
    t.layout.strategy = strategy;
    t.options.optimizer.method = method;
    t.watch = count_work;
    t.arg = work;
    CU_ASSERT(train(&t));
}

/* 7 matrices in each of 8 blocks, whose numbers all divide by 8 ranks: each has its 8th. */
static void dealt_out(void)
{
    double one[MAX_RANKS], one_plain[MAX_RANKS], all[MAX_RANKS], plain[MAX_RANKS];
    double whole;

    work_of(1, "full_shard", WF_NN_MUON, one);
    work_of(1, "full_shard", WF_NN_ADAMW, one_plain);
    work_of(8, "full_shard", WF_NN_MUON, all);
    work_of(8, "full_shard", WF_NN_ADAMW, plain);
    whole = one[0] - one_plain[0];
    CU_ASSERT(whole > 0);
    for (int r = 0; r < 8; r++)
        CU_ASSERT_EQUAL(all[r] - plain[r], whole / 8);
}

/* Embeddings, head and vectors have AdamW's two moments, matrices one. */
static wf_status look_at_state(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                               int step)
{
    static const wf_nn_optimizer_options options = {WF_NN_MUON, .beta1 = 0.9f, .beta2 = 0.95f,
                                                    .eps = 1e-8f, .weight_decay = 0.1f};
    int64_t count = 0, matrices = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    wf_nn_optimizer *o;

    (void)t;
    if (step)
        return free(p), WF_OK;
    o = wf_nn_optimizer_new(wf_par_context(par), &options, count, p, NULL, NULL);
    NEED(o);
    for (int64_t i = 0; i < count; i++) {
        bool block = strncmp(p[i]->path, "block.", 6) == 0, matrix = p[i]->tensor->ndim == 2;

        NEED(wf_nn_optimizer_is_matrix(o, i) == (block && matrix));
        NEED(!wf_nn_optimizer_moment(o, i, 1) == (block && matrix));
        matrices += block && matrix;
    }
    NEED(matrices == 2 * (model->config.norm == WF_NN_RMSNORM ? 7 : 6));
    wf_nn_optimizer_free(o);
    free(p);
    return WF_OK;
}

static void which_are_matrices(void)
{
    for (int kind = GPT2; kind <= LLAMA; kind++) {
        training t = new_training((model_kind)kind, HEADS, BATCH);

        t.watch = look_at_state;
        CU_ASSERT(train(&t));
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2: every strategy has the bits of one rank", gpt2},
        {"llama, 3 key-value heads", llama},
        {"f32 masters of bf16", masters},
        {"matrices are dealt out", dealt_out},
        {"which parameters are matrices", which_are_matrices},
        {"moving averages", averages},
        {"Lion", lion},
        {"Adafactor", adafactor},
        {"an own one in 8 bits", own_in_8_bits},
        {NULL, NULL},
    };

    return wf_test_main("muon_ranks", tests);
}
