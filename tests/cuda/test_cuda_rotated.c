/*
 * tests/cuda/test_cuda_rotated.c - queries and keys that rotate together, and where their
 * products are finished, on the (emulated) GPU: with the bits of the ops one after the other,
 * as f32 and as bf16, in fewer launches.
 *
 * ctest: builds plain
 */
#include "tests/cuda/fusions.h"
#include "tests/cuda/gpu_main.h"
#include <dlfcn.h>

/* ---- queries and keys ---- */

static void rotated_pair(const wf_rope_attr *attr, bool positions, wf_dtype dtype)
{
    const wf_dim q[] = {wf_dim_batch(2), wf_dim_chunked(11), wf_dim_chunked(6),
                        wf_dim_width(20)};
    const wf_dim k[] = {q[0], q[1], wf_dim_chunked(2), q[3]};
    numbers in[3], out[2], want[2];
    int64_t took;

    in[0] = random_numbers(4, q, dtype);
    in[1] = random_numbers(4, k, dtype);
    in[2] = numbers_of(2, q, WF_I32);
    for (int i = 0; i < 2 * 11; i++)
        ((int32_t *)in[2].host)[i] = i * 7 % 40;
    for (int i = 0; i < 2; i++) {
        numbers one[] = {in[i], in[2]};

        out[i] = numbers_of(4, i ? k : q, dtype);
        want[i] = numbers_of(4, i ? k : q, dtype);
        run(positions ? &wf_op_rope_at : &wf_op_rope, attr, 1 + positions, one, 1, &want[i]);
    }
    took = run(positions ? &wf_op_rope_pair_at : &wf_op_rope_pair, attr, 2 + positions, in, 2,
               out);
    CU_ASSERT_EQUAL(took, 1 + positions); /* a table of positions is made for each call */
    for (int i = 0; i < 2; i++)
        check_same("rope_pair", &out[i], &want[i]);
    forget(3, in);
    forget(2, out);
    forget(2, want);
}

static void queries_and_keys(void)
{
    const wf_rope_attr all = {.options = {.base = 500}};
    const wf_rope_attr some = {.options = {.base = 500, .features = 12}, .inverse = true};
    const wf_rope_attr neighbours = {.options = {.base = 500, .neighbours = true}};

    open_context(false);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int positions = 0; positions < 2; positions++) {
            const wf_dtype dtype = bf16 ? WF_BF16 : WF_F32;

            rotated_pair(&all, positions, dtype);
            rotated_pair(&some, positions, dtype);
            rotated_pair(&neighbours, positions, dtype);
        }
    close_context();
}

/* ---- products that rotate ---- */

typedef struct turning {
    wf_dim k;
    int64_t tokens, dim; /* dim: a head's features */
    wf_dtype dtype;
    int64_t heads; /* heads of queries; 0: three */
    bool positions, hopper, exact_off;
    bool here; /* the kernel of the product rotates */
    wf_rope_attr attr;
} turning;

/* Returns the same numbers as heads. */
static numbers as_heads(const numbers *flat, int64_t dim)
{
    const wf_dim *of = flat->t.dim;
    const wf_dim dims[] = {of[0], of[1], wf_dim_chunked(of[2].size / dim), wf_dim_width(dim)};
    numbers heads = numbers_of(4, dims, flat->t.dtype);

    memcpy(heads.host, flat->host, bytes_of(&flat->t));
    return heads;
}

/* Has contexts that are opened from now on use mma.sync, or on a Hopper wgmma. */
static void use_kernels(bool hopper)
{
    setenv("WEFT_EMULATOR_CAPABILITY", hopper ? "90" : "80", 1);
    if (hopper)
        unsetenv("WEFT_TENSOR_CORES");
    else
        setenv("WEFT_TENSOR_CORES", "mma", 1); /* a real GPU may be a Hopper */
}

/* Returns true for an emulated GPU, which has the compute capability that it is asked for. */
static bool is_emulated(void)
{
    void *emulator = dlopen("libcuda_emulator.so", RTLD_LAZY | RTLD_NOLOAD);

    if (emulator)
        dlclose(emulator);
    return emulator;
}

/* Some heads of queries, one of keys. */
static void rotated_product(const turning *of)
{
    const wf_dim x[] = {wf_dim_batch(3), wf_dim_chunked(of->tokens), of->k};
    const wf_dim n[] = {wf_dim_heads(of->heads ? of->heads : 3, of->dim),
                        wf_dim_heads(1, of->dim), wf_dim_chunked(24)};
    const int n_in = 4 + of->positions;
    const int calls = of->heads ? 1 : 2; /* the first may time kernels, or make a table */
    numbers in[5], out[3], want[3], heads[3], turned[2];
    int64_t apart = 0, rope = 0, took = 0;

    use_kernels(of->hopper);
    open_context(of->exact_off);
    in[0] = random_numbers(3, x, of->dtype);
    for (int m = 0; m < 3; m++) {
        const wf_dim w[] = {n[m], of->k}, y[] = {x[0], x[1], n[m]};

        in[1 + m] = random_numbers(2, w, of->dtype);
        out[m] = numbers_of(3, y, of->dtype);
        want[m] = numbers_of(3, y, of->dtype);
    }
    in[4] = numbers_of(2, x, WF_I32);
    for (int i = 0; i < 3 * of->tokens; i++)
        ((int32_t *)in[4].host)[i] = i * 7 % 40;
    for (int i = 0; i < calls; i++)
        apart = run(&wf_op_linear3, NULL, 4, in, 3, want);
    for (int i = 0; i < 2; i++) {
        heads[i] = as_heads(&want[i], of->dim);
        turned[i] = as_heads(&want[i], of->dim);
    }
    heads[2] = in[4];
    for (int i = 0; i < calls; i++) {
        rope = run(of->positions ? &wf_op_rope_pair_at : &wf_op_rope_pair, &of->attr,
                   2 + of->positions, heads, 2, turned);
        took = run(of->positions ? &wf_op_linear3_rope_at : &wf_op_linear3_rope, &of->attr,
                   n_in, in, 3, out);
    }
    if (!of->hopper || is_emulated())
        CU_ASSERT_EQUAL(apart + rope - took, of->here);
    check_same("queries that rotate", &out[0], &turned[0]);
    check_same("keys that rotate", &out[1], &turned[1]);
    check_same("values beside them", &out[2], &want[2]);
    forget(5, in);
    forget(3, out);
    forget(3, want);
    forget(2, heads);
    forget(2, turned);
    close_context();
    unsetenv("WEFT_EMULATOR_CAPABILITY");
    unsetenv("WEFT_TENSOR_CORES");
}

/* By every kernel: few rows and many, sums that are joined, also of so many columns that the
   last row is a block of its own (product_plan.c), and a launch of its own where a kernel's
   part of the columns has not both halves of a head. */
static void products_that_rotate(void)
{
    const wf_dim chunks = {48, 4, WF_CHUNKS_8}, width = wf_dim_width(40);
    const wf_dim fours = {32, 4, WF_CHUNKS_8}; /* aligned, so that no launch copies them */
    const wf_rope_attr all = {.options = {.base = 500}};
    const wf_rope_attr some = {.options = {.base = 500, .features = 12}};
    const wf_rope_attr neighbours = {.options = {.base = 500, .neighbours = true}};
    const turning cases[] = {
        {width, 2, 64, WF_F32, .here = true, .attr = all},
        {width, 9, 128, WF_F32, .positions = true, .here = true, .attr = all},
        {width, 30, 128, WF_F32, .here = true, .attr = all},
        {chunks, 11, 64, WF_F32, .here = true, .attr = all},
        {width, 50, 64, WF_BF16, .positions = true, .here = true, .attr = all},
        {chunks, 11, 64, WF_BF16, .here = true, .attr = all},
        {width, 11, 128, WF_BF16, .attr = all},
        {width, 11, 128, WF_BF16, .hopper = true, .here = true, .attr = all},
        {chunks, 11, 64, WF_BF16, .hopper = true, .positions = true, .here = true, .attr = all},
        {width, 11, 64, WF_BF16, .attr = some},
        {width, 11, 64, WF_F32, .positions = true, .attr = neighbours},
        {width, 11, 20, WF_BF16, .attr = all},
        {fours, 43, 64, WF_F32, .heads = 530, .positions = true, .here = true, .attr = all},
        {width, 11, 64, WF_BF16, .exact_off = true, .attr = all}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        rotated_product(&cases[i]);
}

int main(void)
{
    static const wf_test tests[] = {{"queries and keys", queries_and_keys},
                                    {"products that rotate", products_that_rotate},
                                    {NULL, NULL}};

    return gpu_test_main("rotations on the GPU", tests);
}
