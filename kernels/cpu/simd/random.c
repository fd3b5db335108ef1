/*
 * kernels/cpu/simd/random.c - uniform, normal and truncated normal numbers, bit for bit those
 * of core/numerics/random.c (which states the formulas), sixteen Philox blocks at a time.
 */
#include "core/numerics/random.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_philox_internal.h"

enum { GROUP = 4 * V16 };

static inline v16u bits(uint32_t x)
{
    return v16u_set1(x);
}

/* word + 1/2, rounded once. */
static inline v16 centre(v16u word)
{
    v16 low = v16_add(v16_of_int(v16u_and(word, bits(0xFFFFu))), v16_set1(0.5f));

    return v16_fma(v16_of_int(v16u_right(word, 16)), v16_set1(0x1p16f), low);
}

static inline v16 log1p_poly(v16 f)
{
    v16 p = v16_set1(-0x1.38b576p-4f);

    p = v16_fma(p, f, v16_set1(0x1.055b68p-3f));
    p = v16_fma(p, f, v16_set1(-0x1.0d8542p-3f));
    p = v16_fma(p, f, v16_set1(0x1.22da1ep-3f));
    p = v16_fma(p, f, v16_set1(-0x1.547244p-3f));
    p = v16_fma(p, f, v16_set1(0x1.99a008p-3f));
    p = v16_fma(p, f, v16_set1(-0x1.000226p-2f));
    p = v16_fma(p, f, v16_set1(0x1.555554p-2f));
    p = v16_fma(p, f, v16_set1(-0.5f));
    return v16_fma(v16_mul(f, f), p, f);
}

/* x > 0 is 2^k (1 + f); returns the bits of x with k + 127 as their exponent. */
static inline v16u split(v16 x, v16 *k, v16 *f)
{
    v16u shifted = v16u_add(v16u_of_bits(x), bits(0x3F800000u - 0x3F3504F3u));
    v16u mantissa = v16u_add(v16u_and(shifted, bits(0x7FFFFFu)), bits(0x3F3504F3u));

    *k = v16_sub(v16_of_int(v16u_right(shifted, 23)), v16_set1(127.0f));
    *f = v16_sub(v16_of_bits(mantissa), v16_set1(1.0f));
    return shifted;
}

static inline v16 log_of(v16 k, v16 f)
{
    return v16_fma(k, v16_set1(0x1.62e43p-1f), log1p_poly(f));
}

/* log of (word + 1/2) / 2^32: near 1 from the exact distance to it */
static inline v16 log_word(v16u word)
{
    v16 k, f, rest = v16_mul(centre(v16u_xor(word, bits(UINT32_MAX))), v16_set1(-0x1p-32f));
    v16u shifted = split(centre(word), &k, &f);

    f = v16_select(v16u_ge(shifted, bits((127u + 32u) << 23)), rest, f);
    return log_of(v16_sub(k, v16_set1(32.0f)), f);
}

/* Box and Muller: two normal numbers of two words. */
static inline void normal_pair(v16u first, v16u second, v16 *one, v16 *two)
{
    v16 radius = v16_sqrt(v16_mul(log_word(first), v16_set1(-2.0f)));
    v16u shifted = v16u_add(second, bits(0x20000000u)), sign = bits(0x80000000u);
    v16u rest = v16u_add(v16u_and(shifted, bits(0x3FFFFFFFu)), bits(0u - 0x20000000u));
    v16m odd = v16u_ge(v16u_and(shifted, bits(0x40000000u)), bits(0x40000000u));
    v16 r = v16_mul(v16_of_int(rest), v16_set1(0x1.921fb6p-30f)), z = v16_mul(r, r);
    v16 s = v16_set1(-0x1.9943ep-13f), c = v16_set1(0x1.99eb9cp-16f), x, y;

    s = v16_fma(s, z, v16_set1(0x1.11073ap-7f));
    s = v16_fma(s, z, v16_set1(-0x1.555546p-3f));
    s = v16_fma(v16_mul(r, z), s, r);
    c = v16_fma(c, z, v16_set1(-0x1.6c0c34p-10f));
    c = v16_fma(c, z, v16_set1(0x1.55554ap-5f));
    c = v16_fma(c, z, v16_set1(-0.5f));
    c = v16_fma(c, z, v16_set1(1.0f));
    x = v16_mul(radius, v16_select(odd, s, c));
    y = v16_mul(radius, v16_select(odd, c, s));
    /* quarters 1 and 2 flip the cosine's sign, 2 and 3 the sine's */
    *one = v16_of_bits(
        v16u_xor(v16u_of_bits(x), v16u_and(v16u_xor(shifted, v16u_left(shifted, 1)), sign)));
    *two = v16_of_bits(v16u_xor(v16u_of_bits(y), v16u_and(shifted, sign)));
}

/* Returns the normal number below which lies half of 1 + y, where 1 + y = low and 1 - y =
   high. */
static inline v16 quantile(v16 y, v16 low, v16 high)
{
    v16 k, f, w, t, u, near = v16_set1(0x1.5aa726p-25f), far = v16_set1(0x1.ea23eap-16f);

    split(v16_mul(low, high), &k, &f);
    w = v16_max(v16_neg(log_of(k, f)), v16_zero());
    t = v16_sub(w, v16_set1(2.5f));
    near = v16_fma(near, t, v16_set1(0x1.04f958p-21f));
    near = v16_fma(near, t, v16_set1(-0x1.4ee988p-18f));
    near = v16_fma(near, t, v16_set1(-0x1.a147dcp-18f));
    near = v16_fma(near, t, v16_set1(0x1.442ae6p-12f));
    near = v16_fma(near, t, v16_set1(-0x1.d0c8b4p-10f));
    near = v16_fma(near, t, v16_set1(-0x1.8332aap-8f));
    near = v16_fma(near, t, v16_set1(0x1.652c86p-2f));
    near = v16_fma(near, t, v16_set1(0x1.0fc8bep+1f));
    u = v16_sub(v16_sqrt(w), v16_set1(3.75f));
    far = v16_fma(far, u, v16_set1(-0x1.66f6d2p-13f));
    far = v16_fma(far, u, v16_set1(0x1.6bc44p-12f));
    far = v16_fma(far, u, v16_set1(-0x1.7cf214p-12f));
    far = v16_fma(far, u, v16_set1(0x1.4d984p-11f));
    far = v16_fma(far, u, v16_set1(-0x1.dbbe36p-10f));
    far = v16_fma(far, u, v16_set1(0x1.837d2ep-9f));
    far = v16_fma(far, u, v16_set1(0x1.6d2e1ap+0f));
    far = v16_fma(far, u, v16_set1(0x1.44b42p+2f));
    return v16_mul(
        y, v16_select(v16u_ge(v16u_of_bits(w), v16u_of_bits(v16_set1(5.0f))), far, near));
}

static inline v16 truncated(const wf_truncated *t, v16u word)
{
    v16 span = v16_set1(t->span), u = v16_mul(centre(word), v16_set1(0x1p-32f));
    v16 rest = v16_mul(centre(v16u_xor(word, bits(UINT32_MAX))), v16_set1(0x1p-32f));
    v16 low = v16_fma(u, span, v16_set1(t->below));
    v16 high = v16_fma(rest, span, v16_set1(t->above));
    v16 x = quantile(v16_fma(u, span, v16_set1(t->first)), low, high);

    x = v16_add(v16_set1(t->mean), v16_mul(v16_set1(t->deviation), x));
    return v16_min(v16_max(x, v16_set1(t->low)), v16_set1(t->high));
}

/* Makes sixteen numbers of each of four words of sixteen lanes; `setting` is the
   distribution's. */
typedef void maker(const void *setting, v16u word[4], v16 out[4]);

static inline void make_uniform(const void *setting, v16u word[4], v16 out[4])
{
    const float *range = setting;

    for (int i = 0; i < 4; i++) {
        v16 u = v16_mul(v16_of_int(v16u_right(word[i], 8)), v16_set1(0x1p-24f));

        out[i] = v16_add(v16_set1(range[0]), v16_mul(v16_set1(range[1]), u));
    }
}

static inline void make_normal(const void *setting, v16u word[4], v16 out[4])
{
    const float *moments = setting;

    normal_pair(word[0], word[1], &out[0], &out[1]);
    normal_pair(word[2], word[3], &out[2], &out[3]);
    for (int i = 0; i < 4; i++)
        out[i] = v16_add(v16_set1(moments[0]), v16_mul(v16_set1(moments[1]), out[i]));
}

static inline void make_truncated(const void *setting, v16u word[4], v16 out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = truncated(setting, word[i]);
}

/* Makes the random words of 16 blocks from `block` on, a block to a lane in
   v16u_block_order. */
static inline void random_words(uint64_t key, uint64_t stream, uint64_t block, v16u word[4])
{
    word[0] = v16u_add(bits((uint32_t)block), v16u_block_order());
    word[1] = bits((uint32_t)(block >> 32));
    word[2] = bits((uint32_t)stream);
    word[3] = bits((uint32_t)(stream >> 32));
    if ((uint32_t)block > UINT32_MAX - V16) { /* the low word overflows in some lane */
        uint32_t low[V16], high[V16];

        v16u_store(low, word[0]);
        for (int l = 0; l < V16; l++)
            high[l] = (uint32_t)(block >> 32) + (low[l] < (uint32_t)block);
        word[1] = v16u_load(high);
    }
    v16u_philox(key, word);
}

/* Fills in groups of 64 elements, of which the first may begin up to three before the run. */
static inline void fill(float *dst, int64_t n, const wf_random_run *run, maker *make,
                        const void *setting)
{
    uint64_t block = run->first / 4;

    for (int64_t i = -(int64_t)(run->first % 4); i < n; i += GROUP, block += V16) {
        v16u word[4];
        v16 out[4];

        random_words(run->key, run->stream, block, word);
        make(setting, word, out);
        for (int k = 0; k < 4; k++)
            word[k] = v16u_of_bits(out[k]);
        v16u_transpose4(word);
        if (i >= 0 && i + GROUP <= n) {
            for (int k = 0; k < 4; k++)
                v16_store(dst + i + k * V16, v16_of_bits(word[k]));
        } else {
            float flat[GROUP];

            for (int k = 0; k < 4; k++)
                v16_store(flat + k * V16, v16_of_bits(word[k]));
            for (int64_t at = i < 0 ? 0 : i; at < n && at < i + GROUP; at++)
                dst[at] = flat[at - i];
        }
    }
}

void WF_ISA_NAME(wf_fill_uniform)(float *dst, int64_t n, const wf_random_run *run, float shift,
                                  float factor)
{
    fill(dst, n, run, make_uniform, (const float[]){shift, factor});
}

void WF_ISA_NAME(wf_fill_normal)(float *dst, int64_t n, const wf_random_run *run, float mean,
                                 float deviation)
{
    fill(dst, n, run, make_normal, (const float[]){mean, deviation});
}

void WF_ISA_NAME(wf_fill_truncated)(float *dst, int64_t n, const wf_random_run *run,
                                    const struct wf_truncated *truncated)
{
    fill(dst, n, run, make_truncated, truncated);
}
