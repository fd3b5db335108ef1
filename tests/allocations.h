/*
 * tests/allocations.h - memory that can be made to end, and requests of it that are counted. A
 * test that links weft_allocations has these between the library and the system's malloc,
 * calloc, realloc, strdup, strndup, aligned_alloc, posix_memalign, mmap and free.
 */
#ifndef WF_TESTS_ALLOCATIONS_H
#define WF_TESTS_ALLOCATIONS_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum allocation_kind {
    ALLOCATION_HEAP,    /* malloc and what is made by it */
    ALLOCATION_ALIGNED, /* aligned_alloc, posix_memalign */
    ALLOCATION_MAP      /* mmap */
} allocation_kind;

/* Sees all requests of the process, on any thread. Either function may be NULL. */
typedef struct allocation_watch {
    /* Returns whether the request fails. */
    bool (*refuses)(allocation_kind kind, size_t bytes);
    /* Hears that a block of the heap was taken (1) or given back (-1). */
    void (*changed)(int blocks);
} allocation_watch;

/* Replaces what sees them, for the rest of the process; at first it is that of
   allocations_left. */
void allocations_watch(const allocation_watch *watch);

/* Repeats the work until no allocation fails: each one of the heap fails once, with those after
   it, is reported as WF_ENOMEM in words, and leaves no memory that a sanitizer finds. There are
   to be `least` at least. */
void each_allocation_fails(wf_status (*work)(wf_error *error), int64_t least);

/* Sets whether allocations count from here on, and may fail: for work that begins or ends with
   others. They do at first. */
void allocations_matter(bool so);

/* Sets how many allocations succeed from here on; INT64_MAX: all. */
void allocations_left(int64_t n);

/* Take and give back memory past any watch. */
int __real_posix_memalign(void **block, size_t alignment, size_t bytes);
void __real_free(void *block);

#endif
