/* tests/parallel/test_files.c - whole reads and writes over calls that do less, or fail;
   numbers as files store them; checksums. */
#include "core/files/checksum_internal.h"
#include "parallel/formats/convert_internal.h"
#include "core/files/folder_internal.h"
#include "tests/parallel/hostile.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* Calls that take one byte at a time, are interrupted every other time, and fail at the
   k-th. */
typedef struct grudging {
    int64_t calls, fail_at;
    int reason;
    int64_t syncs;
} grudging;

static int64_t give(grudging *g, size_t bytes)
{
    if (++g->calls == g->fail_at) {
        errno = g->reason;
        return -1;
    }
    if (g->calls % 2) {
        errno = EINTR;
        return -1;
    }
    return bytes ? 1 : 0;
}

static int64_t read_one(void *self, int fd, void *data, size_t bytes, int64_t at)
{
    int64_t n = give(self, bytes);

    return n > 0 ? pread(fd, data, (size_t)n, at) : n;
}

static int64_t write_one(void *self, int fd, const void *data, size_t bytes, int64_t at)
{
    int64_t n = give(self, bytes);

    return n > 0 ? pwrite(fd, data, (size_t)n, at) : n;
}

static int sync_once(void *self, int fd)
{
    grudging *g = self;

    (void)fd;
    g->syncs++;
    errno = EIO;
    return -1;
}

static wf_file_calls calls_of(grudging *g)
{
    wf_file_calls calls = wf_system_files;

    calls.read = read_one;
    calls.write = write_one;
    calls.sync = sync_once;
    calls.self = g;
    return calls;
}

static char folder[WF_TEST_FOLDER];

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void short_and_interrupted_calls_add_up(void)
{
    grudging g = {0};
    const wf_file_calls calls = calls_of(&g);
    wf_error error = {WF_OK, ""};
    char back[11] = "";
    wf_file file;

    CU_ASSERT_EQUAL(wf_file_open(&file, &calls, path_of("a"), WF_FILE_CREATE, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_file_write(&file, "0123456789", 10, 5, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_file_close(&file, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_file_open(&file, &calls, path_of("a"), WF_FILE_READ, &error), WF_OK);
    CU_ASSERT_EQUAL(file.bytes, 15);
    CU_ASSERT_EQUAL(wf_file_read(&file, back, 10, 5, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(back, "0123456789");
    CU_ASSERT_EQUAL(g.calls, 40);
    CU_ASSERT_EQUAL(wf_file_read(&file, back, 10, 6, &error), WF_EDATA);
    CU_ASSERT(strstr(error.text, "cut short") && strstr(error.text, "/a"));
    wf_file_close(&file, NULL);
}

/* A failed call is reported with path and reason; a full disk says how much is missing. */
static void failures_are_named(void)
{
    static const struct {
        int reason;
        const char *says;
        int64_t need; /* 0: nobody knows it */
    } cases[] = {{EIO, "Input/output error", 7},
                 {ENOSPC, "7 bytes are needed in all, and", 7},
                 {ENOSPC, "No space left on device; ", 0},
                 {EDQUOT, "quota", 7}};

    for (int i = 0; i < 4; i++) {
        grudging g = {.fail_at = 7, .reason = cases[i].reason};
        const wf_file_calls calls = calls_of(&g);
        wf_error error = {WF_OK, ""};
        wf_file file;

        CU_ASSERT_EQUAL(wf_file_open(&file, &calls, path_of("b"), WF_FILE_WRITE, &error),
                        WF_OK);
        file.need = cases[i].need;
        CU_ASSERT_EQUAL(wf_file_write(&file, "0123456789", 10, 0, &error), WF_EIO);
        CU_ASSERT(strstr(error.text, cases[i].says) && strstr(error.text, "/b"));
        CU_ASSERT_PTR_NULL(strstr(error.text, "; 0 bytes are needed"));
        if (!strstr(error.text, cases[i].says))
            printf("\n    %s\n", error.text);
        error = (wf_error){WF_OK, ""};
        CU_ASSERT_EQUAL(wf_file_sync(&file, &error), WF_EIO);
        CU_ASSERT_EQUAL(g.syncs, 1); /* never again */
        wf_file_close(&file, NULL);
    }
}

static void what_is_no_file_is_refused(void)
{
    wf_error error = {WF_OK, ""};
    wf_file file;
    char *data;
    size_t n;

    CU_ASSERT_EQUAL(mkfifo(path_of("pipe"), 0600), 0);
    CU_ASSERT_EQUAL(
        wf_file_open(&file, &wf_system_files, path_of("pipe"), WF_FILE_READ, &error), WF_EIO);
    CU_ASSERT(strstr(error.text, "no regular file") != NULL);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_file_open(&file, &wf_system_files, folder, WF_FILE_READ, &error),
                    WF_EIO);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_file_open(&file, &wf_system_files, path_of("a"), WF_FILE_CREATE, &error),
                    WF_EIO);
    CU_ASSERT(strstr(error.text, "File exists") != NULL);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_files_read(&wf_system_files, path_of("a"), 14, &data, &n, &error),
                    WF_EDATA);
    CU_ASSERT(data == NULL && strstr(error.text, "15 bytes"));
}

static void folders_come_and_go(void)
{
    wf_error error = {WF_OK, ""};
    wf_folder outer, inner;
    char **names;
    bool has;
    int64_t n;

    CU_ASSERT_EQUAL(wf_files_make_directory(&wf_system_files, folder, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_open(&outer, &wf_system_files, folder, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_make(&outer, "inner", &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_sync(&outer, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_has(&outer, "inner", &has, &error), WF_OK);
    CU_ASSERT(has);
    CU_ASSERT_EQUAL(symlinkat("inner", outer.fd, "link"), 0);
    CU_ASSERT_EQUAL(wf_folder_enter(&inner, &outer, "link", &error), WF_EIO);
    CU_ASSERT(!inner.missing && strstr(error.text, "link"));
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_folder_rename(&outer, "inner", "other", &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_list(&outer, &names, &n, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(n, 5);
    CU_ASSERT_STRING_EQUAL(names[0], "a");
    wf_folder_free_names(names, n);
    CU_ASSERT_EQUAL(wf_folder_remove(&outer, "link", &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_remove(&outer, "other", &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_remove(&outer, "other", &error), WF_OK);
    CU_ASSERT_EQUAL(wf_folder_has(&outer, "other", &has, &error), WF_OK);
    CU_ASSERT(!has);
    CU_ASSERT_EQUAL(wf_folder_enter(&inner, &outer, "other", &error), WF_EIO);
    CU_ASSERT(inner.missing);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_folder_make(&outer, "a", &error), WF_EIO);
    wf_folder_close(&outer);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_files_make_directory(&wf_system_files, path_of("a"), &error), WF_EIO);
}

static void what_a_terminal_obeys_is_not_said(void)
{
    wf_error error = {WF_OK, ""};

    wf_error_set(&error, WF_EDATA, "%s", "a\33[31mb\x7f\xc2\x9b\tc\nd\xc3\xa9");
    CU_ASSERT_STRING_EQUAL(error.text, "a?[31mb???\tc\nd\xc3\xa9");
}

/* For every number of 16 bits and the next: between them the nearer one is taken, in the middle
   the even one; all but NaNs come back as they are. */
static void rounding(float (*from)(uint16_t), uint16_t (*to)(float), uint16_t infinity)
{
    int64_t wrong = 0;

    for (uint32_t h = 0; h < infinity; h++) {
        float a = from((uint16_t)h), b = from((uint16_t)(h + 1));
        float middle = h + 1u < infinity ? (float)(((double)a + (double)b) / 2)
                                         : a + (a - from((uint16_t)(h - 1))) / 2;
        uint16_t even = (uint16_t)(h + (h & 1));

        wrong += to(a) != h || to(-a) != (h | 0x8000);
        wrong += to(middle) != even || to(-middle) != (even | 0x8000);
        wrong += middle > a && to(nextafterf(middle, a)) != h;
        wrong += b > middle && to(nextafterf(middle, b)) != h + 1;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(isinf(from(infinity)) && to(INFINITY) == infinity);
    CU_ASSERT(to(-INFINITY) == (infinity | 0x8000) && to(FLT_MAX) == infinity);
    CU_ASSERT(to(1e-45f) == 0 || from(to(1e-45f)) == 1e-45f);
    for (uint32_t h = infinity + 1u; h < 0x8000; h++)
        wrong += !isnan(from((uint16_t)h)) || !isnan(from(to(from((uint16_t)h))));
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(isnan(from(to(NAN))));
}

static void narrow_numbers_round_to_nearest_even(void)
{
    rounding(wf_from_bf16, wf_to_bf16, 0x7f80);
    rounding(wf_from_f16, wf_to_f16, 0x7c00);
    CU_ASSERT(wf_from_f16(1) == 0x1p-24f && wf_from_f16(0x3c00) == 1 &&
              wf_from_f16(0x7bff) == 65504 && wf_from_bf16(0x3f80) == 1);
}

static void checksums_see_bytes_and_offsets(void)
{
    char text[WF_CHECKSUM_TEXT];
    wf_checksum_stream *stream = wf_checksum_begin();
    uint64_t read;

    /* XXH3_64bits of nothing, of the specification (xxHash, doc/xxhash_spec.md) */
    CU_ASSERT_EQUAL(wf_checksum("", 0), 0x2d06800538d394c2u);
    wf_checksum_add(stream, "0123", 4);
    wf_checksum_add(stream, "456789", 6);
    CU_ASSERT_EQUAL(wf_checksum_end(stream), wf_checksum("0123456789", 10));
    CU_ASSERT_NOT_EQUAL(wf_checksum_file(0, 8, 1) + wf_checksum_file(1, 8, 2),
                        wf_checksum_file(0, 8, 2) + wf_checksum_file(1, 8, 1));
    CU_ASSERT_NOT_EQUAL(wf_checksum_file(0, 8, 1), wf_checksum_file(0, 16, 1));
    CU_ASSERT_EQUAL(wf_checksum_file(3, 4096, 0xabc),
                    0x1ef552e45ee4e7beu); /* as files have it */
    CU_ASSERT_STRING_EQUAL(wf_checksum_print(0xabc, text), "0000000000000abc");
    CU_ASSERT(wf_checksum_parse(text, &read) && read == 0xabc);
    CU_ASSERT(!wf_checksum_parse("", &read) && !wf_checksum_parse("000000000000abc", &read));
    CU_ASSERT(!wf_checksum_parse("00000000000000abc", &read));
    CU_ASSERT(!wf_checksum_parse("0000000000000ABC", &read));
    CU_ASSERT(!wf_checksum_parse("000000000000abcg", &read));
}

static const wf_test tests[] = {
    {"short and interrupted calls add up", short_and_interrupted_calls_add_up},
    {"failures are named", failures_are_named},
    {"what is no file is refused", what_is_no_file_is_refused},
    {"folders come and go", folders_come_and_go},
    {"what a terminal obeys is not said", what_a_terminal_obeys_is_not_said},
    {"narrow numbers round to nearest even", narrow_numbers_round_to_nearest_even},
    {"checksums see bytes and places", checksums_see_bytes_and_offsets},
    {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("files", tests);
}
