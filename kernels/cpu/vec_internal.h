/*
 * kernels/cpu/vec_internal.h - sixteen floats, the vector in which the files of
 * kernels/cpu/simd/ are written: one 512-bit register, two of 256 bits, four of
 * 128 bits, or an array in portable C, by WF_ISA.
 *
 *     v16   sixteen floats     v16m  sixteen booleans
 *     v16u  sixteen uint32_t   v8d   eight doubles
 *
 * Every function gives the same bits on all of them (the payload and sign of a NaN aside),
 * because each lane is IEEE arithmetic in a stated order: v16_fma rounds once, everything else
 * is one operation, and sums over lanes have the fixed shape of v16_sum. The functions of one
 * lane are in the file of the instruction set; what is built from them is here, and exp is in
 * vec_math.h, Philox in vec_philox.h.
 */
#ifndef WF_KERNELS_CPU_VEC_INTERNAL_H
#define WF_KERNELS_CPU_VEC_INTERNAL_H

#include "kernels/cpu/isa_level_internal.h"
#include <stdint.h>

/*
 * The vector operations that every instruction set defines, lane by lane:
 *
 *   v16_load, v16_store       any alignment
 *   v16_store_non_temporal    non-temporal store where there is such an instruction; p is a
 *                             multiple of 64. v16_non_temporal_end() comes before another
 *                             thread reads it.
 *   v16_load_n, v16_store_n   the first n lanes, all from n = 16 on; n >= 0. The others load
 *                             as +0, and are neither read nor written in memory
 *   v16_set1, v16_zero
 *   v16_add, v16_sub, v16_mul, v16_div, v16_sqrt, v16_neg
 *   v16_fma(a, b, c)          a * b + c, rounded once
 *   v16_fnma(a, b, c)         c - a * b, rounded once
 *   v16_max(a, b)             a > b ? a : b, so b where one is a NaN
 *   v16_min(a, b)             a < b ? a : b
 *   v16_scale2(a, n)          a * 2^n for integral n of -160 .. 160 and a of 0.5 .. 2, or
 *                             NaNs; denormal results are rounded, not flushed
 *   v16_split2(a, &n)         m of 1 .. 2 and integral n with a = m * 2^n, for normal a > 0
 *   v16_less(a, b)            where a < b
 *   v16_unordered(a, b)       where one of them is a NaN
 *   v16_select(m, a, b)       m ? a : b
 *   v16m_first(n)             the first n lanes, all from n = 16 on
 *   v16_sum(a)                the lanes added 8, 4, 2, then 1 apart
 *   v16u_set1, v16u_load, v16u_store, v16u_add, v16u_xor, v16u_and, v16u_or, v16u_ge
 *   v16u_load_half(p, n)      n of sixteen 16-bit words as 32-bit ones; the others are 0 and
 *                             not read
 *   v16u_left(a, n), v16u_right(a, n)   shifted by n of 0 .. 31 bits, zeros come in
 *   v16_of_int(a)             of the signed words, rounded
 *   v16_of_bits(a), v16u_of_bits(a)     the same bits, as the other type
 *   v16u_mul(a, b, &high)     the low words of the 64-bit products, and the high ones
 *   v16u_transpose4(a)        see vec_philox.h
 *   v16u_of, v16_of           the same bits as words, as floats
 *   v16_transpose_quads(a)    four vectors as 4 by 4 quads of floats, transposed
 *   v16u_load_quarters(from, stride)        four words each of the rows 0, 4, 8 and 12, which
 *                                           are `stride` bytes apart
 *   v16u_load_transposed(a, from, stride)   sixteen rows of 16 words, `stride` bytes apart:
 *                                           a[q] has word q of each
 *   v16u_pair_rows(even, odd, pair)         two rows of 32 halves: word i of the two has half i
 *                                           of `even`, and of `odd` above it
 *   v8d_zero, v8d_add, v8d_mul
 *   v8d_sum(a)                the lanes added 4, 2, then 1 apart
 *   v8d_low(a), v8d_high(a)   the first and the last eight floats of a v16
 *
 * A loop over n elements is for (i = 0; i < n; i += V16), with n - i for the _n functions.
 */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
#include "kernels/cpu/vec_avx512_internal.h"
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_avx2
#include "kernels/cpu/vec_avx2_internal.h"
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
#include "kernels/cpu/vec_neon_internal.h"
#else
#include "kernels/cpu/vec_portable_internal.h"
#endif

enum { V16 = 16 };

/* Sixteen vectors as rows of a matrix, transposed. */
static inline void v16_transpose(v16 a[V16])
{
    for (int row = 0; row < V16; row += 4) {
        v16u word[4];

        for (int i = 0; i < 4; i++)
            word[i] = v16u_of(a[row + i]);
        v16u_transpose4(word);
        for (int i = 0; i < 4; i++)
            a[row + i] = v16_of(word[i]);
    }
    for (int i = 0; i < 4; i++) {
        v16 quad[4] = {a[i], a[4 + i], a[8 + i], a[12 + i]};

        v16_transpose_quads(quad);
        for (int j = 0; j < 4; j++)
            a[4 * j + i] = quad[j];
    }
}

#if WF_ISA_LEVEL != WF_ISA_LEVEL_avx512
static inline void v16u_load_transposed(v16u a[V16], const void *from, int64_t stride)
{
    v16 row[V16];

    for (int i = 0; i < V16; i++)
        row[i] = v16_of(v16u_load((const uint32_t *)((const char *)from + i * stride)));
    v16_transpose(row);
    for (int q = 0; q < V16; q++)
        a[q] = v16u_of(row[q]);
}

static inline void v16u_pair_rows(const uint16_t *even, const uint16_t *odd, v16u pair[2])
{
    for (int h = 0; h < 2; h++)
        pair[h] = v16u_or(v16u_load_half(even + h * V16, V16),
                          v16u_left(v16u_load_half(odd + h * V16, V16), 16));
}
#endif

/* Returns the greater of two, a NaN where one is: unlike v16_max, blind to the order of its
   operands (but for zeros of two signs; adding +0 makes them one). */
static inline v16 v16_max_nan(v16 a, v16 b)
{
    return v16_select(v16_unordered(a, a), a, v16_max(a, b));
}

/* Returns the greatest lane, a NaN where one is, and +0 for either zero. */
static inline float v16_max_lanes(v16 a)
{
    float lane[V16];

    v16_store(lane, a);
    for (int step = V16 / 2; step > 0; step /= 2) {
        for (int i = 0; i < step; i++) {
            float x = lane[i], y = lane[i + step];

            lane[i] = x > y || x != x ? x : y;
        }
    }
    return lane[0] + 0.0f;
}

#endif
