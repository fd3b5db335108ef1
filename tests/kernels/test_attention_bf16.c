/*
 * tests/kernels/test_attention_bf16.c - attention of bf16 numbers on the CPU: bit for bit what
 * the definition of a bf16 product gives, on every instruction set; and how far that is from
 * fp32's.
 *
 * ctest: builds plain, cost 50
 */
#include "core/numerics/bf16.h"
#include "core/op.h"
#include "kernels/attention_internal.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/harness.h"
#include "tests/kernels/attention_bf16.h"
#include "tests/kernels/attention_tiles.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const isa_names[] = {WF_CPU_ISAS, "amx"};
enum { ISAS = sizeof isa_names / sizeof isa_names[0] };

static const char *const kinds[] = {"ordinary", "tiny", "cancelling", "large", "infinite"};

static bool both_nan(float a, float b)
{
    return isnan(a) && isnan(b);
}

static bool floats_equal(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !both_nan(a[i], b[i]))
            return false;
    return true;
}

/* Gaps, which are the same NaN, too */
static bool halves_equal(const uint16_t *a, const uint16_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i] && !both_nan(wf_bf16_value(a[i]), wf_bf16_value(b[i])))
            return false;
    return true;
}

static void compare(const char *isa, const char *kind, const problem16 *p, const result16 *got,
                    const result16 *want)
{
    int64_t seq = p->head.seq, dim = p->head.dim;
    const struct {
        const char *name;
        bool same;
    } part[] = {{"out", halves_equal(got->out, want->out, seq * p->stride)},
                {"lse", floats_equal(got->lse, want->lse, seq)},
                {"dq", halves_equal(got->dq, want->dq, seq * p->stride)},
                {"dk", floats_equal(got->dk, want->dk, seq * dim)},
                {"dv", floats_equal(got->dv, want->dv, seq * dim)},
                {"rounded dk", halves_equal(got->dk16, want->dk16, seq * dim)},
                {"rounded dv", halves_equal(got->dv16, want->dv16, seq * dim)}};

    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (!part[i].same) {
            printf(
                "\n  %s, %s numbers, seq %lld dim %lld window %lld from %d dropout %g all %d: "
                "%s has other bits",
                isa, kind, (long long)seq, (long long)dim, (long long)p->head.window,
                p->head.from != NULL, (double)p->head.dropout, p->head.bidirectional,
                part[i].name);
            CU_FAIL("other bits");
        }
}

/* On every instruction set, and on tiles in plain C. Infinities spread as far as a kernel's
   bounds, which are those of all sets but for tiles, and further by the definition: they are
   compared with portable C. */
static void check(const problem16 *p, shape s, numbers16 kind)
{
    result16 want = result16_open(s);

    if (kind == NUMBERS_INFINITE)
        attend16(wf_cpu_simd_named("portable", NULL), p, &want);
    else
        attend16_plain(p, &want);
    for (int i = 0; i <= ISAS; i++) {
        bool tiles = i == ISAS;
        const wf_simd *simd = !tiles ? wf_cpu_simd_named(isa_names[i], NULL) : NULL;
        result16 got;

        if (tiles && kind != NUMBERS_INFINITE)
            simd = attention_tiles_emulated();
        if (!simd || (kind == NUMBERS_INFINITE && strcmp(simd->name, "amx") == 0))
            continue;
        got = result16_open(s);
        attend16(simd, p, &got);
        compare(simd->name, kinds[kind], p, &got, &want);
        result16_close(&got);
    }
    result16_close(&want);
}

/* Every length with one of the head sizes, and one of the ways in which a token sees others. */
static void as_defined(void)
{
    static const int64_t dims[] = {8, 64, 1, 32, 40, 128, 5, 16, 80, 24, 33, 48, 96};
    static const float dropout[] = {0, 0, 0.1F, 0, 0.5F};

    for (int64_t seq = 1; seq <= 200; seq += seq < 70 ? 1 : 5) {
        shape s = {seq, dims[seq % 13], seq % 3, dropout[seq % 5]};
        problem16 p = problem16_open(s, NUMBERS_ORDINARY);

        p.head.bidirectional = seq % 7 == 3;
        if (!p.head.bidirectional) {
            p.head.from = seq % 4 == 1 ? p.floats.from : NULL;
            p.head.window = seq % 6 == 2 ? 20 : seq % 6 == 5 ? 70 : 0;
        }
        check(&p, s, NUMBERS_ORDINARY);
        problem16_close(&p);
    }
}

static void odd_numbers(void)
{
    static const shape shapes[] = {
        {1, 8, 0, 0}, {70, 32, 1, 0}, {130, 24, 0, 0.1F}, {96, 80, 0, 0}, {150, 48, 3, 0}};

    for (numbers16 kind = NUMBERS_TINY; kind < NUMBERS_KINDS; kind++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            problem16 p = problem16_open(shapes[i], kind);

            check(&p, shapes[i], kind);
            p.head.from = p.floats.from;
            p.head.window = 40;
            check(&p, shapes[i], kind);
            p.head.from = NULL;
            p.head.window = 0;
            p.head.bidirectional = true;
            check(&p, shapes[i], kind);
            problem16_close(&p);
        }
}

/* |a - b| over |b|, in norm, of rows that are `stride` apart */
static double distance(const uint16_t *a, int64_t stride, const rows *b)
{
    double error = 0, norm = 0;

    for (int64_t i = 0; i < b->seq; i++)
        for (int64_t d = 0; d < b->dim; d++) {
            double w = (double)b->x[i * b->stride + d];
            double e = (double)wf_bf16_value(a[i * stride + d]) - w;

            error += e * e;
            norm += w * w;
        }
    return sqrt(error / norm);
}

static double largest(const float *a, const rows *b)
{
    double most = 0;

    for (int64_t i = 0; i < b->seq; i++)
        most = fmax(most, fabs((double)a[i] - (double)b->x[i * b->stride]));
    return most;
}

/* fp32's kernel on the same numbers: a bf16 has 8 bits, so a rounding is off by 2^-9 at most
   and by 0.0017 of it in norm. Sums of scores are fp32's, so lse is no less exact. */
static void close_to_floats(void)
{
    const wf_simd *simd = wf_cpu_simd_named("portable", NULL);
    static const shape shapes[] = {{64, 64, 0, 0}, {200, 128, 0, 0}, {130, 32, 0, 0.1F}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        problem16 p = problem16_open(s, NUMBERS_ORDINARY);
        result want = result_open(s);
        result16 got = result16_open(s);

        attend(simd, &p.floats, &want);
        attend16(simd, &p, &got);
        CU_ASSERT_TRUE(distance(got.out, p.stride, &want.out) < 0.004);
        CU_ASSERT_TRUE(largest(got.lse, &want.lse) < 1e-5);
        CU_ASSERT_TRUE(distance(got.dq, p.stride, &want.dq) < 0.01);
        CU_ASSERT_TRUE(distance(got.dk16, s.dim, &want.dk) < 0.01);
        CU_ASSERT_TRUE(distance(got.dv16, s.dim, &want.dv) < 0.005);
        if (getenv("WEFT_TEST_SHOW"))
            printf("\n  seq %lld dim %lld: out %.2g lse %.2g dq %.2g dk %.2g dv %.2g",
                   (long long)s.seq, (long long)s.dim, distance(got.out, p.stride, &want.out),
                   largest(got.lse, &want.lse), distance(got.dq, p.stride, &want.dq),
                   distance(got.dk16, s.dim, &want.dk), distance(got.dv16, s.dim, &want.dv));
        result_close(&want);
        result16_close(&got);
        problem16_close(&p);
    }
}

/* The mode in which denormals are zeros ends with a kernel. */
static void denormals_come_back(void)
{
    shape s = {3, 8, 0, 0};
    problem16 p = problem16_open(s, NUMBERS_ORDINARY);
    volatile float small = 0x1p-126F, half = 0.5F;

    for (int i = 0; i < ISAS; i++) {
        const wf_simd *simd = wf_cpu_simd_named(isa_names[i], NULL);
        result16 r = result16_open(s);

        if (simd)
            attend16(simd, &p, &r);
        CU_ASSERT_TRUE(small * half > 0);
        result16_close(&r);
    }
    problem16_close(&p);
}

/* ---- heads in groups, by the ops ---- */

enum { TOKENS = 70, HEADS = 4, GROUPS = 2, DIM = 24 };

typedef struct heads {
    wf_context *ctx;
    wf_tensor *in[6], *out[2], *grad[3]; /* q, k, v, out, lse, dout */
} heads;

static wf_tensor *operand(wf_context *ctx, const problem16 *p, int which, int64_t n)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(TOKENS), wf_dim_chunked(n),
                           wf_dim_width(DIM)};
    wf_tensor *t = wf_tensor_new(ctx, WF_BF16, 4, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int64_t h = 0; h < n; h++) {
        const uint16_t *const from[] = {p[h].q, p[h].k, p[h].v, p[h].dout};

        for (int64_t i = 0; i < TOKENS; i++)
            memcpy((uint16_t *)t->data + (i * n + h) * DIM, from[which] + i * DIM,
                   DIM * sizeof(uint16_t));
    }
    return t;
}

static heads run_heads(const problem16 *p, bool compute_fp32)
{
    static const wf_attention_attr attr = {.site = 0};
    const wf_context_options options = {.compute_fp32 = compute_fp32};
    wf_error error = {WF_OK, ""};
    heads h = {.ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error)};
    wf_call call = {.op = &wf_op_attention,
                    .ctx = h.ctx,
                    .n_in = 3,
                    .n_out = 2,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    CU_ASSERT_PTR_NOT_NULL_FATAL(h.ctx);
    wf_context_storage(h.ctx, WF_BF16);
    for (int i = 0; i < 3; i++)
        call.in[i] = h.in[i] = operand(h.ctx, p, i, i ? GROUPS : HEADS);
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    h.in[3] = h.out[0] = call.out[0];
    h.in[4] = h.out[1] = call.out[1];
    h.in[5] = operand(h.ctx, p, 3, HEADS);
    call.op = &wf_op_attention_grad;
    call.n_in = 6;
    call.n_out = 3;
    memcpy(call.in, h.in, sizeof h.in);
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    memcpy(h.grad, call.out, sizeof h.grad);
    return h;
}

/* Keys' and values' gradients are sums over the heads of a group, of floats, that are rounded
   once. */
static void heads_in_groups(void)
{
    static const shape s = {TOKENS, DIM, 0, 0};
    problem16 p[HEADS];
    result16 want[HEADS];
    heads got;

    for (int h = 0; h < HEADS; h++) {
        p[h] =
            problem16_open((shape){TOKENS, DIM, 0, 0}, h ? NUMBERS_CANCEL : NUMBERS_ORDINARY);
        want[h] = result16_open(s);
        for (int64_t i = 0; i < TOKENS * DIM; i++) /* heads differ */
            p[h].q[i] ^= (uint16_t)((h & 1) << 15 | (h & 2) << 2);
    }
    for (int h = 0; h < HEADS; h++) {
        problem16 one = p[h];

        one.k = p[h / (HEADS / GROUPS)].k;
        one.v = p[h / (HEADS / GROUPS)].v;
        attend16_plain(&one, &want[h]);
    }
    got = run_heads(p, false);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t h = 0; h < HEADS; h++) {
            int64_t at = (i * HEADS + h) * DIM, g = (i * GROUPS + h / 2) * DIM;
            const result16 *a = &want[h / 2 * 2], *b = a + 1;

            CU_ASSERT_TRUE(
                halves_equal((uint16_t *)got.out[0]->data + at, want[h].out + i * DIM, DIM));
            CU_ASSERT_TRUE(
                halves_equal((uint16_t *)got.grad[0]->data + at, want[h].dq + i * DIM, DIM));
            for (int64_t d = 0; d < DIM; d++) {
                float dk = a->dk[i * DIM + d] + b->dk[i * DIM + d];
                float dv = a->dv[i * DIM + d] + b->dv[i * DIM + d];

                CU_ASSERT_EQUAL(((uint16_t *)got.grad[1]->data)[g + d], wf_bf16_of(dk));
                CU_ASSERT_EQUAL(((uint16_t *)got.grad[2]->data)[g + d], wf_bf16_of(dv));
            }
        }
    wf_context_close(got.ctx);
    for (int h = 0; h < HEADS; h++) {
        problem16_close(&p[h]);
        result16_close(&want[h]);
    }
}

/* A context that computes in fp32 gives fp32's results, rounded once. */
static void computed_in_fp32(void)
{
    static const shape s = {TOKENS, DIM, 0, 0};
    problem16 p[HEADS];
    result want = result_open(s);
    heads got;

    for (int h = 0; h < HEADS; h++)
        p[h] = problem16_open(s, NUMBERS_ORDINARY);
    attend(wf_cpu_simd_named("portable", NULL), &p[0].floats, &want);
    got = run_heads(p, true);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t d = 0; d < DIM; d++)
            CU_ASSERT_EQUAL(((uint16_t *)got.out[0]->data)[i * HEADS * DIM + d],
                            wf_bf16_of(want.out.x[i * DIM + d]));
    CU_ASSERT_EQUAL(wf_context_compute(got.ctx), WF_F32);
    wf_context_close(got.ctx);
    for (int h = 0; h < HEADS; h++)
        problem16_close(&p[h]);
    result_close(&want);
}

int main(void)
{
    static const wf_test tests[] = {{"as a bf16 product is defined", as_defined},
                                    {"denormals, zeros, infinities", odd_numbers},
                                    {"close to floats", close_to_floats},
                                    {"denormals come back", denormals_come_back},
                                    {"heads in groups", heads_in_groups},
                                    {"computed in fp32", computed_in_fp32},
                                    {NULL, NULL}};

    return wf_test_main("attention of bf16 numbers", tests);
}
