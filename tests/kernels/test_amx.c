/*
 * tests/kernels/test_amx.c - the instruction TDPBF16PS against the block of bf16 terms in
 * kernels/cpu/simd_internal.h, whose bits every instruction set has. Skipped where there is no
 * tile unit.
 */
#include "kernels/cpu/isa_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include "tests/kernels/gemm_bf16_reference.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(WEFT_HAVE_AMX)
#include "kernels/cpu/amx/tile_internal.h"

enum { ROWS = 16, ROUNDS = UNDER_SANITIZER ? 200 : 3000 };

/* A sum that a block is added to: of the size of products, or any bits. */
static float some_sum(bf16_numbers kind)
{
    uint16_t *part = bf16_values(2, kind);
    uint32_t bits = (uint32_t)part[0] << 16 | part[1];
    float x, y = 0;

    if (kind != ANY_BITS)
        y = bf16_add_block(0.0f, (uint16_t[WF_GEMM_TERMS]){part[0]},
                           (uint16_t[WF_GEMM_TERMS]){part[1]});
    memcpy(&x, &bits, sizeof x);
    free(part);
    return kind == ANY_BITS ? x : y;
}

static long differences(bf16_numbers kind)
{
    uint16_t *a = bf16_values(ROWS * WF_GEMM_TERMS, kind);
    uint16_t *b = bf16_values(ROWS * WF_GEMM_TERMS, kind);
    float c[ROWS][ROWS], old[ROWS][ROWS];
    long differ = 0;

    for (int i = 0; i < ROWS * ROWS; i++)
        old[i / ROWS][i % ROWS] = some_sum(kind);
    memcpy(c, old, sizeof c);
    wf_tile_load(0, c, sizeof c[0]);
    wf_tile_load(1, a, WF_GEMM_TERMS * sizeof *a);
    wf_tile_load(2, b, WF_GEMM_TERMS * sizeof *b);
    wf_tile_multiply(0, 1, 2);
    wf_tile_store(0, c, sizeof c[0]);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < ROWS; j++) {
            uint16_t column[WF_GEMM_TERMS];
            float want;

            for (int p = 0; p < WF_GEMM_TERMS; p++)
                column[p] = b[p / 2 * WF_GEMM_TERMS + 2 * j + p % 2];
            want = bf16_add_block(old[i][j], a + i * WF_GEMM_TERMS, column);
            differ +=
                memcmp(&want, &c[i][j], sizeof want) != 0 && !(isnan(want) && isnan(c[i][j]));
        }
    }
    free(a);
    free(b);
    return differ;
}

static void instruction(void)
{
    static const char *const names[BF16_NUMBERS] = {"ordinary", "any bits", "tiny",
                                                    "cancelling", "at the least"};

    wf_tile_configure();
    for (int kind = 0; kind < BF16_NUMBERS; kind++) {
        long differ = 0;

        for (int round = 0; round < ROUNDS; round++)
            differ += differences((bf16_numbers)kind);
        if (differ)
            printf("\n  %s: %ld of %d elements differ", names[kind], differ,
                   ROUNDS * ROWS * ROWS);
        CU_ASSERT_EQUAL(differ, 0);
    }
    wf_tile_release();
}

int main(void)
{
    static const wf_test tests[] = {{"the instruction", instruction}, {NULL, NULL}};
    const char *why = "";

    if (!wf_cpu_simd_named("amx", &why)) {
        puts(why);
        return 77;
    }
    return wf_test_main("amx", tests);
}
#else
int main(void)
{
    puts("the compiler knows no AMX");
    return 77;
}
#endif
