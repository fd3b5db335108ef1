/* tests/core/test_tensor.c - shapes, storage and views; what no tensor can be. */
#include "tests/core/core_harness.h"

static void types(void)
{
    CU_ASSERT_EQUAL(wf_dtype_size(WF_F32), 4);
    CU_ASSERT_EQUAL(wf_dtype_size(WF_F64), 8);
    CU_ASSERT_EQUAL(wf_dtype_size(WF_BF16), 2);
    CU_ASSERT_EQUAL(wf_dtype_size(WF_I32), 4);
    CU_ASSERT_EQUAL(wf_dtype_size(WF_NF4), 1); /* a byte of a row */
    CU_ASSERT_STRING_EQUAL(wf_dtype_name(WF_BF16), "bf16");
    CU_ASSERT_STRING_EQUAL(wf_dtype_name(WF_DTYPES), "unknown type");
}

static void shapes(void)
{
    wf_context *ctx = open_reference(0);
    wf_dim dims[] = {wf_dim_batch(4), wf_dim_chunked(5), wf_dim_heads(3, 8)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_PARAMETER);
    wf_tensor *scalar = wf_tensor_new(ctx, WF_F64, 0, NULL, NULL, WF_MEMORY_ACTIVATION);
    wf_memory_report report;
    char text[64], small[8];

    CU_ASSERT_EQUAL(wf_tensor_count(t), 4 * 5 * 24);
    CU_ASSERT_EQUAL(wf_tensor_local_count(t), 4 * 5 * 24);
    CU_ASSERT_EQUAL(t->dim[2].grain, 8);
    CU_ASSERT_STRING_EQUAL(wf_tensor_describe(t, text, sizeof text), "f32 [4,5,24]");
    CU_ASSERT_STRING_EQUAL(wf_tensor_describe(t, small, sizeof small), "f32 [4,");
    CU_ASSERT_STRING_EQUAL(wf_tensor_describe(scalar, text, sizeof text), "f64 []");
    CU_ASSERT_STRING_EQUAL(wf_tensor_describe(NULL, text, sizeof text), "(none)");
    CU_ASSERT_EQUAL(wf_tensor_count(scalar), 1);
    wf_pool_report(wf_context_pool(ctx), &report);
    CU_ASSERT_EQUAL(report.now[WF_MEMORY_PARAMETER], 4 * 5 * 24 * 4);
    CU_ASSERT_EQUAL(report.now[WF_MEMORY_ACTIVATION], 64);
    wf_context_close(ctx);
}

static void empty(void)
{
    wf_context *ctx = open_reference(0);
    wf_dim dims[] = {wf_dim_batch(0), wf_dim_width(INT64_MAX / 8)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F64, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL(wf_tensor_count(t), 0);
    CU_ASSERT_FALSE(wf_tensor_is_fake(t));
    t = wf_add(t, t);
    CU_ASSERT_PTR_NOT_NULL(t);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

typedef struct bad_shape {
    int ndim;
    wf_dim dim[2];
    const char *words;
} bad_shape;

static void impossible_shapes(void)
{
    static const bad_shape bad[] = {
        {1, {{-1, 1, 1}}, "dim 0 has size -1 and grain 1"},
        {1, {{6, 0, 1}}, "size 6 and grain 0"},
        {1, {{6, 4, 1}}, "must be a multiple of the grain"},
        {2, {{6, 1, 1}, {6, 2, 3}}, "dim 1 has 3 chunks"},
        {1, {{6, 1, 0}}, "make it with wf_dim_width"},
        {2, {{INT64_C(1) << 31, 1, 1}, {INT64_C(1) << 30, 1, 1}}, "larger than 2^63 bytes"},
        {2, {{INT64_MAX, 1, 1}, {INT64_MAX, 1, 1}}, "dim 0 of size 9223372036854775807"},
        {-1, {{0}}, "0 to 6 dims, not -1"},
        {7, {{0}}, "0 to 6 dims, not 7"}};
    wf_context *ctx = open_reference(0);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const bad_shape *b = &bad[i];

        CU_ASSERT_PTR_NULL(
            wf_tensor_new(ctx, WF_F64, b->ndim, b->dim, NULL, WF_MEMORY_ACTIVATION));
        CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, b->words));
        CU_ASSERT_PTR_NULL(wf_tensor_fake(ctx, WF_F64, b->ndim, b->dim, NULL));
        CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, b->words));
    }
    CU_ASSERT_PTR_NULL(wf_tensor_fake(ctx, WF_DTYPES, 0, NULL, NULL));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "there is no storage type"));
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    wf_context_close(ctx);
}

static void aliases_and_views(void)
{
    static const double value[] = {1, 2, 3, 4, 5, 6};
    wf_context *ctx = open_reference(0);
    wf_dim flat = wf_dim_width(6), few = wf_dim_width(5);
    wf_tensor *t, *alias, *view;

    wf_scope_open(ctx);
    t = make(ctx, 2, 3, value);
    t->requires_grad = true;
    alias = wf_tensor_alias(t);
    CU_ASSERT_PTR_EQUAL(alias->data, t->data);
    CU_ASSERT_FALSE(alias->requires_grad);
    CU_ASSERT_PTR_NULL(wf_tensor_view(t, 1, &few, NULL));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "a view of 5 elements over 6"));
    view = wf_tensor_retain(wf_tensor_view(t, 1, &flat, NULL));
    CU_ASSERT_EQUAL(in_use(ctx), 64);
    wf_scope_close(ctx);
    CU_ASSERT_TRUE(equals(view, 6, value)); /* the data outlives the tensor that made it */
    CU_ASSERT_EQUAL(in_use(ctx), 64);
    wf_tensor_release(view);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    CU_ASSERT_PTR_NULL(wf_tensor_alias(NULL));
    CU_ASSERT_PTR_NULL(wf_tensor_view(NULL, 1, &flat, NULL));
    CU_ASSERT_PTR_NULL(wf_tensor_retain(NULL));
    wf_tensor_release(NULL);
    wf_context_close(ctx);
}

/* Rows are seen, not copied, and know where they lie; none is a view too. */
static void rows_of_a_tensor(void)
{
    static const double value[] = {1, 2, 3, 4, 5, 6};
    wf_context *ctx = open_reference(0);
    wf_dim heads[] = {wf_dim_heads(3, 2), wf_dim_width(1)};
    wf_tensor *t = make(ctx, 3, 2, value), *rows = wf_tensor_rows(t, 1, 2);

    CU_ASSERT_TRUE_FATAL(equals(rows, 4, value + 2));
    CU_ASSERT_PTR_EQUAL(rows->data, (double *)t->data + 2);
    CU_ASSERT_TRUE(rows->dim[0].size == 2 && rows->dim[0].chunks == WF_CHUNKS_EACH);
    CU_ASSERT_EQUAL(rows->start[0], 1);
    rows = wf_tensor_rows(rows, 1, 1);
    CU_ASSERT_TRUE(equals(rows, 2, value + 4));
    CU_ASSERT_EQUAL(rows->start[0], 2);
    CU_ASSERT_TRUE(equals(wf_tensor_rows(t, 3, 0), 0, NULL));
    CU_ASSERT_TRUE(
        wf_tensor_is_fake(wf_tensor_rows(wf_tensor_fake(ctx, WF_F64, 2, t->dim, NULL), 2, 1)));
    CU_ASSERT_EQUAL(in_use(ctx), 64);
    CU_ASSERT_PTR_NULL(wf_tensor_rows(NULL, 0, 1));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);

    CU_ASSERT_PTR_NULL(wf_tensor_rows(t, 2, 2));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "2 rows from 2 on of f64 [3,2]: this rank has 3"));
    CU_ASSERT_PTR_NULL(wf_tensor_rows(t, -1, 2));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "2 rows from -1 on"));
    CU_ASSERT_PTR_NULL(wf_tensor_rows(t, INT64_MAX, 1));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "this rank has 3"));
    CU_ASSERT_PTR_NULL(wf_tensor_rows(wf_tensor_fake(ctx, WF_F64, 2, heads, NULL), 0, 4));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "summed in 8 chunks of the whole"));
    heads[0].chunks = WF_CHUNKS_1;
    CU_ASSERT_PTR_NULL(wf_tensor_rows(wf_tensor_fake(ctx, WF_F64, 2, heads, NULL), 0, 3));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "must be a multiple of the grain"));
    wf_context_close(ctx);
}

static void fakes_cost_nothing(void)
{
    wf_context *ctx = open_reference(64);
    wf_dim dims[] = {wf_dim_batch(1000000), wf_dim_width(1000000)};
    wf_tensor *t = wf_tensor_fake(ctx, WF_F64, 2, dims, NULL);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_TRUE(wf_tensor_is_fake(t) && wf_tensor_is_fake(wf_tensor_alias(t)));
    CU_ASSERT_EQUAL(wf_tensor_count(t), INT64_C(1000000000000));
    CU_ASSERT_PTR_NULL(t->data);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* Descriptions are used again: each new tensor starts blank. */
static void many_in_turn(void)
{
    static const double zero = 0;
    wf_context *ctx = open_reference(0);
    wf_tensor *held[300];

    for (int round = 0; round < 3; round++) {
        wf_scope_open(ctx);
        for (int i = 0; i < 300; i++) {
            held[i] = wf_tensor_retain(make(ctx, 0, 1, &zero));
            CU_ASSERT_FALSE(held[i]->requires_grad || held[i]->grad || held[i]->tape);
            held[i]->requires_grad = true;
            held[i]->tape = 7;
            *(double *)held[i]->data = i;
        }
        wf_scope_close(ctx);
        for (int i = 0; i < 300; i++) {
            CU_ASSERT_EQUAL(*(double *)held[i]->data, i);
            wf_tensor_release(held[i]);
        }
        CU_ASSERT_EQUAL(in_use(ctx), 0);
    }
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"types", types},
                                    {"shapes", shapes},
                                    {"empty tensors", empty},
                                    {"impossible shapes", impossible_shapes},
                                    {"aliases and views", aliases_and_views},
                                    {"rows of a tensor", rows_of_a_tensor},
                                    {"fakes cost nothing", fakes_cost_nothing},
                                    {"many in turn", many_in_turn},
                                    {NULL, NULL}};

    return wf_test_main("tensor", tests);
}
