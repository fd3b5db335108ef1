/*
 * core/memory/ranges.c - regions, cut in ranges.
 *
 *     region | range, its bytes | range, its bytes | ... | range, its bytes
 *
 * Every range knows its own size and the one before it, so that neighbours are found by
 * address. Unused ranges wait in lists by size class. The smallest that fits is taken: by its
 * own class first, in whose list it may be any, then from the next class above that is not
 * empty. What stays while others come and go is taken from the end of the last one instead, so
 * that it does not lie between them when they are given back.
 */
#include "core/memory/ranges_internal.h"
#include "core/memory/poison_internal.h"
#include "core/memory/size_class_internal.h"
#include <stdbool.h>

enum {
    GROWTH = 32 /* a new region is at least this part of all */,
    REGION = 1 << 20 /* the least that a new region has */,
    STEP = 1 << 20 /* an old one grows by multiples of this */
};

typedef struct wf_range {
    _Alignas(WF_BLOCK_UNIT) size_t bytes; /* this description included */
    struct wf_range *before;              /* in memory; NULL for the first of a region */
    struct wf_range *next, *previous;     /* in the list of its class */
    bool unused, last;                    /* last of its region */
} range;

typedef struct wf_region {
    _Alignas(WF_BLOCK_UNIT) struct wf_region *next;
    size_t bytes;
} region;

WF_READS_POISON static range *next_in_memory(range *r)
{
    return r->last ? NULL : (range *)((char *)r + r->bytes);
}

/* Returns the class that a range fills: the largest that it holds. */
static int filled_class(size_t bytes)
{
    int c = wf_size_class(bytes);

    return wf_class_bytes(c) > bytes ? c - 1 : c;
}

WF_READS_POISON static void put(wf_ranges *s, range *r)
{
    int c = filled_class(r->bytes);

    r->unused = true;
    r->previous = NULL;
    r->next = s->unused[c];
    if (r->next)
        r->next->previous = r;
    s->unused[c] = r;
    s->occupied[c / 64] |= (uint64_t)1 << c % 64;
}

WF_READS_POISON static void pull(wf_ranges *s, range *r)
{
    int c = filled_class(r->bytes);

    r->unused = false;
    if (r->next)
        r->next->previous = r->previous;
    if (r->previous)
        r->previous->next = r->next;
    else
        s->unused[c] = r->next;
    if (!s->unused[c])
        s->occupied[c / 64] &= ~((uint64_t)1 << c % 64);
}

/* Returns the smallest range of a list that holds `bytes` bytes. */
WF_READS_POISON static range *best(range *list, size_t bytes)
{
    range *found = NULL;

    for (range *r = list; r; r = r->next)
        if (r->bytes >= bytes && (!found || r->bytes < found->bytes))
            found = r;
    return found;
}

static range *find(const wf_ranges *s, size_t bytes)
{
    int c = filled_class(bytes), word;
    range *found = best(s->unused[c], bytes);
    uint64_t set;

    if (found)
        return found;
    word = ++c / 64;
    set = s->occupied[word] & ~(uint64_t)0 << c % 64;
    while (!set && ++word <= WF_SIZE_CLASSES / 64)
        set = s->occupied[word];
    return set ? best(s->unused[64 * word + __builtin_ctzll(set)], bytes) : NULL;
}

/* Cuts a range in two, the first of `bytes` bytes; returns the second. */
WF_READS_POISON static range *cut(range *r, size_t bytes)
{
    range *tail = (range *)((char *)r + bytes), *after = next_in_memory(r);

    tail->bytes = r->bytes - bytes;
    tail->before = r;
    tail->last = r->last;
    r->bytes = bytes;
    r->last = false;
    if (after)
        after->before = tail;
    return tail;
}

/* Takes a request from a range, its end or its beginning; the remainder goes back to the free
   ranges where it is large enough. */
WF_READS_POISON static range *part(wf_ranges *s, range *r, size_t bytes, bool end)
{
    range *rest = r;

    if (r->bytes - bytes < sizeof *r + WF_BLOCK_SMALL)
        return r;
    if (end)
        r = cut(r, r->bytes - bytes);
    else
        rest = cut(r, bytes);
    put(s, rest);
    return r;
}

WF_READS_POISON static void join(range *r, range *after)
{
    r->bytes += after->bytes;
    r->last = after->last;
    after = next_in_memory(r);
    if (after)
        after->before = r;
}

/* Returns the range at the highest address of all that hold `bytes` bytes. */
WF_READS_POISON static range *find_last(const wf_ranges *s, size_t bytes)
{
    range *found = NULL;

    for (int c = filled_class(bytes); c < WF_SIZE_CLASSES; c++)
        for (range *r = s->unused[c]; r; r = r->next)
            if (r->bytes >= bytes && r > found)
                found = r;
    return found;
}

static region *ask(wf_ranges *s, size_t bytes)
{
    region *g;

    s->allocations++;
    g = s->source.alloc(s->source.self, bytes);
    if (g)
        g->bytes = bytes;
    return g;
}

WF_READS_POISON static void release(wf_ranges *s, region *g)
{
    WF_UNPOISON(g, g->bytes);
    s->held -= g->bytes;
    s->source.release(s->source.self, g, g->bytes);
}

/* Frees the regions that are entirely free. */
WF_READS_POISON static void trim(wf_ranges *s)
{
    region **at = &s->regions;

    while (*at) {
        region *g = *at;
        range *r = (range *)(g + 1);

        if (r->unused && r->last) {
            pull(s, r);
            *at = g->next;
            release(s, g);
        } else {
            at = &g->next;
        }
    }
}

WF_READS_POISON static range *last_range(region *g)
{
    range *r = (range *)(g + 1);

    while (!r->last)
        r = next_in_memory(r);
    return r;
}

/* Extends the newest region by a range of `bytes` bytes at its end; NULL: it cannot grow. */
WF_READS_POISON static range *grow_region(wf_ranges *s, size_t bytes)
{
    region *g = s->regions;
    range *r;
    size_t more;

    if (!g || !s->source.extend)
        return NULL;
    r = last_range(g);
    more = r->unused ? bytes - r->bytes : bytes;
    more = (more + STEP - 1) / STEP * STEP;
    s->allocations++;
    if (!s->source.extend(s->source.self, g, g->bytes, more))
        return NULL;
    if (r->unused) {
        pull(s, r);
        r->bytes += more;
    } else {
        r->bytes += more;
        r = cut(r, r->bytes - more);
    }
    g->bytes += more;
    s->held += more;
    put(s, r);
    WF_POISON(r, r->bytes);
    return r;
}

/* Adds a region and returns its range of `bytes` bytes. */
WF_READS_POISON static range *add_region(wf_ranges *s, size_t bytes)
{
    size_t least = sizeof(region) + bytes, more = wf_block_bytes(s->held / GROWTH);
    region *g;
    range *r;

    more = more > REGION ? more : REGION;
    g = ask(s, more > least ? more : least);
    if (!g && more > least)
        g = ask(s, least);
    if (!g) { /* free memory may be enough in one piece */
        trim(s);
        g = ask(s, least);
    }
    if (!g)
        return NULL;
    g->next = s->regions;
    s->regions = g;
    s->held += g->bytes;
    r = (range *)(g + 1);
    r->bytes = g->bytes - sizeof(region);
    r->before = NULL;
    r->last = true;
    put(s, r);
    WF_POISON(r, r->bytes);
    return r;
}

WF_READS_POISON void *wf_ranges_take(wf_ranges *s, size_t bytes, bool last)
{
    size_t all = wf_block_bytes(bytes) + sizeof(range);
    range *r = last ? find_last(s, all) : find(s, all);

    if (!r)
        r = grow_region(s, all);
    if (!r)
        r = add_region(s, all);
    if (!r)
        return NULL;
    pull(s, r);
    r = part(s, r, all, last);
    r->unused = false;
    WF_UNPOISON(r + 1, bytes);
    return r + 1;
}

WF_READS_POISON void wf_ranges_give(wf_ranges *s, void *block)
{
    range *r = (range *)block - 1, *after = next_in_memory(r);

    if (after && after->unused) {
        pull(s, after);
        join(r, after);
    }
    if (r->before && r->before->unused) {
        pull(s, r->before);
        join(r->before, r);
        r = r->before;
    }
    put(s, r);
    WF_POISON(r, r->bytes);
}

WF_READS_POISON void wf_ranges_close(wf_ranges *s)
{
    while (s->regions) {
        region *g = s->regions;

        s->regions = g->next;
        release(s, g);
    }
    *s = (wf_ranges){.source = s->source};
}
