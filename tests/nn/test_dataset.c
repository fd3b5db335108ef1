/* tests/nn/test_dataset.c - windows of tokens, what is validated on, and sources that cannot
   be. */
#include "tests/nn/dataset_files.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { SEQ = 16 };

/* Which token of source X.idx a sequence begins with; all of its ids have to follow. */
static int64_t begins(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                      int64_t index)
{
    int32_t tokens[SEQ], targets[SEQ];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(wf_dataset_read(data, part, batch, index, 1, tokens, targets, &error),
                          WF_OK);
    for (int i = 0; i < SEQ; i++)
        CU_ASSERT_TRUE_FATAL(tokens[i] == tokens[0] + i && targets[i] == tokens[i] + 1);
    return tokens[0];
}

/* Every one of 19 windows: four batches of 4 and one of 3, whose last sequence has no
   targets. */
static void check_filling(const wf_dataset_options *o)
{
    wf_dataset *data = open_good(o);
    int32_t tokens[4 * SEQ], targets[4 * SEQ];
    int64_t count;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_dataset_evaluations(data), 5);
    CU_ASSERT_TRUE(wf_dataset_counts(data, WF_DATASET_VALIDATION));
    CU_ASSERT_FALSE(wf_dataset_counts(data, WF_DATASET_TRAIN));
    for (int64_t b = 0; b < 5; b++) {
        CU_ASSERT_EQUAL(wf_dataset_counted(data, WF_DATASET_VALIDATION, b, &count, &error),
                        WF_OK);
        CU_ASSERT_EQUAL(count, SEQ * (b < 4 ? 4 : 3));
        CU_ASSERT_EQUAL(
            wf_dataset_read(data, WF_DATASET_VALIDATION, b, 0, 4, tokens, targets, &error),
            WF_OK);
        for (int i = 0; i < 4 * SEQ; i++)
            CU_ASSERT_EQUAL(targets[i], b < 4 || i < 3 * SEQ ? tokens[i] + 1 : -1);
    }
    wf_dataset_close(data);
}

/* Sources of 1000, 500 and 100 tokens have 12, 6 and 1 windows of validation, a fifth, each of
   which comes once. */
static void windows_of_validation(void)
{
    char *a = write_pair("a", 9999, 0, 1000), *b = write_pair("b", 9999, 2000, 500);
    char *c = write_pair("c", 9999, 3000, 100), text[3][160];
    char *arguments[] = {text[0], text[1], text[2]};
    wf_dataset_options o = {.data = arguments,
                            .data_count = 3,
                            .val_fraction = 0.2,
                            .validates = true,
                            .seq_len = SEQ,
                            .global_batch = 4,
                            .vocabulary = {9999, true},
                            .seed = 7};
    wf_dataset *data;
    bool seen[4000] = {false};

    snprintf(text[0], sizeof text[0], "a=1:%s", a);
    snprintf(text[1], sizeof text[1], "b=2:%s", b);
    snprintf(text[2], sizeof text[2], "c=3:%s", c);
    data = open_good(&o);
    CU_ASSERT_EQUAL(wf_dataset_windows(data, WF_DATASET_TRAIN), 49 + 24 + 4);
    CU_ASSERT_EQUAL(wf_dataset_windows(data, WF_DATASET_VALIDATION), 12 + 6 + 1);
    for (int64_t i = 0; i < 19; i++) {
        int64_t first = begins(data, WF_DATASET_VALIDATION, i / 4, i % 4);
        int64_t from = first < 1000 ? 800 : first < 2500 ? 2400 : 3080;

        CU_ASSERT_TRUE(first >= from && (first - from) % SEQ == 0 && !seen[first]);
        seen[first] = true;
    }
    CU_ASSERT_EQUAL(begins(data, WF_DATASET_VALIDATION, 19 / 4, 19 % 4),
                    begins(data, WF_DATASET_VALIDATION, 0, 0)); /* they begin anew */
    wf_dataset_close(data);
    o.every_window = true;
    check_filling(&o);
}

static void validation_elsewhere(void)
{
    char *train[] = {write_pair("train", 9999, 0, 1000)};
    char *val[] = {write_pair("val", 9999, 5000, 100)};
    char *text[] = {write_bytes("prose", "some words of prose", 19)};
    wf_dataset_options o = {.data = train,
                            .data_count = 1,
                            .val_data = val,
                            .val_data_count = 1,
                            .validates = true,
                            .every_window = true,
                            .seq_len = SEQ,
                            .global_batch = 3,
                            .vocabulary = {9999, true}};
    wf_dataset *data = open_good(&o);

    CU_ASSERT_EQUAL(wf_dataset_windows(data, WF_DATASET_TRAIN), 62); /* all of it */
    CU_ASSERT_EQUAL(wf_dataset_evaluations(data), 2);
    for (int64_t i = 0; i < 6; i++)
        CU_ASSERT_TRUE(begins(data, WF_DATASET_VALIDATION, i / 3, i % 3) >= 5000);
    wf_dataset_close(data);
    o.val_data = text;
    open_fails(&o, WF_EINVAL,
               ".val_data: source data has text, and source data token ids; convert the text");
    o.val_data = val;
    val[0] = write_pair("val", 9999, 5000, 16);
    open_fails(&o, WF_EINVAL, "needs 17 tokens");
    val[0] = path_of("nothing.idx");
    open_fails(&o, WF_EIO, "nothing.idx: No such file");
}

/* A masked file and one that is not, in one source: a target is there where its token is to be
   trained on. */
static void loss_masks(void)
{
    char *files[] = {write_pair("masked", 9999, 0, 150), write_pair("plain", 9999, 150, 150)};
    wf_dataset_options o = {.data = files,
                            .data_count = 2,
                            .seq_len = SEQ,
                            .global_batch = 6,
                            .vocabulary = {9999, true}};
    int32_t tokens[6 * SEQ], targets[6 * SEQ];
    wf_error error = {WF_OK, ""};
    wf_dataset *data;

    write_mask(path_of("masked.loss"), 150, 0);
    data = open_good(&o);
    CU_ASSERT_TRUE(wf_dataset_counts(data, WF_DATASET_TRAIN));
    for (int64_t step = 1; step <= 3; step++) {
        int64_t count, there = 0;

        CU_ASSERT_EQUAL(
            wf_dataset_read(data, WF_DATASET_TRAIN, step, 0, 6, tokens, targets, &error),
            WF_OK);
        for (int i = 0; i < 6 * SEQ; i++) {
            int32_t next = tokens[i] + 1;
            bool trained = next >= 150 || next % 3;

            CU_ASSERT_EQUAL(targets[i], trained ? next : -1);
            there += trained;
        }
        for (int again = 0; again < 2; again++) {
            CU_ASSERT_EQUAL(wf_dataset_counted(data, WF_DATASET_TRAIN, step, &count, &error),
                            WF_OK);
            CU_ASSERT_EQUAL(count, there);
        }
    }
    wf_dataset_close(data);
    write_mask(path_of("masked.loss"), 149, 0);
    open_fails(&o, WF_EDATA, "masked.loss.idx has a number for each of 149 tokens, and");
    write_mask(path_of("masked.loss"), 150, 7);
    data = open_good(&o);
    for (int64_t step = 1; step <= 3 && error.code == WF_OK; step++)
        wf_dataset_read(data, WF_DATASET_TRAIN, step, 0, 6, tokens, targets, &error);
    check_error(error.code, WF_EDATA, &error, " is 7; a token is trained on (1) or not (0)");
    wf_dataset_close(data);
}

static void sources_that_cannot_be(void)
{
    char *pair = write_pair("pair", 9999, 0, 1000),
         *text = write_bytes("words", "some words", 10);
    char argument[3][400];
    char *arguments[] = {argument[0], argument[1], argument[2]};
    wf_dataset_options o = {.data = arguments,
                            .data_count = 1,
                            .seq_len = SEQ,
                            .global_batch = 2,
                            .vocabulary = {9999, true}};

    for (int i = 0; i < 6; i++) {
        static const char *const weight[] = {"", "x", "-1", "0", "inf", "1e999"};

        snprintf(argument[0], sizeof argument[0], "a=%s:%s", weight[i], pair);
        open_fails(&o, WF_EINVAL, "the weight of a source is a positive number");
    }
    snprintf(argument[0], sizeof argument[0], "a=1:%s,", pair);
    open_fails(&o, WF_EINVAL, "has files after its :, with commas between");
    snprintf(argument[0], sizeof argument[0], "a=1:%s/z*.idx", data_folder);
    open_fails(&o, WF_EINVAL, "source a: no file is called");
    snprintf(argument[0], sizeof argument[0], "a=1:%s/pair.*", data_folder);
    open_fails(&o, WF_EINVAL, "pair.dataset.json says which files belong together");
    snprintf(argument[0], sizeof argument[0], "a=1:%s/pair.[bi]*", data_folder);
    open_fails(&o, WF_EINVAL, "is named twice; of a pair of .bin and .idx files name one");
    snprintf(argument[0], sizeof argument[0], "a=1:%s,%s", pair, text);
    open_fails(&o, WF_EINVAL, "pair.bin has token ids and");
    o.data_count = 2;
    snprintf(argument[0], sizeof argument[0], "a=1:%s", pair);
    snprintf(argument[1], sizeof argument[1], "%s", pair);
    open_fails(&o, WF_EINVAL, "pair.idx is a file, and beside it are sources with weights");
    snprintf(argument[1], sizeof argument[1], "a=2:%s", pair);
    open_fails(&o, WF_EINVAL, ".data has two sources a");
    snprintf(argument[1], sizeof argument[1], "b=1e-9:%s", pair);
    open_fails(&o, WF_EINVAL,
               "the weight 1e-09 of source b is less than one sequence in 65536");
    snprintf(argument[1], sizeof argument[1], "b=1:%s", text);
    open_fails(&o, WF_EINVAL, "source b has text, and source a token ids");
}

/* More files than descriptors are usual; where the system has no more, that is said. */
static void many_files(void)
{
    enum { FILES = 100 };
    char *files[FILES];
    wf_dataset_options o = {.data = files,
                            .data_count = FILES,
                            .seq_len = SEQ,
                            .global_batch = 6,
                            .vocabulary = {9999, true}};
    struct rlimit before, less;

    for (int i = 0; i < FILES; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%d", i);
        files[i] = strdup(write_pair(name, 9999, 10 * i, 10));
    }
    getrlimit(RLIMIT_NOFILE, &before);
    less = (struct rlimit){40, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &less);
    wf_dataset_close(open_good(&o));
    less.rlim_max = 40;
    if (fork() == 0) { /* a limit that cannot be raised again */
        wf_dataset *data;
        wf_error error = {WF_OK, ""};

        setrlimit(RLIMIT_NOFILE, &less);
        wf_dataset_open(&o, &data, &error);
        _exit(error.code == WF_EIO && strstr(error.text, ": Too many open files") ? 0 : 1);
    } else {
        int status = 1;

        wait(&status);
        CU_ASSERT_EQUAL(status, 0);
    }
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < FILES; i++)
        free(files[i]);
}

/* Documents of 10 ids each, 0, 1, ..: what a pair says, and what an id that ends them says of
   other files. */
static void check_documents(wf_dataset *data)
{
    int32_t tokens[SEQ], targets[SEQ], begin[SEQ], positions[SEQ];
    wf_error error = {WF_OK, ""};
    int64_t count, trained = 0;

    CU_ASSERT_TRUE(wf_dataset_counts(data, WF_DATASET_TRAIN));
    CU_ASSERT_EQUAL(wf_dataset_counted(data, WF_DATASET_TRAIN, 1, &count, &error), WF_OK);
    for (int s = 0; s < 4; s++) {
        CU_ASSERT_EQUAL_FATAL(
            wf_dataset_read(data, WF_DATASET_TRAIN, 1, s, 1, tokens, targets, &error), WF_OK);
        CU_ASSERT_EQUAL_FATAL(
            wf_dataset_documents(data, WF_DATASET_TRAIN, 1, s, 1, begin, positions, &error),
            WF_OK);
        CU_ASSERT_EQUAL(tokens[0] % SEQ, 0); /* windows begin at their multiples */
        for (int i = 0; i < SEQ; i++) {
            int first = i - tokens[i] % 10;

            CU_ASSERT_EQUAL(begin[i], first > 0 ? first : 0);
            CU_ASSERT_EQUAL(positions[i], i - begin[i]);
            CU_ASSERT_EQUAL(targets[i], tokens[i] % 10 == 9 ? -1 : tokens[i] + 1);
            trained += targets[i] >= 0;
        }
    }
    CU_ASSERT_EQUAL(count, trained);
    wf_dataset_close(data);
}

static void documents_are_apart(void)
{
    char *pair = write_pair("docs", 9999, 0, 200);
    wf_dataset_options o = {.data = &pair,
                            .data_count = 1,
                            .val_fraction = 0.3,
                            .validates = true,
                            .seq_len = SEQ,
                            .global_batch = 4,
                            .vocabulary = {9999, true},
                            .seed = 7,
                            .documents = true};
    wf_dataset *data = open_good(&o);
    int32_t begin[2 * SEQ], positions[2 * SEQ];
    uint16_t ids[200];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_TRUE(wf_dataset_has_documents(data));
    /* 140 tokens of training hold 8 windows, and validation begins behind them */
    CU_ASSERT_EQUAL(wf_dataset_windows(data, WF_DATASET_TRAIN), 8);
    CU_ASSERT_EQUAL(wf_dataset_tokens(data, WF_DATASET_VALIDATION), 200 - 8 * SEQ);
    check_documents(data);

    for (int i = 0; i < 200; i++)
        ids[i] = (uint16_t)(i % 10 == 9 ? 777 : i);
    pair = write_bytes("docs_of_ids.bin", ids, sizeof ids);
    data = open_good(&o);
    CU_ASSERT_FALSE(wf_dataset_has_documents(data));
    wf_dataset_ends(data, 777);
    for (int s = 0; s < 2; s++)
        CU_ASSERT_EQUAL(wf_dataset_documents(data, WF_DATASET_VALIDATION, 0, s, 1,
                                             begin + s * SEQ, positions + s * SEQ, &error),
                        WF_OK);
    for (int i = 1; i < 2 * SEQ; i++) /* one of three windows' second document ends within it */
        CU_ASSERT_TRUE(positions[i] == 0 || positions[i] == positions[i - 1] + 1);
    CU_ASSERT_EQUAL(wf_dataset_read(data, WF_DATASET_TRAIN, 1, 0, 1, begin, positions, &error),
                    WF_OK);
    for (int i = 0; i < SEQ; i++)
        CU_ASSERT_EQUAL(positions[i] == -1, begin[i] == 777);
    wf_dataset_close(data);
}

static const wf_test tests[] = {
    {"windows of validation", windows_of_validation},
    {"validation elsewhere", validation_elsewhere},
    {"loss masks", loss_masks},
    {"many files", many_files},
    {"sources that cannot be", sources_that_cannot_be},
    {"documents are apart", documents_are_apart},
    {NULL, NULL},
};

int main(void)
{
    return data_main("dataset", tests);
}
