/* tests/parallel/test_event_file.c - files of TensorBoard's events, read back byte by byte. */
#include "parallel/report/event_file.h"
#include "tests/harness.h"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct bytes {
    unsigned char at[4096];
    size_t size;
} bytes;

static uint64_t little(const unsigned char *at, int count)
{
    uint64_t value = 0;

    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Vectors of RFC 3720, appendix B.4, and the check value of CRC-32C. */
static void checksums(void)
{
    unsigned char zeros[32] = {0}, rising[32];

    for (int i = 0; i < 32; i++)
        rising[i] = (unsigned char)i;
    CU_ASSERT_EQUAL(wf_crc32c("123456789", 9), 0xe3069283u);
    CU_ASSERT_EQUAL(wf_crc32c(zeros, 32), 0x8a9136aau);
    CU_ASSERT_EQUAL(wf_crc32c(rising, 32), 0x46dd794eu);
    CU_ASSERT_EQUAL(wf_crc32c("", 0), 0);
}

static uint32_t masked(const unsigned char *at, size_t size)
{
    uint32_t crc = wf_crc32c(at, size);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The next record: its Event, whose checksums are right. */
static const unsigned char *record(const bytes *file, size_t *at, size_t *size)
{
    const unsigned char *start = file->at + *at;

    CU_ASSERT_TRUE_FATAL(*at + 16 <= file->size);
    *size = (size_t)little(start, 8);
    CU_ASSERT_EQUAL(little(start + 8, 4), masked(start, 8));
    CU_ASSERT_TRUE_FATAL(*at + 16 + *size <= file->size);
    CU_ASSERT_EQUAL(little(start + 12 + *size, 4), masked(start + 12, *size));
    *at += 16 + *size;
    return start + 12;
}

/* The files of a directory in the order of their names. */
static int files_of(const char *directory, char path[2][512])
{
    struct dirent **list;
    int found = scandir(directory, &list, NULL, alphasort), count = 0;

    CU_ASSERT_TRUE_FATAL(found >= 0);
    for (int i = 0; i < found; i++) {
        if (list[i]->d_name[0] != '.' && count < 2)
            snprintf(path[count++], 512, "%s/%s", directory, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return count;
}

static void read_whole(const char *path, bytes *file)
{
    FILE *from = fopen(path, "rb");

    CU_ASSERT_PTR_NOT_NULL_FATAL(from);
    file->size = fread(file->at, 1, sizeof file->at, from);
    fclose(from);
}

static void remove_all(const char *directory, char path[2][512], int count)
{
    for (int i = 0; i < count; i++)
        unlink(path[i]);
    rmdir(directory);
}

/* An Event begins with its time and step; 300 is a varint of two bytes. */
static void events_parse(void)
{
    static const unsigned char step[] = {0x10, 0xac, 0x02};
    const wf_event_scalar scalars[] = {{"a", 1}, {"b", -2}};
    char directory[WF_TEST_FOLDER], path[2][512];
    size_t at = 0, size;
    wf_error error = {0};
    wf_event_file *file;
    const unsigned char *event;
    bytes all;

    wf_test_new_folder(directory);
    CU_ASSERT_EQUAL_FATAL(wf_event_file_open(directory, &file, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_event_file_scalars(file, 300, scalars, 2, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(files_of(directory, path), 1);
    read_whole(path[0], &all); /* before it is closed */
    event = record(&all, &at, &size);
    CU_ASSERT_EQUAL_FATAL(size, 9 + 2 + 15);
    CU_ASSERT_EQUAL(event[0], 0x09);
    CU_ASSERT_EQUAL(memcmp(event + 9,
                           "\x10\0\x1a\x0d"
                           "brain.Event:2",
                           17),
                    0);
    event = record(&all, &at, &size);
    CU_ASSERT_EQUAL_FATAL(size, 9 + 3 + 4);
    CU_ASSERT_EQUAL(memcmp(event + 9, step, 3), 0);
    CU_ASSERT_EQUAL(memcmp(event + 12, "\x3a\x02\x08\x01", 4), 0);
    event = record(&all, &at, &size);
    CU_ASSERT_EQUAL_FATAL(size, 9 + 3 + 2 + 20);
    CU_ASSERT_EQUAL(memcmp(event + 9, step, 3), 0);
    CU_ASSERT_EQUAL(event[13], 20);
    CU_ASSERT_EQUAL(memcmp(event + 14,
                           (unsigned char[]){0x0a, 8, 0x0a, 1, 'a', 0x15, 0, 0, 0x80, 0x3f},
                           10),
                    0);
    CU_ASSERT_EQUAL(
        memcmp(event + 24, (unsigned char[]){0x0a, 8, 0x0a, 1, 'b', 0x15, 0, 0, 0, 0xc0}, 10),
        0);
    CU_ASSERT_EQUAL(at, all.size);
    CU_ASSERT_EQUAL(wf_event_file_close(file, &error), WF_OK);
    remove_all(directory, path, 1);
}

/* Two files of one second: the second one's name is the later one. */
static void next_file(void)
{
    char directory[WF_TEST_FOLDER], path[2][512], first[512];
    wf_error error = {0};
    wf_event_file *file;

    wf_test_new_folder(directory);
    CU_ASSERT_EQUAL_FATAL(wf_event_file_open(directory, &file, &error), WF_OK);
    wf_event_file_close(file, &error);
    CU_ASSERT_EQUAL_FATAL(files_of(directory, path), 1);
    strcpy(first, path[0]);
    CU_ASSERT_EQUAL_FATAL(wf_event_file_open(directory, &file, &error), WF_OK);
    wf_event_file_close(file, &error);
    CU_ASSERT_EQUAL_FATAL(files_of(directory, path), 2);
    CU_ASSERT_STRING_EQUAL(path[0], first);
    remove_all(directory, path, 2);
}

/* A file that may not grow keeps whole records, and has all later ones when it may. */
static void full_disk(void)
{
    const wf_event_scalar scalar = {"a", 1};
    char directory[WF_TEST_FOLDER], path[2][512];
    struct rlimit old, limit;
    wf_error error = {0};
    wf_event_file *file;
    size_t at = 0, size;
    bytes all;

    wf_test_new_folder(directory);
    CU_ASSERT_EQUAL_FATAL(wf_event_file_open(directory, &file, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_event_file_scalars(file, 1, &scalar, 1, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(files_of(directory, path), 1);
    read_whole(path[0], &all);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = all.size + 5;
    setrlimit(RLIMIT_FSIZE, &limit);
    CU_ASSERT_EQUAL(wf_event_file_scalars(file, 2, &scalar, 1, &error), WF_EIO);
    setrlimit(RLIMIT_FSIZE, &old);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, path[0]));
    CU_ASSERT_EQUAL(wf_event_file_scalars(file, 3, &scalar, 1, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_event_file_close(file, &error), WF_OK);
    read_whole(path[0], &all);
    for (int i = 0; i < 4; i++) /* version, start, steps 1 and 3 */
        record(&all, &at, &size);
    CU_ASSERT_EQUAL(at, all.size);
    remove_all(directory, path, 1);
}

static void failing_names(void)
{
    wf_error error = {0};
    wf_event_file *file;

    CU_ASSERT_EQUAL(wf_event_file_open("/nowhere/at/all", &file, &error), WF_EIO);
    CU_ASSERT_PTR_NULL(file);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/nowhere/at/all"));
    CU_ASSERT_EQUAL(wf_event_file_open("/dev/null", &file, &error), WF_EIO);
    CU_ASSERT_EQUAL(wf_event_file_close(NULL, &error), WF_OK);
}

static const wf_test tests[] = {
    {"checksums of the standard", checksums},
    {"events parse", events_parse},
    {"a file that goes on", next_file},
    {"a disk that is full for a while", full_disk},
    {"names that are no directories", failing_names},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("event_file", tests);
}
