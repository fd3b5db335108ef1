/*
 * apps/tokenizer/tokenizer_internal.h - what every kind of file becomes: a vocabulary, and the steps from a
 * text to its words.
 *
 *     text -> added tokens, and stretches between them -> normalizers -> added tokens that are normalized
 *          -> pre-tokenizers -> words -> BPE -> ids
 */
#ifndef WF_APPS_TOKENIZER_TOKENIZER_INTERNAL_H
#define WF_APPS_TOKENIZER_TOKENIZER_INTERNAL_H

#include "apps/tokenizer/pattern_internal.h"
#include "apps/tokenizer/tokenizer.h"
#include "apps/tokenizer/lexicon_internal.h"

enum { APP_MOST_STEPS = 16, APP_MOST_TEMPLATE = 16, APP_MOST_WORD = 1 << 28 };

/* What a step puts in place of a stretch of text, or how it cuts it. */
typedef enum app_step_kind {
    /* Normalizers. */
    APP_STEP_NFC,
    APP_STEP_PREPEND, /* `text` in front */
    APP_STEP_REPLACE, /* `text`, or what the pattern finds, by `with` */
    /* Pre-tokenizers. */
    APP_STEP_SPLIT,          /* by what the pattern finds */
    APP_STEP_SPACE_IN_FRONT, /* a space in front, if there is none */
    APP_STEP_METASPACE,      /* spaces become U+2581; one in front as `when` says */
    APP_STEP_WORDS,          /* before each `text` but behind itself */
    APP_STEP_SAFE            /* before each `text` where no merge goes across */
} app_step_kind;

/* What becomes of what a pattern finds. */
typedef enum app_split {
    APP_SPLIT_ISOLATED,
    APP_SPLIT_REMOVED,
    APP_SPLIT_KEPT, /* all else is removed */
    APP_SPLIT_MERGED_WITH_NEXT,
    APP_SPLIT_MERGED_WITH_PREVIOUS
} app_split;

typedef enum app_prepend {
    APP_PREPEND_ALWAYS,
    APP_PREPEND_FIRST,
    APP_PREPEND_NEVER
} app_prepend;

typedef struct app_step {
    app_step_kind kind;
    app_pattern pattern; /* SPLIT has one, and REPLACE without a text */
    char *text, *with;
    size_t text_bytes, with_bytes;
    app_split split;
    app_prepend when;
    uint8_t *inert;    /* NFC: app_inert_new */
    uint8_t safe[256]; /* SAFE: what may not be the byte in front */
} app_step;

/* An added token, and what of the text around it belongs to it. */
typedef struct app_added {
    char *text;
    uint32_t bytes;
    int32_t id;
    bool special, left, right, single_word; /* left, right: takes white space there */
} app_added;

/* Added tokens by their beginnings: nodes of a tree of bytes, siblings in a list. */
typedef struct app_added_node {
    uint8_t byte;
    int32_t down, next, token; /* -1 */
} app_added_node;

typedef struct app_added_set {
    app_added *tokens;
    app_added_node *nodes;
    int32_t count, room, node_count, node_room;
    int32_t first[256]; /* the node of a first byte, or -1 */
    int begins;         /* the only first byte there is; -1: there are several */
} app_added_set;

typedef struct app_step_list {
    app_step steps[APP_MOST_STEPS];
    int count;
} app_step_list;

struct app_tokenizer {
    app_lexicon vocabulary;
    app_added_set added, added_normalized;
    app_step_list normalizers, pre_tokenizers;
    app_pattern word;   /* a letter of a word; only where an added token asks for it */
    int growth;         /* how many times longer normalizers may make a text, at most */
    bool bytes;         /* the byte tokenizer: nothing below but bos and eos */
    bool characters;    /* the model begins with characters; else with bytes */
    bool whole_words;   /* a word that is a token is that token, whatever merges make of it */
    bool byte_fallback; /* an unknown character becomes its bytes' tokens */
    int32_t fallback[256];
    int32_t unknown; /* -1: what is unknown is left out */
    bool join_unknown;
    bool strip_first; /* decoding leaves out a space at the very beginning */
    int32_t before[APP_MOST_TEMPLATE], behind[APP_MOST_TEMPLATE];
    int before_count, behind_count;
    int32_t bos, eos, pad;
    int32_t pieces;     /* how many tokens the model of a tokenizer.json has */
    int32_t last_added; /* the largest id of an added token; -1: there is none */
    bool alone;         /* nothing beside the file is read */
};

/* A growing text; false: out of memory. */
bool app_tokenizer_bytes_add(app_tokenizer_bytes *text, const void *bytes, size_t n);
/* A text as it is, or, where it is no UTF-8, in `room` with U+FFFD for each part that is none. */
bool app_valid_text(app_tokenizer_bytes *room, const uint8_t **text, size_t *n);
bool app_tokenizer_ids_room(app_tokenizer_ids *ids, size_t more);

/* added.c: false: out of memory. The text is copied. */
bool app_added_add(app_added_set *set, const app_added *token);
void app_added_free(app_added_set *set);
/* The token that begins first in the text from a place on, of those the longest; NULL: there is none.
   without_special: special ones are text. */
const app_added *app_added_find(const app_added_set *set, bool without_special,
                                const uint8_t *text, size_t n, size_t from, size_t *at);

/* steps.c */
app_step *app_step_add(app_step_list *list, app_step_kind kind);
bool app_step_text(char **to, size_t *bytes, const char *text, size_t n);
void app_steps_free(app_step_list *list);

/* bpe.c: what a thread needs for words, with those that it has seen. */
typedef struct app_bpe app_bpe;
app_bpe *app_bpe_new(const app_tokenizer *tokenizer);
void app_bpe_free(app_bpe *bpe);
/* Takes a word of n bytes, behind which `readable` bytes may be read in all, and which stays where it is until
   app_bpe_flush has appended the ids of all words. False of both: out of memory. */
bool app_bpe_word(app_bpe *bpe, const uint8_t *word, size_t n, size_t readable,
                  app_tokenizer_ids *ids);
bool app_bpe_flush(app_bpe *bpe, app_tokenizer_ids *ids);

#endif
