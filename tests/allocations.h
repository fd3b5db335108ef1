/*
 * tests/allocations.h - memory that can be made to end. A test links weft_failing_allocations,
 * which puts its own between the test and the system's malloc, calloc, realloc, strdup and
 * strndup.
 */
#ifndef WF_TESTS_ALLOCATIONS_H
#define WF_TESTS_ALLOCATIONS_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

/* The work is done again and again, until no allocation fails: each fails once, with what comes
   after it, is told as WF_ENOMEM in words, and leaves nothing behind that a sanitizer finds.
   There are to be `least` at least. */
void each_allocation_fails(wf_status (*work)(wf_error *error), int64_t least);

/* Sets whether allocations count from here on, and may fail: for work that begins or ends with
   others. They do at first. */
void allocations_matter(bool so);

/* Allocations that succeed from here on; INT64_MAX: all. */
void allocations_left(int64_t n);

#endif
