/*
 * core/memory_fake.c - addresses without memory: one range that the kernel reserves and lets nobody
 * touch. Requests take the next addresses of it, from the beginning again at its end.
 */
#include "core/memory.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* Less where the address space is tight: ThreadSanitizer leaves a program about 1 TiB of it. */
static const size_t MOST = (size_t)1 << 44, LEAST = (size_t)1 << 38;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *range; /* of `size` bytes, or NULL */
static size_t size;
static atomic_size_t next;

static void reserve(void)
{
    for (size = MOST; !range && size >= LEAST; size = range ? size : size / 2) {
        void *p =
            mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        range = p == MAP_FAILED ? NULL : p;
    }
}

static void *take(void *self, size_t bytes)
{
    size_t at;

    (void)self;
    pthread_once(&once, reserve);
    if (!range || bytes > size)
        return NULL;
    at = atomic_fetch_add_explicit(&next, bytes, memory_order_relaxed) % size;
    return range + (at + bytes <= size ? at : 0);
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
