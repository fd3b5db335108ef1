/* parallel/report/memory_timeline_internal.h - the changes of memory in a step, and who holds
   what. Not installed. */
#ifndef WF_PARALLEL_REPORT_MEMORY_TIMELINE_INTERNAL_H
#define WF_PARALLEL_REPORT_MEMORY_TIMELINE_INTERNAL_H

#include "parallel/report/memory_timeline.h"

enum { WF_MEMORY_SITE_MODULE = 96, WF_MEMORY_SITE_CACHE = 256 };

/* A moment of the program at which memory is taken: layers that are alike are one. */
typedef struct wf_memory_site {
    char phase[WF_MEMORY_PHASE], module[WF_MEMORY_SITE_MODULE];
} wf_memory_site;

/* A block in use. */
typedef struct wf_memory_block {
    const void *at; /* NULL: none; ends of a chain stay, as WF_MEMORY_GONE */
    int64_t bytes;
    int site;
    wf_memory_kind kind;
} wf_memory_block;

typedef struct wf_memory_blocks {
    wf_memory_block *of;
    size_t room, used; /* used: those that are gone as well */
} wf_memory_blocks;

typedef struct wf_memory_change {
    const void *block;
    int64_t bytes;
    int site, phase; /* phase: the site whose phase it is */
    wf_memory_kind kind;
} wf_memory_change;

struct wf_memory_timeline {
    wf_pool *pool;
    bool watches, failed;
    wf_memory_site *site;
    int sites, site_room;
    struct {
        const char *phase, *module;
        int site;
    } cache[WF_MEMORY_SITE_CACHE];
    wf_memory_blocks now, begun; /* blocks in use, and at the beginning of the step */
    size_t in_use[WF_MEMORY_KINDS], at_begin[WF_MEMORY_KINDS];
    wf_memory_change *change;
    size_t changes, change_room;
};

/* Holds memory at one moment: all blocks of a kind and a site. */
typedef struct wf_memory_holder {
    int site;
    wf_memory_kind kind;
    int64_t bytes, blocks;
} wf_memory_holder;

/* Returns after how many changes most was in use, and how much; by_kind: [WF_MEMORY_KINDS]. */
size_t wf_memory_timeline_top(const wf_memory_timeline *t, size_t by_kind[WF_MEMORY_KINDS],
                              size_t *bytes);

/* Returns the holders after a number of changes, the largest first. Owner: the caller, free;
   NULL: no memory */
wf_memory_holder *wf_memory_timeline_holders(const wf_memory_timeline *t, size_t changes,
                                             size_t *count);

#endif
