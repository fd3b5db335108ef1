/*
 * tests/cuda/test_cuda_fusions.c - ops that join several on the emulated GPU: they have the
 * bits of these one after the other, as f32 and as bf16, in fewer launches or passes over
 * memory.
 *
 * ctest: builds plain
 */
#include "kernels/shared_internal.h"
#include "tests/cuda/fusions.h"
#include "tests/cuda/gpu_main.h"

/* ---- gradients of norms ---- */

typedef struct norm_case {
    int ndim;
    wf_dim dims[4];
    bool two;  /* kernels: rows are too long for a block, or lanes too few */
    int first; /* number of a way (centred, added, bf16); large shapes begin with a later one */
} norm_case;

/* x, gain, (mean), rstd, dy, (what is added) */
static int draw_norm(const norm_case *c, bool centred, bool adds, wf_dtype dtype, numbers *in)
{
    const int last = c->ndim - 1;
    int n = 0;

    in[n++] = random_numbers(c->ndim, c->dims, dtype);
    in[n++] = random_numbers(1, &c->dims[last], dtype);
    if (centred)
        in[n++] = random_numbers(last, c->dims, WF_F32);
    in[n++] = random_numbers(last, c->dims, WF_F32);
    in[n++] = random_numbers(c->ndim, c->dims, dtype);
    if (adds)
        in[n++] = random_numbers(c->ndim, c->dims, dtype);
    return n;
}

static void norm_gradients(const norm_case *c, bool centred, bool adds, wf_dtype dtype)
{
    static const wf_op *const both[2][2] = {{&wf_op_rmsnorm_grad, &wf_op_add_rmsnorm_grad},
                                            {&wf_op_layernorm_grad, &wf_op_add_layernorm_grad}};
    static const wf_op *const rows[2][2] = {{&wf_op_rmsnorm_dx, &wf_op_add_rmsnorm_dx},
                                            {&wf_op_layernorm_dx, &wf_op_add_layernorm_dx}};
    static const wf_op *const vectors[] = {&wf_op_rmsnorm_dw, &wf_op_layernorm_dw};
    const wf_dim row[] = {c->dims[0], c->dims[c->ndim - 1]};
    numbers in[6], of_vectors[4], out[3], want[3];
    int n = draw_norm(c, centred, adds, dtype, in), n_out = 2 + centred;
    int64_t took;

    of_vectors[0] = in[0];
    for (int i = 2; i <= 3 + centred; i++)
        of_vectors[i - 1] = in[i];
    for (int o = 0; o < n_out; o++) {
        out[o] = o ? numbers_of(2, row, WF_F32) : numbers_of(c->ndim, c->dims, dtype);
        want[o] = o ? numbers_of(2, row, WF_F32) : numbers_of(c->ndim, c->dims, dtype);
    }
    took = run(both[centred][adds], NULL, n, in, n_out, out);
    CU_ASSERT(took == 2 || bytes_of(&in[0].t) > 1 << 20); /* copies have parts then */
    run(rows[centred][adds], NULL, n, in, 1, want);
    run(vectors[centred], NULL, 3 + centred, of_vectors, 1 + centred, want + 1);
    for (int o = 0; o < n_out; o++)
        check_same(both[centred][adds]->name, &out[o], &want[o]);
    forget(n, in);
    forget(n_out, out);
    forget(n_out, want);
}

/* Checks that one pass runs or two kernels, which need no workspace. */
static void check_way(const norm_case *c, wf_dtype dtype)
{
    numbers in[6], out[2];
    wf_call call = {.op = &wf_op_rmsnorm_grad, .n_in = 4, .n_out = 2};
    const wf_device *device;

    draw_norm(c, false, false, dtype, in);
    out[0] = in[0];
    out[1] = in[1];
    call.ctx = in[0].t.ctx;
    for (int i = 0; i < call.n_in; i++)
        call.in[i] = &in[i].t;
    for (int o = 0; o < call.n_out; o++)
        call.out[o] = &out[o].t;
    device = wf_context_device(call.ctx);
    CU_ASSERT_EQUAL(device->kernel(device, call.op)->workspace(&call) == 0, c->two);
    forget(4, in);
}

/* Rows of one warp, of several, of half a pack, too long ones; lanes of one row and of many;
   heads; a long sequence; a part of a sequence, whose other chunks are empty. */
static void gradients_of_norms(void)
{
    const norm_case cases[] = {
        {3, {wf_dim_batch(3), wf_dim_chunked(85), wf_dim_width(40)}, false, 0},
        {3, {wf_dim_batch(2), wf_dim_chunked(70), wf_dim_width(1101)}, false, 1},
        {3, {wf_dim_batch(2), wf_dim_chunked(19), wf_dim_width(2600)}, false, 1},
        {4,
         {wf_dim_batch(2), wf_dim_chunked(9), wf_dim_chunked(10), wf_dim_width(36)},
         false,
         0},
        {3, {wf_dim_batch(1), wf_dim_chunked(16500), wf_dim_width(3)}, false, 7},
        {3, {wf_dim_batch(1), wf_dim_chunked(3), wf_dim_width(64)}, true, 0},
        {3, {wf_dim_batch(1), wf_dim_chunked(9), wf_dim_width(8200)}, true, 3}};

    open_context(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = cases[i].first; way < 8; way += 1 + cases[i].first) {
            const wf_dtype dtype = way & 4 ? WF_BF16 : WF_F32;

            norm_gradients(&cases[i], way & 1, way & 2, dtype);
            check_way(&cases[i], dtype);
        }
    close_context();
}

/* ---- products that are added to something ---- */

typedef struct added {
    wf_dim k, n;
    wf_dtype dtype, residual;
    bool biased, exact_off;
} added;

/* x, weight, (bias), residual */
static void added_product(const added *a)
{
    const bool biased = a->biased;
    const split over_n = {"linear1_add over n", {WHOLE, 0, biased ? 0 : 2, 2}, {2}, ANY};
    const split over_tokens = {
        "linear1_add over tokens", {1, WHOLE, biased ? WHOLE : 1, 1}, {1}, ANY};
    const split none = {.name = "linear1_add"};
    const wf_dim x[] = {wf_dim_batch(10), wf_dim_chunked(11), a->k};
    const wf_dim y[] = {x[0], x[1], a->n}, w[] = {a->n, a->k};
    const wf_call call = {.op = biased ? &wf_op_linear1_bias_add : &wf_op_linear1_add,
                          .n_in = 3 + biased,
                          .n_out = 1};
    numbers in[4], product, want, out;

    open_context(a->exact_off);
    in[0] = random_numbers(3, x, a->dtype);
    in[1] = random_numbers(2, w, a->dtype);
    in[2] = random_numbers(1, &a->n, WF_F32);
    if (!biased)
        free(in[2].host);
    in[2 + biased] = random_numbers(3, y, a->residual);
    product = numbers_of(3, y, a->dtype);
    want = numbers_of(3, y, a->dtype);
    out = numbers_of(3, y, a->dtype);
    run(biased ? &wf_op_linear1_bias : &wf_op_linear1, NULL, 2 + biased, in, 1, &product);
    if (a->residual == a->dtype)
        run(&wf_op_add, NULL, 2, (numbers[]){in[2 + biased], product}, 1, &want);
    check(&call, in, &out, a->exact_off ? &none : &over_n, false);
    if (a->residual == a->dtype)
        check_same(call.op->name, &out, &want);
    if (!a->exact_off)
        check(&call, in, &out, &over_tokens, false);
    forget(3 + biased, in);
    free(product.host);
    free(want.host);
    free(out.host);
    close_context();
}

static void added_products(void)
{
    const wf_dim heads = {48, 4, WF_CHUNKS_8}, ffn = {37, 1, WF_CHUNKS_8};
    const wf_dim even = {192, 8, WF_CHUNKS_8}, width = wf_dim_width(24);
    const added cases[] = {{heads, ffn, WF_F32, WF_F32, false, false},
                           {heads, ffn, WF_F32, WF_F32, true, false},
                           {heads, ffn, WF_BF16, WF_BF16, true, false},
                           {width, even, WF_BF16, WF_BF16, false, false},
                           {width, even, WF_BF16, WF_F32, true, false},
                           {ffn, even, WF_F32, WF_F32, true, true},
                           {ffn, even, WF_BF16, WF_BF16, false, true}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        added_product(&cases[i]);
}

/* Gate, up, and silu of one times the other. */
static void gated_product(wf_dim k, wf_dim n, wf_dtype dtype, bool exact_off)
{
    const split over_n = {"linear2_swiglu over n", {WHOLE, 0, 0}, {2, 2, 2}, ANY};
    const split over_tokens = {"linear2_swiglu over tokens", {1, WHOLE, WHOLE}, {1, 1, 1}, ANY};
    const split none = {.name = "linear2_swiglu"};
    const wf_dim x[] = {wf_dim_batch(10), wf_dim_chunked(11), k};
    const wf_dim y[] = {x[0], x[1], n}, w[] = {n, k};
    const wf_call call = {.op = &wf_op_linear2_swiglu, .n_in = 3, .n_out = 3};
    numbers in[3], out[3], want[3];
    int64_t apart;

    open_context(exact_off);
    in[0] = random_numbers(3, x, dtype);
    in[1] = random_numbers(2, w, dtype);
    in[2] = random_numbers(2, w, dtype);
    for (int o = 0; o < 3; o++) {
        out[o] = numbers_of(3, y, dtype);
        want[o] = numbers_of(3, y, dtype);
    }
    apart = run(&wf_op_linear2, NULL, 3, in, 2, want);
    apart += run(&wf_op_swiglu, NULL, 2, want, 1, want + 2);
    CU_ASSERT_EQUAL(apart - run(call.op, NULL, 3, in, 3, out), exact_off ? 0 : 1);
    check(&call, in, out, exact_off ? &none : &over_n, false);
    for (int o = 0; o < 3; o++)
        check_same(call.op->name, &out[o], &want[o]);
    if (!exact_off)
        check(&call, in, out, &over_tokens, false);
    forget(3, in);
    forget(3, out);
    forget(3, want);
    close_context();
}

static void gated_products(void)
{
    const wf_dim heads = {48, 4, WF_CHUNKS_8}, ffn = {37, 1, WF_CHUNKS_8};
    const wf_dim even = {192, 8, WF_CHUNKS_8};

    gated_product(heads, ffn, WF_F32, false);
    gated_product(wf_dim_width(24), even, WF_BF16, false); /* on tensor cores */
    gated_product(ffn, ffn, WF_BF16, false);
    gated_product(heads, even, WF_BF16, true);
}

/* A launch of its own is what the addition takes where it does not join. */
static void launches_of_products(void)
{
    const wf_dim x[] = {wf_dim_batch(2), wf_dim_chunked(8), wf_dim_width(64)};
    const wf_dim w[] = {x[2], x[2]};
    numbers in[3], out, product;
    int64_t apart, joined;

    open_context(false);
    in[0] = random_numbers(3, x, WF_BF16);
    in[1] = random_numbers(2, w, WF_BF16);
    in[2] = random_numbers(3, x, WF_BF16);
    product = numbers_of(3, x, WF_BF16);
    out = numbers_of(3, x, WF_BF16);
    apart = run(&wf_op_linear1, NULL, 2, in, 1, &product);
    apart += run(&wf_op_add, NULL, 2, (numbers[]){in[2], product}, 1, &out);
    joined = run(&wf_op_linear1_add, NULL, 3, in, 1, &out);
    CU_ASSERT_EQUAL(apart, 2);
    CU_ASSERT_EQUAL(joined, 1);
    forget(3, in);
    free(product.host);
    free(out.host);
    close_context();
}

int main(void)
{
    static const wf_test tests[] = {{"gradients of norms", gradients_of_norms},
                                    {"products that are added", added_products},
                                    {"gated products", gated_products},
                                    {"launches of products", launches_of_products},
                                    {NULL, NULL}};

    return gpu_test_main("fusions on the GPU", tests);
}
