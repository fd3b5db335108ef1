/*
 * core/memory/memory.h - the caching, accounting pool through which all tensor memory goes.
 *
 * A request is rounded to 64 bytes and counted under a kind from the moment it is taken until
 * it is given back (program points, never completion), so that a plan and a run agree to the
 * byte. What is given back is kept for the next request, split and joined as sizes ask for; how
 * much more than what is in use the pool holds is reported separately. Blocks of an opaque
 * allocator are never looked into: they may be memory of a device, or no memory at all.
 */
#ifndef WF_CORE_MEMORY_MEMORY_H
#define WF_CORE_MEMORY_MEMORY_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef enum wf_memory_kind {
#define KIND(name, text) WF_MEMORY_##name,
#include "core/memory/memory.def"
#undef KIND
    WF_MEMORY_KINDS
} wf_memory_kind;

/** wf_allocator - the source of a pool's blocks; alloc returns NULL when there is no more. */
typedef struct wf_allocator {
    void *(*alloc)(void *self, size_t bytes);               /* required; aligned to 64 bytes */
    void (*release)(void *self, void *block, size_t bytes); /* required */
    /* Make a block longer where it lies; false: it cannot be. NULL: none can. */
    bool (*extend)(void *self, void *block, size_t bytes, size_t more);
    /* the pool keeps no bookkeeping in blocks, and hands them through one by one */
    bool opaque;
    void *self;
} wf_allocator;

enum { WF_MEMORY_PHASE = 32, WF_MEMORY_MODULE = 128 };

typedef struct wf_memory_report {
    size_t now[WF_MEMORY_KINDS];     /* bytes in use by kind */
    size_t most[WF_MEMORY_KINDS];    /* peak of each kind by itself */
    size_t at_peak[WF_MEMORY_KINDS]; /* bytes by kind at the moment of the peak */
    size_t in_use, peak;
    size_t cached;                 /* held beyond what is in use */
    char phase[WF_MEMORY_PHASE];   /* phase at the peak, "" where none was named */
    char module[WF_MEMORY_MODULE]; /* the module at the peak */
    int64_t system_allocations;    /* calls of the allocator so far */
} wf_memory_report;

typedef struct wf_pool wf_pool;

/** wf_memory_kind_name - returns "parameters", "gradients", ... Owner: static string. */
WF_API const char *wf_memory_kind_name(wf_memory_kind kind);

/** wf_host_allocator - returns an allocator of host memory, aligned to 64 bytes. Large blocks
 * get huge pages, and reserve addresses after them, as many as the machine has memory, so that
 * they can be extended; without such addresses they cannot. */
WF_API wf_allocator wf_host_allocator(void);

/** wf_fake_allocator - returns an allocator of addresses without memory, for plans: a read or
 * write there faults at once. */
WF_API wf_allocator wf_fake_allocator(void);

/**
 * wf_pool_open - opens a pool over an allocator.
 *
 * @param limit  bytes that may be in use at once, 0 for no limit
 * Owner:   caller; wf_pool_close returns all that it holds, blocks in use too
 * Errors:  WF_ENOMEM; result is then NULL
 */
WF_API wf_pool *wf_pool_open(const wf_allocator *allocator, size_t limit, wf_error *error);
WF_API void wf_pool_close(wf_pool *pool);

/**
 * wf_pool_take - takes a block of at least `bytes` (0 gives a valid, empty block), counted as
 * `kind`.
 *
 * Errors:  WF_ENOMEM with the bytes asked for, in use by kind, and the limit; result is NULL
 */
WF_API void *wf_pool_take(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error);

/** wf_pool_give - gives a block back; bytes and kind as it was taken. */
WF_API void wf_pool_give(wf_pool *pool, void *block, size_t bytes, wf_memory_kind kind);

/** wf_pool_hold, wf_pool_let_go - count bytes that the device keeps by itself, beyond the
 * blocks of the pool: the memory that a captured graph needs each time it runs */
WF_API void wf_pool_hold(wf_pool *pool, size_t bytes, wf_memory_kind kind);
WF_API void wf_pool_let_go(wf_pool *pool, size_t bytes, wf_memory_kind kind);

/**
 * wf_pool_see, wf_pool_see_no_more - count memory of another pool, which this rank shares, like
 * a block of this one: rounded, and within the limit
 *
 * Errors:  as of wf_pool_take
 */
WF_API wf_status wf_pool_see(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error);
WF_API void wf_pool_see_no_more(wf_pool *pool, size_t bytes, wf_memory_kind kind);

/**
 * wf_pool_guard - puts guard zones around the blocks of a pool that is not opaque, from now on;
 * a block that is given back is filled with NaNs and quarantined before it is reused
 *
 * Counts stay as they are. Called before anything is taken.
 *
 * What is counted stays as it is. Called before anything is taken.
 *
 * @param damaged  called when a block that is given back, or leaves the quarantine, was written
 *                 where its owner may not; "what" says so
 * Errors:         WF_ENOMEM
 */
WF_API wf_status wf_pool_guard(wf_pool *pool,
                               void (*damaged)(void *self, const char *what, size_t bytes),
                               void *self);
/** wf_pool_is_intact - returns true where nothing was written right before or after a block in
 * use, as far as the pool is guarded. */
WF_API bool wf_pool_is_intact(const wf_pool *pool, const void *block, size_t bytes);

/** wf_pool_change - memory that was taken or given back, at one moment of the program. */
typedef struct wf_pool_change {
    const void *block; /* NULL: it is in no block of this pool */
    int64_t bytes;     /* as counted; below 0: given back */
    wf_memory_kind kind;
    const char *phase, *module; /* NULL: none was named */
} wf_pool_change;

typedef void wf_pool_watcher(void *self, const wf_pool_change *change);

/** wf_pool_watch - calls `watch` after each change of what is in use, from now on; NULL ends
 * it. */
WF_API void wf_pool_watch(wf_pool *pool, wf_pool_watcher *watch, void *self);

/** wf_pool_mark - restarts the count of the most that is in use; wf_pool_most - returns it. */
WF_API void wf_pool_mark(wf_pool *pool);
WF_API size_t wf_pool_most(const wf_pool *pool);

/**
 * wf_pool_moment - names the current phase and module, for the report of the peak.
 *
 * @param phase  for instance "backward"; both may be NULL, and stay alive until the next call
 * @param module  for instance the path of a module
 */
WF_API void wf_pool_moment(wf_pool *pool, const char *phase, const char *module);

/** wf_pool_report - reports what is in use, was at the peak, and is cached. */
WF_API void wf_pool_report(const wf_pool *pool, wf_memory_report *report);

/** wf_pool_restore_peak - sets the peak, and the most of each kind, back to those of a report:
 * what was taken and given back since was no part of the run. */
WF_API void wf_pool_restore_peak(wf_pool *pool, const wf_memory_report *report);

/** wf_pool_reset_peak - sets the peak, and the most of each kind, to what is in use now. */
WF_API void wf_pool_reset_peak(wf_pool *pool);

WF_END_DECLS

#endif
