/*
 * tests/bench/tile_peak.c - two limits of AMX: products of tiles that wait for nothing, and
 * products of tiles that are loaded from level 1 cache, as many as a product of matrices needs.
 * Tiles have numbers as operands have: of zeros the unit takes less power, and a core that has
 * less to do with it runs up to 1.2 times as fast. Its build has the flags of the unit. A round
 * begins with some that are not timed, as one of products does.
 */
#include "tests/bench/gemm.h"

enum {
    ROUNDS = 20000,
    WARM_UP = 2 * ROUNDS,
    SUMS = 4,
    TILE_FLOPS = 2 * 16 * 16 * 32,
    TILE_BYTES = 1024,
    BLOCKS = 8
};

double bench_tile_flops(void)
{
    return (double)ROUNDS * SUMS * TILE_FLOPS;
}

#if defined(WEFT_HAVE_AMX)
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/isa_internal.h"

static _Alignas(64) uint16_t a[BLOCKS][2][TILE_BYTES / 2], b[BLOCKS][2][TILE_BYTES / 2];

/* Numbers from 1 to 2 of both signs, in bf16. */
static void fill(void *to, size_t bytes)
{
    uint16_t *x = to;
    uint32_t draw = 1;

    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        draw = draw * 1664525 + 1013904223;
        x[i] = (uint16_t)(0x3f80 | (draw >> 16 & 0x807f));
    }
}

static double run(void *arg, int64_t repeat)
{
    double start = 0;

    (void)arg;
    fill(a, sizeof a);
    fill(b, sizeof b);
    wf_tile_configure();
    wf_tile_zero(0);
    wf_tile_zero(1);
    wf_tile_zero(2);
    wf_tile_zero(3);
    wf_tile_load(4, a[0][0], 64);
    wf_tile_load(5, a[0][1], 64);
    wf_tile_load(6, b[0][0], 64);
    wf_tile_load(7, b[0][1], 64);
    for (int64_t i = -WARM_UP; i < repeat * ROUNDS; i++) {
        if (i == 0)
            start = bench_now(1);
        wf_tile_multiply(0, 4, 6);
        wf_tile_multiply(1, 4, 7);
        wf_tile_multiply(2, 5, 6);
        wf_tile_multiply(3, 5, 7);
    }
    start = bench_now(1) - start;
    wf_tile_release();
    return start;
}

/* 16 KiB of A and of B: two tiles of each for four products. */
static double run_loaded(void *arg, int64_t repeat)
{
    double start = 0;

    (void)arg;
    fill(a, sizeof a);
    fill(b, sizeof b);
    wf_tile_configure();
    for (int64_t i = -WARM_UP; i < repeat * ROUNDS; i++) {
        int64_t block = i & (BLOCKS - 1);

        if (i == 0)
            start = bench_now(1);

        wf_tile_load(6, b[block][0], 64);
        wf_tile_load(4, a[block][0], 64);
        wf_tile_multiply(0, 4, 6);
        wf_tile_load(7, b[block][1], 64);
        wf_tile_multiply(1, 4, 7);
        wf_tile_load(5, a[block][1], 64);
        wf_tile_multiply(2, 5, 6);
        wf_tile_multiply(3, 5, 7);
    }
    start = bench_now(1) - start;
    wf_tile_release();
    return start;
}

static bench_entrant entrant(double (*of)(void *, int64_t))
{
    return (bench_entrant){.run = wf_cpu_simd_named("amx", NULL) ? of : NULL};
}

bench_entrant bench_tiles(void)
{
    return entrant(run);
}

bench_entrant bench_loaded_tiles(void)
{
    return entrant(run_loaded);
}
#else
bench_entrant bench_tiles(void)
{
    return (bench_entrant){.run = NULL};
}

bench_entrant bench_loaded_tiles(void)
{
    return (bench_entrant){.run = NULL};
}
#endif
