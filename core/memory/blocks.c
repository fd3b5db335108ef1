/* core/memory/blocks.c - free lists by size class over chunks. */
#include "core/memory/blocks.h"
#include "core/memory/poison_internal.h"
#include "core/memory/size_class_internal.h"
#include <stdlib.h>

enum { CHUNK = 64 << 10 };

typedef struct wf_block {
    struct wf_block *next;
} block;

typedef struct wf_chunk {
    _Alignas(WF_BLOCK_UNIT) struct wf_chunk *next;
    size_t bytes;
} chunk;

/* Adds a chunk with room for `bytes` bytes; NULL where the source has no more. */
static chunk *add_chunk(wf_blocks *b, size_t bytes)
{
    size_t all = sizeof(chunk) + bytes;
    chunk *c = b->source.alloc ? b->source.alloc(b->source.self, all) : malloc(all);

    if (c) {
        c->next = b->chunks;
        c->bytes = all;
        b->chunks = c;
    }
    return c;
}

static void *carve(wf_blocks *b, size_t size)
{
    void *piece;

    if (size > WF_BLOCK_SMALL) {
        chunk *own = add_chunk(b, size);

        return own ? own + 1 : NULL;
    }
    if (b->left < size) {
        chunk *c = add_chunk(b, CHUNK - sizeof(chunk));

        if (!c)
            return NULL;
        b->at = (char *)(c + 1);
        b->left = CHUNK - sizeof(chunk);
        WF_POISON(b->at, b->left);
    }
    piece = b->at;
    b->at += size;
    b->left -= size;
    return piece;
}

WF_READS_POISON void *wf_blocks_take(wf_blocks *b, size_t bytes)
{
    int c = wf_size_class(wf_block_bytes(bytes));
    block *found = b->unused[c];

    if (found)
        b->unused[c] = found->next;
    else
        found = carve(b, wf_class_bytes(c));
    if (found)
        WF_UNPOISON(found, bytes);
    return found;
}

WF_READS_POISON void wf_blocks_give(wf_blocks *b, void *ptr, size_t bytes)
{
    int c = wf_size_class(wf_block_bytes(bytes));
    block *given = ptr;

    if (!given)
        return;
    given->next = b->unused[c];
    b->unused[c] = given;
    WF_POISON(given, wf_class_bytes(c));
}

WF_READS_POISON void wf_blocks_close(wf_blocks *b)
{
    while (b->chunks) {
        chunk *c = b->chunks;

        b->chunks = c->next;
        WF_UNPOISON(c, c->bytes);
        if (b->source.alloc)
            b->source.release(b->source.self, c, c->bytes);
        else
            free(c);
    }
    *b = (wf_blocks){.source = b->source};
}
