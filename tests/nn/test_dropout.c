/*
 * tests/nn/test_dropout.c - dropout by what it promises: a share p of zeros, the others divided
 * by 1 - p, masks that depend on (seed, site, step, sequence, position, feature) alone.
 *
 * Counts may be five of their standard deviations off; the numbers are the same in every run.
 *
 * ctest: builds plain
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

enum { BATCH = 6, TOKENS = 37, WIDTH = 50, COUNT = BATCH * TOKENS * WIDTH };

static const wf_dim cube[] = {
    {BATCH, 1, WF_CHUNKS_EACH}, {TOKENS, 1, WF_CHUNKS_8}, {WIDTH, 1, WF_CHUNKS_1}};

/* All ones and more, so that a zero is a dropped element. */
static float input(int64_t i)
{
    return 1.0f + (float)(i % 97) / 64;
}

static wf_tensor *ramp(wf_context *ctx, const wf_layout *layout)
{
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 3, cube, layout, WF_MEMORY_ACTIVATION);

    for (int64_t i = 0; x && i < wf_tensor_local_count(x); i++)
        ((float *)x->data)[i] = input(whole_index(x, i));
    return x;
}

/* A share of n trials, each with probability p, in units of what chance allows. */
static double off(int64_t hits, int64_t n, double p)
{
    return fabs((double)hits - (double)n * p) / (5 * sqrt((double)n * p * (1 - p)));
}

static void keeps_its_share(void)
{
    static const float rates[] = {0.01f, 0.1f, 0.25f, 0.5f, 0.9f};
    wf_context *ctx = lone_context(1);

    wf_context_position(ctx, 1, (wf_sequences){.first = 0});
    wf_scope_open(ctx);
    for (int r = 0; r < 5; r++) {
        const float *y = wf_dropout(ramp(ctx, NULL), rates[r], 2)->data;
        int64_t dropped = 0, column[WIDTH] = {0}, row[TOKENS] = {0};

        for (int64_t i = 0; i < COUNT; i++) {
            double kept = (double)input(i) / (1 - (double)rates[r]);

            CU_ASSERT(y[i] == 0 || fabs((double)y[i] - kept) < 3e-7 * kept);
            dropped += y[i] == 0;
            column[i % WIDTH] += y[i] == 0;
            row[i / WIDTH % TOKENS] += y[i] == 0;
        }
        CU_ASSERT(off(dropped, COUNT, (double)rates[r]) < 1);
        for (int i = 0; i < WIDTH; i++)
            CU_ASSERT(off(column[i], BATCH * TOKENS, (double)rates[r]) < 1);
        for (int i = 0; i < TOKENS; i++)
            CU_ASSERT(off(row[i], BATCH * WIDTH, (double)rates[r]) < 1);
    }
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

typedef struct setting {
    uint64_t seed;
    int site;
    int64_t step, first;
} setting;

static void mask(setting s, bool kept[COUNT])
{
    wf_context *ctx = lone_context(s.seed);
    wf_tensor *y;

    wf_context_position(ctx, s.step, (wf_sequences){.first = s.first});
    wf_scope_open(ctx);
    y = wf_dropout(ramp(ctx, NULL), 0.3f, s.site);
    for (int64_t i = 0; y && i < COUNT; i++)
        kept[i] = ((const float *)y->data)[i] != 0;
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

/* Two masks that should have nothing in common agree where chance has it. */
static void are_strangers(const bool *a, const bool *b, int64_t n)
{
    int64_t agree = 0;

    for (int64_t i = 0; i < n; i++)
        agree += a[i] == b[i];
    CU_ASSERT(off(agree, n, 0.7 * 0.7 + 0.3 * 0.3) < 1);
}

static void every_position_has_its_own(void)
{
    static const setting here = {1, 4, 10, 32};
    static const setting other[] = {
        {2, 4, 10, 32}, {1, 5, 10, 32}, {1, 4, 11, 32},        {1, 4, 10, 64},
        {1, 10, 4, 32}, {1, 4, 32, 10}, {1, 4 + 4096, 10, 32}, {1, 4 + 3 * 4096, 10, 32}};
    static bool a[COUNT], b[COUNT];
    const int64_t sequence = TOKENS * WIDTH;

    mask(here, a);
    mask(here, b);
    CU_ASSERT(memcmp(a, b, sizeof a) == 0);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        mask(other[i], b);
        are_strangers(a, b, COUNT);
    }
    for (int i = 1; i < BATCH; i++)
        are_strangers(a, a + i * sequence, sequence);
    for (int lag = 1; lag <= 4; lag++)
        are_strangers(a, a + lag, COUNT - lag);
    are_strangers(a, a + WIDTH, COUNT - WIDTH);
    /* Sequence 34 has its mask wherever in a batch it stands. */
    mask((setting){1, 4, 10, 34}, b);
    CU_ASSERT(memcmp(a + 2 * sequence, b, (size_t)(4 * sequence) * sizeof *a) == 0);
}

/* Sites beyond those of 1365 blocks: as many as a model may have. */
static void attention_in_deep_models(void)
{
    enum { SITES = 4, ELEMENTS = 16 * 2 * 8 };
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(16), wf_dim_chunked(2),
                           wf_dim_width(8)};
    static const int site[SITES] = {4, 4 + 4096, 4 + 2 * 4096, 3 * 65536};
    wf_context *ctx = lone_context(1);
    wf_tensor *x, *y[SITES];

    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    for (int64_t i = 0; x && i < ELEMENTS; i++)
        ((float *)x->data)[i] = input(i);
    for (int i = 0; i < SITES; i++) {
        y[i] = wf_attention(
            x, x, x, &(wf_attention_options){.causal = true, .dropout = 0.5f, .site = site[i]});
        CU_ASSERT_PTR_NOT_NULL_FATAL(y[i]);
        for (int k = 0; k < i; k++)
            CU_ASSERT(memcmp(y[i]->data, y[k]->data, ELEMENTS * sizeof(float)) != 0);
    }
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

static void gradient_has_the_mask(void)
{
    wf_context *ctx = lone_context(1);
    wf_tensor *x, *y;
    wf_tape *tape;

    wf_context_position(ctx, 3, (wf_sequences){.first = 8});
    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    x = wf_leaf(ramp(ctx, NULL));
    y = wf_dropout(x, 0.3f, 1);
    CU_ASSERT_EQUAL(wf_backward(y, ramp(ctx, NULL), false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->grad);
    CU_ASSERT(memcmp(x->grad->data, y->data, COUNT * sizeof(float)) == 0);
    wf_tape_close(tape);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

static void evaluation_drops_nothing(void)
{
    wf_context *ctx = lone_context(1);
    wf_tensor *x;

    wf_scope_open(ctx);
    x = ramp(ctx, NULL);
    CU_ASSERT(wf_context_is_training(ctx));
    CU_ASSERT_PTR_EQUAL(wf_dropout(x, 0, 1), x);
    CU_ASSERT_PTR_NOT_EQUAL(wf_dropout(x, 0.5f, 1), x);
    wf_context_training(ctx, false);
    CU_ASSERT_PTR_EQUAL(wf_dropout(x, 0.5f, 1), x);
    CU_ASSERT_PTR_NULL(wf_dropout(x, 1, 1));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "must be in [0, 1), not 1"));
    wf_scope_close(ctx);
    close_lone(ctx, WF_EINVAL);
}

/* A rank has the slice of the whole tensor's mask. */
static wf_status any_layout(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *layout[MAX_LAYOUTS];
    int n = all_layouts(mesh, 3, false, layout);
    wf_context *ctx = mesh->ctx;
    const float *want = arg;

    for (int i = 0; i < n; i++) {
        wf_tensor *x, *y;

        wf_scope_open(ctx);
        x = ramp(ctx, layout[i]);
        NEED(x);
        wf_context_position(ctx, 7, (wf_sequences){.first = 100});
        y = wf_dropout(x, 0.3f, 5);
        NEED(y && y->layout == layout[i]);
        for (int64_t k = 0; k < wf_tensor_local_count(y); k++)
            NEED(same_bits(((const float *)y->data)[k], want[whole_index(y, k)]));
        wf_scope_close(ctx);
    }
    return WF_OK;
}

/* One rank has under the mask the numbers of the ranks of two meshes. */
static void same_mask(mesh_test one, mesh_test other)
{
    wf_context *ctx = lone_context(0);
    wf_tensor *y;

    wf_context_position(ctx, 7, (wf_sequences){.first = 100});
    wf_scope_open(ctx);
    y = wf_dropout(ramp(ctx, NULL), 0.3f, 5);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    one.arg = other.arg = y->data;
    on_mesh(one);
    on_mesh(other);
    wf_scope_close(ctx);
    close_lone(ctx, WF_OK);
}

static void layouts_keep_it(void)
{
    same_mask((mesh_test){.n_axes = 2, .size = {2, 3}, .body = any_layout},
              (mesh_test){.n_axes = 2, .size = {3, 4}, .body = any_layout});
}

/* The ops that contain dropout: of x, added to x, and in the sum before a norm. */
static wf_tensor *dropped(int op, wf_tensor *x, wf_tensor *gain)
{
    wf_tensor *sum;

    if (op == 0)
        return wf_dropout(x, 0.3f, 5);
    if (op == 1)
        return wf_dropout_add(wf_detach(x), x, 0.3f, 5);
    wf_add_rmsnorm(wf_detach(x), x, gain, 1e-5f, 0.3f, 5, &sum);
    return sum;
}

/* Whatever ranks the gradient lies on, it has the mask that forward had: that of each
   element. */
static wf_status gradient_in_any_layout(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *layout[MAX_LAYOUTS];
    int n = all_layouts(mesh, 3, false, layout);
    wf_context *ctx = mesh->ctx;
    const float *want = arg;

    for (int k = 0; k < 3 * n * n; k++) {
        const wf_layout *from = layout[k % n], *to = layout[k / n % n];
        wf_tensor *x, *seed, *y, *gain;
        wf_tape *tape;

        if (k / n / n == 2 && from && from->n_axes[2]) /* a norm takes whole rows */
            continue;
        wf_scope_open(ctx);
        tape = wf_tape_open(ctx);
        x = wf_leaf(ramp(ctx, from));
        seed = ramp(ctx, to);
        gain = wf_tensor_new(ctx, WF_F32, 1, &cube[2], NULL, WF_MEMORY_ACTIVATION);
        NEED(x && seed && gain && wf_init_fill(gain, 1) == WF_OK);
        wf_context_position(ctx, 7, (wf_sequences){.first = 100});
        y = dropped(k / n / n, x, gain);
        NEED(y && wf_backward(y, seed, false) == WF_OK && x->grad);
        for (int64_t e = 0; e < wf_tensor_local_count(x->grad); e++)
            NEED(same_bits(((const float *)x->grad->data)[e], want[whole_index(x->grad, e)]));
        wf_tape_close(tape);
        wf_scope_close(ctx);
    }
    return WF_OK;
}

static void gradient_keeps_it(void)
{
    same_mask((mesh_test){.n_axes = 1, .size = {4}, .body = gradient_in_any_layout},
              (mesh_test){.n_axes = 2, .size = {2, 3}, .body = gradient_in_any_layout});
}

/* Both branches of a block are dropped where chance drops both. */
static wf_status branches(model_rank *r, void *arg)
{
    enum { ROWS = 6, WIDE = 48, ALL = ROWS * WIDE };
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(ROWS), wf_dim_width(WIDE)};
    wf_rank *rank = r->rank;
    int64_t alike = 0;
    wf_tensor *x, *y;

    (void)arg;
    wf_context_position(r->ctx, 1, (wf_sequences){.first = 0});
    wf_scope_open(r->ctx);
    x = wf_tensor_new(r->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    NEED(x);
    for (int64_t i = 0; i < ALL; i++)
        ((float *)x->data)[i] = (float)(i * i % 17) / 4;
    y = wf_nn_call(r->model->block[0], x);
    NEED(y);
    for (int64_t i = 0; i < ALL; i++)
        alike += same_bits(((const float *)x->data)[i], ((const float *)y->data)[i]);
    NEED(off(alike, ALL, 0.25) < 1);
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void parallel_branches(void)
{
    on_model_ranks(
        &(model_test){.config = {WF_NN_GPT2, .parallel = true, .shared_norm = true,
                                 .dropout = 0.5f, .vocabulary = 11, .positions = 6, .layers = 1,
                                 .heads = 2, .kv_heads = 2, .width = 48, .ffn = 50},
                      .body = branches});
}

int main(void)
{
    static const wf_test tests[] = {
        {"keeps its share", keeps_its_share},
        {"every place has its own mask", every_position_has_its_own},
        {"attention in deep models", attention_in_deep_models},
        {"the gradient has the mask", gradient_has_the_mask},
        {"evaluation drops nothing", evaluation_drops_nothing},
        {"layouts keep the mask", layouts_keep_it},
        {"gradients of any layout keep it", gradient_keeps_it},
        {"branches beside each other", parallel_branches},
        {NULL, NULL}};

    return wf_test_main("dropout", tests);
}
