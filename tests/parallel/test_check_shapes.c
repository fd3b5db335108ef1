/*
 * tests/parallel/test_check_shapes.c - wf_check_op over ops that change shapes: reshape,
 * broadcasting, convolutions and attention to other tokens, on every layout of a small mesh.
 */
#include "kernels/conv.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "kernels/reshape.h"
#include "parallel/check_op.h"
#include "tests/harness.h"
#include <string.h>

#define HEADS                                                                                  \
    {                                                                                          \
        .ndim = 3, .dim = { wf_dim_batch(4), wf_dim_chunked(6), wf_dim_heads(4, 3) }           \
    }

static void apply_heads(void *self, wf_tensor *const *in, wf_tensor **out)
{
    const wf_dim *d = in[0]->dim;

    (void)self;
    out[0] = wf_reshape(in[0], 4, (wf_dim[]){d[0], d[1], wf_dim_chunked(4), wf_dim_width(3)});
    out[1] = wf_flatten(in[0], 1, 2);
}

static void apply_broadcast(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = wf_mul(in[0], in[1]);
}

static void apply_conv(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = wf_conv(in[0], in[1], self);
}

static void apply_bias(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = wf_attention(in[0], in[1], in[1], &(wf_attention_options){.bias = in[2]});
}

/* Masks of every other key. */
static void apply_mask(void *self, wf_tensor *const *in, wf_tensor **out)
{
    const wf_attention_options o = {.mask = wf_greater_than(in[2], 0)};

    (void)self;
    out[0] = wf_attention(in[0], in[1], in[1], &o);
}

static void passes(const wf_op_check *check, int64_t exact)
{
    wf_op_check_report report;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_check_op(check, &report, &error), WF_OK);
    CU_ASSERT(report.exact >= exact);
    if (error.code != WF_OK || report.exact < exact)
        printf("    %s: exact %d, inexact %d, refused %d; %s\n", check->op->name,
               (int)report.exact, (int)report.inexact, (int)report.refused, error.text);
}

static void reshapes(void)
{
    const wf_op_check heads = {.op = wf_op_find("reshape"),
                               .apply = apply_heads,
                               .n_in = 1,
                               .n_out = 2,
                               .in = {HEADS}};
    const wf_op_check broadcasts[] = {
        {.op = wf_op_find("broadcast"),
         .apply = apply_broadcast,
         .n_in = 2,
         .n_out = 1,
         .in = {HEADS, {.ndim = 2, .dim = {wf_dim_width(1), wf_dim_heads(4, 3)}}}},
        {.op = wf_op_find("broadcast"),
         .apply = apply_broadcast,
         .n_in = 2,
         .n_out = 1,
         .in = {{.ndim = 2, .dim = {wf_dim_batch(4), wf_dim_width(1)}},
                {.ndim = 2, .dim = {wf_dim_width(1), wf_dim_chunked(5)}}}},
        /* repeated along two dims that ranks split */
        {.op = wf_op_find("broadcast"),
         .apply = apply_broadcast,
         .n_in = 2,
         .n_out = 1,
         .in = {{.ndim = 2, .dim = {wf_dim_width(1), wf_dim_width(1)}},
                {.ndim = 2, .dim = {wf_dim_batch(4), wf_dim_chunked(8)}}}},
        {.op = wf_op_find("broadcast"),
         .apply = apply_broadcast,
         .n_in = 2,
         .n_out = 1,
         .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_width(1), wf_dim_width(1)}},
                {.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_chunked(4), wf_dim_chunked(8)}}}}};

    passes(&heads, 4);
    for (size_t i = 0; i < sizeof broadcasts / sizeof *broadcasts; i++)
        passes(&broadcasts[i], i < 2 ? 4 : 9);
}

static void convolutions(void)
{
    static const wf_conv_options options = {.stride = {2}, .padding = {1}},
                                 groups = {.padding = {1}, .groups = 2};
    const wf_op_check plain = {
        .op = wf_op_find("patches"),
        .apply = apply_conv,
        .self = (void *)(uintptr_t)&options,
        .n_in = 2,
        .n_out = 1,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_chunked(5), wf_dim_chunked(3)}},
               {.ndim = 3, .dim = {wf_dim_chunked(4), wf_dim_chunked(3), wf_dim_width(3)}}}};
    const wf_op_check apart = {
        .op = wf_op_find("patches"),
        .apply = apply_conv,
        .self = (void *)(uintptr_t)&groups,
        .n_in = 2,
        .n_out = 1,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_chunked(3), wf_dim_heads(2, 2)}},
               {.ndim = 3, .dim = {wf_dim_heads(2, 3), wf_dim_width(2), wf_dim_width(3)}}}};

    passes(&plain, 4);
    passes(&apart, 3);
}

static void apply_pools(void *self, wf_tensor *const *in, wf_tensor **out)
{
    const wf_conv_options o = {.stride = {2}, .padding = {1}};
    const int kernel[] = {3};

    (void)self;
    out[0] = wf_avg_pool(in[0], kernel, &o);
    out[1] = wf_max_pool(in[0], kernel, &o);
    out[2] = wf_upsample(in[0], (const int[]){3});
    out[4] = wf_upsample_linear(in[0], (const int[]){3});
    out[3] = wf_group_norm(in[0], 2, in[1], in[1], 1e-5f);
}

static void apply_transposed(void *self, wf_tensor *const *in, wf_tensor **out)
{
    const wf_conv_options o = {.stride = {2}, .padding = {1}};

    (void)self;
    out[0] = wf_conv_transpose(in[0], in[1], &o, (const int[]){1});
}

static void pools(void)
{
    const wf_op_check plain = {
        .op = wf_op_find("patches"),
        .apply = apply_pools,
        .n_in = 2,
        .n_out = 5,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_width(5), wf_dim_heads(2, 3)}},
               {.ndim = 1, .dim = {wf_dim_heads(2, 3)}}}};
    const wf_op_check transposed = {
        .op = wf_op_find("patches_grad"),
        .apply = apply_transposed,
        .n_in = 2,
        .n_out = 1,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_width(5), wf_dim_chunked(3)}},
               {.ndim = 3, .dim = {wf_dim_chunked(3), wf_dim_chunked(4), wf_dim_width(3)}}}};

    passes(&plain, 4);
    passes(&transposed, 4);
}

static void attentions(void)
{
    const wf_op_check_operand q = {.ndim = 4,
                                   .dim = {wf_dim_batch(4), wf_dim_chunked(3),
                                           wf_dim_chunked(4), wf_dim_width(2)}},
                              kv = {.ndim = 4,
                                    .dim = {wf_dim_batch(4), wf_dim_chunked(5),
                                            wf_dim_chunked(2), wf_dim_width(2)}};
    const wf_op_check bias = {
        .op = wf_op_find("attention_general"),
        .apply = apply_bias,
        .n_in = 3,
        .n_out = 1,
        .in = {q, kv, {.ndim = 3, .dim = {q.dim[2], q.dim[1], kv.dim[1]}}}};
    const wf_op_check mask = {
        .op = wf_op_find("attention_general"),
        .apply = apply_mask,
        .n_in = 3,
        .n_out = 1,
        .in = {q, kv, {.ndim = 2, .dim = {kv.dim[0], kv.dim[1]}, .constant = true}}};

    passes(&bias, 8);
    passes(&mask, 8);
}

int main(void)
{
    static const wf_test tests[] = {{"reshape and broadcasting", reshapes},
                                    {"convolutions", convolutions},
                                    {"pools, group norms, transposed convolutions", pools},
                                    {"attention to other tokens", attentions},
                                    {NULL, NULL}};

    return wf_test_main("check of shapes", tests);
}
