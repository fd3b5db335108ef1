/*
 * apps/tokenizer/bpe.c - the ids of a word. Words that were seen lately lie in a direct-mapped cache, which is
 * larger than a core's own: while a word's place in it comes, the next ones are cut. Words that it does not have
 * wait until there are some to be merged at once, and those behind them wait with them.
 */
#include "apps/tokenizer/bpe_internal.h"
#include "apps/tokenizer/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_BITS = 18, KEY_WORDS = 3, MOST_CACHED = 9, AHEAD = 8, WORDS = 64 };

/* One cache line. */
typedef struct seen {
    uint64_t key[KEY_WORDS]; /* the word, with zeros behind it */
    uint8_t bytes, count;
    int32_t ids[MOST_CACHED];
} seen;

/* A word whose ids are not appended yet. */
typedef struct waiting {
    const uint8_t *word;
    size_t bytes;
    uint64_t key[KEY_WORDS];
    seen *place;            /* in the cache; NULL: it is too long for it */
    app_short_word *merged; /* NULL: its place has its ids */
} waiting;

struct app_bpe {
    const app_tokenizer *tokenizer;
    seen *cache;
    /* A ring: the ids of those before `done` are appended, for those before `looked_up` it is known whether the
       cache has them, and of the others the places in it are on their way from memory. */
    waiting words[WORDS];
    unsigned done, looked_up, count;
    app_short_word merging[APP_SHORT_WORDS];
    unsigned merging_count;
    app_long_words long_words;
    int32_t *symbols;
    size_t room;
};

app_bpe *app_bpe_new(const app_tokenizer *tokenizer)
{
    app_bpe *bpe = calloc(1, sizeof *bpe);

    if (!bpe)
        return NULL;
    bpe->tokenizer = tokenizer;
    bpe->cache = app_table_new(sizeof(seen) << CACHE_BITS);
    if (!bpe->cache) {
        free(bpe);
        return NULL;
    }
    memset(bpe->cache, 0, sizeof(seen) << CACHE_BITS);
    return bpe;
}

void app_bpe_free(app_bpe *bpe)
{
    if (!bpe)
        return;
    app_long_words_free(&bpe->long_words);
    free(bpe->cache);
    free(bpe->symbols);
    free(bpe);
}

/* The characters of a word as ids; gives how many. An unknown one is its bytes' tokens, or the unknown
   token, or nothing. */
static size_t characters(const app_tokenizer *t, const uint8_t *word, size_t n, int32_t *ids)
{
    size_t count = 0;
    bool unknown = false; /* what came last was unknown */

    for (size_t at = 0; at < n;) {
        size_t bytes = (size_t)app_utf8_bytes(word[at]);
        int32_t id = bytes == 1 ? t->vocabulary.byte_ids[word[at]]
                                : app_lexicon_piece(&t->vocabulary, word + at, bytes);

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

static size_t bytes_of(const app_tokenizer *t, const uint8_t *word, size_t n, int32_t *ids)
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

static size_t symbols(const app_tokenizer *t, const uint8_t *word, size_t n, int32_t *ids)
{
    return (t->characters ? characters : bytes_of)(t, word, n, ids);
}

/* Whether a word is a token as it is, which `id` becomes. */
static bool is_token(const app_tokenizer *t, const uint8_t *word, size_t n, int32_t *id)
{
    if (!t->whole_words)
        return false;
    *id = app_lexicon_piece(&t->vocabulary, word, n);
    return *id >= 0;
}

/* What a short word is before it is merged. */
static void begin_word(const app_tokenizer *t, app_short_word *w, const uint8_t *word, size_t n)
{
    w->bytes = t->vocabulary.byte_pairs ? word : NULL;
    w->count = 1;
    if (!is_token(t, word, n, w->ids))
        w->count = (uint8_t)symbols(t, word, n, w->ids);
}

/* The ids of a word of any length; *count of them at the result, or NULL. */
static const int32_t *long_word(app_bpe *bpe, const uint8_t *word, size_t n, size_t *count)
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
    return app_long_words_merge(&bpe->long_words, &bpe->tokenizer->vocabulary, bpe->symbols,
                                count)
               ? bpe->symbols
               : NULL;
}

/* The word's bytes as a key, with zeros behind them. */
static inline uint64_t key_word(const uint8_t *word, size_t n, size_t readable)
{
    uint64_t key = 0;

    if (readable < 8) {
        memcpy(&key, word, n < 8 ? n : 8);
        return key;
    }
    memcpy(&key, word, 8);
    return n >= 8 ? key : key & ((UINT64_C(1) << 8 * n) - 1);
}

/* Appends ids from an array of at least `most`, all of which are copied: a copy of a constant size takes a few
   instructions. */
static inline bool append_some(app_tokenizer_ids *ids, const int32_t *from, size_t count,
                               size_t most)
{
    if (ids->room - ids->count < most && !app_tokenizer_ids_room(ids, most))
        return false;
    memcpy(ids->data + ids->count, from, most * sizeof *from);
    ids->count += count;
    return true;
}

static bool append(app_tokenizer_ids *ids, const int32_t *from, size_t count)
{
    /* Of characters that are left out there are no ids. */
    return count == 0 || append_some(ids, from, count, count);
}

static inline bool append_seen(app_tokenizer_ids *ids, const seen *s)
{
    return append_some(ids, s->ids, s->count, MOST_CACHED);
}

static inline bool append_merged(app_tokenizer_ids *ids, const app_short_word *w)
{
    return w->count <= MOST_CACHED ? append_some(ids, w->ids, w->count, MOST_CACHED)
                                   : append(ids, w->ids, w->count);
}

static bool is_in_cache(const waiting *w)
{
    return w->place && w->place->bytes == w->bytes &&
           memcmp(w->place->key, w->key, sizeof w->key) == 0;
}

/* Puts the ids of a word into the cache. */
static void keep(const waiting *w)
{
    seen *s = w->place;

    if (!s || w->merged->count > MOST_CACHED)
        return;
    memcpy(s->key, w->key, sizeof s->key);
    s->bytes = (uint8_t)w->bytes;
    s->count = w->merged->count;
    memcpy(s->ids, w->merged->ids, sizeof s->ids);
}

/* Merges the words that the cache does not have, and appends the ids of all that were looked up. */
static bool append_all(app_bpe *bpe, app_tokenizer_ids *ids)
{
    const app_tokenizer *t = bpe->tokenizer;
    bool ok = true;

    for (unsigned i = bpe->done; i != bpe->looked_up; i++) {
        const waiting *w = &bpe->words[i % WORDS];

        if (w->merged)
            begin_word(t, w->merged, w->word, w->bytes);
    }
    app_short_words_merge(&t->vocabulary, bpe->merging, bpe->merging_count);
    for (unsigned i = bpe->done; i != bpe->looked_up; i++) {
        const waiting *w = &bpe->words[i % WORDS];

        ok = ok && (w->merged ? append_merged(ids, w->merged) : append_seen(ids, w->place));
    }
    /* Only now may places change: words behind these have had their ids from them. */
    for (; bpe->done != bpe->looked_up; bpe->done++)
        if (bpe->words[bpe->done % WORDS].merged)
            keep(&bpe->words[bpe->done % WORDS]);
    bpe->merging_count = 0;
    return ok;
}

/* Merges a long word, once those before it are appended, and appends its ids. */
static bool append_long(app_bpe *bpe, const waiting *w, app_tokenizer_ids *ids)
{
    bool ok = append_all(bpe, ids);
    const int32_t *found;
    size_t count;

    bpe->done = ++bpe->looked_up;
    found = ok ? long_word(bpe, w->word, w->bytes, &count) : NULL;
    return found && append(ids, found, count);
}

/* Looks the next word up in the cache. */
static bool look_up(app_bpe *bpe, app_tokenizer_ids *ids)
{
    waiting *w = &bpe->words[bpe->looked_up % WORDS];

    if (w->bytes > APP_SHORT)
        return append_long(bpe, w, ids);
    bpe->looked_up++;
    w->merged = NULL;
    if (is_in_cache(w)) {
        if (bpe->looked_up - bpe->done > 1)
            return true;
        bpe->done++;
        return append_seen(ids, w->place);
    }
    w->merged = &bpe->merging[bpe->merging_count++];
    if (bpe->tokenizer->whole_words)
        app_lexicon_piece_prefetch(&bpe->tokenizer->vocabulary, w->word, w->bytes);
    return bpe->merging_count < APP_SHORT_WORDS || append_all(bpe, ids);
}

bool app_bpe_flush(app_bpe *bpe, app_tokenizer_ids *ids)
{
    bool ok = true;

    while (bpe->looked_up != bpe->count)
        ok = look_up(bpe, ids) && ok;
    return append_all(bpe, ids) && ok;
}

/* Where the cache has, or would have, a word; NULL: it is too long. */
static seen *find_place(app_bpe *bpe, waiting *w, size_t readable)
{
    size_t n = w->bytes;
    uint64_t hash;

    memset(w->key, 0, sizeof w->key);
    if (n > sizeof w->key)
        return NULL;
    w->key[0] = key_word(w->word, n, readable);
    if (n > 8)
        w->key[1] = key_word(w->word + 8, n - 8, readable - 8);
    if (n > 16)
        w->key[2] = key_word(w->word + 16, n - 16, readable - 16);
    hash = (w->key[0] ^ w->key[1] * 0x9e3779b97f4a7c15u ^ w->key[2] * 0xbf58476d1ce4e5b9u ^ n) *
           0x94d049bb133111ebu;
    return &bpe->cache[hash >> (64 - CACHE_BITS)];
}

bool app_bpe_word(app_bpe *bpe, const uint8_t *word, size_t n, size_t readable,
                  app_tokenizer_ids *ids)
{
    waiting *w;
    bool ok = bpe->count - bpe->done < WORDS || append_all(bpe, ids);

    w = &bpe->words[bpe->count++ % WORDS];
    w->word = word;
    w->bytes = n;
    w->place = find_place(bpe, w, readable);
    if (w->place)
        __builtin_prefetch(w->place);
    if (bpe->count - bpe->looked_up > AHEAD)
        ok = look_up(bpe, ids) && ok;
    return ok;
}
