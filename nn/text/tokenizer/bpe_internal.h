/* nn/text/tokenizer/bpe_internal.h - merging words of any length. */
#ifndef WF_NN_TEXT_TOKENIZER_BPE_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_BPE_INTERNAL_H

#include "nn/text/tokenizer/tokenizer_internal.h"

/* A position in a word, and the next one of the same rank. */
typedef struct wf_tok_position {
    int32_t at, next;
} wf_tok_position;

typedef struct wf_tok_heap {
    uint64_t *keys;
    size_t count, room;
} wf_tok_heap;

/* The symbols of a long word are a list. Of each rank there is a list of positions whose pair
   has, or had, it, from left to right; ranks that have one lie in a heap. */
typedef struct wf_tok_long_words {
    int32_t *before, *after,
        *rank; /* a symbol's neighbours, and the rank of its pair, or INT32_MAX */
    size_t room;
    wf_tok_position *positions;
    size_t position_count, position_room;
    int32_t *first, *last; /* by rank; first -1: no list */
    wf_tok_heap ranks,
        stray; /* stray: rank and position of what was found too late for its list */
} wf_tok_long_words;

void wf_tok_long_words_free(wf_tok_long_words *w);

/* Merges symbols in place, in time that grows with their number and hardly faster; *count
   becomes how many are left. False: out of memory. */
bool wf_tok_long_words_merge(wf_tok_long_words *w, const wf_tok_lexicon *v, int32_t *ids,
                             size_t *count);

enum { WF_TOK_SHORT = 64, WF_TOK_SHORT_WORDS = 12 };

/* A word of at most WF_TOK_SHORT symbols: a list of slots, each with the pair of its symbol and
   the next one. */
typedef struct wf_tok_short_word {
    const uint8_t
        *bytes; /* the word, where a symbol is a byte and the lexicon has byte_pairs */
    int32_t ids[WF_TOK_SHORT];
    int32_t keys[WF_TOK_SHORT]; /* the lowest goes first; INT32_MAX: no pair */
    int32_t made[WF_TOK_SHORT]; /* the token of a merged pair */
    uint8_t before[WF_TOK_SHORT + 1], after[WF_TOK_SHORT];
    uint8_t count;      /* symbols, and ids once they are merged */
    uint8_t changed[2]; /* slots whose pairs are other ones, prefetched; WF_TOK_SHORT: none */
} wf_tok_short_word;

/* Merges the symbols of up to WF_TOK_SHORT_WORDS words in place. */
void wf_tok_short_words_merge(const wf_tok_lexicon *v, wf_tok_short_word *words, size_t count);

#endif
