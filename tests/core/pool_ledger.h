/* tests/core/pool_ledger.h - a pool over an allocator that keeps account of its blocks. */
#ifndef WF_TESTS_CORE_POOL_LEDGER_H
#define WF_TESTS_CORE_POOL_LEDGER_H

#include "core/memory/memory.h"
#include <stdbool.h>

enum { BLOCKS = 256 };

/* An allocator that knows its blocks; `room` bytes at once; only the first are there unless
   `real`.
*/
typedef struct ledger {
    void *block[BLOCKS];
    size_t bytes[BLOCKS];
    size_t in_use, room;
    int64_t calls;
    bool real;
} ledger;

wf_pool *open_pool(ledger *l, size_t limit);
wf_memory_report report_of(const wf_pool *pool);

/* Closing gives everything back, each block with the size it was asked for. */
void close_pool(wf_pool *pool, const ledger *l);

#endif
