/* tests/nn/test_token_file.c - every format of token files, and those that lie about
   themselves. */
#include "nn/dataset/megatron_index.h"
#include "nn/dataset/token_file.h"
#include "tests/clock.h"
#include "tests/nn/dataset_files.h"
#include <fcntl.h>

static const wf_token_count thousand = {1000, true};

static void open_file_fails(const char *name, wf_token_count vocabulary, wf_status wanted,
                            const char *words)
{
    wf_token_file file;
    wf_error error = {WF_OK, ""};

    check_error(wf_token_file_open(name, "--data", vocabulary, &file, &error), wanted, &error,
                words);
    wf_token_file_close(&file);
}

/* A file has ids 0, 7, 14, .., which are read whole, in pieces and one by one. */
static void check_reads(const char *name, const char *format, wf_token_count vocabulary,
                        int64_t count)
{
    wf_token_file file;
    wf_error error = {WF_OK, ""};
    int32_t *ids = malloc((size_t)count * sizeof *ids);

    CU_ASSERT_EQUAL_FATAL(wf_token_file_open(name, "--data", vocabulary, &file, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(file.format, format);
    CU_ASSERT_EQUAL_FATAL(file.tokens, count);
    for (int64_t piece = 1; piece <= count; piece = piece < count ? count : count + 1) {
        memset(ids, -1, (size_t)count * sizeof *ids);
        for (int64_t i = 0; i + piece <= count; i += piece)
            CU_ASSERT_EQUAL(wf_token_file_read(&file, i, piece, ids + i, &error), WF_OK);
        for (int64_t i = 0; i < count; i++)
            CU_ASSERT_EQUAL_FATAL(ids[i], 7 * i % vocabulary.size);
    }
    CU_ASSERT_EQUAL(wf_token_file_read(&file, count - 1, 2, ids, &error), WF_EIO);
    wf_token_file_close(&file);
    free(ids);
}

enum { COUNT = 20000 };

static void megatron(void)
{
    static const int64_t vocabulary[] = {200, 5000, 100000};

    for (size_t k = 0; k < sizeof vocabulary / sizeof *vocabulary; k++) {
        wf_megatron_writer *w;
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_megatron_writer_open(path_of("m"), vocabulary[k], &w, &error),
                        WF_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            int32_t id = (int32_t)(7 * i % vocabulary[k]);

            wf_megatron_writer_add(w, &id, 1, &error);
            if (i % 900 == 0)
                wf_megatron_writer_end_document(w, &error);
        }
        CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, &error), WF_OK);
        check_reads(path_of("m.idx"), "Megatron", (wf_token_count){vocabulary[k], false},
                    COUNT);
        check_reads(path_of("m.bin"), "Megatron", (wf_token_count){vocabulary[k], false},
                    COUNT);
    }
}

static void llmc_and_headerless(void)
{
    static int32_t header[256] = {20240520, 1, COUNT};
    static unsigned char bytes[1024 + 4 * COUNT];
    static uint16_t two[COUNT];
    static uint32_t four[COUNT];

    for (int64_t i = 0; i < COUNT; i++) {
        two[i] = (uint16_t)(7 * i % 50000);
        four[i] = (uint32_t)(7 * i % 128000);
    }
    memcpy(bytes, header, 1024);
    memcpy(bytes + 1024, two, sizeof two);
    write_bytes("l.bin", bytes, 1024 + sizeof two);
    check_reads(path_of("l.bin"), "llm.c", (wf_token_count){50000, false}, COUNT);
    header[0] = 20240801;
    header[1] = 7;
    memcpy(bytes, header, 1024);
    memcpy(bytes + 1024, four, sizeof four);
    write_bytes("l", bytes, 1024 + sizeof four);
    check_reads(path_of("l"), "llm.c", (wf_token_count){128000, false}, COUNT);
    write_bytes("n.bin", two, sizeof two);
    check_reads(path_of("n.bin"), "u16", (wf_token_count){50000, true}, COUNT);
    open_file_fails(path_of("n.bin"), (wf_token_count){256, false}, WF_EINVAL,
                    "n.bin does not say what it has");
    open_file_fails(write_bytes("odd.bin", two, 333), thousand, WF_EDATA,
                    "odd.bin has 333 bytes, which are no whole tokens of two bytes");
    open_file_fails(write_bytes("cut.bin", bytes, 1024 + 40), thousand, WF_EDATA,
                    "llm.c 20240801 says 20000 tokens, which with the header take 81024 bytes, "
                    "and it has 1064");
    header[0] = 20240522;
    open_file_fails(write_bytes("eval.bin", header, 1024), thousand, WF_EINVAL,
                    "eval.bin has questions and answers of llm.c");
    header[0] = 20240801;
    header[1] = 3;
    open_file_fails(write_bytes("new.bin", header, 1024), thousand, WF_EDATA,
                    "its header of llm.c 20240801 has version 3, and 7 is known");
    header[1] = 7;
    header[2] = -5;
    open_file_fails(write_bytes("neg.bin", header, 1024), thousand, WF_EDATA, "says -5 tokens");
}

static void ids_outside_of_the_vocabulary(void)
{
    static const struct {
        int64_t vocabulary;
        int32_t id;
        const char *words;
    } row[] = {{100000, 99999, "token 13 has id 99999, and the model's vocabulary has 1000"},
               {50000, 1000, "token 13 has id 1000, and the model's vocabulary has 1000"}};
    int32_t negative[] = {5, -3}, ids[40] = {0};
    wf_token_file file;
    wf_error error = {WF_OK, ""};

    for (size_t k = 0; k < 2; k++) {
        wf_megatron_writer *w;

        error = (wf_error){WF_OK, ""};
        CU_ASSERT_EQUAL(wf_megatron_writer_open(path_of("v"), row[k].vocabulary, &w, &error),
                        WF_OK);
        ids[13] = row[k].id;
        wf_megatron_writer_add(w, ids, 40, &error);
        CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, &error), WF_OK);
        ids[13] = 0;
        CU_ASSERT_EQUAL(wf_token_file_open(path_of("v.idx"), "--data", thousand, &file, &error),
                        WF_OK);
        CU_ASSERT_EQUAL(wf_token_file_read(&file, 0, 13, ids, &error), WF_OK);
        check_error(wf_token_file_read(&file, 10, 20, ids, &error), WF_EDATA, &error,
                    row[k].words);
        wf_token_file_close(&file);
        memset(ids, 0, sizeof ids);
    }
    /* a pair whose .bin file is then replaced by another one of the same size */
    write_pair("v", INT32_MAX, 0, 2);
    write_bytes("v.bin", negative, sizeof negative);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_token_file_open(path_of("v.idx"), "--data", thousand, &file, &error),
                    WF_OK);
    check_error(wf_token_file_read(&file, 0, 2, ids, &error), WF_EDATA, &error,
                "token 1 has id -3");
    wf_token_file_close(&file);
}

/* An .idx file of 3 sequences of 2 tokens, as u16, in documents of 1 and 2 sequences. */
typedef struct __attribute__((packed)) small_index {
    char magic[9];
    uint64_t version;
    uint8_t type;
    uint64_t sequences, bounds;
    int32_t length[3];
    int64_t pointer[3], bound[3];
} small_index;

static const small_index good = {"MMIDIDX\0", 1, 8, 3, 3, {2, 2, 2}, {0, 4, 8}, {0, 1, 3}};

static void index_fails(const small_index *index, size_t size, const char *words)
{
    write_bytes("h.idx", index, size);
    open_file_fails(path_of("h.idx"), thousand, WF_EDATA, words);
}

#define LIE(change, words)                                                                     \
    do {                                                                                       \
        small_index lie = good;                                                                \
        lie.change;                                                                            \
        index_fails(&lie, sizeof lie, words);                                                  \
    } while (0)

static void hostile_indices(void)
{
    uint16_t tokens[6] = {1, 2, 3, 4, 5, 6};
    wf_token_file file;
    wf_error error = {WF_OK, ""};

    write_bytes("h.bin", tokens, sizeof tokens);
    write_bytes("h.idx", &good, sizeof good);
    CU_ASSERT_EQUAL(wf_token_file_open(path_of("h.bin"), "--data", thousand, &file, &error),
                    WF_OK);
    CU_ASSERT_TRUE(file.tokens == 6 && file.documents.index.documents == 2);
    wf_token_file_close(&file);
    for (size_t size = 1; size < sizeof good; size++)
        index_fails(&good, size, "h.idx");
    LIE(magic[3] = 'J', "h.idx does not begin with MMIDIDX");
    LIE(version = 2, "its version is 2, and 1 is known");
    LIE(type = 7,
        "the code of its tokens' type is 7; token ids are 1 (u8), 4 (i32) or 8 (u16)");
    LIE(type = 0, "type is 0");
    LIE(sequences = 0, "its count of sequences is 0");
    LIE(sequences = 4,
        "is 3, which are at least 2 and take 8 bytes each, and after 4 sequences it has 12");
    LIE(sequences = UINT64_MAX, "its count of sequences is 18446744073709551615");
    LIE(sequences = UINT64_MAX / 12 + 2, "its count of sequences is 1537228672809129303");
    LIE(bounds = 1, "its count of document bounds is 1, which are at least 2");
    LIE(bounds = UINT64_MAX / 8 + 2, "its count of document bounds is 2305843009213693953");
    LIE(bounds = 2, "h.idx has 94 bytes, and 3 sequences with 2 document bounds take 86");
    LIE(length[1] = -2, "the length of sequence 1 is -2");
    LIE(length[1] = 3, "sequence 1 begins at byte 4 and has 3 tokens of 2 bytes, but the next "
                       "one begins at byte 8");
    LIE(length[2] = INT32_MAX, "the pointer of sequence 2 is 8, and with 2147483647 tokens");
    LIE(length[2] = 1, "but the .bin file ends at byte 12");
    LIE(pointer[0] = 2, "the pointer of sequence 0 is 2, not 0");
    LIE(pointer[1] = INT64_MAX, "but the next one begins at byte 9223372036854775807");
    LIE(pointer[2] = INT64_MIN, "next one begins at byte -9223372036854775808");
    LIE(bound[0] = 1, "document bound 0 is 1");
    LIE(bound[1] = 4, "document bound 1 is 4; bounds begin with 0, never fall, and end with");
    LIE(bound[1] = -1, "document bound 1 is -1");
    LIE(bound[2] = 2, "document bound 2 is 2");
    write_bytes("h.idx", &good, sizeof good);
    write_bytes("h.bin", tokens, 11);
    open_file_fails(path_of("h.bin"), thousand, WF_EDATA,
                    "its .bin file has 11 bytes, which are no whole tokens of 2 bytes");
    write_bytes("h.bin", tokens, 10);
    open_file_fails(path_of("h.bin"), thousand, WF_EDATA, ".bin file's 10 bytes");
    write_bytes("h.idx", "TNTIDX\0\0and so on, with more of it", 35);
    open_file_fails(path_of("h.idx"), thousand, WF_EDATA, "one of its older TNTIDX ones");
    write_bytes("other", &good, sizeof good);
    open_file_fails(path_of("other"), thousand, WF_EINVAL, "name it X.idx, with its X.bin");
    unlink(path_of("h.bin"));
    open_file_fails(path_of("h.idx"), thousand, WF_EIO, "h.bin: No such file or directory");
}

/* One wrong length among so many is found wherever it is, up to the size that is read whole. */
static void one_wrong_of_many(void)
{
    enum { SEQUENCES = 65536 - 40 };
    wf_error error = {WF_OK, ""};
    wf_megatron_writer *w;
    wf_megatron_index index;
    int file;

    CU_ASSERT_EQUAL(wf_megatron_writer_open(path_of("w"), 9, &w, &error), WF_OK);
    for (int64_t i = 0; i < SEQUENCES; i++) {
        wf_megatron_writer_add(w, (int32_t[]){1, 2}, 2, &error);
        wf_megatron_writer_end_document(w, &error);
    }
    CU_ASSERT_EQUAL(wf_megatron_writer_finish(w, NULL, &error), WF_OK);
    file = open(path_of("w.idx"), O_RDWR);
    CU_ASSERT_TRUE_FATAL(file >= 0);
    for (int64_t i = 0; i < SEQUENCES; i += i % 1023 == 1022 ? 1 : 1022) {
        int32_t right = 2, wrong = 1;
        char words[96];

        error = (wf_error){WF_OK, ""};
        CU_ASSERT_EQUAL(wf_megatron_index_read(file, "w.idx", 2 * SEQUENCES, &index, &error),
                        WF_OK);
        CU_ASSERT_EQUAL(pwrite(file, &wrong, 4, 34 + 4 * i), 4);
        snprintf(words, sizeof words, "sequence %lld begins at byte %lld", (long long)i,
                 (long long)(2 * i));
        check_error(wf_megatron_index_read(file, "w.idx", 2 * SEQUENCES, &index, &error),
                    WF_EDATA, &error, words);
        CU_ASSERT_EQUAL(pwrite(file, &right, 4, 34 + 4 * i), 4);
    }
    close(file);
}

/* 50 billion sequences, all but the last of which are empty, and a .bin file of 2 TB, neither
   of which takes any room: opened in a moment, by a few reads. */
static void a_terabyte(void)
{
    const int64_t sequences = INT64_C(50000000000), tokens = 1000000;
    const uint64_t counts[] = {(uint64_t)sequences, 2};
    int32_t last_length = (int32_t)tokens, ids[8];
    wf_token_file file;
    wf_error error = {WF_OK, ""};
    double begin;
    double ms;
    int idx;

    write_bytes("t.idx", "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
    idx = open(path_of("t.idx"), O_WRONLY);
    if (idx < 0 || pwrite(idx, counts, 16, 18) != 16 ||
        pwrite(idx, &last_length, 4, 34 + 4 * (sequences - 1)) != 4 ||
        pwrite(idx, &sequences, 8, 34 + 12 * sequences + 8) != 8) {
        printf("\n    left out: this file system has no files of 600 GB\n");
        return;
    }
    close(idx);
    write_bytes("t.bin", "", 0);
    CU_ASSERT_EQUAL_FATAL(truncate(path_of("t.bin"), 2 * tokens), 0);
    begin = wf_test_clock(CLOCK_MONOTONIC);
    CU_ASSERT_EQUAL_FATAL(
        wf_token_file_open(path_of("t.idx"), "--data", thousand, &file, &error), WF_OK);
    ms = 1e3 * (wf_test_clock(CLOCK_MONOTONIC) - begin);
    CU_ASSERT_EQUAL(file.tokens, tokens);
    CU_ASSERT_EQUAL(wf_token_file_read(&file, tokens - 8, 8, ids, &error), WF_OK);
    wf_token_file_close(&file);
    if (ms > 1000) /* it takes 2 on an idle machine */
        printf("\n    opened in %.1f ms\n", ms);
    CU_ASSERT_TRUE(ms < 1000);
}

static const wf_test tests[] = {
    {"pairs of Megatron", megatron},
    {"llm.c, and u16 without a header", llmc_and_headerless},
    {"ids outside of the vocabulary", ids_outside_of_the_vocabulary},
    {"hostile .idx files", hostile_indices},
    {"one wrong length of many", one_wrong_of_many},
    {"a terabyte", a_terabyte},
    {NULL, NULL},
};

int main(void)
{
    return data_main("token_file", tests);
}
