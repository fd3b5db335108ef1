/*
 * tests/core/test_exact_sum.c - the exact sum against integer arithmetic, in any order and any
 * division, and its rounding at halves, denormals and overflow.
 */
#include "core/numerics/exact_sum.h"
#include "core/numerics/random.h"
#include "tests/harness.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double sum_of(const double *x, int n)
{
    wf_exact_sum acc = {0};

    for (int i = 0; i < n; i++)
        wf_exact_add(&acc, x[i]);
    return wf_exact_value(&acc);
}

#define SUM(...)                                                                               \
    sum_of((const double[]){__VA_ARGS__},                                                      \
           (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)))

static void rounds_correctly(void)
{
    wf_exact_sum none = {0};

    CU_ASSERT_EQUAL(wf_exact_value(&none), 0.0);
    CU_ASSERT_EQUAL(SUM(1.0, 0x1p-53), 1.0);
    CU_ASSERT_EQUAL(SUM(1.0, 0x1p-53, 0x1p-1074), 0x1.0000000000001p0);
    CU_ASSERT_EQUAL(SUM(1.0, 0x1p-52, 0x1p-53), 0x1.0000000000002p0);
    CU_ASSERT_EQUAL(SUM(-1.0, -0x1p-53, -0x1p-1074), -0x1.0000000000001p0);
    CU_ASSERT_EQUAL(SUM(0x1.fffffffffffffp0, 0x1p-53), 2.0);
    CU_ASSERT_EQUAL(SUM(1e300, 1.0, -1e300), 1.0);
    CU_ASSERT_EQUAL(SUM(1.0, 1e300, 0x1p-1074, -1e300, -1.0), 0x1p-1074);
    CU_ASSERT_EQUAL(SUM(0x1p-1074, 0x1p-1074), 0x1p-1073);
    CU_ASSERT_EQUAL(SUM(DBL_MIN, -0x1p-1074), 0x0.fffffffffffffp-1022);
    CU_ASSERT_EQUAL(SUM(0x0.fffffffffffffp-1022, 0x1p-1074), DBL_MIN);
    CU_ASSERT_EQUAL(SUM(DBL_MAX, DBL_MAX, -DBL_MAX), DBL_MAX);
    CU_ASSERT_EQUAL(SUM(DBL_MAX, DBL_MAX), INFINITY);
    CU_ASSERT_EQUAL(SUM(-DBL_MAX, -0x1p970), -INFINITY);
    CU_ASSERT_EQUAL(SUM(DBL_MAX, 0x1p969), DBL_MAX);
    CU_ASSERT_EQUAL(signbit(SUM(1.0, -1.0)), 0);
}

static void infinities_stay(void)
{
    wf_exact_sum a = {0}, b = {0};

    CU_ASSERT_EQUAL(SUM(1.0, INFINITY, 2.0), INFINITY);
    CU_ASSERT_EQUAL(SUM(-INFINITY, 2.0), -INFINITY);
    CU_ASSERT_TRUE(isnan(SUM(INFINITY, -INFINITY)));
    CU_ASSERT_TRUE(isnan(SUM(1.0, (double)NAN, INFINITY)));
    wf_exact_add(&a, INFINITY);
    wf_exact_add(&b, -INFINITY);
    wf_exact_merge(&a, &b);
    CU_ASSERT_TRUE(isnan(wf_exact_value(&a)));
}

enum { COUNT = 4096 };

/* Returns a term of wide magnitude and either sign. */
static double term(uint64_t round, uint64_t i)
{
    double x = (double)wf_random_normal(5, round, 2 * i);
    uint64_t exponent = wf_random_below(5, round, 2 * i + 1, 200);

    return ldexp(x, (int)exponent - 100);
}

/* Orders and divisions give the same bits; the parts travel as bytes. */
static void order_is_irrelevant(void)
{
    static unsigned char bytes[8][sizeof(wf_exact_sum)];

    for (uint64_t round = 0; round < 8; round++) {
        wf_exact_sum forward = {0}, backward = {0}, merged = {0}, part[8] = {{{0}, 0, 0}};
        double value;

        for (uint64_t i = 0; i < COUNT; i++) {
            wf_exact_add(&forward, term(round, i));
            wf_exact_add(&backward, term(round, COUNT - 1 - i));
            wf_exact_add(&part[wf_random_below(6, round, i, 8)], term(round, i));
        }
        for (int i = 0; i < 8; i++)
            memcpy(bytes[i], &part[i], sizeof(part[i]));
        for (int i = 7; i >= 0; i--) {
            wf_exact_sum received;

            memcpy(&received, bytes[i], sizeof(received));
            wf_exact_merge(&merged, &received);
        }
        value = wf_exact_value(&forward);
        CU_ASSERT_EQUAL(value, wf_exact_value(&backward));
        CU_ASSERT_EQUAL(value, wf_exact_value(&merged));
        /* Taking every term away again leaves nothing. */
        for (uint64_t i = 0; i < COUNT; i++)
            wf_exact_add(&merged, -term(round, i));
        CU_ASSERT_EQUAL(wf_exact_value(&merged), 0.0);
    }
}

__extension__ typedef __int128 int128;

/* Integers of up to 100 bits in units of 2^-60, which __int128 adds exactly. */
static void agrees_with_integers(void)
{
    for (uint64_t round = 0; round < 32; round++) {
        int128 total = 0;
        wf_exact_sum acc = {0};

        for (uint64_t i = 0; i < 1000; i++) {
            int64_t x = (int64_t)wf_random_below(7, round, 2 * i, (uint64_t)1 << 53);
            int shift = (int)wf_random_below(7, round, 2 * i + 1, 50);

            x = round % 2 && i % 2 ? -x : x;
            total += (int128)x * ((int64_t)1 << shift);
            wf_exact_add(&acc, ldexp((double)x, shift - 60));
        }
        CU_ASSERT_EQUAL(wf_exact_value(&acc), ldexp((double)total, -60));
    }
}

/* An accumulator that says it is nearly full settles its carries and goes on. */
static void carries_are_settled(void)
{
    wf_exact_sum acc = {0}, other;
    double each = 0x1.fffffffffffffp0;

    for (int i = 0; i < 1000; i++) {
        acc.added = ((int64_t)1 << 30) - i % 3 - 1;
        wf_exact_add(&acc, each);
        CU_ASSERT_TRUE(acc.added < (int64_t)1 << 30);
    }
    CU_ASSERT_EQUAL(wf_exact_value(&acc), SUM(1000.0 * each));
    /* Doubling 40 times by merging with itself: more than 2^40 additions. */
    for (int i = 0; i < 40; i++) {
        other = acc;
        wf_exact_merge(&acc, &other);
        CU_ASSERT_TRUE(acc.added < (int64_t)1 << 31);
    }
    CU_ASSERT_EQUAL(wf_exact_value(&acc), ldexp(1000.0 * each, 40));
}

int main(void)
{
    static const wf_test tests[] = {{"rounds correctly", rounds_correctly},
                                    {"infinities stay", infinities_stay},
                                    {"order is irrelevant", order_is_irrelevant},
                                    {"agrees with integers", agrees_with_integers},
                                    {"carries are settled", carries_are_settled},
                                    {NULL, NULL}};

    return wf_test_main("exact_sum", tests);
}
