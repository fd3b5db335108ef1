/*
 * nn/text/tokenizer/lexicon_internal.h - tokens by id and by text, and which two become one.
 *
 * A token's text is bytes: of a byte-level model the ones that its letters encode. Pieces are
 * what the model itself can make of text; added tokens are recognised in text before it, and
 * may have the text of a piece.
 */
#ifndef WF_NN_TEXT_TOKENIZER_LEXICON_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_LEXICON_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No id is larger: the largest vocabularies of models have a quarter of it. */
enum { WF_TOK_LEXICON_MOST = 1 << 20, WF_TOK_TOKEN_MOST_BYTES = 4096 };

/* All ranks of merges are below: a rank and a position in a word fit in 31 bits. */
enum { WF_TOK_LEXICON_RANKS = 1 << 24 };

/* Tokens up to this size are checked for every division of them. */
enum { WF_TOK_RANKED_MOST_BYTES = 512 };

/* A table of ids by text. What a text has in common with the one that is looked for is in the
   table, so that others are seldom looked at. */
typedef struct wf_tok_lexicon_slot {
    int32_t id;    /* -1: a free slot */
    uint32_t hash; /* its text's, the lower half */
} wf_tok_lexicon_slot;

typedef struct wf_tok_lexicon_table {
    wf_tok_lexicon_slot *slots;
    uint32_t mask, count;
} wf_tok_lexicon_table;

enum {
    WF_TOK_TOKEN_PIECE = 1,
    WF_TOK_TOKEN_ADDED = 2,
    WF_TOK_TOKEN_SPECIAL = 4,
    WF_TOK_TOKEN_BYTE = 8, /* <0x..> of byte fallback: decodes to that byte */
    WF_TOK_TOKEN_NAME = 16 /* an id that no text gets */
};

typedef struct wf_tok_token {
    uint32_t at, bytes;                 /* in the texts; id not there: no kind */
    uint32_t decoded_at, decoded_bytes; /* its text, decoded */
    int kind;
} wf_tok_token;

/* Two tokens that become one. Of all in a word the lowest rank goes first, then the
   leftmost. */
typedef struct wf_tok_merge {
    int32_t left, right; /* left -1: a free slot */
    int32_t rank, made;  /* INT32_MAX of a free slot */
} wf_tok_merge;

/* The merge of two bytes, with which nearly all merges begin. */
typedef struct wf_tok_byte_pair {
    int32_t rank, made; /* made -1: nothing does */
} wf_tok_byte_pair;

typedef struct wf_tok_lexicon {
    wf_tok_token *tokens;
    int32_t size, room; /* ids are below size */
    char *texts;
    size_t used, texts_room;
    wf_tok_lexicon_table pieces, added;
    wf_tok_merge *merges; /* a hash table */
    uint32_t merges_mask;
    int32_t ranks;         /* all ranks are below */
    int32_t byte_ids[256]; /* the token of one byte; -1 */
    wf_tok_byte_pair
        *byte_pairs; /* by the first byte and the second; NULL: a byte has no token */
} wf_tok_lexicon;

uint64_t wf_tok_hash(const void *bytes, size_t n);

/* Makes memory of a table that is read at random: aligned to cache lines, and in huge pages
   where the system has them, so that fewer reads miss the TLB. NULL: out of memory. Owner: the
   caller, free. */
void *wf_tok_table_new(size_t bytes);

/* Begins an empty lexicon. Errors: WF_ENOMEM. */
wf_status wf_tok_lexicon_begin(wf_tok_lexicon *v, wf_error *error);
void wf_tok_lexicon_free(wf_tok_lexicon *v);

/* Returns the code of an error in a file: its own, or WF_ENOMEM, by its text. */
wf_status wf_tok_wrong_code(const char *wrong);

/* Adds a token of a kind. Returns NULL, or the error: the id exists with another text, or the
   text with another id; too long, empty. An existing token gets the kind beside its own. */
const char *wf_tok_lexicon_add(wf_tok_lexicon *v, int32_t id, const char *text, size_t bytes,
                               int kind);

/* Ends the tokens, when all are there: finds the bytes' own, and makes room for merges up to
   this rank. */
wf_status wf_tok_lexicon_end(wf_tok_lexicon *v, int64_t merges, int32_t ranks, wf_error *error);

/* Adds the merge of two tokens to `made` at a rank below `ranks`. Returns NULL, or the
   error. */
const char *wf_tok_lexicon_merge(wf_tok_lexicon *v, int32_t left, int32_t right, int32_t rank,
                                 int32_t made);

/* Adds a merge for every two pieces whose texts together are a piece; rank_of is the rank of an
   id, `name` the file's. */
wf_status wf_tok_lexicon_merge_all(wf_tok_lexicon *v, const int32_t *rank_of, int32_t ranks,
                                   const char *name, wf_error *error);

/* Finds the merges of two bytes, when all merges are there. Errors: WF_ENOMEM. */
wf_status wf_tok_lexicon_pair_bytes(wf_tok_lexicon *v, wf_error *error);

/* Returns the merges of a lexicon, the first rank first; NULL: out of memory. Owner: the
   caller, free. */
wf_tok_merge *wf_tok_lexicon_sorted_merges(const wf_tok_lexicon *v, int64_t *count);

/* Returns true where `id` is a piece whose text is those of two others, one after the other. */
bool wf_tok_lexicon_is_pair(const wf_tok_lexicon *v, int32_t id, int32_t left, int32_t right);

/* Returns the id of a text; -1: there is none. */
int32_t wf_tok_lexicon_piece(const wf_tok_lexicon *v, const void *text, size_t bytes);
int32_t wf_tok_lexicon_added(const wf_tok_lexicon *v, const void *text, size_t bytes);

/* Prefetches what wf_tok_lexicon_piece will read first. */
void wf_tok_lexicon_piece_prefetch(const wf_tok_lexicon *v, const void *text, size_t bytes);

/* Sets the text that an id decodes to, other than its own. */
const char *wf_tok_lexicon_decodes(wf_tok_lexicon *v, int32_t id, const char *text,
                                   size_t bytes);

static inline uint32_t wf_tok_merge_hash(int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32);
}

/* The merges of a cache line: two tokens are looked for from a line's first slot on. */
enum { WF_TOK_LINE_MERGES = 4 };

static inline uint32_t wf_tok_lexicon_line(const wf_tok_lexicon *v, int32_t left, int32_t right)
{
    return wf_tok_merge_hash(left, right) & v->merges_mask &
           ~(uint32_t)(WF_TOK_LINE_MERGES - 1);
}

/* Returns the merge of two tokens; a free entry where there is none. A line of the table is
   filled from its first entry on, and then the next one. */
static inline const wf_tok_merge *wf_tok_lexicon_pair(const wf_tok_lexicon *v, int32_t left,
                                                      int32_t right)
{
    uint32_t i = wf_tok_lexicon_line(v, left, right);

    while (v->merges[i].left >= 0 && (v->merges[i].left != left || v->merges[i].right != right))
        i = (i + 1) & v->merges_mask;
    return &v->merges[i];
}

#endif
