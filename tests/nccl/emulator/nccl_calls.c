/*
 * tests/nccl/emulator/nccl_calls.c - calls become lanes: bytes from or to one peer. The lanes
 * of a group progress together, in order where they have the same peer, on the thread of their
 * stream.
 */
#include "tests/nccl/emulator/enqueue.h"
#include "tests/nccl/emulator/nccl_world.h"
#include <stdlib.h>
#include <string.h>

typedef struct lane {
    ring *ring;
    int peer;
    bool sends;
    char *data;
    size_t bytes, done;
} lane;

/* to[i] = sum or greatest, in ascending order, of what the members brought. */
typedef struct fold {
    struct fold *next;
    float *to, *parts; /* parts: [size][count] */
    size_t count;
    ncclRedOp_t op;
} fold;

/* A group of calls of one communicator. */
typedef struct launch {
    struct ncclComm *comm;
    cudaStream_t stream;
    lane *lane;
    int n, room;
    struct {
        char *to;
        const char *from;
        size_t bytes;
    } own[64];
    int n_own;
    fold *folds;
    int in_window[8], n_in_window; /* places of collectives in windows */
    uint32_t seen;                 /* the bell before the last pass */
} launch;

static _Thread_local launch *open;
static _Thread_local int depth;
static _Thread_local ncclResult_t wrong;

static size_t size_of(ncclDataType_t type)
{
    return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

/* As much as there is room for, or bytes of; how much. */
static size_t go_on(lane *l)
{
    ring *r = l->ring;
    uint64_t written = atomic_load(&r->written), read = atomic_load(&r->read);
    uint64_t at = l->sends ? written : read;
    size_t n = (size_t)(l->sends ? RING_BYTES - (written - read) : written - read);

    n = n < l->bytes - l->done ? n : l->bytes - l->done;
    for (size_t done = 0; done < n;) {
        size_t from = (size_t)((at + done) % RING_BYTES), part = RING_BYTES - from;

        part = part < n - done ? part : n - done;
        if (l->sends)
            memcpy(r->data + from, l->data + l->done + done, part);
        else
            memcpy(l->data + l->done + done, r->data + from, part);
        done += part;
    }
    l->done += n;
    atomic_fetch_add(l->sends ? &r->written : &r->read, n);
    return n;
}

static bool first_of_ring(const launch *l, int i)
{
    for (int k = 0; k < i; k++)
        if (l->lane[k].ring == l->lane[i].ring && l->lane[k].done < l->lane[k].bytes)
            return false;
    return true;
}

/* One pass over the lanes; whether all are through. */
static bool pass(launch *l, bool *moved)
{
    bool over = true;

    for (int i = 0; i < l->n; i++) {
        lane *a = &l->lane[i];

        if (a->done < a->bytes && first_of_ring(l, i) && go_on(a)) {
            *moved = true;
            bell_ring(l->comm, a->peer);
        }
        over = over && a->done == a->bytes;
    }
    return over;
}

static void fold_all(const launch *l)
{
    for (const fold *f = l->folds; f; f = f->next)
        for (size_t i = 0; i < f->count; i++) {
            float y = f->parts[i];

            for (int m = 1; m < l->comm->size; m++) {
                float x = f->parts[(size_t)m * f->count + i];

                y = f->op == ncclSum ? y + x : x > y ? x : y;
            }
            f->to[i] = y;
        }
}

static void launch_free(launch *l)
{
    while (l->folds) {
        fold *next = l->folds->next;

        free(l->folds->parts);
        free(l->folds);
        l->folds = next;
    }
    if (l->comm)
        comm_drop(l->comm);
    free(l->lane);
    free(l);
}

static void wait_for_bell(void *opaque)
{
    const launch *l = opaque;

    bell_wait(l->comm, l->seen);
}

/* As far as it goes without a wait. */
static bool attempt(void *opaque)
{
    launch *l = opaque;
    struct ncclComm *c = l->comm;
    bool hangs = comm_fault(c) == 'h', over = false, moved = true;

    for (int i = 0; i < l->n_own; i++)
        memmove(l->own[i].to, l->own[i].from, l->own[i].bytes);
    l->n_own = 0;
    while (!over && moved && !atomic_load(&c->aborted)) {
        l->seen = atomic_load(&c->shared->bell[c->rank]);
        moved = false;
        over = !hangs && pass(l, &moved);
    }
    if (over)
        fold_all(l);
    for (int i = 0; over && i < l->n_in_window; i++)
        window_compare(c, l->in_window[i]);
    if (!over && !atomic_load(&c->aborted))
        return false;
    launch_free(l);
    return true;
}

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) {
        open = calloc(1, sizeof *open);
        wrong = ncclSuccess;
    }
    return ncclSuccess;
}

bool group_is_open(void)
{
    return depth > 0;
}

ncclResult_t ncclGroupEnd(void)
{
    launch *l = open;

    if (--depth > 0)
        return wrong;
    open = NULL;
    if (wrong != ncclSuccess || !l->comm) {
        launch_free(l);
        return wrong;
    }
    atomic_fetch_add(&l->comm->calls, 1);
    return emulated_enqueue(l->stream, attempt, wait_for_bell, l) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

/* The group that is open belongs to this communicator and stream. */
static bool enter(ncclComm_t comm, cudaStream_t stream)
{
    if (!comm->shared || atomic_load(&comm->shared->joined) < comm->size ||
        (open->comm && (open->comm != comm || open->stream != stream))) {
        wrong = ncclInvalidUsage;
        return false;
    }
    if (!open->comm)
        atomic_fetch_add(&comm->users, 1);
    open->comm = comm;
    open->stream = stream;
    return true;
}

static void add_lane(int peer, bool sends, const void *data, size_t bytes)
{
    struct ncclComm *c = open->comm;

    if (open->n == open->room) {
        open->room = open->room ? 2 * open->room : 16;
        open->lane = realloc(open->lane, (size_t)open->room * sizeof *open->lane);
    }
    open->lane[open->n++] =
        (lane){.ring = sends ? ring_of(c, c->rank, peer) : ring_of(c, peer, c->rank),
               .peer = peer,
               .sends = sends,
               .data = (char *)(uintptr_t)data,
               .bytes = bytes};
}

static void add_own(void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return;
    if (open->n_own == 64) {
        wrong = ncclInvalidUsage;
        return;
    }
    open->own[open->n_own].to = to;
    open->own[open->n_own].from = from;
    open->own[open->n_own++].bytes = bytes;
}

/* Checks where a collective's buffers are. */
static void see_window(const void *from, const void *to, size_t bytes)
{
    int call = window_check(open->comm, from, to, bytes);

    if (call >= 0 && open->n_in_window < 8)
        open->in_window[open->n_in_window++] = call;
}

/* Returns true where two buffers of as many bytes have some in common. */
static bool overlap(const char *a, const char *b, size_t bytes)
{
    return a < b + bytes && b < a + bytes;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    ncclGroupStart();
    if (enter(comm, stream))
        add_lane(peer, true, from, count * size_of(type));
    return ncclGroupEnd();
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    ncclGroupStart();
    if (enter(comm, stream))
        add_lane(peer, false, to, count * size_of(type));
    return ncclGroupEnd();
}

/* Everybody's bytes at everybody's. */
static void gather(ncclComm_t comm, const void *from, char *to, size_t bytes)
{
    for (int i = 0; i < comm->size; i++) {
        if (i == comm->rank)
            continue;
        add_lane(i, true, from, bytes);
        add_lane(i, false, to + (size_t)i * bytes, bytes);
    }
    add_own(to + (size_t)comm->rank * bytes, from, bytes);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    ncclGroupStart();
    if (enter(comm, stream)) {
        see_window(from, to, (size_t)comm->size * count * size_of(type));
        gather(comm, from, to, count * size_of(type));
    }
    return ncclGroupEnd();
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * size_of(type);

    ncclGroupStart();
    if (enter(comm, stream)) {
        see_window(from, to, (size_t)comm->size * bytes);
        if (overlap(from, to, (size_t)comm->size * bytes))
            window_abort("an all-to-all whose parts arrive where others are still sent from");
        for (int i = 0; i < comm->size; i++) {
            if (i == comm->rank)
                continue;
            add_lane(i, true, (const char *)from + (size_t)i * bytes, bytes);
            add_lane(i, false, (char *)to + (size_t)i * bytes, bytes);
        }
        add_own((char *)to + (size_t)comm->rank * bytes,
                (const char *)from + (size_t)comm->rank * bytes, bytes);
    }
    return ncclGroupEnd();
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * size_of(type);

    ncclGroupStart();
    if (enter(comm, stream)) {
        for (int i = 0; comm->rank == root && i < comm->size; i++)
            if (i != root)
                add_lane(i, true, from, bytes);
        if (comm->rank != root)
            add_lane(root, false, to, bytes);
        else
            add_own(to, from, bytes);
    }
    return ncclGroupEnd();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    fold *f = type == ncclFloat32 ? malloc(sizeof *f) : NULL;

    ncclGroupStart();
    if (!f)
        wrong = ncclInvalidArgument; /* the emulator reduces f32 alone */
    if (f && enter(comm, stream)) {
        *f = (fold){.next = open->folds,
                    .to = to,
                    .parts = malloc((size_t)comm->size * count * sizeof(float) + 1),
                    .count = count,
                    .op = op};
        open->folds = f;
        gather(comm, from, (char *)f->parts, count * sizeof(float));
    }
    return ncclGroupEnd();
}
