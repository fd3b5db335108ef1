/*
 * tests/cuda/test_cuda_tokens.c - gradients of long sequences, whose tokens are several chunks
 * (wf_token_chunks), on the emulated GPU: against the reference in double, products against the
 * CPU's bits, and a part as the whole.
 */
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/op_rows.h"
#include "tests/sanitizer.h"
#include <stdlib.h>

/* A batch of so many sequences of so many tokens: gradients of a matrix. */
static void product(int64_t batch, int64_t tokens, wf_dtype dtype)
{
    const split whole = {.name = "linear_dw of long sequences"};
    const split over_tokens = {"linear_dw over tokens", {1, 1}, {SUM}, TREE};
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens), wf_dim_chunked(9)};
    const wf_dim matrix[] = {wf_dim_chunked(9), wf_dim_chunked(9)};
    const wf_call call = {.op = &wf_op_linear_dw, .n_in = 2, .n_out = 1};
    numbers in[2], out;

    open_context(false);
    in[0] = random_numbers(3, dims, dtype);
    in[1] = random_numbers(3, dims, dtype);
    out = numbers_of(2, matrix, WF_F32);
    check(&call, in, &out, batch == 1 ? &over_tokens : &whole, false);
    if (dtype == WF_F32)
        check_cpu(&call, in, &out);
    free(in[0].host);
    free(in[1].host);
    free(out.host);
    close_context();
}

/* Three, five and ten sequences are no power of two: a tree over them of trees over chunks. */
static void products(void)
{
    static const int64_t cases[][2] = {{3, 2100}, {10, 2048}, {1, 8200}, {5, 4097}, {1, 33000}};

    for (size_t i = 0; i < (UNDER_SANITIZER ? 1 : sizeof cases / sizeof *cases); i++) {
        product(cases[i][0], cases[i][1], WF_F32);
        product(cases[i][0], cases[i][1], WF_BF16);
    }
}

/* Gradients of vectors and tables: 8 ranks that split tokens hold nodes of a sequence. */
static void vectors(void)
{
    static const op_row rows[] = {
        {"bias_grad", "a:bsn", "f:bn", "s", NULL, 0},
        {"bias_gelu_grad", "a:bsn v:n a:bsn", "a:bsn f:bn", "", NULL, 0},
        {"token_sum", "a:bs", "f:b", "s", NULL, 0},
        {"layernorm_dw", "a:bsd f:bs p:bs a:bsd", "f:bd f:bd", "s", NULL, 0},
        {"rmsnorm_dw", "a:bsd p:bs a:bsd", "f:bd", "s", NULL, 0},
        {"embedding_dw", "f:vd i:bs a:bsd", "f:vd", "s", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};
    const row_shape one = {1, 8200, 3, 5, 1, 2, 7}, far = {1, 33000, 3, 2, 1, 2, 7};
    const row_shape some = {3, 2050, 9, 3, 1, 2, 17};

    open_context(false);
    for (const op_row *r = rows; r->op; r++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            if (!UNDER_SANITIZER) {
                try_row(r, &one, bf16, true);
                try_row(r, &far, bf16, !bf16);
            }
            try_row(r, &some, bf16, false);
        }
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {
        {"gradients of matrices", products}, {"gradients of vectors", vectors}, {NULL, NULL}};

    return gpu_test_main("tokens on the GPU", tests);
}
