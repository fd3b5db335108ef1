/* nn/text/jinja/arena.c - see the header. */
#include "nn/text/jinja/arena_internal.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 1 << 15, ALIGN = 16 };

struct jinja_block {
    struct jinja_block *next;
    size_t used, room;
    _Alignas(ALIGN) char data[];
};

static struct jinja_block *add(jinja_arena *arena, size_t bytes)
{
    size_t room = arena->blocks ? arena->blocks->room : FIRST;
    struct jinja_block *block;

    if (arena->blocks && room < (1 << 22))
        room *= 2;
    if (room < bytes)
        room = bytes;
    if (room > arena->most - arena->used)
        room = arena->most - arena->used;
    if (room < bytes || !(block = malloc(sizeof *block + room)))
        return NULL;
    *block = (struct jinja_block){.next = arena->blocks, .room = room};
    arena->used += room;
    arena->blocks = block;
    return block;
}

void *jinja_arena_take(jinja_arena *arena, size_t bytes)
{
    struct jinja_block *block = arena->blocks;
    void *data;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if ((!block || block->room - block->used < bytes) && !(block = add(arena, bytes)))
        return NULL;
    data = block->data + block->used;
    block->used += bytes;
    return memset(data, 0, bytes);
}

jinja_mark jinja_arena_mark(const jinja_arena *arena)
{
    return (jinja_mark){arena->blocks, arena->blocks ? arena->blocks->used : 0};
}

void jinja_arena_release(jinja_arena *arena, jinja_mark mark)
{
    while (arena->blocks && arena->blocks != mark.block) {
        struct jinja_block *next = arena->blocks->next;

        arena->used -= arena->blocks->room;
        free(arena->blocks);
        arena->blocks = next;
    }
    if (arena->blocks)
        arena->blocks->used = mark.used;
}

void jinja_arena_reset(jinja_arena *arena)
{
    struct jinja_block *block = arena->blocks, *next;

    for (; block && block->next; block = next) {
        next = block->next;
        free(block);
    }
    arena->blocks = block;
    arena->used = block ? block->room : 0;
    if (block)
        block->used = 0;
}

void jinja_arena_free(jinja_arena *arena)
{
    jinja_arena_reset(arena);
    free(arena->blocks);
    arena->blocks = NULL;
    arena->used = 0;
}
