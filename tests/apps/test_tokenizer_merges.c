/*
 * tests/apps/test_tokenizer_merges.c - merging in a word: which of two pairs comes first, words that were seen before,
 * words without end.
 */
#include "tests/apps/tokenizer_subject.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of pairs with one rank the first is merged: of n letters l, of which two are a token and no more are, each two and
   what is left; in words that are merged in place and in longer ones. */
static void first_pairs_come_first(void)
{
    char text[80];
    subject s;
    int32_t one, two;

    open_subject(&s, "gpt2.json");
    memset(text, 'l', sizeof text);
    one = app_tokenizer_id(s.tokenizer, "l", 1);
    two = app_tokenizer_id(s.tokenizer, "ll", 2);
    CU_ASSERT_TRUE_FATAL(one >= 0 && two >= 0 && app_tokenizer_id(s.tokenizer, "llll", 4) < 0);
    for (size_t n = 2; n < sizeof text; n++) {
        size_t wrong = 0;

        s.ids.count = 0;
        CU_ASSERT_EQUAL(app_tokenizer_encode(s.encoder, text, n, 0, &s.ids, &s.error), WF_OK);
        CU_ASSERT_EQUAL_FATAL(s.ids.count, n / 2 + n % 2);
        for (size_t i = 0; i < s.ids.count; i++)
            wrong += s.ids.data[i] != (i < n / 2 ? two : one);
        CU_ASSERT_EQUAL(wrong, 0);
    }
    close_subject(&s);
}

/* Words that were seen lately are known by all of their bytes: one that differs from another in a byte
   is what its own ids say. */
static void words_are_told_apart(void)
{
    subject s;

    open_subject(&s, "gpt2.json");
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++) {
            char word[40];

            memset(word, 'l', n);
            s.ids.count = 0;
            CU_ASSERT_EQUAL(app_tokenizer_encode(s.encoder, word, n, 0, &s.ids, &s.error),
                            WF_OK);
            word[at] = 'o';
            s.ids.count = 0;
            CU_ASSERT_EQUAL(app_tokenizer_encode(s.encoder, word, n, 0, &s.ids, &s.error),
                            WF_OK);
            app_tokenizer_decode(s.tokenizer, s.ids.data, s.ids.count, 0, &s.text, &s.error);
            CU_ASSERT_TRUE(s.text.bytes == n && memcmp(s.text.data, word, n) == 0);
            s.text.bytes = 0;
        }
    close_subject(&s);
}

/* Merging a word takes time that grows with its length and hardly faster: with its square, the longer one
   would take 256 times as long. */
static void words_without_end(void)
{
    enum { SHORT = 1 << 14, LONG = 1 << 18 };
    char *text = malloc(LONG);
    double seconds[2] = {1e9, 1e9};
    subject s;

    open_subject(&s, "llama2.json");
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < LONG; i++)
            text[i] = kind ? (char)('a' + (i ^ i >> 3) % 7) : 'a';
        for (int turn = 0; turn < 6; turn++) {
            clock_t begin = clock();
            double spent;

            s.ids.count = 0;
            CU_ASSERT_EQUAL(app_tokenizer_encode(s.encoder, text, turn % 2 ? LONG : SHORT, 0,
                                                 &s.ids, &s.error),
                            WF_OK);
            spent = (double)(clock() - begin) / CLOCKS_PER_SEC;
            seconds[turn % 2] = spent < seconds[turn % 2] ? spent : seconds[turn % 2];
        }
        CU_ASSERT_TRUE(seconds[1] < 100 * (seconds[0] + 1e-3));
    }
    free(text);
    close_subject(&s);
}

int main(void)
{
    static const wf_test tests[] = {
        {"of pairs with one rank the first is merged", first_pairs_come_first},
        {"words that differ in a byte are told apart", words_are_told_apart},
        {"words without end", words_without_end},
        {NULL, NULL}};

    return wf_test_main("tokenizer_merges", tests);
}
