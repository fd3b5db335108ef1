/* tests/core/pool_allocator.c - see the header. */
#include "tests/core/pool_allocator.h"
#include "tests/harness.h"
#include <stdlib.h>

static void *logged_alloc(void *self, size_t bytes)
{
    logging_allocator *l = self;
    int i = 0;

    l->calls++;
    if (bytes > l->room - l->in_use)
        return NULL;
    while (i < BLOCKS - 1 && l->block[i])
        i++;
    l->block[i] = aligned_alloc(64, l->real ? (bytes + 63) / 64 * 64 : 256);
    l->bytes[i] = bytes;
    l->in_use += bytes;
    return l->block[i];
}

static void logged_release(void *self, void *block, size_t bytes)
{
    logging_allocator *l = self;

    for (int i = 0; i < BLOCKS; i++)
        if (l->block[i] == block) {
            CU_ASSERT_EQUAL(bytes, l->bytes[i]);
            l->in_use -= bytes;
            l->block[i] = NULL;
            free(block);
            return;
        }
    CU_FAIL("a block is released that was never allocated");
}

wf_pool *open_pool(logging_allocator *l, size_t limit)
{
    wf_allocator allocator = {.alloc = logged_alloc, .release = logged_release, .self = l};
    wf_pool *pool = wf_pool_open(&allocator, limit, NULL);

    CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
    return pool;
}

wf_memory_report report_of(const wf_pool *pool)
{
    wf_memory_report report;

    wf_pool_report(pool, &report);
    return report;
}

void close_pool(wf_pool *pool, const logging_allocator *l)
{
    wf_pool_close(pool);
    CU_ASSERT_EQUAL(l->in_use, 0);
}
