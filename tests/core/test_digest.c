/* tests/core/test_digest.c - the digest is a sum over elements that sees every bit of each. */
#include "core/numerics/digest.h"
#include "tests/harness.h"
#include <string.h>

enum { COUNT = 1000 };

static void fill(float x[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i - 500) * 0.37f;
}

static void parts_add_up(void)
{
    uint64_t path = wf_digest_path("block.0.mlp.down.weight"), whole, singly = 0;
    float x[COUNT];

    fill(x);
    whole = wf_digest_run(path, 1, 12345, x, COUNT);
    for (int64_t cut = 0; cut <= COUNT; cut += 37) {
        uint64_t left = wf_digest_run(path, 1, 12345, x, cut);
        uint64_t right = wf_digest_run(path, 1, (uint64_t)(12345 + cut), x + cut, COUNT - cut);

        CU_ASSERT_EQUAL(left + right, whole);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof(bits));
        singly += wf_digest_element(path, 1, 12345 + i, bits);
    }
    CU_ASSERT_EQUAL(singly, whole);
}

static void every_bit_counts(void)
{
    uint64_t path = wf_digest_path("head"), whole;
    float x[COUNT], y[COUNT];

    fill(x);
    whole = wf_digest_run(path, 0, 0, x, COUNT);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;

        memcpy(y, x, sizeof(y));
        memcpy(&bits, y + i, sizeof(bits));
        bits ^= 1u << (i % 32);
        memcpy(y + i, &bits, sizeof(bits));
        CU_ASSERT_NOT_EQUAL(wf_digest_run(path, 0, 0, y, COUNT), whole);
    }
    for (int i = 1; i < COUNT; i++) {
        memcpy(y, x, sizeof(y));
        y[i] = x[i - 1];
        y[i - 1] = x[i];
        CU_ASSERT_NOT_EQUAL(wf_digest_run(path, 0, 0, y, COUNT), whole);
    }
    CU_ASSERT_NOT_EQUAL(wf_digest_run(path, 1, 0, x, COUNT), whole);
    CU_ASSERT_NOT_EQUAL(wf_digest_run(path, 0, 1, x, COUNT), whole);
    CU_ASSERT_NOT_EQUAL(wf_digest_run(wf_digest_path("heae"), 0, 0, x, COUNT), whole);
}

static void paths_differ(void)
{
    static const char *const path[] = {"", "a", "b", "ab", "ba", "aa", "block.1", "block.10"};
    const int n = (int)(sizeof(path) / sizeof(path[0]));

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            CU_ASSERT_NOT_EQUAL(wf_digest_path(path[i]), wf_digest_path(path[j]));
    }
}

/* A changed bit of the index or of the element changes half of the result's bits. */
static void bits_spread(void)
{
    uint64_t path = wf_digest_path("w");
    int flipped = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t base = wf_digest_element(path, 0, i, (uint32_t)i * 2654435761u);
        uint64_t bit = wf_digest_element(path, 0, i, (uint32_t)i * 2654435761u ^ 1u << i % 32);
        uint64_t index =
            wf_digest_element(path, 0, i ^ 1u << i % 32, (uint32_t)i * 2654435761u);

        flipped += __builtin_popcountll((unsigned long long)(base ^ bit));
        flipped += __builtin_popcountll((unsigned long long)(base ^ index));
    }
    /* 2000 words: 64000 bits in the mean, sigma 179. */
    CU_ASSERT_TRUE(flipped > 63000 && flipped < 65000);
}

int main(void)
{
    static const wf_test tests[] = {{"parts add up", parts_add_up},
                                    {"every bit counts", every_bit_counts},
                                    {"paths differ", paths_differ},
                                    {"bits spread", bits_spread},
                                    {NULL, NULL}};

    return wf_test_main("digest", tests);
}
