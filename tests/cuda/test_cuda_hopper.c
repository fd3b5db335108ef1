/*
 * tests/cuda/test_cuda_hopper.c - the kernels of products for Hopper on an emulated one: every
 * tile is made once, and both kernels have the bits of that for all GPUs, for every form, way
 * of finishing and cut of the sum, and leave alone all else; heads that rotate have the bits of
 * a product that is rotated when it is stored. They are called as they are.
 *
 * ctest: builds plain
 */
#include "core/numerics/bf16.h"
#include "core/numerics/random.h"
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/cuda/tile_schedule_internal.h"
#include "tests/harness.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

__thread wf_device_counts wf_cuda_counts; /* the plugin's, which is not here */

enum { MMA, WGMMA, PERSISTENT, KERNELS, GUARD = 64, TOKENS = 77, FIRST_ROW = 50 };

/* A product: pieces of `depth` terms, 8 fewer and 16 fewer alternate; every fourth piece has
   none where there are gaps. */
typedef struct product {
    const char *name;
    int64_t m, n, depth;
    int chunks, members, levels, processors;
    wf_dtype type;
    bool gaps, add, bias, gelu, everything; /* everything: all four forms, else one */
    int half;                               /* pairs of a head that rotates */
} product;

static const product products[] = {
    /* a chunk for each node: a worker has a job to itself */
    {"one chunk", 300, 128, 136, 1, 1, 0, 2, WF_BF16, .everything = true},
    {"one long chunk, added", 130, 256, 424, 1, 1, 0, 2, WF_F32, .add = true},
    {"eight nodes", 200, 128, 104, 8, 1, 3, 4, WF_F32, .gaps = true},
    {"three nodes of members", 60, 132, 40, 3, 2, 2, 4, WF_F32, .gaps = true},
    {"three members, gelu", 257, 136, 40, 1, 3, 0, 2, WF_BF16, .bias = true, .gelu = true},
    {"one bias", 20, 392, 72, 1, 1, 0, 2, WF_F32, .bias = true},
    /* sums that wait: workers share stages */
    {"three chunks", 140, 120, 96, 3, 1, 0, 2, WF_BF16, .everything = true},
    {"eight chunks", 140, 136, 96, 8, 1, 0, 2, WF_BF16, .add = true},
    {"five chunks of members", 60, 264, 40, 5, 2, 0, 2, WF_BF16, .gaps = true, .bias = true},
    {"three long chunks, added", 130, 132, 400, 3, 1, 0, 2, WF_F32, .add = true},
    {"two nodes of eight", 64, 128, 32, 16, 1, 1, 4, WF_F32, .gaps = true},
    {"seven chunks of four members, gelu", 70, 136, 24, 7, 4, 0, 2, WF_BF16, .bias = true,
     .gelu = true},
    /* results that are not aligned */
    {"an odd row", 70, 131, 72, 2, 1, 0, 2, WF_BF16, .bias = true},
    {"an odd row, added, with a bias", 70, 67, 72, 1, 1, 0, 2, WF_F32, .add = true,
     .bias = true},
};

static const product rotated[] = {
    {"heads of 64", 140, 320, 136, 1, 1, 0, 2, WF_BF16, .half = 32},
    {"heads of 128", 300, 384, 72, 1, 1, 0, 2, WF_BF16, .half = 64},
    {"heads of 64, three chunks", 200, 192, 72, 3, 1, 0, 2, WF_BF16, .half = 32},
    {"heads of 128, eight chunks", 70, 128, 24, 8, 1, 0, 2, WF_BF16, .half = 64},
    {"heads of 128, f32", 130, 256, 72, 2, 1, 0, 2, WF_F32, .half = 64}};

static uint64_t stream;

static void *copy_to_device(const void *from, size_t bytes)
{
    void *to = NULL;

    CU_ASSERT_EQUAL_FATAL(cudaMalloc(&to, bytes ? bytes : 1), cudaSuccess);
    CU_ASSERT_EQUAL_FATAL(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return to;
}

static void *random_on_device(int64_t n, wf_dtype type)
{
    size_t bytes = (size_t)n * wf_dtype_size(type);
    void *host = malloc(bytes + 1), *to;

    CU_ASSERT_PTR_NOT_NULL_FATAL(host);
    for (int64_t i = 0; i < n; i++) {
        float x = wf_random_normal(11, stream, (uint64_t)i);

        if (type == WF_BF16)
            ((uint16_t *)host)[i] = wf_bf16_of(x);
        else
            ((float *)host)[i] = x;
    }
    stream++;
    to = copy_to_device(host, bytes);
    free(host);
    return to;
}

static int64_t whole(int64_t n)
{
    return (n + 7) / 8 * 8;
}

/* A factor of so many rows: its terms along rows, or rows along terms. */
static const void *factor(int64_t rows, int64_t depth, bool along, int64_t *ld)
{
    *ld = along ? depth + 8 : whole(rows);
    return random_on_device(along ? rows * *ld : depth * *ld, WF_BF16);
}

static wf_tensor_product prepare(const product *of, int form)
{
    wf_tensor_product p = {.type = WF_BF16,
                           .chunks = of->chunks,
                           .members = of->members,
                           .levels = of->levels,
                           .a_along = form & 1,
                           .b_along = form & 2,
                           .m = of->m,
                           .n = of->n,
                           .stride = of->m * of->n + GUARD};

    for (int i = 0; i < of->chunks * of->members; i++) {
        wf_tensor_piece *x = &p.piece[i];

        x->depth = of->gaps && i % 4 == 1 ? 0 : of->depth - 8 * (i % 3);
        if (x->depth == 0)
            continue;
        x->a = factor(of->m, x->depth, p.a_along, &x->a_ld);
        x->b = factor(of->n, x->depth, p.b_along, &x->b_ld);
    }
    p.result = (wf_cuda_result){.to_ld = of->n,
                                .type = of->type,
                                .add = of->add,
                                .fours = of->n % 4 == 0,
                                .bias = of->bias ? random_on_device(of->n, WF_F32) : NULL};
    return p;
}

static void give_back(const wf_tensor_product *p)
{
    for (int i = 0; i < p->chunks * p->members; i++) {
        cudaFree((void *)p->piece[i].a);
        cudaFree((void *)p->piece[i].b);
    }
    cudaFree((void *)p->result.bias);
}

/* Runs a kernel over what is in `result` and gives that back as it is then. */
static void run_kernel(int kernel, const product *of, wf_tensor_product p, void *result,
                       void *gelu, size_t bytes)
{
    cudaError_t code;

    p.result.to = copy_to_device(result, bytes);
    p.result.gelu = of->gelu ? copy_to_device(gelu, bytes) : NULL;
    code = kernel == MMA     ? wf_cuda_launch_tensor_product(0, &p)
           : kernel == WGMMA ? wf_cuda_launch_tensor_product_hopper(0, &p, of->processors)
                             : wf_cuda_launch_tensor_product_persistent(0, &p, of->processors);
    CU_ASSERT_EQUAL_FATAL(code, cudaSuccess);
    CU_ASSERT_EQUAL(cudaDeviceSynchronize(), cudaSuccess);
    CU_ASSERT_EQUAL(cudaMemcpy(result, p.result.to, bytes, cudaMemcpyDeviceToHost),
                    cudaSuccess);
    if (of->gelu)
        CU_ASSERT_EQUAL(cudaMemcpy(gelu, p.result.gelu, bytes, cudaMemcpyDeviceToHost),
                        cudaSuccess);
    cudaFree(p.result.to);
    cudaFree(p.result.gelu);
}

/* Returns whether what lies behind the rows of each node is as it was. */
static bool leaves_guards(const product *of, int64_t stride, const char *before,
                          const char *after)
{
    const size_t size = wf_dtype_size(of->type);
    bool same = true;

    for (int64_t node = 0; node < 1 << of->levels; node++) {
        const size_t at = (size_t)(node * stride + of->m * of->n) * size;

        same = same && memcmp(before + at, after + at, GUARD * size) == 0;
    }
    return same;
}

static void check_product(const product *of, int form)
{
    wf_tensor_product p = prepare(of, form);
    size_t bytes = (size_t)(p.stride << of->levels) * wf_dtype_size(of->type);
    char *result[KERNELS], *gelu[KERNELS], *before = malloc(bytes);
    void *numbers = random_on_device(p.stride << of->levels, of->type);

    CU_ASSERT_PTR_NOT_NULL_FATAL(before);
    CU_ASSERT_EQUAL(cudaMemcpy(before, numbers, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int k = 0; k < KERNELS; k++) {
        result[k] = malloc(bytes);
        gelu[k] = malloc(bytes);
        CU_ASSERT_FATAL(result[k] && gelu[k]);
        memcpy(result[k], before, bytes);
        memcpy(gelu[k], before, bytes);
        run_kernel(k, of, p, result[k], gelu[k], bytes);
        CU_ASSERT(leaves_guards(of, p.stride, before, result[k]));
        CU_ASSERT(leaves_guards(of, p.stride, before, gelu[k]));
    }
    for (int k = WGMMA; k < KERNELS; k++) {
        bool same = memcmp(result[k], result[MMA], bytes) == 0 &&
                    memcmp(gelu[k], gelu[MMA], bytes) == 0;

        CU_ASSERT(same);
        if (!same)
            printf("\n%s, form %d, by %s: not the bits of mma\n", of->name, form,
                   k == WGMMA ? "wgmma" : "turns");
    }
    for (int k = 0; k < KERNELS; k++) {
        free(result[k]);
        free(gelu[k]);
    }
    free(before);
    cudaFree(numbers);
    give_back(&p);
}

/* Rotates a product on the host: numbers as they are stored. */
static void rotate(const product *of, const float *cosine, const float *sine, void *result)
{
    for (int64_t i = 0; i < of->m * of->n; i++) {
        const int64_t row = i / of->n, j = i % of->n % (2 * of->half);
        const int64_t angle = (FIRST_ROW + row) % TOKENS * of->half + j;
        float x, z;

        if (j >= of->half)
            continue;
        if (of->type == WF_BF16) {
            uint16_t *a = (uint16_t *)result + i, *b = a + of->half;

            x = wf_bf16_value(*a);
            z = wf_bf16_value(*b);
            *a = wf_bf16_of(fmaf(-z, sine[angle], x * cosine[angle]));
            *b = wf_bf16_of(fmaf(x, sine[angle], z * cosine[angle]));
        } else {
            float *a = (float *)result + i, *b = a + of->half;

            x = *a;
            z = *b;
            *a = fmaf(-z, sine[angle], x * cosine[angle]);
            *b = fmaf(x, sine[angle], z * cosine[angle]);
        }
    }
}

static void check_rotated(const product *of)
{
    wf_tensor_product p = prepare(of, 3);
    const size_t bytes = (size_t)p.stride * wf_dtype_size(of->type);
    const size_t table = (size_t)(TOKENS * of->half) * sizeof(float);
    void *before = random_on_device(p.stride, of->type);
    char *want = malloc(bytes), *result = malloc(bytes);
    float *angles = malloc(2 * table);

    CU_ASSERT_FATAL(want && result && angles);
    CU_ASSERT_EQUAL(cudaMemcpy(want, before, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    run_kernel(MMA, of, p, want, NULL, bytes);
    p.result.rotation =
        (wf_cuda_rotation){.cosine = random_on_device(TOKENS * of->half, WF_F32),
                           .sine = random_on_device(TOKENS * of->half, WF_F32),
                           .tokens = TOKENS,
                           .row = FIRST_ROW,
                           .half = of->half};
    CU_ASSERT_EQUAL(cudaMemcpy(angles, p.result.rotation.cosine, table, cudaMemcpyDeviceToHost),
                    cudaSuccess);
    CU_ASSERT_EQUAL(cudaMemcpy(angles + TOKENS * of->half, p.result.rotation.sine, table,
                               cudaMemcpyDeviceToHost),
                    cudaSuccess);
    rotate(of, angles, angles + TOKENS * of->half, want);
    for (int k = of->half == 64 ? WGMMA : MMA; k < KERNELS; k++) {
        CU_ASSERT_EQUAL(cudaMemcpy(result, before, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
        run_kernel(k, of, p, result, NULL, bytes);
        CU_ASSERT(memcmp(result, want, bytes) == 0);
        if (memcmp(result, want, bytes) != 0)
            printf("\n%s, kernel %d: not the bits of a product that is rotated then\n",
                   of->name, k);
    }
    cudaFree((void *)p.result.rotation.cosine);
    cudaFree((void *)p.result.rotation.sine);
    cudaFree(before);
    free(want);
    free(result);
    free(angles);
    give_back(&p);
}

static void heads_that_rotate(void)
{
    for (size_t i = 0; i < sizeof rotated / sizeof *rotated; i++)
        check_rotated(&rotated[i]);
}

static void same_bits(void)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int form = 0; form < 4; form++)
            if (products[i].everything || form == (int)i % 4)
                check_product(&products[i], form);
}

static void tiles(void)
{
    for (int down = 1; down <= 37; down += 4)
        for (int across = 1; across <= 23; across += 11)
            for (int band = 8; band <= 16; band += 8) {
                static int count[37 * 23];
                int most = 0;

                memset(count, 0, sizeof count);
                for (int tile = 0; tile < down * across; tile++) {
                    wf_tile_position at = wf_tile_position_of(tile, down, across, band);

                    CU_ASSERT_FATAL(at.row >= 0 && at.row < down && at.column >= 0 &&
                                    at.column < across && at.row / band >= most);
                    most = at.row / band;
                    count[at.row * across + at.column]++;
                }
                for (int i = 0; i < down * across; i++)
                    CU_ASSERT(count[i] == 1);
            }
    CU_ASSERT_EQUAL(wf_jobs_of(32768, 2304, 0), 128 * 18);
    CU_ASSERT_EQUAL(wf_jobs_of(257, 129, 3), 2 * 2 * 8);
}

/* To go over stages is to go through them. */
static void rings(void)
{
    for (int from = 0; from < 2 * WF_STAGES; from++)
        for (int over = 0; over < 40; over++) {
            wf_ring a = {from % WF_STAGES, from / WF_STAGES}, b = a;

            wf_ring_skip(&a, over);
            for (int i = 0; i < over; i++)
                wf_ring_next(&b);
            CU_ASSERT(a.stage == b.stage && a.phase == b.phase);
            wf_ring_next(&b);
            CU_ASSERT_EQUAL(wf_ring_before(b), a.stage);
        }
    CU_ASSERT_EQUAL(wf_stages_of(0), 0);
    CU_ASSERT_EQUAL(wf_stages_of(1), 1);
    CU_ASSERT_EQUAL(wf_stages_of(64), 1);
    CU_ASSERT_EQUAL(wf_stages_of(65), 2);
}

int main(void)
{
    static const wf_test tests[] = {
        {"every tile once", tiles},
        {"rings of stages", rings},
        {"both kernels have the bits of mma", same_bits},
        {"heads that rotate", heads_that_rotate},
        {NULL, NULL},
    };

    return wf_test_main("products on an emulated Hopper", tests);
}
