/*
 * tests/text/test_tokenizer.c - ids equal to those that the tokenizers of others have given the
 * same strings (tests/text/tokenizers/make.py), text that comes back, threads.
 *
 * ctest: builds address thread, defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "tests/text/tokenizer_subject.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A recorded string; false behind the last one. */
static bool read_line(FILE *file, char **text, size_t *bytes, wf_tok_ids *ids)
{
    static char line[1 << 16];
    char *at, *end;

    if (!fgets(line, sizeof line, file))
        return false;
    at = strchr(line, '|');
    *bytes = (size_t)(at - line) / 2;
    *text = realloc(*text, *bytes + 1);
    for (size_t i = 0; i < *bytes; i++) {
        unsigned byte;

        sscanf(line + 2 * i, "%2x", &byte);
        (*text)[i] = (char)byte;
    }
    ids->count = 0;
    ids->room = strlen(at);
    ids->data = realloc(ids->data, (ids->room + 1) * sizeof *ids->data);
    for (at++;; at = end) {
        long id = strtol(at, &end, 10);

        if (end == at)
            return true;
        ids->data[ids->count++] = (int32_t)id;
    }
}

/* Decoding id by id gives what decoding all at once does, and no character in parts. */
static void streams(subject *s)
{
    wf_tok_stream stream = {0};
    wf_tok_bytes text = {0};

    s->text.bytes = 0;
    CU_ASSERT_EQUAL(
        wf_tok_decode(s->tokenizer, s->ids.data, s->ids.count, 0, &s->text, &s->error), WF_OK);
    for (size_t i = 0; i < s->ids.count; i++) {
        CU_ASSERT_EQUAL(
            wf_tok_decode_next(s->tokenizer, &stream, s->ids.data[i], 0, &text, &s->error),
            WF_OK);
        CU_ASSERT_TRUE(stream.held < 4);
    }
    CU_ASSERT_EQUAL(wf_tok_decode_end(&stream, &text, &s->error), WF_OK);
    CU_ASSERT_EQUAL(text.bytes, s->text.bytes);
    CU_ASSERT_TRUE(text.bytes == 0 || memcmp(text.data, s->text.data, text.bytes) == 0);
    wf_tok_bytes_free(&text);
}

/* The ids of all recorded strings, of files whose special tokens are recognised by those who
   recorded them. */
static void check_strings(const char *tokenizer, const char *name, size_t count, int flags)
{
    char path[512];
    wf_tok_ids wanted = {0};
    size_t bytes, lines = 0, wrong = 0;
    char *text = NULL;
    FILE *file;
    subject s;

    open_subject(&s, tokenizer);
    snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s.ids", name);
    file = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    while (read_line(file, &text, &bytes, &wanted)) {
        s.ids.count = 0;
        lines++;
        CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, text, bytes, flags, &s.ids, &s.error), WF_OK);
        if (s.ids.count != wanted.count ||
            (wanted.count &&
             memcmp(s.ids.data, wanted.data, wanted.count * sizeof *wanted.data) != 0)) {
            wrong++;
            printf("\n    %s: string %zu has other ids\n", name, lines);
        }
        streams(&s);
    }
    fclose(file);
    CU_ASSERT_EQUAL(lines, count);
    CU_ASSERT_EQUAL(wrong, 0);
    free(text);
    wf_tok_ids_free(&wanted);
    close_subject(&s);
}

static void check_recorded(const char *name, const char *ending, int special)
{
    char tokenizer[64];

    snprintf(tokenizer, sizeof tokenizer, "%s%s", name, ending);
    check_strings(tokenizer, name, 166, WF_TOK_TEMPLATE | special);
}

/* A missing package that a tokenizer needs is named. */
static void check_lacks(const char *name, const char *package)
{
    char path[512];
    wf_tok *tokenizer;
    wf_error error = {WF_OK, ""};

    snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s.json", name);
    CU_ASSERT_EQUAL(wf_tok_open(path, &tokenizer, &error), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, name));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, package));
}

static void ids_of_tokenizer_json(void)
{
    static const char *const names[] = {"gpt2",  "smollm", "llama3", "o200k", "deepseek",
                                        "front", "odd",    "gemma",  "dots"};

    check_recorded("metaspace", ".json", WF_TOK_SPECIAL);
    check_recorded("llama2", ".json", WF_TOK_SPECIAL);
    check_recorded("across", ".json", WF_TOK_SPECIAL);
    check_recorded("first", ".json", WF_TOK_SPECIAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (WEFT_HAS_PCRE2)
            check_recorded(names[i], ".json", WF_TOK_SPECIAL);
        else
            check_lacks(names[i], "libpcre2-dev");
    if (WEFT_HAS_PCRE2 && WEFT_HAS_UTF8PROC)
        check_recorded("qwen", ".json", WF_TOK_SPECIAL);
    else
        check_lacks("qwen", WEFT_HAS_UTF8PROC ? "libpcre2-dev" : "libutf8proc-dev");
}

/* Characters that Unicode got after some of PCRE2's versions. */
static void ids_of_young_characters(void)
{
    static const char *const names[] = {"gpt2", "llama3", "o200k", "deepseek"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char tokenizer[64], name[64];

        snprintf(tokenizer, sizeof tokenizer, "%s.json", names[i]);
        snprintf(name, sizeof name, "%s_young", names[i]);
        if (WEFT_HAS_PCRE2)
            check_strings(tokenizer, name, 21, WF_TOK_TEMPLATE);
    }
}

/* vocab.json with merges.txt, and tokens in each of the files beside them. */
static void ids_of_a_folder(void)
{
    if (WEFT_HAS_PCRE2)
        check_strings("merges", "merges", 166, WF_TOK_SPECIAL);
}

/* A character that is cut is one U+FFFD, and bytes that begin none one each. */
static void cut_characters_are_mended(void)
{
    static const char cut[] = "a\xe4\xbd"
                              "b\xff\xf0\x9f\x98",
                      mended[] = "a\ufffdb\ufffd\ufffd";
    wf_tok_bytes text = {0};

    CU_ASSERT(wf_tok_mend(cut, sizeof cut - 1, &text));
    CU_ASSERT_EQUAL(text.bytes, sizeof mended - 1);
    CU_ASSERT_EQUAL(memcmp(text.data, mended, sizeof mended - 1), 0);
    wf_tok_bytes_free(&text);
    for (size_t at = 0; at < sizeof cut; at++) { /* printed in two parts, it is the same */
        size_t first = wf_tok_whole(cut, at), bytes = 0;
        char *printed = NULL;
        FILE *out = open_memstream(&printed, &bytes);

        CU_ASSERT_TRUE(first <= at && at - first < 4);
        wf_tok_print(cut, first, out);
        wf_tok_print(cut + first, sizeof cut - 1 - first, out);
        fclose(out);
        CU_ASSERT_EQUAL(bytes, sizeof mended - 1);
        CU_ASSERT_EQUAL(memcmp(printed, mended, sizeof mended - 1), 0);
        free(printed);
    }
}

static void ids_of_other_files(void)
{
    if (WEFT_HAS_PCRE2)
        check_recorded("tekken", ".json", 0);
    else
        check_lacks("tekken", "libpcre2-dev");
    check_recorded("pieces", ".model", 0);
    check_recorded("pieces_unknown", ".model", 0);
}

/* Bytes of a byte-level vocabulary come back; special tokens are text unless they are asked
   for. */
static void text_comes_back(void)
{
    static const char text[] =
        "Hello \xf0\x9f\x98\x80<|endoftext|> \xd0\x9f\xd1\x80 12345\n\n  x";
    static const char end[] = "<|endoftext|>";
    subject s;
    size_t n;
    int32_t id;

    if (!WEFT_HAS_PCRE2) {
        check_lacks("gpt2", "libpcre2-dev");
        return;
    }
    open_subject(&s, "gpt2.json");
    for (int flags = 0; flags < 2; flags++) {
        s.ids.count = s.text.bytes = 0;
        CU_ASSERT_EQUAL(
            wf_tok_encode(s.encoder, text, sizeof text - 1, flags, &s.ids, &s.error), WF_OK);
        wf_tok_decode(s.tokenizer, s.ids.data, s.ids.count, 0, &s.text, &s.error);
        CU_ASSERT_EQUAL_FATAL(s.text.bytes, sizeof text - 1);
        CU_ASSERT_EQUAL(memcmp(s.text.data, text, sizeof text - 1), 0);
        s.text.bytes = 0;
        wf_tok_decode(s.tokenizer, s.ids.data, s.ids.count, WF_TOK_SKIP_SPECIAL, &s.text,
                      &s.error);
        CU_ASSERT_EQUAL(s.text.bytes, sizeof text - 1 - (flags ? sizeof end - 1 : 0));
    }
    id = wf_tok_id(s.tokenizer, end, sizeof end - 1);
    CU_ASSERT_EQUAL(id, 400);
    CU_ASSERT_TRUE(wf_tok_special(s.tokenizer, id));
    CU_ASSERT_EQUAL(memcmp(wf_tok_text(s.tokenizer, id, &n), end, sizeof end - 1), 0);
    CU_ASSERT_EQUAL(n, sizeof end - 1);
    CU_ASSERT_EQUAL(wf_tok_size(s.tokenizer), 401);
    CU_ASSERT_PTR_NULL(wf_tok_text(s.tokenizer, 401, &n));
    CU_ASSERT_EQUAL(wf_tok_id(s.tokenizer, "no such token", 13), -1);
    CU_ASSERT_EQUAL(wf_tok_decode(s.tokenizer, &(int32_t){401}, 1, 0, &s.text, &s.error),
                    WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error.text, "id 401 is no token"));
    close_subject(&s);
}

/* A character whose bytes are several tokens is given when its last one comes. */
static void characters_are_held_back(void)
{
    static const char smile[] = "\xf0\x9f\x98\x80";
    subject s = {0};
    wf_tok_stream stream = {0};

    CU_ASSERT_EQUAL_FATAL(wf_tok_open(NULL, &s.tokenizer, &s.error), WF_OK);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(s.text.bytes, 0);
        wf_tok_decode_next(s.tokenizer, &stream, (uint8_t)smile[i], 0, &s.text, &s.error);
    }
    CU_ASSERT_EQUAL(s.text.bytes, 4);
    /* A byte that can go on nothing is no reason to wait, and what waits is given in the
       end. */
    wf_tok_decode_next(s.tokenizer, &stream, 0x98, 0, &s.text, &s.error);
    CU_ASSERT_EQUAL(s.text.bytes, 5);
    wf_tok_decode_next(s.tokenizer, &stream, 0xe2, 0, &s.text, &s.error);
    wf_tok_decode_next(s.tokenizer, &stream, 'a', 0, &s.text, &s.error);
    CU_ASSERT_EQUAL(s.text.bytes, 7);
    wf_tok_decode_next(s.tokenizer, &stream, 0xe2, 0, &s.text, &s.error);
    CU_ASSERT_EQUAL(s.text.bytes, 7);
    wf_tok_decode_end(&stream, &s.text, &s.error);
    CU_ASSERT_EQUAL(s.text.bytes, 8);
    /* Bytes that begin a character are 0xc2 to 0xf4. */
    for (int begin = 0xc0; begin < 0x100; begin++) {
        s.text.bytes = 0;
        wf_tok_decode_next(s.tokenizer, &stream, begin, 0, &s.text, &s.error);
        CU_ASSERT_EQUAL(s.text.bytes, begin >= 0xc2 && begin <= 0xf4 ? 0 : 1);
        wf_tok_decode_end(&stream, &s.text, &s.error);
    }
    close_subject(&s);
}

static void bytes_are_tokens(void)
{
    subject s = {0};
    char all[256];

    CU_ASSERT_EQUAL_FATAL(wf_tok_open("bytes", &s.tokenizer, &s.error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(s.tokenizer, &s.encoder, &s.error), WF_OK);
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, all, 256, 3, &s.ids, &s.error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(s.ids.count, 256);
    for (int i = 0; i < 256; i++)
        CU_ASSERT_EQUAL(s.ids.data[i], i);
    wf_tok_decode(s.tokenizer, s.ids.data, 256, 0, &s.text, &s.error);
    CU_ASSERT_TRUE(s.text.bytes == 256 && memcmp(s.text.data, all, 256) == 0);
    CU_ASSERT_EQUAL(wf_tok_size(s.tokenizer), 256);
    CU_ASSERT_EQUAL(wf_tok_eos(s.tokenizer), -1);
    close_subject(&s);
}

typedef struct reader {
    const wf_tok *tokenizer;
    uint64_t sum;
    int number;
} reader;

static void *read_many(void *arg)
{
    reader *r = arg;
    wf_tok_encoder *encoder;
    wf_tok_ids ids = {0};
    wf_error error = {WF_OK, ""};
    char text[64];

    if (wf_tok_encoder_new(r->tokenizer, &encoder, &error) != WF_OK)
        return NULL;
    for (int i = 0; i < 500; i++) {
        int n =
            snprintf(text, sizeof text, "w%d \xc3\xa9t\xc3\xa9 %d's  end%d", i, i * 7, i % 9);

        ids.count = 0;
        wf_tok_encode(encoder, text, (size_t)n, 0, &ids, &error);
        for (size_t k = 0; k < ids.count; k++)
            r->sum = r->sum * 31 + (uint64_t)ids.data[k];
    }
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    return NULL;
}

static void threads_share_a_tokenizer(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    reader readers[THREADS] = {{0}};
    subject s;

    open_subject(&s, "llama2.json");
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (reader){.tokenizer = s.tokenizer, .number = i};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, read_many, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_TRUE(readers[i].sum != 0 && readers[i].sum == readers[0].sum);
    close_subject(&s);
}

/* A text that is cut where it may be has, in parts, the ids of the whole. */
static void parts_have_the_ids_of_the_whole(void)
{
    static const char *const names[] = {"gpt2.json", "smollm.json", "llama3.json",
                                        "o200k.json"};
    static const char text[] =
        "The 3 cats' 12 lives, don't 4x4\n\n  at a 7 \xc3\xa9t\xc3\xa9 b99 c "
        "I'LL  x y\tz   <|endoftext|> w v ";

    for (int i = 0; i < 4; i++) {
        wf_tok_ids parts = {.count = 0};
        int cuts = 0;
        subject s;

        open_subject(&s, names[i]);
        CU_ASSERT_EQUAL(wf_tok_encode(s.encoder, text, strlen(text), 0, &s.ids, &s.error),
                        WF_OK);
        for (size_t bytes = strlen(text); bytes; cuts++) {
            size_t at = wf_tok_cut(s.tokenizer, text, bytes);

            CU_ASSERT_TRUE_FATAL(at < bytes);
            parts.count = 0;
            wf_tok_encode(s.encoder, text, at, 0, &parts, &s.error);
            wf_tok_encode(s.encoder, text + at, strlen(text) - at, 0, &parts, &s.error);
            CU_ASSERT_EQUAL(parts.count, s.ids.count);
            CU_ASSERT_EQUAL(memcmp(parts.data, s.ids.data, parts.count * sizeof *parts.data),
                            0);
            bytes = at;
        }
        CU_ASSERT_TRUE(cuts > 8);
        wf_tok_ids_free(&parts);
        close_subject(&s);
    }
}

static const wf_test tests[] = {
#if WEFT_HAS_PCRE2
    {"parts have the ids of the whole", parts_have_the_ids_of_the_whole},
#endif
    {"ids of tokenizer.json", ids_of_tokenizer_json},
    {"ids of other files", ids_of_other_files},
    {"ids of young characters", ids_of_young_characters},
    {"ids of a folder", ids_of_a_folder},
    {"cut characters are mended", cut_characters_are_mended},
    {"text comes back", text_comes_back},
    {"characters are held back", characters_are_held_back},
    {"bytes are tokens", bytes_are_tokens},
    {"threads share a tokenizer", threads_share_a_tokenizer},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("tokenizer", tests);
}
