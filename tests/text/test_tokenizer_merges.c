/*
 * tests/text/test_tokenizer_merges.c - merging in a word: which of two pairs comes first, words
 * that were seen before, words without end.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/bpe_internal.h"
#include "tests/text/tokenizer_subject.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first of several pairs with one rank is merged: of n letters l, of which two are a token
   and no more are, each two and what is left; in words that are merged in place and in longer
   ones. */
static void first_pairs_come_first(void)
{
    char text[80];
    subject s;
    int32_t one, two;

    open_subject(&s, "gpt2.json");
    memset(text, 'l', sizeof text);
    one = wf_tok_id(s.tokenizer, "l", 1);
    two = wf_tok_id(s.tokenizer, "ll", 2);
    CU_ASSERT_TRUE_FATAL(one >= 0 && two >= 0 && wf_tok_id(s.tokenizer, "llll", 4) < 0);
    for (size_t n = 2; n < sizeof text; n++) {
        size_t wrong = 0;

        s.ids.count = 0;
        CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, text, n, 0, &s.ids, &s.error), WF_OK);
        CU_ASSERT_EQUAL_FATAL(s.ids.count, n / 2 + n % 2);
        for (size_t i = 0; i < s.ids.count; i++)
            wrong += s.ids.data[i] != (i < n / 2 ? two : one);
        CU_ASSERT_EQUAL(wrong, 0);
    }
    close_subject(&s);
}

/* Words that were seen lately are known by all of their bytes: one that differs from another in
   a byte is what its own ids say. */
static void words_are_distinguished(void)
{
    subject s;

    open_subject(&s, "gpt2.json");
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++) {
            char word[40];

            memset(word, 'l', n);
            s.ids.count = 0;
            CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, word, n, 0, &s.ids, &s.error), WF_OK);
            word[at] = 'o';
            s.ids.count = 0;
            CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, word, n, 0, &s.ids, &s.error), WF_OK);
            wf_tok_decode(s.tokenizer, s.ids.data, s.ids.count, 0, &s.text, &s.error);
            CU_ASSERT_TRUE(s.text.bytes == n && memcmp(s.text.data, word, n) == 0);
            s.text.bytes = 0;
        }
    close_subject(&s);
}

/* Merging a word takes time that grows with its length and hardly faster: with its square, the
   longer one would take 256 times as long. */
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
            CU_ASSERT_EQUAL(
                wf_tok_encode(s.encoder, text, turn % 2 ? LONG : SHORT, 0, &s.ids, &s.error),
                WF_OK);
            spent = (double)(clock() - begin) / CLOCKS_PER_SEC;
            seconds[turn % 2] = spent < seconds[turn % 2] ? spent : seconds[turn % 2];
        }
        CU_ASSERT_TRUE(seconds[1] < 100 * (seconds[0] + 1e-3));
    }
    free(text);
    close_subject(&s);
}

/* Merges as the definition says: each time, of all pairs, the leftmost of the lowest rank. */
static size_t merge_by_definition(const wf_tok_lexicon *v, int32_t *ids, size_t n)
{
    for (;;) {
        const wf_tok_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            const wf_tok_merge *pair = wf_tok_lexicon_pair(v, ids[i], ids[i + 1]);

            if (pair->rank != INT32_MAX && (!best || pair->rank < best->rank)) {
                best = pair;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->made;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

enum { MOST_LETTERS = 1000 };

static void merges_by_definition(subject *s, const char *text, size_t n)
{
    int32_t expected[MOST_LETTERS], got[MOST_LETTERS];
    wf_tok_long_words words = {0};
    size_t wanted, count = n;

    for (size_t i = 0; i < n; i++) {
        expected[i] = got[i] = wf_tok_id(s->tokenizer, text + i, 1);
        CU_ASSERT_TRUE_FATAL(got[i] >= 0);
    }
    wanted = merge_by_definition(&s->tokenizer->vocabulary, expected, n);
    CU_ASSERT_TRUE(wf_tok_long_words_merge(&words, &s->tokenizer->vocabulary, got, &count));
    CU_ASSERT_TRUE(count == wanted && memcmp(got, expected, count * sizeof *got) == 0);
    wf_tok_long_words_free(&words);
    s->ids.count = s->text.bytes = 0;
    CU_ASSERT_EQUAL(wf_tok_encode(s->encoder, text, n, 0, &s->ids, &s->error), WF_OK);
    for (size_t i = 0; i < s->ids.count; i++)
        CU_ASSERT_TRUE_FATAL(s->ids.data[i] >= 0);
}

/* Long words of random letters of which many are merged, against the definition: pairs are
   found in any order, and many are gone when their turn comes. */
static void long_words_by_definition(void)
{
    static const char *const files[] = {"gpt2.json", "llama2.json"};
    uint32_t random = 1;

    for (int file = 0; file < 2; file++) {
        subject s;

        open_subject(&s, files[file]);
        for (size_t n = 600; n <= MOST_LETTERS; n += 50) {
            char text[MOST_LETTERS];

            for (size_t i = 0; i < n; i++) {
                random = random * 1664525 + 1013904223;
                text[i] = "etaoinshr"[(random >> 16) % 9];
            }
            merges_by_definition(&s, text, n);
        }
        close_subject(&s);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"of pairs with one rank the first is merged", first_pairs_come_first},
        {"words that differ in a byte are distinguished", words_are_distinguished},
        {"words without end", words_without_end},
        {"long words by the definition", long_words_by_definition},
        {NULL, NULL}};

    return wf_test_main("tokenizer_merges", tests);
}
