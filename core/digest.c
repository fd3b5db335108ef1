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
