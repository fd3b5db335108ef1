/*
 * tests/text/test_tokenizer_patterns.c - patterns: those that are matched by hand end where
 * PCRE2 ends them, in random text of all kinds of characters; windows change no match; a match
 * that takes too long is an error.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/pattern_internal.h"
#include "nn/text/tokenizer/tokenizer_internal.h"
#include "nn/text/utf8_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 24, TEXTS = UNDER_SANITIZER ? 2000 : 20000 };

static const char *const names[] = {"gpt2", "r50k",  "cl100k", "llama3",
                                    "qwen", "o200k", "tekken"};

/* Characters that patterns distinguish: letters of all cases and of none, marks, numbers, white
   space of one byte and more, what contractions are made of, and of planes without classes. */
static const uint32_t kinds[] = {
    'a',     'Z',     's',     'T',     'l',     'L',     'r',     'e',     'V',     'm',
    'd',     '\'',    '\'',    '\'',    ' ',     ' ',     ' ',     '\t',    '\n',    '\n',
    '\r',    '\v',    '/',     '.',     '7',     '0',     0,       0x7f,    0x85,    0xa0,
    0xad,    0xe9,    0xc9,    0x17f,   0x1c5,   0x2b0,   0x300,   0x308,   0x390,   0x436,
    0x416,   0x5d0,   0x661,   0x939,   0x93f,   0xe01,   0xe31,   0x180e,  0x1e9e,  0x2003,
    0x2028,  0x200d,  0x212a,  0x2167,  0x2460,  0x2581,  0x3000,  0x3042,  0x4e00,  0xac00,
    0xd7ff,  0xe000,  0xfe0f,  0xfffd,  0x10400, 0x10428, 0x1d7d8, 0x1f600, 0x20000, 0x3ffff,
    0x40000, 0xe0100, 0xf0000, 0x10ffff};

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static uint32_t character(uint64_t *state)
{
    uint32_t kind = draw(state) % 8, code;

    if (kind < 6)
        return kinds[draw(state) % (sizeof kinds / sizeof *kinds)];
    code = draw(state) % (kind == 6 ? 0x3000u : WF_TOK_CLASSES);
    return code >= 0xd800 && code < 0xe000 ? 0xfffd : code;
}

/* Writes a random text and returns its bytes. Now and then a character comes again, so that
   runs are long. */
static size_t random_text(uint64_t *state, uint8_t *text)
{
    size_t n = 0, length = draw(state) % MOST;
    uint32_t code = character(state);

    for (size_t i = 0; i <= length; i++) {
        n += (size_t)wf_text_utf8_encode(code, text + n);
        if (draw(state) % 4)
            code = character(state);
    }
    return n;
}

/* Walks through a text, and counts the matches that differ. Only near characters without a
   class nothing may be said. */
static size_t count_wrong(const wf_tok_pattern *p, wf_tok_matcher *m, const uint8_t *text,
                          size_t n)
{
    size_t wrong = 0, at = 0, begin, end;
    bool all_have_one = true;

    for (size_t i = 0; i < n; i++)
        all_have_one = all_have_one && text[i] < 0xf1;
    while (at < n) {
        size_t scanned = wf_tok_pattern_scan(p, text, n, at);

        if (wf_tok_pattern_find(p, m, text, n, at, &begin, &end) != 1)
            return wrong + 1;
        wrong += begin != at || (scanned ? scanned != end : all_have_one);
        at = end;
    }
    return wrong;
}

static void by_hand_as_by_pcre2(void)
{
    for (size_t i = 0; WEFT_HAS_PCRE2 && i < sizeof names / sizeof *names; i++) {
        const char *text = wf_tok_scan_pattern(names[i]);
        uint64_t state = 1;
        size_t wrong = 0;
        wf_tok_matcher m;
        wf_tok_pattern p;
        bool unsupported;

        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_PTR_NULL_FATAL(
            wf_tok_pattern_compile(&p, text, strlen(text), WF_TOK_PATTERN_RUST, &unsupported));
        CU_ASSERT_PTR_NOT_NULL_FATAL(p.scan);
        CU_ASSERT_TRUE_FATAL(wf_tok_matcher_open(&m));
        for (int k = 0; k < TEXTS; k++) {
            uint8_t bytes[4 * (MOST + 1)];
            size_t n = random_text(&state, bytes), different = count_wrong(&p, &m, bytes, n);

            if (different && !wrong) {
                printf("\n    %s:", names[i]);
                for (size_t b = 0; b < n; b++)
                    printf(" %02x", bytes[b]);
                printf("\n");
            }
            wrong += different;
        }
        CU_ASSERT_EQUAL(wrong, 0);
        wf_tok_matcher_close(&m);
        wf_tok_pattern_free(&p);
    }
}

/* Patterns that look ahead, behind, at ends of lines and texts, and further than their
   match. */
static const char *const looking[] = {"\\p{L}+(?=\\d)|.",
                                      "a+a+[cd]|\\s",
                                      "(?<=\\s)\\p{L}+|(?<!a)b+$|\\d{1,3}(?!\\d)",
                                      "\\s+\\Z|\\S+(?=\\s*$)|\\n+",
                                      "a\\Z|a\\n|[^q]",
                                      "^a+|^\\s+|[^\\s]",
                                      "(?:a|ab)+b?(?=.*z)|\\p{M}*[^a]\\p{M}+|7+",
                                      "\\A.|.\\z|b(?=a*?s)|(a+)\\1"};

static const char *compiled(wf_tok_pattern *p, const char *text, int syntax)
{
    bool unsupported;

    return wf_tok_pattern_compile(p, text, strlen(text), (wf_tok_pattern_syntax)syntax,
                                  &unsupported);
}

/* Counts the matches of a text that are others in windows of `bytes`. */
static size_t count_moved(const wf_tok_pattern *p, wf_tok_matcher *m, size_t bytes,
                          const uint8_t *text, size_t n)
{
    size_t moved = 0, at = 0, begin[2] = {0}, end[2] = {0};

    while (at < n) {
        int found[2];

        for (int k = 0; k < 2; k++) {
            m->window = k ? bytes : SIZE_MAX;
            found[k] = wf_tok_pattern_find(p, m, text, n, at, &begin[k], &end[k]);
        }
        if (found[0] != found[1] || found[0] < 0)
            return moved + 1;
        if (!found[0])
            break;
        moved += begin[0] != begin[1] || end[0] != end[1];
        at = end[0];
    }
    return moved;
}

static void windows_change_nothing(void)
{
    enum { LOOKED_AT = UNDER_SANITIZER ? 400 : 4000 };

    for (size_t i = 0; WEFT_HAS_PCRE2 && i < 2 * sizeof looking / sizeof *looking; i++) {
        uint64_t state = i;
        size_t moved = 0;
        wf_tok_matcher m;
        wf_tok_pattern p;

        CU_ASSERT_PTR_NULL_FATAL(
            compiled(&p, looking[i / 2], i % 2 ? WF_TOK_PATTERN_RUBY : WF_TOK_PATTERN_RUST));
        CU_ASSERT_TRUE_FATAL(wf_tok_matcher_open(&m));
        for (int k = 0; k < LOOKED_AT; k++) {
            static const char letters[] = "aaab \n7zs";
            uint8_t text[4 * (MOST + 1)];
            size_t n = random_text(&state, text);

            for (size_t b = 0; k % 2 && b < n; b++) /* few letters: most patterns match */
                text[b] = (uint8_t)letters[draw(&state) % 9];
            wf_tok_matcher_begin(&m, n);
            moved += count_moved(&p, &m, 1 + draw(&state) % 9, text, n);
        }
        CU_ASSERT_EQUAL(moved, 0);
        wf_tok_matcher_close(&m);
        wf_tok_pattern_free(&p);
    }
}

/* White space, and what is none, in a class and without one. */
static void spaces_in_classes(void)
{
    static const struct {
        const char *pattern;
        size_t begin, end;
    } cases[] = {{"[\\Sq]+", 1, 3}, {"[q\\s]+", 0, 1}, {"[^\\S]+", 0, 1}, {"\\S+", 1, 3}};

    for (size_t i = 0; WEFT_HAS_PCRE2 && i < sizeof cases / sizeof *cases; i++) {
        size_t begin = 0, end = 0;
        wf_tok_matcher m;
        wf_tok_pattern p;

        CU_ASSERT_PTR_NULL_FATAL(compiled(&p, cases[i].pattern, WF_TOK_PATTERN_RUST));
        CU_ASSERT_TRUE_FATAL(wf_tok_matcher_open(&m));
        CU_ASSERT_EQUAL(
            wf_tok_pattern_find(&p, &m, (const uint8_t *)" ab ", 4, 0, &begin, &end), 1);
        CU_ASSERT(begin == cases[i].begin && end == cases[i].end);
        wf_tok_matcher_close(&m);
        wf_tok_pattern_free(&p);
    }
}

/* Each of them reads a text of one letter from each of its bytes, or in more and more ways: for
   minutes, where it is long. */
static void too_long(void)
{
    enum { LETTERS = 1 << 20 };
    static const char *const slow[] = {"a(?=a*b)|a", "a+(?=c)|[^q]", "a+a+[cd]",
                                       "\\p{L}+(?=\\d)|\\s"};
    uint8_t *text = malloc(LETTERS);

    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'a', LETTERS);
    for (size_t i = 0; WEFT_HAS_PCRE2 && i < sizeof slow / sizeof *slow; i++) {
        size_t at = 0, begin;
        wf_tok_matcher m;
        wf_tok_pattern p;
        wf_error error = {0};
        int found = 1;

        CU_ASSERT_PTR_NULL_FATAL(compiled(&p, slow[i], WF_TOK_PATTERN_RUST));
        CU_ASSERT_TRUE_FATAL(wf_tok_matcher_open(&m));
        wf_tok_matcher_begin(&m, LETTERS);
        while (at < LETTERS && found > 0)
            found = wf_tok_pattern_find(&p, &m, text, LETTERS, at, &begin, &at);
        CU_ASSERT_EQUAL(found, -1);
        CU_ASSERT_EQUAL(wf_tok_pattern_slow(&p, &error, at, LETTERS), WF_EDATA);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, slow[i]));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "1048576 bytes"));
        wf_tok_matcher_close(&m);
        wf_tok_pattern_free(&p);
    }
    free(text);
}

int main(void)
{
    static const wf_test tests[] = {
        {"patterns by hand end where PCRE2 ends them", by_hand_as_by_pcre2},
        {"windows change no match", windows_change_nothing},
        {"white space in classes", spaces_in_classes},
        {"matches that take too long", too_long},
        {NULL, NULL}};

    return wf_test_main("tokenizer_patterns", tests);
}
