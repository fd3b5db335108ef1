/*
 * tests/kernels/test_ops_a_rules.c - what cases and parts cannot say: that sums are the trees
 * the design names, bit for bit; that random numbers are random; that mistakes are reported.
 */
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/harness.h"
#include <math.h>
#include <string.h>

static wf_context *ctx;

static void open_context(bool exact_off)
{
    const wf_context_options options = {.seed = 7, .exact_off = exact_off};
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_position(ctx, 11, (wf_sequences){.first = 40});
}

static void close_context(void)
{
    CU_ASSERT_STRING_EQUAL(wf_context_error(ctx)->text, "");
    wf_context_close(ctx);
}

/* The context has failed with this code, and its text has these words. */
static void expect(wf_status code, const char *words)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), code);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    wf_context_clear(ctx);
}

static wf_tensor *normal_tensor(int ndim, const wf_dim *dims, uint64_t stream)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_EQUAL_FATAL(wf_init_normal(t, 0, 1, stream), WF_OK);
    return t;
}

static wf_tensor *tokens_of(int64_t batch, int64_t tokens, int64_t vocabulary)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int64_t i = 0; i < batch * tokens; i++)
        ((int32_t *)t->data)[i] = (int32_t)((i * i + 3 * i) % vocabulary);
    return t;
}

static float at(const wf_tensor *t, int64_t i)
{
    return ((const float *)t->data)[i];
}

/* The midpoint tree, as a recursion; no chunks are +0. */
static float tree(const float *chunk, int64_t n)
{
    if (n <= 1)
        return n ? chunk[0] : 0;
    return tree(chunk, n / 2) + tree(chunk + n / 2, n - n / 2);
}

enum { B = 6, S = 21, D = 37 };

static const wf_dim dims[] = {{B, 1, WF_CHUNKS_EACH}, {S, 1, WF_CHUNKS_8}, {D, 1, WF_CHUNKS_1}};

/* Sum over the tokens of sequence b, column d: 8 chunks, each a chain; or one chain. */
static float token_tree(const wf_tensor *x, int64_t b, int64_t d, bool chain)
{
    float chunk[WF_MAX_CHUNKS] = {0};
    int chunks = chain ? 1 : WF_MAX_CHUNKS;

    for (int l = 0; l < chunks; l++)
        for (int64_t s = wf_cut(S, 1, chunks, l); s < wf_cut(S, 1, chunks, l + 1); s++)
            chunk[l] += at(x, (b * S + s) * D + d);
    return tree(chunk, chunks);
}

static void check_sums(bool chain)
{
    wf_tensor *x, *tokens, *batch;
    int wrong = 0;

    open_context(chain);
    x = normal_tensor(3, dims, 1);
    tokens = wf_bias_grad(x);
    batch = wf_batch_sum(x);
    for (int64_t b = 0; b < B; b++)
        for (int64_t d = 0; d < D; d++)
            wrong += at(tokens, b * D + d) != token_tree(x, b, d, chain);
    CU_ASSERT_EQUAL(wrong, 0);
    for (int64_t i = 0; i < S * D; i++) {
        float chunk[B], sum = 0;

        for (int64_t b = 0; b < B; b++)
            sum += chunk[b] = at(x, b * S * D + i);
        wrong += at(batch, i) != (chain ? sum : tree(chunk, B));
    }
    CU_ASSERT_EQUAL(wrong, 0);
    close_context();
}

static void sums_are_trees(void)
{
    check_sums(false);
}

static void sums_are_chains(void)
{
    check_sums(true);
}

static void token_sum_is_a_tree(void)
{
    wf_tensor *x, *y;

    open_context(false);
    x = normal_tensor(2, dims, 2);
    y = wf_token_sum(x);
    for (int64_t b = 0; b < B; b++) {
        float chunk[WF_MAX_CHUNKS] = {0};

        for (int l = 0; l < WF_MAX_CHUNKS; l++)
            for (int64_t s = wf_cut(S, 1, 8, l); s < wf_cut(S, 1, 8, l + 1); s++)
                chunk[l] += at(x, b * S + s);
        CU_ASSERT_EQUAL(at(y, b), tree(chunk, WF_MAX_CHUNKS));
    }
    close_context();
}

/* Every sequence has its chunk here, also those without the token, which the kernel skips. */
static void check_embedding_dw(bool chain)
{
    enum { V = 50 };
    const wf_dim table_dims[] = {wf_dim_chunked(V), dims[2]};
    wf_tensor *table, *tokens, *dy, *dtable;
    int chunks = chain ? 1 : B, size = B * S / chunks, wrong = 0;

    open_context(chain);
    table = normal_tensor(2, table_dims, 3);
    tokens = tokens_of(B, S, V);
    dy = normal_tensor(3, dims, 4);
    dtable = wf_embedding_dw(table, tokens, dy);
    for (int64_t v = 0; v < V; v++)
        for (int64_t d = 0; d < D; d++) {
            float chunk[B] = {0};

            for (int64_t i = 0; i < B * S; i++)
                if (((const int32_t *)tokens->data)[i] == v)
                    chunk[i / size] += at(dy, i * D + d);
            wrong += at(dtable, v * D + d) != tree(chunk, chunks);
        }
    CU_ASSERT_EQUAL(wrong, 0);
    close_context();
}

static void embedding_dw_is_a_tree(void)
{
    check_embedding_dw(false);
}

static void embedding_dw_is_a_chain(void)
{
    check_embedding_dw(true);
}

static double mean_of(const wf_tensor *t, int power)
{
    double sum = 0;

    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        sum += pow((double)at(t, i), power);
    return sum / (double)wf_tensor_count(t);
}

static void initial_values(void)
{
    const wf_dim big[] = {wf_dim_chunked(300), wf_dim_width(401)};
    wf_tensor *t, *other;

    open_context(false);
    t = wf_tensor_new(ctx, WF_F32, 2, big, NULL, WF_MEMORY_PARAMETER);
    wf_init_normal(t, 0.5F, 0.1F, 1);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(t, 1), 0.5, 0.002);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(t, 2) - 0.25, 0.01, 0.002);
    other = normal_tensor(2, big, 2);
    wf_init_normal(other, 0.5F, 0.1F, 2);
    CU_ASSERT(memcmp(t->data, other->data, 64) != 0);
    wf_init_normal(other, 0.5F, 0.1F, 1);
    CU_ASSERT(memcmp(t->data, other->data, (size_t)wf_tensor_count(t) * sizeof(float)) == 0);
    wf_init_uniform(t, -1, 3, 1);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(t, 1), 1, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(t, 2) - 1, 16.0 / 12, 0.02);
    CU_ASSERT_EQUAL(wf_init_fill(NULL, 1), WF_EINVAL);
    close_context();
}

/* Returns the share of elements at which two tensors of ones were dropped alike. */
static double agreement(const wf_tensor *a, const wf_tensor *b)
{
    double same = 0;

    for (int64_t i = 0; i < wf_tensor_count(a); i++)
        same += (at(a, i) == 0) == (at(b, i) == 0);
    return same / (double)wf_tensor_count(a);
}

static void dropout_masks(void)
{
    const wf_dim big[] = {wf_dim_batch(4), wf_dim_chunked(50), wf_dim_width(303)};
    wf_tensor *x, *y, *other;

    open_context(false);
    x = normal_tensor(3, big, 1);
    wf_init_fill(x, 1);
    y = wf_dropout(x, 0.25F, 3);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(y, 1), 1, 0.01); /* a quarter is 0, the rest 4/3 */
    CU_ASSERT_DOUBLE_EQUAL(mean_of(y, 2), 4.0 / 3, 0.01);
    CU_ASSERT_EQUAL(agreement(y, wf_dropout(x, 0.25F, 3)), 1);
    other = wf_dropout(x, 0.25F, 4);
    CU_ASSERT_DOUBLE_EQUAL(agreement(y, other), 10.0 / 16, 0.01); /* as chance has it */
    wf_context_position(ctx, 12, (wf_sequences){.first = 40});
    CU_ASSERT_DOUBLE_EQUAL(agreement(y, wf_dropout(x, 0.25F, 3)), 10.0 / 16, 0.01);
    CU_ASSERT_PTR_EQUAL(wf_dropout(x, 0, 3), x);
    wf_context_training(ctx, false);
    CU_ASSERT_PTR_EQUAL(wf_dropout(x, 0.25F, 3), x);
    wf_context_training(ctx, true);
    CU_ASSERT_PTR_NULL(wf_dropout(x, 1, 3));
    expect(WF_EINVAL, "[0, 1)");
    CU_ASSERT_PTR_NULL(wf_dropout(x, NAN, 3));
    expect(WF_EINVAL, "[0, 1)");
    CU_ASSERT_PTR_NULL(wf_dropout(NULL, 0.5F, 3));
    close_context();
}

/* A pipeline runs the gradient of a micro-step after the next one has begun. */
static void dropout_gradient_keeps_its_mask(void)
{
    wf_tensor *x, *y, *ones;
    wf_tape *tape;

    open_context(false);
    ones = normal_tensor(3, dims, 1);
    wf_init_fill(ones, 1);
    tape = wf_tape_open(ctx);
    x = wf_leaf(ones);
    y = wf_dropout(x, 0.5F, 3);
    wf_context_position(ctx, 12, (wf_sequences){.first = 99});
    CU_ASSERT_EQUAL(wf_backward(y, ones, false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->grad);
    CU_ASSERT_EQUAL(agreement(y, x->grad), 1);
    wf_tape_close(tape);
    close_context();
}

static void wrong_tokens(void)
{
    const wf_dim table_dims[] = {wf_dim_chunked(5), dims[2]};
    const wf_dim longer[] = {wf_dim_chunked(dims[1].size + 1), dims[2]};
    wf_tensor *table, *tokens;

    open_context(false);
    table = normal_tensor(2, table_dims, 1);
    tokens = tokens_of(3, 7, 5);
    ((int32_t *)tokens->data)[2 * 7 + 4] = 5;
    CU_ASSERT_PTR_NULL(wf_embedding(table, tokens));
    expect(WF_EINVAL, "token 5 of sequence 2, position 4, is outside the vocabulary of 5");
    ((int32_t *)tokens->data)[2 * 7 + 4] = -1;
    CU_ASSERT_PTR_NULL(wf_embedding(table, tokens));
    expect(WF_EINVAL, "token -1");
    CU_ASSERT_PTR_NULL(wf_embedding(table, normal_tensor(2, dims, 2)));
    expect(WF_EDTYPE, "f32");
    CU_ASSERT_PTR_NULL(wf_rows(table, 6));
    expect(WF_ESHAPE, "6 rows of a table that has 5");
    CU_ASSERT_PTR_NULL(wf_rows(table, -1));
    expect(WF_ESHAPE, "-1 rows");
    CU_ASSERT_PTR_NULL(
        wf_rows_grad(normal_tensor(2, dims + 1, 3), normal_tensor(2, longer, 4)));
    expect(WF_ESHAPE, "rows of a table that has");
    close_context();
}

static void heads(void)
{
    const wf_dim merged[] = {dims[0], dims[1], wf_dim_heads(3, 8)};
    const wf_dim twice[] = {dims[0], dims[1], wf_dim_heads(3, 8), wf_dim_width(2)};
    wf_tensor *x, *split, *back;

    open_context(false);
    x = normal_tensor(3, merged, 1);
    split = wf_split_heads(x, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(split);
    CU_ASSERT_EQUAL(split->ndim, 4);
    CU_ASSERT_PTR_EQUAL(split->data, x->data);
    CU_ASSERT(split->dim[2].size == 3 && split->dim[2].grain == 1);
    CU_ASSERT(split->dim[2].chunks == WF_CHUNKS_8);
    CU_ASSERT(split->dim[3].size == 8 && split->dim[3].chunks == WF_CHUNKS_1);
    back = wf_merge_heads(split);
    CU_ASSERT_PTR_NOT_NULL_FATAL(back);
    CU_ASSERT(back->ndim == 3 && back->dim[1].size == S);
    CU_ASSERT(back->dim[2].size == 24 && back->dim[2].grain == 8);
    CU_ASSERT(back->dim[2].chunks == WF_CHUNKS_8);
    CU_ASSERT_PTR_NULL(wf_split_heads(x, 4));
    expect(WF_ESHAPE, "grain 8, not the head size 4");
    CU_ASSERT_PTR_NULL(wf_merge_heads(normal_tensor(4, twice, 1)));
    expect(WF_ESHAPE, "grain 8");
    close_context();
}

/* A tensor that split_heads did not make may be merged as well: its gradient has dims of its
   own. */
static void merged_gradient(void)
{
    const wf_dim heads_of_chunks[] = {dims[0], wf_dim_chunked(3), wf_dim_heads(2, 2)};
    wf_tensor *x, *y;
    wf_tape *tape;

    open_context(false);
    tape = wf_tape_open(ctx);
    x = wf_leaf(normal_tensor(3, heads_of_chunks, 1));
    y = wf_merge_heads(x);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_EQUAL(wf_backward(y, normal_tensor(2, y->dim, 2), false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->grad);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(wf_dim_equal(x->grad->dim[i], x->dim[i]));
    wf_tape_close(tape);
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {
        {"sums are trees over chunks", sums_are_trees},
        {"without exactness, chains", sums_are_chains},
        {"token_sum is a tree", token_sum_is_a_tree},
        {"embedding_dw is a tree", embedding_dw_is_a_tree},
        {"without exactness, a chain", embedding_dw_is_a_chain},
        {"initial values", initial_values},
        {"masks of dropout", dropout_masks},
        {"a gradient keeps its mask", dropout_gradient_keeps_its_mask},
        {"wrong tokens", wrong_tokens},
        {"heads", heads},
        {"the gradient of merged heads", merged_gradient},
        {NULL, NULL},
    };

    return wf_test_main("rules of ops a", tests);
}
