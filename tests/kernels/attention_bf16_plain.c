/*
 * tests/kernels/attention_bf16_plain.c - attention by the definition of a bf16 product
 * (kernels/DECISIONS.md), a number at a time, with denormals made zeros by hand. Whatever a
 * kernel leaves out, because it is zero, is here.
 */
#include "core/numerics/bf16.h"
#include "core/numerics/math.h"
#include "core/numerics/random.h"
#include "tests/kernels/attention_bf16.h"
#include <math.h>
#include <stdlib.h>

#define WF_ISA portable /* for the logarithm, which is the kernels' own */
#include "kernels/cpu/vec_math_internal.h"

enum { BLOCK = 64, TERMS = 32 };

static float zeroed(float x)
{
    return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

static float fma16(float a, float b, float c)
{
    return zeroed(fmaf(zeroed(a), zeroed(b), zeroed(c)));
}

static float add16(float a, float b)
{
    return zeroed(zeroed(a) + zeroed(b));
}

static float mul16(float a, float b)
{
    return zeroed(zeroed(a) * zeroed(b));
}

static float round16(float x)
{
    return wf_bf16_value(wf_bf16_of(x));
}

static float exp_or_zero(float x)
{
    return x < -87 ? 0 : wf_expf(x);
}

static float log_of(float x)
{
    float lane[V16];

    v16_store(lane, v16_log(v16_set1(x)));
    return lane[0];
}

/* c + a b^T, n terms whose elements lie so far apart */
static float product(float c, const float *a, int64_t a_step, const float *b, int64_t b_step,
                     int64_t n)
{
    for (int64_t begin = 0; begin < n; begin += TERMS) {
        float sum[2] = {0, 0};

        for (int64_t t = begin; t < begin + TERMS; t++)
            sum[t % 2] =
                fma16(t < n ? a[t * a_step] : 0, t < n ? b[t * b_step] : 0, sum[t % 2]);
        c = add16(c, add16(sum[0], sum[1]));
    }
    return c;
}

typedef struct plain {
    const problem16 *in;
    const wf_attention_head *head;
    int64_t seq, dim;
    float *q, *k, *v, *dout, *out; /* [seq][dim] */
    float *s;                      /* raw scores of all queries and keys */
} plain;

static float *widened(const uint16_t *x, int64_t seq, int64_t dim, int64_t stride)
{
    float *y = malloc((size_t)(seq * dim + 1) * sizeof *y);

    for (int64_t i = 0; i < seq; i++)
        for (int64_t d = 0; d < dim; d++)
            y[i * dim + d] = wf_bf16_value(x[i * stride + d]);
    return y;
}

static bool sees(const wf_attention_head *h, int64_t i, int64_t j)
{
    int64_t first = h->from && h->from[i] > 0 ? h->from[i] : 0;

    if (h->bidirectional)
        return true;
    first = first < i ? first : i;
    if (h->window > 0 && i - h->window + 1 > first)
        first = i - h->window + 1;
    return j >= first && j <= i;
}

static float keep_of(const wf_attention_head *h, int64_t i, int64_t j)
{
    uint64_t w = (uint64_t)(i * h->seq + j);
    uint32_t word[4] = {(uint32_t)(w / 4), h->dropout_counter[0], h->dropout_counter[1],
                        h->dropout_counter[2]};

    wf_philox(word, h->dropout_key, word);
    if (h->dropout <= 0)
        return 1;
    return word[w % 4] >= (uint32_t)((double)h->dropout * 0x1p32) ? 1 / (1 - h->dropout) : 0;
}

/* Renews m and l by a block of scores, and gives its factors p, rounded; the value is what sums
   are rescaled by. */
static float softmax_block(const plain *f, int64_t i, int64_t begin, float *m, float *l,
                           float p[BLOCK])
{
    const wf_attention_head *h = f->head;
    float max = *m, rescale;

    for (int64_t j = begin; j < begin + BLOCK; j++)
        if (j < f->seq && sees(h, i, j))
            max = fmaxf(max, mul16(f->s[i * f->seq + j], h->scale));
    rescale = max > -INFINITY ? exp_or_zero(*m - max) : 1;
    *l = mul16(*l, rescale);
    for (int64_t j = begin; j < begin + BLOCK; j++) {
        bool seen = j < f->seq && sees(h, i, j);
        float one = seen ? exp_or_zero(fma16(f->s[i * f->seq + j], h->scale, -max)) : 0;

        *l = add16(*l, one);
        p[j - begin] = round16(mul16(one, keep_of(h, i, j)));
    }
    *m = max;
    return rescale;
}

static void forward(const plain *f, int64_t i, result16 *r)
{
    float m = -INFINITY, l = 0, *sum = calloc((size_t)f->dim, sizeof *sum);

    for (int64_t begin = 0; begin < f->seq; begin += BLOCK) {
        int64_t keys = f->seq - begin < BLOCK ? f->seq - begin : BLOCK;
        float p[BLOCK], rescale = softmax_block(f, i, begin, &m, &l, p);

        for (int64_t d = 0; d < f->dim; d++)
            sum[d] =
                product(mul16(sum[d], rescale), p, 1, f->v + begin * f->dim + d, f->dim, keys);
    }
    for (int64_t d = 0; d < f->dim; d++) {
        uint16_t half = wf_bf16_of(mul16(sum[d], zeroed(1 / l)) + 0.0F);

        r->out[i * f->in->stride + d] = half;
        f->out[i * f->dim + d] = wf_bf16_value(half);
    }
    r->lse[i] = m + log_of(l);
    free(sum);
}

/* sum of dout * out in 16 lanes */
static float delta_of(const plain *f, int64_t i)
{
    float lane[16] = {0};

    for (int64_t d = 0; d < f->dim; d++)
        lane[d % 16] = fma16(f->out[i * f->dim + d], f->dout[i * f->dim + d], lane[d % 16]);
    for (int apart = 8; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++)
            lane[l] = add16(lane[l], lane[l + apart]);
    return lane[0];
}

/* Factors of dv, and of dq and dk: [seq][seq] each */
static void factors(const plain *f, const float *lse, float *p, float *ds)
{
    const wf_attention_head *h = f->head;

    for (int64_t i = 0; i < f->seq; i++) {
        float delta = delta_of(f, i);

        for (int64_t j = 0; j < f->seq; j++) {
            float one = 0, keep = keep_of(h, i, j), g;

            if (sees(h, i, j))
                one = exp_or_zero(fma16(f->s[i * f->seq + j], h->scale, -lse[i]));
            g = product(0, f->v + j * f->dim, 1, f->dout + i * f->dim, 1, f->dim);
            g = add16(mul16(keep, g), -delta);
            p[i * f->seq + j] = round16(mul16(keep, one));
            ds[i * f->seq + j] = one > 0 ? round16(mul16(h->scale, mul16(one, g))) : 0;
        }
    }
}

/* The sum over all tokens t of a[t] * b[t][d], in blocks of 64 */
static float over_tokens(const plain *f, const float *a, int64_t a_step, const float *b,
                         int64_t d)
{
    float sum = 0;

    for (int64_t t = 0; t < f->seq; t += BLOCK)
        sum = product(sum, a + t * a_step, a_step, b + t * f->dim + d, f->dim,
                      f->seq - t < BLOCK ? f->seq - t : BLOCK);
    return sum + 0.0F;
}

static void backward(const plain *f, result16 *r)
{
    size_t all = (size_t)(f->seq * f->seq + 1);
    float *p = malloc(all * sizeof *p), *ds = malloc(all * sizeof *ds);

    factors(f, r->lse, p, ds);
    for (int64_t t = 0; t < f->seq; t++)
        for (int64_t d = 0; d < f->dim; d++) {
            int64_t at = t * f->dim + d;

            r->dq[t * f->in->stride + d] =
                wf_bf16_of(over_tokens(f, ds + t * f->seq, 1, f->k, d));
            r->dk[at] = over_tokens(f, ds + t, f->seq, f->q, d);
            r->dv[at] = over_tokens(f, p + t, f->seq, f->dout, d);
            r->dk16[at] = wf_bf16_of(r->dk[at]);
            r->dv16[at] = wf_bf16_of(r->dv[at]);
        }
    free(p);
    free(ds);
}

void attend16_plain(const problem16 *in, result16 *r)
{
    int64_t seq = in->head.seq, dim = in->head.dim;
    plain f = {.in = in, .head = &in->head, .seq = seq, .dim = dim};

    f.q = widened(in->q, seq, dim, in->stride);
    f.k = widened(in->k, seq, dim, in->stride);
    f.v = widened(in->v, seq, dim, in->stride);
    f.dout = widened(in->dout, seq, dim, in->stride);
    f.out = calloc((size_t)(seq * dim + 1), sizeof(float));
    f.s = malloc((size_t)(seq * seq + 1) * sizeof(float));
    for (int64_t i = 0; i < seq; i++)
        for (int64_t j = 0; j < seq; j++)
            f.s[i * seq + j] = product(0, f.k + j * dim, 1, f.q + i * dim, 1, dim);
    for (int64_t i = 0; i < seq; i++)
        forward(&f, i, r);
    backward(&f, r);
    free(f.q);
    free(f.k);
    free(f.v);
    free(f.dout);
    free(f.out);
    free(f.s);
}
