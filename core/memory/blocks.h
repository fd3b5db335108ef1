/*
 * core/memory/blocks.h - an allocator of small blocks with a free list per size class.
 *
 * Objects of a training step (tensors, storages, tape nodes, moves, collectives in flight) are
 * taken from here and given back, so that a step in steady state allocates nothing from the
 * system. Blocks are cut from chunks; closing frees the chunks, also below blocks that are
 * still held. One thread at a time.
 */
#ifndef WF_CORE_MEMORY_BLOCKS_H
#define WF_CORE_MEMORY_BLOCKS_H

#include "core/memory/memory.h"

WF_BEGIN_DECLS

enum { WF_SIZE_CLASSES = 8 * 58 }; /* size classes of blocks */

/** wf_blocks - an allocator of blocks in size classes, cut from chunks of `source`. A zeroed
 * one is ready for use; its chunks come from malloc then. */
typedef struct wf_blocks {
    wf_allocator source;
    struct wf_block *unused[WF_SIZE_CLASSES];
    struct wf_chunk *chunks;
    char *at; /* the unused end of the newest chunk */
    size_t left;
} wf_blocks;

/**
 * wf_blocks_take - takes a block of at least `bytes`, contents undefined, aligned like the
 * chunks of the source (to 64 bytes at most)
 *
 * Owner:   caller, wf_blocks_give
 * Errors:  NULL where there is no more
 */
WF_API void *wf_blocks_take(wf_blocks *blocks, size_t bytes);

/** wf_blocks_give - gives a block back: `bytes` as it was asked for. NULL is allowed. */
WF_API void wf_blocks_give(wf_blocks *blocks, void *block, size_t bytes);

/** wf_blocks_close - frees the chunks, with all blocks in them. */
WF_API void wf_blocks_close(wf_blocks *blocks);

WF_END_DECLS

#endif
