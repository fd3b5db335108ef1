/*
 * tests/bench/allocations.c - counts calls of malloc and its relatives. The linker's
 * --wrap=malloc sends the library's and bench's own calls of malloc to __wrap_malloc, and
 * __real_malloc to malloc; calls inside of shared libraries are not counted.
 */
#include "tests/bench/allocations.h"
#include <stdatomic.h>
#include <stddef.h>

static _Atomic int64_t count;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static void add(void)
{
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
}

int64_t bench_allocations(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed);
}

void *__wrap_malloc(size_t bytes)
{
    add();
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    add();
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *block, size_t bytes)
{
    add();
    return __real_realloc(block, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    add();
    return __real_aligned_alloc(alignment, bytes);
}
