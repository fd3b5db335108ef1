/* core/memory.c - a pool of blocks in size classes, eight classes to a power of two. */
#include "core/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CLASSES = 8 * 58, ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* A note about a cached block, or a spare note: there is one for every block there is. */
typedef struct block {
    struct block *next;
    void *data;
} block;

struct wf_pool {
    wf_allocator allocator;
    size_t limit;
    block *cache[CLASSES], *spare;
    const char *phase, *place;
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
            pool->allocator.release(pool->allocator.self, b->data, class_bytes(c));
            free(b);
        }
    pool->report.cached = 0;
}

void wf_pool_close(wf_pool *pool)
{
    if (!pool)
        return;
    drop_cache(pool);
    while (pool->spare) { /* notes of blocks that were not given back */
        block *b = pool->spare;

        pool->spare = b->next;
        free(b);
    }
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

static void *from_allocator(wf_pool *pool, size_t size)
{
    void *data;

    pool->report.system_allocations++;
    data = pool->allocator.alloc(pool->allocator.self, size);
    if (data)
        return data;
    drop_cache(pool); /* what it holds may be enough in another size */
    pool->report.system_allocations++;
    return pool->allocator.alloc(pool->allocator.self, size);
}

/* A new block, and the note that it will need when it comes back. */
static void *new_block(wf_pool *pool, size_t bytes, int c, wf_memory_kind kind, wf_error *error)
{
    block *note = malloc(sizeof *note);
    void *data;

    if (!note) {
        wf_error_set(error, WF_ENOMEM, "no memory for the pool's note about a block");
        return NULL;
    }
    data = from_allocator(pool, class_bytes(c));
    if (!data) {
        free(note);
        return no_memory(pool, bytes, kind, error);
    }
    *note = (block){.next = pool->spare};
    pool->spare = note;
    return data;
}

static void *from_cache(wf_pool *pool, int c)
{
    block *b = pool->cache[c];

    if (!b)
        return NULL;
    pool->cache[c] = b->next;
    pool->report.cached -= class_bytes(c);
    b->next = pool->spare;
    pool->spare = b;
    return b->data;
}

static void copy_text(char *to, size_t size, const char *from)
{
    to[size - 1] = 0;
    memccpy(to, from ? from : "", 0, size - 1);
}

static void count(wf_pool *pool, size_t bytes, wf_memory_kind kind)
{
    wf_memory_report *r = &pool->report;

    r->in_use += bytes;
    r->now[kind] += bytes;
    if (r->now[kind] > r->most[kind])
        r->most[kind] = r->now[kind];
    if (r->in_use <= r->peak)
        return;
    r->peak = r->in_use;
    memcpy(r->at_peak, r->now, sizeof r->now);
    copy_text(r->phase, sizeof r->phase, pool->phase);
    copy_text(r->place, sizeof r->place, pool->place);
}

void *wf_pool_take(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error)
{
    size_t counted = rounded(bytes);
    void *data;
    int c;

    if (bytes > SIZE_MAX / 4 || (pool->limit && pool->report.in_use + counted > pool->limit))
        return no_memory(pool, bytes, kind, error);
    c = size_class(counted);
    data = from_cache(pool, c);
    if (!data)
        data = new_block(pool, bytes, c, kind, error);
    if (!data)
        return NULL;
    count(pool, counted, kind);
    return data;
}

void wf_pool_give(wf_pool *pool, void *ptr, size_t bytes, wf_memory_kind kind)
{
    wf_memory_report *r = &pool->report;
    size_t counted = rounded(bytes);
    int c = size_class(counted);
    block *b = pool->spare;

    if (!ptr)
        return;
    pool->spare = b->next;
    *b = (block){.next = pool->cache[c], .data = ptr};
    pool->cache[c] = b;
    r->in_use -= counted;
    r->now[kind] -= counted;
    r->cached += class_bytes(c);
}

void wf_pool_moment(wf_pool *pool, const char *phase, const char *place)
{
    pool->phase = phase;
    pool->place = place;
}

void wf_pool_report(const wf_pool *pool, wf_memory_report *report)
{
    *report = pool->report;
}

void wf_pool_reset_peak(wf_pool *pool)
{
    wf_memory_report *r = &pool->report;

    r->peak = r->in_use;
    memcpy(r->at_peak, r->now, sizeof r->now);
    memcpy(r->most, r->now, sizeof r->now);
    copy_text(r->phase, sizeof r->phase, pool->phase);
    copy_text(r->place, sizeof r->place, pool->place);
}
