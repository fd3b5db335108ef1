/*
 * tests/nn/test_initial.c - what parameters start from: the distributions that the model
 * promises, and the same numbers in every layout.
 *
 * A statistic of n numbers may be five of its standard deviations off: once in 2 million times,
 * and the numbers are the same in every run.
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

static const double allowed = 5;

typedef struct moments {
    double n, mean, variance, beyond[4]; /* beyond[k]: share of |x| > k deviations */
} moments;

static moments moments_of(const float *x, int64_t n, double deviation)
{
    moments m = {.n = (double)n};

    for (int64_t i = 0; i < n; i++) {
        m.mean += (double)x[i] / m.n;
        for (int k = 0; k < 4; k++)
            m.beyond[k] += (fabs((double)x[i]) > k * deviation) / m.n;
    }
    for (int64_t i = 0; i < n; i++)
        m.variance += ((double)x[i] - m.mean) * ((double)x[i] - m.mean) / m.n;
    return m;
}

/* |found - right| in units of what chance allows. */
static double off(double found, double right, double deviation)
{
    return fabs(found - right) / (allowed * deviation);
}

static void is_normal(const float *x, int64_t n, double deviation)
{
    moments m = moments_of(x, n, deviation);

    CU_ASSERT(off(m.mean, 0, deviation / sqrt(m.n)) < 1);
    CU_ASSERT(off(m.variance / deviation / deviation, 1, sqrt(2 / m.n)) < 1);
    for (int k = 1; k < 4; k++) {
        double share = erfc(k / sqrt(2));

        CU_ASSERT(off(m.beyond[k], share, sqrt(share * (1 - share) / m.n)) < 1);
    }
}

/* The correlation of two series that should have none, in units of what chance allows. */
static double correlation(const float *x, const float *y, int64_t n, double variance)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i] / variance;
    return off(sum / (double)n, 0, 1 / sqrt((double)n));
}

static const wf_nn_gpt_config gpt2 = {WF_NN_GPT2,  .vocabulary = 257, .positions = 64,
                                      .layers = 3, .heads = 4,        .kv_heads = 4,
                                      .width = 64, .ffn = 160};

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && strcmp(path + n - m, end) == 0;
}

/* Neither neighbours nor rows know of each other. */
static void is_independent(const float *x, int64_t n, int64_t row, double deviation)
{
    const int64_t lags[] = {1, 2, 3, 4, row};

    for (int i = 0; i < 5; i++)
        CU_ASSERT(correlation(x, x + lags[i], n - lags[i], deviation * deviation) < 1);
}

static wf_status start_as_promised(model_rank *r, void *arg)
{
    const float *last = NULL;
    double last_deviation = 0;

    (void)arg;
    for (int64_t i = 0; i < r->count; i++) {
        const wf_nn_parameter *p = r->parameter[i];
        const float *x = p->tensor->data;
        int64_t n = wf_tensor_count(p->tensor);
        bool writes = ends_with(p->path, "out.weight") || ends_with(p->path, "down.weight");
        double deviation = writes ? 0.02 / sqrt(2.0 * (double)gpt2.layers) : 0.02;

        for (int64_t k = 0; k < n && p->tensor->ndim == 1; k++)
            CU_ASSERT(x[k] == (ends_with(p->path, "gain") ? 1.0f : 0.0f));
        if (p->tensor->ndim == 1)
            continue;
        is_normal(x, n, deviation);
        is_independent(x, n, p->tensor->dim[1].size, deviation);
        if (last)
            CU_ASSERT(correlation(x, last, 64 * 64, deviation * last_deviation) < 1);
        last = x;
        last_deviation = deviation;
    }
    return WF_OK;
}

/* One rank is a thread alone, so it may use CUnit while the main thread waits for it. */
static void distributions(void)
{
    for (uint64_t seed = 0; seed < 3; seed++)
        on_model_ranks(&(model_test){
            .options = {.seed = seed}, .config = gpt2, .body = start_as_promised});
}

static void uniform_and_fill(void)
{
    const wf_dim dims[] = {wf_dim_width(100), wf_dim_width(331)};
    wf_context *ctx = lone_context(3);
    wf_tensor *t;
    float *x;
    moments m;

    wf_scope_open(ctx);
    t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_PARAMETER);
    CU_ASSERT_EQUAL(wf_init_uniform(t, -1, 3, 17), WF_OK);
    x = t->data;
    m = moments_of(x, 33100, 1);
    CU_ASSERT(off(m.mean, 1, sqrt(16.0 / 12 / m.n)) < 1);
    CU_ASSERT(off(m.variance, 16.0 / 12, 16 * sqrt(1.0 / 180 / m.n)) < 1);
    CU_ASSERT(off(m.beyond[1], 0.5, sqrt(0.25 / m.n)) < 1);
    for (int i = 0; i < 33100; i++)
        CU_ASSERT(x[i] >= -1 && x[i] <= 3);
    CU_ASSERT_EQUAL(wf_init_fill(t, 0.5f), WF_OK);
    for (int i = 0; i < 33100; i++)
        CU_ASSERT(x[i] == 0.5f);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

/* Uneven in every way: 10 heads, 5 groups, a vocabulary of 37. */
static const wf_nn_gpt_config odd = {.vocabulary = 37,
                                     .positions = 9,
                                     .layers = 1,
                                     .heads = 10,
                                     .kv_heads = 5,
                                     .width = 20,
                                     .ffn = 27};

enum { PARAMETERS = 32 };

typedef struct wholes {
    int64_t count;
    float *x[PARAMETERS];
    int64_t split[8]; /* per rank: parameters of which it holds only a part */
} wholes;

static wf_status remember(model_rank *r, void *arg)
{
    wholes *w = arg;
    wf_rank *rank = r->rank;

    NEED(r->count <= PARAMETERS);
    for (w->count = 0; w->count < r->count; w->count++) {
        wf_tensor *t = r->parameter[w->count]->tensor;
        size_t bytes = (size_t)wf_tensor_count(t) * sizeof(float);

        w->x[w->count] = malloc(bytes);
        NEED(w->x[w->count]);
        memcpy(w->x[w->count], t->data, bytes);
    }
    return WF_OK;
}

static wf_status is_slice(model_rank *r, void *arg)
{
    wholes *w = arg;
    wf_rank *rank = r->rank;

    NEED(r->count == w->count);
    w->split[rank->index] = 0;
    for (int64_t i = 0; i < r->count; i++) {
        wf_tensor *t = r->parameter[i]->tensor;

        w->split[rank->index] += wf_tensor_local_count(t) < wf_tensor_count(t);
        for (int64_t k = 0; k < wf_tensor_local_count(t); k++)
            NEED(same_bits(((float *)t->data)[k], w->x[i][whole_index(t, k)]));
    }
    return WF_OK;
}

static void shards_are_slices(void)
{
    static const int ranks[][2] = {{2, 1}, {3, 1}, {4, 2}, {7, 1}, {8, 1}, {1, 3}};
    model_test test = {.options = {.seed = 5}, .config = odd, .body = remember};
    wholes w = {.count = 0};

    test.arg = &w;
    on_model_ranks(&test);
    test.body = is_slice;
    test.options.strategy = "full_shard";
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        test.options.tp = ranks[i][0];
        test.options.dp = ranks[i][1];
        on_model_ranks(&test);
        /* over tp embed, head and the seven matrices of a block, over dp the norms too */
        for (int k = 0; k < ranks[i][0] * ranks[i][1]; k++)
            CU_ASSERT_EQUAL(w.split[k], ranks[i][1] > 1 ? w.count : ranks[i][0] > 1 ? 9 : 0);
    }
    for (int64_t i = 0; i < w.count; i++)
        free(w.x[i]);
}

/* The ops themselves, in every layout that a mesh of two axes has. */
static wf_status any_layout(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const wf_dim dims[] = {{7, 1, 8}, {12, 3, 8}, {5, 1, 1}};
    const wf_layout *layout[MAX_LAYOUTS];
    int n = all_layouts(mesh, 3, false, layout);
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < 2; kind++) {
            wf_tensor *whole, *part;

            wf_scope_open(ctx);
            whole = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_PARAMETER);
            part = wf_tensor_new(ctx, WF_F32, 3, dims, layout[i], WF_MEMORY_PARAMETER);
            GOOD(kind ? wf_init_normal(whole, 1, 2, 9) : wf_init_uniform(whole, 1, 2, 9));
            GOOD(kind ? wf_init_normal(part, 1, 2, 9) : wf_init_uniform(part, 1, 2, 9));
            for (int64_t k = 0; k < wf_tensor_local_count(part); k++)
                NEED(same_bits(((float *)part->data)[k],
                               ((float *)whole->data)[whole_index(part, k)]));
            wf_scope_close(ctx);
        }
    return WF_OK;
}

static void in_every_layout(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = any_layout});
    on_mesh((mesh_test){.n_axes = 2, .size = {4, 2}, .body = any_layout});
}

static wf_status other_seed(model_rank *r, void *arg)
{
    const float *here = r->model->embed->table->tensor->data, *there = arg;
    int64_t n = wf_tensor_count(r->model->embed->table->tensor), same = 0;
    wf_rank *rank = r->rank;

    for (int64_t i = 0; i < n; i++)
        same += same_bits(here[i], there[i]);
    NEED(same < n / 100);
    return WF_OK;
}

static void seeds_differ(void)
{
    model_test test = {.options = {.seed = 5}, .config = odd, .body = remember};
    wholes w = {.count = 0};

    test.arg = &w;
    on_model_ranks(&test);
    test = (model_test){{.seed = 6}, odd, other_seed, w.x[0]};
    on_model_ranks(&test);
    for (int64_t i = 0; i < w.count; i++)
        free(w.x[i]);
}

int main(void)
{
    static const wf_test tests[] = {{"GPT-2 starts as promised", distributions},
                                    {"uniform and fill", uniform_and_fill},
                                    {"a shard is the slice of the whole", shards_are_slices},
                                    {"in every layout", in_every_layout},
                                    {"seeds differ", seeds_differ},
                                    {NULL, NULL}};

    return wf_test_main("initial", tests);
}
