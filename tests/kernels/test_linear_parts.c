/* tests/kernels/test_linear_parts.c - ranks that hold parts (op_parts.h): products. */
#include "kernels/attention_internal.h"
#include "kernels/linear_sum.h"
#include "tests/kernels/op_parts.h"

/* 12 heads of 4 features: over 8 ranks they are cut unevenly, and never inside a head. */
static const wf_dim heads = {48, 4, WF_CHUNKS_8}, ffn = {37, 1, WF_CHUNKS_8};
static const wf_dim sparse = {5, 1, WF_CHUNKS_8}; /* less than one index for each rank */

static wf_tensor *activations(wf_dim last)
{
    const wf_dim dims[] = {wf_dim_batch(8), wf_dim_chunked(11), last};

    return random_tensor(3, dims);
}

static wf_tensor *matrix(wf_dim rows, wf_dim columns)
{
    const wf_dim dims[] = {rows, columns};

    return random_tensor(2, dims);
}

/* y = x W^T and its gradients, over k, over n and over tokens; `shrink` makes products
 * underflow. */
static void product_parts(wf_dim k, wf_dim n, float shrink)
{
    const split over_k = {"linear1 over k", {2, 1}, {SUM}, TREE};
    const split over_n = {"linear1 over n", {WHOLE, 0}, {2}, ANY};
    const split over_tokens = {"linear1 over tokens", {1, WHOLE}, {1}, ANY};
    const split dx_over_n = {"linear1_dx over n", {2, 0}, {SUM}, TREE};
    const split dx_over_k = {"linear1_dx over k", {WHOLE, 1}, {2}, ANY};
    const split dw_over_batch = {"linear_dw over batch", {0, 0}, {SUM}, TREE};
    const split dw_over_n = {"linear_dw over n", {2, WHOLE}, {0}, ANY};
    const split dw_over_k = {"linear_dw over k", {WHOLE, 2}, {1}, ANY};
    wf_call forward = {.op = &wf_op_linear1, .n_in = 2, .n_out = 1};
    wf_call dx = {.op = &wf_op_linear1_dx, .n_in = 2, .n_out = 1};
    wf_call dw = {.op = &wf_op_linear_dw, .n_in = 2, .n_out = 1};
    wf_tensor *operand[3];

    open_context(1);
    operand[0] = activations(k);
    operand[1] = matrix(n, k);
    operand[2] = activations(n);
    for (int i = 0; shrink > 0 && i < 3; i++)
        for (int64_t e = 0; e < wf_tensor_count(operand[i]); e++)
            ((float *)operand[i]->data)[e] = i == 1 ? -shrink : shrink;
    forward.in[0] = dw.in[1] = operand[0];
    forward.in[1] = dx.in[1] = operand[1];
    dx.in[0] = dw.in[0] = operand[2];
    check(forward, &over_k);
    check(forward, &over_n);
    check(forward, &over_tokens);
    check(dx, &dx_over_n);
    check(dx, &dx_over_k);
    check(dw, &dw_over_batch);
    check(dw, &dw_over_n);
    check(dw, &dw_over_k);
    close_context();
}

static void products(void)
{
    product_parts(heads, ffn, 0);
    product_parts(ffn, heads, 0);
    product_parts(sparse, sparse, 0);
}

static void products_that_underflow(void)
{
    product_parts(ffn, heads, 1e-25F);
    product_parts(sparse, sparse, 1e-25F);
}

/* A weight and what adapts it: ranks split both summed dims, and hold a node of one tree. */
static void adapted_products(void)
{
    const split over_k = {"linear2_sum over k and m", {2, 1, 2, 1}, {SUM}, TREE};
    const split over_n = {"linear2_sum over n", {WHOLE, 0, WHOLE, 0}, {2}, ANY};
    const split over_tokens = {"linear2_sum over tokens", {1, WHOLE, 1, WHOLE}, {1}, ANY};
    wf_call sum = {.op = &wf_op_linear2_sum, .n_in = 4, .n_out = 1};

    open_context(1);
    sum.in[0] = activations(heads);
    sum.in[1] = matrix(ffn, heads);
    sum.in[2] = activations(sparse);
    sum.in[3] = matrix(ffn, sparse);
    check(sum, &over_k);
    check(sum, &over_n);
    check(sum, &over_tokens);
    close_context();
}

/* Columns of two tensors, chunk by chunk one behind the other: those of one tensor of 8
   chunks. */
static wf_tensor *interleaved(const wf_tensor *a, const wf_tensor *b)
{
    int last = a->ndim - 1;
    int64_t n = a->local[last] / 8, m = b->local[last] / 8, rows;
    wf_dim dims[WF_MAX_DIMS];
    wf_tensor *t;
    float *to;

    for (int d = 0; d < last; d++)
        dims[d] = a->dim[d];
    dims[last] = wf_dim_chunked(8 * (n + m));
    t = random_tensor(a->ndim, dims);
    to = t->data;
    rows = wf_tensor_count(a) / (8 * n);
    for (int64_t chunk = 0; chunk < 8 * rows; chunk++) {
        for (int64_t i = 0; i < n; i++)
            *to++ = ((const float *)a->data)[chunk * n + i];
        for (int64_t i = 0; i < m; i++)
            *to++ = ((const float *)b->data)[chunk * m + i];
    }
    return t;
}

/* A chunk is one chain through both terms: the bits are those of one product over both. */
static void one_chain(void)
{
    wf_dim k = wf_dim_chunked(48), m = wf_dim_chunked(24);
    wf_tensor *x, *w, *u, *b, *sum, *one;

    open_context(1);
    x = activations(k);
    w = matrix(ffn, k);
    u = activations(m);
    b = matrix(ffn, m);
    sum = wf_linear_sum(x, w, u, b);
    one = wf_linear(interleaved(x, u), interleaved(w, b));
    CU_ASSERT_FATAL(sum && one && wf_tensor_count(sum) == wf_tensor_count(one));
    CU_ASSERT(memcmp(sum->data, one->data, (size_t)wf_tensor_count(sum) * sizeof(float)) == 0);
    close_context();
}

/* Members of a group have chunks of different sizes; a chunk runs through all of them. */
static void product_groups(void)
{
    const split over_n = {"linear3_dx over n, m, l", {2, 0, 2, 0, 2, 0}, {SUM}, TREE};
    const split over_k = {"linear3 over k", {2, 1, 1, 1}, {SUM, SUM, SUM}, TREE};
    const wf_dim n[] = {heads, ffn, sparse};
    wf_call forward = {.op = &wf_op_linear3, .n_in = 4, .n_out = 3};
    wf_call dx = {.op = &wf_op_linear3_dx, .n_in = 6, .n_out = 1};

    open_context(1);
    forward.in[0] = activations(ffn);
    for (int m = 0; m < 3; m++) {
        forward.in[m + 1] = dx.in[2 * m + 1] = matrix(n[m], ffn);
        dx.in[2 * m] = activations(n[m]);
    }
    check(forward, &over_k);
    check(dx, &over_n);
    close_context();
}

/* Members that differ in their chunks: neighbours that do not are a sum of their own, and these
   are added in order, so that a rank's part of dx is the slice of the whole. */
static void mixed_groups(void)
{
    const split over_k = {"linear3_dx over k", {WHOLE, 1, WHOLE, 1, WHOLE, 1}, {2}, ANY};
    const split over_tokens = {
        "linear3_dx over tokens", {1, WHOLE, 1, WHOLE, 1, WHOLE}, {1}, ANY};
    const wf_dim width = wf_dim_width(19);
    const wf_dim n[][3] = {
        {heads, width, ffn}, {width, ffn, heads}, {heads, sparse, width}, {width, width, ffn}};

    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        wf_call dx = {.op = &wf_op_linear3_dx, .n_in = 6, .n_out = 1};
        wf_tensor *first, *second, *sum;

        open_context(1);
        for (int m = 0; m < 3; m++) {
            dx.in[2 * m] = activations(n[i][m]);
            dx.in[2 * m + 1] = matrix(n[i][m], ffn);
        }
        check(dx, &over_k);
        check(dx, &over_tokens);
        wf_dispatch(&dx);
        if (i == 1) { /* one chain, then the tree of the two others */
            first = wf_linear_dx(1, dx.in, &dx.in[1]);
            second = wf_linear_dx(2, (wf_tensor *[]){dx.in[2], dx.in[4]},
                                  (wf_tensor *[]){dx.in[3], dx.in[5]});
            sum = wf_add(first, second);
            CU_ASSERT_TRUE(sum && dx.out[0] && alike(sum, dx.out[0]));
        }
        close_context();
    }
}

/* A bias joins a product over any split of tokens and of its own columns. */
static void products_with_biases(void)
{
    const split over_n = {"linear1_bias over n", {WHOLE, 0, 0}, {2, 2}, ANY};
    const split over_tokens = {"linear1_bias over tokens", {1, WHOLE, WHOLE}, {1, 1}, ANY};
    wf_call call = {.op = &wf_op_linear1_bias, .n_in = 3, .n_out = 1};
    const split add_over_n = {"linear1_bias_add over n", {WHOLE, 0, 0, 2}, {2}, ANY};
    const split add_over_tokens = {
        "linear1_bias_add over tokens", {1, WHOLE, WHOLE, 1}, {1}, ANY};
    wf_call gelu = {.op = &wf_op_linear1_bias_gelu, .n_in = 3, .n_out = 2};
    const split heads_apart = {"linear3_rope over n", {WHOLE, 0, 0, 0}, {2, 2, 2}, ANY};
    const split tokens_apart = {
        "linear3_rope over tokens", {1, WHOLE, WHOLE, WHOLE}, {1, 1, 1}, ANY};
    const split gated = {"linear2_swiglu over n", {WHOLE, 0, 0}, {2, 2, 2}, ANY};
    wf_call add = {.op = &wf_op_linear1_bias_add, .n_in = 4, .n_out = 1};
    wf_call swiglu = {.op = &wf_op_linear2_swiglu, .n_in = 3, .n_out = 3};
    const wf_rope_attr attr = {.options = {.base = 500}};
    wf_call rope = {.op = &wf_op_linear3_rope,
                    .n_in = 4,
                    .n_out = 3,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    open_context(1);
    call.in[0] = gelu.in[0] = add.in[0] = activations(ffn);
    call.in[1] = gelu.in[1] = add.in[1] = matrix(heads, ffn);
    call.in[2] = gelu.in[2] = add.in[2] = random_tensor(1, &heads);
    add.in[3] = activations(heads);
    swiglu.in[0] = call.in[0];
    swiglu.in[1] = call.in[1];
    swiglu.in[2] = matrix(heads, ffn);
    check(call, &over_n);
    check(call, &over_tokens);
    check(gelu, &over_n);
    check(gelu, &over_tokens);
    check(add, &add_over_n);
    check(add, &add_over_tokens);
    check(swiglu, &gated);
    rope.in[0] = call.in[0];
    for (int i = 1; i <= 3; i++)
        rope.in[i] = i == 2 ? call.in[1] : matrix(heads, ffn);
    check(rope, &heads_apart);
    check(rope, &tokens_apart);
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {
        {"products over every dim", products},
        {"products that underflow", products_that_underflow},
        {"groups of products", product_groups},
        {"adapted products", adapted_products},
        {"which are one chain a chunk", one_chain},
        {"groups of members that differ", mixed_groups},
        {"products with biases", products_with_biases},
        {NULL, NULL},
    };

    return wf_test_main("parts of products", tests);
}
