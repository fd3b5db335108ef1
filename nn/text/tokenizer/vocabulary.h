/*
 * nn/text/tokenizer/vocabulary.h - a tokenizer as lists, for files that keep it beside a model
 * (GGUF), from which llama.cpp makes the same ids.
 */
#ifndef WF_NN_TEXT_TOKENIZER_VOCABULARY_H
#define WF_NN_TEXT_TOKENIZER_VOCABULARY_H

#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

typedef enum wf_tok_vocabulary_type {
    WF_TOK_VOCABULARY_NORMAL = 1,
    WF_TOK_VOCABULARY_UNKNOWN,
    WF_TOK_VOCABULARY_CONTROL, /* special */
    WF_TOK_VOCABULARY_USER,    /* added, and not special */
    WF_TOK_VOCABULARY_UNUSED,
    WF_TOK_VOCABULARY_BYTE
} wf_tok_vocabulary_type;

/* A text of the vocabulary. */
typedef struct wf_tok_vocabulary_text {
    const char *text; /* not terminated */
    int64_t bytes;
} wf_tok_vocabulary_text;

typedef struct wf_tok_vocabulary {
    const char
        *model; /* "gpt2": byte-level BPE, of GPT-2's letters; "llama": SentencePiece's BPE */
    const char *pre; /* the way texts are cut in words, by llama.cpp's name */
    int32_t count;
    wf_tok_vocabulary_text *tokens; /* [count] */
    int32_t *types;                 /* [count] wf_tok_vocabulary_type */
    float *scores; /* [count] of "llama", else NULL: the higher one goes first */
    int64_t merge_count;
    /* those of "gpt2": two tokens with a blank between them, the first one goes first */
    wf_tok_vocabulary_text *merges;
    bool space_in_front;       /* texts get one */
    bool begin, end;           /* the begin token, the end token, is added to each text */
    int32_t unknown, bos, eos; /* -1: none */
    char *texts;               /* the memory of all texts */
} wf_tok_vocabulary;

/**
 * wf_tok_vocabulary_open - makes the lists of a tokenizer
 *
 * @param rows  ids that the model has: those beyond the tokenizer's become tokens that no text
 *              gets
 * Owner:   the caller, wf_tok_vocabulary_close, in any case
 * Errors:  WF_EINVAL (the tokenizer has more ids than the model), WF_EUNSUPPORTED (llama.cpp
 *          has no such tokenizer), WF_ENOMEM
 */
WF_API wf_status wf_tok_vocabulary_open(const wf_tok *tokenizer, int64_t rows,
                                        wf_tok_vocabulary *v, wf_error *error);
WF_API void wf_tok_vocabulary_close(wf_tok_vocabulary *v);

/**
 * wf_tok_vocabulary_json - converts the lists of a file to the tokenizer.json that makes
 * llama.cpp's ids
 *
 * @param v     its lists are not trusted
 * @param name  of the file, for errors
 * @param json  appended to
 * Errors:  WF_EDATA (file and key), WF_EUNSUPPORTED (a way to cut texts that has no row in
 *          llama_cpp_names.def), WF_ENOMEM
 */
WF_API wf_status wf_tok_vocabulary_json(const wf_tok_vocabulary *v, const char *name,
                                        wf_tok_bytes *json, wf_error *error);

/* The way in which llama.cpp cuts texts in words under one of its names
   (wf_tok_vocabulary.pre). */
typedef struct wf_tok_vocabulary_split {
    const char *pattern; /* matches a word */
    bool digits;         /* each one is cut off before */
    bool whole_words;    /* a word that is a token is that token */
    bool nfc;            /* texts are normalized so before */
} wf_tok_vocabulary_split;

/** wf_tok_vocabulary_split_of - finds how words are cut under a name of llama.cpp; false: the
 * name is unknown. */
WF_API bool wf_tok_vocabulary_split_of(const char *pre, size_t bytes,
                                       wf_tok_vocabulary_split *split);

WF_END_DECLS

#endif
