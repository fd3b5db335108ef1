/*
 * apps/tokenizer/bpe.c - the ids of a word. Words that were seen lately lie in a direct-mapped cache, which is
 * larger than a core's own: while a word's place in it comes, the next ones are cut. A short word is merged in
 * place, looking for the lowest rank each time, a long one by way of lists.
 */
#include "apps/tokenizer/bpe_internal.h"
#include "apps/tokenizer/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_BITS = 16, KEY_WORDS = 3, MOST_CACHED = 9, SHORT = 64, AHEAD = 8 };

/* One cache line. */
typedef struct seen {
    uint64_t key[KEY_WORDS]; /* the word, with zeros behind it */
    uint8_t bytes, count;
    int32_t ids[MOST_CACHED];
} seen;

/* A word whose place in the cache is on its way from memory. */
typedef struct waiting {
    const uint8_t *word;
    size_t bytes;
    uint64_t key[KEY_WORDS];
    seen *place;
} waiting;

struct app_bpe {
    const app_tokenizer *tokenizer;
    seen *cache;
    waiting words[AHEAD];
    unsigned first, count; /* the word that came first, and how many wait */
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
    bpe->cache = aligned_alloc(64, sizeof(seen) << CACHE_BITS);
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

/* Merges up to SHORT symbols in place; gives how many are left. */
static size_t merge_short(const app_lexicon *v, int32_t *ids, size_t n)
{
    const app_merge *pairs[SHORT];

    for (size_t i = 0; i + 1 < n; i++)
        pairs[i] = app_lexicon_pair(v, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < n; i++)
            best = pairs[i]->rank < pairs[best]->rank ? i : best;
        if (pairs[best]->left < 0)
            break;
        ids[best] = pairs[best]->made;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(pairs + best, pairs + best + 1, (n - best - 1) * sizeof *pairs);
        if (best + 1 < n)
            pairs[best] = app_lexicon_pair(v, ids[best], ids[best + 1]);
        if (best > 0)
            pairs[best - 1] = app_lexicon_pair(v, ids[best - 1], ids[best]);
    }
    return n;
}

/* The ids of a word that is in no cache; *count of them at the result, or NULL. */
static const int32_t *word_ids(app_bpe *bpe, const uint8_t *word, size_t n, size_t *count)
{
    const app_tokenizer *t = bpe->tokenizer;

    if (n > bpe->room) {
        free(bpe->symbols);
        bpe->room = 0;
        bpe->symbols = malloc(2 * n * sizeof *bpe->symbols);
        if (!bpe->symbols)
            return NULL;
        bpe->room = 2 * n;
    }
    if (t->whole_words) {
        bpe->symbols[0] = app_lexicon_piece(&t->vocabulary, word, n);
        *count = 1;
        if (bpe->symbols[0] >= 0)
            return bpe->symbols;
    }
    *count = (t->characters ? characters : bytes_of)(t, word, n, bpe->symbols);
    if (*count <= SHORT)
        *count = merge_short(&t->vocabulary, bpe->symbols, *count);
    else if (!app_long_words_merge(&bpe->long_words, &t->vocabulary, bpe->symbols, count))
        return NULL;
    return bpe->symbols;
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

static bool append(app_tokenizer_ids *ids, const int32_t *from, size_t count)
{
    if (count == 0) /* characters that are left out */
        return true;
    if (ids->room - ids->count < count && !app_tokenizer_ids_room(ids, count))
        return false;
    memcpy(ids->data + ids->count, from, count * sizeof *from);
    ids->count += count;
    return true;
}

/* Appends the ids of the word that has waited longest. */
static bool resolve(app_bpe *bpe, app_tokenizer_ids *ids)
{
    const waiting *w = &bpe->words[bpe->first++ % AHEAD];
    const int32_t *found;
    seen *s = w->place;
    size_t count;

    bpe->count--;
    if (s->bytes == w->bytes && memcmp(s->key, w->key, sizeof s->key) == 0)
        return append(ids, s->ids, s->count);
    found = word_ids(bpe, w->word, w->bytes, &count);
    if (found && count <= MOST_CACHED) {
        memcpy(s->key, w->key, sizeof s->key);
        s->bytes = (uint8_t)w->bytes;
        s->count = (uint8_t)count;
        memcpy(s->ids, found, count * sizeof *found);
    }
    return found && append(ids, found, count);
}

bool app_bpe_flush(app_bpe *bpe, app_tokenizer_ids *ids)
{
    bool ok = true;

    while (bpe->count)
        ok = resolve(bpe, ids) && ok;
    return ok;
}

bool app_bpe_word(app_bpe *bpe, const uint8_t *word, size_t n, size_t readable,
                  app_tokenizer_ids *ids)
{
    const int32_t *found;
    waiting *w;
    uint64_t hash;
    size_t count;

    if (n > sizeof w->key) {
        if (!app_bpe_flush(bpe, ids))
            return false;
        found = word_ids(bpe, word, n, &count);
        return found && append(ids, found, count);
    }
    if (bpe->count == AHEAD && !resolve(bpe, ids))
        return false;
    w = &bpe->words[(bpe->first + bpe->count++) % AHEAD];
    *w = (waiting){.word = word, .bytes = n, .key = {key_word(word, n, readable)}};
    if (n > 8)
        w->key[1] = key_word(word + 8, n - 8, readable - 8);
    if (n > 16)
        w->key[2] = key_word(word + 16, n - 16, readable - 16);
    hash = (w->key[0] ^ w->key[1] * 0x9e3779b97f4a7c15u ^ w->key[2] * 0xbf58476d1ce4e5b9u ^ n) *
           0x94d049bb133111ebu;
    w->place = &bpe->cache[hash >> (64 - CACHE_BITS)];
    __builtin_prefetch(w->place);
    return true;
}
