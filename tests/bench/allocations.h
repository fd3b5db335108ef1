/* tests/bench/allocations.h - calls of the C library's allocator by everything linked into bench. */
#ifndef WF_TESTS_BENCH_ALLOCATIONS_H
#define WF_TESTS_BENCH_ALLOCATIONS_H

#include <stdint.h>

/* How many blocks have been asked for so far, by all threads. */
int64_t bench_allocations(void);

#endif
