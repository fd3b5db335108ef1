/*
 * tests/cuda/test_cuda_moves.c - exchanges between ranks that are threads with a GPU each: no
 * host waits for a GPU, and what a rank computes before and after comes before and after what
 * its peers read and write. Buffers are filled just before an exchange and filled with
 * something else right after it, and nothing is read until all exchanges are over.
 *
 * ctest: builds plain
 */
#include "kernels/devices.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"

enum { RANKS = 4, N = 16 * RANKS, ROUNDS = 3, SIDE_WORK = 7 };

/* A kind of exchange, and what member `me` has at element i after round k. */
typedef struct kind {
    wf_collective_kind kind;
    int64_t in, out; /* elements that a rank brings and gets */
    float (*want)(int me, int k, int64_t i);
} kind;

typedef struct job {
    const kind *kind;
    bool background; /* more is queued between begin and end */
} job;

static float brought(int rank, int k, int64_t i)
{
    return (float)(1000 * k + 100 * rank + i);
}

static float sum(int me, int k, int64_t i)
{
    float s = 0;

    (void)me;
    for (int r = 0; r < RANKS; r++)
        s += brought(r, k, i);
    return s;
}

static float scattered(int me, int k, int64_t i)
{
    return sum(me, k, me * (N / RANKS) + i);
}

static float gathered(int me, int k, int64_t i)
{
    (void)me;
    return brought((int)(i / (N / RANKS)), k, i % (N / RANKS));
}

static float dealt(int me, int k, int64_t i)
{
    return brought((int)(i / (N / RANKS)), k, me * (N / RANKS) + i % (N / RANKS));
}

static float of_root(int me, int k, int64_t i)
{
    return brought(1, k, i) + 0 * (float)me;
}

static const kind kinds[] = {{WF_ALL_REDUCE, N, N, sum},
                             {WF_REDUCE_SCATTER, N, N / RANKS, scattered},
                             {WF_ALL_GATHER, N / RANKS, N, gathered},
                             {WF_ALL_TO_ALL, N, N, dealt},
                             {WF_BROADCAST, N, N, of_root}};

/* A rank's memory on its GPU. */
typedef struct memory {
    wf_device *device;
    float *in, *out, *kept, *other;
} memory;

static void write_numbers(const memory *m, int rank, int k, int64_t n)
{
    float x[N];

    for (int64_t i = 0; i < n; i++)
        x[i] = brought(rank, k, i);
    m->device->memory->write(m->device, m->in, x, (size_t)n * sizeof *x);
}

/* Keeps what a round has brought, and spoils what it had, all of it queued. */
static void keep(const memory *m, int k, const float *from, int64_t n)
{
    const wf_copy copy = {
        .from = from, .to = m->kept + (int64_t)k * N, .bytes = (size_t)n * 4, .rows = 1};

    m->device->memory->copy(m->device, &copy, false, NULL);
    m->device->memory->fill(m->device, m->in, 0x7fc00000u, N);
    m->device->memory->fill(m->device, m->out, 0x7fc00000u, N);
}

static wf_status exchange(wf_rank *rank, const job *j, const memory *m)
{
    const int64_t cuts[] = {0, N / RANKS, 2 * N / RANKS, 3 * N / RANKS, N};
    const bool root = j->kind->kind == WF_BROADCAST && rank->index == 1;
    wf_comm_buffer buffer = {
        .in = m->in, .out = root ? m->in : m->out, .count = N, .cuts = cuts, .out_cuts = cuts};
    wf_collective what = {.kind = j->kind->kind,
                          .peer = 1,
                          .n_buffers = 1,
                          .buffers = &buffer,
                          .device = m->device,
                          .at_once = !j->background};
    wf_pending *pending;

    GOOD(wf_collective_begin(rank->world, &what, &pending, &rank->error));
    for (int i = 0; j->background && i < SIDE_WORK; i++)
        m->device->memory->fill(m->device, m->other, (uint32_t)i, N);
    return wf_collective_end(pending, &rank->error);
}

/* Returns the waits for the GPU that this rank's thread has asked for. */
static int64_t waits(const wf_device *device)
{
    const wf_device_counts counts = device->counts();

    return counts.syncs + counts.waits;
}

static wf_status check_rounds(wf_rank *rank, const job *j, const memory *m)
{
    float got[ROUNDS * N];

    GOOD(m->device->memory->read(m->device, got, m->kept, sizeof got, &rank->error));
    for (int k = 0; k < ROUNDS; k++)
        for (int64_t i = 0; i < j->kind->out; i++)
            NEED(same_bits(got[k * N + i], j->kind->want(rank->index, k, i)));
    return WF_OK;
}

static wf_status rounds(wf_rank *rank, const job *j, const memory *m)
{
    const bool root = j->kind->kind == WF_BROADCAST && rank->index == 1;
    const int64_t before = waits(m->device), launched = m->device->counts().launches;

    for (int k = 0; k < ROUNDS; k++) {
        write_numbers(m, rank->index, k, j->kind->in);
        GOOD(exchange(rank, j, m));
        keep(m, k, root ? m->in : m->out, j->kind->out);
    }
    NEED(waits(m->device) == before);
    /* numbers, its own share of the sum, what is kept and spoilt */
    NEED(j->background || j->kind->kind != WF_ALL_REDUCE ||
         m->device->counts().launches == launched + ROUNDS * 5);
    GOOD(wf_barrier(rank->world, &rank->error)); /* whoever reads first runs only its own */
    return check_rounds(rank, j, m);
}

/* Each round a rank sends to the next one and receives from the one before. */
static wf_status ring(wf_rank *rank, const job *j, const memory *m)
{
    const int next = (rank->index + 1) % RANKS, before = (rank->index + RANKS - 1) % RANKS;
    const int64_t waited = waits(m->device);
    float got[ROUNDS * N];

    (void)j;
    for (int k = 0; k < ROUNDS; k++) {
        wf_comm_buffer out = {.in = m->in, .count = N}, in = {.out = m->out, .count = N};
        wf_collective send = {.kind = WF_SEND,
                              .peer = next,
                              .n_buffers = 1,
                              .buffers = &out,
                              .device = m->device},
                      recv = send;
        wf_pending *sent, *received;

        recv.kind = WF_RECV;
        recv.peer = before;
        recv.buffers = &in;
        write_numbers(m, rank->index, k, N);
        GOOD(wf_collective_begin(rank->world, &send, &sent, &rank->error));
        GOOD(wf_collective_begin(rank->world, &recv, &received, &rank->error));
        GOOD(wf_collective_end(received, &rank->error));
        GOOD(wf_collective_end(sent, &rank->error));
        keep(m, k, m->out, N);
    }
    NEED(waits(m->device) == waited);
    GOOD(wf_barrier(rank->world, &rank->error));
    GOOD(m->device->memory->read(m->device, got, m->kept, sizeof got, &rank->error));
    for (int k = 0; k < ROUNDS; k++)
        for (int64_t i = 0; i < N; i++)
            NEED(same_bits(got[k * N + i], brought(before, k, i)));
    return WF_OK;
}

static wf_status on_device(wf_rank *rank, const job *j,
                           wf_status (*work)(wf_rank *, const job *, const memory *))
{
    wf_error why = {WF_OK, ""};
    const int devices = wf_cuda_count(false, &why);
    memory m = {.device = wf_cuda_device(
                    &(wf_cuda_options){.ordinal = rank->index % devices, .readers = devices},
                    &rank->error)};
    float **part[] = {&m.in, &m.out, &m.kept, &m.other};
    const wf_allocator *a;
    wf_status status;

    NEED(m.device);
    a = &m.device->allocator;
    for (int i = 0; i < 4; i++)
        *part[i] = a->alloc(a->self, ROUNDS * N * sizeof(float));
    NEED(m.in && m.out && m.kept && m.other);
    status = work(rank, j, &m);
    for (int i = 0; i < 4; i++)
        a->release(a->self, *part[i], ROUNDS * N * sizeof(float));
    m.device->close(m.device);
    return status;
}

static wf_status rounds_rank(wf_rank *rank, void *arg)
{
    return on_device(rank, arg, rounds);
}

static wf_status ring_rank(wf_rank *rank, void *arg)
{
    return on_device(rank, arg, ring);
}

static void run(wf_status (*main)(wf_rank *, void *), job *j, const char *devices)
{
    wf_error error = {WF_OK, ""};

    setenv("WEFT_EMULATOR_DEVICES", devices, 1);
    wf_launch(&(wf_launch_options){.ranks = RANKS}, main, j, &error);
    unsetenv("WEFT_EMULATOR_DEVICES");
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s over %s devices%s: %s\n",
               j->kind ? wf_collective_name(j->kind->kind) : "messages", devices,
               j->background ? ", in the background" : "", error.text);
}

static void collectives(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int background = 0; background < 2; background++) {
            run(rounds_rank, &(job){&kinds[i], background}, "4");
            run(rounds_rank, &(job){&kinds[i], background}, "2");
        }
}

static void messages(void)
{
    run(ring_rank, &(job){NULL, true}, "4");
    run(ring_rank, &(job){NULL, true}, "1");
}

/* One rank leaves with an error while the others wait: they fail, and nothing hangs. */
static wf_status lost(wf_rank *rank, const job *j, const memory *m)
{
    write_numbers(m, rank->index, 0, j->kind->in);
    GOOD(exchange(rank, j, m));
    if (rank->index == 2)
        return wf_error_set(&rank->error, WF_EDATA, "no more data");
    write_numbers(m, rank->index, 1, j->kind->in);
    return exchange(rank, j, m);
}

static wf_status lost_rank(wf_rank *rank, void *arg)
{
    return on_device(rank, arg, lost);
}

static void a_rank_is_lost(void)
{
    wf_error error = {WF_OK, ""};

    for (int background = 0; background < 2; background++) {
        wf_launch(&(wf_launch_options){.ranks = RANKS}, lost_rank,
                  &(job){&kinds[0], background}, &error);
        CU_ASSERT(says(&error, WF_EDATA, "rank 2", "no more data"));
    }
}

int main(void)
{
    static const wf_test tests[] = {{"collectives that no host waits for", collectives},
                                    {"messages", messages},
                                    {"a rank is lost", a_rank_is_lost},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_moves", tests);
}
