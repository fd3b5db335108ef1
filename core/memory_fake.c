/*
 * core/memory_fake.c - addresses without memory: a range that the kernel reserves and lets nobody
 * touch. Neighbouring ranges become one entry of its table, and no page is ever taken.
 */
#include "core/memory.h"
#include <sys/mman.h>

static void *reserve(void *self, size_t bytes)
{
    void *range =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)self;
    return range == MAP_FAILED ? NULL : range;
}

static void give_back(void *self, void *range, size_t bytes)
{
    (void)self;
    munmap(range, bytes);
}

wf_allocator wf_fake_allocator(void)
{
    return (wf_allocator){.alloc = reserve, .release = give_back};
}
