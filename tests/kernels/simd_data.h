/*
 * tests/kernels/simd_data.h - what the tests of the CPU's inner loops share: the builds that
 * this machine runs, and data whose every pointer is odd by one float.
 */
#ifndef WF_TESTS_KERNELS_SIMD_DATA_H
#define WF_TESTS_KERNELS_SIMD_DATA_H

#include "core/numerics/random.h"
#include "kernels/cpu/isa_internal.h"
#include <math.h>
#include <stdint.h>

enum { MOST = 8 * 800, BUILDS = 4 };

/* The operands of a kernel: x, dy [rows, d]; gain, bias [d]; mean, rstd [rows]. */
typedef struct data {
    int64_t rows, d;
    const float *x, *dy, *gain, *bias, *mean, *rstd;
} data;

/* All builds that this machine runs, portable first. */
static inline int builds(const wf_simd *found[BUILDS])
{
    static const char *const name[] = {WF_CPU_ISAS};
    int n = 0;

    for (int i = 0; i < BUILDS; i++) {
        const wf_simd *simd = wf_cpu_simd_named(name[i], NULL);

        if (simd)
            found[n++] = simd;
    }
    return n;
}

/* Normal numbers, but for gains near 1 and an rstd above 0. The last data made is gone. */
static inline data make_data(int64_t rows, int64_t d)
{
    static float memory[6][MOST + 1];
    data in = {rows,          d,
               memory[0] + 1, memory[1] + 1,
               memory[2] + 1, memory[3] + 1,
               memory[4] + 1, memory[5] + 1};

    for (int k = 0; k < 6; k++)
        wf_random_fill_normal(memory[k], MOST + 1, 1, (uint64_t)k, (uint64_t)(rows * 1000 + d));
    for (int i = 0; i <= MOST; i++) {
        memory[0][i] = memory[0][i] * 2.0f + 0.5f;
        memory[2][i] = memory[2][i] * 0.2f + 1.0f;
        memory[5][i] = fabsf(memory[5][i]) + 0.1f;
    }
    return in;
}

/* Rows of one number, for operands that leave an activation as it is. */
static inline const float *filled(float value)
{
    static float memory[MOST];

    for (int i = 0; i < MOST; i++)
        memory[i] = value;
    return memory;
}

#endif
