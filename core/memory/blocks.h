/*
 * core/memory/blocks.h - many small blocks, each kept for the next one of its size.
 *
 * What a training step needs again and again (tensors, storages, tape nodes, moves, collectives
 * in flight) is taken from here and given back, so that a step in steady state asks the system
 * for nothing. Blocks are cut from chunks; closing frees the chunks, also below blocks that
 * somebody still holds. One thread at a time. Not installed.
 */
#ifndef WF_CORE_MEMORY_BLOCKS_H
#define WF_CORE_MEMORY_BLOCKS_H

#include "core/memory/memory.h"

enum {
    WF_BLOCK_UNIT = 64,
    WF_BLOCK_SMALL = 4096, /* larger ones are chunks of their own */
    WF_SIZE_CLASSES = 8 * 58
};

/* Zeroed it is ready for use, over malloc; else with a source of chunks. */
typedef struct wf_blocks {
    wf_allocator source;
    struct wf_block *unused[WF_SIZE_CLASSES];
    struct wf_chunk *chunks;
    char *at; /* the rest of the newest chunk */
    size_t left;
} wf_blocks;

/* A block of at least `bytes`, contents undefined, aligned like the chunks of the source (to 64
   bytes at most); NULL where there is no more. */
void *wf_blocks_take(wf_blocks *blocks, size_t bytes);

/* Take it back: `bytes` as it was asked for. NULL is nothing. */
void wf_blocks_give(wf_blocks *blocks, void *block, size_t bytes);

void wf_blocks_close(wf_blocks *blocks);

/* Sizes in units of 64 bytes, rounded up; none are 0 bytes. */
static inline size_t wf_block_bytes(size_t bytes)
{
    return bytes ? (bytes + WF_BLOCK_UNIT - 1) / WF_BLOCK_UNIT * WF_BLOCK_UNIT : WF_BLOCK_UNIT;
}

/* Size classes: one for each of 1 .. 15 units, then 8 steps to every doubling. The smallest that
   holds a whole number of units. */
static inline int wf_size_class(size_t bytes)
{
    size_t units = bytes / WF_BLOCK_UNIT;
    int top;

    if (units < 8)
        return (int)units;
    top = 63 - __builtin_clzll(units);
    units = ((units - 1) >> (top - 3)) + 1; /* 8 .. 16 steps */
    return 8 * (top - 3) + (int)units;
}

static inline size_t wf_class_bytes(int c)
{
    size_t units = c < 8 ? (size_t)c : (size_t)(8 + c % 8) << (c / 8 - 1);

    return units * WF_BLOCK_UNIT;
}

#endif
