/* tests/kernels/attention_problem.c - the functions of attention_problem.h. */
#include "tests/kernels/attention_problem.h"
#include "core/numerics/random.h"
#include "tests/harness.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rows rows_open(int64_t seq, int64_t dim, int64_t gap)
{
    rows r = {seq, dim, dim + gap, malloc((size_t)(seq * (dim + gap) + 1) * sizeof(float))};

    for (int64_t i = 0; i < seq * r.stride; i++)
        memcpy(r.x + i, &poison, sizeof poison);
    return r;
}

static rows rows_random(shape s, uint64_t *state)
{
    rows r = rows_open(s.seq, s.dim, s.gap);

    for (int64_t i = 0; i < r.seq; i++)
        for (int64_t d = 0; d < r.dim; d++) {
            *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
            r.x[i * r.stride + d] = 3.0F * ((float)(*state >> 40) * 0x1p-23F - 1.0F);
        }
    return r;
}

problem problem_open(shape s)
{
    uint64_t state = 1 + (uint64_t)(s.seq * 1000 + s.dim);
    problem p;

    p.q = rows_random(s, &state);
    p.k = rows_random(s, &state);
    p.v = rows_random(s, &state);
    p.dout = rows_random(s, &state);
    p.from = malloc((size_t)(s.seq + 1) * sizeof *p.from);
    for (int64_t i = 0, begin = 0; i < s.seq; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
        begin = state >> 59 ? begin : i; /* a document begins: at one of 32 tokens */
        p.from[i] = (int32_t)(state >> 33 & 1 ? begin : i - 40);
    }
    p.head = (wf_attention_head){.seq = s.seq,
                                 .keys = s.seq,
                                 .sequence_keys = s.seq,
                                 .dim = s.dim,
                                 .q = p.q.x,
                                 .k = p.k.x,
                                 .v = p.v.x,
                                 .q_stride = p.q.stride,
                                 .k_stride = p.k.stride,
                                 .v_stride = p.v.stride,
                                 .scale = 1.0F / sqrtf((float)s.dim),
                                 .dropout_key = UINT64_C(0x0123456789abcdef),
                                 .dropout_counter = {7, 0xfffffff0U, 9},
                                 .dropout = s.dropout};
    return p;
}

void problem_close(problem *p)
{
    free(p->q.x);
    free(p->k.x);
    free(p->v.x);
    free(p->dout.x);
    free(p->from);
}

result result_open(shape s)
{
    return (result){rows_open(s.seq, s.dim, s.gap), rows_open(s.seq, 1, 0),
                    rows_open(s.seq, s.dim, s.gap), rows_open(s.seq, s.dim, s.gap + 1),
                    rows_open(s.seq, s.dim, s.gap + 2)};
}

void result_close(result *r)
{
    free(r->out.x);
    free(r->lse.x);
    free(r->dq.x);
    free(r->dk.x);
    free(r->dv.x);
}

/* Poisoned memory of so many bytes, from x + 1 on, between two floats that must stay
   poisoned. */
static rows space_open(size_t bytes)
{
    return rows_open(1, (int64_t)(bytes / sizeof(float)) + 1, 1);
}

static void space_close(rows *space)
{
    CU_ASSERT_EQUAL(memcmp(space->x, &poison, sizeof poison), 0);
    CU_ASSERT_EQUAL(memcmp(space->x + space->dim, &poison, sizeof poison), 0);
    free(space->x);
}

void attend(const wf_simd *simd, const problem *p, result *r)
{
    int64_t seq = p->head.seq, dim = p->head.dim;
    int64_t packed = wf_attention_padded(seq) * wf_attention_padded(dim);
    rows space = space_open(simd->attention_workspace(seq, dim));
    rows grad_space = space_open(simd->attention_grad_workspace(seq, dim));
    rows dk = space_open((size_t)packed * sizeof(float));
    rows dv = space_open((size_t)packed * sizeof(float));

    simd->attention(&p->head, r->out.x, r->out.stride, r->lse.x, space.x + 1);
    simd->attention_grad(&p->head, r->out.x, r->out.stride, r->lse.x, p->dout.x, p->dout.stride,
                         r->dq.x, r->dq.stride, dk.x + 1, dv.x + 1, grad_space.x + 1);
    simd->attention_unpack(dk.x + 1, seq, dim, r->dk.x, r->dk.stride, false);
    simd->attention_unpack(dv.x + 1, seq, dim, r->dv.x, r->dv.stride, false);
    space_close(&space);
    space_close(&grad_space);
    space_close(&dk);
    space_close(&dv);
}

/* keep[i][j] of the dropout kernel's definition */
static double keep_of(const wf_attention_head *h, int64_t i, int64_t j)
{
    uint64_t w = (uint64_t)(i * h->seq + j);
    uint32_t counter[4] = {(uint32_t)(w / 4), h->dropout_counter[0], h->dropout_counter[1],
                           h->dropout_counter[2]};
    uint32_t word[4];

    if (h->dropout <= 0)
        return 1;
    wf_philox(counter, h->dropout_key, word);
    return word[w % 4] >= floor((double)h->dropout * 0x1p32) ? 1 / (1 - (double)h->dropout) : 0;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t d = 0; d < n; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

/* One query of the naive loop; p has room for seq probabilities. */
static void reference_query(const problem *in, int64_t i, double *p, const reference *r)
{
    const wf_attention_head *h = &in->head;
    const float *keys = h->k, *values = h->v;
    const float *q = (const float *)h->q + i * h->q_stride,
                *dout = in->dout.x + i * in->dout.stride;
    double max = -INFINITY, sum = 0, delta = 0;
    int64_t n = h->dim, first = 0;

    if (h->from && h->from[i] > 0)
        first = h->from[i] < i ? h->from[i] : i;
    if (h->window > 0)
        first = i + 1 - h->window > first ? i + 1 - h->window : first;
    for (int64_t j = first; j <= i; j++) {
        p[j] = dot(q, keys + j * h->k_stride, n) * (double)h->scale;
        max = fmax(max, p[j]);
    }
    for (int64_t j = first; j <= i; j++)
        sum += exp(p[j] - max);
    r->lse[i] = max + log(sum);
    for (int64_t j = first; j <= i; j++) {
        const float *v = values + j * h->v_stride;
        double keep = keep_of(h, i, j);

        p[j] = exp(p[j] - r->lse[i]);
        delta += p[j] * keep * dot(dout, v, n);
        for (int64_t d = 0; d < n; d++) {
            r->out[i * n + d] += p[j] * keep * (double)v[d];
            r->dv[j * n + d] += p[j] * keep * (double)dout[d];
        }
    }
    for (int64_t j = first; j <= i; j++) {
        const float *k = keys + j * h->k_stride;
        double g = keep_of(h, i, j) * dot(dout, values + j * h->v_stride, n);
        double ds = p[j] * (g - delta) * (double)h->scale;

        for (int64_t d = 0; d < n; d++) {
            r->dq[i * n + d] += ds * (double)k[d];
            r->dk[j * n + d] += ds * (double)q[d];
        }
    }
}

reference reference_open(const problem *in)
{
    int64_t seq = in->head.seq;
    size_t whole = (size_t)(seq * in->head.dim);
    double *p = calloc((size_t)seq, sizeof *p);
    reference r = {calloc(whole, sizeof(double)), calloc((size_t)seq, sizeof(double)),
                   calloc(whole, sizeof(double)), calloc(whole, sizeof(double)),
                   calloc(whole, sizeof(double))};

    for (int64_t i = 0; i < seq; i++)
        reference_query(in, i, p, &r);
    free(p);
    return r;
}

void reference_close(reference *r)
{
    free(r->out);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}
