/*
 * tests/text/test_tokenizer_normal.c - a text in NFC is the same whether inert characters are
 * left out of it or not: random letters, marks, Hangul and characters that are never in NFC.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/encode_internal.h"
#include "nn/text/utf8_internal.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 12, TEXTS = 50000 };

static const uint32_t kinds[] = {
    'a',    'e',    ' ',    0xe9,   0x17f,   0x300,   0x301,   0x308,  0x323,  0x327,  0x338,
    0x340,  0x387,  0x3b1,  0x439,  0x438,   0x306,   0x5d0,   0x5b4,  0x627,  0x653,  0x915,
    0x93c,  0x958,  0x9c7,  0x9be,  0xe33,   0xf71,   0xf72,   0x1100, 0x1161, 0x11a8, 0x1e0b,
    0x2126, 0x212b, 0x2adc, 0x304b, 0x3099,  0x30ab,  0x4e00,  0xac00, 0xac01, 0xd7a3, 0xf900,
    0xfb1d, 0xfb2a, 0xfe0f, 0xff9e, 0x11099, 0x110ba, 0x1d15e, 0x1f600};

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static size_t random_text(uint64_t *state, uint8_t *text)
{
    size_t n = 0, length = draw(state) % MOST;

    for (size_t i = 0; i <= length; i++) {
        uint32_t code = draw(state) % 4 ? kinds[draw(state) % (sizeof kinds / sizeof *kinds)]
                                        : draw(state) % 0xd800;

        n += (size_t)wf_text_utf8_encode(code, text + n);
    }
    return n;
}

static void inert_characters_change_nothing(void)
{
    wf_tok_step_list list = {0};
    const wf_tok_step *step = wf_tok_step_add(&list, WF_TOK_STEP_NFC);
    wf_tok_step slow = {.kind = WF_TOK_STEP_NFC};
    wf_tok_bytes fast = {0}, whole = {0};
    uint64_t state = 1;
    size_t wrong = 0;
    wf_error error;

    CU_ASSERT_PTR_NOT_NULL_FATAL(step->inert);
    for (int k = 0; k < TEXTS; k++) {
        uint8_t text[4 * (MOST + 1)];
        size_t n = random_text(&state, text);

        fast.bytes = whole.bytes = 0;
        CU_ASSERT_EQUAL(wf_tok_normalize_step(step, NULL, text, n, &fast, &error), WF_OK);
        CU_ASSERT_EQUAL(wf_tok_normalize_step(&slow, NULL, text, n, &whole, &error), WF_OK);
        wrong += fast.bytes != whole.bytes || memcmp(fast.data, whole.data, fast.bytes) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    wf_tok_bytes_free(&fast);
    wf_tok_bytes_free(&whole);
    wf_tok_steps_free(&list);
}

int main(void)
{
    static const wf_test tests[] = {
        {"inert characters change nothing in NFC", inert_characters_change_nothing},
        {NULL, NULL}};

    return WEFT_HAS_UTF8PROC ? wf_test_main("tokenizer_normal", tests) : 0;
}
