/*
 * tests/tools/bench_gemm.c - the speed of products beside OpenBLAS, on one thread. Runs take
 * turns, so that a busy machine slows both; the ratio is that of the medians of times.
 *
 *     cc -O2 -D_GNU_SOURCE -I. tests/tools/bench_gemm.c -o bench_gemm build/libweft_static.a \
 *         -lhwloc -lm -lpthread -ldl
 *     ./bench_gemm [m k n [runs [threads]]]
 *
 * OpenBLAS mistakes some processors for older ones, and its environment may ask for one, so the
 * bench asks for the core of the instruction set it measures (SkylakeX for AVX-512, else
 * Haswell) whatever was set, and prints which one it got: a ratio against another core means
 * nothing. More threads are Weft's alone.
 */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/team.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RUNS = 1001, ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, LEAVES = 8 };

typedef void sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                   int lda, const float *b, int ldb, float beta, float *c, int ldc);

/* Which operand lies transposed in memory, in the usual letters. */
typedef struct form {
    const char *name;
    int a_trans, b_trans;
} form;

typedef struct sizes {
    int m, k, n, runs;
} sizes;

/* One thread counts its own time, so that being interrupted costs neither side; more take wall
 * time. */
static double now(const wf_team *team)
{
    struct timespec t;

    clock_gettime(wf_team_size(team) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare);
    return times[n / 2];
}

static float *filled(size_t n)
{
    float *x = aligned_alloc(4096, (n * sizeof *x + 4095) / 4096 * 4096);
    uint32_t s = 1;

    for (size_t i = 0; x && i < n; i++) {
        s = s * 1664525 + 1013904223;
        x[i] = (float)(s >> 8) / (float)(1 << 24) - 0.5f;
    }
    return x;
}

/* A function of a library; through memcpy, since C keeps pointers to data and to code apart. */
static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof found);
}

static sgemm *load(const char *isa)
{
    const char *want = strcmp(isa, "avx512") == 0 ? "SkylakeX" : "Haswell";
    void (*set_threads)(int);
    char *(*core)(void);
    sgemm *function;
    void *library;

    setenv("OPENBLAS_CORETYPE", want, 1);
    unsetenv("OPENBLAS_L2_SIZE");
    library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("no OpenBLAS: %s\n", dlerror());
        return NULL;
    }
    find(library, "openblas_set_num_threads", &set_threads);
    find(library, "openblas_get_corename", &core);
    find(library, "cblas_sgemm", &function);
    if (!set_threads || !core || !function) {
        printf("this OpenBLAS lacks cblas_sgemm, its core's name or its number of threads\n");
        return NULL;
    }
    set_threads(1);
    printf("OpenBLAS core %s%s\n", core(),
           strcmp(core(), want) ? " (NOT the one asked for)" : "");
    return function;
}

static void bench(const wf_simd *simd, wf_team *team, sgemm *theirs, const form *f, int leaves,
                  const sizes *s, const float *a, const float *b, float *c)
{
    wf_gemm_part parts[LEAVES];
    wf_gemm g = {
        .m = s->m, .n = s->n, .c = c, .c_row = s->n, .parts = parts, .n_parts = leaves};
    double flops = 2.0 * s->m * s->k * s->n, us[MAX_RUNS], them[MAX_RUNS], mine, other = 0;
    void *workspace;

    for (int i = 0; i < leaves; i++) {
        int64_t first = (int64_t)s->k * i / leaves, end = (int64_t)s->k * (i + 1) / leaves;
        wf_gemm_part *p = &parts[i];

        *p = (wf_gemm_part){.leaf = true, .k = end - first};
        p->a_row = f->a_trans ? 1 : s->k;
        p->a_k = f->a_trans ? s->m : 1;
        p->b_k = f->b_trans ? 1 : s->n;
        p->b_col = f->b_trans ? s->k : 1;
        p->a = a + first * p->a_k;
        p->b = b + first * p->b_k;
    }
    workspace = malloc(simd->gemm_workspace(&g, wf_team_size(team)));
    for (int r = -1; r < s->runs; r++) { /* the first of each is not counted */
        double start = now(team);

        simd->gemm(team, &g, workspace);
        us[r < 0 ? 0 : r] = now(team) - start;
        start = now(team);
        if (theirs)
            theirs(ROW_MAJOR, f->a_trans ? TRANS : NO_TRANS, f->b_trans ? TRANS : NO_TRANS,
                   s->m, s->n, s->k, 1, a, f->a_trans ? s->m : s->k, b,
                   f->b_trans ? s->k : s->n, 0, c, s->n);
        them[r < 0 ? 0 : r] = now(team) - start;
    }
    mine = flops / median(us, s->runs) * 1e-9;
    printf("%s  %d %s  weft %6.1f GFLOP/s", f->name, leaves, leaves == 1 ? "leaf  " : "leaves",
           mine);
    if (theirs) {
        other = flops / median(them, s->runs) * 1e-9;
        printf("  OpenBLAS %6.1f  ratio %.3f", other, mine / other);
    }
    printf("  workspace %.1f MiB\n",
           (double)simd->gemm_workspace(&g, wf_team_size(team)) / (1 << 20));
    free(workspace);
}

int main(int argc, char **argv)
{
    static const form forms[] = {{"NN", 0, 0}, {"NT", 0, 1}, {"TN", 1, 0}, {"TT", 1, 1}};
    sizes s = {1024, 768, 3072, 21};
    const char *why = "";
    const wf_simd *simd = wf_cpu_simd(&why);
    sgemm *theirs = NULL;
    wf_team *team = NULL;
    float *a, *b, *c;

    if (argc > 3)
        s = (sizes){atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), s.runs};
    if (argc > 4)
        s.runs = atoi(argv[4]);
    if (argc > 5)
        team = wf_team_open(atoi(argv[5]), NULL);
    if (!simd || s.m < 1 || s.k < 1 || s.n < 1 || s.runs < 1 || s.runs > MAX_RUNS) {
        fprintf(stderr, "usage: bench_gemm [m k n [runs [threads]]]  %s\n", why);
        return 2;
    }
    theirs = load(simd->name);
    a = filled((size_t)s.m * (size_t)s.k);
    b = filled((size_t)s.k * (size_t)s.n);
    c = filled((size_t)s.m * (size_t)s.n);
    printf("m %d k %d n %d, %s, %d runs, %d thread(s)\n", s.m, s.k, s.n, simd->name, s.runs,
           wf_team_size(team));
    for (int leaves = 1; leaves <= LEAVES; leaves += LEAVES - 1) {
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
            bench(simd, team, theirs, &forms[i], leaves, &s, a, b, c);
    }
    free(a);
    free(b);
    free(c);
    wf_team_close(team);
    return 0;
}
