/* kernels/cpu/vec_neon_int_internal.h - vectors of integers in 128-bit registers, and
   conversions from and to floats; the end of vec_neon_internal.h. */
#ifndef WF_KERNELS_CPU_VEC_NEON_INT_INTERNAL_H
#define WF_KERNELS_CPU_VEC_NEON_INT_INTERNAL_H

static inline v16u v16u_set1(uint32_t x)
{
    uint32x4_t q = vdupq_n_u32(x);

    return (v16u){q, q, q, q};
}

static inline v16u v16u_load(const uint32_t *p)
{
    return (v16u){vld1q_u32(p), vld1q_u32(p + 4), vld1q_u32(p + 8), vld1q_u32(p + 12)};
}

static inline v16u v16u_load_quarters(const void *from, int64_t stride)
{
    const uint32_t *row = (const uint32_t *)from;
    int64_t step = 4 * stride / (int64_t)sizeof *row;

    return (v16u){vld1q_u32(row), vld1q_u32(row + step), vld1q_u32(row + 2 * step),
                  vld1q_u32(row + 3 * step)};
}

static inline v16u v16u_load_half(const uint16_t *p, int64_t n)
{
    uint16_t some[16] = {0};
    uint16x8_t low, high;

    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            some[i] = p[i];
        p = some;
    }
    low = vld1q_u16(p);
    high = vld1q_u16(p + 8);
    return (v16u){vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                  vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
}

static inline void v16u_store(uint32_t *p, v16u x)
{
    vst1q_u32(p, x.a);
    vst1q_u32(p + 4, x.b);
    vst1q_u32(p + 8, x.c);
    vst1q_u32(p + 12, x.d);
}

static inline v16u v16u_add(v16u x, v16u y)
{
    return (v16u){vaddq_u32(x.a, y.a), vaddq_u32(x.b, y.b), vaddq_u32(x.c, y.c),
                  vaddq_u32(x.d, y.d)};
}

static inline v16u v16u_xor(v16u x, v16u y)
{
    return (v16u){veorq_u32(x.a, y.a), veorq_u32(x.b, y.b), veorq_u32(x.c, y.c),
                  veorq_u32(x.d, y.d)};
}

static inline v16u v16u_and(v16u x, v16u y)
{
    return (v16u){vandq_u32(x.a, y.a), vandq_u32(x.b, y.b), vandq_u32(x.c, y.c),
                  vandq_u32(x.d, y.d)};
}

static inline v16u v16u_or(v16u x, v16u y)
{
    return (v16u){vorrq_u32(x.a, y.a), vorrq_u32(x.b, y.b), vorrq_u32(x.c, y.c),
                  vorrq_u32(x.d, y.d)};
}

/* Shifts by a negative number go to the right. */
static inline v16u shifted(v16u x, int n)
{
    int32x4_t by = vdupq_n_s32(n);

    return (v16u){vshlq_u32(x.a, by), vshlq_u32(x.b, by), vshlq_u32(x.c, by),
                  vshlq_u32(x.d, by)};
}

static inline v16u v16u_left(v16u x, unsigned n)
{
    return shifted(x, (int)n);
}

static inline v16u v16u_right(v16u x, unsigned n)
{
    return shifted(x, -(int)n);
}

static inline v16u v16u_of(v16 x)
{
    return (v16u){vreinterpretq_u32_f32(x.a), vreinterpretq_u32_f32(x.b),
                  vreinterpretq_u32_f32(x.c), vreinterpretq_u32_f32(x.d)};
}

static inline v16 v16_of(v16u x)
{
    return (v16){vreinterpretq_f32_u32(x.a), vreinterpretq_f32_u32(x.b),
                 vreinterpretq_f32_u32(x.c), vreinterpretq_f32_u32(x.d)};
}

static inline v16 v16_of_bits(v16u x)
{
    return v16_of(x);
}

static inline v16u v16u_of_bits(v16 x)
{
    return v16u_of(x);
}

static inline float32x4_t of_int_quad(uint32x4_t x)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(x));
}

static inline v16 v16_of_int(v16u x)
{
    return (v16){of_int_quad(x.a), of_int_quad(x.b), of_int_quad(x.c), of_int_quad(x.d)};
}

static inline v16m v16u_ge(v16u x, v16u y)
{
    return (v16m){vcgeq_u32(x.a, y.a), vcgeq_u32(x.b, y.b), vcgeq_u32(x.c, y.c),
                  vcgeq_u32(x.d, y.d)};
}

static inline uint32x4_t mul_quad(uint32x4_t x, uint32x4_t y, uint32x4_t *high)
{
    uint32x4_t low2 = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(y)));
    uint32x4_t high2 = vreinterpretq_u32_u64(vmull_high_u32(x, y));

    *high = vuzp2q_u32(low2, high2);
    return vuzp1q_u32(low2, high2);
}

static inline v16u v16u_mul(v16u x, v16u y, v16u *high)
{
    v16u low;

    low.a = mul_quad(x.a, y.a, &high->a);
    low.b = mul_quad(x.b, y.b, &high->b);
    low.c = mul_quad(x.c, y.c, &high->c);
    low.d = mul_quad(x.d, y.d, &high->d);
    return low;
}

static inline void transpose4_quad(uint32x4_t *x, uint32x4_t *y, uint32x4_t *z, uint32x4_t *w)
{
    uint64x2_t xy0 = vreinterpretq_u64_u32(vtrn1q_u32(*x, *y));
    uint64x2_t xy1 = vreinterpretq_u64_u32(vtrn2q_u32(*x, *y));
    uint64x2_t zw0 = vreinterpretq_u64_u32(vtrn1q_u32(*z, *w));
    uint64x2_t zw1 = vreinterpretq_u64_u32(vtrn2q_u32(*z, *w));

    *x = vreinterpretq_u32_u64(vtrn1q_u64(xy0, zw0));
    *y = vreinterpretq_u32_u64(vtrn1q_u64(xy1, zw1));
    *z = vreinterpretq_u32_u64(vtrn2q_u64(xy0, zw0));
    *w = vreinterpretq_u32_u64(vtrn2q_u64(xy1, zw1));
}

static inline void v16u_transpose4(v16u x[4])
{
    transpose4_quad(&x[0].a, &x[1].a, &x[2].a, &x[3].a);
    transpose4_quad(&x[0].b, &x[1].b, &x[2].b, &x[3].b);
    transpose4_quad(&x[0].c, &x[1].c, &x[2].c, &x[3].c);
    transpose4_quad(&x[0].d, &x[1].d, &x[2].d, &x[3].d);
}

#endif
