/* tests/nccl/emulator/nccl_window.c - memory that members register together, and its rules. */
#include "tests/nccl/emulator/nccl_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Describes memory of ncclMemAlloc, which windows show. */
typedef struct block {
    struct block *next;
    char *at;
    size_t bytes;
    int windows;
} block;

struct ncclWindow {
    struct ncclWindow *next; /* the communicator's next one */
    block *block;
    char *at;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;

void window_abort(const char *rule)
{
    fprintf(stderr, "emulated NCCL: %s\n", rule);
    abort();
}

ncclResult_t ncclGetVersion(int *version)
{
    const char *given = getenv("WEFT_EMULATED_NCCL_VERSION");

    *version = given ? atoi(given) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    block *b = calloc(1, sizeof *b);
    void *memory = NULL;

    if (!b || cudaMalloc(&memory, bytes) != cudaSuccess) {
        free(b);
        return ncclUnhandledCudaError;
    }
    pthread_mutex_lock(&lock);
    *b = (block){.next = blocks, .at = memory, .bytes = bytes};
    blocks = b;
    pthread_mutex_unlock(&lock);
    *at = memory;
    return ncclSuccess;
}

/* Returns the block that an address is in; NULL: none. Under the lock. */
static block *block_of(const void *at)
{
    block *b = blocks;

    while (b && !((const char *)at >= b->at && (const char *)at < b->at + b->bytes))
        b = b->next;
    return b;
}

ncclResult_t ncclMemFree(void *at)
{
    block **link = &blocks, *b;

    pthread_mutex_lock(&lock);
    while (*link && (*link)->at != at)
        link = &(*link)->next;
    b = *link;
    if (!b)
        window_abort("ncclMemFree of memory that ncclMemAlloc has not given");
    if (b->windows)
        window_abort("memory was freed before its window was deregistered");
    *link = b->next;
    pthread_mutex_unlock(&lock);
    cudaFree(b->at);
    free(b);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes,
                                    ncclWindow_t *window, int flags)
{
    struct ncclWindow *w = calloc(1, sizeof *w);
    block *b;

    pthread_mutex_lock(&lock);
    b = block_of(at);
    if (!b || (char *)at + bytes > b->at + b->bytes)
        window_abort("a window of memory that ncclMemAlloc has not given");
    if (bytes % NCCL_WIN_REQUIRED_ALIGNMENT || flags != NCCL_WIN_COLL_SYMMETRIC)
        window_abort("a window that is no multiple of its alignment, or not symmetric");
    b->windows++;
    pthread_mutex_unlock(&lock);
    *w = (struct ncclWindow){.next = comm->window, .block = b, .at = at, .bytes = bytes};
    comm->window = w;
    comm->registered++;
    comm->registered_bytes += bytes;
    atomic_fetch_add(&comm->shared->window_bytes, bytes);
    atomic_fetch_add(&comm->shared->windows, 1);
    *window = w;
    return ncclInProgress;
}

bool windows_settled(const struct ncclComm *c)
{
    const uint64_t size = (uint64_t)c->size, all = size * (uint64_t)c->registered;

    if (atomic_load(&c->shared->windows) < all)
        return false;
    if (atomic_load(&c->shared->windows) == all &&
        atomic_load(&c->shared->window_bytes) != size * c->registered_bytes)
        window_abort("members have registered windows of different sizes");
    return true;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    struct ncclWindow **link = &comm->window;

    while (*link && *link != window)
        link = &(*link)->next;
    if (!*link)
        window_abort("a window was deregistered that the communicator does not have");
    *link = window->next;
    pthread_mutex_lock(&lock);
    window->block->windows--;
    pthread_mutex_unlock(&lock);
    free(window);
    return ncclSuccess;
}

void windows_end(struct ncclComm *c)
{
    while (c->window)
        ncclCommWindowDeregister(c, c->window);
}

/* Returns the communicator's window that has these bytes, or NULL. */
static const struct ncclWindow *find(const struct ncclComm *c, const void *at, size_t bytes)
{
    const struct ncclWindow *w = c->window;
    const char *first = at;

    while (w && !(first >= w->at && first + bytes <= w->at + w->bytes))
        w = w->next;
    return w;
}

int window_check(struct ncclComm *c, const void *from, const void *to, size_t bytes)
{
    const struct ncclWindow *w = find(c, to, bytes);
    bool registered;

    pthread_mutex_lock(&lock);
    registered = block_of(from) || block_of(to);
    pthread_mutex_unlock(&lock);
    if (!registered)
        return -1;
    if (!w || !find(c, from, 1) || !windows_settled(c))
        window_abort("a collective in memory that is in no window of its communicator");
    if (c->in_window >= OFFSETS)
        return -1;
    atomic_fetch_add(&c->shared->offsets[c->in_window],
                     (uint64_t)((const char *)to - w->at) + 1);
    return c->in_window++;
}

void window_compare(const struct ncclComm *c, int call)
{
    const uint64_t sum = call < 0 ? 0 : atomic_load(&c->shared->offsets[call]);

    if (sum % (uint64_t)c->size)
        window_abort("members of a collective are at different offsets of their windows");
}
