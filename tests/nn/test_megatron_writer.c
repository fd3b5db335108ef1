/* tests/nn/test_megatron_writer.c - pairs of .bin and .idx files: their bytes, and none where
   something fails. */
#include "nn/dataset/megatron_writer.h"
#include "tests/harness.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[WF_TEST_FOLDER], prefix[96];

static size_t read_back(const char *ending, unsigned char *to, size_t room)
{
    char path[128];
    size_t size = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s%s", prefix, ending);
    file = fopen(path, "rb");
    if (file) {
        size = fread(to, 1, room, file);
        fclose(file);
    }
    return size;
}

static int files_there(void)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int count = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    while ((e = readdir(d)))
        count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

static wf_megatron_writer *open_good(int64_t vocabulary)
{
    wf_megatron_writer *w = NULL;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_open(prefix, vocabulary, &w, &error), WF_OK);
    return w;
}

static void add(wf_megatron_writer *w, const int32_t *ids, int64_t count)
{
    CU_ASSERT_EQUAL(wf_megatron_writer_add(w, ids, count, NULL), WF_OK);
}

/* Documents of 3 and 1 tokens, byte by byte; the second one comes with no end of its own. */
static void bytes_of_a_pair(void)
{
    static const unsigned char bin[] = {1, 0, 255, 255, 2, 1, 7, 0};
    static const unsigned char idx[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, /* version */
        8,                                                               /* u16 */
        2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0,    /* counts */
        3,   0,   0,   0,   1,   0,   0,   0,                            /* lengths */
        0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0,    /* pointers */
        0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0,    /* bounds */
        2,   0,   0,   0,   0,   0,   0,   0};
    unsigned char read[256];
    wf_megatron_writer *w = open_good(65536);

    add(w, (int32_t[]){1, 65535}, 2);
    add(w, (int32_t[]){258}, 1);
    CU_ASSERT_EQUAL(wf_megatron_writer_end_document(w, NULL), WF_OK);
    CU_ASSERT_EQUAL(wf_megatron_writer_end_document(w, NULL), WF_OK); /* an empty one */
    add(w, (int32_t[]){7}, 1);
    CU_ASSERT_EQUAL(wf_megatron_writer_tokens(w), 4);
    CU_ASSERT_EQUAL(wf_megatron_writer_documents(w), 1);
    CU_ASSERT_EQUAL(read_back(".bin", read, sizeof read), 0); /* no name before the end */
    CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, NULL), WF_OK);
    CU_ASSERT_EQUAL(read_back(".bin", read, sizeof read), sizeof bin);
    CU_ASSERT_EQUAL(memcmp(read, bin, sizeof bin), 0);
    CU_ASSERT_EQUAL(read_back(".idx", read, sizeof read), sizeof idx);
    CU_ASSERT_EQUAL(memcmp(read, idx, sizeof idx), 0);
    CU_ASSERT_EQUAL(files_there(), 3); /* a manifest too */
}

static void types_by_vocabulary(void)
{
    static const struct {
        int64_t vocabulary;
        unsigned char type, size;
    } row[] = {{1, 1, 1}, {256, 1, 1}, {257, 8, 2}, {65536, 8, 2}, {65537, 4, 4}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        wf_megatron_writer *w = open_good(row[i].vocabulary);
        unsigned char read[64] = {0};

        add(w, (int32_t[]){(int32_t)row[i].vocabulary - 1}, 1);
        CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, NULL), WF_OK);
        CU_ASSERT_EQUAL(read_back(".bin", read, sizeof read), row[i].size);
        CU_ASSERT_EQUAL(read[0], (row[i].vocabulary - 1) & 255);
        read_back(".idx", read, sizeof read);
        CU_ASSERT_EQUAL(read[17], row[i].type);
    }
}

/* More documents than are read back at a time: pointers are the sums of lengths. */
static void many_documents(void)
{
    enum { DOCUMENTS = 10000 };
    static unsigned char read[34 + 4 * DOCUMENTS + 8 * DOCUMENTS + 8 * (DOCUMENTS + 1) + 1];
    static int32_t ids[5000];
    wf_megatron_writer *w = open_good(70000);
    int64_t pointer = 0;

    for (int i = 0; i < DOCUMENTS; i++) {
        add(w, ids, i == 5000 ? 5000 : 1 + i % 7);
        CU_ASSERT_EQUAL(wf_megatron_writer_end_document(w, NULL), WF_OK);
    }
    CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, NULL), WF_OK);
    CU_ASSERT_EQUAL_FATAL(read_back(".idx", read, sizeof read), sizeof read - 1);
    for (int i = 0; i < DOCUMENTS; i++) {
        int64_t at, bound;

        memcpy(&at, read + 34 + 4 * DOCUMENTS + 8 * i, 8);
        memcpy(&bound, read + 34 + 12 * DOCUMENTS + 8 * i, 8);
        CU_ASSERT_TRUE_FATAL(at == pointer && bound == i);
        pointer += 4 * (i == 5000 ? 5000 : 1 + i % 7);
    }
}

/* Room that is filled from the last to the first is what is added one by one. */
static void any_order(void)
{
    enum { PIECES = 50, MOST = 40000 };
    static int32_t ids[MOST];
    static unsigned char files[2][2][8 << 20];
    size_t bytes[2][2];

    for (int i = 0; i < MOST; i++)
        ids[i] = i * 7 % 60000;
    for (int way = 0; way < 2; way++) {
        wf_megatron_writer *w = open_good(65536);
        int64_t at[PIECES], count[PIECES];

        for (int i = 0; i < PIECES; i++) {
            const size_t ends[] = {(size_t)i, (size_t)i, 3 * (size_t)i + 1};

            count[i] = i % 3 ? MOST - 100 * i : 5 * i + 1;
            if (way == 0) {
                add(w, ids, i);
                wf_megatron_writer_end_document(w, NULL);
                add(w, ids + i, 2 * i + 1);
                wf_megatron_writer_end_document(w, NULL);
                add(w, ids + 3 * i + 1, count[i] - 3 * i - 1);
            } else {
                CU_ASSERT_EQUAL(wf_megatron_writer_reserve(w, count[i], ends, 3, &at[i], NULL),
                                WF_OK);
            }
            add(w, ids, 11); /* both ways go together */
        }
        for (int i = PIECES - 1; way && i >= 0; i--)
            CU_ASSERT_EQUAL(wf_megatron_writer_put(w, at[i], ids, count[i], NULL), WF_OK);
        CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, NULL), WF_OK);
        bytes[way][0] = read_back(".bin", files[way][0], sizeof files[0][0]);
        bytes[way][1] = read_back(".idx", files[way][1], sizeof files[0][1]);
    }
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(bytes[0][i], bytes[1][i]);
        CU_ASSERT_EQUAL(memcmp(files[0][i], files[1][i], bytes[0][i]), 0);
    }
}

static void check_fails(wf_status status, wf_status wanted, const wf_error *error,
                        const char *words)
{
    if (status != wanted || !strstr(error->text, words))
        printf("\n    wanted %s\n    gave %d: %s\n", words, status, error->text);
    CU_ASSERT_EQUAL(status, wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(error->text, words));
}

static void mistakes(void)
{
    wf_megatron_writer *w;
    wf_error error = {WF_OK, ""};

    check_fails(wf_megatron_writer_open(prefix, 0, &w, &error), WF_EINVAL, &error,
                "a vocabulary has from 1 to 2147483647 token ids, not 0");
    error = (wf_error){WF_OK, ""};
    check_fails(wf_megatron_writer_open("/nonexistent/x", 9, &w, &error), WF_EIO, &error,
                "cannot write /nonexistent/x.bin: No such file");
    CU_ASSERT_PTR_NULL(w);
    w = open_good(50);
    add(w, (int32_t[]){49, 0}, 2);
    error = (wf_error){WF_OK, ""};
    check_fails(wf_megatron_writer_add(w, (int32_t[]){3, 50}, 2, &error), WF_EINVAL, &error,
                "x.bin would be id 50, which a vocabulary of 50 does not have");
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "token 3 of"));
    error = (wf_error){WF_OK, ""};
    check_fails(wf_megatron_writer_finish(w, NULL, &error), WF_EINVAL, &error, "id 50");
    w = open_good(50);
    error = (wf_error){WF_OK, ""};
    check_fails(wf_megatron_writer_put(w, 7, (int32_t[]){3, 50}, 2, &error), WF_EINVAL, &error,
                "token 8 of");
    wf_megatron_writer_discard(w);
    w = open_good(50);
    error = (wf_error){WF_OK, ""};
    check_fails(wf_megatron_writer_finish(w, NULL, &error), WF_EINVAL, &error,
                "x.bin would have no token");
    wf_megatron_writer_discard(open_good(50));
    wf_megatron_writer_discard(NULL);
    CU_ASSERT_EQUAL(files_there(), 0);
}

/* A disk is full once so many bytes are written: the pair that was there stays, and nothing
   else. */
static void full_disk(void)
{
    static int32_t ids[100000];
    static const rlim_t room[] = {50, 4096, 99999, 100010};
    struct rlimit whole, less;
    wf_megatron_writer *w = open_good(9);

    add(w, (int32_t[]){7}, 1);
    CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, NULL), WF_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &whole);
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        unsigned char read[8];
        wf_error error = {WF_OK, ""};

        w = open_good(9);
        less = (struct rlimit){room[i], whole.rlim_max};
        setrlimit(RLIMIT_FSIZE, &less);
        for (int d = 0; d < 10000; d++) {
            wf_megatron_writer_add(w, ids, 10, NULL);
            wf_megatron_writer_end_document(w, NULL);
        }
        check_fails(wf_megatron_writer_finish(w, NULL, &error), WF_EIO, &error,
                    "File too large");
        setrlimit(RLIMIT_FSIZE, &whole);
        w = open_good(9);
        setrlimit(RLIMIT_FSIZE, &less);
        error = (wf_error){WF_OK, ""};
        check_fails(wf_megatron_writer_put(w, 20, ids, 100000, &error), WF_EIO, &error,
                    "File too large");
        setrlimit(RLIMIT_FSIZE, &whole);
        wf_megatron_writer_discard(w);
        CU_ASSERT_EQUAL(files_there(), 3); /* a manifest too */
        CU_ASSERT_TRUE(read_back(".bin", read, sizeof read) == 1 && read[0] == 7);
    }
}

/* Each test has a folder that is empty when it begins. */
static void begin(void)
{
    wf_test_new_folder(folder);
    snprintf(prefix, sizeof prefix, "%s/x", folder);
}

#define IN_A_FOLDER(test)                                                                      \
    static void test##_alone(void)                                                             \
    {                                                                                          \
        begin();                                                                               \
        test();                                                                                \
        wf_test_remove(folder);                                                                \
    }
IN_A_FOLDER(bytes_of_a_pair)
IN_A_FOLDER(types_by_vocabulary)
IN_A_FOLDER(many_documents)
IN_A_FOLDER(any_order)
IN_A_FOLDER(mistakes)
IN_A_FOLDER(full_disk)

static const wf_test tests[] = {
    {"bytes of a pair", bytes_of_a_pair_alone},
    {"types by vocabulary", types_by_vocabulary_alone},
    {"many documents", many_documents_alone},
    {"any order", any_order_alone},
    {"mistakes", mistakes_alone},
    {"a full disk", full_disk_alone},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("megatron_writer", tests);
}
