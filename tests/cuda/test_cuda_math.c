/*
 * tests/cuda/test_cuda_math.c - products on the emulated GPU, by device_parts.h. Those of f32
 * have the CPU's bits in exact mode. The emulated cuBLASLt, which serves with exact off alone,
 * holds another order of sums best for every shape, so a product of exact mode that went there
 * is found out.
 *
 * ctest: builds plain, cost 20
 */
#include "kernels/dims_internal.h"
#include "kernels/shared_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>

static const wf_dim heads = {48, 4, WF_CHUNKS_8}, ffn = {37, 1, WF_CHUNKS_8};
static const wf_dim sparse = {5, 1, WF_CHUNKS_8}, even = {192, 8, WF_CHUNKS_8};
static const wf_dim width = {24, 1, WF_CHUNKS_1}, odd_width = {19, 1, WF_CHUNKS_1};

static int64_t tokens = 11;

static numbers activations(wf_dim last, wf_dtype dtype)
{
    const wf_dim dims[] = {wf_dim_batch(10), wf_dim_chunked(tokens), last};

    return random_numbers(3, dims, dtype);
}

static numbers matrix(wf_dim rows, wf_dim columns, wf_dtype dtype)
{
    const wf_dim dims[] = {rows, columns};

    return random_numbers(2, dims, dtype);
}

/* A sum that is partial stays a float; else results are stored as operands are. */
static wf_dtype result_type(const split *s, wf_dtype dtype)
{
    return s->out[0] == SUM ? WF_F32 : dtype;
}

static void product_of(const wf_op *op, numbers a, numbers b, numbers like, const split *s,
                       bool vanishing)
{
    const wf_call call = {.op = op, .n_in = 2, .n_out = 1};
    numbers in[] = {a, b};
    numbers out = numbers_of(like.t.ndim, like.t.dim, result_type(s, a.t.dtype));

    check(&call, in, &out, s, vanishing);
    if (out.t.dtype == WF_F32 && a.t.dtype == WF_F32 && wf_context_exact(a.t.ctx))
        check_cpu(&call, in, &out);
    free(out.host);
}

/* y = x W^T and its gradients, over k, n, tokens and sequences; shrink: products underflow. */
static void product_parts(wf_dim k, wf_dim n, wf_dtype dtype, float shrink)
{
    const split over_k = {"linear1 over k", {2, 1}, {SUM}, TREE};
    const split over_n = {"linear1 over n", {WHOLE, 0}, {2}, ANY};
    const split over_tokens = {"linear1 over tokens", {1, WHOLE}, {1}, ANY};
    const split dx_over_n = {"linear1_dx over n", {2, 0}, {SUM}, TREE};
    const split dx_over_k = {"linear1_dx over k", {WHOLE, 1}, {2}, ANY};
    const split dw_over_batch = {"linear_dw over batch", {0, 0}, {SUM}, 1u << 2};
    const split dw_over_n = {"linear_dw over n", {2, WHOLE}, {0}, ANY};
    const split dw_over_k = {"linear_dw over k", {WHOLE, 2}, {1}, ANY};
    bool small = shrink > 0, tree_k = k.chunks != WF_CHUNKS_1;
    numbers x, w, dy;

    open_context(false);
    x = activations(k, dtype);
    w = matrix(n, k, dtype);
    dy = activations(n, dtype);
    if (small) {
        fill(&x, shrink);
        fill(&w, -shrink);
        fill(&dy, shrink);
    }
    if (tree_k)
        product_of(&wf_op_linear1, x, w, dy, &over_k, small);
    product_of(&wf_op_linear1, x, w, dy, &over_n, small);
    product_of(&wf_op_linear1, x, w, dy, &over_tokens, small);
    product_of(&wf_op_linear1_dx, dy, w, x, &dx_over_n, small);
    product_of(&wf_op_linear1_dx, dy, w, x, &dx_over_k, small);
    product_of(&wf_op_linear_dw, dy, x, w, &dw_over_batch, small);
    product_of(&wf_op_linear_dw, dy, x, w, &dw_over_n, small);
    product_of(&wf_op_linear_dw, dy, x, w, &dw_over_k, small);
    free(x.host);
    free(w.host);
    free(dy.host);
    close_context();
}

static void products(void)
{
    product_parts(heads, ffn, WF_F32, 0);
    product_parts(sparse, sparse, WF_F32, 0);
    product_parts(odd_width, even, WF_F32, 0);
}

/* A router's logits are never rounded. */
static void products_that_stay_f32(void)
{
    const split tokens_split = {"linear1_fp32 over tokens", {1, WHOLE}, {1}, ANY};
    const split over_k = {"linear1_fp32 over k", {2, 1}, {SUM}, TREE};
    const wf_call call = {.op = &wf_op_linear1_fp32, .n_in = 2, .n_out = 1};

    for (int bf16 = 0; bf16 < 2; bf16++) {
        numbers in[2], y;

        open_context(false);
        in[0] = activations(heads, bf16 ? WF_BF16 : WF_F32);
        in[1] = matrix(sparse, heads, bf16 ? WF_BF16 : WF_F32);
        y = numbers_of(3, (wf_dim[]){in[0].t.dim[0], in[0].t.dim[1], sparse}, WF_F32);
        check(&call, in, &y, &tokens_split, false);
        check(&call, in, &y, &over_k, false);
        if (!bf16)
            check_cpu(&call, in, &y);
        free(in[0].host);
        free(in[1].host);
        free(y.host);
        close_context();
    }
}

static void products_of_bf16(void)
{
    product_parts(heads, ffn, WF_BF16, 0);
    product_parts(width, even, WF_BF16, 0);
}

/* Products of several blocks, whose last ones are not whole. Ten sequences are a tree of two
   parts at least. */
static void products_of_many_tiles(void)
{
    const wf_dim wide = {136, 8, WF_CHUNKS_8}, odd = {131, 1, WF_CHUNKS_8};

    tokens = 29;
    product_parts(wide, odd, WF_BF16, 0);
    product_parts(odd, wide, WF_BF16, 0);
    product_parts(wide, odd, WF_F32, 0);
    product_parts(odd, wide, WF_F32, 0);
    tokens = 11;
}

static void products_that_underflow(void)
{
    product_parts(sparse, heads, WF_F32, 1e-25F);
}

/* A product with its bias and gelu, over n and tokens, as its parts give it one after the
   other. */
static void joined_product(wf_dim k, wf_dim n, wf_dtype dtype, wf_dtype bias_type)
{
    const split over_n = {"linear1_bias over n", {WHOLE, 0, 0}, {2, 2}, ANY};
    const split over_tokens = {"linear1_bias over tokens", {1, WHOLE, WHOLE}, {1, 1}, ANY};
    const wf_call product = {.op = &wf_op_linear1, .n_in = 2, .n_out = 1};
    const wf_op *const second[] = {&wf_op_bias_add, &wf_op_bias_gelu};
    const wf_op *const joined[] = {&wf_op_linear1_bias, &wf_op_linear1_bias_gelu};
    numbers in[3], p, y, out[2];

    in[0] = activations(k, dtype);
    in[1] = matrix(n, k, dtype);
    in[2] = random_numbers(1, &n, bias_type);
    p = activations(n, dtype);
    y = activations(n, dtype);
    out[0] = activations(n, dtype);
    out[1] = activations(n, dtype);
    run_on_device(&product, in, &p, false);
    for (int gelu = 0; gelu < 2; gelu++) {
        const wf_call then = {.op = second[gelu], .n_in = 2, .n_out = 1};
        const wf_call call = {.op = joined[gelu], .n_in = 3, .n_out = 1 + gelu};

        run_on_device(&then, (numbers[]){p, in[2]}, &y, false);
        check(&call, in, out, &over_n, false);
        check(&call, in, out, &over_tokens, false);
        CU_ASSERT(memcmp(out[gelu].host, y.host, bytes_of(&y.t)) == 0);
        CU_ASSERT(!gelu || memcmp(out[0].host, p.host, bytes_of(&p.t)) == 0);
    }
    for (int i = 0; i < 3; i++)
        free(in[i].host);
    for (int o = 0; o < 2; o++)
        free(out[o].host);
    free(p.host);
    free(y.host);
}

static void joined_products(void)
{
    open_context(false);
    joined_product(heads, ffn, WF_F32, WF_F32);
    joined_product(width, even, WF_F32, WF_F32);
    joined_product(heads, ffn, WF_BF16, WF_F32);
    joined_product(width, even, WF_BF16, WF_BF16);
    close_context();
}

/* cuBLASLt adds the bias where it can, and is not found out where it cannot. */
static void joined_products_of_free_choice(void)
{
    static const wf_dtype types[][2] = {
        {WF_F32, WF_F32}, {WF_BF16, WF_BF16}, {WF_BF16, WF_F32}};
    const split none = {"", {0}, {0}, 0};

    for (int t = 0; t < 3; t++)
        for (int gelu = 0; gelu < 2; gelu++) {
            const wf_call call = {.op = gelu ? &wf_op_linear1_bias_gelu : &wf_op_linear1_bias,
                                  .n_in = 3,
                                  .n_out = 1 + gelu};
            numbers in[3], out[2];

            open_context(true);
            in[0] = activations(ffn, types[t][0]);
            in[1] = matrix(even, ffn, types[t][0]);
            in[2] = random_numbers(1, &even, types[t][1]);
            out[0] = activations(even, types[t][0]);
            out[1] = activations(even, types[t][0]);
            check(&call, in, out, &none, false);
            for (int i = 0; i < 5; i++)
                free((i < 3 ? in[i] : out[i - 3]).host);
            close_context();
        }
}

/* Members of a group have chunks of different sizes; a chunk runs through all of them. */
static void product_groups(void)
{
    const split over_n = {"linear3_dx over n, m, l", {2, 0, 2, 0, 2, 0}, {SUM}, TREE};
    const split over_k = {"linear3 over k", {2, 1, 1, 1}, {SUM, SUM, SUM}, TREE};
    const wf_dim n[] = {heads, ffn, sparse};
    numbers x, in[4], pairs[6], out[3], dx;

    open_context(false);
    in[0] = x = activations(ffn, WF_F32);
    for (int m = 0; m < 3; m++) {
        in[m + 1] = pairs[2 * m + 1] = matrix(n[m], ffn, WF_F32);
        out[m] = pairs[2 * m] = activations(n[m], WF_F32);
        out[m].host = malloc(bytes_of(&out[m].t));
    }
    dx = numbers_of(3, x.t.dim, WF_F32);
    check(&(wf_call){.op = &wf_op_linear3, .n_in = 4, .n_out = 3}, in, out, &over_k, false);
    check(&(wf_call){.op = &wf_op_linear3_dx, .n_in = 6, .n_out = 1}, pairs, &dx, &over_n,
          false);
    check_cpu(&(wf_call){.op = &wf_op_linear3, .n_in = 4, .n_out = 3}, in, out);
    check_cpu(&(wf_call){.op = &wf_op_linear3_dx, .n_in = 6, .n_out = 1}, pairs, &dx);
    for (int m = 0; m < 3; m++) {
        free(out[m].host);
        free(pairs[2 * m].host);
        free(pairs[2 * m + 1].host);
    }
    free(dx.host);
    free(x.host);
    close_context();
}

/* Members that differ in their chunks: runs of neighbours, added in order. */
static void mixed_groups(void)
{
    const split over_k = {"linear3_dx over k", {WHOLE, 1, WHOLE, 1, WHOLE, 1}, {2}, ANY};
    const wf_dim n[][3] = {{heads, odd_width, sparse}, {width, even, even}};

    for (int i = 0; i < 4; i++) {
        wf_dtype dtype = i / 2 ? WF_BF16 : WF_F32;
        numbers pairs[6], dx;

        open_context(false);
        for (int m = 0; m < 3; m++) {
            pairs[2 * m] = activations(n[i % 2][m], dtype);
            pairs[2 * m + 1] = matrix(n[i % 2][m], even, dtype);
        }
        dx = numbers_of(3, (wf_dim[]){pairs[0].t.dim[0], pairs[0].t.dim[1], even}, dtype);
        check(&(wf_call){.op = &wf_op_linear3_dx, .n_in = 6, .n_out = 1}, pairs, &dx, &over_k,
              false);
        for (int k = 0; k < 6; k++)
            free(pairs[k].host);
        free(dx.host);
        close_context();
    }
}

/* With exact off, and a gradient that is added to an older one. */
static void products_of_any_order(void)
{
    for (int off = 0; off < 2; off++) {
        wf_linear_attr attr = {.add = true};
        const wf_call call = {.op = &wf_op_linear_dw, .n_in = 2, .n_out = 1, .attr = &attr};
        numbers in[2], dw, older;
        const split none = {"", {0}, {0}, 0};

        open_context(off);
        in[0] = activations(ffn, WF_F32);
        in[1] = activations(heads, WF_F32);
        older = matrix(ffn, heads, WF_F32);
        dw = part_of(&older, WHOLE, 1, 0);
        run_on_device(&call, in, &dw, true);
        check_reference(&call, in, &dw, &older);
        product_of(&wf_op_linear_dw, in[0], in[1], older, &none, false);
        product_of(&wf_op_linear1_dx, in[0], older, in[1], &none, false);
        free(in[0].host);
        free(in[1].host);
        free(dw.host);
        free(older.host);
        close_context();
    }
}

/* A batch of products: y[h, m, n] over k in chunks (0), one for each index of a batch (1). */
static void matmul_of(const wf_matmul_attr *attr, wf_dim k, wf_dim n, wf_dtype dtype)
{
    const wf_dim h = wf_dim_chunked(5), m = wf_dim_chunked(11);
    const wf_dim a[] = {h, attr->transpose_a ? k : m, attr->transpose_a ? m : k};
    const wf_dim b[] = {h, attr->transpose_b ? n : k, attr->transpose_b ? k : n};
    const wf_dim y[] = {h, m, n};
    const int k_of_a = attr->transpose_a ? 1 : 2, k_of_b = attr->transpose_b ? 2 : 1;
    const split over_k = {"matmul over k", {k_of_a, k_of_b}, {SUM}, TREE};
    const split over_batch = {"matmul over its batch", {0, 0}, {0}, ANY};
    const split over_m = {"matmul over m", {3 - k_of_a, WHOLE}, {1}, ANY};
    const wf_call call = {
        .op = &wf_op_matmul, .n_in = 2, .n_out = 1, .attr = attr, .attr_size = sizeof *attr};
    numbers in[2], out;

    open_context(false);
    in[0] = random_numbers(3, a, dtype);
    in[1] = random_numbers(3, b, dtype);
    out = numbers_of(3, y, dtype);
    check(&call, in, &out, &over_batch, false);
    check(&call, in, &out, &over_m, false);
    free(out.host);
    out = numbers_of(3, y, WF_F32);
    if (k.chunks == WF_CHUNKS_8)
        check(&call, in, &out, &over_k, false);
    free(in[0].host);
    free(in[1].host);
    free(out.host);
    close_context();
}

static void batches_of_products(void)
{
    for (int ta = 0; ta < 2; ta++)
        for (int tb = 0; tb < 2; tb++) {
            const wf_matmul_attr attr = {.transpose_a = ta, .transpose_b = tb};

            matmul_of(&attr, ffn, ta ? odd_width : width, WF_F32);
            if (ta == tb)
                matmul_of(&attr, width, even, ta ? WF_F32 : WF_BF16);
            else
                matmul_of(&attr, wf_dim_batch(9), width, WF_F32);
        }
}

int main(void)
{
    static const wf_test tests[] = {
        {"products over every dim", products},
        {"products that stay f32", products_that_stay_f32},
        {"products of bf16", products_of_bf16},
        {"products of many tiles", products_of_many_tiles},
        {"products that underflow", products_that_underflow},
        {"groups of products", product_groups},
        {"groups of members that differ", mixed_groups},
        {"products with bias and gelu", joined_products},
        {"the same, chosen freely", joined_products_of_free_choice},
        {"batches of products", batches_of_products},
        /* last: its workspaces make the emulated memory large, and slow to open and close */
        {"products of any order, and added", products_of_any_order},
        {NULL, NULL},
    };

    return gpu_test_main("products on the GPU", tests);
}
