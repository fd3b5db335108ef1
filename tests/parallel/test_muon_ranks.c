/*
 * tests/parallel/test_muon_ranks.c - Muon needs whole matrices, and its result is one rank's whatever
 * they are split by: layouts, strategies, storage. Matrices are dealt out, so that each is
 * orthogonalised on one rank of a group alone.
 */
#include "nn/optimizer.h"
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 5, MAX_RANKS = 8 };

typedef struct row {
    const char *strategy;
    int tp, dp, group, micro;
    wf_par_accumulate accumulate;
    bool sequence_parallel;
} row;

static const row rows[] = {
    {"full_shard", 1, 8, 0, 1, WF_PAR_AUTO, false},
    {"full_shard", 2, 2, 0, 4, WF_PAR_LOCAL, true},
    {"full_shard", 8, 1, 0, 16, WF_PAR_AUTO, true},
    {"full_shard", 4, 2, 0, 2, WF_PAR_AUTO, false},
    {"shard_grad_op", 2, 4, 0, 2, WF_PAR_AUTO, false},
    {"no_shard", 1, 4, 0, 2, WF_PAR_AUTO, false},
    {"no_shard", 4, 2, 0, 2, WF_PAR_REDUCED, true},
    {"zero1", 1, 8, 0, 1, WF_PAR_AUTO, false},
    {"zero1", 2, 2, 0, 2, WF_PAR_REDUCED, true},
    {"hybrid_shard", 2, 4, 2, 1, WF_PAR_AUTO, false},
    {"hybrid_shard_zero2", 1, 4, 2, 2, WF_PAR_LOCAL, false},
    {"mics", 1, 8, 1, 1, WF_PAR_AUTO, false},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(wf_nn_arch arch, wf_dtype dtype)
{
    training t = new_training(arch, arch == WF_NN_GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.options.optimizer.method = WF_NN_MUON;
    t.layout.param_dtype = dtype;
    t.frozen = "block.0.attn.out.weight";
    return t;
}

static training of_row(training t, const row *r)
{
    t.layout.strategy = r->strategy;
    t.layout.tp = r->tp;
    t.layout.dp = r->dp;
    t.layout.shard_group_size = r->group;
    t.layout.accumulate = r->accumulate;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.options.micro_batch = r->micro;
    return t;
}

static void one_digest(wf_nn_arch arch, wf_dtype dtype)
{
    training one = make_training(arch, dtype), adamw = one;

    adamw.options.optimizer.method = WF_NN_ADAMW;
    if (!train(&one) || !train(&adamw))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, adamw.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    for (int i = 0; i < ROWS; i++) {
        training t = of_row(make_training(arch, dtype), &rows[i]);
        bool same = true;

        if (!train(&t))
            continue;
        for (int k = 0; k < STEPS; k++)
            same = same && same_bits(t.loss[k], one.loss[k]);
        CU_ASSERT(same && t.digest == one.digest);
        if (!same || t.digest != one.digest)
            printf("\n    row %d: %s tp %d dp %d\n", i, rows[i].strategy, rows[i].tp,
                   rows[i].dp);
    }
}

static void gpt2(void)
{
    one_digest(WF_NN_GPT2, WF_F32);
}

static void llama(void)
{
    one_digest(WF_NN_LLAMA, WF_F32);
}

static void masters(void)
{
    one_digest(WF_NN_LLAMA, WF_BF16);
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
    training t = new_training(WF_NN_LLAMA, HEADS, BATCH);

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
    static const wf_nn_optimizer_options options = {WF_NN_MUON, 0.9f, 0.95f, 1e-8f, 0.1f};
    int64_t count = 0, matrices = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    wf_nn_optimizer *o;

    (void)t;
    if (step)
        return free(p), WF_OK;
    o = wf_nn_optimizer_new(wf_par_context(par), &options, count, p, NULL);
    NEED(o);
    for (int64_t i = 0; i < count; i++) {
        bool block = strncmp(p[i]->path, "block.", 6) == 0, matrix = p[i]->tensor->ndim == 2;

        NEED(wf_nn_optimizer_is_matrix(o, i) == (block && matrix));
        NEED(!wf_nn_optimizer_moment(o, i, 1) == (block && matrix));
        matrices += block && matrix;
    }
    NEED(matrices == 2 * (model->config.arch == WF_NN_LLAMA ? 7 : 6));
    wf_nn_optimizer_free(o);
    free(p);
    return WF_OK;
}

static void which_are_matrices(void)
{
    for (int arch = WF_NN_GPT2; arch <= WF_NN_LLAMA; arch++) {
        training t = new_training((wf_nn_arch)arch, HEADS, BATCH);

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
        {NULL, NULL},
    };

    return wf_test_main("muon_ranks", tests);
}
