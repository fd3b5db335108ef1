/*
 * nn/text/tokenizer/tokenizer_internal.h - what every kind of file becomes: a vocabulary, and
 * the steps from a text to its words.
 *
 *     text -> added tokens, and stretches between them -> normalizers -> added tokens that are
 *     normalized
 *          -> pre-tokenizers -> words -> BPE -> ids
 */
#ifndef WF_NN_TEXT_TOKENIZER_TOKENIZER_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_TOKENIZER_INTERNAL_H

#include "nn/text/tokenizer/pattern_internal.h"
#include "nn/text/tokenizer/tokenizer.h"
#include "nn/text/tokenizer/lexicon_internal.h"

enum { WF_TOK_MOST_STEPS = 16, WF_TOK_MOST_TEMPLATE = 16, WF_TOK_MOST_WORD = 1 << 28 };

/* The effect of a step: a replacement of text, or a cut. */
typedef enum wf_tok_step_kind {
    /* Normalizers. */
    WF_TOK_STEP_NFC,
    WF_TOK_STEP_PREPEND, /* `text` in front */
    WF_TOK_STEP_REPLACE, /* `text`, or what the pattern finds, by `with` */
    /* Pre-tokenizers. */
    WF_TOK_STEP_SPLIT,          /* by what the pattern finds */
    WF_TOK_STEP_SPACE_IN_FRONT, /* a space in front, if there is none */
    WF_TOK_STEP_METASPACE,      /* spaces become U+2581; one in front as `when` says */
    WF_TOK_STEP_WORDS,          /* before each `text` except after another */
    WF_TOK_STEP_SAFE            /* before each `text` where no merge goes across */
} wf_tok_step_kind;

/* The treatment of text that a pattern finds. */
typedef enum wf_tok_split {
    WF_TOK_SPLIT_ISOLATED,
    WF_TOK_SPLIT_REMOVED,
    WF_TOK_SPLIT_KEPT, /* all else is removed */
    WF_TOK_SPLIT_MERGED_WITH_NEXT,
    WF_TOK_SPLIT_MERGED_WITH_PREVIOUS
} wf_tok_split;

typedef enum wf_tok_prepend {
    WF_TOK_PREPEND_ALWAYS,
    WF_TOK_PREPEND_FIRST,
    WF_TOK_PREPEND_NEVER
} wf_tok_prepend;

typedef struct wf_tok_step {
    wf_tok_step_kind kind;
    wf_tok_pattern pattern; /* SPLIT has one, and REPLACE without a text */
    char *text, *with;
    size_t text_bytes, with_bytes;
    wf_tok_split split;
    wf_tok_prepend when;
    uint8_t *inert;    /* NFC: wf_tok_inert_new */
    uint8_t safe[256]; /* SAFE: what may not be the byte in front */
} wf_tok_step;

/* An added token, and what of the text around it belongs to it. */
typedef struct wf_tok_added {
    char *text;
    uint32_t bytes;
    int32_t id;
    bool special, left, right, single_word; /* left, right: takes white space there */
} wf_tok_added;

/* Added tokens by their beginnings: nodes of a tree of bytes, siblings in a list. */
typedef struct wf_tok_added_node {
    uint8_t byte;
    int32_t down, next, token; /* -1 */
} wf_tok_added_node;

typedef struct wf_tok_added_set {
    wf_tok_added *tokens;
    wf_tok_added_node *nodes;
    int32_t count, room, node_count, node_room;
    int32_t first[256]; /* the node of a first byte, or -1 */
    int begins;         /* the only first byte there is; -1: there are several */
} wf_tok_added_set;

typedef struct wf_tok_step_list {
    wf_tok_step steps[WF_TOK_MOST_STEPS];
    int count;
} wf_tok_step_list;

struct wf_tok {
    wf_tok_lexicon vocabulary;
    wf_tok_added_set added, added_normalized;
    wf_tok_step_list normalizers, pre_tokenizers;
    wf_tok_pattern word; /* a letter of a word; only where an added token asks for it */
    int growth;          /* growth of a text by normalizers, at most */
    bool bytes;          /* the byte tokenizer: nothing below but bos and eos */
    bool characters;     /* the model begins with characters; else with bytes */
    bool whole_words;    /* a word that is a token is that token, whatever merges make of it */
    bool byte_fallback;  /* an unknown character becomes its bytes' tokens */
    int32_t fallback[256];
    int32_t unknown; /* -1: what is unknown is left out */
    bool join_unknown;
    bool strip_first; /* decoding leaves out a space at the very beginning */
    int32_t before[WF_TOK_MOST_TEMPLATE], after[WF_TOK_MOST_TEMPLATE];
    int before_count, after_count;
    int32_t bos, eos, pad;
    int32_t pieces;     /* tokens of the model of a tokenizer.json */
    int32_t last_added; /* the largest id of an added token; -1: there is none */
    bool alone;         /* nothing beside the file is read */
};

/* Adds to a growing text; false: out of memory. */
bool wf_tok_bytes_add(wf_tok_bytes *text, const void *bytes, size_t n);
/* Gives a text as it is, or, where it is no UTF-8, in `room` with U+FFFD for each part that is
   none. */
bool wf_tok_valid_text(wf_tok_bytes *room, const uint8_t **text, size_t *n);
bool wf_tok_ids_room(wf_tok_ids *ids, size_t more);

/* added.c: false: out of memory. The text is copied. */
bool wf_tok_added_add(wf_tok_added_set *set, const wf_tok_added *token);
void wf_tok_added_free(wf_tok_added_set *set);
/* Finds the token that begins first in the text from a byte on, of those the longest; NULL:
   there is none. without_special: special ones are text. */
const wf_tok_added *wf_tok_added_find(const wf_tok_added_set *set, bool without_special,
                                      const uint8_t *text, size_t n, size_t from, size_t *at);

/* steps.c */
wf_tok_step *wf_tok_step_add(wf_tok_step_list *list, wf_tok_step_kind kind);
bool wf_tok_step_text(char **to, size_t *bytes, const char *text, size_t n);
void wf_tok_steps_free(wf_tok_step_list *list);

/* bpe.c: what a thread needs for words, with those that it has seen. */
typedef struct wf_tok_bpe wf_tok_bpe;
wf_tok_bpe *wf_tok_bpe_new(const wf_tok *tokenizer);
void wf_tok_bpe_free(wf_tok_bpe *bpe);
/* Takes a word of n bytes, from whose begin `readable` bytes may be read, and which stays where
   it is until wf_tok_bpe_flush has appended the ids of all words. False of both: out of
   memory. */
bool wf_tok_bpe_word(wf_tok_bpe *bpe, const uint8_t *word, size_t n, size_t readable,
                     wf_tok_ids *ids);
bool wf_tok_bpe_flush(wf_tok_bpe *bpe, wf_tok_ids *ids);

#endif
