/* apps/tokenizer/trainer_count.c - words of texts, and how often each is there. */
#include "apps/tokenizer/load_internal.h"
#include "apps/tokenizer/trainer_internal.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_PLACES = 1 << 12 };

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: words that are counted");
}

wf_status app_tokenizer_untrained(app_tokenizer **tokenizer, wf_error *error)
{
    const char *pattern = app_scan_pattern("llama3");
    app_tokenizer *t;

    if (app_tokenizer_open(NULL, &t, error) != WF_OK)
        return error->code;
    t->bytes = false;
    *tokenizer = t;
    if (app_load_split(t, pattern, strlen(pattern), "train-bpe", error) == WF_OK &&
        app_lexicon_end(&t->vocabulary, 0, 0, error) == WF_OK)
        return WF_OK;
    app_tokenizer_close(t);
    *tokenizer = NULL;
    return error->code;
}

wf_status app_tokenizer_counter_new(const app_tokenizer *untrained,
                                    app_tokenizer_counter **counter, wf_error *error)
{
    app_tokenizer_counter *c = calloc(1, sizeof *c);

    *counter = c;
    if (!c)
        return no_memory(error);
    c->tokenizer = untrained;
    c->mask = FIRST_PLACES - 1;
    c->places = calloc(FIRST_PLACES, sizeof *c->places);
    if (c->places && app_matcher_open(&c->matcher))
        return WF_OK;
    app_tokenizer_counter_free(c);
    *counter = NULL;
    return no_memory(error);
}

void app_tokenizer_counter_free(app_tokenizer_counter *c)
{
    if (!c)
        return;
    app_matcher_close(&c->matcher);
    app_tokenizer_bytes_free(&c->valid);
    app_tokenizer_bytes_free(&c->texts);
    free(c->words);
    free(c->places);
    free(c);
}

/* The place of a word, or the free one where it would be. */
static size_t place_of(const app_tokenizer_counter *c, const void *word, size_t n)
{
    size_t i = app_hash(word, n) & c->mask;

    for (; c->places[i]; i = (i + 1) & c->mask) {
        const app_counted_word *w = &c->words[c->places[i] - 1];

        if (w->bytes == n && memcmp(c->texts.data + w->at, word, n) == 0)
            break;
    }
    return i;
}

/* Room for one word more. */
static bool grow(app_tokenizer_counter *c)
{
    size_t room = c->room ? 2 * c->room : FIRST_PLACES / 2;
    app_counted_word *words = realloc(c->words, room * sizeof *words);
    uint32_t *places;

    if (!words)
        return false;
    c->words = words;
    places = room < UINT32_MAX / 2 ? calloc(2 * room, sizeof *places) : NULL;
    if (!places)
        return false;
    free(c->places);
    c->places = places;
    c->room = room;
    c->mask = 2 * room - 1;
    for (size_t i = 0; i < c->count; i++)
        c->places[place_of(c, c->texts.data + c->words[i].at, c->words[i].bytes)] =
            (uint32_t)i + 1;
    return true;
}

static bool count_word(app_tokenizer_counter *c, const void *word, size_t n, int64_t times)
{
    size_t i = place_of(c, word, n);

    if (c->places[i]) {
        c->words[c->places[i] - 1].count += times;
        return true;
    }
    if (c->count == c->room) {
        if (!grow(c))
            return false;
        i = place_of(c, word, n);
    }
    c->words[c->count] = (app_counted_word){c->texts.bytes, (uint32_t)n, times};
    if (!app_tokenizer_bytes_add(&c->texts, word, n))
        return false;
    c->places[i] = (uint32_t)++c->count;
    return true;
}

wf_status app_tokenizer_count(app_tokenizer_counter *c, const char *text, size_t bytes,
                              wf_error *error)
{
    const app_pattern *pattern = &c->tokenizer->pre_tokenizers.steps[0].pattern;
    const uint8_t *from = (const uint8_t *)text;

    if (!app_valid_text(&c->valid, &from, &bytes))
        return no_memory(error);
    for (size_t at = 0, begin, end; at < bytes; at = end) {
        begin = at;
        end = app_pattern_scan(pattern, from, bytes, at);
        if (!end && app_pattern_find(pattern, &c->matcher, from, bytes, at, &begin, &end) <= 0)
            return wf_error_set(error, WF_EDATA,
                                "the pattern of words takes too long at byte %zu", at);
        if (end - begin > APP_MOST_WORD)
            return wf_error_set(error, WF_EDATA,
                                "a word of %zu bytes; at most %d are supported", end - begin,
                                APP_MOST_WORD);
        if (!count_word(c, from + begin, end - begin, 1))
            return no_memory(error);
    }
    return WF_OK;
}

wf_status app_tokenizer_counter_add(app_tokenizer_counter *c,
                                    const app_tokenizer_counter *other, wf_error *error)
{
    for (size_t i = 0; i < other->count; i++) {
        const app_counted_word *w = &other->words[i];

        if (!count_word(c, other->texts.data + w->at, w->bytes, w->count))
            return no_memory(error);
    }
    return WF_OK;
}
