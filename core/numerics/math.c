/*
 * core/numerics/math.c - exp, log, pow, tanh, sin and cos from minimax polynomials (Horner's
 * form) after an exact reduction of the argument. Constants are in hexadecimal: the text is the
 * bits.
 *
 *     exp    x = n ln 2 + r, |r| <= 0.3466; e^r = 1 + r + r^2 q(r)
 *     log    x = 2^k (1 + f), s = f / (2 + f);
 *            log(1 + f) = 2 s + s^3 R(s^2) = f - s (f - s^2 R(s^2))
 *     pow    e^(y log x), the logarithm as a sum of two doubles
 *     sin    x = n pi/2 + r, |r| <= pi/4 as a sum of two doubles
 *     expf   as in kernels/cpu/vec_math_internal.h
 *     tanhf  x + x^3 p(x^2) for |x| < 0.55, from there 1 - 2 / (e^(2 |x|) + 1)
 */
#include "core/numerics/math.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ln 2 = LN2_HIGH + LN2_LOW + ...; a product of LN2_HIGH (40 bits) and an exponent is exact. */
#define LN2_HIGH 0x1.62e42fefa4p-1
#define LN2_LOW  -0x1.8432a1b0e2634p-43

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t bits_of_double(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double double_of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Rounds to the nearest integer, ties to even, for |x| < 2^51: 1.5 * 2^52 leaves no bits below
   1. */
static double nearest(double x)
{
    return (x + 0x1.8p52) - 0x1.8p52;
}

/* a * 2^n for |n| < 2000, in two steps, since 2^n itself may be out of range. */
static double scale2(double a, int n)
{
    int first = n / 2, second = n - first;

    a *= double_of_bits((uint64_t)(first + 1023) << 52);
    return a * double_of_bits((uint64_t)(second + 1023) << 52);
}

float wf_expf(float x)
{
    float q = 0x1.6d4e6cp-10f, n, r;
    int e, half;

    if (x != x)
        return x;
    x = x > -110.0f ? x : -110.0f;
    x = x < 100.0f ? x : 100.0f;
    n = __builtin_fmaf(x, 0x1.715476p0f, 0x1.8p23f) - 0x1.8p23f;
    r = __builtin_fmaf(-n, 0x1.62e43p-1f, x);
    r = __builtin_fmaf(n, 0x1.05c61p-29f, r);
    q = __builtin_fmaf(q, r, 0x1.120c1ep-7f);
    q = __builtin_fmaf(q, r, 0x1.5554e8p-5f);
    q = __builtin_fmaf(q, r, 0x1.5554dcp-3f);
    q = __builtin_fmaf(q, r, 0.5f);
    q = __builtin_fmaf(q, r, 1.0f);
    q = __builtin_fmaf(q, r, 1.0f);
    e = (int)n;
    half = e / 2;
    q *= float_of_bits((uint32_t)(half + 127) << 23);
    return q * float_of_bits((uint32_t)(e - half + 127) << 23);
}

float wf_tanhf(float x)
{
    float a = __builtin_fabsf(x), s = x * x, p = -0x1.b03648p-8f;

    if (a >= 0.55f) {
        a = 1.0f - 2.0f / (wf_expf(a * 2.0f) + 1.0f);
    } else {
        p = __builtin_fmaf(p, s, 0x1.5cf38cp-6f);
        p = __builtin_fmaf(p, s, -0x1.b99a86p-5f);
        p = __builtin_fmaf(p, s, 0x1.110fc8p-3f);
        p = __builtin_fmaf(p, s, -0x1.555554p-2f);
        a = __builtin_fmaf(p * s, a, a);
    }
    return __builtin_copysignf(a, x);
}

/* e^(x + low), |low| far below |x|, which is -750 .. 710. */
static double exp_sum(double x, double low)
{
    double n = nearest(x * 0x1.71547652b82fep0), q = 0x1.1f8700729fca6p-29, r, tail;

    tail = low - n * LN2_LOW;
    x -= n * LN2_HIGH;
    r = x + tail;
    tail = (x - r) + tail;
    q = q * r + 0x1.af4ef0ea612b7p-26;
    q = q * r + 0x1.27e4cfa7250d9p-22;
    q = q * r + 0x1.71de019c08da7p-19;
    q = q * r + 0x1.a01a01ab9b079p-16;
    q = q * r + 0x1.a01a01ac22865p-13;
    q = q * r + 0x1.6c16c16c156a1p-10;
    q = q * r + 0x1.111111111004bp-7;
    q = q * r + 0x1.5555555555557p-5;
    q = q * r + 0x1.5555555555557p-3;
    q = q * r + 0.5;
    return scale2(1.0 + (r + (r * r * q + tail)), (int)n);
}

double wf_expd(double x)
{
    if (x != x)
        return x;
    if (x > 710.0)
        return __builtin_inf();
    return exp_sum(x > -750.0 ? x : -750.0, 0.0);
}

/* x > 0 and finite is 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
static double split(double x, double *f)
{
    uint64_t bits = bits_of_double(x), mantissa;
    int k = -1023;

    if (bits >> 52 == 0) {
        bits = bits_of_double(x * 0x1p54);
        k -= 54;
    }
    k += (int)(bits >> 52);
    mantissa = bits & 0xFFFFFFFFFFFFFu;
    if (mantissa >= 0x6A09E667F3BCDu) { /* the mantissa of sqrt(2) */
        *f = double_of_bits(mantissa | (uint64_t)1022 << 52) - 1.0;
        k++;
    } else {
        *f = double_of_bits(mantissa | (uint64_t)1023 << 52) - 1.0;
    }
    return (double)k;
}

double wf_logd(double x)
{
    double k, f, s, z, q = 0x1.1023b86d5d38dp-3;

    if (!(x > 0.0))
        return x == 0.0 ? -__builtin_inf() : __builtin_nan("");
    if (x == __builtin_inf())
        return x;
    k = split(x, &f);
    s = f / (2.0 + f);
    z = s * s;
    q = q * z + 0x1.0f4a1544c3517p-3;
    q = q * z + 0x1.3b215933c2fc5p-3;
    q = q * z + 0x1.745cdb7521fa2p-3;
    q = q * z + 0x1.c71c725c5ee56p-3;
    q = q * z + 0x1.249249242ee1bp-2;
    q = q * z + 0x1.9999999999d59p-2;
    q = q * z + 0x1.5555555555555p-1;
    return k * LN2_HIGH - ((s * (f - z * q) - k * LN2_LOW) - f);
}

/* Computes a + b without loss, as the rounded sum and *rest, its error. */
static double two_sum(double a, double b, double *rest)
{
    double sum = a + b, c = sum - a;

    *rest = (a - (sum - c)) + (b - c);
    return sum;
}

/* a * b without loss. */
static double two_product(double a, double b, double *rest)
{
    double product = a * b;

    *rest = __builtin_fma(a, b, -product);
    return product;
}

/* Computes log x as a sum of two doubles: the terms 2 s and (2/3) s^3 in pairs, the others in
   one. */
static double log_sum(double x, double *low)
{
    double f, k = split(x, &f), d = 2.0 + f, d_low = f - (d - 2.0);
    double s = f / d, s_low = (__builtin_fma(-s, d, f) - s * d_low) / d;
    double z_low, z = two_product(s, s, &z_low), cube, cube_low, third, third_low;
    double q = 0x1.da9000072fdbp-4, sum, rest, rest2;

    z_low += 2.0 * s * s_low;
    cube = two_product(s, z, &cube_low);
    cube_low += s * z_low + s_low * z;
    third = two_product(cube, 0x1.5555555555555p-1, &third_low);
    third_low += cube * 0x1.5555555555555p-55 + cube_low * 0x1.5555555555555p-1;
    q = q * z + 0x1.e01b9e2a1bb45p-4;
    q = q * z + 0x1.11154601f4b17p-3;
    q = q * z + 0x1.3b13aa0342a94p-3;
    q = q * z + 0x1.745d173c57417p-3;
    q = q * z + 0x1.c71c71c74d1cp-3;
    q = q * z + 0x1.24924924922fcp-2;
    q = q * z + 0x1.999999999999ap-2;

    sum = two_sum(k * LN2_HIGH, 2.0 * s, &rest);
    sum = two_sum(sum, third, &rest2);
    rest += rest2 + (k * LN2_LOW + (2.0 * s_low + (third_low + cube * z * q)));
    return two_sum(sum, rest, low);
}

/* x^y for x >= 0 and y other than 0 and NaN. */
static double pow_positive(double x, double y)
{
    double low, log_x, product, rest;

    if (x == 1.0)
        return x;
    if (x == 0.0 || x == __builtin_inf())
        return (x == 0.0) == (y > 0.0) ? 0.0 : __builtin_inf();
    log_x = log_sum(x, &low);
    product = y * log_x;
    if (product > 710.0)
        return __builtin_inf();
    if (product < -750.0)
        return 0.0;
    rest = __builtin_fma(y, log_x, -product) + y * low;
    return exp_sum(product, rest);
}

double wf_powd(double x, double y)
{
    double size = __builtin_fabs(y), whole;
    bool negative = bits_of_double(x) >> 63 != 0, odd;

    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return __builtin_nan("");
    if (!negative)
        return pow_positive(x, y);

    /* A double of 2^53 and more is an even integer. */
    whole = size < 0x1p52 ? nearest(size) : size;
    odd = size < 0x1p53 && whole - 2.0 * nearest(whole / 2.0) != 0.0;
    if (whole != size && x != 0.0 && x != -__builtin_inf())
        return __builtin_nan("");
    odd = odd && whole == size;
    return odd ? -pow_positive(-x, y) : pow_positive(-x, y);
}

/*
 * r + low = x - n pi/2, n mod 4 returned, for |x| <= 2^40. pi/2 is a sum of three doubles: the
 * first fma is exact (its result is below 1 and a multiple of 2^-52), the second product is
 * kept as a pair.
 */
static unsigned reduce(double x, double *r, double *low)
{
    double n, high, product, rest;

    if (__builtin_fabs(x) <= 0x1.921fb54442d18p-1) {
        *r = x;
        *low = 0.0;
        return 0;
    }
    n = nearest(x * 0x1.45f306dc9c883p-1);
    high = __builtin_fma(-n, 0x1.921fb54442d18p0, x);
    product = two_product(n, 0x1.1a62633145c07p-54, &rest);
    high = two_sum(high, -product, low);
    rest += n * -0x1.f1976b7ed8fbcp-110;
    *r = two_sum(high, *low - rest, low);
    return (unsigned)((int64_t)n & 3);
}

/* sin(r + low) = r + (r^3 P(r^2) + low cos r) */
static double sine_near_zero(double r, double low)
{
    double z = r * r, p = 0x1.5e118c8674344p-33;

    p = p * z - 0x1.ae6020fd65d67p-26;
    p = p * z + 0x1.71de37b1c6854p-19;
    p = p * z - 0x1.a01a019ea12efp-13;
    p = p * z + 0x1.1111111110c83p-7;
    p = p * z - 0x1.5555555555555p-3;
    if (r == 0.0)
        return r; /* the sign is that of x */
    return r + (r * z * p + low * (1.0 - 0.5 * z));
}

/* cos(r + low) = 1 - r^2 / 2 + (r^4 P(r^2) - low sin r) */
static double cosine_near_zero(double r, double low)
{
    double z = r * r, p = -0x1.9073d27e1f37dp-37, half = 0.5 * z, sum = 1.0 - half;

    p = p * z + 0x1.1eeb584e7aa5bp-29;
    p = p * z - 0x1.27e4fa036b9b5p-22;
    p = p * z + 0x1.a01a019f38aeep-16;
    p = p * z - 0x1.6c16c16c168ccp-10;
    p = p * z + 0x1.5555555555555p-5;
    return sum + (((1.0 - sum) - half) + (z * z * p - r * low));
}

void wf_sincos(double x, double *sine, double *cosine)
{
    double r, low, s, c;
    unsigned quadrant;

    if (!(__builtin_fabs(x) <= 0x1p40)) {
        *sine = *cosine = __builtin_nan("");
        return;
    }
    quadrant = reduce(x, &r, &low);
    s = sine_near_zero(r, low);
    c = cosine_near_zero(r, low);
    *sine = quadrant & 1 ? c : s;
    *cosine = quadrant & 1 ? s : c;
    if (quadrant & 2)
        *sine = -*sine;
    if (quadrant == 1 || quadrant == 2)
        *cosine = -*cosine;
}

double wf_sind(double x)
{
    double sine, cosine;

    wf_sincos(x, &sine, &cosine);
    return sine;
}

double wf_cosd(double x)
{
    double sine, cosine;

    wf_sincos(x, &sine, &cosine);
    return cosine;
}

float wf_logf(float x)
{
    return (float)wf_logd((double)x);
}

float wf_sinf(float x)
{
    return (float)wf_sind((double)x);
}

float wf_cosf(float x)
{
    return (float)wf_cosd((double)x);
}
