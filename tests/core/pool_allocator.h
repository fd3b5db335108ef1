/* tests/core/pool_allocator.h - a pool over an allocator that keeps account of its blocks. */
#ifndef WF_TESTS_CORE_POOL_ALLOCATOR_H
#define WF_TESTS_CORE_POOL_ALLOCATOR_H

#include "core/memory/memory.h"
#include <stdbool.h>

enum { BLOCKS = 256 };

/* An allocator that knows its blocks; `room` bytes at once; only the first are there unless
   `real`.
*/
typedef struct logging_allocator {
    void *block[BLOCKS];
    size_t bytes[BLOCKS];
    size_t in_use, room;
    int64_t calls;
    bool real;
} logging_allocator;

wf_pool *open_pool(logging_allocator *l, size_t limit);
wf_memory_report report_of(const wf_pool *pool);

/* Closing gives everything back, each block with the size it was asked for. */
void close_pool(wf_pool *pool, const logging_allocator *l);

#endif
