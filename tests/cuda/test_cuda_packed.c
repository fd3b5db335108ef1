/*
 * tests/cuda/test_cuda_packed.c - what collectives of several buffers ask of a GPU: one launch
 * for the copies of all, and one for their sums, whatever their sizes, rows and addresses.
 *
 * ctest: builds plain
 */
#include "core/numerics/bf16.h"
#include "kernels/devices.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/stored.h"
#include "tests/mesh/ranks.h"

enum { COPIES = 150, ROOM = 4096, LARGE = 100000, SUMS = 60, MOST = 300, MEMBERS = 4 };
enum { RANKS = GPU_RANKS, BUFFERS = 12, PART = 40 };

static wf_device *device_of(wf_context *ctx)
{
    return wf_context_device(ctx);
}

/* Takes memory of the device that ends with the context's device. */
static char *take(wf_device *device, size_t bytes, uint32_t word)
{
    char *at = device->allocator.alloc(device->allocator.self, bytes);

    device->memory->fill(device, at, word, (int64_t)(bytes / sizeof word));
    return at;
}

static void give(wf_device *device, void *at, size_t bytes)
{
    device->allocator.release(device->allocator.self, at, bytes);
}

/* Copy k between its rooms: runs and rows, of bytes and at addresses that 1 to 16 divide; some
   of nothing. */
static wf_copy copy_of(int k, const char *from, char *to)
{
    const size_t unit = (size_t)1 << k % 5, at = unit * (size_t)(k % 3);
    const int64_t rows = k % 4 == 3 ? 1 + k % 9 : 1;

    return (wf_copy){.from = from + (size_t)k * ROOM + at,
                     .to = to + (size_t)k * ROOM + unit,
                     .bytes = unit * (size_t)(k % 7 == 6 ? 0 : 1 + k % 20),
                     .from_step = unit * 21,
                     .to_step = unit * (size_t)(20 + k % 2),
                     .rows = rows};
}

static void copy_by_hand(const wf_copy *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        memcpy((char *)c->to + (size_t)r * c->to_step,
               (const char *)c->from + (size_t)r * c->from_step, c->bytes);
}

static void copies_of_a_device(bool side_stream)
{
    const size_t bytes = (size_t)COPIES * ROOM + LARGE;
    wf_context *ctx = gpu_context();
    wf_device *device = device_of(ctx);
    char *from = malloc(bytes), *to = calloc(bytes, 1), *got = malloc(bytes);
    char *device_from = take(device, bytes, 0), *device_to = take(device, bytes, 0);
    wf_copy copies[COPIES + 1];
    wf_error error = {WF_OK, ""};
    wf_point *point = NULL;
    int64_t launches;

    for (size_t i = 0; i < bytes; i++)
        from[i] = (char)(i * 7 + i / 251);
    device->memory->write(device, device_from, from, bytes);
    for (int k = 0; k <= COPIES; k++) {
        copies[k] = copy_of(k, device_from, device_to);
        if (k == COPIES)
            copies[k].bytes = LARGE - 64, copies[k].rows = 1;
    }
    CU_ASSERT_EQUAL(device->memory->wait(device, &error), WF_OK);
    launches = launches_of(ctx);
    CU_ASSERT_EQUAL(device->memory->copy_all(device, copies, COPIES + 1, side_stream, &error),
                    WF_OK);
    CU_ASSERT_EQUAL(launches_of(ctx) - launches, 3 + side_stream); /* the large one alone */
    CU_ASSERT_EQUAL(device->memory->mark(device, side_stream, &point, &error), WF_OK);
    CU_ASSERT_EQUAL(device->memory->follow(device, false, point, &error), WF_OK);
    CU_ASSERT_EQUAL(device->memory->read(device, got, device_to, bytes, &error), WF_OK);
    for (int k = 0; k <= COPIES; k++) {
        copies[k].from = from + ((const char *)copies[k].from - device_from);
        copies[k].to = to + ((char *)copies[k].to - device_to);
        copy_by_hand(&copies[k]);
    }
    CU_ASSERT(memcmp(got, to, bytes) == 0);
    device->memory->point_free(point);
    give(device, device_from, bytes);
    give(device, device_to, bytes);
    wf_context_close(ctx);
    free(from);
    free(to);
    free(got);
}

static void copies(void)
{
    copies_of_a_device(false);
    copies_of_a_device(true);
}

/* Sum k, of 0 to MOST floats that begin anywhere; of every second one bf16 is stored. */
static int64_t size_of(int k)
{
    return k % 7 == 3 ? 0 : 1 + 41 * k % MOST;
}

static void check_sum(int k, int members, bool tree, const char *got)
{
    int wrong = 0;

    for (int64_t i = 0; i < MOST; i++) {
        const float sum = i >= size_of(k) ? 0
                          : tree          ? tree_of(0, members, k, i)
                                          : chain_of(members, k, i);
        const uint16_t half = wf_bf16_of(sum);

        wrong += k % 2 ? memcmp(got + 2 * i, &half, 2) != 0 : memcmp(got + 4 * i, &sum, 4) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void sums_of(wf_context *ctx, int members, bool tree)
{
    static float x[MEMBERS][SUMS][MOST + 4];
    static char got[SUMS][sizeof x[0][0]];
    wf_device *device = device_of(ctx);
    char *in = take(device, sizeof x, 0), *out = take(device, sizeof got, 0);
    const void *src[SUMS][MEMBERS];
    void *dst[SUMS];
    wf_reduce sums[SUMS];
    wf_error error = {WF_OK, ""};
    int64_t launches;

    for (int m = 0; m < members; m++)
        for (int k = 0; k < SUMS; k++)
            for (int64_t i = 0; i < size_of(k); i++)
                x[m][k][k % 3 + i] = number(m, k, i);
    device->memory->write(device, in, x, sizeof x);
    for (int k = 0; k < SUMS; k++) {
        for (int m = 0; m < members; m++)
            src[k][m] = in + ((const char *)&x[m][k][k % 3] - (const char *)x);
        dst[k] = out + sizeof got[0] * (size_t)k;
        sums[k] = (wf_reduce){.src = src[k],
                              .dst = &dst[k],
                              .n_src = members,
                              .n_dst = 1,
                              .element = 4,
                              .out_element = k % 2 ? 2 : 4,
                              .tree = tree,
                              .n = size_of(k)};
    }
    launches = launches_of(ctx);
    CU_ASSERT_EQUAL(device->memory->reduce(device, sums, SUMS, false, &error), WF_OK);
    CU_ASSERT_EQUAL(launches_of(ctx) - launches, 2); /* floats, and bf16 */
    CU_ASSERT_EQUAL(device->memory->read(device, got, out, sizeof got, &error), WF_OK);
    for (int k = 0; k < SUMS; k++)
        check_sum(k, members, tree, got[k]);
    give(device, in, sizeof x);
    give(device, out, sizeof got);
}

static void sums(void)
{
    wf_context *ctx = gpu_context();

    for (int members = 2; members <= MEMBERS; members++)
        for (int tree = 0; tree < 2; tree++)
            sums_of(ctx, members, tree);
    wf_context_close(ctx);
}

/* A rank's memory: in and out are each BUFFERS times the parts of all ranks. */
typedef struct room {
    wf_context *ctx;
    char *in, *out;
    wf_comm_buffer buffer[BUFFERS];
} room;

enum { WHOLE = RANKS * PART * 4, BYTES = BUFFERS * WHOLE };

static wf_status launches_in(wf_rank *rank, room *m, wf_collective_kind kind, int64_t most)
{
    const wf_collective what = {
        .kind = kind, .n_buffers = BUFFERS, .buffers = m->buffer, .device = device_of(m->ctx)};
    const int64_t before = launches_of(m->ctx);

    GOOD(wf_collective_run(rank->world, &what, &rank->error));
    NEED(launches_of(m->ctx) - before == most);
    return WF_OK;
}

/* Gradients are scattered, some in rows and some as bf16; then parameters are gathered. */
static wf_status step(wf_rank *rank, room *m)
{
    static const int64_t cuts[] = {0, PART, 2 * PART, 3 * PART, 4 * PART};
    const bool packs = strcmp(wf_comm_transport(rank->world), "nccl") == 0;
    static _Thread_local float x[BUFFERS][RANKS][PART];
    wf_device *device = device_of(m->ctx);

    for (int b = 0; b < BUFFERS; b++) {
        for (int64_t i = 0; i < RANKS * PART; i++)
            x[b][i / PART][i % PART] = number(rank->index, b, i);
        m->buffer[b] = (wf_comm_buffer){.in = m->in + WHOLE * b,
                                        .out = m->out + WHOLE * b,
                                        .cuts = cuts,
                                        .rows = packs && b % 3 == 2 ? 4 : 1,
                                        .rounds = b % 4 == 3};
    }
    device->memory->write(device, m->in, x, sizeof x);
    GOOD(launches_in(rank, m, WF_REDUCE_SCATTER, packs + 2)); /* packed; floats, bf16 */
    GOOD(device->memory->read(device, x, m->out, sizeof x, &rank->error));
    for (int b = 0; b < BUFFERS; b++)
        for (int64_t i = 0; i < PART && !m->buffer[b].rounds; i++) {
            const int64_t rows = m->buffer[b].rows, width = PART / rows;
            const int64_t at = i / width * (RANKS * width) + rank->index * width + i % width;

            NEED(same_bits(x[b][0][i], tree_of(0, RANKS, b, at)));
        }
    for (int b = 0; b < BUFFERS; b++) {
        m->buffer[b].rounds = false;
        m->buffer[b].rows = 1;
    }
    GOOD(launches_in(rank, m, WF_ALL_GATHER, packs + 1)); /* packed; to their places */
    GOOD(device->memory->read(device, x, m->out, sizeof x, &rank->error));
    for (int b = 0; b < BUFFERS; b++)
        for (int64_t i = 0; i < RANKS * PART; i++)
            NEED(same_bits(x[b][i / PART][i % PART], number((int)(i / PART), b, i % PART)));
    return wf_barrier(rank->world, &rank->error);
}

static wf_status rank_of(wf_rank *rank, void *arg)
{
    const wf_cuda_options options = {.ordinal = rank->index, .readers = RANKS};
    wf_device *device = wf_cuda_device(&options, &rank->error);
    room m = {.ctx = device ? wf_context_open(device, NULL, &rank->error) : NULL};
    wf_status status;

    (void)arg;
    NEED(m.ctx);
    m.in = take(device, BYTES, 0);
    m.out = take(device, BYTES, 0);
    status = step(rank, &m);
    give(device, m.in, BYTES);
    give(device, m.out, BYTES);
    wf_context_close(m.ctx);
    return status;
}

/* Over threads GPUs read each other's memory; over NCCL parts are packed, and brought to their
   places. */
static void over_ranks(void)
{
    gpu_over_ranks(rank_of);
}

int main(void)
{
    static const wf_test tests[] = {{"copies of a device", copies},
                                    {"sums of a device", sums},
                                    {"collectives over ranks", over_ranks},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_packed", tests);
}
