/*
 * kernels/cpu/vec_philox_internal.h - sixteen Philox4x32-10 blocks at once
 * (core/numerics/random.h has one).
 */
#ifndef WF_KERNELS_CPU_VEC_PHILOX_INTERNAL_H
#define WF_KERNELS_CPU_VEC_PHILOX_INTERNAL_H

#include "kernels/cpu/vec_internal.h"

/* Computes Philox of the counters {word[0], .., word[3]} of each lane, in place. */
static inline void v16u_philox(uint64_t key, v16u word[4])
{
    v16u m0 = v16u_set1(0xD2511F53u), m1 = v16u_set1(0xCD9E8D57u);
    v16u a = word[0], b = word[1], c = word[2], d = word[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        v16u high0, high1, low0 = v16u_mul(a, m0, &high0), low1 = v16u_mul(c, m1, &high1);

        a = v16u_xor(v16u_xor(high1, b), v16u_set1(k0));
        b = low1;
        c = v16u_xor(v16u_xor(high0, d), v16u_set1(k1));
        d = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = a;
    word[1] = b;
    word[2] = c;
    word[3] = d;
}

/*
 * Which of 16 blocks a lane has, so that v16u_transpose4 brings the words of all in order: it
 * exchanges word k of lane 4 g + j with word j of lane 4 g + k. Lane 4 g + j has block 4 j + g,
 * and so word k of the result begins with block 4 k: lane l of it is word 16 k + l of the 64.
 */
static inline v16u v16u_block_order(void)
{
    static const uint32_t order[V16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};

    return v16u_load(order);
}

#endif
