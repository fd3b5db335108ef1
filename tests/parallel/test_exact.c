/*
 * tests/parallel/test_exact.c - the layout never changes a bit: on each of a dozen layouts, a
 * small GPT-2 and a small Llama have the loss bits of one rank at every step, and its digest.
 *
 * Nothing divides: 12 heads on 8 ranks, 3 and 4 key-value heads on 4 and 8, a vocabulary of
 * 257. scripts/exactness.py runs all layouts. So that equality says something, the same runs
 * with exactness off must differ, and the loss must fall.
 */
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 3 : 12 };

typedef struct row {
    int tp, dp, micro;
    bool sequence_parallel;
    int threads;
} row;

/* The first is what the others are compared with: one rank, one micro-step. */
static const row rows[] = {
    {1, 1, 16, false, 1}, {1, 1, 1, false, 2}, {1, 2, 2, false, 1}, {1, 4, 1, false, 2},
    {2, 1, 4, true, 1},   {2, 2, 1, false, 2}, {2, 4, 4, true, 2},  {4, 1, 1, false, 1},
    {4, 2, 2, true, 2},   {4, 4, 4, false, 1}, {8, 1, 2, true, 1},  {8, 2, 4, false, 2},
    {8, 4, 1, true, 1},
};

/* Every layout once; a part of them, the last and largest among it, where that has been done with
   other settings or a sanitizer makes it slow. */
enum { ROWS = sizeof rows / sizeof rows[0], FEW = UNDER_SANITIZER ? 4 : 2 };
enum { MOST = UNDER_SANITIZER ? 3 : 1 };

/* A little of everything that has random numbers or order: dropout, momentum, no clipping. */
static training make_training(wf_nn_arch arch, int64_t kv_heads, bool noisy)
{
    training t = new_training(arch, kv_heads, BATCH);

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

static bool train_row(training *t, const row *r)
{
    t->layout.tp = r->tp;
    t->layout.dp = r->dp;
    t->layout.sequence_parallel = r->sequence_parallel;
    t->layout.threads = r->threads;
    t->options.micro_batch = r->micro;
    return train(t);
}

/* The first step whose loss bits differ, or 0. */
static int first_difference(const training *a, const training *b)
{
    for (int i = 0; i < STEPS; i++)
        if (!same_bits(a->loss[i], b->loss[i]))
            return i + 1;
    return 0;
}

static void compare_rows(wf_nn_arch arch, int64_t kv_heads, bool noisy)
{
    training one = make_training(arch, kv_heads, noisy);

    if (!train_row(&one, &rows[0]))
        return;
    CU_ASSERT(noisy || one.loss[STEPS - 1] < one.loss[0]);
    for (int i = noisy ? FEW : MOST; i < ROWS; i += noisy ? FEW : MOST) {
        training t = make_training(arch, kv_heads, noisy);
        const row *r = &rows[i];
        int step;

        if (!train_row(&t, r))
            continue;
        step = first_difference(&t, &one);
        CU_ASSERT_EQUAL(step, 0);
        CU_ASSERT_EQUAL(t.digest, one.digest);
        CU_ASSERT_STRING_EQUAL(t.inexact, "");
        if (step || t.digest != one.digest)
            printf("\n    tp %d dp %d micro %d%s threads %d: step %d, digest %016" PRIx64
                   " in place of %016" PRIx64 "\n",
                   r->tp, r->dp, r->micro, r->sequence_parallel ? " sequence-parallel" : "",
                   r->threads, step, t.digest, one.digest);
    }
}

static void gpt2(void)
{
    compare_rows(WF_NN_GPT2, HEADS, false);
}

static void gpt2_noisy(void)
{
    compare_rows(WF_NN_GPT2, HEADS, true);
}

static void llama(void)
{
    compare_rows(WF_NN_LLAMA, 3, false);
}

static void llama_noisy(void)
{
    compare_rows(WF_NN_LLAMA, 4, true);
}

/* With the usual order of sums every layout that sums over tp has bits of its own. */
static void off_differs(void)
{
    training one = make_training(WF_NN_LLAMA, 3, false);

    one.layout.exact_off = true;
    if (!train_row(&one, &rows[0]))
        return;
    CU_ASSERT_STRING_EQUAL(one.inexact, "not layout-exact: exact is off");
    for (int i = FEW; i < ROWS; i += FEW) {
        training t = make_training(WF_NN_LLAMA, 3, false);

        if (rows[i].tp == 1)
            continue;
        t.layout.exact_off = true;
        if (!train_row(&t, &rows[i]))
            continue;
        CU_ASSERT_NOT_EQUAL(first_difference(&t, &one), 0);
        CU_ASSERT_NOT_EQUAL(t.digest, one.digest);
        CU_ASSERT_DOUBLE_EQUAL(t.loss[0], one.loss[0], 1e-4);
    }
}

/* A digest that saw too little would be equal too: dropout, seed and optimizer all show in it.
 */
static void digest_sees(void)
{
    training plain = make_training(WF_NN_GPT2, HEADS, false), other[3];

    other[0] = other[1] = other[2] = plain;
    other[0].model.dropout = 0.1f;
    other[1].layout.seed++;
    other[2].options.optimizer.beta2 = 0.96f;
    if (!train_row(&plain, &rows[0]))
        return;
    for (int i = 0; i < 3; i++)
        if (train_row(&other[i], &rows[0]))
            CU_ASSERT_NOT_EQUAL(other[i].digest, plain.digest);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2: a dozen layouts have the bits of one rank", gpt2},
        {"gpt2 with dropout and momentum", gpt2_noisy},
        {"llama, 3 key-value heads", llama},
        {"llama, 4 key-value heads, with dropout and momentum", llama_noisy},
        {"with exactness off they differ", off_differs},
        {"the digest sees what it should", digest_sees},
        {NULL, NULL},
    };

    return wf_test_main("exact", tests);
}
