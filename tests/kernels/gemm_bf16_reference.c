/* tests/kernels/gemm_bf16_reference.c - see the header. */
#include "tests/kernels/gemm_bf16_reference.h"
#include "tests/kernels/xorshift.h"
#include "core/numerics/bf16.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

static uint64_t state = 20261124;
int64_t bf16_below(int64_t n)
{
    return xorshift_below(&state, n);
}

static uint16_t bits_of(int64_t exponent, int64_t fraction)
{
    return (uint16_t)((uint64_t)bf16_below(2) << 15 | (uint64_t)exponent << 7 |
                      (uint64_t)fraction);
}

static uint16_t value(bf16_numbers kind)
{
    switch (kind) {
    case ORDINARY: /* a zero of either sign now and then */
        return bf16_below(16) ? bits_of(120 + bf16_below(10), bf16_below(128)) : bits_of(0, 0);
    case ANY_BITS: /* denormals, infinities and NaNs among them */
        return (uint16_t)xorshift(&state);
    case TINY: /* products underflow */
        return bits_of(bf16_below(70), bf16_below(128));
    case CANCELLING:
        return bits_of(120 + bf16_below(2) * 8, bf16_below(4));
    default: /* products of 2^-126 and of what its last bit rounds */
        return bits_of(bf16_below(2) ? 63 + bf16_below(3) : 50 + bf16_below(4),
                       bf16_below(2) ? 0 : bf16_below(128));
    }
}

uint16_t *bf16_values(int64_t n, bf16_numbers kind)
{
    uint16_t *x = malloc((size_t)n * sizeof *x + 1);

    for (int64_t i = 0; x && i < n; i++)
        x[i] = value(kind);
    return x;
}

/* a b + c, of which there are no denormals. What is below the least number with 24 bits,
   however small its exponent, is a zero: a long double has bits enough to see it there. */
static float multiply_add(float a, float b, float c)
{
    long double exact = (long double)a * b + c;

    if (exact != 0 && fabsl(exact) < (long double)FLT_MIN - 0x1p-151L)
        return copysignf(0.0f, (float)copysignl(1.0L, exact));
    return fmaf(a, b, c);
}

static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static float add(float a, float b)
{
    return flushed(flushed(a) + flushed(b));
}

float bf16_add_block(float sum, const uint16_t *a, const uint16_t *b)
{
    float chain[2] = {0.0f, 0.0f};

    for (int k = 0; k < WF_GEMM_TERMS; k++)
        chain[k % 2] = multiply_add(wf_bf16_value(a[k]), wf_bf16_value(b[k]), chain[k % 2]);
    return add(sum, add(chain[0], chain[1]));
}

static uint16_t term(const void *x, int64_t at)
{
    return ((const uint16_t *)x)[at];
}

/* `sum` and the blocks of a part */
static float add_part(const wf_gemm_part *p, int64_t i, int64_t j, float sum)
{
    for (int64_t first = 0; first < p->k; first += WF_GEMM_TERMS) {
        uint16_t a[WF_GEMM_TERMS] = {0}, b[WF_GEMM_TERMS] = {0};

        for (int64_t k = first; k < first + WF_GEMM_TERMS && k < p->k; k++) {
            a[k - first] = term(p->a, i * p->a_row + k * p->a_k);
            b[k - first] = term(p->b, k * p->b_k + j * p->b_col);
        }
        sum = bf16_add_block(sum, a, b);
    }
    return sum;
}

/* The first of the chunks from `part` on that begins after `skip` more chunks. */
static int64_t chunk_part(const wf_gemm *g, int64_t part, int64_t skip)
{
    while (skip > 0) {
        part++;
        skip -= part >= g->n_parts || g->parts[part].chunk;
    }
    return part;
}

float bf16_tree(const wf_gemm *g, int64_t i, int64_t j, int64_t part, int64_t chunks)
{
    float sum = 0.0f;

    if (chunks > 1) {
        int64_t half =
            g->each > 0 && chunks > g->each ? chunks / g->each / 2 * g->each : chunks / 2;
        float left = bf16_tree(g, i, j, part, half);

        part = chunk_part(g, part, half);
        return left + bf16_tree(g, i, j, part, chunks - half);
    }
    for (int64_t first = part; part < g->n_parts; part++) {
        if (part > first && g->parts[part].chunk)
            break;
        sum = add_part(&g->parts[part], i, j, sum);
    }
    return sum;
}
