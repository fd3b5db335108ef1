/*
 * core/philox.h - one block of Philox4x32-10, for hosts and devices: integers alone, so the same
 * words everywhere (core/random.h says what is made of them).
 */
#ifndef WF_CORE_PHILOX_H
#define WF_CORE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define WF_HOST_DEVICE __host__ __device__
#else
#define WF_HOST_DEVICE
#endif

static inline WF_HOST_DEVICE void wf_philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;

    c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)a;
}

/* Four random words of a counter, in its place. */
static inline WF_HOST_DEVICE void wf_philox_block(uint32_t c[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < 10; i++) {
        wf_philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

#endif
