/* nn/text/tokenizer/trainer_count.c - words of texts, and how often each is there. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/tokenizer/trainer_internal.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 1 << 12 };

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: words that are counted");
}

wf_status wf_tok_untrained(wf_tok **tokenizer, wf_error *error)
{
    const char *pattern = wf_tok_scan_pattern("llama3");
    wf_tok *t;

    if (wf_tok_open(NULL, &t, error) != WF_OK)
        return error->code;
    t->bytes = false;
    *tokenizer = t;
    if (wf_tok_load_split(t, pattern, strlen(pattern), "train-bpe", error) == WF_OK &&
        wf_tok_lexicon_end(&t->vocabulary, 0, 0, error) == WF_OK)
        return WF_OK;
    wf_tok_close(t);
    *tokenizer = NULL;
    return error->code;
}

wf_status wf_tok_counter_new(const wf_tok *untrained, wf_tok_counter **counter, wf_error *error)
{
    wf_tok_counter *c = calloc(1, sizeof *c);

    *counter = c;
    if (!c)
        return no_memory(error);
    c->tokenizer = untrained;
    c->mask = FIRST_SLOTS - 1;
    c->slots = calloc(FIRST_SLOTS, sizeof *c->slots);
    if (c->slots && wf_tok_matcher_open(&c->matcher))
        return WF_OK;
    wf_tok_counter_free(c);
    *counter = NULL;
    return no_memory(error);
}

void wf_tok_counter_free(wf_tok_counter *c)
{
    if (!c)
        return;
    wf_tok_matcher_close(&c->matcher);
    wf_tok_bytes_free(&c->valid);
    wf_tok_bytes_free(&c->texts);
    free(c->words);
    free(c->slots);
    free(c);
}

/* Returns the slot of a word, or the free one where it would be. */
static size_t slot_of(const wf_tok_counter *c, const void *word, size_t n)
{
    size_t i = wf_tok_hash(word, n) & c->mask;

    for (; c->slots[i]; i = (i + 1) & c->mask) {
        const wf_tok_counted_word *w = &c->words[c->slots[i] - 1];

        if (w->bytes == n && memcmp(c->texts.data + w->at, word, n) == 0)
            break;
    }
    return i;
}

/* Makes room for one word more. */
static bool grow(wf_tok_counter *c)
{
    size_t room = c->room ? 2 * c->room : FIRST_SLOTS / 2;
    wf_tok_counted_word *words = realloc(c->words, room * sizeof *words);
    uint32_t *slots;

    if (!words)
        return false;
    c->words = words;
    slots = room < UINT32_MAX / 2 ? calloc(2 * room, sizeof *slots) : NULL;
    if (!slots)
        return false;
    free(c->slots);
    c->slots = slots;
    c->room = room;
    c->mask = 2 * room - 1;
    for (size_t i = 0; i < c->count; i++)
        c->slots[slot_of(c, c->texts.data + c->words[i].at, c->words[i].bytes)] =
            (uint32_t)i + 1;
    return true;
}

static bool count_word(wf_tok_counter *c, const void *word, size_t n, int64_t times)
{
    size_t i = slot_of(c, word, n);

    if (c->slots[i]) {
        c->words[c->slots[i] - 1].count += times;
        return true;
    }
    if (c->count == c->room) {
        if (!grow(c))
            return false;
        i = slot_of(c, word, n);
    }
    c->words[c->count] = (wf_tok_counted_word){c->texts.bytes, (uint32_t)n, times};
    if (!wf_tok_bytes_add(&c->texts, word, n))
        return false;
    c->slots[i] = (uint32_t)++c->count;
    return true;
}

wf_status wf_tok_count(wf_tok_counter *c, const char *text, size_t bytes, wf_error *error)
{
    const wf_tok_pattern *pattern = &c->tokenizer->pre_tokenizers.steps[0].pattern;
    const uint8_t *from = (const uint8_t *)text;

    if (!wf_tok_valid_text(&c->valid, &from, &bytes))
        return no_memory(error);
    wf_tok_matcher_begin(&c->matcher, bytes);
    for (size_t at = 0, begin, end; at < bytes; at = end) {
        begin = at;
        end = wf_tok_pattern_scan(pattern, from, bytes, at);
        if (!end &&
            wf_tok_pattern_find(pattern, &c->matcher, from, bytes, at, &begin, &end) <= 0)
            return wf_tok_pattern_slow(pattern, error, at, bytes);
        if (end - begin > WF_TOK_MOST_WORD)
            return wf_error_set(error, WF_EDATA,
                                "a word of %zu bytes; at most %d are supported", end - begin,
                                WF_TOK_MOST_WORD);
        if (!count_word(c, from + begin, end - begin, 1))
            return no_memory(error);
    }
    return WF_OK;
}

wf_status wf_tok_counter_add(wf_tok_counter *c, const wf_tok_counter *other, wf_error *error)
{
    for (size_t i = 0; i < other->count; i++) {
        const wf_tok_counted_word *w = &other->words[i];

        if (!count_word(c, other->texts.data + w->at, w->bytes, w->count))
            return no_memory(error);
    }
    return WF_OK;
}
