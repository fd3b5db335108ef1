/*
 * tests/parallel/test_lora.c - adapters have one rank's bits on every layout: tp x dp x
 * sequence parallelism x strategies x micro-batches x pipelines, as parameters, gradients and
 * losses.
 *
 * ctest: builds plain
 */
#include "core/host_data.h"
#include "tests/parallel/plan_harness.h"
#include "tests/parallel/rows.h"

enum { BATCH = 8, STEPS = UNDER_SANITIZER ? 2 : 3 };

static const row rows[] = {
    {NULL, .tp = 2, .dp = 1},
    {NULL, .tp = 4, .dp = 2, .micro = 2},
    {NULL, .tp = 8, .dp = 1, .micro = 4},
    {NULL, .tp = 2, .dp = 2, .sequence_parallel = true},
    {NULL, .tp = 4, .dp = 1, .sequence_parallel = true, .micro = 4, .recompute = "block"},
    {NULL, .tp = 1, .dp = 4, .micro = 1},
    {"no_shard", .tp = 1, .dp = 4, .micro = 1},
    {"no_shard", .tp = 4, .dp = 2, .sequence_parallel = true},
    {"zero1", .tp = 2, .dp = 2, .micro = 2},
    {"shard_grad_op", .tp = 2, .dp = 4, .prefetch = 1},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"mics", .tp = 2, .dp = 4, .group = 2, .sequence_parallel = true},
    {NULL, .tp = 8, .dp = 2, .threads = 2, .sequence_parallel = true, .prefetch = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind, const char *targets, int64_t rank)
{
    training t = new_training(kind, 3, BATCH);

    t.lora = (wf_nn_lora_options){
        .rank = rank, .alpha = 2.5 * (double)rank, .site = 64, .targets = targets};
    t.steps = STEPS;
    return t;
}

static void one_digest(training one)
{
    if (train(&one))
        check_rows(&one, rows, ROWS, 1);
}

static void all_linears(void)
{
    one_digest(make_training(LLAMA, "all-linear", 4));
}

/* More ranks than a rank of an adapter has rows, and members of a group that have none. */
static void some_linears(void)
{
    one_digest(make_training(LLAMA, "q,v,down", 3));
}

/* Biases, and a gelu behind the sum. */
static void gpt2(void)
{
    one_digest(make_training(GPT2, "all-linear", 5));
}

static void with_dropout(void)
{
    training t = make_training(LLAMA, "q,k,v,out,up", 4);

    t.lora.dropout = 0.25f;
    one_digest(t);
}

static void modules_trained_whole(void)
{
    training t = make_training(LLAMA, "q,v", 2);

    t.lora.train = "embed,block.*.norm1,head";
    t.lora.rank_stabilized = true;
    one_digest(t);
}

static void bf16(void)
{
    training t = make_training(LLAMA, "all-linear", 4);

    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    one_digest(t);
}

/* Moments of 8 bits, in blocks that no layout cuts: factors of 16 and 24 columns, and
   embeddings trained whole. */
static void moments_of_8_bits(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        training t = make_training(bf16 ? GPT2 : LLAMA, "all-linear", 16), wide;

        t.lora.train = "embed,norm";
        t.layout.dtype = t.layout.param_dtype = bf16 ? WF_BF16 : WF_F32;
        wide = t;
        t.options.optimizer.method = WF_NN_ADAMW8BIT;
        one_digest(t);
        CU_ASSERT(train(&t) && train(&wide) && t.digest != wide.digest);
        CU_ASSERT(fabsf(t.loss[STEPS - 1] - wide.loss[STEPS - 1]) <
                  1e-2f * wide.loss[STEPS - 1]);
    }
}

/* A base of 4 bits, whose blocks no layout cuts: rows of 24 and 96, which are no multiples of
   64. */
static void nf4(void)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        training t = make_training(dtype ? GPT2 : LLAMA, "all-linear", 4);

        t.layout.base_dtype = WF_NF4;
        t.layout.dtype = t.layout.param_dtype = dtype ? WF_BF16 : WF_F32;
        one_digest(t);
    }
}

/* The numbers of a run's frozen parameters, one after the other, taken from one run and put
   into another. */
typedef struct base {
    float *value;
    int64_t count, nf4; /* so many numbers, and so many parameters that rest as nf4 */
    bool put;
} base;

static wf_status copy_base(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    int64_t count = 0, at = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    base *b = t->arg;

    (void)rank, (void)par;
    for (int64_t i = 0; step == 0 && i < count; i++) {
        int64_t n = wf_tensor_local_count(p[i]->tensor);
        wf_host_data view;
        float *x;

        if (!p[i]->frozen)
            continue;
        b->nf4 += p[i]->tensor->dtype == WF_NF4;
        if (b->put && (x = wf_data_write_f32(p[i]->tensor, &view)))
            memcpy(x, b->value + at, (size_t)n * sizeof *x);
        else if ((b->value = realloc(b->value, (size_t)(at + n) * sizeof *b->value)))
            memcpy(b->value + at, wf_data_read_f32(p[i]->tensor, &view),
                   (size_t)n * sizeof *b->value);
        wf_data_close(&view);
        at += n;
    }
    b->count = at;
    free(p);
    return WF_OK;
}

/* A base of 4 bits is the base of the numbers that it stands for. */
static void nf4_is_its_numbers(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        training t = make_training(LLAMA, "all-linear", 4), same, other;
        base b = {.put = false};

        t.layout.dtype = t.layout.param_dtype = bf16 ? WF_BF16 : WF_F32;
        t.watch = copy_base;
        t.arg = &b;
        other = same = t;
        t.layout.base_dtype = WF_NF4;
        if (!train(&t))
            return;
        CU_ASSERT_EQUAL(b.nf4, 2 * 7);
        b.put = true;
        if (train(&same))
            check_same(&same, &t);
        CU_ASSERT_EQUAL(b.nf4, 2 * 7);
        free(b.value);
        other.watch = NULL;
        CU_ASSERT(train(&other) && other.digest != t.digest);
    }
}

static void stages(void)
{
    static const char *const schedules[] = {"1f1b", "zb-h1"};
    training one = make_training(LLAMA, "all-linear", 4);

    one.model.layers = 4;
    one.options.micro_batch = 2;
    if (!train(&one))
        return;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int tp = 1; tp <= 2; tp++) {
            training t = one;

            t.layout.pp = 2;
            t.layout.tp = tp;
            t.layout.sequence_parallel = tp > 1;
            t.digest = 0;
            t.pipeline.schedule = schedules[i];
            if (train(&t))
                check_same(&t, &one);
        }
}

/* A plan knows adapters: memory by kind, traffic and work are the run's, to the byte. */
static void plan_is_run(void)
{
    for (int i = 0; i < ROWS; i += UNDER_SANITIZER ? 4 : 1)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            training t =
                on_row(make_training(LLAMA, i % 2 ? "q,v,down" : "all-linear", 4), &rows[i]);

            t.layout.dtype = t.layout.param_dtype = bf16 ? WF_BF16 : WF_F32;
            t.layout.base_dtype = (i + i / 2 + bf16) % 2 ? WF_NF4 : WF_F32;
            t.lora.train = i % 3 ? NULL : "head";
            compare(rows[i].strategy ? rows[i].strategy : "full_shard", t);
        }
}

/* Sums of the elements of the parameters: those that are frozen, and both factors of
   adapters. */
typedef struct sums {
    double frozen[2], factor[2][2]; /* before and after */
} sums;

static wf_status add_up(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    sums *s = t->arg;

    (void)rank, (void)par;
    for (int64_t i = 0; (step == 0 || step == STEPS) && i < count; i++)
        for (int64_t e = 0; e < wf_tensor_local_count(p[i]->tensor); e++) {
            double x = fabs((double)((const float *)p[i]->tensor->data)[e]);
            bool second = strstr(p[i]->path, "lora_b") != NULL;

            CU_ASSERT_EQUAL(p[i]->frozen, !p[i]->adapter);
            *(p[i]->frozen ? &s->frozen[step > 0] : &s->factor[second][step > 0]) += x;
        }
    free(p);
    return WF_OK;
}

/* Adapters begin as nothing, so that the first loss is the model's own, and are all that is
   trained. */
static void begins_as_the_model(void)
{
    training t = make_training(LLAMA, "all-linear", 4), none = new_training(LLAMA, 3, BATCH);
    sums s = {.frozen = {0}};

    t.watch = add_up;
    t.arg = &s;
    if (!train(&t) || !train(&none))
        return;
    CU_ASSERT(same_bits(t.loss[0], none.loss[0]));
    CU_ASSERT_EQUAL(s.frozen[0], s.frozen[1]);
    CU_ASSERT_EQUAL(s.factor[1][0], 0);
    CU_ASSERT(s.factor[1][1] > 0);
    CU_ASSERT(s.factor[0][0] > 0);
    CU_ASSERT_NOT_EQUAL(s.factor[0][0], s.factor[0][1]);
}

/* The adapters of a model: their scale, dropout sites that no two share, and how A begins. */
typedef struct adapters {
    int64_t count, sites_twice;
    uint64_t sites[4];
    float scale;
    double most; /* the largest number of any A, over the bound that it is drawn from */
} adapters;

static void look_at_adapter(void *arg, wf_nn_module *module)
{
    const wf_nn_linear *m = wf_nn_as_linear(module);
    adapters *s = arg;
    uint64_t *sites, bit;

    if (!m || !m->lora.a)
        return;
    sites = &s->sites[m->lora.site / 64];
    bit = UINT64_C(1) << m->lora.site % 64;
    s->sites_twice += (*sites & bit) != 0;
    *sites |= bit;
    s->scale = m->lora.scale;
    s->count++;
    for (int64_t e = 0; e < wf_tensor_local_count(m->lora.a->tensor); e++)
        s->most = fmax(s->most, fabs((double)((const float *)m->lora.a->tensor->data)[e]) *
                                    sqrt((double)m->lora.a->tensor->dim[1].size));
}

static wf_status look_at_adapters(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                  int step)
{
    (void)rank, (void)par;
    if (step == 0)
        wf_nn_visit(&model->base, look_at_adapter, NULL, t->arg);
    return WF_OK;
}

/* alpha / rank or alpha / sqrt(rank), U(-1, 1) / sqrt(in), and a mask for each adapter, as PEFT
   has them. */
static void are_as_in_peft(void)
{
    for (int rank_stabilized = 0; rank_stabilized < 2; rank_stabilized++) {
        training t = make_training(LLAMA, "all-linear", 4);
        adapters s = {.count = 0};

        t.lora.rank_stabilized = rank_stabilized;
        t.watch = look_at_adapters;
        t.arg = &s;
        if (!train(&t))
            return;
        CU_ASSERT_EQUAL(s.count, 2 * 7);
        CU_ASSERT_EQUAL(s.sites_twice, 0);
        CU_ASSERT_EQUAL(s.scale, rank_stabilized ? 5.0f : 2.5f);
        CU_ASSERT(s.most > 0.95 && s.most <= 1);
    }
}

/* Members of a group have it, a linear alone, and one whose u is a partial sum. */
static void dropout_is_there(void)
{
    static const char *const targets[] = {"q,k,v", "q", "out"};

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        training t = make_training(LLAMA, targets[i], 4), without = t;

        t.lora.dropout = 0.25f;
        CU_ASSERT(train(&t) && train(&without) && t.digest != without.digest);
    }
}

static void refused(void)
{
    static const struct {
        wf_nn_lora_options lora;
        const char *text;
    } cases[] = {
        {{.rank = 4, .alpha = 8, .targets = "q,gait"}, "no linear of the model is called gait"},
        {{.rank = 4, .alpha = 8, .targets = ""}, "need targets"},
        {{.rank = -1, .alpha = 8, .targets = "q"}, "at least 1"},
        {{.rank = 4, .alpha = 0, .targets = "q"}, "alpha above 0"},
        {{.rank = 4, .alpha = 8, .dropout = 1, .targets = "q"}, "below 1"},
        {{.rank = 4, .alpha = 8, .targets = "q,q"}, "has an adapter already"},
        {{.rank = 4, .alpha = 8, .targets = "q", .train = "embed,nothing"},
         "no parameter of the model is at nothing"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        training t = new_training(LLAMA, 3, BATCH);
        wf_launch_options launch = {.ranks = 1};
        wf_error error = {WF_OK, ""};

        t.lora = cases[i].lora;
        CU_ASSERT_EQUAL(wf_launch(&launch, training_rank, &t, &error), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, cases[i].text));
        if (!strstr(error.text, cases[i].text))
            printf("\n    %s\n", error.text);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"all linears", all_linears},
        {"some linears", some_linears},
        {"GPT-2", gpt2},
        {"with dropout", with_dropout},
        {"modules trained whole", modules_trained_whole},
        {"bf16", bf16},
        {"moments of 8 bits", moments_of_8_bits},
        {"nf4", nf4},
        {"nf4 is its numbers", nf4_is_its_numbers},
        {"stages", stages},
        {"plan is run", plan_is_run},
        {"begins as the model", begins_as_the_model},
        {"are as in PEFT", are_as_in_peft},
        {"dropout is there", dropout_is_there},
        {"refused", refused},
        {NULL, NULL},
    };

    return wf_test_main("lora", tests);
}
