/*
 * tests/parallel/test_check_expressions.c - wf_check_op over ops by expression: an
 * application's, one whose gradient is wrong, and each row of kernels/expressions.def that is
 * an op with its gradient.
 */
#include "kernels/elementwise.h"
#include "kernels/ops.h"
#include "parallel/check_op.h"
#include "tests/harness.h"
#include <string.h>

WF_ELEMENTWISE(exp_times, (s, x), WF_EXP(s) * x, (dy * WF_EXP(s) * x, dy *WF_EXP(s)))
WF_ELEMENTWISE_WITH(off_by_half, (x), (half), half *x *x, (dy * x))

static void apply_exp_times(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = exp_times(in[0], in[1]);
}

static void apply_off_by_half(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = off_by_half(in[0], 0.75f);
}

/* Numbers that suit every row: of an exponent, of bounds. */
static void apply_row(void *self, wf_tensor *const *in, wf_tensor **out)
{
    static const float number[4] = {0.9f, 1.4f};
    const wf_op *op = self;

    out[0] = wf_apply(op, number, 2 * sizeof *number, __builtin_popcount(op->save), in[0],
                      in[1], in[2]);
}

static wf_op_check by_expression(const wf_op *op, int n)
{
    wf_op_check c = {.op = op,
                     .apply = apply_row,
                     .self = (void *)(uintptr_t)op,
                     .n_in = n,
                     .n_out = 1,
                     .mesh = {2, 1}};

    for (int i = 0; i < n; i++)
        c.in[i] = (wf_op_check_operand){
            .ndim = 2, .dim = {wf_dim_batch(3), wf_dim_chunked(5)}, .low = 0.3, .high = 2};
    return c;
}

static void ops_by_expression(void)
{
    static const struct {
        const wf_op *op;
        int n;
    } rows[] = {
#define EXPRESSION(name, inputs, numbers, outputs, flags)
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    {&wf_op_##name, WF_COUNT(inputs)},
#include "kernels/expressions.def"
    };
    wf_op_check own = by_expression(&exp_times_op, 2);
    wf_op_check wrong = by_expression(&off_by_half_op, 1);
    wf_op_check_report report;
    wf_error error = {WF_OK, ""};

    own.apply = apply_exp_times;
    own.mesh[1] = 2;
    CU_ASSERT_EQUAL(wf_check_op(&own, &report, &error), WF_OK);
    CU_ASSERT(report.exact == 9 && report.inexact == 0 && report.gradient > 0);
    wrong.apply = apply_off_by_half;
    CU_ASSERT_EQUAL(wf_check_op(&wrong, &report, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "the gradient of operand 0"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_op_check c = by_expression(rows[i].op, rows[i].n);

        error = (wf_error){WF_OK, ""};
        if (rows[i].op == &wf_op_where)
            c.in[2].constant = true;
        CU_ASSERT_EQUAL(wf_check_op(&c, &report, &error), WF_OK);
        CU_ASSERT(report.exact >= 3 && report.inexact == 0 &&
                  (rows[i].n > 1 || !report.refused));
        if (error.code != WF_OK)
            printf("    %s\n", error.text);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"ops by expression", ops_by_expression}, {NULL, NULL}};

    return wf_test_main("check of expressions", tests);
}
