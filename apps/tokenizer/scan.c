/*
 * apps/tokenizer/scan.c - the patterns of patterns.def, by hand. A run of bytes of one class that ends at
 * something other than ASCII may go on there, and is left to PCRE2.
 */
#include "apps/tokenizer/pattern_internal.h"
#include <string.h>

enum { OTHER, UPPER = 1, LOWER = 2, NUMBER = 4, SPACE = 8, LINE_END = 16, WIDE = 32 };
enum { LETTER = UPPER | LOWER, BLANK = SPACE | LINE_END };

#define U4  UPPER, UPPER, UPPER, UPPER
#define L4  LOWER, LOWER, LOWER, LOWER
#define W8  WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE
#define W32 W8, W8, W8, W8
static const uint8_t class_of[256] = {['\t'] = SPACE,
                                      ['\n'] = LINE_END,
                                      ['\v'] = SPACE,
                                      ['\f'] = SPACE,
                                      ['\r'] = LINE_END,
                                      [' '] = SPACE,
                                      ['0'] = NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      NUMBER,
                                      ['A'] = U4,
                                      U4,
                                      U4,
                                      U4,
                                      U4,
                                      U4,
                                      UPPER,
                                      UPPER,
                                      ['a'] = L4,
                                      L4,
                                      L4,
                                      L4,
                                      L4,
                                      L4,
                                      LOWER,
                                      LOWER,
                                      [128] = W32,
                                      W32,
                                      W32,
                                      W32};

static bool letter(uint8_t c)
{
    return class_of[c] & LETTER;
}

static bool blank(uint8_t c)
{
    return class_of[c] & BLANK;
}

static bool wide_at(const uint8_t *text, size_t n, size_t at)
{
    return at < n && text[at] >= 128;
}

static size_t letters(const uint8_t *text, size_t n, size_t at)
{
    while (at < n && letter(text[at]))
        at++;
    return at;
}

static size_t run_of(int class, const uint8_t *text, size_t n, size_t at)
{
    while (at < n && class_of[text[at]] == class)
        at++;
    return at;
}

/* The bytes of 's, 't, 'm, 'd, 're, 've or 'll, which begins at `at`; 0: none does. */
static size_t contraction(const uint8_t *text, size_t n, size_t at, int fold)
{
    int first = at + 1 < n ? text[at + 1] | fold : 0,
        second = at + 2 < n ? text[at + 2] | fold : 0;

    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')
               ? 3
               : 0;
}

/* White space from `at` on: all of it where the text ends, else without what stands before the next word. */
static size_t spaces(const uint8_t *text, size_t n, size_t at)
{
    size_t end = at;

    while (end < n && blank(text[end]))
        end++;
    if (wide_at(text, n, end))
        return 0;
    return end < n && end - at > 1 ? end - 1 : end;
}

/* The same where lines end: up to the last line end. */
static size_t lines(const app_scan *scan, const uint8_t *text, size_t n, size_t at)
{
    size_t end = at, line = 0;

    for (; end < n && blank(text[end]); end++)
        line = class_of[text[end]] == LINE_END ? end + 1 : line;
    if (wide_at(text, n, end))
        return 0;
    if (end == n && scan->trailing_whole)
        return n;
    if (line)
        return line;
    return end < n && end - at > 1 ? end - 1 : end;
}

static size_t app_scan_gpt2(const app_scan *scan, const uint8_t *text, size_t n, size_t at)
{
    size_t word = at, end;

    if (text[at] == '\'') {
        size_t bytes = contraction(text, n, at, 0);

        if (bytes)
            return at + bytes;
    }
    if (text[at] == ' ' && at + 1 < n && !blank(text[at + 1]))
        word++;
    if (text[word] >= 128)
        return 0;
    if (blank(text[word]))
        return spaces(text, n, at);
    end = letter(text[word]) ? letters(text, n, word)
                             : run_of(class_of[text[word]], text, n, word);
    (void)scan;
    return wide_at(text, n, end) ? 0 : end;
}

/* What is no letter: numbers, marks with what ends their line, white space. */
static size_t no_word(const app_scan *scan, const uint8_t *text, size_t n, size_t at)
{
    size_t end = at;

    if (class_of[text[at]] == NUMBER) {
        while (end < n && class_of[text[end]] == NUMBER && end - at < (size_t)scan->most_digits)
            end++;
        return end - at < (size_t)scan->most_digits && wide_at(text, n, end) ? 0 : end;
    }
    if (text[at] == ' ' && at + 1 < n && class_of[text[at + 1]] == OTHER)
        end++;
    if (class_of[text[end]] != OTHER)
        return lines(scan, text, n, at);
    end = run_of(OTHER, text, n, end);
    if (wide_at(text, n, end))
        return 0;
    while (end < n && (class_of[text[end]] == LINE_END || (scan->slash && text[end] == '/')))
        end++;
    return end;
}

/* Where a word's letters begin: behind one byte that is neither letter, number nor line end, or here; n
   where no word begins, and n + 1 where more than ASCII has to be looked at. */
static size_t word_at(const uint8_t *text, size_t n, size_t at)
{
    int class = class_of[text[at]];

    if (class == WIDE)
        return n + 1;
    if (class == UPPER || class == LOWER)
        return at;
    if (class == NUMBER || class == LINE_END || at + 1 == n)
        return n;
    return letter(text[at + 1]) ? at + 1 : text[at + 1] >= 128 ? n + 1 : n;
}

static size_t app_scan_words(const app_scan *scan, const uint8_t *text, size_t n, size_t at)
{
    size_t word = word_at(text, n, at), end;

    if (word > n)
        return 0;
    if (text[at] == '\'' && word < n) {
        size_t bytes = contraction(text, n, at, 32);

        if (bytes)
            return at + bytes;
    }
    if (word == n)
        return no_word(scan, text, n, at);
    end = letters(text, n, word);
    return wide_at(text, n, end) ? 0 : end;
}

static size_t app_scan_cased(const app_scan *scan, const uint8_t *text, size_t n, size_t at)
{
    size_t word = word_at(text, n, at), end;

    if (word >= n)
        return word > n ? 0 : no_word(scan, text, n, at);
    end = run_of(LOWER, text, n, run_of(UPPER, text, n, word));
    if (wide_at(text, n, end))
        return 0;
    if (!scan->contractions || end == n || text[end] != '\'')
        return end;
    return wide_at(text, n, end + 1) ? 0 : end + contraction(text, n, end, 32);
}

static const struct {
    const char *name, *text;
    app_scan scan;
} rows[] = {
#define PATTERN(name, family, digits, contractions, slash, trailing, text)                     \
    {#name, text, {family, digits, contractions, slash, trailing}},
#include "apps/tokenizer/patterns.def"
#undef PATTERN
};

const app_scan *app_scan_find(const char *pattern, size_t bytes)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].text) == bytes && memcmp(rows[i].text, pattern, bytes) == 0)
            return &rows[i].scan;
    return NULL;
}

const char *app_scan_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].text;
    return NULL;
}
