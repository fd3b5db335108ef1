/*
 * core/memory_fake.c - addresses without memory: one range that the kernel reserves and lets nobody
 * touch. Requests take the next addresses of it, from the beginning again at its end.
 */
#include "core/memory.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

static const size_t RANGE = (size_t)1 << 44;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *range;
static atomic_size_t next;

static void reserve(void)
{
    void *p = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    range = p == MAP_FAILED ? NULL : p;
}

static void *take(void *self, size_t bytes)
{
    size_t at;

    (void)self;
    pthread_once(&once, reserve);
    if (!range || bytes > RANGE)
        return NULL;
    at = atomic_fetch_add_explicit(&next, bytes, memory_order_relaxed) % RANGE;
    return range + (at + bytes <= RANGE ? at : 0);
}

static void give(void *self, void *block, size_t bytes)
{
    (void)self;
    (void)block;
    (void)bytes;
}

wf_allocator wf_fake_allocator(void)
{
    return (wf_allocator){.alloc = take, .release = give, .opaque = true};
}
