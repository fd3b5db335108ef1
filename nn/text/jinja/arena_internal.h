/* nn/text/jinja/arena_internal.h - memory of a template or a run: many small blocks that end
   together. */
#ifndef WF_NN_TEXT_JINJA_ARENA_INTERNAL_H
#define WF_NN_TEXT_JINJA_ARENA_INTERNAL_H

#include <stddef.h>

typedef struct jinja_arena {
    struct jinja_block *blocks; /* the newest first */
    size_t used, most;          /* bytes of all blocks; their limit */
} jinja_arena;

/* Returns zeroed bytes; NULL: there is no memory, or the limit is reached. */
void *jinja_arena_take(jinja_arena *arena, size_t bytes);
void jinja_arena_free(jinja_arena *arena);
/* Frees what was taken since `block` and its `used` were the newest. */
typedef struct jinja_mark {
    struct jinja_block *block;
    size_t used;
} jinja_mark;
jinja_mark jinja_arena_mark(const jinja_arena *arena);
void jinja_arena_release(jinja_arena *arena, jinja_mark mark);
/* Frees all but the first block, which is reused. */
void jinja_arena_reset(jinja_arena *arena);

#endif
