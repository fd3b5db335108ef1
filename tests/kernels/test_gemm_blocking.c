/*
 * tests/kernels/test_gemm_blocking.c - how a product is cut: KC blocks over the long dimension,
 * and operands that are read where they lie.
 */
#include "kernels/cpu/gemm_blocking_internal.h"
#include "tests/harness.h"
#include "tests/kernels/xorshift.h"

static uint64_t state = 20240607;

static int64_t below(int64_t n)
{
    return xorshift_below(&state, n);
}

static wf_gemm_blocking blocking_of(wf_gemm_part part, int64_t m, int64_t n)
{
    static const wf_gemm_limits limits = {14, 32, 384, 504, 3072, 1};
    wf_gemm g = {.m = m, .n = n, .parts = &part, .n_parts = 1};

    return wf_gemm_blocking_of(&g, &limits, 1);
}

/* A narrow product packs little of its large operand, where a tile can read it as it lies. */
static void narrow_in_place(void)
{
    wf_gemm_part forward = {.a_row = 256, .a_k = 1, .b_k = 1, .b_col = 256, .k = 256};
    wf_gemm_part gradient = {.a_row = 1, .a_k = 32, .b_k = 768, .b_col = 1, .k = 384};
    wf_gemm_part pieces = {.a_row = 256, .a_k = 1, .b_k = 1, .b_col = 256, .k = 4};
    wf_gemm_part spread = {.a_row = 512, .a_k = 2, .b_k = 512, .b_col = 2, .k = 256};
    wf_gemm_part pages = {.a_row = 1, .a_k = 2048, .b_k = 1024, .b_col = 1, .k = 384};

    CU_ASSERT_TRUE(blocking_of(forward, 2048, 32).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(forward, 2048, 32).cols_in_place);
    CU_ASSERT_TRUE(blocking_of(forward, 2048, 128).rows_in_place);
    forward.a_row = 1024;
    CU_ASSERT_TRUE(blocking_of(forward, 2048, 32).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(forward, 2048, 128).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(forward, 2048, 768).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(pieces, 2048, 32).rows_in_place);
    CU_ASSERT_TRUE(blocking_of(gradient, 32, 768).cols_in_place);
    CU_ASSERT_FALSE(blocking_of(gradient, 32, 768).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(gradient, 768, 768).cols_in_place);
    CU_ASSERT_FALSE(blocking_of(spread, 32, 32).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(spread, 32, 32).cols_in_place);
    CU_ASSERT_FALSE(blocking_of(pages, 32, 32).rows_in_place);
    CU_ASSERT_FALSE(blocking_of(pages, 32, 32).cols_in_place);
}

/* The next part that has terms. */
static int64_t filled(const wf_gemm *g, int64_t part)
{
    while (part < g->n_parts && g->parts[part].k == 0)
        part++;
    return part;
}

/* KC blocks cover every element once and in order, whatever the chunks, and are cut at
   multiples of what a part is filled up to. */
static void kc_blocks_cover(void)
{
    static const float one[] = {1.0f}; /* every element, as no stride is set */
    wf_gemm_part parts[200];
    wf_gemm g = {.m = 1, .n = 1, .parts = parts};

    for (int round = 0; round < 500; round++) {
        int64_t pad = round % 4 == 0 ? WF_GEMM_TERMS : 1;
        int64_t kc = (1 + below(400 / pad)) * pad, longest = 1 + below(round % 2 ? 30 : 900);
        int64_t part = 0, k = 0;
        wf_gemm_kc_block w = {.last = false};
        wf_gemm_cursor c;

        g.n_parts = 1 + below(200);
        for (int64_t i = 0; i < g.n_parts; i++)
            parts[i] =
                (wf_gemm_part){.a = one, .b = one, .k = below(longest), .chunk = below(3) != 0};
        part = filled(&g, 0);
        w.last = wf_gemm_is_empty(&g);
        for (c = wf_gemm_begin(&g, false, pad); !w.last;) {
            int64_t in_block = 0;

            wf_gemm_next(&c, kc, &w);
            CU_ASSERT_TRUE_FATAL(w.n_steps > 0 && w.n_steps <= WF_GEMM_STEPS);
            for (int s = 0; s < w.n_steps; s++) {
                if (w.step[s].k == 0) { /* nodes are added there */
                    CU_ASSERT_TRUE(w.step[s].merges > 1);
                    continue;
                }
                CU_ASSERT_PTR_EQUAL(w.step[s].part, &parts[part]);
                CU_ASSERT_EQUAL(w.step[s].first, k);
                CU_ASSERT_EQUAL(k % pad, 0);
                k += w.step[s].k;
                in_block += wf_gemm_padded(w.step[s].k, pad);
                if (k == parts[part].k) {
                    part = filled(&g, part + 1);
                    k = 0;
                }
            }
            CU_ASSERT_EQUAL(in_block, w.k);
            CU_ASSERT_TRUE(w.k <= kc);
        }
        CU_ASSERT_EQUAL(part, g.n_parts);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"KC blocks cover the long dimension", kc_blocks_cover},
        {"narrow products are read in place", narrow_in_place},
        {NULL, NULL},
    };

    return wf_test_main("blocking of products", tests);
}
