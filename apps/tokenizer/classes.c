/* apps/tokenizer/classes.c - which characters are letters, numbers and white space, as PCRE2 has them. */
#include "apps/tokenizer/pattern_internal.h"
#include "apps/tokenizer/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *pattern;
    int class;
} rows[] = {
    {"[\\p{Lu}\\p{Lt}]+", APP_UPPER},  {"\\p{Ll}+", APP_LOWER},
    {"[\\p{Lm}\\p{Lo}]+", APP_LETTER}, {"\\p{M}+", APP_MARK | APP_OTHER},
    {"\\p{N}+", APP_NUMBER},           {"\\s+", APP_SPACE},
};

/* All characters that have a class, one behind the other. */
static size_t all_characters(uint8_t *text)
{
    size_t n = 0;

    for (uint32_t code = 0; code < APP_CLASSES; code++)
        if (code < 0xd800 || code > 0xdfff) /* surrogates are none */
            n += (size_t)app_utf8_encode(code, text + n);
    return n;
}

/* Notes the class of what a pattern finds; false: it cannot be matched. */
static bool note(uint8_t *classes, const char *pattern, int class, const uint8_t *text,
                 size_t n)
{
    app_pattern p = {0};
    app_matcher m = {0};
    bool unsupported;
    int found =
        app_pattern_compile(&p, pattern, strlen(pattern), APP_PATTERN_RUST, &unsupported) ||
                !app_matcher_open(&m)
            ? -1
            : 1;

    for (size_t at = 0, end; found > 0 && at < n;) {
        found = app_pattern_find(&p, &m, text, n, at, &at, &end);
        for (; found > 0 && at < end; at += (size_t)app_utf8_bytes(text[at]))
            classes[app_utf8_decode(text + at)] = (uint8_t) class;
    }
    app_matcher_close(&m);
    app_pattern_free(&p);
    return found >= 0;
}

uint8_t *app_classes_new(void)
{
    uint8_t *classes = malloc(APP_CLASSES), *text = malloc(4 * APP_CLASSES);
    bool ok = classes && text;
    size_t n = text ? all_characters(text) : 0;

    if (ok)
        memset(classes, APP_OTHER, APP_CLASSES);
    for (size_t i = 0; ok && i < sizeof rows / sizeof *rows; i++)
        ok = note(classes, rows[i].pattern, rows[i].class, text, n);
    free(text);
    if (!ok) {
        free(classes);
        return NULL;
    }
    classes['\r'] = classes['\n'] = APP_LINE_END;
    return classes;
}
