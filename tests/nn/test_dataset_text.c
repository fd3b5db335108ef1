/* tests/nn/test_dataset_text.c - text as data: the split, the sequences, bad files. */
#include "tests/nn/dataset_files.h"
#include <sys/stat.h>

enum { SEQ = 16 };

/* The byte at each place of the whole text, so that a sequence shows where it came from. */
static int byte_at(int64_t start)
{
    uint32_t x = (uint32_t)start * 0x9e3779b1u;

    x = (x ^ x >> 15) * 0x85ebca6bu;
    return (int)((x ^ x >> 13) & 255);
}

static char *write_file(const char *name, int64_t first, int64_t size)
{
    unsigned char bytes[1000];

    for (int64_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)byte_at(first + i);
    return write_bytes(name, bytes, (size_t)size);
}

/* The only start of the text that a sequence can have come from, or -1. */
static int64_t start_of(const int32_t *tokens, const int32_t *targets, int64_t size)
{
    for (int64_t start = 0; start + SEQ < size; start++) {
        int64_t i = 0;

        while (i < SEQ && tokens[i] == byte_at(start + i) &&
               targets[i] == byte_at(start + i + 1))
            i++;
        if (i == SEQ)
            return start;
    }
    return -1;
}

static void sequences_and_split(void)
{
    char *files[] = {write_file("a", 0, 700), write_file("b", 700, 5),
                     write_file("c", 705, 295)};
    wf_dataset_options o = {.data = files,
                            .data_count = 3,
                            .val_fraction = 0.2,
                            .validates = true,
                            .seq_len = SEQ,
                            .global_batch = 8,
                            .vocabulary = {256, false},
                            .seed = 7};
    wf_dataset *data = open_good(&o);
    int32_t tokens[SEQ], targets[SEQ];
    wf_error error = {0};
    bool seen[2][1000] = {{false}};
    int64_t crossed = 0, distinct[2] = {0};

    CU_ASSERT_EQUAL(wf_dataset_tokens(data, WF_DATASET_TRAIN), 800);
    CU_ASSERT_EQUAL(wf_dataset_tokens(data, WF_DATASET_VALIDATION), 200);
    for (int part = 0; part < 2; part++) {
        int64_t low = part ? 800 : 0, high = part ? 1000 : 800;

        for (int64_t i = 0; i < 4000; i++) {
            int64_t start;

            CU_ASSERT_EQUAL_FATAL(wf_dataset_read(data, (wf_dataset_part)part, i / 8, i % 8, 1,
                                                  tokens, targets, &error),
                                  WF_OK);
            start = start_of(tokens, targets, 1000);
            CU_ASSERT_TRUE_FATAL(start >= low && start + SEQ + 1 <= high);
            distinct[part] += !seen[part][start];
            seen[part][start] = true;
            crossed += start < 700 && start + SEQ + 1 > 705;
        }
    }
    /* 784 and 184 positions to begin at: 4000 draws miss about 5 and none of them. */
    CU_ASSERT_TRUE(distinct[0] > 760 && distinct[0] <= 784);
    CU_ASSERT_EQUAL(distinct[1], 184);
    CU_ASSERT_TRUE(seen[0][0] || seen[0][1] || seen[0][2]);
    CU_ASSERT_TRUE(seen[1][800] && seen[1][983]); /* the first start and the last */
    CU_ASSERT_TRUE(crossed > 0);
    wf_dataset_close(data);
}

/* Both parts draw windows of their own in a batch of the same number: here they are as large as
   each other, so one stream would give the same windows from their beginnings on. */
static void parts_have_streams_of_their_own(void)
{
    char *files[] = {write_file("halves", 0, 1000)};
    wf_dataset_options o = {.data = files,
                            .data_count = 1,
                            .val_fraction = 0.5,
                            .validates = true,
                            .seq_len = SEQ,
                            .global_batch = 8,
                            .vocabulary = {256, false},
                            .seed = 11};
    wf_dataset *data = open_good(&o);
    wf_error error = {0};
    int same = 0;

    for (int64_t i = 0; i < 200; i++) {
        int64_t start[2];

        for (int part = 0; part < 2; part++) {
            int32_t tokens[SEQ], targets[SEQ];

            CU_ASSERT_EQUAL(wf_dataset_read(data, (wf_dataset_part)part, i / 8, i % 8, 1,
                                            tokens, targets, &error),
                            WF_OK);
            start[part] = start_of(tokens, targets, 1000) - 500 * part;
        }
        same += start[0] == start[1];
    }
    CU_ASSERT_TRUE(same < 8); /* among 484 starts chance makes less than one */
    wf_dataset_close(data);
}

static void read_all(const wf_dataset_options *o, int64_t batch, int64_t count, int64_t at_once,
                     int32_t *tokens, int32_t *targets)
{
    wf_dataset *data = open_good(o);
    wf_error error = {0};

    for (int64_t i = 0; i < count; i += at_once)
        CU_ASSERT_EQUAL(wf_dataset_read(data, WF_DATASET_TRAIN, batch, i, at_once,
                                        tokens + i * SEQ, targets + i * SEQ, &error),
                        WF_OK);
    wf_dataset_close(data);
}

/* A sequence depends on seed, step and global index: not on who reads how many of them, and not
 * on how the text is divided in files. */
static void only_positions_count(void)
{
    char *whole[] = {write_file("whole", 0, 1000)};
    char *parts[] = {write_file("first", 0, 333), write_file("second", 333, 667)};
    wf_dataset_options one = {.data = whole,
                              .data_count = 1,
                              .val_fraction = 0.1,
                              .seq_len = SEQ,
                              .global_batch = 8,
                              .vocabulary = {256, false},
                              .seed = 3};
    wf_dataset_options two = one, other = one;
    int32_t a[2][8 * SEQ], b[2][8 * SEQ];

    two.data = parts;
    two.data_count = 2;
    read_all(&one, 5, 8, 8, a[0], a[1]);
    for (int64_t at_once = 1; at_once <= 8; at_once *= 2) {
        memset(b, -1, sizeof b);
        read_all(&two, 5, 8, at_once, b[0], b[1]);
        CU_ASSERT_EQUAL(memcmp(a, b, sizeof a), 0);
    }
    read_all(&one, 6, 8, 8, b[0], b[1]);
    CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof a), 0);
    other.seed = 4;
    read_all(&other, 5, 8, 8, b[0], b[1]);
    CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof a), 0);
}

static void bad_files(void)
{
    char *files[2] = {write_file("good", 0, 100), NULL};
    wf_dataset_options o = {.data = files,
                            .data_count = 2,
                            .seq_len = SEQ,
                            .global_batch = 8,
                            .vocabulary = {256, false}};

    files[1] = path_of("missing");
    open_fails(&o, WF_EIO, "missing: No such file or directory");
    files[1] = data_folder;
    open_fails(&o, WF_EIO, "is a directory; .data takes regular files");
    files[1] = "/dev/null";
    open_fails(&o, WF_EIO, "data file /dev/null is not a regular file");
    files[1] = path_of("pipe");
    CU_ASSERT_EQUAL(mkfifo(files[1], 0600), 0);
    open_fails(&o, WF_EIO, "pipe is not a regular file"); /* it doesn't wait for a writer */
    files[1] = write_file("empty", 0, 0);
    open_fails(&o, WF_EINVAL, "empty is empty");
    files[1] = write_file("secret", 0, 10);
    CU_ASSERT_EQUAL(chmod(files[1], 0), 0);
    if (geteuid() != 0)
        open_fails(&o, WF_EIO, "secret: Permission denied");
    o.data_count = 0;
    open_fails(&o, WF_EINVAL, "no data file was given; use .data FILE...");
}

static void sequence_too_long(void)
{
    char *files[] = {write_file("text", 0, 100)};
    wf_dataset_options o = {.data = files,
                            .data_count = 1,
                            .seq_len = 99,
                            .global_batch = 8,
                            .vocabulary = {256, false}};
    int32_t tokens[100], targets[100];
    wf_error error = {0};
    wf_dataset *data = open_good(&o); /* 100 bytes hold one sequence of 99 */

    CU_ASSERT_EQUAL(wf_dataset_read(data, WF_DATASET_TRAIN, 1, 0, 1, tokens, targets, &error),
                    WF_OK);
    CU_ASSERT_TRUE(tokens[0] == byte_at(0) && targets[98] == byte_at(99));
    CU_ASSERT_EQUAL(
        wf_dataset_read(data, WF_DATASET_VALIDATION, 0, 0, 1, tokens, targets, &error),
        WF_EINVAL);
    wf_dataset_close(data);

    o.seq_len = 100;
    open_fails(
        &o, WF_EINVAL,
        ".seq_len 100 needs 101 bytes (one more, for the last target), but the training part "
        "has 100 of the 100 of source data (.val_fraction 0); use a .seq_len of at most 99");
    o.seq_len = 50;
    o.val_fraction = 0.1;
    wf_dataset_close(open_good(&o)); /* nothing validates */
    o.validates = true;
    open_fails(&o, WF_EINVAL, "the validation part has 10 of the 100 of source data");
}

static void file_becomes_shorter(void)
{
    char *files[] = {write_file("shrinks", 0, 1000)};
    wf_dataset_options o = {.data = files,
                            .data_count = 1,
                            .seq_len = SEQ,
                            .global_batch = 8,
                            .vocabulary = {256, false}};
    wf_dataset *data = open_good(&o);
    int32_t tokens[64 * SEQ], targets[64 * SEQ];
    wf_error error = {0};

    CU_ASSERT_EQUAL(truncate(files[0], 100), 0);
    CU_ASSERT_EQUAL(wf_dataset_read(data, WF_DATASET_TRAIN, 0, 0, 64, tokens, targets, &error),
                    WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "shrinks: it became shorter"));
    wf_dataset_close(data);
}

/* Text is in windows too where it has a weight or every window of it is asked for. */
static void text_in_windows(void)
{
    char *plain[] = {write_file("text", 0, 1000)}, weighed[160];
    char *arguments[] = {weighed};
    wf_dataset_options o = {.data = arguments,
                            .data_count = 1,
                            .val_fraction = 0.1,
                            .validates = true,
                            .every_window = true,
                            .seq_len = SEQ,
                            .global_batch = 2,
                            .vocabulary = {256, false}};
    int32_t tokens[SEQ], targets[SEQ];
    wf_error error = {WF_OK, ""};
    bool seen[2][1000] = {{false}};
    wf_dataset *data;

    snprintf(weighed, sizeof weighed, "text=1:%s", plain[0]);
    for (int way = 0; way < 2; way++) {
        int64_t count[2] = {56, 6};

        o.data = way ? plain : arguments;
        data = open_good(&o);
        for (int part = way; part < 2; part++)
            for (int64_t i = 0; i < count[part]; i++) {
                int64_t start, from = part ? 900 : 0;

                CU_ASSERT_EQUAL_FATAL(wf_dataset_read(data, (wf_dataset_part)part,
                                                      i / 2 + !part, i % 2, 1, tokens, targets,
                                                      &error),
                                      WF_OK);
                start = start_of(tokens, targets, 1000) - from;
                CU_ASSERT_TRUE_FATAL(start >= 0 && start % SEQ == 0 &&
                                     seen[part][start] == (way == 1));
                seen[part][start] = way == 0;
            }
        wf_dataset_close(data);
    }
}

static const wf_test tests[] = {
    {"sequences and split", sequences_and_split},
    {"parts have streams of their own", parts_have_streams_of_their_own},
    {"only positions count", only_positions_count},
    {"bad files", bad_files},
    {"a sequence too long", sequence_too_long},
    {"a file becomes shorter", file_becomes_shorter},
    {"text in windows", text_in_windows},
    {NULL, NULL},
};

int main(void)
{
    return data_main("data_text", tests);
}
