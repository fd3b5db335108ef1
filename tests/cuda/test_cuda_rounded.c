/*
 * tests/cuda/test_cuda_rounded.c - sums over ranks on GPUs that are stored as bf16: added in
 * the tree and rounded once, in one pass and without a copy, by the bits of core/numerics.
 *
 * ctest: builds plain
 */
#include "core/host_data.h"
#include "core/numerics/bf16.h"
#include "kernels/devices.h"
#include "mesh/array/mesh.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/stored.h"
#include "tests/mesh/ranks.h"

enum { RANKS = GPU_RANKS, N = 64 * RANKS, LONG = 1003, MEMBERS = 8 };

static wf_tensor *filled(wf_context *ctx, int member, int ndim, const wf_dim *dims,
                         const wf_layout *layout)
{
    return gpu_filled(wf_tensor_new(ctx, WF_F32, ndim, dims, layout, WF_MEMORY_ACTIVATION),
                      member);
}

static wf_status read_bf16(wf_context *ctx, const void *from, int64_t n, uint16_t *to,
                           wf_error *error)
{
    wf_device *device = wf_context_device(ctx);

    return device->memory->read(device, to, from, (size_t)n * sizeof *to, error);
}

/* Sums of 2 to MEMBERS tensors, where they can be stored 16 bytes at a time and where not. */
static void one_device(void)
{
    wf_context *ctx = gpu_context();
    wf_device *device = wf_context_device(ctx);
    const wf_dim dims[] = {wf_dim_width(LONG)}, more[] = {wf_dim_width(LONG + 1)};
    wf_tensor *half = wf_tensor_new(ctx, WF_BF16, 1, more, NULL, WF_MEMORY_ACTIVATION);
    const void *src[MEMBERS];

    for (int i = 0; i < MEMBERS; i++)
        src[i] = filled(ctx, i, 1, dims, NULL)->data;
    for (int members = 2; members <= MEMBERS; members++)
        for (int way = 0; way < 4; way++) {
            const bool tree = way % 2;
            uint16_t got[LONG];
            void *dst = (uint16_t *)half->data + way / 2;
            wf_error error = {WF_OK, ""};
            const wf_reduce sum = {.src = src,
                                   .dst = &dst,
                                   .n_src = members,
                                   .n_dst = 1,
                                   .element = 4,
                                   .out_element = 2,
                                   .tree = tree,
                                   .n = LONG};
            int wrong = 0;

            CU_ASSERT_EQUAL(device->memory->reduce(device, &sum, 1, false, &error), WF_OK);
            CU_ASSERT_EQUAL(read_bf16(ctx, dst, LONG, got, &error), WF_OK);
            for (int64_t i = 0; i < LONG; i++)
                wrong += got[i] !=
                         wf_bf16_of(tree ? tree_of(0, members, 0, i) : chain_of(members, 0, i));
            CU_ASSERT_EQUAL(wrong, 0);
        }
    wf_context_close(ctx);
}

/* Two sums that are scattered, one as floats and one as bf16, of parts in as many rows. */
static wf_status scattered(wf_rank *rank, wf_context *ctx, int64_t rows)
{
    const int64_t part = N / RANKS, cuts[] = {0, part, 2 * part, 3 * part, N};
    const int64_t width = part / rows, whole = N / rows;
    const wf_dim dims[] = {wf_dim_width(N)};
    wf_tensor *x = filled(ctx, rank->index, 1, dims, NULL), *y = filled(ctx, 9, 1, dims, NULL);
    wf_tensor *other = filled(ctx, RANKS + rank->index, 1, dims, NULL);
    wf_tensor *half = wf_tensor_new(ctx, WF_BF16, 1, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_comm_buffer buffer[] = {
        {.in = x->data, .out = y->data, .cuts = cuts, .rows = rows},
        {.in = other->data, .out = half->data, .cuts = cuts, .rows = rows, .rounds = true}};
    const wf_collective what = {.kind = WF_REDUCE_SCATTER,
                                .n_buffers = 2,
                                .buffers = buffer,
                                .device = wf_context_device(ctx)};
    uint16_t got[N], before[N];
    float floats[N];

    GOOD(read_bf16(ctx, half->data, N, before, &rank->error));
    GOOD(wf_collective_run(rank->world, &what, &rank->error));
    GOOD(wf_data_get(y, 0, N, floats));
    GOOD(read_bf16(ctx, half->data, N, got, &rank->error));
    for (int64_t e = 0; e < N; e++) {
        const int64_t i = e / width * whole + rank->index * width + e % width;
        const float sum = e < part ? tree_of(0, RANKS, 0, i) : number(9, 0, e);

        NEED(same_bits(floats[e], sum));
        NEED(got[e] == (e < part ? wf_bf16_of(tree_of(RANKS, RANKS, 0, i)) : before[e]));
    }
    return wf_barrier(rank->world, &rank->error);
}

/* Makes a partial sum of bf16 whole: each rank sums its share in the rows in which that lies,
   rounds it there, and brings it to all. */
static wf_status made_whole(wf_rank *rank, wf_context *ctx, int64_t sequences)
{
    wf_mesh *mesh = wf_mesh_of(ctx);
    const wf_dim dims[] = {wf_dim_width(sequences), wf_dim_width(8), wf_dim_width(16)};
    const wf_layout *partial = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const int64_t n = sequences * 8 * 16;
    wf_tensor *x = filled(ctx, rank->index, 3, dims, partial), *y;
    uint16_t got[N * RANKS];
    int64_t launches;

    x->rounds_to = WF_BF16;
    launches = launches_of(ctx);
    y = wf_redistribute(x, NULL);
    launches = launches_of(ctx) - launches;
    NEED(y && y->dtype == WF_BF16 && n <= N * RANKS);
    if (strcmp(wf_comm_transport(rank->world), "threads") == 0)
        NEED(launches == 2); /* the sums of all rows, and the copies of them to each */
    GOOD(read_bf16(ctx, y->data, n, got, &rank->error));
    for (int64_t i = 0; i < n; i++)
        NEED(got[i] == wf_bf16_of(tree_of(0, RANKS, 0, i)));
    return WF_OK;
}

static wf_status on_mesh(wf_rank *rank, wf_context *ctx)
{
    wf_mesh *mesh = wf_mesh_open(ctx, rank->world, 1, &(wf_axis){"tp", RANKS}, &rank->error);
    wf_status status = mesh ? WF_OK : rank->error.code;

    for (int64_t n = 1; n <= 4 && status == WF_OK; n++) {
        wf_scope_open(ctx);
        status = n == 3 ? WF_OK : scattered(rank, ctx, n);
        if (status == WF_OK)
            status = made_whole(rank, ctx, n);
        wf_scope_close(ctx);
    }
    wf_mesh_close(mesh);
    return status;
}

static wf_status rank_of(wf_rank *rank, void *arg)
{
    const wf_cuda_options options = {.ordinal = rank->index, .readers = RANKS};
    wf_device *device = wf_cuda_device(&options, &rank->error);
    wf_context *ctx = device ? wf_context_open(device, NULL, &rank->error) : NULL;
    wf_status status = ctx ? on_mesh(rank, ctx) : rank->error.code;

    (void)arg;
    wf_context_close(ctx);
    return status;
}

/* Over threads, whose devices read each other's memory, and over NCCL, which brings parts. */
static void over_ranks(void)
{
    gpu_over_ranks(rank_of);
}

int main(void)
{
    static const wf_test tests[] = {
        {"sums of a device", one_device}, {"sums over ranks", over_ranks}, {NULL, NULL}};

    return gpu_test_main("cuda_rounded", tests);
}
