/* kernels/cpu/vec_portable_int_internal.h - vectors of integers as arrays, and conversions from
   and to floats; the end of vec_portable_internal.h. */
#ifndef WF_KERNELS_CPU_VEC_PORTABLE_INT_INTERNAL_H
#define WF_KERNELS_CPU_VEC_PORTABLE_INT_INTERNAL_H

static inline v16u v16u_set1(uint32_t x)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = x;
    return y;
}

static inline v16u v16u_load(const uint32_t *p)
{
    v16u y;

    memcpy(y.u, p, sizeof(y.u));
    return y;
}

static inline v16u v16u_load_quarters(const void *from, int64_t stride)
{
    v16u y;

    for (int q = 0; q < 4; q++)
        memcpy(y.u + 4 * q, (const char *)from + 4 * q * stride, sizeof(y.u) / 4);
    return y;
}

static inline v16u v16u_load_half(const uint16_t *p, int64_t n)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = i < n ? p[i] : 0;
    return y;
}

static inline void v16u_store(uint32_t *p, v16u a)
{
    memcpy(p, a.u, sizeof(a.u));
}

static inline v16u v16u_add(v16u a, v16u b)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] + b.u[i];
    return y;
}

static inline v16u v16u_xor(v16u a, v16u b)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] ^ b.u[i];
    return y;
}

static inline v16u v16u_and(v16u a, v16u b)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] & b.u[i];
    return y;
}

static inline v16u v16u_or(v16u a, v16u b)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] | b.u[i];
    return y;
}

static inline v16u v16u_left(v16u a, unsigned n)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] << n;
    return y;
}

static inline v16u v16u_right(v16u a, unsigned n)
{
    v16u y;

    for (int i = 0; i < 16; i++)
        y.u[i] = a.u[i] >> n;
    return y;
}

static inline v16 v16_of_int(v16u a)
{
    v16 y;

    for (int i = 0; i < 16; i++)
        y.f[i] = (float)(int32_t)a.u[i];
    return y;
}

static inline v16 v16_of_bits(v16u a)
{
    v16 y;

    memcpy(y.f, a.u, sizeof(y.f));
    return y;
}

static inline v16u v16u_of_bits(v16 a)
{
    v16u y;

    memcpy(y.u, a.f, sizeof(y.u));
    return y;
}

static inline v16m v16u_ge(v16u a, v16u b)
{
    v16m y;

    for (int i = 0; i < 16; i++)
        y.b[i] = a.u[i] >= b.u[i];
    return y;
}

static inline v16u v16u_mul(v16u a, v16u b, v16u *high)
{
    v16u low;

    for (int i = 0; i < 16; i++) {
        uint64_t product = (uint64_t)a.u[i] * b.u[i];

        low.u[i] = (uint32_t)product;
        high->u[i] = (uint32_t)(product >> 32);
    }
    return low;
}

static inline void v16u_transpose4(v16u a[4])
{
    for (int group = 0; group < 16; group += 4) {
        for (int i = 0; i < 4; i++) {
            for (int j = i + 1; j < 4; j++) {
                uint32_t t = a[i].u[group + j];

                a[i].u[group + j] = a[j].u[group + i];
                a[j].u[group + i] = t;
            }
        }
    }
}

static inline v16u v16u_of(v16 a)
{
    v16u y;

    memcpy(&y, &a, sizeof(y));
    return y;
}

static inline v16 v16_of(v16u a)
{
    v16 y;

    memcpy(&y, &a, sizeof(y));
    return y;
}

static inline void v16_transpose_quads(v16 a[4])
{
    v16 from[4];

    memcpy(from, a, sizeof(from));
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++)
            memcpy(a[i].f + 4 * j, from[j].f + 4 * i, 4 * sizeof(float));
    }
}

#endif
