/*
 * apps/tokenizer/vocabulary.h - a tokenizer as lists, for files that keep it beside a model (GGUF): what llama.cpp
 * makes the same ids of.
 */
#ifndef WF_APPS_TOKENIZER_VOCABULARY_H
#define WF_APPS_TOKENIZER_VOCABULARY_H

#include "apps/tokenizer/tokenizer.h"

typedef enum app_vocabulary_type {
    APP_VOCABULARY_NORMAL = 1,
    APP_VOCABULARY_UNKNOWN,
    APP_VOCABULARY_CONTROL, /* special */
    APP_VOCABULARY_USER,    /* added, and not special */
    APP_VOCABULARY_UNUSED,
    APP_VOCABULARY_BYTE
} app_vocabulary_type;

/* A text of the vocabulary. */
typedef struct app_vocabulary_text {
    const char *text; /* no end is added to it */
    int64_t bytes;
} app_vocabulary_text;

typedef struct app_vocabulary {
    const char
        *model; /* "gpt2": byte-level BPE, of GPT-2's letters; "llama": SentencePiece's BPE */
    const char *pre; /* how texts are cut in words, by llama.cpp's name */
    int32_t count;
    app_vocabulary_text *tokens; /* [count] */
    int32_t *types;              /* [count] app_vocabulary_type */
    float *scores;               /* [count] of "llama", else NULL: the higher one goes first */
    int64_t merge_count;
    app_vocabulary_text *
        merges; /* those of "gpt2": two tokens with a blank between them, the first one goes first */
    bool space_in_front; /* texts get one */
    bool begin, end;     /* the token of a begin, of an end, goes with each text */
    int32_t unknown;     /* -1: none */
    char *texts;         /* what all texts lie in */
} app_vocabulary;

/**
 * app_vocabulary_open - the lists of a tokenizer
 *
 * @param rows  ids that the model has: those beyond the tokenizer's become tokens that no text gets
 * Owner:   the caller, app_vocabulary_close, in any case
 * Errors:  WF_EINVAL (the tokenizer has more ids than the model), WF_EUNSUPPORTED (llama.cpp has no such
 *          tokenizer), WF_ENOMEM
 */
wf_status app_vocabulary_open(const app_tokenizer *tokenizer, int64_t rows, app_vocabulary *v,
                              wf_error *error);
void app_vocabulary_close(app_vocabulary *v);

/* How llama.cpp cuts texts in words under one of its names (app_vocabulary.pre). */
typedef struct app_vocabulary_split {
    const char *pattern; /* what a word is */
    bool digits;         /* each one is cut off before */
    bool whole_words;    /* a word that is a token is that token */
    bool nfc;            /* texts are normalized so before */
} app_vocabulary_split;

/* False: there is no such name here. */
bool app_vocabulary_split_of(const char *pre, size_t bytes, app_vocabulary_split *split);

#endif
