/*
 * tests/cuda/test_cuda_capacity.c - capacities of experts on the emulated GPU
 * (wf_route_capacity), by device_parts.h: of sequences, of documents, and after earlier tokens.
 *
 * ctest: builds plain
 */
#include "kernels/route_capacity_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <math.h>
#include <stdlib.h>

enum { SEQUENCES = 4, TOKENS = 13 };

enum { NONE, FIRSTS, COUNTS }; /* operands beside choices */

static const split by_sequences = {"over sequences", {0, 0}, {0}, 1u << 2};

/* Choices of k of n experts, ascending; each comes often. */
static numbers choices(int64_t k, int64_t n)
{
    const wf_dim dims[] = {wf_dim_batch(SEQUENCES), wf_dim_chunked(TOKENS), wf_dim_width(k)};
    numbers index = numbers_of(3, dims, WF_F32);

    for (int64_t i = 0; i < SEQUENCES * TOKENS; i++)
        for (int64_t c = 0; c < k; c++)
            ((float *)index.host)[i * k + c] = (float)(i * i % (n - k + 1) + c);
    return index;
}

/* Firsts of two documents of each sequence, or counts of earlier tokens. */
static numbers beside(int kind, int64_t n)
{
    const wf_dim dims[] = {wf_dim_batch(SEQUENCES),
                           kind == COUNTS ? wf_dim_width(n) : wf_dim_chunked(TOKENS)};
    numbers with = numbers_of(2, dims, WF_I32);

    for (int64_t i = 0; i < wf_tensor_local_count(&with.t); i++)
        ((int32_t *)with.host)[i] = (int32_t)(kind == COUNTS ? i % 3 : i % TOKENS < 5 ? 0 : 5);
    return with;
}

/* An expert takes a number of tokens at most; an index of no expert is NaN. */
static void try_capacity(int64_t most, int64_t k, int64_t n, int kind)
{
    const wf_capacity o = {.experts = n, .most = most, .resumes = kind == COUNTS};
    const wf_call call = {.op = &wf_op_route_capacity,
                          .n_in = kind ? 2 : 1,
                          .n_out = 1,
                          .attr = &o,
                          .attr_size = sizeof o};
    numbers in[2], out;

    open_context(false);
    in[0] = choices(k, n);
    in[1] = beside(kind, n);
    out = choices(k, n);
    check(&call, in, &out, &by_sequences, false);
    check_cpu(&call, in, &out);
    ((float *)in[0].host)[k] = (float)n + 1;
    run_on_device(&call, in, &out, false);
    for (int64_t i = 0; i < SEQUENCES * TOKENS * k; i++)
        CU_ASSERT(isnan(((float *)out.host)[i]) == (i == k));
    free(in[0].host);
    free(in[1].host);
    free(out.host);
    close_context();
}

static void capacities(void)
{
    for (int kind = NONE; kind <= COUNTS; kind++) {
        try_capacity(2, 2, 5, kind);
        try_capacity(1, 1, 3, kind);
        try_capacity(9, 4, 7, kind);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"capacities", capacities}, {NULL, NULL}};

    return gpu_test_main("capacities on the GPU", tests);
}
