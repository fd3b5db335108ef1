/* core/digest.c - the digest of a model's elements. */
#include "core/digest.h"
#include "core/bits.h"
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

uint64_t wf_digest_run(uint64_t path_hash, uint32_t kind, uint64_t first_index, const float *x,
                       int64_t n)
{
    uint64_t tensor = wf_mix64(path_hash ^ kind), sum = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof(bits));
        sum += element(tensor, first_index + (uint64_t)i, bits);
    }
    return sum;
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
