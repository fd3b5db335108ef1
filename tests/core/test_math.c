/*
 * tests/core/test_math.c - our functions against the C library's, in units in the last place,
 * at special values, and against a checksum of their bits that every machine and compiler must
 * meet.
 *
 * ctest: builds plain
 */
#define WF_ISA portable
#include "core/numerics/math.h"
#include "kernels/cpu/vec_math_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A sanitizer's build sees a tenth of all arguments. */
enum {
    BETWEEN_FLOATS = UNDER_SANITIZER ? 10007 : 1009,
    DRAWS = UNDER_SANITIZER ? 20000 : 200000
};

static uint64_t state;

static uint64_t next_bits(void)
{
    uint64_t x = state += 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double between(double low, double high)
{
    return low + (high - low) * (double)(next_bits() >> 11) * 0x1p-53;
}

static double any_double(void)
{
    uint64_t bits = next_bits();
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* A format of `digits` bits; its infinity stands where the next number would, at 2^top. */
typedef struct format {
    int digits, least, top;
} format;

static const format single_format = {24, -149, 128}, double_format = {53, -1074, 1024};

static long double bounded(long double x, long double bound)
{
    return x > bound ? bound : x < -bound ? -bound : x;
}

/* Distance in units of the last place of the true value. */
static double ulps(long double is, long double right, format f)
{
    long double bound = ldexpl(1.0L, f.top);
    int exponent;

    if (isnan(right) || isnan(is))
        return isnan(right) && isnan(is) ? 0.0 : 1e9;
    is = bounded(is, bound);
    right = bounded(right, bound);
    frexpl(right, &exponent);
    exponent = exponent - f.digits < f.least ? f.least : exponent - f.digits;
    return (double)(fabsl(is - right) / ldexpl(1.0L, exponent));
}

static double float_ulps(float is, double right)
{
    return ulps((long double)is, (long double)right, single_format);
}

static double double_ulps(double is, long double right)
{
    return ulps((long double)is, right, double_format);
}

/* Every so-manieth float of all. */
static double worst_float(float (*ours)(float), double (*right)(double))
{
    double worst = 0.0;

    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += BETWEEN_FLOATS) {
        float x = float_of((uint32_t)bits);

        worst = fmax(worst, float_ulps(ours(x), right((double)x)));
    }
    return worst;
}

static double worst_between(double (*ours)(double), long double (*right)(long double),
                            double low, double high)
{
    double worst = 0.0;

    for (int i = 0; i < DRAWS; i++) {
        double x = between(low, high);

        worst = fmax(worst, double_ulps(ours(x), right((long double)x)));
    }
    return worst;
}

static double sine_in_range(double x)
{
    return fabs(x) <= 0x1p40 ? sin(x) : (double)NAN;
}

static double cosine_in_range(double x)
{
    return fabs(x) <= 0x1p40 ? cos(x) : (double)NAN;
}

static void floats_are_close(void)
{
    CU_ASSERT_TRUE(worst_float(wf_expf, exp) <= 1.0);
    CU_ASSERT_TRUE(worst_float(wf_tanhf, tanh) <= 2.0);
    CU_ASSERT_TRUE(worst_float(wf_logf, log) <= 0.51);
    CU_ASSERT_TRUE(worst_float(wf_sinf, sine_in_range) <= 0.51);
    CU_ASSERT_TRUE(worst_float(wf_cosf, cosine_in_range) <= 0.51);
}

static void doubles_are_close(void)
{
    state = 1;
    CU_ASSERT_TRUE(worst_between(wf_expd, expl, -760.0, 715.0) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_expd, expl, -1.0, 1.0) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_logd, logl, 0.0, 2.0) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_logd, logl, 0.9999, 1.0001) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_logd, logl, -1.0, 1e300) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_sind, sinl, -4.0, 4.0) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_cosd, cosl, -4.0, 4.0) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_sind, sinl, -1e6, 1e6) <= 1.0);
    CU_ASSERT_TRUE(worst_between(wf_cosd, cosl, -0x1p40, 0x1p40) <= 1.0);
    for (int i = 0; i < DRAWS; i++) {
        double x = any_double(), whole = floor(between(0.0, 1e6));

        CU_ASSERT_TRUE_FATAL(double_ulps(wf_expd(x), expl((long double)x)) <= 1.0);
        CU_ASSERT_TRUE_FATAL(double_ulps(wf_logd(x), logl((long double)x)) <= 1.0);
        CU_ASSERT_TRUE_FATAL(double_ulps(wf_sind(whole), sinl((long double)whole)) <= 1.0);
        /* Near a multiple of pi/2 all leading digits cancel. */
        x = whole * 1.5707963267948966;
        CU_ASSERT_TRUE_FATAL(double_ulps(wf_sind(x), sinl((long double)x)) <= 1.0);
        CU_ASSERT_TRUE_FATAL(double_ulps(wf_cosd(x), cosl((long double)x)) <= 1.0);
    }
}

static double pow_ulps(double x, double y)
{
    return double_ulps(wf_powd(x, y), powl((long double)x, (long double)y));
}

static void powers_are_close(void)
{
    double worst = 0.0;

    state = 2;
    for (int i = 0; i < DRAWS; i++) {
        double x = fabs(any_double());

        worst = fmax(worst, pow_ulps(x, between(-750.0, 750.0) / (fabs(log(x)) + 1e-9)));
        worst = fmax(worst, pow_ulps(between(0.9, 1.0), floor(between(0.0, 1e6))));
        worst = fmax(worst, pow_ulps(1e4, between(-1.0, 1.0)));
        worst = fmax(worst, pow_ulps(between(-100.0, 0.0), floor(between(-99.0, 99.0))));
    }
    CU_ASSERT_TRUE(worst <= 1.0);
}

static bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void specials(void)
{
    static const double value[] = {0.0,      -0.0,      1.0,
                                   -1.0,     2.0,       -2.0,
                                   3.0,      -3.0,      0.5,
                                   -0.5,     2.5,       -2.5,
                                   INFINITY, -INFINITY, NAN,
                                   1e300,    -1e300,    0x1.fffffffffffffp51,
                                   0x1p52,   -0x1p52,   -0x1.fffffffffffffp52,
                                   0x1p53,   0x1p-1074};
    const int n = (int)(sizeof(value) / sizeof(value[0]));

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double ours = wf_powd(value[i], value[j]), right = pow(value[i], value[j]);

            CU_ASSERT_TRUE(same_double(ours, right) || isfinite(right));
            CU_ASSERT_TRUE(isnan(right) || signbit(ours) == signbit(right));
            CU_ASSERT_TRUE(double_ulps(ours, (long double)right) <= 1.0);
        }
    }
    CU_ASSERT_TRUE(wf_expd(0.0) == 1.0 && wf_expd(-INFINITY) == 0.0 &&
                   wf_expd(INFINITY) > 1e308);
    CU_ASSERT_TRUE(isnan(wf_expd(NAN)) && isnan(wf_logd(NAN)) && isnan(wf_logd(-1.0)));
    CU_ASSERT_TRUE(wf_logd(0.0) == -INFINITY && wf_logd(-0.0) == -INFINITY &&
                   wf_logd(1.0) == 0.0);
    CU_ASSERT_TRUE(wf_logd(INFINITY) == INFINITY && isnan(wf_logd(-INFINITY)));
    CU_ASSERT_TRUE(same_double(wf_sind(-0.0), -0.0) && wf_cosd(0.0) == 1.0);
    CU_ASSERT_TRUE(isnan(wf_sind(INFINITY)) && isnan(wf_cosd(NAN)) && isnan(wf_sind(0x1.1p40)));
    CU_ASSERT_TRUE(wf_expf(-INFINITY) == 0.0f && isinf(wf_expf(INFINITY)) &&
                   isnan(wf_expf(NAN)));
    CU_ASSERT_EQUAL(bits_of(wf_tanhf(-0.0f)), bits_of(-0.0f));
    CU_ASSERT_TRUE(wf_tanhf(-INFINITY) == -1.0f && isnan(wf_tanhf(NAN)));
    /* Denormals are neither flushed on the way in nor on the way out. */
    CU_ASSERT_TRUE(wf_expf(-103.0f) > 0.0f && wf_expf(-103.0f) < FLT_MIN);
    CU_ASSERT_TRUE(wf_expd(-745.0) > 0.0 && wf_expd(-745.0) < DBL_MIN);
    CU_ASSERT_TRUE(fabs(wf_logd(0x1p-1074) + 744.4400719213812) < 1e-12);
    CU_ASSERT_EQUAL(bits_of(wf_tanhf(0x1p-149f)), 1);
}

/* The scalar exp is the vector's, at every 499th float of all. */
static void expf_is_the_vectors(void)
{
    int64_t different = 0;

    for (uint64_t base = 0; base < (uint64_t)1 << 32; base += V16 * 499) {
        float x[V16], y[V16];

        for (unsigned i = 0; i < V16; i++)
            x[i] = float_of((uint32_t)(base + i * 499));
        v16_store(y, v16_exp(v16_load(x)));
        for (int i = 0; i < V16; i++) {
            float right = wf_expf(x[i]);

            different += bits_of(y[i]) != bits_of(right) && !(isnan(y[i]) && isnan(right));
        }
    }
    CU_ASSERT_EQUAL(different, 0);
}

static uint64_t mix_in(uint64_t hash, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (hash ^ bits) * 0x100000001B3u;
}

static void bits_are_fixed(void)
{
    uint64_t hash = 0;

    state = 3;
    for (int i = 0; i < 20000; i++) {
        double x = between(-30.0, 30.0), y = between(0.0, 50.0), z = between(-1e6, 1e6);

        hash = mix_in(hash, wf_expd(20.0 * x));
        hash = mix_in(hash, wf_logd(y));
        hash = mix_in(hash, wf_powd(y, x));
        hash = mix_in(hash, wf_sind(z));
        hash = mix_in(hash, wf_cosd(z));
        hash = mix_in(hash, (double)wf_expf((float)(3.0 * x)));
        hash = mix_in(hash, (double)wf_tanhf((float)(0.1 * x)));
        hash = mix_in(hash, (double)wf_logf((float)y));
        hash = mix_in(hash, (double)wf_sinf((float)z));
        hash = mix_in(hash, (double)wf_cosf((float)z));
    }
    CU_ASSERT_EQUAL(hash, 0x2aa81c5b8ee61545u);
}

int main(void)
{
    static const wf_test tests[] = {{"floats within 2 ulp", floats_are_close},
                                    {"doubles within 1 ulp", doubles_are_close},
                                    {"powers within 1 ulp", powers_are_close},
                                    {"special values", specials},
                                    {"expf is the vectors' exp", expf_is_the_vectors},
                                    {"bits are the same everywhere", bits_are_fixed},
                                    {NULL, NULL}};

    return wf_test_main("math", tests);
}
