/*
 * core/memory/blocks.h - many small blocks, each kept for the next one of its size.
 *
 * What a training step needs again and again (tensors, storages, tape nodes, moves, collectives
 * in flight) is taken from here and given back, so that a step in steady state asks the system
 * for nothing. Blocks are cut from chunks; closing frees the chunks, also below blocks that
 * somebody still holds. One thread at a time.
 */
#ifndef WF_CORE_MEMORY_BLOCKS_H
#define WF_CORE_MEMORY_BLOCKS_H

#include "core/memory/memory.h"

WF_BEGIN_DECLS

enum { WF_SIZE_CLASSES = 8 * 58 }; /* sizes of blocks come in so many classes */

/** wf_blocks - zeroed it is ready for use, over malloc; else with a source of chunks. */
typedef struct wf_blocks {
    wf_allocator source;
    struct wf_block *unused[WF_SIZE_CLASSES];
    struct wf_chunk *chunks;
    char *at; /* the rest of the newest chunk */
    size_t left;
} wf_blocks;

/**
 * wf_blocks_take - a block of at least `bytes`, contents undefined, aligned like the chunks of
 * the source (to 64 bytes at most)
 *
 * Owner:   caller, wf_blocks_give
 * Errors:  NULL where there is no more
 */
WF_API void *wf_blocks_take(wf_blocks *blocks, size_t bytes);

/** wf_blocks_give - take a block back: `bytes` as it was asked for. NULL is nothing. */
WF_API void wf_blocks_give(wf_blocks *blocks, void *block, size_t bytes);

/** wf_blocks_close - free the chunks, with all blocks in them. */
WF_API void wf_blocks_close(wf_blocks *blocks);

WF_END_DECLS

#endif
