/* core/memory/size_class_internal.h - the sizes that blocks are kept by. */
#ifndef WF_CORE_MEMORY_SIZE_CLASS_INTERNAL_H
#define WF_CORE_MEMORY_SIZE_CLASS_INTERNAL_H

#include <stddef.h>

enum {
    WF_BLOCK_UNIT = 64,
    WF_BLOCK_SMALL = 4096 /* larger ones are chunks of their own */
};

/* Sizes in units of 64 bytes, rounded up; none are 0 bytes. */
static inline size_t wf_block_bytes(size_t bytes)
{
    return bytes ? (bytes + WF_BLOCK_UNIT - 1) / WF_BLOCK_UNIT * WF_BLOCK_UNIT : WF_BLOCK_UNIT;
}

/* Size classes: one for each of 1 .. 15 units, then 8 steps to every doubling. The smallest
   that holds a whole number of units. */
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
