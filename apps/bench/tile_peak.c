/* apps/bench/tile_peak.c - the peak of AMX: products of tiles that wait for nothing. Its build has the flags of the unit. */
#include "apps/bench/gemm.h"

enum { ROUNDS = 20000, SUMS = 4, TILE_FLOPS = 2 * 16 * 16 * 32 };

double bench_tile_flops(void)
{
    return (double)ROUNDS * SUMS * TILE_FLOPS;
}

#if defined(WEFT_HAVE_AMX)
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/isa_internal.h"

static double run(void *arg, int64_t repeat)
{
    double start;

    (void)arg;
    wf_tile_configure();
    wf_tile_zero(0);
    wf_tile_zero(1);
    wf_tile_zero(2);
    wf_tile_zero(3);
    wf_tile_zero(4);
    wf_tile_zero(5);
    wf_tile_zero(6);
    wf_tile_zero(7);
    start = bench_now(1);
    for (int64_t i = 0; i < repeat * ROUNDS; i++) {
        wf_tile_multiply(0, 4, 6);
        wf_tile_multiply(1, 4, 7);
        wf_tile_multiply(2, 5, 6);
        wf_tile_multiply(3, 5, 7);
    }
    start = bench_now(1) - start;
    wf_tile_release();
    return start;
}

bench_entrant bench_tiles(void)
{
    return (bench_entrant){.run = wf_cpu_simd_named("amx", NULL) ? run : NULL};
}
#else
bench_entrant bench_tiles(void)
{
    return (bench_entrant){.run = NULL};
}
#endif
