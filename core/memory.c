/* core/memory.c - a pool of blocks in size classes, eight classes to a power of two. */
#include "core/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CLASSES = 8 * 58, ALIGN = 64, HUGE_PAGE = 2 << 20 };

typedef struct block {
    struct block *next;
} block;

struct wf_pool {
    wf_allocator allocator;
    size_t limit;
    block *cache[CLASSES];
    wf_memory_report report;
};

const char *wf_memory_kind_name(wf_memory_kind kind)
{
    static const char *const text[] = {
#define KIND(name, words) [WF_MEMORY_##name] = words,
#include "core/memory.def"
#undef KIND
    };

    return (unsigned)kind < WF_MEMORY_KINDS ? text[kind] : "unknown kind";
}

static void *host_alloc(void *self, size_t bytes)
{
    void *result = NULL;
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;

    (void)self;
    if (posix_memalign(&result, align, bytes) != 0)
        return NULL;
    if (align == HUGE_PAGE)
        madvise(result, bytes, MADV_HUGEPAGE);
    return result;
}

static void host_release(void *self, void *ptr, size_t bytes)
{
    (void)self;
    (void)bytes;
    free(ptr);
}

wf_allocator wf_host_allocator(void)
{
    return (wf_allocator){.alloc = host_alloc, .release = host_release};
}

wf_pool *wf_pool_open(const wf_allocator *allocator, size_t limit, wf_error *error)
{
    wf_pool *pool = calloc(1, sizeof *pool);

    if (!pool) {
        wf_error_set(error, WF_ENOMEM, "no memory for a pool's bookkeeping");
        return NULL;
    }
    pool->allocator = *allocator;
    pool->limit = limit;
    return pool;
}

static size_t rounded(size_t bytes)
{
    return bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
}

/* Bytes of the blocks of a class: 1 .. 15 units, then 8 steps to every doubling. */
static size_t class_bytes(int c)
{
    size_t units = c < 8 ? (size_t)c : (size_t)(8 + c % 8) << (c / 8 - 1);

    return units * ALIGN;
}

/* The smallest class that holds a rounded request. */
static int size_class(size_t bytes)
{
    size_t units = bytes / ALIGN, top = 3;

    if (units < 8)
        return (int)units;
    while (units >> (top + 1))
        top++;
    units = ((units - 1) >> (top - 3)) + 1; /* 8 .. 16 steps */
    return (int)(8 * (top - 3) + units);
}

static void drop_cache(wf_pool *pool)
{
    for (int c = 0; c < CLASSES; c++)
        while (pool->cache[c]) {
            block *b = pool->cache[c];

            pool->cache[c] = b->next;
            pool->allocator.release(pool->allocator.self, b, class_bytes(c));
        }
    pool->report.cached = 0;
}

void wf_pool_close(wf_pool *pool)
{
    if (!pool)
        return;
    drop_cache(pool);
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
    wf_error_set(error, WF_ENOMEM,
                 "out of memory: %zu bytes for %s, when %zu were in use (%zu for %s) %s; use a "
                 "smaller micro-batch or more ranks",
                 bytes, wf_memory_kind_name(kind), r->in_use, r->now[largest],
                 wf_memory_kind_name((wf_memory_kind)largest), why);
    return NULL;
}

static block *from_allocator(wf_pool *pool, size_t size)
{
    pool->report.system_allocations++;
    return pool->allocator.alloc(pool->allocator.self, size);
}

void *wf_pool_take(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error)
{
    wf_memory_report *r = &pool->report;
    size_t size, counted = rounded(bytes);
    block *b;
    int c;

    if (bytes > SIZE_MAX / 4 || (pool->limit && r->in_use + counted > pool->limit))
        return no_memory(pool, bytes, kind, error);
    c = size_class(counted);
    size = class_bytes(c);
    b = pool->cache[c];
    if (b) {
        pool->cache[c] = b->next;
        r->cached -= size;
    } else {
        b = from_allocator(pool, size);
        if (!b) { /* what the cache holds may be enough in another size */
            drop_cache(pool);
            b = from_allocator(pool, size);
        }
        if (!b)
            return no_memory(pool, bytes, kind, error);
    }
    r->in_use += counted;
    r->now[kind] += counted;
    if (r->now[kind] > r->most[kind])
        r->most[kind] = r->now[kind];
    if (r->in_use > r->peak) {
        r->peak = r->in_use;
        memcpy(r->at_peak, r->now, sizeof r->now);
    }
    return b;
}

void wf_pool_give(wf_pool *pool, void *ptr, size_t bytes, wf_memory_kind kind)
{
    wf_memory_report *r = &pool->report;
    size_t counted = rounded(bytes);
    int c = size_class(counted);
    block *b = ptr;

    if (!ptr)
        return;
    b->next = pool->cache[c];
    pool->cache[c] = b;
    r->in_use -= counted;
    r->now[kind] -= counted;
    r->cached += class_bytes(c);
}

void wf_pool_report(const wf_pool *pool, wf_memory_report *report)
{
    *report = pool->report;
}

void wf_pool_reset_peak(wf_pool *pool)
{
    pool->report.peak = pool->report.in_use;
    memcpy(pool->report.at_peak, pool->report.now, sizeof pool->report.now);
    memcpy(pool->report.most, pool->report.now, sizeof pool->report.now);
}
