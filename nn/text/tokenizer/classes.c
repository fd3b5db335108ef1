/* nn/text/tokenizer/classes.c - which characters are letters, numbers and white space, as PCRE2
   has them. */
#include "nn/text/tokenizer/pattern_internal.h"
#include "nn/text/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *pattern;
    int class;
} rows[] = {
    {"[\\p{Lu}\\p{Lt}]+", WF_TOK_UPPER},  {"\\p{Ll}+", WF_TOK_LOWER},
    {"[\\p{Lm}\\p{Lo}]+", WF_TOK_LETTER}, {"\\p{M}+", WF_TOK_MARK | WF_TOK_OTHER},
    {"\\p{N}+", WF_TOK_NUMBER},           {"\\s+", WF_TOK_SPACE},
};

/* Lists all characters that have a class, one after the other. */
static size_t all_characters(uint8_t *text)
{
    size_t n = 0;

    for (uint32_t code = 0; code < WF_TOK_CLASSES; code++)
        if (code < 0xd800 || code > 0xdfff) /* surrogates are none */
            n += (size_t)wf_text_utf8_encode(code, text + n);
    return n;
}

/* Notes the class of what a pattern finds; false: it cannot be matched. */
static bool note(uint8_t *classes, const char *pattern, int class, const uint8_t *text,
                 size_t n)
{
    wf_tok_pattern p = {0};
    wf_tok_matcher m = {0};
    bool unsupported;
    int found = wf_tok_pattern_compile(&p, pattern, strlen(pattern), WF_TOK_PATTERN_RUST,
                                       &unsupported) ||
                        !wf_tok_matcher_open(&m)
                    ? -1
                    : 1;

    for (size_t at = 0, end; found > 0 && at < n;) {
        found = wf_tok_pattern_find(&p, &m, text, n, at, &at, &end);
        for (; found > 0 && at < end; at += (size_t)wf_text_utf8_bytes(text[at]))
            classes[wf_text_utf8_decode(text + at)] = (uint8_t) class;
    }
    wf_tok_matcher_close(&m);
    wf_tok_pattern_free(&p);
    return found >= 0;
}

uint8_t *wf_tok_classes_new(void)
{
    uint8_t *classes = malloc(WF_TOK_CLASSES), *text = malloc(4 * WF_TOK_CLASSES);
    bool ok = classes && text;
    size_t n = text ? all_characters(text) : 0;

    if (ok)
        memset(classes, WF_TOK_OTHER, WF_TOK_CLASSES);
    for (size_t i = 0; ok && i < sizeof rows / sizeof *rows; i++)
        ok = note(classes, rows[i].pattern, rows[i].class, text, n);
    free(text);
    if (!ok) {
        free(classes);
        return NULL;
    }
    classes['\r'] = classes['\n'] = WF_TOK_LINE_END;
    return classes;
}
