/*
 * kernels/cpu/simd/optimizer.c - parameter updates in one pass, and the chunk of gradient
 * norms.
 */
#include "core/numerics/dynamic8.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_internal.h"

typedef struct adamw_lanes {
    v16 p, m, v;
} adamw_lanes;

/*
 * g = grad * grad_scale
 * m = fma(1 - beta1, g, beta1 * m)
 * v = fma((1 - beta2) * g, g, beta2 * v)
 * u = (m * bias1) / (sqrt(v * bias2) + eps)
 * p = fma(-lr, fma(weight_decay, p, u), p)
 */
static inline adamw_lanes adamw(adamw_lanes s, v16 grad, const wf_adamw_constants *c)
{
    v16 g = v16_mul(grad, v16_set1(c->grad_scale)), u, root;

    s.m = v16_fma(v16_set1(1.0f - c->beta1), g, v16_mul(v16_set1(c->beta1), s.m));
    s.v = v16_fma(v16_mul(v16_set1(1.0f - c->beta2), g), g, v16_mul(v16_set1(c->beta2), s.v));
    root = v16_sqrt(v16_mul(s.v, v16_set1(c->bias2)));
    u = v16_div(v16_mul(s.m, v16_set1(c->bias1)), v16_add(root, v16_set1(c->eps)));
    u = v16_fma(v16_set1(c->weight_decay), s.p, u);
    s.p = v16_fnma(v16_set1(c->lr), u, s.p);
    return s;
}

void WF_ISA_NAME(wf_adamw)(float *p, const float *g, float *m, float *v, int64_t n,
                           const wf_adamw_constants *c)
{
    const wf_adamw_constants k = *c; /* a copy, which the stores below cannot change */

    for (int64_t i = 0; i < n; i += V16) {
        int64_t t = n - i;
        adamw_lanes s = {v16_load_n(p + i, t), v16_load_n(m + i, t), v16_load_n(v + i, t)};

        s = adamw(s, v16_load_n(g + i, t), &k);
        v16_store_n(p + i, s.p, t);
        v16_store_n(m + i, s.m, t);
        v16_store_n(v + i, s.v, t);
    }
}

/* Updates a block of a row whose moments are stored in 8 bits: signed ones and unsigned
   ones. */
void WF_ISA_NAME(wf_adamw8)(float *p, const float *g, uint8_t *m8, uint8_t *v8, int64_t n,
                            const struct wf_dynamic8_map *map, const wf_adamw_constants *c)
{
    float m[WF_DYNAMIC8_BLOCK], v[WF_DYNAMIC8_BLOCK];

    wf_dynamic8_widen_block(map[0].level, m8, n, m);
    wf_dynamic8_widen_block(map[1].level, v8, n, v);
    WF_ISA_NAME(wf_adamw)(p, g, m, v, n, c);
    wf_dynamic8_pack_block(&map[0], m, n, m8);
    wf_dynamic8_pack_block(&map[1], v, n, v8);
}

/*
 * g = fma(weight_decay, p, grad * grad_scale); with momentum m = fma(beta1, m, g) and g = m;
 * p = fma(-lr, g, p). Without momentum m is not touched and may be NULL.
 */
void WF_ISA_NAME(wf_sgd)(float *p, const float *g, float *m, int64_t n,
                         const wf_adamw_constants *c)
{
    v16 lr = v16_set1(c->lr), decay = v16_set1(c->weight_decay), beta = v16_set1(c->beta1);
    v16 scale = v16_set1(c->grad_scale);
    bool momentum = c->beta1 > 0.0f;

    for (int64_t i = 0; i < n; i += V16) {
        int64_t t = n - i;
        v16 x = v16_load_n(p + i, t);
        v16 u = v16_fma(decay, x, v16_mul(v16_load_n(g + i, t), scale));

        if (momentum) {
            u = v16_fma(beta, v16_load_n(m + i, t), u);
            v16_store_n(m + i, u, t);
        }
        v16_store_n(p + i, v16_fnma(lr, u, x), t);
    }
}

/* Squares are exact in double; element i is added to lane i % 8, the lanes 4, 2, 1 apart. */
double WF_ISA_NAME(wf_sum_squares)(const float *x, int64_t n)
{
    v8d sum = v8d_zero();

    for (int64_t i = 0; i < n; i += V16) {
        v16 t = v16_load_n(x + i, n - i);
        v8d low = v8d_low(t), high = v8d_high(t);

        sum = v8d_add(sum, v8d_mul(low, low));
        sum = v8d_add(sum, v8d_mul(high, high));
    }
    return v8d_sum(sum);
}
