/*
 * core/memory/ranges_internal.h - large blocks cut from regions of the system's memory: a free
 * range is split for a smaller request and joined with free neighbours when it is given back,
 * so that activations of one size and gradients of another use the same pages one after the
 * other. Host memory only: a range's description lies in front of it. One thread at a time. Not
 * installed.
 */
#ifndef WF_CORE_MEMORY_RANGES_INTERNAL_H
#define WF_CORE_MEMORY_RANGES_INTERNAL_H

#include "core/memory/blocks.h"

typedef struct wf_ranges {
    wf_allocator source;
    struct wf_region *regions;
    struct wf_range *unused[WF_SIZE_CLASSES]; /* by the class that they fill */
    uint64_t occupied[WF_SIZE_CLASSES / 64 + 1];
    size_t held;         /* bytes from the source */
    int64_t allocations; /* calls of the source */
} wf_ranges;

/* A block of at least `bytes`, aligned to 64; NULL where the source has no more, also after all
   that is unused went back to it. `last`: of the unused addresses the highest. */
void *wf_ranges_take(wf_ranges *ranges, size_t bytes, bool last);

/* Take it back. */
void wf_ranges_give(wf_ranges *ranges, void *block);

/* Frees every region, also those with parts in use. */
void wf_ranges_close(wf_ranges *ranges);

#endif
