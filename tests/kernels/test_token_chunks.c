/*
 * tests/kernels/test_token_chunks.c - gradients of long sequences against plain loops: a matrix
 * has a tree over sequences of trees over the chunks of each (wf_token_chunks), a vector a tree
 * over eight chunks of a sequence, or over as many as these. And ranks that hold some of a
 * sequence's tokens hold nodes of it.
 */
#include "core/numerics/bf16.h"
#include "kernels/linear_rows.h"
#include "kernels/moe_internal.h"
#include "tests/kernels/gemm_bf16_reference.h"
#include "tests/kernels/op_parts.h"
#include <math.h>

enum { N = 5, K = 7, WORDS = 9 };

/* Operands of a sum, and the element of the result that is computed. */
typedef struct plain {
    const wf_tensor *a, *b;
    int64_t rows; /* a sequence's */
    int chunks;   /* a sequence's, too */
    int64_t i, j; /* the element */
} plain;

static double chain_of(const plain *p, int64_t begin, int64_t end)
{
    float sum = 0.0f;

    for (int64_t r = begin; r < end; r++)
        sum = fmaf(((const float *)p->a->data)[r * N + p->i],
                   ((const float *)p->b->data)[r * K + p->j], sum);
    return (double)sum;
}

/* The same of bf16, blocks of terms. */
static double blocks_of(const plain *p, int64_t begin, int64_t end)
{
    float sum = 0.0f;

    for (int64_t r = begin; r < end; r += WF_GEMM_TERMS) {
        uint16_t a[WF_GEMM_TERMS] = {0}, b[WF_GEMM_TERMS] = {0};

        for (int64_t q = r; q < r + WF_GEMM_TERMS && q < end; q++) {
            a[q - r] = ((const uint16_t *)p->a->data)[q * N + p->i];
            b[q - r] = ((const uint16_t *)p->b->data)[q * K + p->j];
        }
        sum = bf16_add_block(sum, a, b);
    }
    return (double)sum;
}

/* Column j of the rows of dy whose token is word i. */
static double word_of(const plain *p, int64_t begin, int64_t end)
{
    float sum = 0.0f;

    for (int64_t r = begin; r < end; r++)
        if (((const int32_t *)p->a->data)[r] == p->i)
            sum += ((const float *)p->b->data)[r * K + p->j];
    return (double)sum;
}

/* Column j of all rows. */
static double column_of(const plain *p, int64_t begin, int64_t end)
{
    float sum = 0.0f;

    for (int64_t r = begin; r < end; r++)
        sum += ((const float *)p->b->data)[r * p->i + p->j];
    return (double)sum;
}

typedef double chain(const plain *p, int64_t begin, int64_t end);

static float in_sequence(const plain *p, chain *of, int64_t sequence, int first, int count)
{
    float left;

    if (count == 1)
        return (float)of(p, sequence * p->rows + wf_cut(p->rows, 1, p->chunks, first),
                         sequence * p->rows + wf_cut(p->rows, 1, p->chunks, first + 1));
    left = in_sequence(p, of, sequence, first, count / 2);
    return left + in_sequence(p, of, sequence, first + count / 2, count / 2);
}

static float over_sequences(const plain *p, chain *of, int64_t first, int64_t count)
{
    float left;

    if (count == 1)
        return in_sequence(p, of, first, 0, p->chunks);
    left = over_sequences(p, of, first, count / 2);
    return left + over_sequences(p, of, first + count / 2, count - count / 2);
}

static wf_tensor *rounded(const wf_tensor *t)
{
    wf_tensor *to = wf_tensor_new(ctx, WF_BF16, t->ndim, t->dim, NULL, WF_MEMORY_ACTIVATION);

    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((uint16_t *)to->data)[i] = wf_bf16_of(((const float *)t->data)[i]);
    return to;
}

static wf_tensor *rows_of(int64_t batch, int64_t tokens, int64_t n)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens), wf_dim_width(n)};

    return random_tensor(n > 0 ? 3 : 2, dims);
}

/* Elements [.., n] of a result are those of plain loops. */
static void is_plain(const wf_tensor *t, plain *p, chain *of, int64_t batch, const char *what)
{
    int64_t n = t->dim[t->ndim - 1].size, wrong = 0;

    for (int64_t e = 0; e < wf_tensor_count(t); e++) {
        float want;

        p->i = e / n;
        p->j = e % n;
        want = over_sequences(p, of, 0, batch) + 0.0f;
        wrong += memcmp(&want, &((const float *)t->data)[e], sizeof want) != 0;
    }
    if (wrong)
        printf("\n%s: %lld of %lld elements of %lld sequences of %lld tokens\n", what,
               (long long)wrong, (long long)wf_tensor_count(t), (long long)batch,
               (long long)p->rows);
    CU_ASSERT_EQUAL(wrong, 0);
}

static const struct {
    int64_t batch, tokens;
    int chunks;
} runs[] = {{3, 2047, 1}, {1, 2048, 2}, {3, 2048, 2},   {2, 3001, 2},
            {5, 4097, 4}, {1, 9000, 8}, {3, 16500, 16}, {1, 40000, 32}};

enum { RUNS = sizeof runs / sizeof *runs };

static void matrices(void)
{
    for (int i = 0; i < RUNS; i++) {
        const int64_t batch = runs[i].batch, tokens = runs[i].tokens;
        plain p = {.rows = tokens, .chunks = runs[i].chunks};
        wf_tensor *dy, *x;

        open_context(1 + i % 2);
        dy = rows_of(batch, tokens, N);
        x = rows_of(batch, tokens, K);
        p.a = dy;
        p.b = x;
        is_plain(wf_linear_dw(dy, x), &p, chain_of, batch, "linear_dw");
        dy = rounded(dy);
        x = rounded(x);
        p.a = dy;
        p.b = x;
        is_plain(wf_linear_dw(dy, x), &p, blocks_of, batch, "linear_dw of bf16");
        CU_ASSERT_TRUE(
            alike(wf_batch_sum(wf_linear_dw_rows(dy, x, NULL)), wf_linear_dw(dy, x)));
        close_context();
    }
}

/* Micro-steps that are one product are more sequences of it. */
static void joined(void)
{
    enum { PASSES = 2, BATCH = 3, TOKENS = 2500 };
    wf_tensor *dy[PASSES], *x[PASSES], *one, *both[2];

    open_context(2);
    both[0] = rows_of(PASSES * BATCH, TOKENS, N);
    both[1] = rows_of(PASSES * BATCH, TOKENS, K);
    for (int i = 0; i < PASSES; i++) {
        dy[i] = rows_of(BATCH, TOKENS, N);
        x[i] = rows_of(BATCH, TOKENS, K);
        memcpy(dy[i]->data, (float *)both[0]->data + i * BATCH * TOKENS * N,
               sizeof(float) * BATCH * TOKENS * N);
        memcpy(x[i]->data, (float *)both[1]->data + i * BATCH * TOKENS * K,
               sizeof(float) * BATCH * TOKENS * K);
    }
    one = wf_linear_dw_joined(PASSES, dy, x);
    CU_ASSERT_TRUE(alike(one, wf_linear_dw(both[0], both[1])));
    close_context();
}

static void tables(void)
{
    for (int i = 0; i < RUNS; i++) {
        const wf_dim table[] = {wf_dim_chunked(WORDS), wf_dim_width(K)};
        const wf_dim dims[] = {wf_dim_batch(runs[i].batch), wf_dim_chunked(runs[i].tokens)};
        plain p = {.rows = runs[i].tokens, .chunks = runs[i].chunks};
        wf_tensor *tokens, *dy;

        open_context(1 + i % 2);
        tokens = random_tokens(2, dims, WORDS);
        dy = rows_of(runs[i].batch, runs[i].tokens, K);
        p.a = tokens;
        p.b = dy;
        is_plain(wf_embedding_dw(random_tensor(2, table), tokens, dy), &p, word_of,
                 runs[i].batch, "embedding_dw");
        close_context();
    }
}

/* Sums inside each sequence: rows of a result are those of sequences. */
static void vectors(void)
{
    for (int i = 0; i < RUNS; i++) {
        const int64_t tokens = runs[i].tokens;
        wf_tensor *dy, *sum, *token, *all;

        open_context(1 + i % 2);
        dy = rows_of(runs[i].batch, tokens, K);
        token = rows_of(runs[i].batch, tokens, 0);
        sum = wf_bias_grad(dy);
        all = wf_token_sum(token);
        for (int64_t b = 0; b < runs[i].batch; b++)
            for (int64_t j = 0; j <= K; j++) {
                plain p = {.b = j < K ? dy : token,
                           .rows = tokens,
                           .chunks = runs[i].chunks > 8 ? runs[i].chunks : 8,
                           .i = j < K ? K : 1,
                           .j = j < K ? j : 0};
                float want = over_sequences(&p, column_of, b, 1);

                CU_ASSERT_EQUAL(want, j < K ? ((float *)sum->data)[b * K + j]
                                            : ((float *)all->data)[b]);
            }
        close_context();
    }
}

/* Ranks that hold tokens of one sequence: as many as it has chunks, at most. */
static void tokens_of_ranks(void)
{
    const split dw = {"linear_dw over tokens", {1, 1}, {SUM}, TREE};
    const split table = {"embedding_dw over tokens", {WHOLE, 1, 1}, {SUM}, TREE};
    const split norm = {"rmsnorm_dw over tokens", {1, 1, 1}, {SUM}, TREE};
    const wf_dim words[] = {wf_dim_chunked(WORDS), wf_dim_width(K)};
    wf_call product = {.op = &wf_op_linear_dw, .n_in = 2, .n_out = 1};
    wf_call embedding = {.op = &wf_op_embedding_dw, .n_in = 3, .n_out = 1};
    wf_call gain = {.op = &wf_op_rmsnorm_dw, .n_in = 3, .n_out = 1};

    for (int64_t tokens = 8192; tokens <= 17001; tokens += 17001 - 8192) {
        const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(tokens)};

        open_context(2);
        product.in[0] = rows_of(1, tokens, N);
        product.in[1] = embedding.in[2] = gain.in[0] = gain.in[2] = rows_of(1, tokens, K);
        embedding.in[0] = random_tensor(2, words);
        embedding.in[1] = random_tokens(2, dims, WORDS);
        gain.in[1] = rows_of(1, tokens, 0);
        check(product, &dw);
        check(embedding, &table);
        check(gain, &norm);
        close_context();
    }
}

/* A batch of more chunks than a list on the stack has, by tokens that prefer one expert. */
static void experts(void)
{
    enum { EXPERTS = 2, F = 1, D = 3 };
    const split over_tokens = {"experts_grad over tokens",
                               {WHOLE, WHOLE, WHOLE, 1, 1, 1, 1},
                               {SUM, SUM, SUM, 1, 1},
                               TREE};
    const split over_batch = {"experts_grad over sequences",
                              {WHOLE, WHOLE, WHOLE, 0, 0, 0, 0},
                              {SUM, SUM, SUM, 0, 0},
                              1u << 2 | 1u << 4};
    const wf_dim up[] = {wf_dim_experts(EXPERTS), wf_dim_chunked(F), wf_dim_width(D)};
    const wf_dim down[] = {wf_dim_experts(EXPERTS), wf_dim_width(D), wf_dim_chunked(F)};
    const int64_t sizes[][2] = {{1, 8192}, {40, 2048}};

    for (int i = 0; i < 2; i++) {
        wf_call call = {.op = &wf_op_experts_grad, .n_in = 7, .n_out = 5};
        wf_tensor *logits;

        open_context(2);
        call.in[WF_MOE_GATE] = random_tensor(3, up);
        call.in[WF_MOE_UP] = random_tensor(3, up);
        call.in[WF_MOE_DOWN] = random_tensor(3, down);
        call.in[WF_MOE_X] = rows_of(sizes[i][0], sizes[i][1], D);
        call.in[WF_MOE_DY] = rows_of(sizes[i][0], sizes[i][1], D);
        logits = rows_of(sizes[i][0], sizes[i][1], EXPERTS);
        for (int64_t r = 0; r < sizes[i][0] * sizes[i][1]; r++)
            ((float *)logits->data)[EXPERTS * r] += 1;
        wf_route(logits, NULL, &(wf_route_options){.k = 1}, &call.in[WF_MOE_WEIGHTS],
                 &call.in[WF_MOE_INDEX]);
        check(call, i == 0 ? &over_tokens : &over_batch);
        close_context();
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"gradients of matrices", matrices},
        {"micro-steps that are one product", joined},
        {"gradients of tables", tables},
        {"gradients of vectors", vectors},
        {"ranks that hold tokens", tokens_of_ranks},
        {"experts", experts},
        {NULL, NULL},
    };

    return wf_test_main("token chunks", tests);
}
