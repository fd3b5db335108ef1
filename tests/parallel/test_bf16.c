/*
 * tests/parallel/test_bf16.c - parameters stored as bf16 with f32 masters: one digest over
 * layouts and strategies (another than that of f32), what rounded gradients do to it, and the
 * bytes of a parameter, which are those of ZeRO (Rajbhandari et al. 2020):
 *
 *                                   zero1        zero2      zero3
 *     gradients reduced in bf16     2+2+12/N     2+14/N     16/N
 *     in f32, exact                 2+4+12/N     2+16/N     18/N
 *
 * (bf16 parameters + gradients + master, mean and mean square. zero2 gathers its parameters for
 * forward and backward; zero3 has one unit at a time beside.)
 *
 * ctest: builds plain
 */
#include "tests/parallel/checkpoint_harness.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 5 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 8, .micro = 1, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 4, .accumulate = WF_PAR_LOCAL,
     .reshard = WF_PAR_RESHARD_NEVER, .wrap_type = "mlp", .sequence_parallel = true},
    {"full_shard", .tp = 8, .dp = 1, .micro = 8, .reshard = WF_PAR_RESHARD_ALWAYS,
     .prefetch = 2, .sequence_parallel = true},
    {"shard_grad_op", .tp = 2, .dp = 4, .micro = 2, .prefetch = 1},
    {"shard_grad_op", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_LOCAL, .prefetch = 3,
     .wrap_type = "attention"},
    {"no_shard", .tp = 1, .dp = 4, .micro = 2},
    {"no_shard", .tp = 4, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED,
     .sequence_parallel = true},
    {"zero1", .tp = 1, .dp = 8, .micro = 1, .prefetch = 1},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED,
     .reshard = WF_PAR_RESHARD_ALWAYS, .wrap_type = "mlp", .sequence_parallel = true},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 1, .prefetch = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 2, .accumulate = WF_PAR_LOCAL,
     .prefetch = 1},
    {"mics", .tp = 1, .dp = 8, .group = 1, .micro = 1, .prefetch = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind, wf_dtype param, wf_dtype reduce)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = kind == GPT2 ? 0.1f : 0;
    t.options.clip = 0.1f;
    t.layout.param_dtype = param;
    t.layout.reduce_dtype = reduce;
    return t;
}

static void one_digest(model_kind kind)
{
    training one = make_training(kind, WF_BF16, WF_F32);
    training f32 = make_training(kind, WF_F32, WF_F32);

    if (!train(&one) || !train(&f32))
        return;
    CU_ASSERT_NOT_EQUAL(one.digest, f32.digest);
    CU_ASSERT(fabsf(one.loss[STEPS - 1] - f32.loss[STEPS - 1]) < 0.02f);
    check_rows(&one, rows, ROWS, 1);
}

static void gpt2(void)
{
    one_digest(GPT2);
}

static void llama(void)
{
    one_digest(LLAMA);
}

/* Rounded gradients train as well, and say that they depend on the layout. */
static void rounded_gradients(void)
{
    training exact = make_training(LLAMA, WF_BF16, WF_F32);

    if (!train(&exact))
        return;
    for (int i = 0; i < ROWS; i++) {
        training t = on_row(make_training(LLAMA, WF_BF16, WF_BF16), &rows[i]);

        if (!train(&t))
            continue;
        CU_ASSERT_PTR_NOT_NULL(strstr(t.inexact, "gradients are rounded to bf16"));
        CU_ASSERT_NOT_EQUAL(t.digest, exact.digest);
        CU_ASSERT(fabsf(t.loss[STEPS - 1] - exact.loss[STEPS - 1]) < 0.02f);
        CU_ASSERT(fabs(t.grad_norm[0] / exact.grad_norm[0] - 1) < 0.01);
    }
}

/* Evaluation between steps finds the parameters as the last update left them. */
static wf_status same_as_masters(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                 int step)
{
    wf_context *ctx = wf_par_context(par);
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    const char *outside = wf_nn_enter(model);
    bool same = true;

    (void)t, (void)step;
    for (int64_t i = 0; i < count; i++) {
        wf_tensor *master = wf_whole(wf_cast(p[i]->tensor, WF_BF16)), *at_use = p[i]->at_use;
        const wf_tensor *used;

        if (!at_use || wf_tensor_is_absent(at_use)) /* it belongs to another unit */
            continue;
        used = wf_whole(at_use);
        same = same && used && master &&
               memcmp(used->data, master->data,
                      (size_t)wf_tensor_count(master) * sizeof(uint16_t)) == 0;
    }
    wf_nn_leave(model, outside, 0, NULL);
    free(p);
    NEED(same && wf_context_status(ctx) == WF_OK);
    return WF_OK;
}

static void copies_follow_masters(void)
{
    for (int i = 0; i < ROWS; i += 2) {
        training t = on_row(make_training(LLAMA, WF_BF16, WF_F32), &rows[i]);

        t.steps = 2;
        t.watch = same_as_masters;
        CU_ASSERT(train(&t));
    }
}

static wf_status loss_now(wf_par_trainer *trainer, float *loss)
{
    const wf_par_data data = {.read = count_up};

    return wf_par_evaluate(trainer, 1, &data, NULL, loss);
}

static wf_status open_first(const char *dir, wf_rank *rank, wf_par_checkpoint **c)
{
    char **paths = NULL;
    int64_t count = 0;

    GOOD(wf_par_checkpoint_list(dir, &paths, &count, &rank->error));
    NEED(count == 1);
    *c = wf_par_checkpoint_open(paths[0], &rank->error);
    free(paths[0]);
    free(paths);
    return rank->error.code;
}

/* A run that has evaluated has copies of its parameters, in part gathered: what is loaded then
   is what it goes on with, and not those. */
static wf_status load_in_mid_run(part *p, wf_par_trainer *trainer)
{
    const char *dir = p->arg;
    const wf_par_save_options save = {.dir = dir};
    const wf_par_data data = {.read = count_up};
    wf_par_saver *saver = wf_par_saver_open(trainer, &save);
    wf_rank *rank = p->rank;
    wf_par_checkpoint *c = NULL;
    float saved, later, loaded, model;
    wf_par_step second, again;

    GOOD(wf_par_train_step(trainer, 1, &data, &second));
    GOOD(wf_par_saver_save(saver, 1, &rank->error));
    wf_par_saver_close(saver);
    GOOD(open_first(dir, rank, &c));
    GOOD(loss_now(trainer, &saved));
    GOOD(wf_par_train_step(trainer, 2, &data, &second));
    GOOD(loss_now(trainer, &later));
    GOOD(wf_par_checkpoint_load(trainer, c, &rank->error));
    GOOD(loss_now(trainer, &loaded));
    GOOD(wf_par_train_step(trainer, 2, &data, &again));
    GOOD(loss_now(trainer, &model));
    NEED(model == later);
    GOOD(wf_par_checkpoint_load_model(p->par, p->model, c, &rank->error));
    GOOD(loss_now(trainer, &model));
    wf_par_checkpoint_close(c);
    NEED(saved != later && loaded == saved && model == saved);
    NEED(again.loss == second.loss && again.grad_norm == second.grad_norm);
    return WF_OK;
}

typedef struct mid_run {
    const training *t;
    char *dir;
} mid_run;

static wf_status mid_run_rank(wf_rank *rank, void *arg)
{
    const mid_run *m = arg;

    return on_trainer(rank, m->t, load_in_mid_run, m->dir);
}

static void loading_makes_copies_anew(void)
{
    static const row layouts[] = {{"zero1", .tp = 1, .dp = 2},
                                  {"full_shard", .tp = 2, .dp = 2, .prefetch = 1},
                                  {"shard_grad_op", .tp = 1, .dp = 2},
                                  {"no_shard", .tp = 1, .dp = 1}};

    for (int i = 0; i < 4; i++) {
        training t = on_row(make_training(LLAMA, WF_BF16, WF_F32), &layouts[i]);
        char dir[64];
        mid_run m = {&t, dir};

        wf_test_new_folder(dir);
        run_ranks(t.layout.tp * t.layout.dp, mid_run_rank, &m);
        wf_test_remove(dir);
    }
}

/* A model that is materialized again keeps nothing of its earlier gathers. */
static wf_status real_again(part *p)
{
    wf_rank *rank = p->rank;
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS)};
    int32_t tokens[2 * TOKENS] = {1, 2, 3};
    wf_tensor *x, *first, *second;

    GOOD(wf_par_materialize(p->par, p->model));
    wf_scope_open(p->ctx);
    x = wf_distribute(p->ctx, tokens, WF_I32, 2, dims, wf_par_batch_layout(p->par));
    first = wf_nn_gpt_logits(p->gpt, x);
    GOOD(wf_par_dematerialize(p->par, p->model));
    GOOD(wf_par_materialize(p->par, p->model));
    second = wf_nn_gpt_logits(p->gpt, x);
    NEED(first && second &&
         memcmp(first->data, second->data,
                (size_t)wf_tensor_local_count(first) * sizeof(float)) == 0);
    wf_scope_close(p->ctx);
    return WF_OK;
}

static void gathered_and_made_real_again(void)
{
    training t = make_training(LLAMA, WF_BF16, WF_F32);

    for (int s = 0; s < 2; s++) {
        t.layout.dp = 2;
        t.layout.strategy = s ? "full_shard" : "zero1";
        run_parts((part_test){.options = t.layout,
                              .config = &t.model,
                              .plan = wf_par_gpt_plan,
                              .body = real_again});
    }
}

typedef struct bytes {
    double parameters, gradients, optimizer;
} bytes;

static wf_status measure(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    bytes *b = t->arg;
    wf_memory_report m;
    double elements = 0;
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);

    (void)rank;
    for (int64_t i = 0; i < count; i++)
        elements += (double)wf_tensor_count(p[i]->tensor);
    free(p);
    wf_pool_report(wf_context_pool(wf_par_context(par)), &m);
    if (step == 2)
        *b = (bytes){(double)(m.most[WF_MEMORY_PARAMETER] +
                              (strcmp(t->layout.strategy, "full_shard") == 0
                                   ? 0
                                   : m.most[WF_MEMORY_GATHERED])) /
                         elements,
                     (double)m.most[WF_MEMORY_GRADIENT] / elements,
                     (double)m.most[WF_MEMORY_OPTIMIZER] / elements};
    return WF_OK;
}

/* A model of many units, which a bucket of 25 MiB is little of too: what one of them has in
   passing is under 1 %. */
static void formula(const char *strategy, wf_dtype reduce, int n, double parameters,
                    double gradients)
{
    training t = make_training(LLAMA, WF_BF16, reduce);
    wf_launch_options launch = {.ranks = n, .transport = "fake"};
    wf_error error = {WF_OK, ""};
    bytes b = {0, 0, 0};
    double sum, right = parameters + gradients + 12.0 / n;

    t.model = (wf_nn_gpt_config){.vocabulary = 16,
                                 .positions = TOKENS,
                                 .layers = 600,
                                 .heads = 4,
                                 .kv_heads = 4,
                                 .width = 512,
                                 .ffn = 2048};
    t.options.global_batch = n;
    t.layout.dp = n;
    t.layout.strategy = strategy;
    t.layout.plan = true;
    t.steps = 2;
    t.watch = measure;
    t.arg = &b;
    CU_ASSERT_EQUAL(wf_launch(&launch, training_rank, &t, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    sum = b.parameters + b.gradients + b.optimizer;
    CU_ASSERT(fabs(sum / right - 1) < 0.01);
    if (!(fabs(sum / right - 1) < 0.01))
        printf("\n    %s, %d ranks, gradients in %s: %.3f + %.3f + %.3f in place of "
               "%.3f + %.3f + %.3f\n",
               strategy, n, wf_dtype_name(reduce), b.parameters, b.gradients, b.optimizer,
               parameters, gradients, 12.0 / n);
}

static void formulas(void)
{
    for (int n = UNDER_SANITIZER ? 8 : 2; n <= 8; n *= 4) {
        formula("zero1", WF_BF16, n, 2, 2);
        formula("shard_grad_op", WF_BF16, n, 2, 2.0 / n);
        formula("full_shard", WF_BF16, n, 2.0 / n, 2.0 / n);
        formula("zero1", WF_F32, n, 2, 4);
        formula("shard_grad_op", WF_F32, n, 2, 4.0 / n);
        formula("full_shard", WF_F32, n, 2.0 / n, 4.0 / n);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, tied, with dropout: every strategy has the bits of one rank", gpt2},
        {"llama, 3 key-value heads", llama},
        {"gradients reduced in bf16", rounded_gradients},
        {"copies follow their masters", copies_follow_masters},
        {"loading makes copies anew", loading_makes_copies_anew},
        {"gathered, made fake and real again", gathered_and_made_real_again},
        {"bytes of a parameter", formulas},
        {NULL, NULL},
    };

    return wf_test_main("bf16", tests);
}
