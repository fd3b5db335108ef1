/*
 * tests/kernels/test_attention_simd.c - causal attention of one head on the CPU, forward and
 * backward: against a naive loop in double, and bit for bit between the instruction sets.
 */
#include "tests/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numerics/random.h"
#include "kernels/cpu/isa_internal.h"

typedef struct shape {
    int64_t seq, dim;
    int64_t gap; /* floats between a token's row and the next */
    float dropout;
} shape;

/* One block and less, edges of a block, several; head sizes on and off the width of a vector.
 */
static const shape shapes[] = {
    {1, 8, 0, 0},      {1, 64, 3, 0},      {2, 16, 5, 0},      {5, 24, 0, 0},
    {16, 64, 128, 0},  {17, 5, 1, 0},      {63, 8, 8, 0},      {64, 64, 0, 0},
    {65, 80, 160, 0},  {100, 128, 7, 0},   {128, 32, 64, 0},   {130, 64, 9, 0},
    {200, 40, 2, 0},   {193, 1, 3, 0},     {1, 16, 0, 0.5F},   {66, 16, 1, 0.1F},
    {67, 24, 0, 0.5F}, {129, 64, 4, 0.1F}, {128, 48, 0, 0.9F},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const char *const isa_names[] = {"portable", "avx2", "avx512"};
enum { ISAS = sizeof isa_names / sizeof isa_names[0] };

/* Rows of dim floats, each row followed by a gap; `seq` rows. */
typedef struct rows {
    int64_t seq, dim, stride;
    float *x;
} rows;

typedef struct problem {
    rows q, k, v, dout;
    wf_attention_head head;
} problem;

typedef struct result {
    rows out, lse, dq, dk, dv;
} result;

static const uint32_t poison = 0x7fc0dead;

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

static problem problem_open(shape s)
{
    uint64_t state = 1 + (uint64_t)(s.seq * 1000 + s.dim);
    problem p;

    p.q = rows_random(s, &state);
    p.k = rows_random(s, &state);
    p.v = rows_random(s, &state);
    p.dout = rows_random(s, &state);
    p.head = (wf_attention_head){.seq = s.seq,
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

static void problem_close(problem *p)
{
    free(p->q.x);
    free(p->k.x);
    free(p->v.x);
    free(p->dout.x);
}

static result result_open(shape s)
{
    return (result){rows_open(s.seq, s.dim, s.gap), rows_open(s.seq, 1, 0),
                    rows_open(s.seq, s.dim, s.gap), rows_open(s.seq, s.dim, s.gap + 1),
                    rows_open(s.seq, s.dim, s.gap + 2)};
}

static void result_close(result *r)
{
    free(r->out.x);
    free(r->lse.x);
    free(r->dq.x);
    free(r->dk.x);
    free(r->dv.x);
}

/* Poisoned memory of so many bytes, from x + 1 on, between two floats that must stay poisoned. */
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

/* Forward and backward, in a poisoned workspace of just the size asked for that begins off any
   alignment but a float's. */
static void attend(const wf_simd *simd, const problem *p, result *r)
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
    simd->attention_unpack(dk.x + 1, seq, dim, r->dk.x, r->dk.stride);
    simd->attention_unpack(dv.x + 1, seq, dim, r->dv.x, r->dv.stride);
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

typedef struct reference {
    double *out, *lse, *dq, *dk, *dv;
} reference;

/* One query of the naive loop; p has room for seq probabilities. */
static void reference_query(const problem *in, int64_t i, double *p, const reference *r)
{
    const wf_attention_head *h = &in->head;
    const float *q = h->q + i * h->q_stride, *dout = in->dout.x + i * in->dout.stride;
    double max = -INFINITY, sum = 0, delta = 0;
    int64_t n = h->dim;

    for (int64_t j = 0; j <= i; j++) {
        p[j] = dot(q, h->k + j * h->k_stride, n) * (double)h->scale;
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += exp(p[j] - max);
    r->lse[i] = max + log(sum);
    for (int64_t j = 0; j <= i; j++) {
        const float *v = h->v + j * h->v_stride;
        double keep = keep_of(h, i, j);

        p[j] = exp(p[j] - r->lse[i]);
        delta += p[j] * keep * dot(dout, v, n);
        for (int64_t d = 0; d < n; d++) {
            r->out[i * n + d] += p[j] * keep * (double)v[d];
            r->dv[j * n + d] += p[j] * keep * (double)dout[d];
        }
    }
    for (int64_t j = 0; j <= i; j++) {
        const float *k = h->k + j * h->k_stride;
        double g = keep_of(h, i, j) * dot(dout, h->v + j * h->v_stride, n);
        double ds = p[j] * (g - delta) * (double)h->scale;

        for (int64_t d = 0; d < n; d++) {
            r->dq[i * n + d] += ds * (double)k[d];
            r->dk[j * n + d] += ds * (double)q[d];
        }
    }
}

static reference reference_open(const problem *in)
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

static void reference_close(reference *r)
{
    free(r->out);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}

/* |got - want| <= 1e-5 max(|want|, floor), in norm: `floor` is for what cancels (dq and dk of
   a single token are zero), and small beside rows of entries up to 3. The gaps between rows
   must still be poisoned. */
static void check_rows(const char *what, const char *isa, const rows *got, const double *want,
                       double floor)
{
    double error = 0, norm = 0;
    bool gaps = true;

    for (int64_t i = 0; i < got->seq; i++) {
        const float *row = got->x + i * got->stride;

        for (int64_t d = 0; d < got->dim; d++) {
            double w = want[i * got->dim + d], e = (double)row[d] - w;

            error += e * e;
            norm += w * w;
        }
        for (int64_t d = got->dim; d < got->stride; d++)
            gaps = gaps && memcmp(row + d, &poison, sizeof poison) == 0;
    }
    CU_ASSERT_TRUE(gaps);
    if (!(sqrt(error) <= 1e-5 * fmax(sqrt(norm), floor))) {
        printf("\n  %s, %s, seq %lld dim %lld: error %.3g of norm %.3g", isa, what,
               (long long)got->seq, (long long)got->dim, sqrt(error), sqrt(norm));
        CU_FAIL("differs from the double reference");
    }
}

static void check_problem(const problem *p, shape s)
{
    reference want = reference_open(p);

    for (int n = 0; n < ISAS; n++) {
        const wf_simd *simd = wf_cpu_simd_named(isa_names[n], NULL);
        result got;

        if (!simd)
            continue;
        got = result_open(s);
        attend(simd, p, &got);
        check_rows("out", simd->name, &got.out, want.out, 0);
        check_rows("lse", simd->name, &got.lse, want.lse, 0);
        check_rows("dq", simd->name, &got.dq, want.dq, 1);
        check_rows("dk", simd->name, &got.dk, want.dk, 1);
        check_rows("dv", simd->name, &got.dv, want.dv, 0);
        result_close(&got);
    }
    reference_close(&want);
}

static void matches_double(void)
{
    for (int n = 0; n < SHAPES; n++) {
        problem p = problem_open(shapes[n]);

        check_problem(&p, shapes[n]);
        problem_close(&p);
    }
}

/* Scores of several hundred, exact because they are sums of small integers: probabilities reach
   1 and underflow to 0, the maximum moves from block to block, and nothing overflows. */
static void large_scores(void)
{
    shape s = {150, 16, 0, 0};
    problem p = problem_open(s);

    for (int64_t i = 0; i < s.seq * s.dim; i++) {
        p.q.x[i] = rintf(4 * p.q.x[i]);
        p.k.x[i] = rintf(2 * p.k.x[i]);
    }
    p.head.scale = 1;
    check_problem(&p, s);
    problem_close(&p);
}

static bool rows_equal(const rows *a, const rows *b, int64_t seq)
{
    for (int64_t i = 0; i < seq; i++)
        if (memcmp(a->x + i * a->stride, b->x + i * b->stride,
                   (size_t)a->dim * sizeof(float)) != 0)
            return false;
    return true;
}

static void same_bits_on_every_isa(void)
{
    for (int n = 0; n < SHAPES; n++) {
        problem p = problem_open(shapes[n]);
        result want = result_open(shapes[n]);

        attend(wf_cpu_simd_named("portable", NULL), &p, &want);
        for (int i = 1; i < ISAS; i++) {
            const wf_simd *simd = wf_cpu_simd_named(isa_names[i], NULL);
            result got;

            if (!simd)
                continue;
            got = result_open(shapes[n]);
            attend(simd, &p, &got);
            CU_ASSERT_TRUE(rows_equal(&got.out, &want.out, p.head.seq));
            CU_ASSERT_TRUE(rows_equal(&got.lse, &want.lse, p.head.seq));
            CU_ASSERT_TRUE(rows_equal(&got.dq, &want.dq, p.head.seq));
            CU_ASSERT_TRUE(rows_equal(&got.dk, &want.dk, p.head.seq));
            CU_ASSERT_TRUE(rows_equal(&got.dv, &want.dv, p.head.seq));
            result_close(&got);
        }
        result_close(&want);
        problem_close(&p);
    }
}

/* The first rows of a sequence do not know what follows, nor that anything does. */
static void blind_to_the_future(void)
{
    const wf_simd *simd = wf_cpu_simd_named("portable", NULL);
    shape s = {150, 24, 3, 0};
    problem p = problem_open(s);
    result whole = result_open(s), part = result_open(s);
    const int64_t cuts[] = {1, 15, 16, 40, 64, 65, 90, 128, 149};

    attend(simd, &p, &whole);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        problem cut = p;

        cut.head.seq = cuts[c];
        attend(simd, &cut, &part);
        CU_ASSERT_TRUE(rows_equal(&part.out, &whole.out, cuts[c]));
        CU_ASSERT_TRUE(rows_equal(&part.lse, &whole.lse, cuts[c]));
        CU_ASSERT_TRUE(rows_equal(&part.dq, &whole.dq, cuts[c]));
    }
    result_close(&whole);
    result_close(&part);
    problem_close(&p);
}

/* Strides and alignment move operands, not bits; a second run over used outputs is the same. */
static void same_bits_for_any_strides(void)
{
    const wf_simd *simd = wf_cpu_simd_named("portable", NULL);
    shape tight = {70, 40, 0, 0.1F}, loose = {70, 40, 83, 0.1F};
    problem a = problem_open(tight), b = problem_open(loose);
    result from_a = result_open(tight), from_b = result_open(loose);

    attend(simd, &a, &from_a);
    attend(simd, &b, &from_b);
    attend(simd, &b, &from_b);
    CU_ASSERT_TRUE(rows_equal(&from_a.out, &from_b.out, tight.seq));
    CU_ASSERT_TRUE(rows_equal(&from_a.dq, &from_b.dq, tight.seq));
    CU_ASSERT_TRUE(rows_equal(&from_a.dk, &from_b.dk, tight.seq));
    CU_ASSERT_TRUE(rows_equal(&from_a.dv, &from_b.dv, tight.seq));
    result_close(&from_a);
    result_close(&from_b);
    problem_close(&a);
    problem_close(&b);
}

static void empty_sequence(void)
{
    shape s = {0, 16, 0, 0};
    problem p = problem_open(s);
    result r = result_open(s);

    memcpy(r.out.x, &poison, sizeof poison);
    memcpy(r.dq.x, &poison, sizeof poison);
    attend(wf_cpu_simd_named("portable", NULL), &p, &r);
    CU_ASSERT_EQUAL(memcmp(r.out.x, &poison, sizeof poison), 0);
    CU_ASSERT_EQUAL(memcmp(r.dq.x, &poison, sizeof poison), 0);
    result_close(&r);
    problem_close(&p);
}

static const wf_test tests[] = {
    {"matches a naive loop in double", matches_double},
    {"large scores neither overflow nor lose the maximum", large_scores},
    {"the same bits on every instruction set", same_bits_on_every_isa},
    {"rows are blind to the future", blind_to_the_future},
    {"the same bits for any strides", same_bits_for_any_strides},
    {"an empty sequence writes nothing", empty_sequence},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("attention on the CPU", tests);
}
