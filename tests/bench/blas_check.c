/* tests/bench/blas_check.c - small products by a library and by Weft's kernels, before they
 * race: whoever multiplies something else has no time to show. */
#include "tests/bench/blas.h"
#include "core/numerics/bf16.h"
#include "kernels/cpu/simd_internal.h"
#include <math.h>
#include <stdlib.h>

/* No two sides are equal, and none is a whole number of a kernel's blocks. */
enum { M = 37, K = 53, N = 41, FORMS = 4 };

typedef struct operands {
    float a[M * K], b[K * N];
    uint16_t half_a[M * K], half_b[K * N];
    float ours[M * N], theirs[M * N];
} operands;

/* Whole numbers from -4 to 4: every sum is exact in any order. */
static void fill(float *x, uint16_t *half, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(seed >> 16) / 65536 * 9 - 4.5f;
        x[i] = nearbyintf(x[i]);
        half[i] = wf_bf16_of(x[i]);
    }
}

static bool multiply(const wf_simd *simd, const bench_product *p, float *c)
{
    wf_gemm_part part = {.a = p->a,
                         .b = p->b,
                         .a_row = p->a_trans ? 1 : p->k,
                         .a_k = p->a_trans ? p->m : 1,
                         .b_k = p->b_trans ? 1 : p->n,
                         .b_col = p->b_trans ? p->k : 1,
                         .k = p->k,
                         .chunk = true};
    wf_gemm gemm = {.m = p->m,
                    .n = p->n,
                    .c = c,
                    .c_row = p->n,
                    .bf16 = p->bf16,
                    .parts = &part,
                    .n_parts = 1};
    size_t bytes = simd->gemm_workspace(&gemm, 1);
    wf_error error = {WF_OK, ""};
    void *workspace = bench_memory_new(bytes > 0 ? bytes : 1, &error);

    if (workspace)
        simd->gemm(NULL, &gemm, workspace);
    free(workspace);
    return workspace != NULL;
}

/* Multiplies one form with the library; what is wrong with it, or NULL. */
static const char *fault_of(const wf_simd *simd, const bench_blas *blas, bool bf16, int form,
                            operands *o)
{
    bench_blas_call call = {.blas = blas,
                            .product = {.a_trans = form & 1,
                                        .b_trans = form & 2,
                                        .bf16 = bf16,
                                        .m = M,
                                        .k = K,
                                        .n = N,
                                        .a = bf16 ? (const void *)o->half_a : o->a,
                                        .b = bf16 ? (const void *)o->half_b : o->b,
                                        .c = o->theirs}};
    bool done;

    for (int i = 0; i < M * N; i++)
        o->theirs[i] = NAN;
    done = blas->multiply(&call);
    if (blas->close)
        blas->close(&call);
    if (!done)
        return "was refused";
    if (!multiply(simd, &call.product, o->ours))
        return "found no memory";
    for (int i = 0; i < M * N; i++) {
        if (!(o->theirs[i] == o->ours[i]))
            return "is wrong";
    }
    return NULL;
}

static bool is_right(bench_report *report, const bench_blas *blas, bool bf16, operands *o)
{
    static const char *const name[FORMS] = {"NN", "TN", "NT", "TT"};
    const wf_simd *simd = wf_cpu_simd(NULL);

    for (int form = 0; simd && form < FORMS; form++) {
        const char *fault = fault_of(simd, blas, bf16, form, o);

        if (fault) {
            bench_note(report, "%s is left out: its product %s of %s, %d x %d x %d, %s",
                       blas->name, name[form], bf16 ? "bf16" : "fp32", M, K, N, fault);
            return false;
        }
    }
    return simd != NULL;
}

int bench_blas_check(bench_report *report, bool bf16, bench_blas *blas, int count)
{
    operands o;
    int kept = 0;

    fill(o.a, o.half_a, M * K, 1);
    fill(o.b, o.half_b, K * N, 2);
    for (int i = 0; i < count; i++) {
        blas[i].set_threads(1);
        if (is_right(report, &blas[i], bf16, &o))
            blas[kept++] = blas[i];
    }
    return kept;
}
