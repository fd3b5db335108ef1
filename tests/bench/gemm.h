/* tests/bench/gemm.h - what the files of bench gemm share. */
#ifndef WF_TESTS_BENCH_GEMM_H
#define WF_TESTS_BENCH_GEMM_H

#include "tests/bench/bench.h"

enum { BENCH_SETTINGS = 3, BENCH_CALLERS = 16 };

typedef struct bench_shape {
    int64_t m, k, n;
} bench_shape;

typedef struct bench_setting {
    char name[32];
    int threads, callers; /* one of them is 1 */
} bench_setting;

/* The shapes of the command line, or those that training small GPTs is made of; how many. */
int bench_gemm_shapes(const bench_options *o, bench_shape shapes[BENCH_SHAPES],
                      wf_error *error);

/* One thread, all cores, a rank per core; or what the command line asks for. How many. */
int bench_gemm_settings(const bench_options *o, bench_setting settings[BENCH_SETTINGS]);

bool bench_gemm_forms_are_good(const bench_options *o, wf_error *error);

/* Products of bf16 operands beside those in fp32 (gemm_bf16.c). */
wf_status bench_gemm_bf16(const bench_options *o, const bench_shape *shapes, int n_shapes,
                          bench_report *report, wf_error *error);

/* Products on the first GPU, by each of its kernels (gemm_gpu.c). */
wf_status bench_gemm_gpu(const bench_options *o, bench_report *report, wf_error *error);

/* Describes, in a line, the path by which this machine multiplies bf16. */
const char *bench_gemm_path(void);

/* Returns an entrant whose run is a number of operations of a tile unit, by one thread, on what
   it holds or on what it loads from level 1 cache; its run is NULL where there is no such unit
   (tile_peak.c). */
bench_entrant bench_tiles(void);
bench_entrant bench_loaded_tiles(void);
double bench_tile_flops(void);

#endif
