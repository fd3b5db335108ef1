/*
 * tests/parallel/test_exact.c - the layout never changes a bit: on each of a dozen layouts, a
 * small GPT-2 and a small Llama have the loss bits of one rank at every step, and its digest.
 *
 * Nothing divides: 12 heads on 8 ranks, 3 and 4 key-value heads on 4 and 8, a vocabulary of
 * 257. scripts/proofs/exactness.py runs all layouts. So that equality says something, the same
 *      runs
 * with exactness off must differ, and the loss must fall.
 *
 * ctest: builds plain, cost 50
 */
#include "tests/parallel/rows.h"

enum { HEAD_SIZE = 8, BATCH = 16, STEPS = UNDER_SANITIZER ? 3 : 4 };

/* The first is what the others are compared with: one rank, one micro-step. */
static const row rows[] = {
    {.tp = 1, .dp = 1, .micro = 16, .threads = 1},
    {.tp = 1, .dp = 1, .micro = 1, .threads = 2},
    {.tp = 1, .dp = 2, .micro = 2, .threads = 1},
    {.tp = 1, .dp = 4, .micro = 1, .threads = 2},
    {.tp = 2, .dp = 1, .micro = 4, .sequence_parallel = true, .threads = 1},
    {.tp = 2, .dp = 2, .micro = 1, .threads = 2},
    {.tp = 2, .dp = 4, .micro = 4, .sequence_parallel = true, .threads = 2},
    {.tp = 4, .dp = 1, .micro = 1, .threads = 1},
    {.tp = 4, .dp = 2, .micro = 2, .sequence_parallel = true, .threads = 2},
    {.tp = 4, .dp = 4, .micro = 4, .threads = 1},
    {.tp = 8, .dp = 1, .micro = 2, .sequence_parallel = true, .threads = 1},
    {.tp = 8, .dp = 2, .micro = 4, .threads = 2},
    {.tp = 8, .dp = 4, .micro = 1, .sequence_parallel = true, .threads = 1},
};

/* Every layout once; a part of them, the last and largest among it, where that has been done
   with other settings or a sanitizer makes it slow. */
enum { ROWS = sizeof rows / sizeof rows[0], FEW = UNDER_SANITIZER ? 4 : 2 };
enum { MOST = UNDER_SANITIZER ? 3 : 1 };

/* A little of everything that has random numbers or order: dropout, momentum, no clipping. */
static training make_training(model_kind kind, int64_t kv_heads, bool noisy)
{
    training t = new_training(kind, kv_heads, BATCH);

    t.steps = STEPS;
    if (noisy) {
        t.model.dropout = 0.1f;
        t.options.optimizer = (wf_nn_optimizer_options){
            .method = WF_NN_SGD, .beta1 = 0.9f, .weight_decay = 0.01f};
        t.options.schedule.lr = 0.1;
        t.options.clip = 0;
    }
    return t;
}

static void compare_rows(model_kind kind, int64_t kv_heads, bool noisy)
{
    training one = on_row(make_training(kind, kv_heads, noisy), &rows[0]);
    int every = noisy ? FEW : MOST;

    if (!train(&one))
        return;
    CU_ASSERT(noisy || one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows + every, ROWS - every, every);
}

static void gpt2(void)
{
    compare_rows(GPT2, HEADS, false);
}

static void gpt2_noisy(void)
{
    compare_rows(GPT2, HEADS, true);
}

static void llama(void)
{
    compare_rows(LLAMA, 3, false);
}

static void llama_noisy(void)
{
    compare_rows(LLAMA, 4, true);
}

/* In a block's mlp a norm of every head, as models have one of queries and keys: its gain is
   summed over tokens and heads, and tensor parallelism splits the heads. */
typedef struct head_norm {
    wf_nn_module base;
    wf_nn_linear *up, *down;
    wf_nn_parameter *gain, *shift;
} head_norm;

static wf_tensor *head_norm_forward(wf_nn_module *self, wf_tensor *x)
{
    head_norm *m = (head_norm *)self;

    x = wf_split_heads(wf_nn_call(m->up, x), HEAD_SIZE);
    x = wf_bias_gelu(wf_rmsnorm(x, wf_nn_use(m, m->gain), 1e-5f), wf_nn_use(m, m->shift));
    return wf_nn_call(m->down, wf_merge_heads(x));
}

static const wf_nn_field head_norm_fields[] = {
    {"up", WF_NN_CHILD, offsetof(head_norm, up), 0},
    {"down", WF_NN_CHILD, offsetof(head_norm, down), 0},
    {"gain", WF_NN_PARAMETER, offsetof(head_norm, gain), 0},
    {"shift", WF_NN_PARAMETER, offsetof(head_norm, shift), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type head_norm_type = {
    "head_norm", sizeof(head_norm), head_norm_fields, head_norm_forward, NULL, NULL};

static void norm_heads(wf_nn_gpt *model)
{
    const wf_dim width = wf_dim_width(WIDTH), heads = wf_dim_heads(HEADS, HEAD_SIZE);
    const wf_dim one = wf_dim_width(HEAD_SIZE);

    for (int64_t i = 0; i < model->layers; i++) {
        wf_nn_block *b = (wf_nn_block *)model->block[i];
        wf_context *ctx = model->base.ctx;
        head_norm *m = wf_nn_new(ctx, &head_norm_type);

        m->up = wf_nn_linear_new(
            ctx, &(wf_nn_linear_options){.in = width, .out = heads, .deviation = 0.3f});
        m->down = wf_nn_linear_new(
            ctx, &(wf_nn_linear_options){.in = heads, .out = width, .deviation = 0.1f});
        m->gain = wf_nn_parameter_new(ctx, 1, &one, false);
        wf_nn_init_fill(m->gain, 1);
        m->shift = wf_nn_parameter_new(ctx, 1, &one, false);
        wf_nn_free(&b->mlp->base);
        b->mlp = (wf_nn_mlp *)m;
    }
}

static void norms_of_heads(void)
{
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]);

    one.change = norm_heads;
    if (train(&one))
        check_rows(&one, rows + 4, ROWS - 4, FEW);
}

/* Gains of queries' and keys' norms are summed over heads that tensor parallelism splits: query
   heads always, key-value heads in cuts of their own. */
static void llama_normed(void)
{
    static const row others[] = {
        {"no_shard", .tp = 2, .dp = 2, .micro = 2, .threads = 1, .recompute = "attention"},
        {"shard_grad_op", .tp = 8, .dp = 2, .micro = 1, .threads = 2},
        {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 2, .threads = 1,
         .wrap_type = "attention"},
        {"full_shard", .tp = 4, .dp = 2, .micro = 4, .sequence_parallel = true,
         .recompute = "block", .prefetch = 1}};
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]), apart;

    one.model.qk_norm = true;
    one.model.head_dim = 6;
    one.options.schedule.lr = 0.05; /* gains leave 1 far behind */
    apart = one;
    apart.model.qk_norm = false;
    if (!train(&one) || !train(&apart))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, apart.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows + 2, ROWS - 2, UNDER_SANITIZER ? 5 : 2);
    check_rows(&one, others, 4, UNDER_SANITIZER ? 3 : 1);
}

/* Norms of all heads' queries, and of what attention and MLP give: each rank norms all heads,
   and keeps its own. */
static void norms_of_all_heads(void)
{
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]), apart = one;

    one.model.order = WF_NN_POST_NORM;
    apart = one;
    one.model.qk_norm = one.model.qk_norm_wide = true;
    if (!train(&one) || !train(&apart))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, apart.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows + 4, ROWS - 4, UNDER_SANITIZER ? 5 : 3);
}

/* Sinks are split like the heads that they belong to. */
static void llama_sinks(void)
{
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]), apart = one;

    one.model.sinks = true;
    one.options.schedule.lr = 0.05; /* they leave 0 far behind */
    apart = one;
    apart.model.sinks = false;
    if (!train(&one) || !train(&apart))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, apart.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows + 2, ROWS - 2, UNDER_SANITIZER ? 5 : 2);
}

/* The table of the embedding is the head's weight too: two uses, each with a sum of its own. */
static void llama_tied(void)
{
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]), apart = one;

    one.model.tied = true;
    if (!train(&one) || !train(&apart))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, apart.digest);
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    check_rows(&one, rows + 2, ROWS - 2, UNDER_SANITIZER ? 5 : 3);
}

/* On layouts of up to exact_tp ranks of tp a run has the bits of one rank, other ones for each
   exact_tp; larger ones report that they have not. */
static void up_to_exact_tp(model_kind kind, wf_dtype dtype)
{
    static const row others[] = {
        {.tp = 1, .dp = 2, .micro = 2, .threads = 2},
        {.tp = 2, .dp = 2, .micro = 1, .threads = 1, .sequence_parallel = true},
        {.tp = 4, .dp = 1, .micro = 4, .threads = 2},
        {.tp = 8, .dp = 1, .micro = 8, .threads = 1, .sequence_parallel = true}};
    training one[4];

    for (int i = 0; i < 4; i++) {
        one[i] = on_row(make_training(kind, kind == GPT2 ? HEADS : 3, false), &rows[0]);
        one[i].layout.exact_tp = 1 << i;
        one[i].layout.dtype = one[i].layout.param_dtype = dtype;
        if (!train(&one[i]))
            return;
        for (int k = 0; k < i; k++)
            CU_ASSERT_NOT_EQUAL(one[k].digest, one[i].digest);
        for (int k = 0; k < 4; k += UNDER_SANITIZER ? 2 : 1) {
            training t = on_row(one[i], &others[k]);
            char text[WF_INEXACT];

            if (!train(&t))
                return;
            if (others[k].tp <= 1 << i) {
                check_same(&t, &one[i]);
                continue;
            }
            snprintf(text, sizeof text, "not layout-exact: tp %d is above exact_tp %d",
                     others[k].tp, 1 << i);
            CU_ASSERT_STRING_EQUAL(t.inexact, text);
            CU_ASSERT_NOT_EQUAL(t.digest, one[i].digest);
        }
    }
}

static void llama_up_to_exact_tp(void)
{
    up_to_exact_tp(LLAMA, WF_F32);
}

static void gpt2_up_to_exact_tp(void)
{
    up_to_exact_tp(GPT2, WF_BF16);
}

/* With the usual order of sums every layout that sums over tp has bits of its own. */
static void off_differs(void)
{
    training one = on_row(make_training(LLAMA, 3, false), &rows[0]);

    one.layout.exact_off = true;
    if (!train(&one))
        return;
    CU_ASSERT_STRING_EQUAL(one.inexact, "not layout-exact: exact is off");
    for (int i = UNDER_SANITIZER ? ROWS - 1 : FEW; i < ROWS; i += FEW) {
        training t = on_row(one, &rows[i]);

        if (rows[i].tp == 1 || !train(&t))
            continue;
        CU_ASSERT_NOT_EQUAL(first_difference(&t, &one), 0);
        CU_ASSERT_NOT_EQUAL(t.digest, one.digest);
        CU_ASSERT_DOUBLE_EQUAL(t.loss[0], one.loss[0], 1e-4);
    }
}

/* One sum of all micro-steps in turn is the tree's within rounding, wherever it is kept. */
static void off_accumulates(void)
{
    static const row layouts[] = {
        {"no_shard", .tp = 1, .dp = 1, .micro = 1},
        {"no_shard", .tp = 1, .dp = 2, .micro = 1},
        {"full_shard", .tp = 2, .dp = 2, .micro = 1, .prefetch = 1, .sequence_parallel = true},
        {"full_shard", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_LOCAL,
         .sequence_parallel = true}};

    for (int i = 0; i < 4; i++) {
        training on = on_row(make_training(GPT2, HEADS, false), &layouts[i]), off = on;

        off.layout.exact_off = true;
        if (!train(&on) || !train(&off))
            continue;
        for (int step = 0; step < on.steps; step++) {
            CU_ASSERT_DOUBLE_EQUAL(off.loss[step], on.loss[step], 1e-4);
            CU_ASSERT(fabs(off.grad_norm[step] / on.grad_norm[step] - 1) < 1e-3);
        }
        CU_ASSERT(fabs(off.grad_norm[0] / on.grad_norm[0] - 1) < 1e-5);
    }
}

/* A digest that saw too little would be equal too: dropout, seed and optimizer all show in it.
 */
static void digest_sees(void)
{
    training run[4];

    run[0] = on_row(make_training(GPT2, HEADS, false), &rows[0]);
    run[1] = run[2] = run[3] = run[0];
    run[1].model.dropout = 0.1f;
    run[2].layout.seed++;
    run[3].options.optimizer.beta2 = 0.96f;
    check_differ(run, 4);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2: a dozen layouts have the bits of one rank", gpt2},
        {"gpt2 with dropout and momentum", gpt2_noisy},
        {"norms of heads that are split", norms_of_heads},
        {"llama, 3 key-value heads", llama},
        {"llama, 4 key-value heads, with dropout and momentum", llama_noisy},
        {"llama, its queries and keys normed", llama_normed},
        {"norms of all heads together, behind attention and mlp", norms_of_all_heads},
        {"sinks of heads", llama_sinks},
        {"llama, its head tied", llama_tied},
        {"llama, exact up to tp 1, 2, 4 and 8", llama_up_to_exact_tp},
        {"gpt2 in bf16, exact up to tp 1, 2, 4 and 8", gpt2_up_to_exact_tp},
        {"with exactness off they differ", off_differs},
        {"with exactness off micro-steps are one sum", off_accumulates},
        {"the digest sees what it should", digest_sees},
        {NULL, NULL},
    };

    return wf_test_main("exact", tests);
}
