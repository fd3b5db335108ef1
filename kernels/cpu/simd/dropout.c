/*
 * kernels/cpu/simd/dropout.c - dropout, which is its own gradient:
 *
 *     y[i] = word(first + i) >= floor(p 2^32) ? x[i] * (1 / (1 - p)) : +0
 *     word(w) = philox({w / 4 mod 2^32, counter}, key)[w % 4]
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_philox_internal.h"

enum { GROUP = 4 * V16, AHEAD = 8 * GROUP };

/* Philox keeps the core busy for so long that it would not reach the next misses in time. */
static inline void fetch_ahead(const float *x, float *y)
{
    for (int k = 0; k < 4; k++) {
        __builtin_prefetch(x + k * V16);
        __builtin_prefetch(y + k * V16, 1);
    }
}

void WF_ISA_NAME(wf_dropout)(const float *x, float *y, int64_t n, uint64_t key,
                             const uint32_t counter[3], int64_t first, float p)
{
    /* p = 1 keeps nothing: no word reaches 2^32. */
    uint64_t limit = p < 1.0f ? (uint64_t)((double)p * 0x1p32) : (uint64_t)1 << 32;
    float scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    uint32_t block = (uint32_t)((uint64_t)first / 4), flat[GROUP];

    /* In groups of 64 words, of which the first may begin up to three words before the run. */
    for (int64_t i = -(first % 4); i < n; i += GROUP, block += V16) {
        v16u word[4] = {v16u_add(v16u_set1(block), v16u_block_order()), v16u_set1(counter[0]),
                        v16u_set1(counter[1]), v16u_set1(counter[2])};

        if (i + AHEAD + GROUP <= n)
            fetch_ahead(x + i + AHEAD, y + i + AHEAD);
        v16u_philox(key, word);
        v16u_transpose4(word);
        if (i >= 0 && i + GROUP <= n && limit <= UINT32_MAX) {
            for (int k = 0; k < 4; k++) {
                v16m keep = v16u_ge(word[k], v16u_set1((uint32_t)limit));
                v16 z = v16_mul(v16_load(x + i + k * V16), v16_set1(scale));

                v16_store(y + i + k * V16, v16_select(keep, z, v16_zero()));
            }
        } else {
            for (int k = 0; k < 4; k++)
                v16u_store(flat + k * V16, word[k]);
            for (int64_t at = i < 0 ? 0 : i; at < n && at < i + GROUP; at++)
                y[at] = flat[at - i] >= limit ? x[at] * scale : 0.0f;
        }
    }
}
