/*
 * tests/parallel/test_checkpoint.c - a run that is saved, and gone on with on another layout,
 * ends with the digest of one that was never stopped.
 *
 * Nothing divides: 12 heads, 3 key-value heads, a vocabulary of 257; gpt2 has a tied embedding,
 * dropout, several micro-steps and a parameter that is frozen.
 *
 * ctest: builds address thread, cost 20
 */
#include "core/numerics/digest.h"
#include "parallel/checkpoint/contents.h"
#include "tests/parallel/checkpoint_harness.h"

enum { STEPS = 5, SAVED = 3 };

static const row layouts[] = {
    {"full_shard", .tp = 1, .dp = 1},
    {"no_shard", .tp = 2, .dp = 1},
    {"full_shard", .tp = 4, .dp = 1},
    {"zero1", .tp = 8, .dp = 1},
    {"no_shard", .tp = 1, .dp = 2},
    {"full_shard", .tp = 1, .dp = 4},
    {"zero1", .tp = 2, .dp = 2},
    {"full_shard", .tp = 2, .dp = 4},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2},
    {"shard_grad_op", .tp = 4, .dp = 2},
    {"zero1", .tp = 1, .dp = 4},
};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static training make_training(bool sgd)
{
    training t = new_training(sgd ? LLAMA : GPT2, sgd ? 3 : HEADS, 8);

    t.steps = STEPS;
    t.options.clip = 0.1f;
    if (sgd) {
        t.options.optimizer.method = WF_NN_SGD;
    } else {
        t.model.dropout = 0.1f;
        t.frozen = "block.1.mlp.down.weight";
    }
    return t;
}

/* On a layout, in two micro-steps. */
static void settle(training *t, const row *where)
{
    *t = on_row(*t, where);
    t->options.micro_batch = t->options.global_batch / (2 * where->dp);
}

/* Saved on `from` after SAVED steps; gone on with on `to`. */
static void resume(const row *from, const row *to, wf_par_save_options how, bool sgd,
                   uint64_t expected)
{
    char dir[64];
    training a = make_training(sgd), b = a;

    wf_test_new_folder(dir);
    how.dir = dir;
    settle(&a, from);
    settle(&b, to);
    a.steps = SAVED;
    if (save_run(&a, &how, SAVED) && resume_run(&b, dir, SAVED)) {
        CU_ASSERT_EQUAL(b.digest, expected);
        if (b.digest != expected)
            printf("\n    %s tp %d dp %d to %s tp %d dp %d\n", from->strategy, from->tp,
                   from->dp, to->strategy, to->tp, to->dp);
    }
    wf_test_remove(dir);
}

/* A sanitizer sees every STRIDE-th pair. */
enum { STRIDE = UNDER_THREAD_SANITIZER ? 59 : 23 };

static void resume_pairs(bool sgd, bool async, int stride)
{
    training whole = make_training(sgd);

    settle(&whole, &layouts[0]);
    if (!train(&whole))
        return;
    for (int i = 0; i < LAYOUTS * LAYOUTS; i += stride)
        resume(&layouts[i / LAYOUTS], &layouts[i % LAYOUTS],
               (wf_par_save_options){.kind = WF_PAR_SAVE_SHARDED, .async = async}, sgd,
               whole.digest);
}

static void adamw(void)
{
    resume_pairs(false, false, UNDER_SANITIZER ? STRIDE : 3);
}

/* Saves and reads frozen bf16 parameters as the numbers that they stand for; with them moments
   in 8 bits or of rows and columns, and moving averages. */
static void frozen_bf16(void)
{
    for (int i = 0; i < 4; i++) {
        const row *from = &layouts[2 * i + 1], *to = &layouts[2 * i + 2];
        training a = make_training(false), b, whole;
        char dir[64];

        a.layout.param_dtype = WF_BF16;
        a.frozen = "block.*.mlp";
        if (i % 2) {
            a.options.optimizer.method = i > 1 ? WF_NN_ADAFACTOR : WF_NN_LION8BIT;
            a.options.optimizer.ema = 0.9f;
        }
        whole = b = a;
        settle(&whole, &layouts[0]);
        settle(&a, from);
        settle(&b, to);
        a.steps = SAVED;
        wf_test_new_folder(dir);
        if (train(&whole) &&
            save_run(
                &a,
                &(wf_par_save_options){.dir = dir,
                                       .kind = i % 2 ? WF_PAR_SAVE_FULL : WF_PAR_SAVE_SHARDED,
                                       .async = i > 1},
                SAVED) &&
            resume_run(&b, dir, SAVED))
            CU_ASSERT_EQUAL(b.digest, whole.digest);
        wf_test_remove(dir);
    }
}

/* Steps of a large loss are skipped, on any mesh and after a resume alike; what is kept counts
   them. */
static void skipped(void)
{
    training all = make_training(false), whole;

    all.options.optimizer.ema = 0.9f;
    settle(&all, &layouts[0]);
    if (!train(&all))
        return;
    whole = all;
    whole.options.skip.loss_above = (all.loss[0] + all.loss[SAVED]) / 2;
    if (!train(&whole))
        return;
    CU_ASSERT_NOT_EQUAL(whole.digest, all.digest);
    for (int i = 0; i < 3; i++) {
        training a = whole, b = whole;
        char dir[64];

        settle(&a, &layouts[2 * i + 1]);
        settle(&b, &layouts[2 * i + 2]);
        a.steps = SAVED;
        wf_test_new_folder(dir);
        if (save_run(&a, &(wf_par_save_options){.dir = dir, .async = i == 1}, SAVED) &&
            resume_run(&b, dir, SAVED))
            CU_ASSERT_EQUAL(b.digest, whole.digest);
        wf_test_remove(dir);
    }
}

static void skips_are_read(void)
{
    wf_par_skip skip;
    wf_error error;

    CU_ASSERT(wf_par_skip_read("nonfinite", &skip, &error) == WF_OK && skip.nonfinite);
    CU_ASSERT(skip.loss_above == 0);
    CU_ASSERT(wf_par_skip_read("loss>9.5,nonfinite", &skip, &error) == WF_OK);
    CU_ASSERT(skip.nonfinite && skip.loss_above == 9.5f);
    CU_ASSERT_EQUAL(wf_par_skip_read("loss>0", &skip, &error), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_par_skip_read("loss>2x", &skip, &error), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_par_skip_read("nonfinite,", &skip, &error), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_par_skip_read("all", &skip, &error), WF_EINVAL);
}

static void sgd_async(void)
{
    resume_pairs(true, true, UNDER_SANITIZER ? STRIDE : 5);
}

static void full(void)
{
    training whole = make_training(false);

    settle(&whole, &layouts[0]);
    if (!train(&whole))
        return;
    for (int i = 0; i < LAYOUTS; i += UNDER_SANITIZER ? 4 : 1)
        resume(&layouts[i], &layouts[(i + 4) % LAYOUTS],
               (wf_par_save_options){.kind = WF_PAR_SAVE_FULL, .async = i % 2 == 1}, false,
               whole.digest);
}

/* A tensor of more bytes than are read at a time is summed whole, by those who write it and by
   those who verify it. */
static void large_tensors(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_FULL; kind++) {
        training t = make_training(false);
        wf_error error = {WF_OK, ""};
        wf_par_checkpoint *c = NULL;
        char dir[64], path[96];

        wf_test_new_folder(dir);
        settle(&t, &layouts[1]);
        t.model.vocabulary =
            23456; /* 24 features each: 2.2 MB, in two parts where it is sharded */
        t.steps = 1;
        snprintf(path, sizeof path, "%s/step-00000001", dir);
        CU_ASSERT(save_run(&t, &(wf_par_save_options){.dir = dir, .kind = kind}, 1));
        CU_ASSERT_PTR_NOT_NULL(c = wf_par_checkpoint_open(path, &error));
        CU_ASSERT(c && wf_par_checkpoint_verify(c, &error) == WF_OK);
        wf_par_checkpoint_close(c);
        wf_test_remove(dir);
    }
}

static void local(void)
{
    training whole = make_training(false);

    settle(&whole, &layouts[0]);
    if (!train(&whole))
        return;
    for (int i = 0; i < LAYOUTS; i += UNDER_SANITIZER ? 4 : 1)
        resume(&layouts[i], &layouts[i],
               (wf_par_save_options){.kind = WF_PAR_SAVE_LOCAL, .async = i % 2 == 1}, false,
               whole.digest);
}

/* Layouts that do not nest in the chunks: the values that are loaded are still the ones
   saved. */
static void inexact(void)
{
    static const row odd[] = {{"full_shard", .tp = 3, .dp = 1},
                              {"full_shard", .tp = 1, .dp = 3},
                              {"zero1", .tp = 3, .dp = 2},
                              {"no_shard", .tp = 5, .dp = 1}};

    for (int i = 0; i < 16; i += UNDER_SANITIZER ? 5 : 1) {
        char dir[64];
        training a = make_training(false), b;
        wf_par_save_options how = {.dir = dir};

        a.options.global_batch = 12;
        b = a;
        wf_test_new_folder(dir);
        settle(&a, &odd[i / 4]);
        settle(&b, &odd[i % 4]);
        a.steps = b.steps = SAVED; /* so b loads, and trains no more */
        if (save_run(&a, &how, SAVED) && resume_run(&b, dir, SAVED))
            CU_ASSERT_EQUAL(a.digest, b.digest);
        wf_test_remove(dir);
    }
}

static void refused(void)
{
    char dir[64];
    training a = make_training(false), b = a;
    wf_par_save_options how = {.dir = dir, .kind = WF_PAR_SAVE_LOCAL};
    wf_error error;

    wf_test_new_folder(dir);
    settle(&a, &layouts[6]);
    settle(&b, &layouts[5]);
    a.steps = SAVED;
    if (!save_run(&a, &how, SAVED))
        return;
    CU_ASSERT_EQUAL(try_resume(&b, dir, SAVED, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "save it as sharded"));
    b = a;
    b.model.ffn += 1;
    CU_ASSERT_EQUAL(try_resume(&b, dir, SAVED, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "block.0.mlp.down.weight has 96 in dim 1 there"));
    b = a;
    b.options.optimizer.method = WF_NN_SGD;
    CU_ASSERT_EQUAL(try_resume(&b, dir, SAVED, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "another optimizer"));
    wf_test_remove(dir);
}

/* Returns the part of one tensor in the digest, read back as a program reads it that is no
   trainer. */
static uint64_t digest_of(wf_par_checkpoint *c, wf_par_checkpoint_reader *reader, int64_t i)
{
    wf_par_saved_tensor t = wf_par_checkpoint_tensor(c, i);
    wf_error error = {WF_OK, ""};
    uint64_t digest = 0;
    int64_t n = 1;
    float *x;

    CU_ASSERT_EQUAL(wf_par_checkpoint_find(c, t.path), i);
    for (int d = 0; d < t.ndim; d++)
        n *= t.size[d];
    x = malloc((size_t)n * sizeof *x);
    for (int state = 0; state < WF_PAR_SAVED_STATES; state++) {
        wf_status status =
            wf_par_checkpoint_reader_read(reader, i, (wf_par_saved_state)state, x, &error);

        CU_ASSERT_EQUAL(status, t.states >> state & 1 ? WF_OK : WF_EINVAL);
        if (status == WF_OK)
            digest += wf_digest_run(wf_digest_path(t.path), (uint32_t)state, 0, x, n);
        error.code = WF_OK;
    }
    free(x);
    return digest;
}

/* The elements of a checkpoint on any layout are those of its digest. */
static void contents(void)
{
    for (int i = 0; i < 2; i++) {
        char dir[64], path[128];
        training a = make_training(i == 1);
        wf_par_save_options how = {.dir = dir,
                                   .kind = i ? WF_PAR_SAVE_FULL : WF_PAR_SAVE_SHARDED};
        wf_error error = {WF_OK, ""};
        wf_par_checkpoint *c;
        wf_par_checkpoint_reader *reader;
        uint64_t digest = 0;

        wf_test_new_folder(dir);
        settle(&a, &layouts[6]);
        a.steps = SAVED;
        if (!save_run(&a, &how, SAVED))
            return;
        snprintf(path, sizeof path, "%s/step-%08d", dir, SAVED);
        c = wf_par_checkpoint_open(path, &error);
        reader = c ? wf_par_checkpoint_reader_open(c, &error) : NULL;
        CU_ASSERT_PTR_NOT_NULL_FATAL(reader);
        for (int64_t k = 0; k < wf_par_checkpoint_describe(c).tensors; k++)
            digest += digest_of(c, reader, k);
        CU_ASSERT_EQUAL(digest, wf_par_checkpoint_describe(c).digest);
        CU_ASSERT_EQUAL(wf_par_checkpoint_find(c, "block.none"), -1);
        CU_ASSERT_EQUAL(
            wf_par_checkpoint_reader_read(reader, -1, WF_PAR_SAVED_VALUE, NULL, &error),
            WF_EINVAL);
        wf_par_checkpoint_reader_close(reader);
        wf_par_checkpoint_close(c);
        wf_test_remove(dir);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"adamw, dropout, frozen: resumed on any layout", adamw},
        {"frozen in bf16", frozen_bf16},
        {"sgd, llama, asynchronous", sgd_async},
        {"one file of whole tensors", full},
        {"tensors that are larger than what is read at a time", large_tensors},
        {"each rank's bytes as they are", local},
        {"layouts that do not nest load the same values", inexact},
        {"what does not fit is refused", refused},
        {"a program reads the elements of the digest", contents},
        {"skipped steps", skipped},
        {"words of skipped steps", skips_are_read},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint", tests);
}
