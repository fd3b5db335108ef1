/*
 * tests/parallel/test_gguf_read.c - headers of GGUF files: what is written is read, what is
 * damaged is refused with its name; and numbers of all types.
 *
 * ctest: links weft_allocations
 */
#include "parallel/formats/gguf_internal.h"
#include "tests/allocations.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 2, DATA = 256 };

static const wf_par_gguf_text texts[] = {{"a", 1}, {"\0b", 2}, {"", 0}};

/* A header with keys of every kind and two tensors, and the room of their data behind it.
   Owner: caller. */
static char *written(int64_t *size)
{
    const wf_par_gguf_key keys[] = {
        {"i32", WF_PAR_GGUF_I32, false, 0, &(int32_t){-7}},
        {"u32", WF_PAR_GGUF_U32, false, 0, &(uint32_t){4000000000u}},
        {"i64", WF_PAR_GGUF_I64, false, 0, &(int64_t){-(1LL << 40)}},
        {"f32", WF_PAR_GGUF_F32, false, 0, &(float){0.5f}},
        {"f64", WF_PAR_GGUF_F64, true, 2, (double[]){1e300, -0.25}},
        {"bool", WF_PAR_GGUF_BOOL, false, 0, &(bool){true}},
        {"texts", WF_PAR_GGUF_TEXT, true, 3, texts},
        {"none", WF_PAR_GGUF_I32, true, 0, texts}};
    wf_gguf_tensor tensors[TENSORS] = {
        {.name = "w", .type = WF_GGUF_Q8_0, .ndim = 2, .shape = {2, 64}},
        {.name = "b", .type = WF_GGUF_F32, .ndim = 1, .shape = {10}}};
    wf_gguf_header h = {.bytes = NULL};
    wf_error error = {WF_OK, ""};
    int64_t data;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        wf_gguf_put(&h, &keys[i]);
    CU_ASSERT_EQUAL_FATAL(wf_gguf_end(&h, tensors, TENSORS, &data, &error), WF_OK);
    h.bytes = realloc(h.bytes, h.count + DATA);
    memset(h.bytes + h.count, 0, DATA);
    *size = (int64_t)h.count + DATA;
    return h.bytes;
}

/* The status of reading `have` bytes of a file of `size`; g keeps what was read. */
static wf_status read_some(wf_par_gguf *g, const char *bytes, size_t have, int64_t size,
                           bool *more, wf_error *error)
{
    *g = (wf_par_gguf){.bytes = malloc(have + 1)};
    *error = (wf_error){WF_OK, ""};
    memcpy(g->bytes, bytes, have);
    return wf_gguf_parse(g, "x.gguf", have, size, more, error);
}

static void what_is_written_is_read(void)
{
    int64_t size;
    char *bytes = written(&size);
    const wf_par_gguf_key *k;
    const wf_gguf_tensor *t;
    wf_error error;
    wf_par_gguf g;
    bool more;

    CU_ASSERT_EQUAL_FATAL(read_some(&g, bytes, (size_t)size, size, &more, &error), WF_OK);
    CU_ASSERT(!more && g.keys == 8 && g.tensors == TENSORS && g.data == size - DATA);
    k = wf_par_gguf_find(&g, "i32", WF_PAR_GGUF_I64, false, &error);
    CU_ASSERT(k && *(const int64_t *)k->values == -7);
    k = wf_par_gguf_find(&g, "u32", WF_PAR_GGUF_I64, false, &error);
    CU_ASSERT(k && *(const int64_t *)k->values == 4000000000);
    k = wf_par_gguf_find(&g, "i64", WF_PAR_GGUF_I64, false, &error);
    CU_ASSERT(k && *(const int64_t *)k->values == -(1LL << 40));
    k = wf_par_gguf_find(&g, "f32", WF_PAR_GGUF_F64, false, &error);
    CU_ASSERT(k && *(const double *)k->values == 0.5);
    k = wf_par_gguf_find(&g, "f64", WF_PAR_GGUF_F64, true, &error);
    CU_ASSERT(k && k->count == 2 && ((const double *)k->values)[0] == 1e300);
    k = wf_par_gguf_find(&g, "bool", WF_PAR_GGUF_BOOL, false, &error);
    CU_ASSERT(k && *(const bool *)k->values);
    k = wf_par_gguf_find(&g, "texts", WF_PAR_GGUF_TEXT, true, &error);
    CU_ASSERT_FATAL(k && k->count == 3);
    for (int i = 0; i < 3; i++) {
        const wf_par_gguf_text *text = (const wf_par_gguf_text *)k->values + i;

        CU_ASSERT(text->bytes == texts[i].bytes &&
                  memcmp(text->text, texts[i].text, (size_t)text->bytes) == 0);
    }
    CU_ASSERT_PTR_NULL(wf_par_gguf_find(&g, "nowhere", WF_PAR_GGUF_TEXT, false, &error));
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT_PTR_NULL(wf_par_gguf_find(&g, "texts", WF_PAR_GGUF_TEXT, false, &error));
    CU_ASSERT(error.code == WF_EDATA &&
              strstr(error.text, "x.gguf: key \"texts\" is no value of text"));
    t = wf_gguf_tensor_find(&g, "w");
    CU_ASSERT(t && t->type == WF_GGUF_Q8_0 && t->shape[0] == 2 && t->shape[1] == 64);
    CU_ASSERT(t && t->bytes == 4 * 34 && t->begin == 0);
    wf_gguf_free(&g);
    free(bytes);
}

/* A file that is cut is damaged; of one that is not, more is asked for until the header is
   there. */
static void cut_anywhere(void)
{
    int64_t size;
    char *bytes = written(&size);

    for (int64_t have = 0; have < size - DATA; have++) {
        wf_error error;
        wf_par_gguf g;
        bool more;

        CU_ASSERT_EQUAL(read_some(&g, bytes, (size_t)have, have, &more, &error), WF_EDATA);
        CU_ASSERT(!more && strstr(error.text, "x.gguf: ") == error.text);
        wf_gguf_free(&g);
        read_some(&g, bytes, (size_t)have, size, &more, &error);
        CU_ASSERT(more || have >= size - DATA - WF_GGUF_ALIGNMENT);
        wf_gguf_free(&g);
    }
    free(bytes);
}

/* Any byte may be another one: it is read or refused, and nothing else. */
static void damaged_anywhere(void)
{
    int64_t size;
    char *bytes = written(&size);

    for (int64_t at = 0; at < size - DATA; at++)
        for (int to = 0; to < 256; to += 51) {
            char was = bytes[at];
            wf_error error;
            wf_par_gguf g;
            bool more;

            bytes[at] = (char)to;
            if (read_some(&g, bytes, (size_t)size, size, &more, &error) == WF_OK)
                for (int64_t i = 0; i < g.tensors; i++)
                    CU_ASSERT(g.data + g.tensor[i].begin + g.tensor[i].bytes <= size);
            wf_gguf_free(&g);
            bytes[at] = was;
        }
    free(bytes);
}

/* A word of the header is put in the place of another one, wherever that is. */
static void refused(const char *from, size_t n, const char *to, wf_status status,
                    const char *reason)
{
    int64_t size;
    char *bytes = written(&size), *at = memmem(bytes, (size_t)size, from, n);
    wf_error error;
    wf_par_gguf g;
    bool more;

    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    memcpy(at, to, n);
    CU_ASSERT_EQUAL(read_some(&g, bytes, (size_t)size, size, &more, &error), status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, reason));
    if (!strstr(error.text, reason))
        printf("\n    wanted: %s; got: %s\n", reason, error.text);
    wf_gguf_free(&g);
    free(bytes);
}

static void refused_by_name(void)
{
    refused("GGUF", 4, "GGUX", WF_EDATA, "no GGUF file");
    refused("GGUF\3", 5, "GGUF\1", WF_EUNSUPPORTED, "version 1");
    refused("GGUF\3\0\0\0\2\0\0", 11, "GGUF\3\0\0\0\2\0\1", WF_EDATA, "more tensors than");
    refused("f32\6\0\0\0", 7, "i32\6\0\0\0", WF_EDATA, "key \"i32\": it is there twice");
    refused("bool\7\0\0\0\1", 9, "bool\7\0\0\0\2", WF_EDATA, "neither 0 nor 1");
    refused("texts\11\0\0\0\10", 10, "texts\11\0\0\0\11", WF_EDATA, "array of arrays");
    refused("texts\11\0\0\0\10\0\0\0\3\0", 15, "texts\11\0\0\0\10\0\0\0\3\7", WF_EDATA,
            "more values than");
    refused("w\2\0\0\0", 5, "w\7\0\0\0", WF_EDATA, "has 7 dims");
    refused("w\2\0\0\0\100", 6, "w\2\0\0\0\101", WF_EDATA, "in blocks of 32");
    refused("\100\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\10", 17,
            "\100\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\20", WF_EUNSUPPORTED,
            "tensor \"w\": its type is number 16");
    refused("b\1\0\0\0\12\0\0", 8, "b\1\0\0\0\12\1\0", WF_EDATA, "past the end of the file");
    refused("\0\0\0\0\240\0\0\0", 8, "\0\0\0\0\100\0\0\0", WF_EDATA, "lies over the tensor");
    refused("\0\0\0\0\240\0\0\0", 8, "\0\0\0\0\241\0\0\0", WF_EDATA, "no multiple of 32");
    refused("\1\0\0\0\0\0\0\0b\1", 10, "\1\0\0\0\0\0\0\0w\1", WF_EDATA, "it is there twice");
}

/* Every allocation fails once: that is reported, and nothing of the file stays behind. */
static void no_memory(void)
{
    char path[] = "/tmp/weft-gguf-read-XXXXXX";
    int64_t size, failing = 0;
    char *bytes = written(&size);
    int fd = mkstemp(path);
    wf_par_gguf *g = NULL;

    CU_ASSERT_FATAL(fd >= 0 && write(fd, bytes, (size_t)size) == size);
    close(fd);
    CU_ASSERT_TRUE(wf_par_gguf_there(path));
    while (!g && failing < 1000) {
        wf_error error = {WF_OK, ""};

        allocations_left(failing++);
        g = wf_par_gguf_open(path, &error);
        allocations_left(INT64_MAX);
        CU_ASSERT_EQUAL(error.code, g ? WF_OK : WF_ENOMEM);
    }
    CU_ASSERT(failing > 15 &&
              failing < 1000); /* header, keys and their names and values, tensors */
    wf_par_gguf_close(g);
    unlink(path);
    CU_ASSERT_FALSE(wf_par_gguf_there(path));
    CU_ASSERT_FALSE(wf_par_gguf_there("/tmp"));
    free(bytes);
}

/* Numbers of gguf 0.19 for a block whose byte i is 37 i + 11, with scales of some tenths. */
static void numbers_of_all_types(void)
{
    static const struct {
        wf_gguf_type type;
        float want[4]; /* elements 0, 7, half a block + 1, and the last */
    } rows[] = {{WF_GGUF_Q4_0, {-0x1.332p-2f, 0x0p+0f, -0x1.998p-4f, 0x0p+0f}},
                {WF_GGUF_Q4_1, {0x1.9988p+0f, 0x1.334p-2f, 0x1.4ccp+0f, 0x1.4ccp+0f}},
                {WF_GGUF_Q5_0, {0x1.ccbp-1f, -0x1.998p-2f, 0x0p+0f, 0x1.998p-4f}},
                {WF_GGUF_Q5_1, {0x1.ffe8p+0f, 0x1.2658p+1f, 0x1.333p-1f, 0x1.333p-1f}},
                {WF_GGUF_Q8_0, {0x1.0fefp+3f, 0x1.1988p+3f, -0x1.5984p+2f, -0x1.332p+2f}},
                {WF_GGUF_Q4_K, {0x1.cfc98p+4f, 0x1.32468p+5f, -0x1.338p+0f, 0x1.8c28p+1f}},
                {WF_GGUF_Q5_K, {0x1.3a4c6p+6f, 0x1.32468p+5f, -0x1.338p+0f, 0x1.22fep+3f}},
                {WF_GGUF_Q6_K, {-0x1.15bedp+7f, -0x1.20084p+6f, 0x1.42f8p+5f, -0x1.74a8p+2f}}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        wf_gguf_type type = rows[r].type;
        int n = wf_gguf_block(type), bytes = (int)wf_gguf_bytes(type, n);
        int scale = type == WF_GGUF_Q6_K ? 208 : 0;
        bool two = type == WF_GGUF_Q4_1 || type == WF_GGUF_Q5_1 || type == WF_GGUF_Q4_K ||
                   type == WF_GGUF_Q5_K;
        const int at[] = {0, 7, n / 2 + 1, n - 1};
        uint8_t block[256];
        float x[256];

        for (int i = 0; i < bytes; i++)
            block[i] = (uint8_t)(37 * i + 11);
        for (int i = scale; i < scale + (two ? 4 : 2); i += 2) {
            block[i] = (uint8_t)(0x66 + i);
            block[i + 1] = 0x2e;
        }
        wf_gguf_numbers(type, block, x, n);
        for (int i = 0; i < 4; i++)
            CU_ASSERT_EQUAL(x[at[i]], rows[r].want[i]);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"what is written is read", what_is_written_is_read},
                                    {"cut anywhere", cut_anywhere},
                                    {"damaged anywhere", damaged_anywhere},
                                    {"refused by name", refused_by_name},
                                    {"no memory", no_memory},
                                    {"numbers of all types", numbers_of_all_types},
                                    {NULL, NULL}};

    return wf_test_main("reading GGUF", tests);
}
