/* parallel/report/memory_timeline.c - the changes of a pool in a step, and who holds its
   blocks; see the header. */
#include "parallel/report/memory_timeline_internal.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char gone; /* the address of blocks that were given back */

/* Makes room for one more element; false: there is no memory. */
static bool grow(void **array, size_t *room, size_t used, size_t size)
{
    size_t more = *room ? 2 * *room : 256;
    void *grown;

    if (used < *room)
        return true;
    grown = realloc(*array, more * size);
    if (!grown)
        return false;
    *array = grown;
    *room = more;
    return true;
}

/* Writes a path with * for names that are numbers. */
static void write_module(const char *path, char module[WF_MEMORY_SITE_MODULE])
{
    size_t used = 0;

    for (const char *at = path ? path : ""; *at && used < WF_MEMORY_SITE_MODULE - 1;) {
        size_t digits = strspn(at, "0123456789");
        bool number = digits && (at[digits] == '.' || !at[digits]) &&
                      (used == 0 || module[used - 1] == '.');

        module[used++] = number ? '*' : *at;
        at += number ? digits : 1;
    }
    module[used] = 0;
}

/* Returns the number of a site; -1: no memory. */
static int find_site(wf_memory_timeline *t, const char *phase, const char *module)
{
    size_t room = (size_t)t->site_room;
    wf_memory_site s = {"", ""};

    memccpy(s.phase, phase ? phase : "", 0, sizeof s.phase - 1);
    write_module(module, s.module);
    for (int i = 0; i < t->sites; i++)
        if (strcmp(t->site[i].phase, s.phase) == 0 && strcmp(t->site[i].module, s.module) == 0)
            return i;
    if (!grow((void **)&t->site, &room, (size_t)t->sites, sizeof s))
        return -1;
    t->site_room = (int)room;
    t->site[t->sites] = s;
    return t->sites++;
}

/* Returns the site of a change, mostly by its pointers. */
static int site_of(wf_memory_timeline *t, const wf_pool_change *c)
{
    uintptr_t hash = ((uintptr_t)c->phase >> 3) * 31 + ((uintptr_t)c->module >> 3);
    size_t k = (hash ^ hash >> 8) % WF_MEMORY_SITE_CACHE;

    if (t->cache[k].site <= 0 || t->cache[k].phase != c->phase ||
        t->cache[k].module != c->module) {
        t->cache[k].phase = c->phase;
        t->cache[k].module = c->module;
        t->cache[k].site = find_site(t, c->phase, c->module) + 1;
    }
    return t->cache[k].site - 1;
}

static wf_memory_block *slot_of(const wf_memory_blocks *b, const void *at)
{
    uintptr_t hash = (uintptr_t)at >> 6;
    size_t i = (size_t)(hash * 0x9e3779b97f4a7c15u >> 20) % b->room;

    while (b->of[i].at && b->of[i].at != at)
        i = (i + 1) % b->room;
    return &b->of[i];
}

/* Puts blocks into a table of twice the room. */
static bool rehash(wf_memory_blocks *b)
{
    wf_memory_blocks larger = {.room = b->room ? 2 * b->room : 512};

    larger.of = calloc(larger.room, sizeof *larger.of);
    if (!larger.of)
        return false;
    for (size_t i = 0; i < b->room; i++)
        if (b->of[i].at && b->of[i].at != &gone) {
            *slot_of(&larger, b->of[i].at) = b->of[i];
            larger.used++;
        }
    free(b->of);
    *b = larger;
    return true;
}

/* Notes a block that is taken or given back; false: no memory. */
static bool note_block(wf_memory_blocks *b, const wf_memory_change *c)
{
    wf_memory_block *slot;

    if (!c->block)
        return true;
    if (2 * b->used >= b->room && !rehash(b))
        return false;
    slot = slot_of(b, c->block);
    if (c->bytes < 0) {
        if (slot->at)
            slot->at = &gone;
        return true;
    }
    b->used += slot->at == NULL;
    *slot = (wf_memory_block){c->block, c->bytes, c->site, c->kind};
    return true;
}

static void watch(void *self, const wf_pool_change *change)
{
    wf_memory_timeline *t = self;
    int site = site_of(t, change);
    const wf_memory_change c = {change->block, change->bytes, site, site, change->kind};

    t->in_use[c.kind] += (size_t)c.bytes;
    if (site < 0 || !note_block(&t->now, &c)) {
        t->failed = true;
        return;
    }
    if (!t->watches)
        return;
    if (!grow((void **)&t->change, &t->change_room, t->changes, sizeof c)) {
        t->failed = true;
        return;
    }
    t->change[t->changes++] = c;
}

wf_memory_timeline *wf_memory_timeline_open(wf_pool *pool, wf_error *error)
{
    wf_memory_timeline *t = calloc(1, sizeof *t);
    wf_memory_report report;

    if (!t) {
        wf_error_set(error, WF_ENOMEM, "no memory for a timeline of memory");
        return NULL;
    }
    t->pool = pool;
    wf_pool_report(pool, &report);
    memcpy(t->in_use, report.now, sizeof t->in_use);
    wf_pool_watch(pool, watch, t);
    return t;
}

void wf_memory_timeline_close(wf_memory_timeline *t)
{
    if (!t)
        return;
    wf_pool_watch(t->pool, NULL, NULL);
    free(t->site);
    free(t->now.of);
    free(t->begun.of);
    free(t->change);
    free(t);
}

void wf_memory_timeline_begin(wf_memory_timeline *t)
{
    free(t->begun.of);
    t->begun = t->now;
    t->begun.of = calloc(t->now.room + 1, sizeof *t->begun.of);
    if (!t->begun.of)
        t->failed = true;
    else if (t->now.room)
        memcpy(t->begun.of, t->now.of, t->now.room * sizeof *t->begun.of);
    memcpy(t->at_begin, t->in_use, sizeof t->at_begin);
    t->changes = 0;
    t->watches = true;
}

void wf_memory_timeline_end(wf_memory_timeline *t)
{
    t->watches = false;
}

static size_t sum_of(const size_t by_kind[WF_MEMORY_KINDS])
{
    size_t sum = 0;

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        sum += by_kind[k];
    return sum;
}

size_t wf_memory_timeline_top(const wf_memory_timeline *t, size_t by_kind[WF_MEMORY_KINDS],
                              size_t *bytes)
{
    size_t now[WF_MEMORY_KINDS], sum = sum_of(t->at_begin), top = 0;

    memcpy(now, t->at_begin, sizeof now);
    memcpy(by_kind, now, sizeof now);
    *bytes = sum;
    for (size_t i = 0; i < t->changes; i++) {
        now[t->change[i].kind] += (size_t)t->change[i].bytes;
        sum += (size_t)t->change[i].bytes;
        if (sum > *bytes) {
            *bytes = sum;
            top = i + 1;
            memcpy(by_kind, now, sizeof now);
        }
    }
    return top;
}

size_t wf_memory_timeline_peak(const wf_memory_timeline *t, size_t by_kind[WF_MEMORY_KINDS])
{
    size_t bytes;

    wf_memory_timeline_top(t, by_kind, &bytes);
    return bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const wf_memory_holder *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->kind != y->kind ? (int)x->kind - (int)y->kind : x->site - y->site;
}

/* Adds up the blocks of each kind and site. */
static size_t add_up(const wf_memory_timeline *t, const wf_memory_blocks *b,
                     wf_memory_holder *holder)
{
    size_t n = 0;

    for (int s = 0; s < t->sites; s++)
        for (int k = 0; k < WF_MEMORY_KINDS; k++)
            holder[s * WF_MEMORY_KINDS + k] = (wf_memory_holder){s, (wf_memory_kind)k, 0, 0};
    for (size_t i = 0; i < b->room; i++)
        if (b->of[i].at && b->of[i].at != &gone) {
            wf_memory_holder *h = &holder[b->of[i].site * WF_MEMORY_KINDS + (int)b->of[i].kind];

            h->bytes += b->of[i].bytes;
            h->blocks++;
        }
    for (int i = 0; i < t->sites * WF_MEMORY_KINDS; i++)
        if (holder[i].bytes)
            holder[n++] = holder[i];
    return n;
}

wf_memory_holder *wf_memory_timeline_holders(const wf_memory_timeline *t, size_t changes,
                                             size_t *count)
{
    wf_memory_blocks b = {.room = t->begun.room, .used = t->begun.used};
    wf_memory_holder *holder = calloc((size_t)t->sites * WF_MEMORY_KINDS + 1, sizeof *holder);
    bool good;

    b.of = calloc(b.room + 1, sizeof *b.of);
    good = b.of && holder;
    if (good && b.room)
        memcpy(b.of, t->begun.of, b.room * sizeof *b.of);
    for (size_t i = 0; i < changes && good; i++)
        good = note_block(&b, &t->change[i]);
    *count = good ? add_up(t, &b, holder) : 0;
    if (good)
        qsort(holder, *count, sizeof *holder, by_bytes);
    free(b.of);
    if (good)
        return holder;
    free(holder);
    return NULL;
}
