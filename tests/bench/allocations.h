/* tests/bench/allocations.h - calls of the C library's allocator by everything linked into
   bench. */
#ifndef WF_TESTS_BENCH_ALLOCATIONS_H
#define WF_TESTS_BENCH_ALLOCATIONS_H

#include <stdint.h>

/* Returns the number of blocks that all threads have asked for so far. */
int64_t bench_allocations(void);

#endif
