/*
 * tests/kernels/test_attention_simd.c - causal attention of one head on the CPU, forward and
 * backward: against a naive loop in double, and bit for bit between the instruction sets.
 */
#include "tests/harness.h"
#include "tests/kernels/attention_problem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

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

static const char *const isa_names[] = {WF_CPU_ISAS};
enum { ISAS = sizeof isa_names / sizeof isa_names[0] };

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
        p.head.from = p.from;
        check_problem(&p, shapes[n]);
        p.head.window = 20;
        check_problem(&p, shapes[n]);
        p.head.from = NULL;
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

static void check_isas(const problem *p, shape s)
{
    result want = result_open(s);

    attend(wf_cpu_simd_named("portable", NULL), p, &want);
    for (int i = 1; i < ISAS; i++) {
        const wf_simd *simd = wf_cpu_simd_named(isa_names[i], NULL);
        result got;

        if (!simd)
            continue;
        got = result_open(s);
        attend(simd, p, &got);
        CU_ASSERT_TRUE(rows_equal(&got.out, &want.out, s.seq));
        CU_ASSERT_TRUE(rows_equal(&got.lse, &want.lse, s.seq));
        CU_ASSERT_TRUE(rows_equal(&got.dq, &want.dq, s.seq));
        CU_ASSERT_TRUE(rows_equal(&got.dk, &want.dk, s.seq));
        CU_ASSERT_TRUE(rows_equal(&got.dv, &want.dv, s.seq));
        result_close(&got);
    }
    result_close(&want);
}

static void same_bits_on_every_isa(void)
{
    for (int n = 0; n < SHAPES; n++) {
        problem p = problem_open(shapes[n]);

        check_isas(&p, shapes[n]);
        p.head.from = p.from;
        check_isas(&p, shapes[n]);
        p.head.window = 70;
        check_isas(&p, shapes[n]);
        problem_close(&p);
    }
}

/* Rows [first, first + seq) of a, from token `first` on. */
static bool rows_within(const rows *a, const rows *part, int64_t first, int64_t seq)
{
    rows from = *a;

    from.x += first * a->stride;
    return rows_equal(&from, part, seq);
}

static bool is_within(const result *whole, const result *part, int64_t first, int64_t seq)
{
    return rows_within(&whole->out, &part->out, first, seq) &&
           rows_within(&whole->lse, &part->lse, first, seq) &&
           rows_within(&whole->dq, &part->dq, first, seq) &&
           rows_within(&whole->dk, &part->dk, first, seq) &&
           rows_within(&whole->dv, &part->dv, first, seq);
}

/* A document that begins with a block has the bits that it has alone, forward and back; what is
   before and behind it is nothing to it. Elsewhere it has others: a block is where the running
   maximum is renewed. */
static void a_document_is_alone(void)
{
    const wf_simd *simd = wf_cpu_simd_named("portable", NULL);
    shape s = {250, 24, 3, 0};
    problem p = problem_open(s);
    const int64_t at[] = {64, 128, 37}, seq = 110;
    result whole = result_open(s), part = result_open(s);

    for (size_t c = 0; c < sizeof at / sizeof *at; c++) {
        problem alone = p;

        for (int64_t i = 0; i < s.seq; i++)
            p.from[i] = (int32_t)(i < at[c] ? 0 : i < at[c] + seq ? at[c] : at[c] + seq);
        p.head.from = p.from;
        attend(simd, &p, &whole);
        alone.head.from = NULL;
        alone.head.seq = alone.head.keys = seq;
        alone.head.q = p.q.x + at[c] * p.q.stride;
        alone.head.k = p.k.x + at[c] * p.k.stride;
        alone.head.v = p.v.x + at[c] * p.v.stride;
        alone.dout.x += at[c] * p.dout.stride;
        attend(simd, &alone, &part);
        CU_ASSERT_EQUAL(is_within(&whole, &part, at[c], seq), at[c] % 64 == 0);
    }
    result_close(&whole);
    result_close(&part);
    problem_close(&p);
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

        cut.head.seq = cut.head.keys = cuts[c];
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
    {"a document that begins with a block is alone", a_document_is_alone},
    {"the same bits for any strides", same_bits_for_any_strides},
    {"an empty sequence writes nothing", empty_sequence},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("attention on the CPU", tests);
}
