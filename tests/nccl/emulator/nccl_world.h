/* tests/nccl/emulator/nccl_world.h - communicators in shared memory: nccl_world.c makes them,
 * nccl_calls.c moves data over them. */
#ifndef WF_TESTS_NCCL_EMULATOR_NCCL_WORLD_H
#define WF_TESTS_NCCL_EMULATOR_NCCL_WORLD_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RING_BYTES = 16 << 10, SPLITS = 64, OFFSETS = 4096 };

/* Bytes from one member to another, in order. */
typedef struct ring {
    _Atomic uint64_t written, read;
    char data[RING_BYTES];
} ring;

/* A member's word in one of the splits. */
typedef struct said {
    _Atomic int32_t ready;
    int32_t color, key;
} said;

typedef struct shared {
    _Atomic int joined;
    /* windows that members have registered, their bytes, and the offsets of buffers in windows
       by the call, each counted from 1, all added up */
    _Atomic uint64_t windows, window_bytes, offsets[OFFSETS];
    _Atomic uint32_t
        bell[]; /* [size] rung for a member; then said[SPLITS][size], ring[size][size] */
} shared;

struct ncclComm {
    struct ncclComm *next; /* in the list of those of the process */
    char name[64];         /* names its shared memory */
    char root[64];         /* name of the communicator that it descends from */
    int size, rank, first; /* first: its rank in the communicator that it descends from */
    shared *shared;        /* NULL: it waits for its parent's members */
    int splits;
    ncclComm_t waiting; /* the child in the making, for which all have to say what they want */
    bool joined, splitting;
    _Atomic int calls;
    _Atomic bool aborted;
    _Atomic int users;         /* the handle, and work on streams */
    struct ncclWindow *window; /* those that are registered */
    int registered;            /* their number so far .. */
    uint64_t registered_bytes; /* .. and their bytes */
    int in_window;             /* collectives in windows so far */
};

/* Return the offsets of the parts of shared memory, and its size. */
static inline size_t said_at(int size)
{
    return (sizeof(shared) + (size_t)size * sizeof(uint32_t) + 63) / 64 * 64;
}

static inline size_t rings_at(int size)
{
    return (said_at(size) + SPLITS * (size_t)size * sizeof(said) + 63) / 64 * 64;
}

static inline size_t shared_bytes(int size)
{
    return rings_at(size) + (size_t)size * (size_t)size * sizeof(ring);
}

static inline said *said_of(const struct ncclComm *c, int split, int member)
{
    said *all = (said *)(void *)((char *)c->shared + said_at(c->size));

    return all + split * c->size + member;
}

static inline ring *ring_of(const struct ncclComm *c, int from, int to)
{
    ring *all = (ring *)(void *)((char *)c->shared + rings_at(c->size));

    return all + from * c->size + to;
}

/* Returns whether the calling thread is between ncclGroupStart and ncclGroupEnd. */
bool group_is_open(void);

/* The handle, or a stream, is done with it. */
void comm_drop(struct ncclComm *c);

/* Ends the process, with the rule of windows that was broken. */
_Noreturn void window_abort(const char *rule);

/* Ends the windows of a communicator that is aborted. */
void windows_end(struct ncclComm *c);

/* Returns whether all members have registered as many windows; they are alike. */
bool windows_settled(const struct ncclComm *c);

/* Checks the buffers of a collective, of which the second has most bytes. Returns the number of
   its place in `offsets`; -1: they are in no window. */
int window_check(struct ncclComm *c, const void *from, const void *to, size_t bytes);

/* Checks, when all members have come, that they were at one offset. */
void window_compare(const struct ncclComm *c, int call);

/* Returns the fault of the environment for this rank: 'e', 'h', or 0. */
int comm_fault(const struct ncclComm *c);

void bell_ring(struct ncclComm *c, int member);
void bell_wait(struct ncclComm *c, uint32_t seen);

#endif
