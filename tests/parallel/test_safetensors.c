/* tests/parallel/test_safetensors.c - headers of safetensors: hostile ones, and our own. */
#include "parallel/formats/safetensors_internal.h"
#include "tests/parallel/hostile.h"
#include <stdint.h>
#include <unistd.h>

enum { DATA = 16 }; /* bytes of data behind each header below */

#define F32(offsets) "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":" offsets "}"
#define ALL          F32("[0,16]")

static const struct {
    const char *json, *why;
} hostile[] = {
    {"", "does not begin with {"},
    {" {}", "does not begin with {"},
    {"[]", "does not begin with {"},
    {"null", "does not begin with {"},
    {"{", "no JSON"},
    {"{}", "after the last tensor"},
    {"{}{}", "no JSON"},
    {"{\"a\":" ALL "} x", "no JSON"},
    {"{\"a\":" ALL ",}", "no JSON"},
    {"{a:" ALL "}", "no JSON"},
    {"{\"a\":" ALL ",\"a\":" ALL "}", "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "duplicate"},
    {"{\"\":" ALL "}", "name of a tensor is empty"},
    {"{\"a\\n\":" ALL "}", "control characters"},
    {"{\"a\\u001b[2J\":" ALL "}", "control characters"},
    {"{\"a\\u0000b\":" ALL "}", "no JSON"},
    {"{\"a\xff\":" ALL "}", "no JSON"},
    {"{\"\xc0\xaf\":" ALL "}", "no JSON"},
    {"{\"\xed\xa0\x80\":" ALL "}", "no JSON"},
    {"{\"\\ud800\":" ALL "}", "no JSON"},
    {"{\"a\":1}", "not described"},
    {"{\"a\":null}", "not described"},
    {"{\"a\":[]}", "not described"},
    {"{\"a\":{}}", "not described"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", "not described"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":1}}",
     "not described"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"offsets\":[0,16]}}", "not a list of two"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[4],\"data_offsets\":[0,16]}}", "not known"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "not known"},
    {"{\"a\":{\"dtype\":\"\",\"shape\":[4],\"data_offsets\":[0,16]}}", "not known"},
    {"{\"a\":{\"dtype\":4,\"shape\":[4],\"data_offsets\":[0,16]}}", "no text"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "no list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,16]}}", "no list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4.0],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4e0],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"4\"],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,16]}}", "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[[4]],\"data_offsets\":[0,16]}}", "deeper"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}",
     "more than 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,16]}}",
     "no JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,16]}}",
     "more bytes than any file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
     "more bytes than any file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[0,16]}}",
     "more bytes than any file"}, /* 2^64 + 16 bytes */
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", "as many bytes"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,16]}}", "as many bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,16]}}", "as many bytes"},
    {"{\"a\":" F32("[0]") "}", "not a list of two"},
    {"{\"a\":" F32("[0,16,16]") "}", "not a list of two"},
    {"{\"a\":" F32("[0,16.0]") "}", "not a list of two"},
    {"{\"a\":" F32("[\"0\",16]") "}", "not a list of two"},
    {"{\"a\":" F32("0") "}", "not a list of two"},
    {"{\"a\":" F32("[-16,0]") "}", "do not rise"},
    {"{\"a\":" F32("[16,0]") "}", "do not rise"},
    {"{\"a\":" F32("[4,20]") "}", "past the end"},
    {"{\"a\":" F32("[9223372036854775791,9223372036854775807]") "}", "past the end"},
    {"{\"a\":" F32("[0,18446744073709551632]") "}", "no JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "after the last"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}", "gap before it"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
     "gap before it"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}",
     "lies over"},
    {"{\"a\":" ALL ",\"b\":" ALL "}", "lies over"},
    {"{\"a\":" ALL ",\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}",
     "lies over"},
    {"{\"__metadata__\":[],\"a\":" ALL "}", "is no object"},
    {"{\"__metadata__\":{\"x\":1},\"a\":" ALL "}", "is no text"},
    {"{\"__metadata__\":{\"x\":{}},\"a\":" ALL "}", "is no text"},
    {"{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"},\"a\":" ALL "}", "duplicate"},
};

static wf_status parse_text(const char *text, wf_error *error)
{
    wf_safetensors h;

    return wf_safetensors_parse(&h, "the file", text, strlen(text), DATA, error);
}

static void hostile_headers_are_refused(void)
{
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        double start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
        wf_error error = {WF_OK, ""};
        wf_status status = parse_text(hostile[i].json, &error);

        refused(hostile[i].json, status, &error, hostile[i].why, start);
        CU_ASSERT(strstr(error.text, "the file") != NULL);
    }
}

/* As large as a header may be, and as dense as it gets. */
static void large_headers_are_bounded(void)
{
    static const large_text large[] = {
        {"{\"a\":", "0", "}", "more values", 8000000},
        {"{\"a\":[", "0", "]}", "more values", 8000000},
        {"{\"a\":[", "123", "]}", "more values", 4000000},
        {"{\"a\":[", "12345678", "]}", "not described", 1800000},
        {"{\"a\":[", "[]", "]}", "more values", 5000000},
        {"{\"a\":[", "[12]", "]}", "more values", 3000000},
        {"{\"a\":[", "[123]", "]}", "not described", 1000000},
        {"{\"a\":[", "{\"a\":12}", "]}", "more values", 1700000},
        {"{\"a\":[", "{\"a\":\"0123456789\"}", "]}", "not described", 340000},
        {"", "[", "", "does not begin", 8000000},
        {"{\"a\":", "[", "", "deeper", 8000000},
        {"{\"a\":\"", "\xff\xff\xff", "\"}", "no JSON", 4000000},
        {"{\"a\":\"", "abc", "\"}", "not described", 4000000},
        {"{", "\"a\":1", "}", "no JSON", 2000000},
    };
    double grown =
        refuse_large(large, sizeof large / sizeof *large, WF_SAFETENSORS_HEADER, parse_text);

    printf("%.1f times the largest header .. ", grown);
    CU_ASSERT(UNDER_SANITIZER || grown < 16);
}

/* A file of these bytes; whether it can be read, and why not. */
static wf_status read_bytes(const void *bytes, size_t n, wf_safetensors *h, wf_error *error)
{
    char path[] = "/tmp/weft-safetensors-XXXXXX";
    int fd = mkstemp(path);
    wf_file file;
    wf_status status;

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, bytes, n), (ssize_t)n);
    close(fd);
    status = wf_file_open(&file, &wf_system_files, path, WF_FILE_READ, error);
    if (status == WF_OK) {
        status = wf_safetensors_read(h, &file, error);
        wf_file_close(&file, NULL);
    }
    unlink(path);
    return status;
}

static void hostile_files_are_refused(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } files[] = {
        {"", 0, "fewer than 8 bytes"},
        {"\2\0\0\0\0\0\0", 7, "fewer than 8 bytes"},
        {"\0\0\0\0\0\0\0\0", 8, "does not begin with {"},
        {"version https://git-lfs.github.com/spec/v1", 42, "git lfs pull"},
        {"\2\0\0\0\0\0\0\0{", 9, "longer than the file"},
        {"\3\0\0\0\0\0\0\0{}", 10, "longer than the file"},
        {"\377\377\377\377\377\377\377\377{}", 10, "longer than the file"},
        {"\0\0\0\0\0\0\0\200{}", 10, "longer than the file"},
        {"\2\0\0\0\0\0\0\0{}x", 11, "after the last tensor"},
        {"\x80\2}q\0X\1\0\0\0\0", 11, "longer than the file"},
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        double start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
        wf_error error = {WF_OK, ""};
        wf_safetensors h;
        wf_status status = read_bytes(files[i].bytes, files[i].n, &h, &error);

        refused(files[i].bytes, status, &error, files[i].why, start);
    }
}

static void good_headers_are_read(void)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"a.\xc3\xa4\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"},"
        "\"c\":{\"dtype\":\"I64\",\"shape\":[7,0,9],\"data_offsets\":[4,4]}}   ";
    wf_error error = {WF_OK, ""};
    wf_safetensors h;
    const wf_safetensors_entry *b;

    CU_ASSERT_EQUAL(wf_safetensors_parse(&h, "f", json, sizeof json - 1, DATA, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(h.count, 3);
    CU_ASSERT_STRING_EQUAL(h.entry[0].name, "a.\xc3\xa4");
    b = wf_safetensors_find(&h, "b");
    CU_ASSERT_FATAL(b != NULL);
    CU_ASSERT(b->dtype == WF_ST_BF16 && b->ndim == 2 && b->shape[1] == 3);
    CU_ASSERT(b->begin == 4 && b->end == 16 && h.data == 8 + (int64_t)sizeof json - 1);
    CU_ASSERT(wf_safetensors_find(&h, "d") == NULL);
    CU_ASSERT_STRING_EQUAL(wf_safetensors_metadata(&h, "format"), "pt");
    CU_ASSERT(wf_safetensors_metadata(&h, "none") == NULL);
    wf_safetensors_close(&h);
}

/* A header that is written is read again, has the same bytes each time, and is a multiple of
   8. */
static void written_headers_come_back(void)
{
    static const char *const metadata[] = {"one", "1", "\"two\"", "2\n"};
    wf_safetensors_entry e[] = {
        {.name = (char *)"z \"quoted\"", .dtype = WF_ST_F32, .ndim = 2, .shape = {2, 3}},
        {.name = (char *)"empty", .dtype = WF_ST_F16, .ndim = 1, .shape = {0}},
        {.name = (char *)"a", .dtype = WF_ST_U8, .ndim = 0},
    };
    wf_error error = {WF_OK, ""};
    char *bytes, *again, *file;
    size_t n, m;
    wf_safetensors h;

    CU_ASSERT_EQUAL(wf_safetensors_format(3, e, 2, metadata, &bytes, &n, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_safetensors_format(3, e, 2, metadata, &again, &m, &error), WF_OK);
    CU_ASSERT(n == m && n % 8 == 0 && memcmp(bytes, again, n) == 0);
    CU_ASSERT(e[0].begin == 0 && e[0].end == 24 && e[1].end == 24 && e[2].end == 25);
    file = calloc(1, n + 25);
    CU_ASSERT_FATAL(file != NULL);
    memcpy(file, bytes, n);
    CU_ASSERT_EQUAL(read_bytes(file, n + 25, &h, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(h.count, 3);
    CU_ASSERT(h.data == (int64_t)n && h.data_bytes == 25);
    CU_ASSERT_STRING_EQUAL(wf_safetensors_metadata(&h, "\"two\""), "2\n");
    CU_ASSERT(wf_safetensors_find(&h, "z \"quoted\"")->end == 24);
    wf_safetensors_close(&h);
    free(bytes);
    free(again);
    free(file);
}

/* Whatever one flipped bit makes of a header, it is refused or consistent. */
static void flipped_bits_do_no_harm(void)
{
    char json[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}";
    int64_t taken = 0;

    for (size_t bit = 0; bit < 8 * (sizeof json - 1); bit++) {
        wf_error error = {WF_OK, ""};
        wf_safetensors h;
        int64_t bytes = 0;

        json[bit / 8] = (char)(json[bit / 8] ^ 1 << bit % 8);
        if (wf_safetensors_parse(&h, "f", json, sizeof json - 1, DATA, &error) == WF_OK) {
            for (int64_t i = 0; i < h.count; i++)
                bytes += h.entry[i].end - h.entry[i].begin;
            CU_ASSERT_EQUAL(bytes, DATA);
            taken++;
            wf_safetensors_close(&h);
        }
        json[bit / 8] = (char)(json[bit / 8] ^ 1 << bit % 8);
    }
    CU_ASSERT(taken > 0 && taken < 30); /* other names, F32 to I32 and the like */
}

static const wf_test tests[] = {{"hostile headers are refused", hostile_headers_are_refused},
                                {"large headers are bounded", large_headers_are_bounded},
                                {"hostile files are refused", hostile_files_are_refused},
                                {"good headers are read", good_headers_are_read},
                                {"written headers come back", written_headers_come_back},
                                {"flipped bits do no harm", flipped_bits_do_no_harm},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("safetensors", tests);
}
