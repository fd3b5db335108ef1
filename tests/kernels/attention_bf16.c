/* tests/kernels/attention_bf16.c - operands and the kernels' run of attention_bf16.h. */
#include "tests/kernels/attention_bf16.h"
#include "core/numerics/bf16.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>

enum { POISON16 = 0x7fc1 };

static uint32_t next_word(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(*state >> 32);
}

/* Bits: sign, eight of the exponent, seven of the mantissa. */
static uint16_t number_of(float ordinary, numbers16 kind, uint32_t word)
{
    uint32_t sign = word & 0x8000, mantissa = word & 0x7f, size = word >> 16;

    switch (kind) {
    case NUMBERS_TINY:
        return (uint16_t)(sign | (size % 70) << 7 | mantissa);
    case NUMBERS_CANCEL:
        return (uint16_t)(sign | (124 + size % 2 * 4) << 7 | (mantissa & 3));
    case NUMBERS_LARGE:
        return wf_bf16_of(8 * ordinary);
    case NUMBERS_INFINITE:
        return size % 97 == 0 ? (uint16_t)(sign | 0x7f80 | (size % 2) << 6)
                              : wf_bf16_of(ordinary);
    default:
        return wf_bf16_of(ordinary);
    }
}

/* Numbers that take the floats' places, too. */
static uint16_t *numbers_of(rows *r, numbers16 kind, uint64_t *state)
{
    uint16_t *x = malloc((size_t)(r->seq * r->stride + 1) * sizeof *x);

    for (int64_t i = 0; i < r->seq * r->stride; i++) {
        bool gap = i % r->stride >= r->dim;

        x[i] = gap ? POISON16 : number_of(r->x[i], kind, next_word(state));
        if (!gap)
            r->x[i] = wf_bf16_value(x[i]);
    }
    return x;
}

problem16 problem16_open(shape s, numbers16 kind)
{
    problem16 p = {.floats = problem_open(s)};
    uint64_t state = (uint64_t)(s.seq * 1000 + s.dim + 7 * kind);

    p.stride = p.floats.q.stride;
    p.q = numbers_of(&p.floats.q, kind, &state);
    p.k = numbers_of(&p.floats.k, kind, &state);
    p.v = numbers_of(&p.floats.v, kind, &state);
    p.dout = numbers_of(&p.floats.dout, kind, &state);
    p.head = p.floats.head;
    p.head.bf16 = true;
    p.head.q = p.q;
    p.head.k = p.k;
    p.head.v = p.v;
    return p;
}

void problem16_close(problem16 *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->dout);
    problem_close(&p->floats);
}

static uint16_t *poisoned16(int64_t n)
{
    uint16_t *x = malloc((size_t)(n + 1) * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = POISON16;
    return x;
}

result16 result16_open(shape s)
{
    int64_t all = s.seq * (s.dim + s.gap);
    size_t whole = (size_t)(s.seq * s.dim + 1);

    return (result16){poisoned16(all),
                      poisoned16(all),
                      calloc((size_t)s.seq + 1, sizeof(float)),
                      calloc(whole, sizeof(float)),
                      calloc(whole, sizeof(float)),
                      poisoned16(s.seq * s.dim),
                      poisoned16(s.seq * s.dim)};
}

void result16_close(result16 *r)
{
    free(r->out);
    free(r->dq);
    free(r->lse);
    free(r->dk);
    free(r->dv);
    free(r->dk16);
    free(r->dv16);
}

/* Off any alignment but a float's, and NaNs */
static float *space_open(size_t bytes)
{
    size_t floats = bytes / sizeof(float) + 2;
    float *x = malloc(floats * sizeof *x);

    for (size_t i = 0; i < floats; i++)
        memcpy(x + i, &poison, sizeof poison);
    return x;
}

void attend16(const wf_simd *simd, const problem16 *p, result16 *r)
{
    int64_t seq = p->head.seq, dim = p->head.dim;
    size_t packed = (size_t)(wf_attention_padded(seq) * wf_attention_padded(dim));
    float *space = space_open(simd->attention_workspace(seq, dim));
    float *grad_space = space_open(simd->attention_grad_workspace(seq, dim));
    float *dk = space_open(packed * sizeof(float)), *dv = space_open(packed * sizeof(float));

    simd->attention(&p->head, r->out, p->stride, r->lse, space + 1);
    simd->attention_grad(&p->head, r->out, p->stride, r->lse, p->dout, p->stride, r->dq,
                         p->stride, dk + 1, dv + 1, grad_space + 1);
    simd->attention_unpack(dk + 1, seq, dim, r->dk, dim, false);
    simd->attention_unpack(dv + 1, seq, dim, r->dv, dim, false);
    simd->attention_unpack(dk + 1, seq, dim, r->dk16, dim, true);
    simd->attention_unpack(dv + 1, seq, dim, r->dv16, dim, true);
    free(space);
    free(grad_space);
    free(dk);
    free(dv);
}
