/* nn/text/tokenizer/trainer_internal.h - words with their counts, and merges of them. */
#ifndef WF_NN_TEXT_TOKENIZER_TRAINER_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_TRAINER_INTERNAL_H

#include "nn/text/tokenizer/trainer.h"
#include "nn/text/tokenizer/tokenizer_internal.h"

typedef struct wf_tok_counted_word {
    size_t at;
    uint32_t bytes;
    int64_t count;
} wf_tok_counted_word;

struct wf_tok_counter {
    const wf_tok *tokenizer;
    wf_tok_matcher matcher;
    wf_tok_bytes valid, texts; /* texts: of the words */
    wf_tok_counted_word *words;
    size_t count, room;
    uint32_t *slots; /* a hash table: a word's number and 1; 0: free */
    size_t mask;
};

/* Two tokens that became one: the k-th merge made token 256 + k. */
typedef struct wf_tok_trained_merge {
    int32_t left, right;
} wf_tok_trained_merge;

/* Trains at most `most` merges, into room for as many; returns how many, or -1: out of
   memory. */
int32_t wf_tok_train_merges(const wf_tok_counter *counter, int32_t most,
                            wf_tok_trained_merge *merges);

#endif
