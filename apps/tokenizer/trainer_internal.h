/* apps/tokenizer/trainer_internal.h - words with their counts, and merges of them. */
#ifndef WF_APPS_TOKENIZER_TRAINER_INTERNAL_H
#define WF_APPS_TOKENIZER_TRAINER_INTERNAL_H

#include "apps/tokenizer/trainer.h"
#include "apps/tokenizer/tokenizer_internal.h"

typedef struct app_counted_word {
    size_t at;
    uint32_t bytes;
    int64_t count;
} app_counted_word;

struct app_tokenizer_counter {
    const app_tokenizer *tokenizer;
    app_matcher matcher;
    app_tokenizer_bytes valid, texts; /* texts: of the words */
    app_counted_word *words;
    size_t count, room;
    uint32_t *places; /* a hash table: a word's number and 1; 0: free */
    size_t mask;
};

/* Two tokens that became one: the k-th merge made token 256 + k. */
typedef struct app_trained_merge {
    int32_t left, right;
} app_trained_merge;

/* At most `most` merges, into room for as many; gives how many, or -1: out of memory. */
int32_t app_train_merges(const app_tokenizer_counter *counter, int32_t most,
                         app_trained_merge *merges);

#endif
