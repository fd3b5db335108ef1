/*
 * tests/kernels/test_random_simd.c - the random numbers of every instruction set are those of
 * core/numerics/random.h, to the bit, wherever a run begins and ends.
 */
#include "tests/harness.h"
#include "tests/kernels/simd_data.h"
#include <string.h>

enum { LENGTH = 3000 };

static float by_word[3][LENGTH]; /* uniform, normal, truncated */

static void by_scalars(uint64_t first, int64_t n, const wf_truncated *t)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = first + (uint64_t)i;

        by_word[0][i] = 3.0f + 0.7f * wf_random_uniform(21, 4, at);
        by_word[1][i] = 0.1f + 0.02f * wf_random_normal(21, 4, at);
        by_word[2][i] = wf_random_truncated(t, 21, 4, at);
    }
}

/* Fills a range between two guards. */
static int64_t differing(const wf_simd *simd, uint64_t first, int64_t n, const wf_truncated *t)
{
    static float y[3][LENGTH + 2];
    const wf_random_run run = {21, 4, first};
    int64_t different = 0;

    for (int k = 0; k < 3; k++)
        y[k][0] = y[k][n + 1] = -99.0f;
    simd->fill_uniform(y[0] + 1, n, &run, 3.0f, 0.7f);
    simd->fill_normal(y[1] + 1, n, &run, 0.1f, 0.02f);
    simd->fill_truncated(y[2] + 1, n, &run, t);
    for (int k = 0; k < 3; k++)
        different += memcmp(y[k] + 1, by_word[k], (size_t)n * sizeof(float)) != 0 ||
                     y[k][0] != -99.0f || y[k][n + 1] != -99.0f;
    return different;
}

static void any_run(void)
{
    static const uint64_t base[] = {0, 1000, ((uint64_t)1 << 34) - 150, (uint64_t)1 << 60};
    const wf_simd *simd[BUILDS];
    int n_builds = builds(simd);
    wf_truncated t;

    CU_ASSERT_TRUE_FATAL(wf_truncate(&t, 0.5f, 2.0f, -1.0f, 9.0f));
    for (int b = 0; b < 4; b++)
        for (uint64_t first = base[b]; first < base[b] + 7; first++)
            for (int64_t n = 0; n < 400; n += n < 9 ? 1 : 61) {
                by_scalars(first, n, &t);
                for (int k = 0; k < n_builds; k++)
                    CU_ASSERT_EQUAL(differing(simd[k], first, n, &t), 0);
            }
}

/* Many words, among them those near the ends of every polynomial. */
static void many_words(void)
{
    const wf_simd *simd[BUILDS];
    int n_builds = builds(simd);
    wf_truncated t;

    CU_ASSERT_TRUE_FATAL(wf_truncate(&t, 0.0f, 1.0f, -1e9f, 1e9f));
    for (uint64_t first = 0; first < 700; first++) {
        by_scalars(first * LENGTH, LENGTH, &t);
        for (int k = 0; k < n_builds; k++)
            CU_ASSERT_EQUAL(differing(simd[k], first * LENGTH, LENGTH, &t), 0);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"any run", any_run}, {"many words", many_words}, {NULL, NULL}};

    return wf_test_main("random numbers of the builds", tests);
}
