/*
 * tests/parallel/test_check_op.c - wf_check_op passes what is right, and finds ops that are
 * wrong on purpose: in their gradient, in their kernel, in the order of a sum, in what their
 * signature claims.
 */
#include "core/numerics/tree.h"
#include "core/tensor.h"
#include "kernels/ops.h"
#include "parallel/check_op.h"
#include "tests/harness.h"
#include <string.h>

/* y[r] = sum_k x[r, k]^2, whose gradient is 2 x dy: the sum in double, in chunks and a tree, or
   as one chain. */
static wf_status squares_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]), k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t r = 0; r < n; r++) {
        y[r] = 0;
        for (int64_t i = 0; i < k; i++)
            y[r] += x[r * k + i] * x[r * k + i];
    }
    return WF_OK;
}

static float chain(const float *x, int64_t from, int64_t to)
{
    float sum = 0;

    for (int64_t i = from; i < to; i++)
        sum += x[i] * x[i];
    return sum;
}

static wf_status squares_chunked(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]), k = call->in[0]->local[1];
    int64_t at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(call->in[0], 1, at);

    (void)workspace;
    for (int64_t r = 0; r < n; r++) {
        float part[WF_MAX_CHUNKS] = {0};

        for (int c = 0; c < chunks; c++)
            part[c] = chain(x + r * k, at[c], at[c + 1]);
        for (int step = 1; step < WF_MAX_CHUNKS; step *= 2)
            for (int c = 0; c < WF_MAX_CHUNKS; c += 2 * step)
                part[c] += part[c + step];
        y[r] = part[0];
    }
    return WF_OK;
}

static wf_status squares_chain(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]), k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t r = 0; r < n; r++)
        y[r] = chain(x + r * k, 0, k);
    return WF_OK;
}

static wf_status squares_twice(const wf_call *call, void *workspace)
{
    float *y = call->out[0]->data;

    squares_chunked(call, workspace);
    for (int64_t r = 0; r < wf_tensor_local_count(call->out[0]); r++)
        y[r] *= 1.001f;
    return WF_OK;
}

/* dx[r, k] = factor x[r, k] dy[r], as an op of its own. */
static wf_status spread_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *dy = call->in[1]->data;
    double *dx = call->out[0]->data;
    int64_t k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)
        dx[i] = *(const float *)call->attr * x[i] * dy[i / k];
    return WF_OK;
}

static wf_status spread(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data, *dy = call->in[1]->data;
    float *dx = call->out[0]->data;
    int64_t k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)
        dx[i] = *(const float *)call->attr * x[i] * dy[i / k];
    return WF_OK;
}

static const wf_kernel spread_kernel = {.run = spread};
static const wf_op spread_op = {.name = "spread",
                                .signature = "mk,m->mk",
                                .reference = {.run = spread_reference},
                                .kernels = WF_KERNELS({"cpu", &spread_kernel})};

static void squares_backward(wf_gradient *g)
{
    const float two = 2;

    g->din[0] = wf_apply(&spread_op, &two, sizeof two, 2, g->in[0], g->dout[0]);
}

static void wrong_backward(wf_gradient *g)
{
    const float three = 3;

    g->din[0] = wf_apply(&spread_op, &three, sizeof three, 2, g->in[0], g->dout[0]);
}

static const wf_kernel chunked_kernel = {.run = squares_chunked},
                       chained_kernel = {.run = squares_chain},
                       off_kernel = {.run = squares_twice};
static const wf_device_kernel chunked[] = {{"cpu", &chunked_kernel}, {NULL, NULL}},
                              chained[] = {{"cpu", &chained_kernel}, {NULL, NULL}},
                              off[] = {{"cpu", &off_kernel}, {NULL, NULL}};

static wf_op squares_op(const wf_device_kernel *kernels, void (*backward)(wf_gradient *))
{
    return (wf_op){.name = "squares",
                   .signature = "mk->m",
                   .save = WF_SAVE_IN(0),
                   .reference = {.run = squares_reference},
                   .backward = backward,
                   .kernels = kernels};
}

/* y[r, k] = x[r, 0] + .. + x[r, k]: nothing of a row may be elsewhere. */
static wf_status running_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data, sum = 0;
    int64_t k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++) {
        sum = (i % k ? sum : 0) + x[i];
        y[i] = sum;
    }
    return WF_OK;
}

static wf_status running(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data, sum = 0;
    int64_t k = call->in[0]->local[1];

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++) {
        sum = (i % k ? sum : 0) + x[i];
        y[i] = sum;
    }
    return WF_OK;
}

static const wf_kernel running_kernel = {.run = running};
static const wf_device_kernel running_kernels[] = {{"cpu", &running_kernel}, {NULL, NULL}};

static wf_op running_op(const char *signature)
{
    return (wf_op){.name = "running",
                   .signature = signature,
                   .reference = {.run = running_reference},
                   .kernels = running_kernels};
}

static void apply_op(void *self, wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_apply(self, NULL, 0, 1, in[0]);
}

/* [6, 21], whose columns are summed in chunks. */
static wf_status check(wf_op *op, bool constant, wf_op_check_report *report, wf_error *error)
{
    wf_op_check c = {
        .op = op,
        .apply = apply_op,
        .self = op,
        .n_in = 1,
        .n_out = 1,
        .in = {
            {.ndim = 2, .dim = {wf_dim_chunked(6), wf_dim_chunked(21)}, .constant = constant}}};

    *error = (wf_error){WF_OK, ""};
    return wf_check_op(&c, report, error);
}

static void what_is_right(void)
{
    wf_op squares = squares_op(chunked, squares_backward), sums = running_op("mk!->mk!");
    wf_op_check_report report;
    wf_error error;

    CU_ASSERT_EQUAL(check(&squares, false, &report, &error), WF_OK);
    if (error.code != WF_OK)
        printf("    %s\n", error.text);
    CU_ASSERT(report.exact == 9 && report.inexact == 0 && report.refused == 0);
    CU_ASSERT(report.gradient > 0 && report.gradient < 1e-6 && report.kernel < 1e-5);
    CU_ASSERT_EQUAL(check(&sums, true, &report, &error), WF_OK);
    if (error.code != WF_OK)
        printf("    %s\n", error.text);
    CU_ASSERT(report.exact == 4 && report.refused == 1);
}

static void finds(wf_op op, bool constant, const char *words)
{
    wf_op_check_report report;
    wf_error error;

    CU_ASSERT_EQUAL(check(&op, constant, &report, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    if (!strstr(error.text, words))
        printf("    %s\n", error.text);
}

static void what_is_wrong(void)
{
    finds(squares_op(chunked, wrong_backward), false,
          "squares: the gradient of operand 0 is 5.0e-01 away from finite differences");
    finds(squares_op(off, squares_backward), false,
          "squares: output 0 by the CPU's kernel is 1.0e-03 away from the reference");
    finds(squares_op(chained, squares_backward), false,
          "squares with operands laid out as [*, a]: element ");
    finds(running_op("mk->mk"), true, "running with operands laid out as [*, a]: element ");
    finds(squares_op(chunked, NULL), false, "squares: no output has a gradient");
}

/* y = x + x[first of the row], a row of which may not be split, though the signature says so;
   its gradient, the sum of a row, is refused where the row is. */
#define FIRSTS(name, type, y_of)                                                               \
    static wf_status name(const wf_call *call, void *workspace)                                \
    {                                                                                          \
        const type *x = call->in[0]->data;                                                     \
        type *y = call->out[0]->data;                                                          \
        int64_t n = wf_tensor_local_count(call->out[0]), k = call->in[0]->local[1];            \
                                                                                               \
        (void)workspace;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                        \
            y[i] = x[i];                                                                       \
        for (int64_t i = 0; i < n; i++)                                                        \
            y_of;                                                                              \
        return WF_OK;                                                                          \
    }
FIRSTS(firsts_reference, double, y[i] += x[i - i % k])
FIRSTS(firsts, float, y[i] += x[i - i % k])
FIRSTS(firsts_grad_reference, double, y[i - i % k] += x[i])
FIRSTS(firsts_grad, float, y[i - i % k] += x[i])

static const wf_kernel firsts_kernel = {.run = firsts},
                       firsts_grad_kernel = {.run = firsts_grad};
static const wf_op firsts_grad_op = {.name = "firsts_grad",
                                     .signature = "mk!->mk!",
                                     .reference = {.run = firsts_grad_reference},
                                     .kernels = WF_KERNELS({"cpu", &firsts_grad_kernel})};

static void firsts_backward(wf_gradient *g)
{
    g->din[0] = wf_apply(&firsts_grad_op, NULL, 0, 1, g->dout[0]);
}

static const wf_device_kernel firsts_kernels[] = {{"cpu", &firsts_kernel}, {NULL, NULL}};

static wf_op firsts_op(const char *signature)
{
    return (wf_op){.name = "firsts",
                   .signature = signature,
                   .reference = {.run = firsts_reference},
                   .backward = firsts_backward,
                   .kernels = firsts_kernels};
}

/* Squares, and one number more than there is room for. */
static wf_status squares_and_one(const wf_call *call, void *workspace)
{
    squares_chunked(call, workspace);
    ((float *)call->out[0]->data)[wf_tensor_local_count(call->out[0])] = 0;
    return WF_OK;
}

static const wf_kernel one_more_kernel = {.run = squares_and_one};
static const wf_device_kernel one_more[] = {{"cpu", &one_more_kernel}, {NULL, NULL}};

static void what_gradients_hide(void)
{
    wf_op right = firsts_op("mk!->mk!"), sums = running_op("mk!->mk!");
    wf_op_check_report report;
    wf_error error;

    finds(firsts_op("mk->mk"), false, "firsts with operands laid out as [*, a]: element ");
    finds(squares_op(one_more, squares_backward), false,
          "squares: its kernel has written before the first or after the last element of "
          "output 0");
    CU_ASSERT_EQUAL(check(&right, false, &report, &error), WF_OK);
    CU_ASSERT(report.refused == 1 && report.refused_gradients == 0 && !report.notes[0]);
    CU_ASSERT_PTR_NOT_NULL(strstr(report.refusals, "[*, a]: "));
    CU_ASSERT_EQUAL(check(&sums, true, &report, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(report.notes, "running has no backward: gradients end at it"));
}

/* An op of the library, with an operand that may be partial and two that share a dim. */
static void apply_linear(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = wf_linear(in[0], in[1]);
}

static void apply_scale(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = wf_scale(in[0], 0.5f);
}

static void ops_of_the_library(void)
{
    wf_op_check linear = {
        .op = wf_op_find("linear1"),
        .apply = apply_linear,
        .n_in = 2,
        .n_out = 1,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_chunked(5), wf_dim_chunked(11)}},
               {.ndim = 2, .dim = {wf_dim_chunked(6), wf_dim_chunked(11)}}}};
    wf_op_check scale = {.op = wf_op_find("scale"),
                         .apply = apply_scale,
                         .n_in = 1,
                         .n_out = 1,
                         .in = {{.ndim = 2, .dim = {wf_dim_batch(5), wf_dim_width(7)}}},
                         .mesh = {2, 1}};
    wf_op_check_report report;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_check_op(&linear, &report, &error), WF_OK);
    CU_ASSERT(report.exact > 10 && report.refused > 5);
    CU_ASSERT_EQUAL(wf_check_op(&scale, &report, &error), WF_OK);
    CU_ASSERT(report.exact > 4); /* partial too */
    if (error.code != WF_OK)
        printf("    %s\n", error.text);
    CU_ASSERT_EQUAL(wf_check_op(&(wf_op_check){.n_in = 1}, NULL, &error), WF_EINVAL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"what is right passes", what_is_right},
        {"what is wrong is found", what_is_wrong},
        {"what gradients that are refused hide", what_gradients_hide},
        {"ops of the library", ops_of_the_library},
        {NULL, NULL}};

    return wf_test_main("check of an op", tests);
}
