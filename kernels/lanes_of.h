/*
 * kernels/lanes_of.h - arithmetic on WF_LANES floats at once, for kernels/lanes.h alone, which
 * includes it once for each width that the compiler has. Lane by lane every width has the same
 * bits: each function is one order of operations that are rounded once.
 *
 * It is written over a type F with + - * / and comparisons: a vector of the compiler's, or one
 * float in C++.
 */
#define WF_F    WF_JOIN(wf_lanes, WF_LANES)
#define WF_W    WF_JOIN(wf_words, WF_LANES)
#define WF_U    WF_JOIN(wf_unsigned, WF_LANES)
#define WF_N(f) WF_JOIN(WF_JOIN(wf_lanes, WF_LANES), _##f)
#define WF_C(x) WF_N(set)(x)

#if WF_LANES > 1
typedef float WF_F __attribute__((vector_size(4 * WF_LANES)));
typedef int32_t WF_W __attribute__((vector_size(4 * WF_LANES)));
typedef uint32_t WF_U __attribute__((vector_size(4 * WF_LANES)));

WF_LANES_FUNCTION WF_F WF_N(set)(float x)
{
    return x - (WF_F){0};
}

WF_LANES_FUNCTION WF_W WF_N(bits)(WF_F x)
{
    return (WF_W)x;
}

WF_LANES_FUNCTION WF_F WF_N(of_bits)(WF_W x)
{
    return (WF_F)x;
}

WF_LANES_FUNCTION WF_F WF_N(of_words)(WF_W x)
{
    return __builtin_convertvector(x, WF_F);
}

/* Returns a in lanes whose word is -1, b where it is 0. */
WF_LANES_FUNCTION WF_F WF_N(where)(WF_W c, WF_F a, WF_F b)
{
#if WF_LANES == 8
    return (WF_F)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)c);
#elif WF_LANES == 16
    return (WF_F)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)c), (__m512)b, (__m512)a);
#else
    return (WF_F)((c & (WF_W)a) | (~c & (WF_W)b));
#endif
}

WF_LANES_FUNCTION WF_F WF_N(fma)(WF_F a, WF_F b, WF_F c)
{
#if WF_LANES == 8
    return (WF_F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif WF_LANES == 16
    return (WF_F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    for (int i = 0; i < WF_LANES; i++)
        a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
#endif
}

WF_LANES_FUNCTION WF_F WF_N(sqrt)(WF_F a)
{
#if WF_LANES == 8
    return (WF_F)_mm256_sqrt_ps((__m256)a);
#elif WF_LANES == 16
    return (WF_F)_mm512_sqrt_ps((__m512)a);
#elif defined(__SSE2__)
    return (WF_F)_mm_sqrt_ps((__m128)a);
#else
    for (int i = 0; i < WF_LANES; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

/* a > b ? a : b and a < b ? a : b: b where one is a NaN. */
WF_LANES_FUNCTION WF_F WF_N(greater)(WF_F a, WF_F b)
{
#if WF_LANES == 8
    return (WF_F)_mm256_max_ps((__m256)a, (__m256)b);
#elif WF_LANES == 16
    return (WF_F)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return WF_N(where)(a > b, a, b);
#endif
}

WF_LANES_FUNCTION WF_F WF_N(less)(WF_F a, WF_F b)
{
#if WF_LANES == 8
    return (WF_F)_mm256_min_ps((__m256)a, (__m256)b);
#elif WF_LANES == 16
    return (WF_F)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return WF_N(where)(a < b, a, b);
#endif
}
#endif

/* a * 2^n for integral n of -160 .. 160 and a of 0.5 .. 2, or NaNs; denormal results are
   rounded once. */
WF_LANES_FUNCTION WF_F WF_N(scale2)(WF_F a, WF_F n)
{
#if WF_LANES == 16
    return (WF_F)_mm512_scalef_ps((__m512)a, (__m512)n);
#else
#if WF_LANES == 8
    WF_W e = (WF_W)_mm256_cvtps_epi32((__m256)n), first = e >> 1;
#else
    WF_W e = (WF_W)((WF_U)WF_N(bits)(n + 0x1.8p23f) - 0x4B400000u), first = e >> 1;
#endif
    WF_U x = ((WF_U)first + 127u) << 23, y = ((WF_U)e - (WF_U)first + 127u) << 23;

    return a * WF_N(of_bits)((WF_W)x) * WF_N(of_bits)((WF_W)y);
#endif
}

/* The bits of wf_expf (core/numerics/math.h): within 1 ulp. */
WF_LANES_FUNCTION WF_F WF_N(exp)(WF_F x)
{
    WF_F q = WF_C(0x1.6d4e6cp-10f), n, r;

    x = WF_N(less)(WF_C(100.0f), WF_N(greater)(WF_C(-110.0f), x));
    n = WF_N(fma)(x, WF_C(0x1.715476p0f), WF_C(0x1.8p23f)) - 0x1.8p23f;
    r = WF_N(fma)(-n, WF_C(0x1.62e43p-1f), x);
    r = WF_N(fma)(n, WF_C(0x1.05c61p-29f), r);
    q = WF_N(fma)(q, r, WF_C(0x1.120c1ep-7f));
    q = WF_N(fma)(q, r, WF_C(0x1.5554e8p-5f));
    q = WF_N(fma)(q, r, WF_C(0x1.5554dcp-3f));
    q = WF_N(fma)(q, r, WF_C(0.5f));
    q = WF_N(fma)(q, r, WF_C(1.0f));
    return WF_N(scale2)(WF_N(fma)(q, r, WF_C(1.0f)), n);
}

/* x > 0 as 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); returns f. */
WF_LANES_FUNCTION WF_F WF_N(split)(WF_F x, WF_F *k)
{
    WF_F tiny = WF_N(where)(x < 0x1p-126f, WF_C(24.0f), WF_C(0.0f)), m;
    WF_U bits = (WF_U)WF_N(bits)(WF_N(where)(x < 0x1p-126f, x * 0x1p24f, x));
    WF_W e = (WF_W)(bits >> 23);

    m = WF_N(of_bits)((WF_W)((bits & 0x7FFFFFu) | 0x3F800000u));
    *k = WF_N(of_words)(e) - 127.0f - tiny;
    *k = WF_N(where)(m < 0x1.6a09e6p0f, *k, *k + 1.0f);
    return WF_N(where)(m < 0x1.6a09e6p0f, m, m * 0.5f) - 1.0f;
}

/* log of 2^k (1 + f), where s = f / (2 + f): k ln 2 + 2 s + s^3 R(s^2), R the series 2/3 + 2/5
   s^2 + .. */
WF_LANES_FUNCTION WF_F WF_N(log_series)(WF_F t)
{
    WF_F y = WF_C(0x1.745d18p-3f);

    y = WF_N(fma)(y, t, WF_C(0x1.c71c72p-3f));
    y = WF_N(fma)(y, t, WF_C(0x1.24924ap-2f));
    y = WF_N(fma)(y, t, WF_C(0x1.99999ap-2f));
    return WF_N(fma)(y, t, WF_C(0x1.555556p-1f));
}

/* Within 2 ulp; -inf for a zero, a NaN below. */
WF_LANES_FUNCTION WF_F WF_N(log)(WF_F x)
{
    WF_F k, f = WF_N(split)(x, &k), s = f / (f + 2.0f), t = s * s, y = WF_N(log_series)(t);

    y = WF_N(fma)(y * t, s, s + s);
    y = WF_N(fma)(-k, WF_C(0x1.05c61p-29f), y);
    y = WF_N(fma)(k, WF_C(0x1.62e43p-1f), y);
    y = WF_N(where)(x < __builtin_inff(), y, x);
    y = WF_N(where)(x < 0.0f, WF_C(__builtin_nanf("")), y);
    return WF_N(where)(x == 0.0f, WF_C(-__builtin_inff()), y);
}

/* The bits of wf_tanhf: within 2 ulp. */
WF_LANES_FUNCTION WF_F WF_N(tanh)(WF_F x)
{
    WF_W sign = (WF_W)((WF_U)WF_N(bits)(x) & 0x80000000u);
    WF_F a = WF_N(of_bits)((WF_W)((WF_U)WF_N(bits)(x) & 0x7FFFFFFFu)), s = x * x, far;
    WF_F p = WF_C(-0x1.b03648p-8f);

    far = 1.0f - 2.0f / (WF_N(exp)(a * 2.0f) + 1.0f);
    p = WF_N(fma)(p, s, WF_C(0x1.5cf38cp-6f));
    p = WF_N(fma)(p, s, WF_C(-0x1.b99a86p-5f));
    p = WF_N(fma)(p, s, WF_C(0x1.110fc8p-3f));
    p = WF_N(fma)(p, s, WF_C(-0x1.555554p-2f));
    a = WF_N(where)(a < 0.55f, WF_N(fma)(p * s, a, a), far);
    return WF_N(of_bits)(WF_N(bits)(a) | sign);
}

/* 1 / (1 + exp(-x)) */
WF_LANES_FUNCTION WF_F WF_N(sigmoid)(WF_F x)
{
    return 1.0f / (1.0f + WF_N(exp)(-x));
}

/*
 * silu and gelu are x times a sigmoid, since 1/2 (1 + tanh u) = 1 / (1 + exp(-2 u)): small
 * values keep their relative accuracy where 1 + tanh would cancel.
 */
WF_LANES_FUNCTION WF_F WF_N(silu)(WF_F x)
{
    return x / (1.0f + WF_N(exp)(-x));
}

WF_LANES_FUNCTION WF_F WF_N(silu_grad)(WF_F x, WF_F dy)
{
    WF_F s = WF_N(sigmoid)(x);

    return dy * WF_N(fma)(x * s, 1.0f - s, s);
}

/* x^2, no more than 10^4: gelu is x or 0 long before |x| = 100, and inf * 0 must not arise. */
WF_LANES_FUNCTION WF_F WF_N(gelu_square)(WF_F x)
{
    return WF_N(less)(WF_C(1e4f), x * x);
}

/* 2 u = x (A + B x^2), A = 2 sqrt(2/pi) and B = 0.044715 A */
WF_LANES_FUNCTION WF_F WF_N(gelu_argument)(WF_F x, WF_F square)
{
    return x * WF_N(fma)(square, WF_C(0x1.2444f2p-4f), WF_C(0x1.988454p0f));
}

WF_LANES_FUNCTION WF_F WF_N(gelu)(WF_F x)
{
    return x / (1.0f + WF_N(exp)(-WF_N(gelu_argument)(x, WF_N(gelu_square)(x))));
}

WF_LANES_FUNCTION WF_F WF_N(gelu_grad)(WF_F x, WF_F dy)
{
    WF_F square = WF_N(gelu_square)(x), s = WF_N(sigmoid)(WF_N(gelu_argument)(x, square));
    WF_F t = WF_N(fma)(square, WF_C(0x1.b6676cp-3f), WF_C(0x1.988454p0f));

    return dy * WF_N(fma)(x * s * (1.0f - s), t, s);
}

WF_LANES_FUNCTION WF_F WF_N(abs)(WF_F x)
{
    return WF_N(of_bits)((WF_W)((WF_U)WF_N(bits)(x) & 0x7FFFFFFFu));
}

/* The greater and the lesser of two, a NaN where one is. */
WF_LANES_FUNCTION WF_F WF_N(max)(WF_F a, WF_F b)
{
    return WF_N(where)(a > b, a, WF_N(where)(a == a, b, a));
}

WF_LANES_FUNCTION WF_F WF_N(min)(WF_F a, WF_F b)
{
    return WF_N(where)(a < b, a, WF_N(where)(a == a, b, a));
}

/* a^y for a > 0: y log a as a sum p + low, e^p (1 + low). The logarithm is a sum too: k ln 2 in
   two parts, the first exact, 2 s with what its division left, and the series, which is small
   beside them. */
WF_LANES_FUNCTION WF_F WF_N(pow_positive)(WF_F a, WF_F y)
{
    WF_F k, f = WF_N(split)(a, &k), d = f + 2.0f, d_low = f - (d - 2.0f);
    WF_F s = f / d, s_low = (WF_N(fma)(-s, d, f) - s * d_low) / d, t = s * s;
    WF_F first = k * 0x1.62ep-1f, sum = first + (s + s), back = sum - first, p, low;

    low = (first - (sum - back)) + ((s + s) - back);
    low = low +
          WF_N(fma)(k, WF_C(0x1.0bfbe8p-15f), (s_low + s_low) + s * t * WF_N(log_series)(t));
    back = sum;
    sum = back + low;
    low = low - (sum - back);
    p = y * sum;
    low = WF_N(fma)(y, sum, -p) + y * low;
    low = WF_N(where)(WF_N(abs)(p) < 200.0f, low, WF_C(0.0f));
    p = WF_N(exp)(p);
    return WF_N(where)(p < __builtin_inff(), WF_N(fma)(p, low, p), p);
}

/* x^y within 4 ulp: 1 where y is 0 or x is 1; below zero an integral y alone has a value. */
WF_LANES_FUNCTION WF_F WF_N(pow)(WF_F x, WF_F y)
{
    WF_F a = WF_N(abs)(x), size = WF_N(abs)(y), zero = WF_C(0.0f), inf = WF_C(__builtin_inff());
    WF_F whole = WF_N(where)(size < 0x1p23f, (size + 0x1p23f) - 0x1p23f, size),
         half = size * 0.5f;
    WF_F halves = WF_N(where)(half < 0x1p23f, (half + 0x1p23f) - 0x1p23f, half);
    WF_F r = WF_N(pow_positive)(a, y), big = WF_N(where)(y > 0.0f, inf, zero);

    r = WF_N(where)(a == 0.0f, WF_N(where)(y > 0.0f, zero, inf), r);
    r = WF_N(where)(a == 1.0f, WF_C(1.0f), r);
    r = WF_N(where)(a == inf, big, r);
    r = WF_N(where)(halves == half, r, WF_N(where)(WF_N(bits)(x) < 0, -r, r));
    r = WF_N(where)((x < 0.0f) & (a < inf) & (whole != size), WF_C(__builtin_nanf("")), r);
    r = WF_N(where)(x == x, r, x);
    r = WF_N(where)(y == y, r, y);
    r = WF_N(where)(x == 1.0f, WF_C(1.0f), r);
    return WF_N(where)(y == 0.0f, WF_C(1.0f), r);
}

#if WF_LANES > 1
/* Runs `body` over n elements of n_in arrays: a vector of each at a time, the last one filled
   up with zeros, in arrays of its own. */
WF_LANES_FUNCTION void WF_N(run)(int n_in, int n_numbers, int n_out,
                                 void (*body)(const WF_F *x, const WF_F *number, WF_F *y),
                                 const float *const *in, const float *number, float *const *out,
                                 int64_t n)
{
    const float *from[8];
    float *to[4], rest_in[8][WF_LANES], rest_out[4][WF_LANES];
    WF_F c[4], x[8], y[4];
    int64_t rest = n % WF_LANES, end = n - rest;

    WF_LANES_UNROLL
    for (int k = 0; k < n_numbers; k++)
        c[k] = WF_N(set)(number[k]);
    WF_LANES_UNROLL
    for (int k = 0; k < n_in; k++)
        from[k] = in[k];
    WF_LANES_UNROLL
    for (int k = 0; k < n_out; k++)
        to[k] = out[k];
    for (bool last = false;; last = true) {
        WF_LANES_UNROLL_TWICE
        for (int64_t i = 0; i < end; i += WF_LANES) {
            WF_LANES_UNROLL
            for (int k = 0; k < n_in; k++)
                __builtin_memcpy(&x[k], from[k] + i, sizeof x[k]);
            body(x, c, y);
            WF_LANES_UNROLL
            for (int k = 0; k < n_out; k++)
                __builtin_memcpy(to[k] + i, &y[k], sizeof y[k]);
        }
        if (last || rest == 0)
            break;
        for (int k = 0; k < n_in; k++) {
            __builtin_memset(rest_in[k], 0, sizeof rest_in[k]);
            __builtin_memcpy(rest_in[k], in[k] + end, (size_t)rest * sizeof(float));
            from[k] = rest_in[k];
        }
        for (int k = 0; k < n_out; k++)
            to[k] = rest_out[k];
        end = WF_LANES;
    }
    for (int k = 0; k < n_out && rest; k++)
        __builtin_memcpy(out[k] + (n - rest), rest_out[k], (size_t)rest * sizeof(float));
}
#endif

#undef WF_F
#undef WF_W
#undef WF_U
#undef WF_N
#undef WF_C
