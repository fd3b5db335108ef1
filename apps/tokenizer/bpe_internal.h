/* apps/tokenizer/bpe_internal.h - merging words of any length. */
#ifndef WF_APPS_TOKENIZER_BPE_INTERNAL_H
#define WF_APPS_TOKENIZER_BPE_INTERNAL_H

#include "apps/tokenizer/tokenizer_internal.h"

/* A place of a word, and the next one of the same rank. */
typedef struct app_place {
    int32_t at, next;
} app_place;

typedef struct app_heap {
    uint64_t *keys;
    size_t count, room;
} app_heap;

/* The symbols of a long word are a list. Of each rank there is a list of places whose pair has, or had, it,
   from left to right; ranks that have one lie in a heap. */
typedef struct app_long_words {
    int32_t *before, *behind,
        *rank; /* a symbol's neighbours, and the rank of its pair, or INT32_MAX */
    size_t room;
    app_place *places;
    size_t place_count, place_room;
    int32_t *first, *last; /* by rank; first -1: no list */
    app_heap ranks, stray; /* stray: rank and place of what was found too late for its list */
} app_long_words;

void app_long_words_free(app_long_words *w);

/* Merges symbols in place, in time that grows with their number and hardly faster; *count becomes how many
   are left. False: out of memory. */
bool app_long_words_merge(app_long_words *w, const app_lexicon *v, int32_t *ids, size_t *count);

#endif
