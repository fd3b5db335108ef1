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

enum { APP_SHORT = 64, APP_SHORT_WORDS = 12 };

/* A word of at most APP_SHORT symbols: a list of slots, each with the pair of its symbol and the one behind it. */
typedef struct app_short_word {
    const uint8_t
        *bytes; /* the word, where a symbol is a byte and the lexicon has byte_pairs */
    int32_t ids[APP_SHORT];
    int32_t keys[APP_SHORT]; /* the lowest goes first; INT32_MAX: no pair */
    int32_t made[APP_SHORT]; /* what the pair becomes */
    uint8_t before[APP_SHORT + 1], behind[APP_SHORT];
    uint8_t count;      /* symbols, and ids once they are merged */
    uint8_t changed[2]; /* slots whose pairs are other ones, prefetched; APP_SHORT: none */
} app_short_word;

/* Merges the symbols of up to APP_SHORT_WORDS words in place. */
void app_short_words_merge(const app_lexicon *v, app_short_word *words, size_t count);

#endif
