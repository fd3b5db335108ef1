/* tests/kernels/test_simd_sums.c - sums of many sources are trees, to the bit, on every build
   that the machine runs. */
#include "tests/harness.h"
#include "tests/kernels/simd_data.h"
#include <string.h>

static float tree_of(const float *const *src, int64_t n, int64_t i)
{
    return n == 1 ? src[0][i] : tree_of(src, n / 2, i) + tree_of(src + n / 2, n - n / 2, i);
}

static void sum_is_the_tree(void)
{
    enum { SOURCES = 19, LENGTH = 150 };
    static float y[LENGTH + 1], source[SOURCES][LENGTH + 1];
    const float *src[SOURCES];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int b = 0; b < n; b++) {
        for (int64_t count = 0; count <= SOURCES; count++) {
            for (int64_t length = 0; length <= LENGTH; length += 1 + length / 5) {
                for (int tree = 0; tree < 2; tree++) {
                    float right[LENGTH + 1], *to = y;

                    for (int64_t s = 0; s < SOURCES; s++) {
                        wf_random_fill_normal(source[s], LENGTH + 1, 2, (uint64_t)s, 0);
                        src[s] = source[s] + s % 2;
                    }
                    for (int64_t i = 0; i < length; i++) {
                        right[i] = count ? src[0][i] : 0.0f;
                        for (int64_t s = 1; s < count; s++)
                            right[i] += src[s][i];
                        if (count && tree)
                            right[i] = tree_of(src, count, i);
                    }
                    if (count > 2) /* in place of a source */
                        to = source[count / 2] + count / 2 % 2;
                    right[length] = to[length];
                    simd[b]->sum(src, count, tree, to, length);
                    CU_ASSERT_EQUAL(memcmp(to, right, (size_t)(length + 1) * sizeof(float)), 0);
                }
            }
        }
    }
}

/* The same of more sources than are read side by side, longer than the slices that they are
   read in. */
static void sum_of_many(void)
{
    enum { SOURCES = 37, LENGTH = 2200 };
    static float source[SOURCES][LENGTH], out[LENGTH];
    const float *src[SOURCES];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int b = 0; b < n; b++)
        for (int64_t count = 8; count <= SOURCES; count += 7)
            for (int64_t length = 1024; length <= LENGTH; length += 391) {
                bool right = true;
                float *dst[2] = {out, source[count / 3]};

                for (int64_t s = 0; s < SOURCES; s++) {
                    wf_random_fill_normal(source[s], LENGTH, 2, (uint64_t)s, 0);
                    src[s] = source[s];
                }
                for (int64_t i = 0; i < length; i++)
                    out[i] = tree_of(src, count, i);
                simd[b]->sum_to_all(src, count, true, dst + 1, 1, true, length);
                right = memcmp(out, dst[1], (size_t)length * sizeof *out) == 0;
                CU_ASSERT(right);
            }
}

/* The same to many outputs, one of them a source, by either kind of store; and copies past the
   caches: every byte, and none beyond. */
static void sums_to_all(void)
{
    enum { SOURCES = 5, OUTPUTS = 3, LENGTH = 333 };
    static float source[SOURCES][LENGTH + 1], out[OUTPUTS - 1][LENGTH + 16], right[LENGTH];
    static char from[LENGTH], to[LENGTH + 64], expected[LENGTH + 64];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int c = 0; c < 2 * n * (LENGTH / 37); c++) {
        const wf_simd *s = simd[c / 2 % n];
        int64_t length = c / (2 * n) * 37 + c % 3, shift = c % 5;
        const float *src[SOURCES];
        float *dst[OUTPUTS] = {source[1], out[0], out[1] + shift};

        for (int64_t i = 0; i < SOURCES; i++) {
            wf_random_fill_normal(source[i], LENGTH + 1, 2, (uint64_t)i, 0);
            src[i] = source[i];
        }
        for (int64_t i = 0; i < length; i++)
            right[i] = tree_of(src, SOURCES, i);
        out[0][length] = dst[2][length] = source[1][length] = 7;
        s->sum_to_all(src, SOURCES, true, dst, OUTPUTS, c % 2 == 1, length);
        for (int d = 0; d < OUTPUTS; d++) {
            CU_ASSERT_EQUAL(memcmp(dst[d], right, (size_t)length * sizeof *right), 0);
            CU_ASSERT(dst[d][length] == 7);
        }
        memset(to, 1, sizeof to);
        memset(expected, 1, sizeof expected);
        for (int64_t i = 0; i < LENGTH; i++)
            from[i] = (char)(i * 7 + c);
        memcpy(expected + 3 * shift, from + shift, (size_t)(length - length % 2) / 2);
        s->copy_non_temporal(from + shift, to + 3 * shift, (size_t)(length - length % 2) / 2);
        CU_ASSERT_EQUAL(memcmp(to, expected, sizeof to), 0);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"sum is the tree", sum_is_the_tree},
                                    {"sums of many sources", sum_of_many},
                                    {"sums to all outputs, and copies", sums_to_all},
                                    {NULL, NULL}};

    return wf_test_main("simd_sums", tests);
}
