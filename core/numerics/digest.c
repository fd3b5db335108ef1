/*
 * core/numerics/digest.c - the digest of a model's elements. Integers alone, so vectors have
 * the same values; with AVX-512 they are some three times as fast, with less they would not be.
 */
#include "core/numerics/digest.h"
#include "core/numerics/bits.h"
#include <stdbool.h>
#include <string.h>

uint64_t wf_digest_path(const char *path)
{
    uint64_t hash = 0;

    for (; *path != '\0'; path++)
        hash = wf_mix64(hash ^ (unsigned char)*path);
    return wf_mix64(hash);
}

static inline uint64_t element(uint64_t tensor, uint64_t index, uint32_t bits)
{
    return wf_mix64(wf_mix64(tensor + index) ^ bits);
}

uint64_t wf_digest_element(uint64_t path_hash, uint32_t kind, uint64_t index, uint32_t bits)
{
    return element(wf_mix64(path_hash ^ kind), index, bits);
}

static uint64_t sum_elements(uint64_t tensor, uint64_t first, const float *x, int64_t n)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof(bits));
        sum += element(tensor, first + (uint64_t)i, bits);
    }
    return sum;
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512dq")))

enum { LANES = 8 };

typedef uint64_t words __attribute__((vector_size(8 * LANES)));
typedef uint32_t halves __attribute__((vector_size(4 * LANES)));

/* wf_mix64 of each. */
AVX512 static inline words mix_words(words x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Returns the sum over n elements, a multiple of LANES. */
AVX512 static uint64_t sum_vectors(uint64_t tensor, uint64_t first, const float *x, int64_t n)
{
    words at = {0, 1, 2, 3, 4, 5, 6, 7}, sum = {0};
    uint64_t total = 0;

    at += tensor + first;
    for (int64_t i = 0; i < n; i += LANES, at += (uint64_t)LANES) {
        halves bits;

        memcpy(&bits, x + i, sizeof bits);
        sum += mix_words(mix_words(at) ^ __builtin_convertvector(bits, words));
    }
    for (int i = 0; i < LANES; i++)
        total += sum[i];
    __builtin_ia32_vzeroupper(); /* gcc adds it from -O2 on alone */
    return total;
}

static bool has_vectors(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
}
#else
enum { LANES = 1 };

static uint64_t sum_vectors(uint64_t tensor, uint64_t first, const float *x, int64_t n)
{
    return sum_elements(tensor, first, x, n);
}

static bool has_vectors(void)
{
    return false;
}
#endif

uint64_t wf_digest_run(uint64_t path_hash, uint32_t kind, uint64_t first_index, const float *x,
                       int64_t n)
{
    uint64_t tensor = wf_mix64(path_hash ^ kind), sum = 0;
    int64_t in_vectors = has_vectors() ? n / LANES * LANES : 0;

    if (in_vectors)
        sum = sum_vectors(tensor, first_index, x, in_vectors);
    return sum + sum_elements(tensor, first_index + (uint64_t)in_vectors, x + in_vectors,
                              n - in_vectors);
}

/* Run by run of the last dim, each with the global index of its first element. */
uint64_t wf_digest_part(uint64_t path_hash, uint32_t kind, int ndim, const int64_t *size,
                        const int64_t *start, const int64_t *local, const float *x)
{
    int last = ndim - 1;
    int64_t run = ndim ? local[last] : 1, runs = 1;
    uint64_t digest = 0;

    for (int i = 0; i < last; i++)
        runs *= local[i];
    for (int64_t r = 0; r < runs; r++, x += run) {
        int64_t rest = r, index = ndim ? start[last] : 0, stride = 1;

        for (int i = last - 1; i >= 0; i--) {
            stride *= size[i + 1];
            index += (start[i] + rest % local[i]) * stride;
            rest /= local[i];
        }
        digest += wf_digest_run(path_hash, kind, (uint64_t)index, x, run);
    }
    return digest;
}
