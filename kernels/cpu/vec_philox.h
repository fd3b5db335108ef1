/*
 * kernels/cpu/vec_philox.h - sixteen Philox4x32-10 blocks at once (core/random.h has one).
 */
#ifndef WF_KERNELS_CPU_VEC_PHILOX_H
#define WF_KERNELS_CPU_VEC_PHILOX_H

#include "kernels/cpu/vec.h"

/* Words 4 * block .. 4 * block + 63 of the stream {block mod 2^32, counter[0 .. 2]}, key: lane
   l of word[k] is word 16 * k + l of them. */
static inline void v16u_philox(uint64_t key, const uint32_t counter[3], uint32_t block,
                               v16u word[4])
{
    /* v16u_transpose4 exchanges word k of lane 4 g + j with word j of lane 4 g + k. Lane
       4 g + j holds block 4 j + g, and so word k of the result begins with block 4 k. */
    static const uint32_t order[V16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    v16u m0 = v16u_set1(0xD2511F53u), m1 = v16u_set1(0xCD9E8D57u);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    v16u a = v16u_add(v16u_set1(block), v16u_load(order)), b = v16u_set1(counter[0]);
    v16u c = v16u_set1(counter[1]), d = v16u_set1(counter[2]);

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
    v16u_transpose4(word);
}

#endif
