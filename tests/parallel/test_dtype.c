/*
 * tests/parallel/test_dtype.c - activations stored as bf16: one digest over layouts,
 * strategies, micro-steps and recomputation (another than that of f32), the losses of f32
 * nearly, and half of the bytes where whole tensors move.
 *
 * ctest: builds plain
 */
#include "tests/parallel/plan_harness.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 1, .micro = 2, .recompute = "block"},
    {"no_shard", .tp = 2, .dp = 1},
    {"full_shard", .tp = 4, .dp = 2, .micro = 2, .sequence_parallel = true,
     .recompute = "block"},
    {"full_shard", .tp = 1, .dp = 2, .micro = 1},
    {"full_shard", .tp = 2, .dp = 2},
    {"no_shard", .tp = 2, .dp = 4, .micro = 1, .sequence_parallel = true,
     .recompute = "attention"},
    {"zero1", .tp = 8, .dp = 1, .sequence_parallel = true},
    {"shard_grad_op", .tp = 4, .dp = 1, .micro = 4, .recompute = "attention"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind, wf_dtype dtype, wf_dtype param)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = kind == GPT2 ? 0.1f : 0;
    t.layout.dtype = dtype;
    t.layout.param_dtype = param;
    return t;
}

static void one_digest(model_kind kind, wf_dtype param)
{
    training one = make_training(kind, WF_BF16, param);
    training f32 = make_training(kind, WF_F32, param);

    if (!train(&one) || !train(&f32))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, f32.digest);
    CU_ASSERT_FALSE(same_bits(one.loss[0], f32.loss[0]));
    check_rows(&one, rows, ROWS, 1);
}

static void gpt2(void)
{
    one_digest(GPT2, WF_BF16);
}

static void llama(void)
{
    one_digest(LLAMA, WF_BF16);
}

/* The residual stream in f32: other bits, as alike on every layout. */
static void residual(model_kind kind)
{
    training one = make_training(kind, WF_BF16, WF_BF16), narrow = one;

    one.layout.fp32_residual = true;
    if (!train(&one) || !train(&narrow))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, narrow.digest);
    check_rows(&one, rows, ROWS, kind == GPT2 ? 1 : 3);
}

static void residual_gpt2(void)
{
    residual(GPT2);
}

static void residual_llama(void)
{
    residual(LLAMA);
}

/* Weights in f32 take part as they are. */
static void wide_weights(void)
{
    training one = make_training(LLAMA, WF_BF16, WF_F32);

    if (train(&one))
        check_rows(&one, rows + 1, ROWS - 1, 3);
}

/* It learns as fp32 does. */
static void loss_curve(void)
{
    training f32 = make_training(LLAMA, WF_F32, WF_F32), bf16;
    float drop;

    f32.steps = UNDER_SANITIZER ? 4 : MAX_STEPS;
    bf16 = f32;
    bf16.layout.dtype = bf16.layout.param_dtype = WF_BF16;
    if (!train(&f32) || !train(&bf16))
        return;
    drop = f32.loss[0] - f32.loss[f32.steps - 1];
    CU_ASSERT(drop > 0);
    for (int k = 0; k < f32.steps; k++)
        CU_ASSERT(fabsf(bf16.loss[k] - f32.loss[k]) < 0.05f * f32.loss[k]);
    CU_ASSERT(fabs(bf16.grad_norm[0] / f32.grad_norm[0] - 1) < 0.05);
}

static int64_t moved(const wf_par_report *r, wf_collective_kind kind)
{
    for (int i = 0; i < r->n_traffic; i++)
        if (strcmp(r->traffic[i].axis, "tp") == 0)
            return r->traffic[i].counters.of[kind].bytes;
    return 0;
}

static bool report_of(wf_dtype dtype, bool sequence_parallel, wf_par_report *report)
{
    training t = make_training(LLAMA, dtype, WF_F32);
    static reports ranks;
    bool trained;

    t.layout.tp = 2;
    t.layout.sequence_parallel = sequence_parallel;
    t.model.kv_heads = HEADS;
    t.steps = 2;
    t.watch = report_step;
    t.arg = &ranks;
    trained = train(&t);
    *report = ranks.of[0];
    return trained;
}

/* With sequence parallelism whole activations are gathered, and nothing else over tp; what they
   are cut from is a sum, which is moved in f32. Kept activations take half of the memory. */
static void bytes(void)
{
    static wf_par_report of[2];

    if (!report_of(WF_F32, true, &of[0]) || !report_of(WF_BF16, true, &of[1]))
        return;
    CU_ASSERT(moved(&of[0], WF_ALL_GATHER) > 0);
    CU_ASSERT_EQUAL(moved(&of[0], WF_ALL_GATHER), 2 * moved(&of[1], WF_ALL_GATHER));
    CU_ASSERT_EQUAL(moved(&of[0], WF_REDUCE_SCATTER), moved(&of[1], WF_REDUCE_SCATTER));
    CU_ASSERT((double)of[1].memory.most[WF_MEMORY_ACTIVATION] <
              0.7 * (double)of[0].memory.most[WF_MEMORY_ACTIVATION]);
}

/* Without it the sums of activations, all-reduced in f32, are scattered in f32 and gathered in
   bf16; all that is all-reduced still are the losses'. */
static void bytes_of_sums(void)
{
    static wf_par_report of[2];
    int64_t sums;

    if (!report_of(WF_F32, false, &of[0]) || !report_of(WF_BF16, false, &of[1]))
        return;
    sums = moved(&of[0], WF_ALL_REDUCE) - moved(&of[1], WF_ALL_REDUCE);
    CU_ASSERT(sums > 0);
    CU_ASSERT_EQUAL(moved(&of[0], WF_ALL_GATHER), 0);
    CU_ASSERT_EQUAL(2 * moved(&of[1], WF_REDUCE_SCATTER), sums);
    CU_ASSERT_EQUAL(4 * moved(&of[1], WF_ALL_GATHER), sums);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, tied, with dropout: every layout has the bits of one rank", gpt2},
        {"llama, 3 key-value heads", llama},
        {"gpt2, residual stream in f32", residual_gpt2},
        {"llama, residual stream in f32", residual_llama},
        {"weights in f32", wide_weights},
        {"the loss curve of f32", loss_curve},
        {"what moves and what is kept", bytes},
        {"what moves of a sum", bytes_of_sums},
        {NULL, NULL},
    };

    return wf_test_main("dtype", tests);
}
