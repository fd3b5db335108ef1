/*
 * tests/kernels/test_ops_rows.c - the ops of kernels/row_ops.h: cases for op_harness.h, what
 * they give for numbers that can be read, and what they refuse; and pools and more pixels
 * (kernels/pool.h), made of them.
 */
#include "core/host_data.h"
#include "kernels/elementwise_ops.h"
#include "kernels/pool.h"
#include "kernels/reshape.h"
#include "kernels/row_ops.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <string.h>

/* Values in order, joined with those that a gather finds at the same indices. */
static void apply_topk(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *index;

    wf_topk(in[0], (in[0]->dim[2].size + 1) / 2, &out[0], &index);
    out[1] = wf_gather(in[1], index);
    out[2] = wf_scatter(in[0], index, out[0]);
    wf_sort(in[1], false, &out[3], &index);
}

static void topk(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 4, apply_topk);
    c->in[0] = c->in[1] = op_activations(s, wf_dim_width(s->width));
}

static void apply_extremes(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_max(in[0], 1);
    out[1] = wf_min(in[0], 2);
    out[2] = wf_one_hot(wf_argmax(in[0], 2), in[0]->dim[2].size);
    out[3] = wf_argmax(in[0], 0);
}

static void extremes(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_extremes);
    c->in[0] = op_activations(s, wf_dim_width(s->width));
    c->constant[2] = c->constant[3] = true;
}

static void apply_triangles(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_tril(in[0], 0);
    out[1] = wf_triu(in[0], -1);
    out[2] = wf_tril(in[0], 2);
    out[3] = wf_cumsum(in[0]);
}

static void triangles(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_triangles);
    c->in[0] = op_activations(s, wf_dim_width(s->width));
}

static void apply_joined(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_concat(3, (wf_tensor *const[]){in[0], in[1], in[0]}, 1);
    out[1] = wf_concat(2, in, 2);
    out[2] = wf_pad(in[0], 1, 2, 1, 0.5F);
    out[3] = wf_pad(in[1], 2, 0, 3, -1);
}

static void joined(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 4, apply_joined);
    c->in[0] = c->in[1] = op_activations(s, wf_dim_width(s->width));
}

static void apply_statistics(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *part[2];

    out[0] = wf_variance(in[0], 2, 1);
    out[1] = wf_mul(in[0], wf_expand(wf_mean(in[0], 1), in[0], 1));
    wf_split(in[0], 2, (in[0]->dim[2].size + 1) / 2, 2, part);
    out[2] = part[0];
    out[3] = part[1];
}

static void statistics(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_statistics);
    c->in[0] = op_activations(s, wf_dim_width(s->width));
}

static const op_entry cases[] = {
    {"topk", topk},     {"extremes", extremes},     {"triangles", triangles},
    {"joined", joined}, {"statistics", statistics}, {NULL, NULL}};

/* ---- numbers that can be read ---- */

static wf_tensor *rows_of(wf_context *ctx, int64_t rows, int64_t n, const float *from)
{
    const wf_dim dims[] = {wf_dim_batch(rows), wf_dim_width(n)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, from, (size_t)(rows * n) * sizeof *from);
    return t;
}

static void is(const wf_tensor *t, int n, const float *want)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(wf_tensor_local_count(t), n);
    for (int i = 0; i < n; i++) {
        float got = ((const float *)t->data)[i];

        CU_ASSERT(isnan(want[i]) ? isnan(got) : got == want[i]);
    }
}

#define IS(t, ...)                                                                             \
    is(t, (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)),                         \
       (const float[]){__VA_ARGS__})

static void readable(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *values, *index;

    wf_scope_open(ctx);
    x = rows_of(ctx, 2, 5, (const float[]){3, 1, 3, -2, 7, 0, NAN, 5, -INFINITY, 5});
    wf_topk(x, 3, &values, &index);
    IS(values, 7, 3, 3, NAN, 5, 5);
    IS(index, 4, 0, 2, 1, 2, 4);
    wf_sort(x, false, &values, &index);
    IS(index, 3, 1, 0, 2, 4, 1, 3, 0, 2, 4);
    IS(wf_argmax(x, 0), 0, 1, 1, 0, 0);
    x = rows_of(ctx, 1, 4, (const float[]){1, 2, 3, 4});
    index = rows_of(ctx, 1, 3, (const float[]){2, 0, 2});
    IS(wf_gather(x, index), 3, 1, 3);
    IS(wf_scatter(x, index, rows_of(ctx, 1, 3, (const float[]){1, 10, 5})), 10, 0, 6, 0);
    IS(wf_one_hot(index, 3), 0, 0, 1, 1, 0, 0, 0, 0, 1);
    IS(wf_cumsum(x), 1, 3, 6, 10);
    IS(wf_pad(x, 1, 1, 2, 9), 9, 1, 2, 3, 4, 9, 9);
    IS(wf_variance(x, 1, 1), 5.0F * (1.0F / 3));
    x = rows_of(ctx, 2, 2, (const float[]){1, 2, 3, 4});
    IS(wf_tril(x, 0), 1, 0, 3, 4);
    IS(wf_triu(x, 1), 0, 2, 0, 0);
    IS(wf_concat(2, (wf_tensor *const[]){x, wf_tril(x, 0)}, 1), 1, 2, 1, 0, 3, 4, 3, 4);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void pictures(void)
{
    const wf_conv_options each = {.stride = {1}};
    const int two[] = {2};
    wf_context *ctx = op_context_open(1);
    wf_tensor *x;

    wf_scope_open(ctx);
    x = wf_unsqueeze(rows_of(ctx, 1, 3, (const float[]){2, 4, 8}), 2);
    IS(wf_avg_pool(x, two, &each), 3, 6);
    IS(wf_max_pool(x, two, &each), 4, 8);
    IS(wf_upsample(x, two), 2, 2, 4, 4, 8, 8);
    IS(wf_upsample_linear(x, two), 2, 2.5F, 3.5F, 5, 7, 8);
    CU_ASSERT_PTR_NULL(wf_upsample_linear(x, (const int[]){0}));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "upsample_linear: dim 1 0 times"));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* The gate of a mixture: the two greatest of a softmax, made to add up to 1, each in its
   expert's column. */
static wf_tensor *top_2_gate(wf_tensor *logits)
{
    wf_tensor *p, *index;

    wf_topk(wf_softmax(logits, 1), 2, &p, &index);
    return wf_scatter(logits, index, wf_div(p, wf_expand(wf_sum(p, 1), p, 1)));
}

static void gate(void)
{
    wf_context *ctx = op_context_open(1);
    const float *y;
    wf_tensor *t;

    wf_scope_open(ctx);
    t = top_2_gate(rows_of(ctx, 1, 4, (const float[]){1, 3, 2, -1}));
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    y = t->data;
    CU_ASSERT(y[0] == 0 && y[3] == 0);
    CU_ASSERT_DOUBLE_EQUAL((double)y[1], 1 / (1 + exp(-1)), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL((double)(y[1] + y[2]), 1, 1e-6);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void refused(wf_context *ctx, const wf_tensor *y, wf_status code, const char *words)
{
    CU_ASSERT_PTR_NULL(y);
    CU_ASSERT_EQUAL(wf_context_status(ctx), code);
    if (!strstr(wf_context_error(ctx)->text, words)) {
        printf("    '%s' is not in '%s'\n", words, wf_context_error(ctx)->text);
        CU_FAIL("see above");
    }
    wf_context_clear(ctx);
}

static void refusals(void)
{
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *bad, *values, *index, *parts[3];

    wf_scope_open(ctx);
    x = rows_of(ctx, 1, 3, (const float[]){1, 2, 3});
    bad = rows_of(ctx, 1, 2, (const float[]){0, 3});
    wf_topk(x, 4, &values, &index);
    refused(ctx, values, WF_ESHAPE, "topk: 4 of a row of 3");
    refused(ctx, wf_gather(x, bad), WF_EINVAL,
            "element 1 of operand 1 is 3, no index of [0, 3)");
    refused(ctx, wf_one_hot(rows_of(ctx, 1, 1, (const float[]){0.5F}), 3), WF_EINVAL,
            "element 0 of operand 0 is 0.5");
    refused(ctx, wf_one_hot(x, 0), WF_ESHAPE, "0 classes");
    refused(ctx,
            wf_gather(wf_tensor_new(ctx, WF_F32, 2,
                                    (wf_dim[]){x->dim[0], wf_dim_width((1 << 24) + 1)}, NULL,
                                    WF_MEMORY_ACTIVATION),
                      bad),
            WF_ESHAPE, "gather: a row of 16777217; take at most 16777216");
    refused(ctx, wf_pad(x, 1, -1, 0, 0), WF_ESHAPE, "pad: -1 before");
    refused(ctx, wf_concat(2, (wf_tensor *const[]){x, bad}, 2), WF_ESHAPE, "dim 2 of a tensor");
    refused(ctx, wf_max(x, 2), WF_ESHAPE, "dim 2 of a tensor");
    refused(ctx, wf_variance(x, 1, 3), WF_EINVAL, "variance: of 3 elements, less 3");
    wf_split(x, 1, 2, 3, parts);
    refused(ctx, parts[0], WF_ESHAPE, "split: 3 parts of 2 each of a dim of 3");
    CU_ASSERT_PTR_NULL(wf_cumsum(NULL));
    wf_context_clear(ctx);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test more[] = {{"numbers that can be read", readable},
                                   {"pictures that can be read", pictures},
                                   {"the gate of a mixture", gate},
                                   {"refusals", refusals},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_ROWS, cases, more);
}
