/*
 * tests/kernels/test_ops_elementwise.c - a case for each row of kernels/expressions.def that is
 * an op with its gradient, made from the row (op_harness.h); comparisons; and the functions of
 * kernels/lanes.h at their edges.
 */
#include "core/numerics/math.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_ops.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/isa_internal.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <string.h>

/* Numbers of a row, and where its operands are, if not in [-2, 2). */
typedef struct range {
    const char *name;
    float number[2];
    double low, high;
} range;

static const range ranges[] = {{"exp", {0}, -3, 3},
                               {"log", {0}, 0.1, 4},
                               {"div", {0}, 0.5, 2},
                               {"sqrt", {0}, 0.1, 4},
                               {"rsqrt", {0}, 0.1, 4},
                               {"pow", {2.5F}, 0.1, 3},
                               {"tanh", {0}, -4, 4},
                               {"sigmoid", {0}, -9, 9},
                               {"gelu_erf", {0}, -5, 5},
                               {"softplus", {0}, -9, 9},
                               {"clamp", {-0.7F, 1.1F}, 0, 0},
                               {"axpby", {-4.775F, 2.03F}, 0, 0},
                               {"log1p", {0}, -0.7, 3},
                               {"leaky_relu", {0.1F}, 0, 0},
                               {"elu", {0.7F}, -3, 3},
                               {"sin", {0}, -9, 9},
                               {"cos", {0}, -9, 9},
                               {"erf", {0}, -3, 3},
                               {NULL, {0}, 0, 0}};

static const range *range_of(const char *name)
{
    const range *r = ranges;

    while (r->name && strcmp(r->name, name) != 0)
        r++;
    return r;
}

static void apply_row(const wf_op *op, int n, int n_numbers, wf_tensor *const *in,
                      wf_tensor **out)
{
    wf_call call = {.op = op,
                    .n_in = n,
                    .n_out = 1,
                    .ctx = in[0]->ctx,
                    .attr = range_of(op->name)->number,
                    .attr_size = (size_t)n_numbers * sizeof(float)};

    memcpy(call.in, in, (size_t)n * sizeof *in);
    wf_dispatch(&call);
    out[0] = call.out[0];
}

/* condition of wf_where: whole numbers, some of them zeros. */
static void build_row(op_case *c, const op_shape *s, const char *name)
{
    const range *r = range_of(name);

    for (int i = 0; i < c->n_in; i++) {
        c->in[i] = op_activations(s, op_width(s));
        c->in[i].low = r->low;
        c->in[i].high = r->high;
    }
    if (strcmp(name, "where") == 0)
        c->in[2].wanted = false;
}

#define EXPRESSION(name, inputs, numbers, outputs, flags)
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    static void apply_##name(wf_tensor *const *in, wf_tensor **out)                            \
    {                                                                                          \
        apply_row(&wf_op_##name, WF_COUNT(inputs), WF_COUNT(numbers), in, out);                \
    }                                                                                          \
    static void build_##name(op_case *c, const op_shape *s)                                    \
    {                                                                                          \
        *c = op_case_of(WF_COUNT(inputs), 1, apply_##name);                                    \
        build_row(c, s, #name);                                                                \
    }
#include "kernels/expressions.def"

static void apply_comparisons(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_where(wf_greater(in[0], in[1]), in[0], wf_less_equal(in[0], in[1]));
    out[1] = wf_add(wf_equal(in[0], in[0]), wf_greater_than(in[0], 0.3F));
    out[2] = wf_add(wf_less_than(in[1], 0.3F), wf_equal_to(in[1], 0));
    out[3] = wf_mul(wf_neg(in[0]), wf_less(in[0], in[1]));
}

static void comparisons(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 4, apply_comparisons);
    c->in[0] = c->in[1] = op_activations(s, op_width(s));
    c->in[1].wanted = false;
    c->constant[1] = c->constant[2] = true;
}

static void apply_whole_numbers(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *x = wf_scale(in[0], 3);

    out[0] = wf_add(wf_floor(x), wf_ceil(in[0]));
    out[1] = wf_round(x);
    out[2] = wf_is_nan(wf_log(x));
    out[3] = wf_mul(in[0], wf_sign(in[0]));
}

static void whole_numbers(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_whole_numbers);
    c->in[0] = op_activations(s, op_width(s));
    c->constant[0] = c->constant[1] = c->constant[2] = true;
}

/* Functions whose parameters are in another order than the row's, and those with numbers. */
static void apply_functions(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_div(wf_exp(in[0]), wf_pow(in[1], 3));
    out[1] = wf_maximum(wf_sqrt(in[1]), wf_clamp(in[0], -0.5F, 0.75F));
    out[2] = wf_where(in[2], wf_log(in[1]), wf_tanh(wf_relu(in[0])));
    out[3] = wf_minimum(wf_rsqrt(in[1]), wf_sigmoid(wf_abs(in[0])));
}

static void functions(op_case *c, const op_shape *s)
{
    *c = op_case_of(3, 4, apply_functions);
    c->in[0] = c->in[1] = c->in[2] = op_activations(s, op_width(s));
    c->in[1].low = 0.2;
    c->in[1].high = 3;
    c->in[2].wanted = false;
}

/* ---- the functions at their edges, by every instruction set ---- */

enum { EDGES = 1 << 14 };

#define EDGE(name, expression) WF_X_EVERY_WIDTH(name, (x, y), WF_NO_NUMBERS, (expression))
EDGE(edge_exp, WF_EXP(x))
EDGE(edge_log, WF_LOG(x))
EDGE(edge_tanh, WF_TANH(x))
EDGE(edge_pow, WF_POW(x, y))
EDGE(edge_max, WF_MAX(x, y))
EDGE(edge_sin, WF_SIN(x))
EDGE(edge_cos, WF_COS(x))
EDGE(edge_erf, WF_ERF(x))
EDGE(edge_log1p, WF_LOG1P(x))
EDGE(edge_expm1, WF_EXPM1(x))
EDGE(edge_floor, WF_FLOOR(x))
EDGE(edge_ceil, WF_CEIL(x))
EDGE(edge_round, WF_ROUND(x))

typedef void lane_loop(const float *const *in, const float *number, float *const *out,
                       int64_t n);
typedef struct edge {
    const char *name;
    lane_loop *loop[3];
    double (*right)(double x, double y);
    double ulps;
} edge;

#define RIGHT(f)                                                                               \
    static double right_##f(double x, double y)                                                \
    {                                                                                          \
        (void)y;                                                                               \
        return f(x);                                                                           \
    }
RIGHT(exp)
RIGHT(log)
RIGHT(tanh)
RIGHT(sin)
RIGHT(cos)
RIGHT(erf)
RIGHT(log1p)
RIGHT(expm1)
RIGHT(floor)
RIGHT(ceil)
RIGHT(rint)

static double right_max(double x, double y)
{
    return isnan(x) || isnan(y) ? NAN : fmax(x, y);
}

static const edge edges[] = {{"exp", WF_X_LOOPS(edge_exp), right_exp, 1},
                             {"log", WF_X_LOOPS(edge_log), right_log, 2},
                             {"tanh", WF_X_LOOPS(edge_tanh), right_tanh, 2},
                             {"pow", WF_X_LOOPS(edge_pow), pow, 4},
                             {"max", WF_X_LOOPS(edge_max), right_max, 0},
                             {"sin", WF_X_LOOPS(edge_sin), right_sin, 2},
                             {"cos", WF_X_LOOPS(edge_cos), right_cos, 2},
                             {"erf", WF_X_LOOPS(edge_erf), right_erf, 2},
                             {"log1p", WF_X_LOOPS(edge_log1p), right_log1p, 3},
                             {"expm1", WF_X_LOOPS(edge_expm1), right_expm1, 2},
                             {"floor", WF_X_LOOPS(edge_floor), right_floor, 0},
                             {"ceil", WF_X_LOOPS(edge_ceil), right_ceil, 0},
                             {"round", WF_X_LOOPS(edge_round), right_rint, 0}};

/* Returns the distance of two numbers, in units of the last place of the right one. */
static double ulps(float got, double right)
{
    float rounded = (float)right;
    int exponent;

    if (isnan(right) || isnan(got))
        return isnan(right) && isnan(got) ? 0 : 1e9;
    if (isinf(rounded) || isinf(got))
        return rounded == got                                       ? 0
               : fabs(right) > 3.4028e38 && fabsf(got) > 3.4028e38F ? 1
                                                                    : 1e9;
    frexp(right, &exponent);
    return fabs((double)got - right) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static void at_edges(void)
{
    static const float special[] = {
        0,    -0.0F, 1,     -1,       INFINITY,  -INFINITY,      NAN,      2,
        0.5F, -2,    3,     -3,       0x1p-149F, 0x1p-126F,      0x1p127F, 88.7F,
        -104, 1e9F,  -1e9F, 16777218, 0.55F,     0x1.fffffep-1F, 1.5F,     -1.5F,
        1e-8F};
    enum { SPECIAL = sizeof special / sizeof *special };
    static float x[EDGES], y[EDGES], first[EDGES], got[EDGES];
    const float none = 0;

    for (int i = 0; i < EDGES; i++) {
        uint32_t a = (uint32_t)i * 2654435761u;

        memcpy(&x[i], &a, sizeof a);
        y[i] = (float)(int32_t)(a * 40503u) * 0x1p-29F;
        if (i % 3 == 1)
            x[i] = fabsf(y[i]) + 0x1p-9F * (float)(i % 64);
        if (i < SPECIAL * SPECIAL) {
            x[i] = special[i / SPECIAL];
            y[i] = special[i % SPECIAL];
        }
    }
    for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
        for (int isa = 0; isa < 3; isa++) {
            static const char *const names[] = {"portable", "avx2", "avx512"};
            double worst = 0;
            int at = 0;

            if (!wf_cpu_simd_named(names[isa], NULL) || !edges[e].loop[isa])
                continue;
            edges[e].loop[isa]((const float *const[]){x, y}, &none, (float *const[]){got},
                               EDGES - 3);
            for (int i = 0; i < EDGES - 3; i++) {
                double off = ulps(got[i], edges[e].right((double)x[i], (double)y[i]));

                at = off > worst ? i : at;
                worst = off > worst ? off : worst;
                if (isa && !isnan(got[i]) && memcmp(&got[i], &first[i], sizeof *got) != 0)
                    worst = 1e10;
            }
            CU_ASSERT(worst <= edges[e].ulps);
            if (!(worst <= edges[e].ulps))
                printf("    %s by %s: %g ulp off at %a, %a: %a\n", edges[e].name, names[isa],
                       worst, (double)x[at], (double)y[at], (double)got[at]);
            memcpy(first, got, sizeof got);
        }
}

/* exp and tanh are those of core. */
static void as_core(void)
{
    static float x[EDGES], got[EDGES];
    const float none = 0;
    int wrong = 0;

    for (int i = 0; i < EDGES; i++)
        x[i] = (float)(i - EDGES / 2) * (110.0F / EDGES * 2);
    edges[0].loop[0]((const float *const[]){x, x}, &none, (float *const[]){got}, EDGES);
    for (int i = 0; i < EDGES; i++)
        wrong += got[i] != wf_expf(x[i]);
    edges[2].loop[0]((const float *const[]){x, x}, &none, (float *const[]){got}, EDGES);
    for (int i = 0; i < EDGES; i++)
        wrong += got[i] != wf_tanhf(x[i]);
    CU_ASSERT_EQUAL(wrong, 0);
}

int main(void)
{
    static const op_entry entries[] = {
#define EXPRESSION(name, inputs, numbers, outputs, flags)
#define ELEMENTWISE(name, inputs, numbers, expression, gradients) {#name, build_##name},
#include "kernels/expressions.def"
        {"comparisons", comparisons},
        {"whole numbers", whole_numbers},
        {"functions", functions},
        {NULL, NULL}};
    static const wf_test more[] = {{"functions at their edges", at_edges},
                                   {"functions as core has them", as_core},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_ELEMENTWISE, entries, more);
}
