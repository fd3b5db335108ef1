/* tests/nn/dataset_files.h - a folder of data files that a test makes, and what its functions
   say to them. */
#ifndef WF_TESTS_NN_DATASET_FILES_H
#define WF_TESTS_NN_DATASET_FILES_H

#include "nn/dataset/dataset.h"
#include "nn/dataset/megatron_writer.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char data_folder[WF_TEST_FOLDER]; /* all tests of a program share it */

static inline int data_main(const char *suite, const wf_test *tests)
{
    wf_test_new_folder(data_folder);
    return wf_test_main(suite, tests);
}

/* The path of a name in the folder, which lasts for 16 calls. */
static inline char *path_of(const char *name)
{
    static char paths[16][128];
    static int next;
    char *path = paths[next++ % 16];

    snprintf(path, sizeof paths[0], "%s/%s", data_folder, name);
    return path;
}

static inline char *write_bytes(const char *name, const void *bytes, size_t size)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL_FATAL(fwrite(bytes, 1, size, file), size);
    CU_ASSERT_EQUAL_FATAL(fclose(file), 0);
    return path;
}

/* NAME.bin and NAME.idx of ids first, first + 1, ..; the path of the .idx file. */
static inline char *write_pair(const char *name, int64_t vocabulary, int64_t first,
                               int64_t count)
{
    wf_megatron_writer *w;
    char with_ending[64];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_open(path_of(name), vocabulary, &w, &error),
                          WF_OK);
    for (int64_t i = 0; i < count; i++) {
        wf_megatron_writer_add(w, &(int32_t){(int32_t)(first + i)}, 1, &error);
        if (i % 10 == 9)
            wf_megatron_writer_end_document(w, &error);
    }
    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_finish(w, NULL, &error), WF_OK);
    snprintf(with_ending, sizeof with_ending, "%s.idx", name);
    return path_of(with_ending);
}

/* A pair of numbers: 1 for two tokens of three, `value` for the third. It is another tool's: it
   has no manifest, and neither has what it is a mask of. */
static inline void write_mask(const char *prefix, int64_t count, int32_t value)
{
    wf_megatron_writer *w;
    char manifest[512];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_open(prefix, 256, &w, &error), WF_OK);
    for (int64_t i = 0; i < count; i++)
        wf_megatron_writer_add(w, (int32_t[]){i % 3 ? 1 : value}, 1, &error);
    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_finish(w, NULL, &error), WF_OK);
    for (int i = 0; i < 2; i++) {
        int n = (int)strlen(prefix) - (i ? 5 : 0); /* without .loss */

        snprintf(manifest, sizeof manifest, "%.*s.dataset.json", n, prefix);
        unlink(manifest);
    }
}

/* A status with an error that has these words in it. */
static inline void check_error(wf_status status, wf_status wanted, const wf_error *error,
                               const char *words)
{
    bool good = status == wanted && strstr(error->text, words);

    if (!good)
        printf("\n    wanted %d: %s\n    gave %d: %s\n", wanted, words, status, error->text);
    CU_ASSERT_TRUE(good);
}

static inline wf_dataset *open_good(const wf_dataset_options *options)
{
    wf_error error = {WF_OK, ""};
    wf_dataset *data;
    wf_status status = wf_dataset_open(options, &data, &error);

    if (status != WF_OK)
        printf("\n    %s\n", error.text);
    CU_ASSERT_EQUAL_FATAL(status, WF_OK);
    return data;
}

static inline void open_fails(const wf_dataset_options *options, wf_status wanted,
                              const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_dataset *data = (wf_dataset *)&error;

    check_error(wf_dataset_open(options, &data, &error), wanted, &error, words);
    CU_ASSERT_PTR_NULL(data);
}

#endif
