/*
 * core/memory/memory.c - the pool: who takes how much for what, and where it comes from. Small
 * blocks are kept by size class, large ones are ranges that split and join.
 */
#include "core/memory/memory.h"
#include "core/memory/guard_internal.h"
#include "core/memory/ranges_internal.h"
#include "core/memory/size_class_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wf_pool {
    size_t limit;
    wf_allocator allocator;
    wf_ranges ranges; /* none where the allocator is opaque */
    wf_ranges chunks; /* small blocks are cut from them; they stay, so that they lie apart */
    wf_blocks small;
    wf_guard *guard; /* NULL: there is none */
    const char *phase, *module;
    size_t most;  /* in use since the mark */
    size_t other; /* counted as in use, and not in a block of the pool */
    wf_memory_report report;
    wf_pool_watcher *watch; /* NULL: none */
    void *watcher;
};

const char *wf_memory_kind_name(wf_memory_kind kind)
{
    static const char *const text[] = {
#define KIND(name, words) [WF_MEMORY_##name] = words,
#include "core/memory/memory.def"
#undef KIND
    };

    return (unsigned)kind < WF_MEMORY_KINDS ? text[kind] : "unknown kind";
}

static void *take_chunk(void *self, size_t bytes)
{
    return wf_ranges_take(self, bytes, false);
}

static void give_chunk(void *self, void *chunk, size_t bytes)
{
    (void)bytes;
    wf_ranges_give(self, chunk);
}

wf_pool *wf_pool_open(const wf_allocator *allocator, size_t limit, wf_error *error)
{
    wf_pool *pool = calloc(1, sizeof *pool);

    if (!pool) {
        wf_error_set(error, WF_ENOMEM, "no memory for a pool's bookkeeping");
        return NULL;
    }
    pool->limit = limit;
    pool->allocator = *allocator;
    pool->ranges.source = pool->chunks.source = *allocator;
    pool->small.source =
        (wf_allocator){.alloc = take_chunk, .release = give_chunk, .self = &pool->chunks};
    return pool;
}

void wf_pool_close(wf_pool *pool)
{
    if (!pool)
        return;
    wf_ranges_close(&pool->ranges);
    wf_ranges_close(&pool->chunks);
    wf_guard_close(pool->guard);
    free(pool);
}

static void *no_memory(const wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error)
{
    const wf_memory_report *r = &pool->report;
    char why[64] = "and the device had no more";
    int largest = 0;

    for (int k = 1; k < WF_MEMORY_KINDS; k++)
        if (r->now[k] > r->now[largest])
            largest = k;
    if (pool->limit)
        snprintf(why, sizeof why, "of a limit of %zu", pool->limit);
    wf_error_set(
        error, WF_ENOMEM,
        "out of memory: %zu bytes for %s, when %zu were in use, most for %s: %zu, %s; use a "
        "smaller micro-batch or more ranks",
        bytes, wf_memory_kind_name(kind), r->in_use,
        wf_memory_kind_name((wf_memory_kind)largest), r->now[largest], why);
    return NULL;
}

static void copy_text(char *to, size_t size, const char *from)
{
    to[size - 1] = 0;
    memccpy(to, from ? from : "", 0, size - 1);
}

static void report_change(const wf_pool *pool, const void *block, int64_t bytes,
                          wf_memory_kind kind)
{
    if (pool->watch)
        pool->watch(pool->watcher,
                    &(wf_pool_change){block, bytes, kind, pool->phase, pool->module});
}

static void count(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    wf_memory_report *r = &pool->report;

    r->in_use += bytes;
    r->now[kind] += bytes;
    if (r->now[kind] > r->most[kind])
        r->most[kind] = r->now[kind];
    if (r->in_use > pool->most)
        pool->most = r->in_use;
    if (r->in_use <= r->peak)
        return;
    r->peak = r->in_use;
    memcpy(r->at_peak, r->now, sizeof r->now);
    copy_text(r->phase, sizeof r->phase, pool->phase);
    copy_text(r->module, sizeof r->module, pool->module);
}

static void *take_block(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    size_t counted = wf_block_bytes(bytes);

    if (pool->allocator.opaque) {
        pool->report.system_allocations++;
        return pool->allocator.alloc(pool->allocator.self, counted);
    }
    return counted <= WF_BLOCK_SMALL
               ? wf_blocks_take(&pool->small, bytes)
               : wf_ranges_take(&pool->ranges, bytes, kind == WF_MEMORY_GRADIENT);
}

static void give_block(wf_pool *pool, void *block, size_t bytes)
{
    size_t counted = wf_block_bytes(bytes);

    if (pool->allocator.opaque)
        pool->allocator.release(pool->allocator.self, block, counted);
    else if (counted <= WF_BLOCK_SMALL)
        wf_blocks_give(&pool->small, block, bytes);
    else
        wf_ranges_give(&pool->ranges, block);
}

/* Into the quarantine, from which other blocks may come. */
static void give_late(wf_pool *pool, void *block, size_t bytes)
{
    wf_guarded left;

    wf_guard_put(pool->guard, block, bytes);
    while (wf_guard_leave(pool->guard, &left))
        give_block(pool, left.block - WF_GUARD_ZONE, left.bytes + 2 * WF_GUARD_ZONE);
}

void *wf_pool_take(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error)
{
    size_t counted = wf_block_bytes(bytes);
    void *block;

    if (bytes > SIZE_MAX / 4 || (pool->limit && pool->report.in_use + counted > pool->limit))
        return no_memory(pool, bytes, kind, error);
    block = take_block(pool, bytes + (pool->guard ? 2 * WF_GUARD_ZONE : 0), kind);
    if (!block)
        return no_memory(pool, bytes, kind, error);
    count(pool, counted, kind);
    if (pool->guard)
        block = wf_guard_take(block, bytes);
    report_change(pool, block, (int64_t)counted, kind);
    return block;
}

static void uncount(wf_pool *pool, const void *block, size_t bytes, wf_memory_kind kind)
{
    pool->report.in_use -= bytes;
    pool->report.now[kind] -= bytes;
    report_change(pool, block, -(int64_t)bytes, kind);
}

void wf_pool_give(wf_pool *pool, void *block, size_t bytes, wf_memory_kind kind)
{
    size_t counted = wf_block_bytes(bytes);

    if (!block)
        return;
    if (pool->guard)
        give_late(pool, block, bytes);
    else
        give_block(pool, block, bytes);
    uncount(pool, block, counted, kind);
}

wf_status wf_pool_guard(wf_pool *pool,
                        void (*damaged)(void *self, const char *what, size_t bytes), void *self)
{
    if (!pool->allocator.opaque && !pool->guard)
        pool->guard = wf_guard_open(damaged, self);
    return pool->guard || pool->allocator.opaque ? WF_OK : WF_ENOMEM;
}

bool wf_pool_is_intact(const wf_pool *pool, const void *block, size_t bytes)
{
    return !pool->guard || wf_guard_is_intact(block, bytes);
}

wf_status wf_pool_see(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error)
{
    size_t counted = wf_block_bytes(bytes);

    if (bytes > SIZE_MAX / 4 || (pool->limit && pool->report.in_use + counted > pool->limit)) {
        no_memory(pool, bytes, kind, error);
        return error->code;
    }
    pool->other += counted;
    wf_pool_hold(pool, counted, kind);
    return WF_OK;
}

void wf_pool_see_no_more(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    pool->other -= wf_block_bytes(bytes);
    wf_pool_let_go(pool, wf_block_bytes(bytes), kind);
}

void wf_pool_hold(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    count(pool, bytes, kind);
    report_change(pool, NULL, (int64_t)bytes, kind);
}

void wf_pool_let_go(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    uncount(pool, NULL, bytes, kind);
}

void wf_pool_watch(wf_pool *pool, wf_pool_watcher *watch, void *self)
{
    pool->watch = watch;
    pool->watcher = self;
}

void wf_pool_mark(wf_pool *pool)
{
    pool->most = pool->report.in_use;
}

size_t wf_pool_most(const wf_pool *pool)
{
    return pool->most;
}

void wf_pool_moment(wf_pool *pool, const char *phase, const char *module)
{
    pool->phase = phase;
    pool->module = module;
}

void wf_pool_report(const wf_pool *pool, wf_memory_report *report)
{
    *report = pool->report;
    if (pool->allocator.opaque)
        return;
    report->cached =
        pool->ranges.held + pool->chunks.held - (pool->report.in_use - pool->other);
    report->system_allocations = pool->ranges.allocations + pool->chunks.allocations;
}

void wf_pool_restore_peak(wf_pool *pool, const wf_memory_report *report)
{
    wf_memory_report *r = &pool->report;

    r->peak = report->peak;
    memcpy(r->at_peak, report->at_peak, sizeof r->at_peak);
    memcpy(r->most, report->most, sizeof r->most);
    copy_text(r->phase, sizeof r->phase, report->phase);
    copy_text(r->module, sizeof r->module, report->module);
}

void wf_pool_reset_peak(wf_pool *pool)
{
    wf_memory_report *r = &pool->report;

    r->peak = r->in_use;
    memcpy(r->at_peak, r->now, sizeof r->now);
    memcpy(r->most, r->now, sizeof r->now);
    copy_text(r->phase, sizeof r->phase, pool->phase);
    copy_text(r->module, sizeof r->module, pool->module);
}
