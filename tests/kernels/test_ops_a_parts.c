/*
 * tests/kernels/test_ops_a_parts.c - ranks that hold parts (op_parts.h): element by element,
 * sums, tables, dropout and initialisation.
 */
#include "kernels/shared_internal.h"
#include "tests/kernels/op_parts.h"

static wf_call call_of(const wf_op *op, int n_in, wf_tensor *a, wf_tensor *b, wf_tensor *c)
{
    return (wf_call){.op = op, .n_in = n_in, .in = {a, b, c}, .n_out = 1};
}

static void elements(void)
{
    const wf_dim dims[] = {wf_dim_batch(3), wf_dim_chunked(5), wf_dim_heads(3, 4)};
    const wf_op *const ops[] = {&wf_op_add, &wf_op_mul, &wf_op_silu_grad, &wf_op_gelu_grad};
    const split last = {"elementwise", {2, 2}, {2}, ANY};
    const split tokens = {"bias_add", {1, WHOLE}, {1}, ANY};
    const split columns = {"bias_add", {2, 0}, {2}, ANY};
    wf_tensor *a, *b, *bias;

    open_context(1);
    a = random_tensor(3, dims);
    b = random_tensor(3, dims);
    bias = random_tensor(1, &dims[2]);
    for (int i = 0; i < 4; i++)
        check(call_of(ops[i], 2, a, b, NULL), &last);
    check(call_of(&wf_op_silu, 1, a, NULL, NULL), &last);
    check(call_of(&wf_op_gelu, 1, a, NULL, NULL), &last);
    check(call_of(&wf_op_bias_add, 2, a, bias, NULL), &tokens);
    check(call_of(&wf_op_bias_add, 2, a, bias, NULL), &columns);
    close_context();
}

static void sums(void)
{
    const wf_dim dims[] = {wf_dim_batch(8), wf_dim_chunked(21), wf_dim_chunked(137)};
    const split grad_tokens = {"bias_grad", {1}, {SUM}, TREE};
    const split grad_columns = {"bias_grad", {2}, {1}, ANY};
    const split grad_batch = {"bias_grad", {0}, {0}, ANY};
    const split batch = {"batch_sum", {0}, {SUM}, TREE};
    const split batch_columns = {"batch_sum", {2}, {1}, ANY};
    const split features = {"token_sum", {2}, {SUM}, TREE};
    const split token_batch = {"token_sum", {0}, {0}, ANY};
    wf_tensor *x;

    open_context(3);
    x = random_tensor(3, dims);
    check(call_of(&wf_op_bias_grad, 1, x, NULL, NULL), &grad_tokens);
    check(call_of(&wf_op_bias_grad, 1, x, NULL, NULL), &grad_columns);
    check(call_of(&wf_op_bias_grad, 1, x, NULL, NULL), &grad_batch);
    check(call_of(&wf_op_batch_sum, 1, x, NULL, NULL), &batch);
    check(call_of(&wf_op_batch_sum, 1, x, NULL, NULL), &batch_columns);
    check(call_of(&wf_op_token_sum, 1, x, NULL, NULL), &features);
    check(call_of(&wf_op_token_sum, 1, x, NULL, NULL), &token_batch);
    close_context();
}

/* Sums over several dims: the last one of 8 chunks may be split, heads, or tokens before a dim
   of one chunk. */
static void sums_of_two_dims(void)
{
    const wf_dim heads[] = {wf_dim_batch(3), wf_dim_chunked(11), wf_dim_chunked(13),
                            wf_dim_width(37)};
    const wf_dim tokens[] = {wf_dim_batch(3), wf_dim_chunked(11), wf_dim_width(5),
                             wf_dim_width(37)};
    const split over_heads = {"bias_grad over heads", {2}, {SUM}, TREE};
    const split over_tokens = {"bias_grad over tokens", {1}, {SUM}, TREE};
    const split gelu_heads = {"bias_gelu_grad", {2, WHOLE, 2}, {2, SUM}, TREE};
    const split gelu_tokens = {"bias_gelu_grad", {1, WHOLE, 1}, {1, SUM}, TREE};
    const split all_heads = {"token_sum over heads", {2}, {SUM}, TREE};
    const split all_tokens = {"token_sum over tokens", {1}, {SUM}, TREE};
    wf_tensor *x, *y, *bias;
    wf_call gelu;

    open_context(3);
    x = random_tensor(4, heads);
    y = random_tensor(4, tokens);
    bias = random_tensor(1, &heads[3]);
    check(call_of(&wf_op_bias_grad, 1, x, NULL, NULL), &over_heads);
    check(call_of(&wf_op_bias_grad, 1, y, NULL, NULL), &over_tokens);
    check(call_of(&wf_op_token_sum, 1, x, NULL, NULL), &all_heads);
    check(call_of(&wf_op_token_sum, 1, y, NULL, NULL), &all_tokens);
    gelu = call_of(&wf_op_bias_gelu_grad, 3, x, bias, x);
    gelu.n_out = 2;
    check(gelu, &gelu_heads);
    gelu = call_of(&wf_op_bias_gelu_grad, 3, y, bias, y);
    gelu.n_out = 2;
    check(gelu, &gelu_tokens);
    close_context();
}

/* Chunks that are empty, and zeros of both signs: which zero comes out may not tell the ranks.
 */
static void sums_of_zeros(void)
{
    const wf_dim dims[] = {wf_dim_batch(4), wf_dim_chunked(3), wf_dim_chunked(2)};
    const split tokens = {"bias_grad of zeros", {1}, {SUM}, TREE};
    const split batch = {"batch_sum of zeros", {0}, {SUM}, TREE};
    wf_tensor *x;

    open_context(1);
    x = random_tensor(3, dims);
    for (int64_t i = 0; i < wf_tensor_count(x); i++)
        ((float *)x->data)[i] = i % 5 ? -0.0F : 0.0F;
    check(call_of(&wf_op_bias_grad, 1, x, NULL, NULL), &tokens);
    check(call_of(&wf_op_batch_sum, 1, x, NULL, NULL), &batch);
    close_context();
}

static void expansions(void)
{
    const wf_dim dims[] = {wf_dim_batch(6), wf_dim_chunked(7), wf_dim_width(5)};
    const split batch = {"batch_expand", {WHOLE, 0}, {0}, ANY};
    const split batch_tokens = {"batch_expand", {0, 1}, {1}, ANY};
    const split tokens = {"token_expand", {WHOLE, 1}, {1}, ANY};
    const split token_batch = {"token_expand", {0, 0}, {0}, ANY};
    wf_tensor *like, *row, *one;

    open_context(1);
    like = random_tensor(3, dims);
    row = random_tensor(2, &dims[1]);
    one = random_tensor(1, dims);
    check(call_of(&wf_op_batch_expand, 2, row, like, NULL), &batch);
    check(call_of(&wf_op_batch_expand, 2, row, like, NULL), &batch_tokens);
    check(call_of(&wf_op_token_expand, 2, one, like, NULL), &tokens);
    check(call_of(&wf_op_token_expand, 2, one, like, NULL), &token_batch);
    close_context();
}

/* vocabulary: less than ranks, so that some have no row; and more than there are tokens. */
static void embedding_of(int64_t vocabulary)
{
    const wf_dim dims[] = {wf_dim_batch(8), wf_dim_chunked(11), wf_dim_width(19)};
    const wf_dim table_dims[] = {wf_dim_chunked(vocabulary), dims[2]};
    const split rows = {"embedding", {0, WHOLE}, {SUM}, ANY};
    const split columns = {"embedding", {1, WHOLE}, {2}, ANY};
    const split tokens = {"embedding", {WHOLE, 1}, {1}, ANY};
    const split dw_rows = {"embedding_dw", {0, WHOLE, WHOLE}, {0}, ANY};
    const split dw_columns = {"embedding_dw", {1, WHOLE, 2}, {1}, ANY};
    const split dw_batch = {"embedding_dw", {WHOLE, 0, 0}, {SUM}, TREE};
    wf_tensor *table, *token, *dy;

    open_context(3);
    table = random_tensor(2, table_dims);
    for (int64_t i = 0; i < wf_tensor_count(table); i += 3)
        ((float *)table->data)[i] = -0.0F;
    token = random_tokens(2, dims, vocabulary);
    dy = random_tensor(3, dims);
    check(call_of(&wf_op_embedding, 2, table, token, NULL), &rows);
    check(call_of(&wf_op_embedding, 2, table, token, NULL), &columns);
    check(call_of(&wf_op_embedding, 2, table, token, NULL), &tokens);
    check(call_of(&wf_op_embedding_dw, 3, table, token, dy), &dw_rows);
    check(call_of(&wf_op_embedding_dw, 3, table, token, dy), &dw_columns);
    check(call_of(&wf_op_embedding_dw, 3, table, token, dy), &dw_batch);
    close_context();
}

static void embeddings(void)
{
    embedding_of(3);
    embedding_of(29);
    embedding_of(301);
}

static void positions(void)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(13), wf_dim_width(10)};
    const wf_dim table_dims[] = {wf_dim_width(15), dims[2]};
    const split columns = {"rows", {1}, {1}, ANY};
    const split grad_columns = {"rows_grad", {1, 1}, {1}, ANY};
    const split tokens = {"position_add", {1, 0}, {1}, ANY};
    const split features = {"position_add", {2, 1}, {2}, ANY};
    const int64_t n = 13;
    wf_tensor *x, *table, *row;
    wf_call rows;

    open_context(1);
    x = random_tensor(3, dims);
    table = random_tensor(2, table_dims);
    row = random_tensor(2, &dims[1]);
    rows = call_of(&wf_op_rows, 1, table, NULL, NULL);
    rows.attr = &n;
    rows.attr_size = sizeof n;
    check(rows, &columns);
    check(call_of(&wf_op_rows_grad, 2, table, row, NULL), &grad_columns);
    check(call_of(&wf_op_position_add, 2, x, row, NULL), &tokens);
    check(call_of(&wf_op_position_add, 2, x, row, NULL), &features);
    close_context();
}

static void masks(void)
{
    const wf_dim dims[] = {wf_dim_batch(3), wf_dim_chunked(21), wf_dim_chunked(5),
                           wf_dim_width(7)};
    const wf_dropout_attr attr = {
        .p = 0.3F, .site = 2, .step = 9, .sequences = {.first = 4}, .key = 1};
    const split by_dim[] = {{"dropout over tokens", {1}, {1}, ANY},
                            {"dropout over heads", {2}, {2}, ANY},
                            {"dropout over features", {3}, {3}, ANY}};
    wf_call call;

    open_context(1);
    call = call_of(&wf_op_dropout, 1, random_tensor(4, dims), NULL, NULL);
    call.attr = &attr;
    call.attr_size = sizeof attr;
    for (int i = 0; i < 3; i++)
        check(call, &by_dim[i]);
    close_context();
}

/* Sequences are distinguished by their global index: a rank's part has a first sequence of its
 * own. */
static void masks_of_sequences(void)
{
    const wf_dim dims[] = {wf_dim_batch(6), wf_dim_chunked(4), wf_dim_width(9)};
    wf_tensor *x, *whole, *half;
    wf_dim half_dims[3];
    int64_t n;

    open_context(1);
    x = random_tensor(3, dims);
    wf_init_fill(x, 1);
    n = wf_tensor_count(x) / 2;
    whole = wf_dropout(x, 0.5F, 1);
    memcpy(half_dims, dims, sizeof half_dims);
    half_dims[0].size = 3;
    half = random_tensor(3, half_dims);
    wf_init_fill(half, 1);
    wf_context_position(ctx, wf_context_step(ctx),
                        (wf_sequences){.first = wf_context_sequences(ctx).first + 3});
    half = wf_dropout(half, 0.5F, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(half);
    CU_ASSERT(memcmp(half->data, (float *)whole->data + n, bytes_of(half)) == 0);
    CU_ASSERT(memcmp(half->data, whole->data, bytes_of(half)) != 0);
    close_context();
}

static void by_index(float *x, int64_t n, int64_t first, const wf_init_site *site)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = site->arg[0] * (float)(first + i);
}

static wf_status from_the_end(float *x, const wf_tensor *like, const wf_init_site *site)
{
    for (int64_t i = 0, n = wf_tensor_count(like); i < n; i++)
        x[i] = site->arg[0] * (float)(n - i);
    return WF_OK;
}

static void slices_of(const wf_op *op, wf_tensor *whole)
{
    const wf_init_attr attr = {.key = 5,
                               .stream = 77,
                               .arg = {-1.5F, 0.5F, -2.25F, -1},
                               .elements = by_index,
                               .whole = from_the_end};
    wf_call call = {
        .op = op, .n_in = 1, .in = {whole}, .attr = &attr, .attr_size = sizeof attr};

    CU_ASSERT_EQUAL(wf_dispatch(&call), WF_OK);
    for (int dim = 0; dim < whole->ndim; dim++)
        for (int r = 0; r < 8; r++) {
            wf_tensor expected = part_of(whole, dim, 8, r), part = part_of(whole, dim, 8, r);

            memset(part.data, 0xff, bytes_of(&part));
            call.in[0] = &part;
            run_kernel(&call);
            CU_ASSERT(alike(&expected, &part));
            free(expected.data);
            free(part.data);
        }
}

static void shards_are_slices(void)
{
    const wf_dim dims[] = {wf_dim_chunked(21), wf_dim_chunked(5), wf_dim_width(333)};
    wf_tensor *t;

    open_context(3);
    t = random_tensor(3, dims);
    slices_of(&wf_op_init_normal, t);
    slices_of(&wf_op_init_uniform, t);
    slices_of(&wf_op_init_fill, t);
    slices_of(&wf_op_init_truncated, t);
    slices_of(&wf_op_init_elements, t);
    slices_of(&wf_op_init_whole, t);
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {
        {"element by element", elements},
        {"sums", sums},
        {"sums of two dims", sums_of_two_dims},
        {"sums of zeros", sums_of_zeros},
        {"expansions", expansions},
        {"embeddings", embeddings},
        {"positions", positions},
        {"masks of dropout", masks},
        {"masks of global sequences", masks_of_sequences},
        {"shards are slices", shards_are_slices},
        {NULL, NULL},
    };

    return wf_test_main("parts of ops a", tests);
}
