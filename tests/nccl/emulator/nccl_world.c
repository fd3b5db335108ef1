/* tests/nccl/emulator/nccl_world.c - communicators: a file in shared memory, which its last
 * member to come unlinks. */
#include "tests/nccl/emulator/enqueue.h"
#include "tests/nccl/emulator/nccl_world.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "remote process exited",  "in progress",
    };

    return texts[result];
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static _Atomic int count;
    const char *given = getenv("NCCL_COMM_ID");
    uint64_t hash = 14695981039346656037u;

    memset(id, 0, sizeof *id);
    for (const char *p = given; p && *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    if (given)
        snprintf(id->internal, sizeof id->internal, "/weft-nccl-%llx",
                 (unsigned long long)hash);
    else
        snprintf(id->internal, sizeof id->internal, "/weft-nccl-%d-%d", (int)getpid(),
                 atomic_fetch_add(&count, 1));
    return ncclSuccess;
}

static ncclResult_t map(struct ncclComm *c)
{
    size_t bytes = shared_bytes(c->size);
    int file = shm_open(c->name, O_CREAT | O_RDWR, 0600);
    void *memory = MAP_FAILED;

    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (memory == MAP_FAILED)
        return ncclSystemError;
    c->shared = memory;
    return ncclSuccess;
}

/* A name is free again before the last one has come: the next communicator may have the
   same. */
static void join(struct ncclComm *c)
{
    int before = atomic_load(&c->shared->joined);

    do {
        if (before == c->size - 1)
            shm_unlink(c->name);
    } while (!atomic_compare_exchange_weak(&c->shared->joined, &before, before + 1));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms; /* those of this process */

static struct ncclComm *comm_new(int size, int rank, int first, const char *root)
{
    struct ncclComm *c = calloc(1, sizeof *c);

    c->size = size;
    c->rank = rank;
    c->first = first;
    snprintf(c->root, sizeof c->root, "%s", root);
    atomic_store(&c->users, 1);
    pthread_mutex_lock(&lock);
    c->next = comms;
    comms = c;
    pthread_mutex_unlock(&lock);
    return c;
}

static void forget(struct ncclComm *c)
{
    struct ncclComm **at = &comms;

    pthread_mutex_lock(&lock);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    pthread_mutex_unlock(&lock);
}

/* Returns whether the GPU is still busy for another communicator of its rank. */
static bool is_busy(const struct ncclComm *c)
{
    bool busy = false;

    pthread_mutex_lock(&lock);
    for (struct ncclComm *o = comms; o; o = o->next)
        busy = busy || (o != c && o->first == c->first && strcmp(o->root, c->root) == 0 &&
                        !atomic_load(&o->aborted) && atomic_load(&o->users) > 1);
    pthread_mutex_unlock(&lock);
    return busy;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *c = comm_new(size, rank, rank, id.internal);
    ncclResult_t code;

    if (config->blocking)
        return ncclInvalidUsage; /* ours never are */
    snprintf(c->name, sizeof c->name, "%.60s", id.internal);
    code = map(c);
    if (code != ncclSuccess) {
        comm_drop(c);
        return code;
    }
    join(c);
    *comm = c;
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child,
                           ncclConfig_t *config)
{
    said *mine;

    if (comm->splits >= SPLITS || comm->splitting || config->blocking)
        return ncclInvalidUsage;
    mine = said_of(comm, comm->splits, comm->rank);
    mine->color = color;
    mine->key = key;
    atomic_store(&mine->ready, 1);
    comm->splitting = true;
    comm->waiting =
        color == NCCL_SPLIT_NOCOLOR ? NULL : comm_new(0, 0, comm->first, comm->root);
    *child = comm->waiting;
    return ncclInProgress;
}

/* All have said what they want: those of my color, by their keys, are the child's members. */
static ncclResult_t finish_split(struct ncclComm *c)
{
    struct ncclComm *child = c->waiting;
    const said *mine = said_of(c, c->splits, c->rank);
    int split = c->splits;
    ncclResult_t code = ncclSuccess;

    for (int i = 0; i < c->size; i++)
        if (!atomic_load(&said_of(c, split, i)->ready))
            return ncclInProgress;
    for (int i = 0; child && i < c->size; i++) {
        const said *s = said_of(c, split, i);

        if (s->color != mine->color)
            continue;
        child->size++;
        child->rank += s->key < mine->key || (s->key == mine->key && i < c->rank);
    }
    c->splitting = false;
    c->waiting = NULL;
    c->splits++;
    if (!child)
        return ncclSuccess;
    snprintf(child->name, sizeof child->name, "%.48s-%d.%d", c->name, split, mine->color);
    code = map(child);
    if (code == ncclSuccess)
        join(child);
    return code;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    *state = ncclSuccess;
    if (comm_fault(comm) == 'e')
        *state = ncclRemoteError;
    else if (comm->splitting)
        *state = finish_split(comm);
    else if (!comm->shared || atomic_load(&comm->shared->joined) < comm->size ||
             !windows_settled(comm))
        *state = ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

void comm_drop(struct ncclComm *c)
{
    if (atomic_fetch_sub(&c->users, 1) > 1)
        return;
    forget(c);
    if (c->shared)
        munmap(c->shared, shared_bytes(c->size));
    free(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->window)
        window_abort("a communicator was destroyed before its window was deregistered");
    comm_drop(comm);
    return ncclSuccess;
}

/* An abort gives back memory of the GPU, which waits for all that this does: also for other
   communicators, unless they are aborted in the same group. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    windows_end(comm);
    if (comm->shared) {
        bell_ring(comm, comm->rank);
        if (atomic_load(&comm->shared->joined) < comm->size)
            shm_unlink(comm->name);
    }
    while (emulated_streams_run() && !group_is_open() && is_busy(comm))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    comm_drop(comm);
    return ncclSuccess;
}

int comm_fault(const struct ncclComm *c)
{
    const char *fault = getenv("WEFT_EMULATED_NCCL_FAULT");
    char kind[8];
    int rank, calls;

    if (!fault || sscanf(fault, "%7s %d %d", kind, &rank, &calls) != 3)
        return 0;
    return rank == c->first && atomic_load(&c->calls) >= calls ? kind[0] : 0;
}

void bell_ring(struct ncclComm *c, int member)
{
    atomic_fetch_add(&c->shared->bell[member], 1);
    syscall(SYS_futex, &c->shared->bell[member], FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void bell_wait(struct ncclComm *c, uint32_t seen)
{
    const struct timespec limit = {.tv_nsec = 20000000};

    syscall(SYS_futex, &c->shared->bell[c->rank], FUTEX_WAIT, seen, &limit, NULL, 0);
}
