/*
 * tests/kernels/test_simd.c - the CPU's inner loops of rows and elements: against a reference
 * in double, with equal bits from every instruction set, and from rows taken together or one by
 * one. Every pointer is odd by one float, and what lies around an output must stay as it was.
 */
#include "tests/harness.h"
#include "tests/kernels/simd_reference.h"
#include <stdio.h>

static int64_t size_of(shape s, int64_t rows, int64_t d)
{
    return s == FULL ? rows * d : s == PER_ROW ? rows : s == PER_COLUMN ? d : 0;
}

enum { MARGIN = 17 };

typedef float output[MOST + 2 * MARGIN];

static void poison(output out[OUTPUTS])
{
    for (int k = 0; k < OUTPUTS; k++) {
        for (int i = 0; i < MOST + 2 * MARGIN; i++)
            out[k][i] = -7777.25f;
    }
}

/* Rows begin .. end - 1, as a call of their own. */
static void run_rows(const kernel *k, const wf_simd *simd, const data *in, int64_t begin,
                     int64_t end, output out[OUTPUTS])
{
    data part = *in;
    float *to[OUTPUTS];

    part.rows = end - begin;
    part.x += begin * in->d;
    part.dy += begin * in->d;
    part.mean += begin;
    part.rstd += begin;
    for (int o = 0; o < OUTPUTS; o++)
        to[o] =
            out[o] + MARGIN + size_of(k->shape[o], begin, in->d) * (k->shape[o] != PER_COLUMN);
    k->run(simd, &part, to);
}

static double distance(const float *is, const double *right, int64_t n)
{
    double off = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        off += ((double)is[i] - right[i]) * ((double)is[i] - right[i]);
        size += right[i] * right[i];
    }
    return sqrt(off / (size + 1e-30));
}

static const int64_t shapes[][2] = {{1, 1},  {3, 2},   {4, 15},  {2, 16},  {5, 18},  {3, 31},
                                    {7, 64}, {3, 100}, {2, 129}, {4, 200}, {6, 512}, {8, 770}};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void kernels_match_reference(void)
{
    static output out[OUTPUTS];
    static double want[OUTPUTS][MOST];
    double *const to[OUTPUTS] = {want[0], want[1], want[2]};
    const wf_simd *simd[BUILDS];

    builds(simd);
    for (int s = 0; s < SHAPES; s++) {
        for (const kernel *k = kernels; k->name; k++) {
            data in = make_data(shapes[s][0], shapes[s][1]);

            poison(out);
            run_rows(k, simd[0], &in, 0, in.rows, out);
            k->want(&in, to);
            for (int o = 0; o < OUTPUTS; o++) {
                int64_t n = size_of(k->shape[o], in.rows, in.d);

                if (!(distance(out[o] + MARGIN, want[o], n) <= 1e-5)) {
                    printf("%s output %d, %ld x %ld: ", k->name, o, (long)in.rows, (long)in.d);
                    CU_FAIL("differs from the reference");
                }
                for (int i = 0; i < MARGIN; i++)
                    CU_ASSERT_TRUE(out[o][i] == -7777.25f &&
                                   out[o][MARGIN + n + i] == -7777.25f);
            }
        }
    }
}

static void builds_agree(void)
{
    static output right[OUTPUTS], out[OUTPUTS];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int s = 0; s < SHAPES; s++) {
        for (const kernel *k = kernels; k->name; k++) {
            data in = make_data(shapes[s][0], shapes[s][1]);

            poison(right);
            run_rows(k, simd[0], &in, 0, in.rows, right);
            for (int b = 1; b < n; b++) {
                poison(out);
                run_rows(k, simd[b], &in, 0, in.rows, out);
                if (memcmp(out, right, sizeof(out)) != 0) {
                    printf("%s %s, %ld x %ld: ", k->name, simd[b]->name, (long)in.rows,
                           (long)in.d);
                    CU_FAIL("differs from portable");
                }
            }
        }
    }
}

/* A column's chain over rows is the one thing that rows taken apart would break. */
static bool sums_rows(const kernel *k)
{
    return k->shape[0] == PER_COLUMN;
}

static void division_is_irrelevant(void)
{
    static output right[OUTPUTS], out[OUTPUTS];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int s = 0; s < SHAPES; s++) {
        for (const kernel *k = kernels; k->name; k++) {
            data in = make_data(shapes[s][0], shapes[s][1]);

            if (sums_rows(k))
                continue;
            for (int b = 0; b < n; b++) {
                poison(right);
                poison(out);
                run_rows(k, simd[b], &in, 0, in.rows, right);
                run_rows(k, simd[b], &in, 0, in.rows / 3, out);
                run_rows(k, simd[b], &in, in.rows / 3, in.rows, out);
                if (memcmp(out, right, sizeof(out)) != 0) {
                    printf("%s %s, %ld x %ld: ", k->name, simd[b]->name, (long)in.rows,
                           (long)in.d);
                    CU_FAIL("depends on how rows are divided");
                }
            }
        }
    }
}

int main(void)
{
    static const wf_test tests[] = {{"kernels match the reference", kernels_match_reference},
                                    {"builds agree to the bit", builds_agree},
                                    {"division is irrelevant", division_is_irrelevant},
                                    {NULL, NULL}};

    return wf_test_main("simd", tests);
}
