/*
 * tests/text/test_tokenizer_patterns.c - the patterns that are matched by hand end where PCRE2
 * ends them, in random text of all kinds of characters.
 */
#include "nn/text/tokenizer/pattern_internal.h"
#include "nn/text/utf8_internal.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 24, TEXTS = 20000 };

static const char *const names[] = {"gpt2", "r50k",  "cl100k", "llama3",
                                    "qwen", "o200k", "tekken"};

/* Characters that patterns tell apart: letters of all cases and of none, marks, numbers, white
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
static size_t count_wrong(const wf_tok_pattern *p, const wf_tok_matcher *m, const uint8_t *text,
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

int main(void)
{
    static const wf_test tests[] = {
        {"patterns by hand end where PCRE2 ends them", by_hand_as_by_pcre2}, {NULL, NULL}};

    return wf_test_main("tokenizer_patterns", tests);
}
