/*
 * nn/text/tokenizer/bpe.c - the ids of a word. Words that were seen lately lie in a
 * direct-mapped cache, which is larger than a core's own: while a word's entry is loaded, the
 * next words are cut. Words that it does not have wait until there are some to be merged at
 * once, and those after them wait with them.
 */
#include "nn/text/tokenizer/bpe_internal.h"
#include "nn/text/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_BITS = 18, KEY_WORDS = 3, KEY_BYTES = 8 * KEY_WORDS, MOST_CACHED = 9 };
enum { LONGER_BITS = 12, MOST_CACHED_LONGER = 15 };
enum { AHEAD = 8, WORDS = 128 };

/* One cache line. */
typedef struct seen {
    uint64_t key[KEY_WORDS]; /* the word, with zeros after it */
    uint8_t bytes, count;
    int32_t ids[MOST_CACHED];
} seen;

/* A word of more than KEY_BYTES, in two cache lines. */
typedef struct seen_longer {
    uint8_t bytes, count;
    uint8_t word[WF_TOK_SHORT];
    int32_t ids[MOST_CACHED_LONGER];
} seen_longer;

/* A word whose ids are not appended yet, and its entry in one of the caches: it has none where
   it is longer than WF_TOK_SHORT. */
typedef struct waiting {
    const uint8_t *word;
    size_t bytes;
    uint64_t key[KEY_WORDS];
    seen *entry;
    seen_longer *longer;
    wf_tok_short_word *merged; /* NULL: its entry has its ids */
} waiting;

struct wf_tok_bpe {
    const wf_tok *tokenizer;
    seen *cache;
    seen_longer *longer;
    /* A ring: the ids of those before `done` are appended, for those before `looked_up` it is
       known whether the cache has them, and of the others the entries are being loaded. */
    waiting words[WORDS];
    unsigned done, looked_up, count;
    wf_tok_short_word merging[WF_TOK_SHORT_WORDS];
    unsigned merging_count;
    wf_tok_long_words long_words;
    int32_t *symbols;
    size_t room;
};

wf_tok_bpe *wf_tok_bpe_new(const wf_tok *tokenizer)
{
    wf_tok_bpe *bpe = calloc(1, sizeof *bpe);

    if (!bpe)
        return NULL;
    bpe->tokenizer = tokenizer;
    bpe->cache = wf_tok_table_new(sizeof(seen) << CACHE_BITS);
    bpe->longer = wf_tok_table_new(sizeof(seen_longer) << LONGER_BITS);
    if (!bpe->cache || !bpe->longer) {
        wf_tok_bpe_free(bpe);
        return NULL;
    }
    memset(bpe->cache, 0, sizeof(seen) << CACHE_BITS);
    memset(bpe->longer, 0, sizeof(seen_longer) << LONGER_BITS);
    return bpe;
}

void wf_tok_bpe_free(wf_tok_bpe *bpe)
{
    if (!bpe)
        return;
    wf_tok_long_words_free(&bpe->long_words);
    free(bpe->cache);
    free(bpe->longer);
    free(bpe->symbols);
    free(bpe);
}

/* Writes the characters of a word as ids; returns how many. An unknown one is its bytes'
   tokens, or the unknown token, or nothing. */
static size_t characters(const wf_tok *t, const uint8_t *word, size_t n, int32_t *ids)
{
    size_t count = 0;
    bool unknown = false; /* the last character was unknown */

    for (size_t at = 0; at < n;) {
        size_t bytes = (size_t)wf_text_utf8_bytes(word[at]);
        int32_t id = bytes == 1 ? t->vocabulary.byte_ids[word[at]]
                                : wf_tok_lexicon_piece(&t->vocabulary, word + at, bytes);

        if (id >= 0) {
            ids[count++] = id;
        } else if (t->byte_fallback) {
            for (size_t i = 0; i < bytes; i++)
                ids[count++] = t->fallback[word[at + i]];
        } else if (t->unknown >= 0 && !(unknown && t->join_unknown)) {
            ids[count++] = t->unknown;
        }
        unknown = id < 0;
        at += bytes;
    }
    return count;
}

static size_t bytes_of(const wf_tok *t, const uint8_t *word, size_t n, int32_t *ids)
{
    size_t count = 0;
    bool unknown = false;

    for (size_t at = 0; at < n; at++) {
        int32_t id = t->vocabulary.byte_ids[word[at]];

        if (id < 0 && !(unknown && t->join_unknown))
            ids[count] = t->unknown;
        else
            ids[count] = id;
        count += ids[count] >= 0;
        unknown = id < 0;
    }
    return count;
}

static size_t symbols(const wf_tok *t, const uint8_t *word, size_t n, int32_t *ids)
{
    return (t->characters ? characters : bytes_of)(t, word, n, ids);
}

/* Returns true where a word is a token as it is, which `id` becomes. */
static bool is_token(const wf_tok *t, const uint8_t *word, size_t n, int32_t *id)
{
    if (!t->whole_words)
        return false;
    *id = wf_tok_lexicon_piece(&t->vocabulary, word, n);
    return *id >= 0;
}

/* Splits a short word into its first tokens, before it is merged. */
static void begin_word(const wf_tok *t, wf_tok_short_word *w, const uint8_t *word, size_t n)
{
    w->bytes = t->vocabulary.byte_pairs ? word : NULL;
    w->count = 1;
    if (!is_token(t, word, n, w->ids))
        w->count = (uint8_t)symbols(t, word, n, w->ids);
}

/* Returns the ids of a word of any length; *count of them at the result, or NULL. */
static const int32_t *long_word(wf_tok_bpe *bpe, const uint8_t *word, size_t n, size_t *count)
{
    if (n > bpe->room) {
        free(bpe->symbols);
        bpe->room = 0;
        bpe->symbols = malloc(2 * n * sizeof *bpe->symbols);
        if (!bpe->symbols)
            return NULL;
        bpe->room = 2 * n;
    }
    *count = 1;
    if (is_token(bpe->tokenizer, word, n, bpe->symbols))
        return bpe->symbols;
    *count = symbols(bpe->tokenizer, word, n, bpe->symbols);
    return wf_tok_long_words_merge(&bpe->long_words, &bpe->tokenizer->vocabulary, bpe->symbols,
                                   count)
               ? bpe->symbols
               : NULL;
}

/* Makes a key of the bytes of a word of at most KEY_BYTES, with zeros after them. */
static inline void set_key(uint64_t key[KEY_WORDS], const uint8_t *word, size_t n,
                           size_t readable)
{
    memset(key, 0, KEY_BYTES);
    if (readable < KEY_BYTES) {
        memcpy(key, word, n);
        return;
    }
    memcpy(key, word, KEY_BYTES);
    for (size_t i = 0; i < KEY_WORDS; i++) { /* without branches, as words have all lengths */
        size_t bytes = n > 8 * i ? n - 8 * i : 0;

        key[i] &= bytes < 8 ? (UINT64_C(1) << 8 * bytes) - 1 : UINT64_MAX;
    }
}

/* Appends ids from an array of at least `most`, all of which are copied: a copy of a constant
   size takes a few instructions. */
static inline bool append_some(wf_tok_ids *ids, const int32_t *from, size_t count, size_t most)
{
    if (ids->room - ids->count < most && !wf_tok_ids_room(ids, most))
        return false;
    memcpy(ids->data + ids->count, from, most * sizeof *from);
    ids->count += count;
    return true;
}

static bool append(wf_tok_ids *ids, const int32_t *from, size_t count)
{
    /* no ids for characters that are left out */
    return count == 0 || append_some(ids, from, count, count);
}

static inline bool append_seen(wf_tok_ids *ids, const waiting *w)
{
    return w->entry ? append_some(ids, w->entry->ids, w->entry->count, MOST_CACHED)
                    : append_some(ids, w->longer->ids, w->longer->count, MOST_CACHED_LONGER);
}

static inline bool append_merged(wf_tok_ids *ids, const wf_tok_short_word *w)
{
    return w->count <= MOST_CACHED ? append_some(ids, w->ids, w->count, MOST_CACHED)
                                   : append(ids, w->ids, w->count);
}

static inline bool is_in_cache(const waiting *w)
{
    if (!w->entry)
        return w->longer->bytes == w->bytes && memcmp(w->longer->word, w->word, w->bytes) == 0;
    return w->entry->bytes == w->bytes && memcmp(w->entry->key, w->key, sizeof w->key) == 0;
}

/* Puts the ids of a word into its cache. */
static void keep(const waiting *w)
{
    const wf_tok_short_word *from = w->merged;

    if (w->entry && from->count <= MOST_CACHED) {
        memcpy(w->entry->key, w->key, sizeof w->key);
        memcpy(w->entry->ids, from->ids, sizeof w->entry->ids);
        w->entry->bytes = (uint8_t)w->bytes;
        w->entry->count = from->count;
    } else if (!w->entry && from->count <= MOST_CACHED_LONGER) {
        memcpy(w->longer->word, w->word, w->bytes);
        memcpy(w->longer->ids, from->ids, sizeof w->longer->ids);
        w->longer->bytes = (uint8_t)w->bytes;
        w->longer->count = from->count;
    }
}

/* Merges the words that the cache does not have, and appends the ids of all that were looked
   up. */
static bool append_all(wf_tok_bpe *bpe, wf_tok_ids *ids)
{
    const wf_tok *t = bpe->tokenizer;
    bool ok = true;

    for (unsigned i = bpe->done; i != bpe->looked_up; i++) {
        const waiting *w = &bpe->words[i % WORDS];

        if (w->merged)
            begin_word(t, w->merged, w->word, w->bytes);
    }
    wf_tok_short_words_merge(&t->vocabulary, bpe->merging, bpe->merging_count);
    for (unsigned i = bpe->done; i != bpe->looked_up; i++) {
        const waiting *w = &bpe->words[i % WORDS];

        ok = ok && (w->merged ? append_merged(ids, w->merged) : append_seen(ids, w));
    }
    /* Only now may entries change: words after these have taken their ids from them. */
    for (; bpe->done != bpe->looked_up; bpe->done++)
        if (bpe->words[bpe->done % WORDS].merged)
            keep(&bpe->words[bpe->done % WORDS]);
    bpe->merging_count = 0;
    return ok;
}

/* Merges a long word, once those before it are appended, and appends its ids. */
static bool append_long(wf_tok_bpe *bpe, const waiting *w, wf_tok_ids *ids)
{
    bool ok = append_all(bpe, ids);
    const int32_t *found;
    size_t count;

    bpe->done = ++bpe->looked_up;
    found = ok ? long_word(bpe, w->word, w->bytes, &count) : NULL;
    return found && append(ids, found, count);
}

/* Looks the next word up in the cache. */
static bool look_up(wf_tok_bpe *bpe, wf_tok_ids *ids)
{
    waiting *w = &bpe->words[bpe->looked_up % WORDS];

    if (w->bytes > WF_TOK_SHORT)
        return append_long(bpe, w, ids);
    bpe->looked_up++;
    w->merged = NULL;
    if (is_in_cache(w)) {
        if (bpe->looked_up - bpe->done > 1)
            return true;
        bpe->done++;
        return append_seen(ids, w);
    }
    w->merged = &bpe->merging[bpe->merging_count++];
    if (bpe->tokenizer->whole_words)
        wf_tok_lexicon_piece_prefetch(&bpe->tokenizer->vocabulary, w->word, w->bytes);
    return bpe->merging_count < WF_TOK_SHORT_WORDS || append_all(bpe, ids);
}

bool wf_tok_bpe_flush(wf_tok_bpe *bpe, wf_tok_ids *ids)
{
    bool ok = true;

    while (bpe->looked_up != bpe->count)
        ok = look_up(bpe, ids) && ok;
    return append_all(bpe, ids) && ok;
}

/* Finds the entry that a word has, or would have, in the cache of its length, and prefetches
   it. */
static inline void find_slot(wf_tok_bpe *bpe, waiting *w, size_t readable)
{
    size_t n = w->bytes;
    uint64_t hash;

    w->entry = NULL;
    if (n > WF_TOK_SHORT)
        return;
    if (n > KEY_BYTES) {
        w->longer = &bpe->longer[wf_tok_hash(w->word, n) & ((1u << LONGER_BITS) - 1)];
        __builtin_prefetch(w->longer);
        return;
    }
    set_key(w->key, w->word, n, readable);
    hash = (w->key[0] ^ w->key[1] * 0x9e3779b97f4a7c15u ^ w->key[2] * 0xbf58476d1ce4e5b9u ^ n) *
           0x94d049bb133111ebu;
    w->entry = &bpe->cache[hash >> (64 - CACHE_BITS)];
    __builtin_prefetch(w->entry);
}

bool wf_tok_bpe_word(wf_tok_bpe *bpe, const uint8_t *word, size_t n, size_t readable,
                     wf_tok_ids *ids)
{
    waiting *w;
    bool ok = bpe->count - bpe->done < WORDS || append_all(bpe, ids);

    w = &bpe->words[bpe->count++ % WORDS];
    w->word = word;
    w->bytes = n;
    find_slot(bpe, w, readable);
    if (bpe->count - bpe->looked_up > AHEAD)
        ok = look_up(bpe, ids) && ok;
    return ok;
}
