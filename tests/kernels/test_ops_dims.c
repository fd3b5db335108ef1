/*
 * tests/kernels/test_ops_dims.c - the ops on dims that a caller names: cases for op_harness.h,
 * and what they refuse.
 */
#include "kernels/conv.h"
#include "kernels/elementwise_ops.h"
#include "kernels/reshape.h"
#include "tests/kernels/op_harness.h"
#include <string.h>

static void apply_permute(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_permute(in[0], (const int[]){2, 0, 3, 1});
    out[1] = wf_permute(in[0], (const int[]){1, 0, 2, 3}); /* whole rows are copied */
}

static void permute(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 2, apply_permute);
    c->in[0] = op_heads(s, s->heads);
}

static void apply_transpose(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_transpose(in[0], 1, 2);
}

static void transpose(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 1, apply_transpose);
    c->in[0] = op_activations(s, wf_dim_chunked(s->width));
}

static void apply_slice(wf_tensor *const *in, wf_tensor **out)
{
    const wf_tensor *x = in[0];

    out[0] = wf_slice(in[0], 1, x->dim[1].size / 2, x->dim[1].size - x->dim[1].size / 2);
    out[1] = wf_slice(in[0], 2, 1, 2);
    out[2] = wf_slice(in[0], 0, 0, 0);
}

static void slice(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 3, apply_slice);
    c->in[0] = op_activations(s, wf_dim_width(s->width));
}

static void apply_slice_grad(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_slice_grad(in[0], in[1], 1, in[0]->dim[1].size - in[1]->dim[1].size);
}

static void slice_grad(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_slice_grad);
    c->in[0] = c->in[1] = op_activations(s, wf_dim_width(s->width));
    c->in[1].dim[1].size = (s->tokens + 1) / 2;
    c->in[0].wanted = false;
}

static void apply_sum(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_sum(in[0], 1);
    out[1] = wf_mean(in[0], 2);
    out[2] = wf_sum(in[0], 0);
}

static void sum(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 3, apply_sum);
    c->in[0] = op_activations(s, wf_dim_chunked(s->width));
}

static void apply_sum_expand(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_sum_expand(in[0], in[1], 2);
}

static void sum_expand(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 1, apply_sum_expand);
    c->in[0] = op_per_token(s);
    c->in[1] = op_activations(s, wf_dim_width(s->width));
    c->in[1].wanted = false;
}

static void apply_softmax(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_softmax(in[0], 2);
    out[1] = wf_softmax(in[0], 1);
}

static void softmax(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 2, apply_softmax);
    c->in[0] = op_activations(s, wf_dim_width(s->width));
}

/* Heads are taken apart and joined, and a matrix is turned over: a group of dims of its own. */
static void apply_reshape(wf_tensor *const *in, wf_tensor **out)
{
    const wf_dim *d = in[0]->dim;
    const wf_dim split[] = {d[0], d[1], wf_dim_chunked(d[2].size / d[2].grain),
                            wf_dim_width(-1)};
    const wf_dim turned[] = {d[0], wf_dim_width(d[2].size), wf_dim_width(d[1].size)};

    out[0] = wf_mul(wf_flatten(wf_reshape(in[0], 4, split), 2, 3), in[0]);
    out[1] = wf_reshape(in[0], 3, turned);
    out[2] = wf_flatten(in[0], 0, 2);
    out[3] = wf_squeeze(wf_unsqueeze(in[0], 1), 1);
}

static void reshape(op_case *c, const op_shape *s)
{
    *c = op_case_of(1, 4, apply_reshape);
    c->in[0] = op_activations(s, wf_dim_heads(s->heads, s->head_dim));
}

static void apply_stack(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_stack(2, in, 0);
    out[1] = wf_stack(3, (wf_tensor *const[]){in[0], in[1], in[0]}, 3);
}

static void stack(op_case *c, const op_shape *s)
{
    *c = op_case_of(2, 2, apply_stack);
    c->in[0] = c->in[1] = op_activations(s, wf_dim_width(s->width));
}

/* Operands that lack dims, and dims of size 1: of one of them, and of both. */
static void apply_broadcast(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_mul(in[0], in[1]);
    out[1] = wf_sub(in[2], in[0]);
    out[2] = wf_mul(in[3], in[2]);
    out[3] = wf_where(in[1], in[3], in[0]);
}

static void broadcast(op_case *c, const op_shape *s)
{
    wf_dim width = wf_dim_chunked(s->width), tokens = wf_dim_chunked(s->tokens);

    *c = op_case_of(4, 4, apply_broadcast);
    c->in[0] = op_activations(s, width);
    c->in[1] = op_vector(width);
    c->in[2] = (op_operand){.ndim = 2, .dim = {tokens, wf_dim_width(1)}, .wanted = true};
    c->in[3] = (op_operand){
        .ndim = 3, .dim = {wf_dim_batch(s->batch), wf_dim_width(1), width}, .wanted = true};
}

/* Matrices of tokens by width and the like, a batch of sequences of them. */
static op_operand matrices(const op_shape *s, wf_dim rows, wf_dim columns)
{
    return (op_operand){
        .ndim = 3, .dim = {wf_dim_batch(s->batch), rows, columns}, .wanted = true};
}

static const wf_matmul_options transposed_a = {.transpose_a = true};
static const wf_matmul_options transposed_b = {.transpose_b = true};
static const wf_matmul_options turned = {.transpose_a = true, .transpose_b = true};

static void apply_matmul(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_matmul(in[0], in[1], NULL);
    out[1] = wf_matmul(in[2], in[3], &turned);
}

static void apply_matmul_one_transposed(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_matmul(in[0], in[3], &transposed_b);
    out[1] = wf_matmul(in[2], in[1], &transposed_a);
}

static void matmul(op_case *c, const op_shape *s)
{
    wf_dim m = wf_dim_chunked(s->tokens), k = wf_dim_chunked(s->width),
           n = wf_dim_width(s->heads);

    *c = op_case_of(4, 2, apply_matmul);
    c->in[0] = matrices(s, m, k);
    c->in[1] = matrices(s, k, n);
    c->in[2] = matrices(s, k, m);
    c->in[3] = matrices(s, n, k);
}

static void matmul_one_transposed(op_case *c, const op_shape *s)
{
    matmul(c, s);
    c->apply = apply_matmul_one_transposed;
}

static void apply_matmul_over_batch(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_matmul(in[0], in[1], &transposed_a);
}

/* The sum over a batch has a chunk for each of its indices. */
static void matmul_over_batch(op_case *c, const op_shape *s)
{
    wf_dim batch = wf_dim_batch(s->batch * s->tokens);

    *c = op_case_of(2, 1, apply_matmul_over_batch);
    c->in[0] = (op_operand){.ndim = 2, .dim = {batch, wf_dim_width(s->width)}, .wanted = true};
    c->in[1] = (op_operand){.ndim = 2, .dim = {batch, wf_dim_width(s->heads)}, .wanted = true};
}

/* Sequences: taps that overlap, that leave gaps, and channels by group. */
static void apply_conv1d(wf_tensor *const *in, wf_tensor **out)
{
    const wf_conv_options overlap = {.padding = {2}},
                          gaps = {.stride = {3}, .padding = {3}, .dilation = {2}},
                          groups = {.groups = (int)(in[2]->dim[0].size / 2), .padding = {1}};

    out[0] = wf_conv(in[0], in[1], &overlap);
    out[1] = wf_conv(in[0], in[1], &gaps);
    out[2] = wf_conv(in[3], in[2], &groups);
}

static void conv1d(op_case *c, const op_shape *s)
{
    wf_dim width = wf_dim_chunked(s->width), taps = wf_dim_width(3);

    *c = op_case_of(4, 3, apply_conv1d);
    c->in[0] = op_activations(s, width);
    c->in[1] =
        (op_operand){.ndim = 3, .dim = {wf_dim_chunked(s->heads), width, taps}, .wanted = true};
    c->in[2] = (op_operand){
        .ndim = 3, .dim = {wf_dim_heads(s->groups, 2), wf_dim_width(3), taps}, .wanted = true};
    c->in[3] = op_activations(s, s->groups > 1 ? wf_dim_heads(s->groups, 3) : wf_dim_width(3));
}

static void apply_conv2d(wf_tensor *const *in, wf_tensor **out)
{
    const wf_conv_options same = {.padding = {1, 0}},
                          strides = {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}};
    const int kernel[] = {3, 2};

    out[0] = wf_conv(in[0], in[1], &same);
    out[1] = wf_conv(in[0], in[1], &strides);
    out[2] = wf_patches_grad(in[0], wf_patches(in[0], kernel, &strides), kernel, &strides);
}

static void conv2d(op_case *c, const op_shape *s)
{
    wf_dim channels = wf_dim_width(s->groups);

    *c = op_case_of(2, 3, apply_conv2d);
    c->in[0] = (op_operand){.ndim = 4,
                            .dim = {wf_dim_batch(s->batch), wf_dim_chunked(s->tokens),
                                    wf_dim_width(s->head_dim), channels},
                            .wanted = true};
    c->in[1] = (op_operand){
        .ndim = 4,
        .dim = {wf_dim_chunked(s->heads), channels, wf_dim_width(3), wf_dim_width(2)},
        .wanted = true};
}

static const op_entry cases[] = {
    {"conv1d", conv1d},
    {"conv2d", conv2d},
    {"permute", permute},
    {"transpose", transpose},
    {"slice", slice},
    {"slice_grad", slice_grad},
    {"sum", sum},
    {"sum_expand", sum_expand},
    {"softmax", softmax},
    {"reshape", reshape},
    {"stack", stack},
    {"broadcast", broadcast},
    {"matmul", matmul},
    {"matmul of one transposed", matmul_one_transposed},
    {"matmul over a batch", matmul_over_batch},
    {NULL, NULL},
};

static void refused(wf_context *ctx, const wf_tensor *y, const char *words)
{
    CU_ASSERT_PTR_NULL(y);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_ESHAPE);
    if (!strstr(wf_context_error(ctx)->text, words)) {
        printf("    '%s' is not in '%s'\n", words, wf_context_error(ctx)->text);
        CU_FAIL("see above");
    }
    wf_context_clear(ctx);
}

static void refusals(void)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(5), wf_dim_heads(3, 4)};
    const wf_dim odd[] = {wf_dim_width(3), wf_dim_width(6), wf_dim_width(1)};
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *uneven, *patches;

    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    uneven = wf_tensor_new(ctx, WF_F32, 3, odd, NULL, WF_MEMORY_ACTIVATION);
    refused(ctx, wf_permute(x, (const int[]){0, 1, 1}), "names one of them twice");
    refused(ctx, wf_permute(x, (const int[]){0, 1, 3}), "dim 3 of a tensor with 3 dims");
    refused(ctx, wf_transpose(x, 0, -1), "dim -1 of a tensor with 3 dims");
    refused(ctx, wf_slice(x, 1, 3, 3), "3 indices from 3 on of dim 1, which has 5");
    refused(ctx, wf_slice(x, 1, 1, INT64_MAX), "of dim 1, which has 5");
    refused(ctx, wf_slice(x, 2, 2, 4), "grains of 4");
    refused(ctx, wf_slice_grad(x, x, 1, 1), "slice_grad: 5 indices from 1 on of dim 1");
    refused(ctx, wf_sum(x, 3), "dim 3 of a tensor");
    refused(ctx, wf_softmax(x, 3), "dim 3 of a tensor");
    refused(ctx, wf_matmul(x, x, NULL), "has size 5, but its partner has 12");
    refused(ctx, wf_reshape(x, 2, (wf_dim[]){wf_dim_width(7), wf_dim_width(17)}),
            "120 elements in dims for 119");
    refused(ctx, wf_reshape(x, 2, (wf_dim[]){wf_dim_width(-1), wf_dim_width(7)}),
            "dim 0 would have size -1");
    refused(ctx, wf_squeeze(x, 1), "squeeze: dim 1 has size 5");
    refused(ctx, wf_unsqueeze(x, 4), "a new dim 4 of a tensor with 3 dims");
    refused(ctx, wf_flatten(x, 2, 1), "flatten: dims 2 to 1");
    refused(ctx, wf_add(x, wf_slice(x, 1, 0, 2)), "has size 2, but its partner has 5");
    CU_ASSERT_PTR_NULL(wf_sum(NULL, 0));
    refused(ctx, wf_patches(x, (const int[]){9}, NULL), "a kernel of 9 with stride 1");
    refused(ctx, wf_patches(wf_sum(x, 0), (const int[]){1}, NULL), "a tensor with 2 dims");
    refused(ctx, wf_conv(x, wf_slice(x, 2, 0, 4), &(wf_conv_options){.groups = 2}), "2 groups");
    refused(ctx,
            wf_patches_grad(x, wf_patches(x, (const int[]){1}, NULL), (const int[]){3},
                            &(wf_conv_options){.padding = {1}}),
            "dim 3 of operand 1 has size 1");
    refused(ctx, wf_conv(x, uneven, &(wf_conv_options){.groups = 2}), "groups divide both");
    patches = wf_patches(wf_permute(x, (const int[]){0, 2, 1}), (const int[]){3}, NULL);
    CU_ASSERT(patches && patches->dim[1].size == 10 && patches->dim[1].grain == 1);
    CU_ASSERT_PTR_NULL(wf_conv(NULL, NULL, NULL));
    CU_ASSERT_PTR_NULL(wf_reshape(NULL, 0, NULL));
    CU_ASSERT_PTR_NULL(wf_add(NULL, NULL));
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(wf_transpose(NULL, 0, 0));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* A batch dim that is joined with dims of size 1 stays one; a tensor without elements has other
   dims of size 0 or none. */
static void joined_dims(void)
{
    const wf_dim dims[] = {wf_dim_batch(3), wf_dim_width(1), wf_dim_width(2)};
    const wf_dim odd[] = {wf_dim_batch(3), wf_dim_width(5), wf_dim_width(2)};
    const wf_dim none[] = {wf_dim_width(0), wf_dim_width(4)};
    wf_context *ctx = op_context_open(1);
    wf_tensor *x, *y;

    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    y = wf_flatten(x, 0, 1);
    CU_ASSERT(y && wf_dim_equal(y->dim[0], dims[0]));
    y = wf_flatten(x, 0, 2);
    CU_ASSERT(y && y->dim[0].size == 6 && y->dim[0].chunks == WF_CHUNKS_8);
    x = wf_tensor_new(ctx, WF_F32, 3, odd, NULL, WF_MEMORY_ACTIVATION);
    y = wf_patches(x, (const int[]){2}, &(wf_conv_options){.stride = {2}}); /* 0 1, 2 3 */
    CU_ASSERT(y && y->dim[1].size == 2);
    x = wf_tensor_new(ctx, WF_F32, 2, none, NULL, WF_MEMORY_ACTIVATION);
    y = wf_reshape(x, 2, (wf_dim[]){wf_dim_width(2), wf_dim_width(0)});
    CU_ASSERT(y && y->dim[0].size == 2 && y->dim[1].size == 0);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test more[] = {
        {"refusals", refusals}, {"dims that are joined", joined_dims}, {NULL, NULL}};

    return op_main(OP_SUITE_DIMS, cases, more);
}
