/*
 * nn/text/tokenizer/scan.c - the patterns of patterns.def, by hand. A run that ends at a
 * character without a class may continue there, and is left to PCRE2.
 */
#include "nn/text/tokenizer/pattern_internal.h"
#include <string.h>

enum { BLANK = WF_TOK_SPACE | WF_TOK_LINE_END };

/* Returns whether a character is one of planes 4 to 16, which have no class. */
static bool wide_at(const uint8_t *text, size_t n, size_t at)
{
    return at < n && text[at] >= 0xf1;
}

static inline size_t bytes_at(const uint8_t *text, size_t at)
{
    return text[at] < 0x80 ? 1 : text[at] < 0xe0 ? 2 : text[at] < 0xf0 ? 3 : 4;
}

/* Returns the class of a character of more than one byte; 0: it has none. */
static inline int wide_class(const uint8_t *classes, const uint8_t *c)
{
    if (c[0] < 0xe0)
        return classes[(c[0] & 0x1f) << 6 | (c[1] & 0x3f)];
    if (c[0] < 0xf0)
        return classes[(c[0] & 0xf) << 12 | (c[1] & 0x3f) << 6 | (c[2] & 0x3f)];
    if (c[0] > 0xf0)
        return 0;
    return classes[(c[1] & 0x3f) << 12 | (c[2] & 0x3f) << 6 | (c[3] & 0x3f)];
}

static inline int class_at(const uint8_t *classes, const uint8_t *text, size_t at)
{
    return text[at] < 0x80 ? classes[text[at]] : wide_class(classes, text + at);
}

/* Returns where characters of some classes end. */
static inline size_t run_of(int class, const uint8_t *classes, const uint8_t *text, size_t n,
                            size_t at)
{
    while (at < n && class_at(classes, text, at) & class)
        at += bytes_at(text, at);
    return at;
}

/* Returns the bytes of 's, 't, 'm, 'd, 're, 've or 'll, which begins at `at`; 0: none does.
   With `fold` in any case: that of s has U+017F, too. */
static size_t contraction(const uint8_t *text, size_t n, size_t at, bool fold)
{
    int lower = fold ? 32 : 0;
    int first = at + 1 < n ? text[at + 1] | lower : 0,
        second = at + 2 < n ? text[at + 2] | lower : 0;

    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if (fold && at + 2 < n && text[at + 1] == 0xc5 && text[at + 2] == 0xbf)
        return 3;
    return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')
               ? 3
               : 0;
}

/* White space from `at` on: all of it where the text ends, else without what stands before the
   next word. With `by_line` up to the last line end, if it has one. */
static size_t blanks(const wf_tok_scan *scan, bool by_line, const uint8_t *classes,
                     const uint8_t *text, size_t n, size_t at)
{
    size_t end = at, last = at, line = 0;
    int class;

    while (end < n && (class = class_at(classes, text, end)) & BLANK) {
        last = end;
        end += bytes_at(text, end);
        if (class == WF_TOK_LINE_END)
            line = end;
    }
    if (wide_at(text, n, end))
        return 0;
    if (by_line && line && !(end == n && scan->trailing_whole))
        return line;
    return end < n && last > at ? last : end;
}

static size_t wf_tok_scan_gpt2(const wf_tok_scan *scan, const uint8_t *classes,
                               const uint8_t *text, size_t n, size_t at)
{
    size_t word = at, end;
    int class;

    if (text[at] == '\'') {
        size_t bytes = contraction(text, n, at, false);

        if (bytes)
            return at + bytes;
    }
    if (text[at] == ' ' && at + 1 < n && !(class_at(classes, text, at + 1) & BLANK))
        word++;
    class = class_at(classes, text, word);
    if (class & BLANK)
        return blanks(scan, false, classes, text, n, at);
    class = class & WF_TOK_LETTER ? WF_TOK_LETTER : class & (WF_TOK_NUMBER | WF_TOK_OTHER);
    end = run_of(class, classes, text, n, word);
    return end == word || wide_at(text, n, end) ? 0 : end;
}

/* Returns the end of a part that is no word: numbers, marks with their line ends, white
   space. */
static size_t no_word(const wf_tok_scan *scan, const uint8_t *classes, const uint8_t *text,
                      size_t n, size_t at)
{
    size_t end = at;
    int digits = 0;

    while (end < n && digits < scan->most_digits &&
           class_at(classes, text, end) == WF_TOK_NUMBER) {
        end += bytes_at(text, end);
        digits++;
    }
    if (digits)
        return digits < scan->most_digits && wide_at(text, n, end) ? 0 : end;
    if (text[at] == ' ' && at + 1 < n && class_at(classes, text, at + 1) & WF_TOK_OTHER)
        end++;
    if (!(class_at(classes, text, end) & WF_TOK_OTHER))
        return blanks(scan, true, classes, text, n, at);
    end = run_of(WF_TOK_OTHER, classes, text, n, end);
    if (wide_at(text, n, end))
        return 0;
    while (end < n &&
           (text[end] == '\r' || text[end] == '\n' || (scan->slash && text[end] == '/')))
        end++;
    return end;
}

/* Returns where a word begins: at characters of these classes, here or after one character that
   is neither letter, number nor line end; n where none does, and n + 1 where a character
   without a class has to be read. */
static inline size_t word_at(int letters, const uint8_t *classes, const uint8_t *text, size_t n,
                             size_t at)
{
    int class = class_at(classes, text, at);
    size_t after;

    if (class & WF_TOK_LETTER)
        return at;
    if (class == 0)
        return n + 1;
    after = at + bytes_at(text, at);
    if (class == WF_TOK_NUMBER || class == WF_TOK_LINE_END || after == n)
        return n;
    class = class_at(classes, text, after);
    return class & letters ? after : class ? n : n + 1;
}

static size_t wf_tok_scan_words(const wf_tok_scan *scan, const uint8_t *classes,
                                const uint8_t *text, size_t n, size_t at)
{
    size_t word = word_at(WF_TOK_LETTER, classes, text, n, at), end;

    if (word > n)
        return 0;
    if (text[at] == '\'' && word < n) {
        size_t bytes = contraction(text, n, at, true);

        if (bytes)
            return at + bytes;
    }
    if (word == n)
        return no_word(scan, classes, text, n, at);
    end = run_of(WF_TOK_LETTER, classes, text, n, word);
    return wide_at(text, n, end) ? 0 : end;
}

/* Returns the end of letters from `at` on, first those that are not of lower case, then those
   that are not of upper case. Letters without case, as marks, count as both. The second ones
   may be none where `upper` allows it; otherwise the first ones give way. `at`: no match. */
static size_t cased_letters(const uint8_t *classes, const uint8_t *text, size_t n, size_t at,
                            bool upper)
{
    size_t end = at, both = at;
    int class = 0;

    while (end < n && (class = class_at(classes, text, end)) & (WF_TOK_UPPER | WF_TOK_MARK)) {
        end += bytes_at(text, end);
        if (class & (WF_TOK_LOWER | WF_TOK_MARK))
            both = end;
    }
    if (wide_at(text, n, end))
        return end;
    if (end < n && class & WF_TOK_LOWER)
        return run_of(WF_TOK_LOWER | WF_TOK_MARK, classes, text, n, end);
    return both > at || !upper ? both : end;
}

static size_t wf_tok_scan_cased(const wf_tok_scan *scan, const uint8_t *classes,
                                const uint8_t *text, size_t n, size_t at)
{
    size_t word = word_at(WF_TOK_LETTER | WF_TOK_MARK, classes, text, n, at), end;
    bool mark = class_at(classes, text, at) & WF_TOK_MARK;

    if (word > n)
        return 0;
    if (word == n && !mark)
        return no_word(scan, classes, text, n, at);
    end = word == n ? n : cased_letters(classes, text, n, word, !mark);
    if (end == word) /* a mark, and no letters after it that it could belong to */
        end = at + bytes_at(text, at);
    if (wide_at(text, n, end))
        return 0;
    return scan->contractions && end < n && text[end] == '\''
               ? end + contraction(text, n, end, true)
               : end;
}

static const struct {
    const char *name, *text;
    wf_tok_scan scan;
} rows[] = {
#define PATTERN(name, family, digits, contractions, slash, trailing, text)                     \
    {#name, text, {family, digits, contractions, slash, trailing}},
#include "nn/text/tokenizer/patterns.def"
#undef PATTERN
};

const wf_tok_scan *wf_tok_scan_find(const char *pattern, size_t bytes)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].text) == bytes && memcmp(rows[i].text, pattern, bytes) == 0)
            return &rows[i].scan;
    return NULL;
}

const char *wf_tok_scan_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].text;
    return NULL;
}
