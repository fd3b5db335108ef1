/*
 * tests/parallel/test_lora_merge.c - adapters that become part of their weights, and the digest
 * of the base that they are for: number by number on one rank, and with its bits on every
 * layout.
 */
#include "core/host_data.h"
#include "mesh/array/mesh.h"
#include "parallel/models/gpt/lora.h"
#include "tests/parallel/parallel_harness.h"
#include "tests/parallel/rows.h"

enum {
    BATCH = 8,
    MERGED = 2,
    STEPS = 3
}; /* the step behind which adapters are merged; one more comes then */

static const row rows[] = {
    {NULL, .tp = 2, .dp = 1},
    {NULL, .tp = 4, .dp = 2, .micro = 2, .sequence_parallel = true},
    {NULL, .tp = 8, .dp = 1, .micro = 4},
    {"no_shard", .tp = 2, .dp = 2},
    {"shard_grad_op", .tp = 2, .dp = 4, .prefetch = 1},
    {NULL, .tp = 1, .dp = 8, .micro = 1, .reshard = WF_PAR_RESHARD_NEVER},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"zero1", .tp = 2, .dp = 4, .micro = 1},
};

enum { ROWS = sizeof rows / sizeof *rows, MAX_RANKS = 8, LOGITS = BATCH * TOKENS * VOCABULARY };

static training make_training(model_kind kind, const char *targets, wf_dtype dtype)
{
    training t = new_training(kind, 3, BATCH);

    t.lora = (wf_nn_lora_options){.rank = 3, .alpha = 7.5, .site = 64, .targets = targets};
    t.layout.dtype = t.layout.param_dtype = dtype;
    t.steps = STEPS;
    return t;
}

/* The weights and factors of a rank that has all of them, one behind the other; and how many
   were looked at. */
typedef struct kept {
    float *value;
    int64_t linears, changed;
    bool merged;
} kept;

static float *copy_of(const wf_tensor *t, float *to)
{
    wf_host_data view;
    int64_t n = wf_tensor_local_count(t);

    memcpy(to, wf_data_read_f32(t, &view), (size_t)n * sizeof *to);
    wf_data_close(&view);
    return to + n;
}

/* W + scale B A of what was kept, summed in double over ascending indices and rounded once. */
static void check_weight(kept *k, const wf_nn_linear *m, const float *w, const float *now)
{
    int64_t rows_of = m->weight->tensor->local[0], columns = m->weight->tensor->local[1];
    int64_t rank = m->lora.a->tensor->local[0], wrong = 0;
    const float *a = w + rows_of * columns, *b = a + rank * columns;

    for (int64_t i = 0; i < rows_of; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            float want;

            for (int64_t r = 0; r < rank; r++)
                sum += (double)b[i * rank + r] * (double)a[r * columns + j];
            want = (float)((double)w[i * columns + j] + (double)m->lora.scale * sum);
            wrong += !same_bits(now[i * columns + j], want);
            k->changed += want != w[i * columns + j];
        }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Keeps what there is before merging, and compares behind it. */
static void look_at_linear(kept *k, wf_nn_module *module)
{
    const wf_nn_linear *m = wf_nn_as_linear(module);
    int64_t all;
    float *now, *end;

    all = wf_tensor_local_count(m->weight->tensor) + wf_tensor_local_count(m->lora.a->tensor) +
          wf_tensor_local_count(m->lora.b->tensor);
    now = malloc((size_t)all * sizeof *now);
    end =
        copy_of(m->lora.b->tensor, copy_of(m->lora.a->tensor, copy_of(m->weight->tensor, now)));
    if (k->merged) {
        check_weight(k, m, k->value, now);
        for (float *b = end - wf_tensor_local_count(m->lora.b->tensor); b < end; b++)
            CU_ASSERT_EQUAL(*b, 0);
        free(k->value);
        k->value = NULL;
    } else {
        k->value = now;
        now = NULL;
    }
    free(now);
}

static wf_status merge(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    (void)t, (void)rank;
    return step == MERGED ? wf_par_lora_merge(par, model) : WF_OK;
}

typedef struct list {
    wf_nn_module *linear[64];
    int64_t count;
} list;

static void collect(void *arg, wf_nn_module *module)
{
    const wf_nn_linear *m = wf_nn_as_linear(module);
    list *l = arg;

    if (m && m->lora.a)
        l->linear[l->count++] = module;
}

static wf_status merge_and_look(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                                int step)
{
    list l = {.count = 0};
    kept k[64] = {{0}}, *sum = t->arg;
    wf_status status;

    if (step != MERGED)
        return WF_OK;
    wf_nn_visit(&model->base, collect, NULL, &l);
    for (int64_t i = 0; i < l.count; i++)
        look_at_linear(&k[i], l.linear[i]);
    status = merge(t, rank, par, model, step);
    for (int64_t i = 0; i < l.count; i++) {
        k[i].merged = true;
        look_at_linear(&k[i], l.linear[i]);
        sum->linears++;
        sum->changed += k[i].changed > 0;
    }
    return status;
}

/* Every number of every adapted weight, a factor that is zero, and a model that computes what
   it did before. */
static void is_the_sum(void)
{
    for (int llama = 0; llama < 2; llama++) {
        training t = make_training(llama ? LLAMA : GPT2, "all-linear", WF_F32), apart = t;
        kept k = {.linears = 0};

        t.watch = merge_and_look;
        t.arg = &k;
        if (!train(&t) || !train(&apart))
            return;
        CU_ASSERT_EQUAL(k.linears, 2 * (llama ? 7 : 6));
        CU_ASSERT_EQUAL(k.changed, k.linears);
        CU_ASSERT(fabsf(t.loss[MERGED] - apart.loss[MERGED]) < 1e-5f * apart.loss[MERGED]);
    }
}

/* Losses, weights and moments after a merge have the bits of one rank. */
static void on_layouts(void)
{
    static const char *const targets[] = {"all-linear", "q,v,down"};

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            training one = make_training(LLAMA, targets[i], bf16 ? WF_BF16 : WF_F32);

            one.watch = merge;
            if (train(&one))
                check_rows(&one, rows, ROWS, UNDER_SANITIZER ? 3 : 1);
        }
}

/* Logits of a batch, whole on every rank. */
static wf_status take_logits(wf_par *par, wf_nn_gpt *model, float *to)
{
    wf_context *ctx = wf_par_context(par);
    int32_t tokens[BATCH * TOKENS];
    wf_tensor *x, *y;

    for (int i = 0; i < BATCH * TOKENS; i++)
        tokens[i] = i * 37 % VOCABULARY;
    wf_scope_open(ctx);
    x = wf_distribute(ctx, tokens, WF_I32, 2,
                      (wf_dim[]){wf_dim_batch(BATCH), wf_dim_chunked(TOKENS)},
                      wf_par_batch_layout(par));
    y = wf_whole(wf_nn_gpt_logits(model, x));
    if (y)
        wf_data_get(y, 0, LOGITS, to);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

static wf_status merge_between(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                               int step)
{
    static float logits[MAX_RANKS][2][LOGITS];
    float *before = logits[rank->index][0], *after = logits[rank->index][1];
    double off = 0, largest = 0;

    if (step != MERGED)
        return WF_OK;
    GOOD(take_logits(par, model, before));
    GOOD(merge(t, rank, par, model, step));
    GOOD(take_logits(par, model, after));
    for (int i = 0; i < LOGITS; i++) {
        off = fmax(off, fabs((double)before[i] - (double)after[i]));
        largest = fmax(largest, fabs((double)before[i]));
    }
    NEED(off < 1e-5 * largest);
    return WF_OK;
}

/* Tensors that a pass has left gathered or stored as bf16 are not used by the next one. */
static void between_passes(void)
{
    for (int i = 0; i < ROWS; i++) {
        training t = on_row(make_training(LLAMA, "all-linear", WF_F32), &rows[i]);

        t.options.schedule.lr = 0.1f; /* adapters that show */
        t.watch = merge_between;
        CU_ASSERT(train(&t));
    }
}

/* Digests of the base, before the first step and behind the last; as floats and as bf16. */
typedef struct digests {
    uint64_t first[2], last[2], changed, swapped;
    bool change;
} digests;

static wf_status read_digests(wf_par *par, wf_nn_gpt *model, uint64_t of[2])
{
    wf_status status = wf_par_lora_base(par, model, WF_F32, &of[0]);

    return status == WF_OK ? wf_par_lora_base(par, model, WF_BF16, &of[1]) : status;
}

/* One number of a weight of block 0, and back; then that weight and its twin of block 1 change
   places. */
static wf_status change(digests *d, wf_par *par, wf_nn_gpt *model)
{
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count), *twin[2] = {NULL};
    wf_status status;
    float *x[2];
    size_t bytes;

    for (int64_t i = 0; i < count; i++)
        for (int b = 0; b < 2; b++)
            if (strcmp(p[i]->path, b ? "block.1.mlp.down.weight" : "block.0.mlp.down.weight") ==
                0)
                twin[b] = p[i];
    free(p);
    CU_ASSERT_FATAL(twin[0] && twin[1]);
    bytes = (size_t)wf_tensor_local_count(twin[0]->tensor) * sizeof *x[0];
    x[0] = twin[0]->tensor->data;
    x[1] = twin[1]->tensor->data;
    x[0][5] = -x[0][5];
    status = wf_par_lora_base(par, model, WF_F32, &d->changed);
    x[0][5] = -x[0][5];
    for (size_t i = 0; i < bytes / sizeof *x[0]; i++) {
        float first = x[0][i];

        x[0][i] = x[1][i];
        x[1][i] = first;
    }
    return status == WF_OK ? wf_par_lora_base(par, model, WF_F32, &d->swapped) : status;
}

static wf_status look(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    digests mine = {.change = false}, *d = rank->index == 0 ? t->arg : &mine;
    wf_status status = WF_OK;

    if (step == 0)
        status = read_digests(par, model, d->first);
    if (step == STEPS)
        status = read_digests(par, model, d->last);
    return status == WF_OK && step == STEPS && d->change ? change(d, par, model) : status;
}

static digests digests_of(training t, bool change_it)
{
    digests d = {.change = change_it};

    t.watch = look;
    t.arg = &d;
    CU_ASSERT(train(&t));
    return d;
}

/* It is of what is frozen alone, so that training leaves it; and of every number and its
   place. */
static void base_is_what_is_frozen(void)
{
    training t = make_training(LLAMA, "all-linear", WF_F32), other = t;
    digests d = digests_of(t, true), more;

    CU_ASSERT_EQUAL(d.first[0], d.last[0]);
    CU_ASSERT_EQUAL(d.first[1], d.last[1]);
    CU_ASSERT_NOT_EQUAL(d.first[0], d.first[1]);
    CU_ASSERT_NOT_EQUAL(d.changed, d.first[0]);
    CU_ASSERT_NOT_EQUAL(d.swapped, d.first[0]);
    other.layout.seed++;
    CU_ASSERT_NOT_EQUAL(digests_of(other, false).first[0], d.first[0]);
    other = t;
    other.lora.rank++;
    more = digests_of(other, false);
    CU_ASSERT_EQUAL(more.first[0], d.first[0]);
}

/* A base that is stored as bf16 has the digest that one of floats has as bf16. */
static void base_of_bf16(void)
{
    digests wide = digests_of(make_training(LLAMA, "all-linear", WF_F32), false);
    digests narrow = digests_of(make_training(LLAMA, "all-linear", WF_BF16), false);

    CU_ASSERT_EQUAL(narrow.first[0], wide.first[1]);
    CU_ASSERT_EQUAL(narrow.first[1], wide.first[1]);
}

static void base_on_layouts(void)
{
    training one = make_training(LLAMA, "all-linear", WF_F32);
    digests d = digests_of(one, false);

    for (int i = 0; i < ROWS; i += UNDER_SANITIZER ? 3 : 1) {
        digests there = digests_of(on_row(one, &rows[i]), false);

        CU_ASSERT_EQUAL(there.first[0], d.first[0]);
        CU_ASSERT_EQUAL(there.last[1], d.last[1]);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"is the sum", is_the_sum},
        {"on layouts", on_layouts},
        {"between passes", between_passes},
        {"base is what is frozen", base_is_what_is_frozen},
        {"base of bf16", base_of_bf16},
        {"base on layouts", base_on_layouts},
        {NULL, NULL},
    };

    return wf_test_main("lora merge", tests);
}
