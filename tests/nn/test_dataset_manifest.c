/*
 * tests/nn/test_dataset_manifest.c - files of a dataset are published together, and a file of
 * another one beside them is refused by its name (nn/dataset/manifest.h).
 */
#include "nn/dataset/manifest.h"
#include "nn/dataset/source.h"
#include "tests/nn/dataset_files.h"

enum { TOKENS = 100 };

/* PREFIX, and its loss mask where there is to be one; all tokens are `id`. */
static void write_set(const char *name, int32_t id, int trained)
{
    wf_megatron_writer *w, *mask = NULL;
    wf_error error = {WF_OK, ""};
    char prefix[64];

    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_open(path_of(name), 300, &w, &error), WF_OK);
    snprintf(prefix, sizeof prefix, "%s.loss", name);
    if (trained >= 0)
        CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_open(path_of(prefix), 2, &mask, &error),
                              WF_OK);
    for (int i = 0; i < TOKENS; i++) {
        wf_megatron_writer_add(w, &id, 1, &error);
        if (mask)
            wf_megatron_writer_add(mask, &(int32_t){i < trained}, 1, &error);
    }
    CU_ASSERT_EQUAL_FATAL(wf_megatron_writer_finish(w, mask, &error), WF_OK);
}

/* Opens a source of NAME.idx, or of NAME.bin. */
static wf_status open_set(const char *file, int64_t *trained, wf_error *error)
{
    char *path = path_of(file);
    const wf_dataset_source_files files = {.name = "a", .file = &path, .count = 1};
    int32_t marks[TOKENS];
    wf_dataset_source source;
    wf_status status;

    *error = (wf_error){WF_OK, ""};
    status =
        wf_dataset_source_open(&files, "--data", (wf_token_count){300, true}, &source, error);
    *trained = 0;
    if (status == WF_OK)
        status = wf_dataset_source_read_mask(&source, 0, TOKENS, marks, error);
    for (int i = 0; i < TOKENS && status == WF_OK; i++)
        *trained += marks[i];
    wf_dataset_source_close(&source);
    return status;
}

static void give(const char *from, const char *to)
{
    char source[512];

    snprintf(source, sizeof source, "%s", path_of(from));
    CU_ASSERT_EQUAL(rename(source, path_of(to)), 0);
}

static void check_refused(const char *file, const char *words)
{
    wf_error error;
    int64_t trained;

    check_error(open_set(file, &trained, &error), WF_EDATA, &error, words);
}

/* Each part of one set beside those of another one of the same sizes. */
static void parts_of_another_set(void)
{
    static const char *const parts[] = {".bin", ".loss.bin"};
    wf_error error;
    int64_t trained;

    for (int i = 0; i < 2; i++) {
        char from[64], to[64], words[96];

        write_set("mine", 7, 30);
        CU_ASSERT_EQUAL(open_set("mine.idx", &trained, &error), WF_OK);
        CU_ASSERT_EQUAL(trained, 30);
        write_set("other", 8, 40);
        snprintf(from, sizeof from, "other%s", parts[i]);
        snprintf(to, sizeof to, "mine%s", parts[i]);
        snprintf(words, sizeof words, "mine%s is not the file that was published by ",
                 parts[i]);
        give(from, to);
        check_refused("mine.idx", words);
        check_refused("mine.bin", "mine.dataset.json (id ");
    }
}

static void parts_that_are_missing(void)
{
    wf_error error;
    int64_t trained;

    write_set("mine", 7, 30);
    unlink(path_of("mine.loss.idx"));
    check_refused("mine.idx", "mine.loss.idx is missing, which was published by ");
    write_set("mine", 7, 30);
    unlink(path_of("mine.idx")); /* the tokens alone could be read as ids of two bytes each */
    check_refused("mine.bin", "mine.idx is missing");
    write_set("mine", 7, -1);
    write_set("other", 7, 30);
    give("other.loss.idx", "mine.loss.idx");
    give("other.loss.bin", "mine.loss.bin");
    check_refused("mine.idx", "mine.loss.bin is no part of what was published by ");
    unlink(path_of("mine.dataset.json")); /* they do belong together */
    CU_ASSERT_EQUAL(open_set("mine.idx", &trained, &error), WF_OK);
    CU_ASSERT_EQUAL(trained, 30);
}

/* Tokens that are written over ones with a mask get no mask. */
static void mask_of_an_older_set(void)
{
    wf_error error;
    int64_t trained;

    write_set("mine", 7, 0);
    CU_ASSERT_EQUAL(open_set("mine.idx", &trained, &error), WF_OK);
    CU_ASSERT_EQUAL(trained, 0);
    write_set("mine", 8, -1);
    CU_ASSERT_EQUAL(open_set("mine.idx", &trained, &error), WF_OK);
    CU_ASSERT_EQUAL(trained, TOKENS);
    CU_ASSERT_NOT_EQUAL(access(path_of("mine.loss.bin"), F_OK), 0);
}

static void manifests_that_are_none(void)
{
    static const char *const texts[] = {"", "[]", "{\"weft_dataset\": 2}",
                                        "{\"weft_dataset\": 1}",
                                        "{\"weft_dataset\": 1, \"id\": 3, \"parts\": {}}"};
    FILE *file;

    write_set("mine", 7, -1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        file = fopen(path_of("mine.dataset.json"), "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        fputs(texts[i], file);
        fclose(file);
        check_refused("mine.idx", "mine.dataset.json is no manifest of a dataset");
    }
}

static const wf_test tests[] = {{"parts of another set", parts_of_another_set},
                                {"parts that are missing", parts_that_are_missing},
                                {"the mask of an older set", mask_of_an_older_set},
                                {"manifests that are none", manifests_that_are_none},
                                {NULL, NULL}};

int main(void)
{
    return data_main("manifest", tests);
}
