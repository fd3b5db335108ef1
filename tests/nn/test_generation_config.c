/*
 * tests/nn/test_generation_config.c - which tokens end a text, as a folder's
 * generation_config.json and config.json say it: found, and refused with file and key where it
 * is damaged or asks for what Weft does not do.
 *
 * ctest: links weft_allocations
 */
#include "parallel/models/gpt/pretrained.h"
#include "tests/allocations.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 128 };

static char folder[WF_TEST_FOLDER];

static const char *path_in(const char *name)
{
    static char path[PATH];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* NULL: there is no such file. */
static void write_file(const char *name, const char *text)
{
    FILE *file;

    unlink(path_in(name));
    if (!text)
        return;
    file = fopen(path_in(name), "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    CU_ASSERT_EQUAL_FATAL(fclose(file), 0);
}

/* Checks the result of a pair of files: ids with a blank after each, or words of an error. */
static void check(const char *generation, const char *config, const char *ids,
                  const char *unknown, const char *wrong)
{
    const char *refused = *unknown ? unknown : wrong;
    wf_error error = {WF_OK, ""};
    wf_par_pretrained_ends ends;
    char found[256] = "";
    wf_status status;

    write_file("generation_config.json", generation);
    write_file("config.json", config);
    status = wf_par_pretrained_ends_read(folder, &ends, &error);
    for (int64_t i = 0; i < ends.count; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%d ", ends.id[i]);
    if (refused ? !strstr(error.text, refused) : *error.text)
        printf("\n    %s: %s\n", generation ? generation : "", error.text);
    if (refused) {
        CU_ASSERT_EQUAL(status, *unknown ? WF_EUNSUPPORTED : WF_EDATA);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, refused));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "config.json: "));
        return;
    }
    CU_ASSERT_EQUAL(status, WF_OK);
    CU_ASSERT_STRING_EQUAL(found, ids);
}

static void ends_are_found(void)
{
    check(NULL, "{}", "", "", NULL);
    check(NULL, "{\"eos_token_id\": 7}", "7 ", "", NULL);
    check("{\"eos_token_id\": 3}", "{\"eos_token_id\": 7}", "3 7 ", "", NULL);
    check("{\"eos_token_id\": [3, 9, 3], \"pad_token_id\": null}", "{\"eos_token_id\": 9}",
          "3 9 ", "", NULL);
    check("{\"eos_token_id\": null}", "{\"eos_token_id\": null}", "", "", NULL);
    check("{\"eos_token_id\": [2147483647, 2147483648]}", "{}", "2147483647 ", "", NULL);
}

static void unknown_keys_are_refused(void)
{
    check("{\"temperature\": 0.6, \"do_sample\": true, \"num_beams\": 1, \"min_length\": 0,"
          " \"bad_words_ids\": null, \"novelty\": null, \"stop_strings\": [], \"max_time\": 0,"
          " \"token_healing\": false, \"suppress_tokens\": [], \"use_mtp\": true}",
          "{}", "", "", NULL);
    check("{\"num_beams\": 4, \"eos_token_id\": 1, \"stop_strings\": [\"x\"]}", "{\"new\": 1}",
          "", ": num_beams, stop_strings; remove", NULL);
    check("{\"token_healing\": true}", "{}", "", "token_healing", NULL);
    check("{\"suppress_tokens\": [4]}", "{}", "", "suppress_tokens", NULL);
    check("{\"num_beams\": \"1\"}", "{}", "", "num_beams", NULL);
    check("{\"a\\u001bb\": 1}", "{}", "", "a key that cannot be printed", NULL);
}

static void damage_is_refused(void)
{
    static const char *const wrong[][2] = {
        {"{\"eos_token_id\": 1", "no JSON"},
        {"", "no JSON"},
        {"[2]", "is no object"},
        {"{\"eos_token_id\": \"2\"}", "\"eos_token_id\" is neither a token id"},
        {"{\"eos_token_id\": -1}", "\"eos_token_id\""},
        {"{\"eos_token_id\": 1.5}", "\"eos_token_id\""},
        {"{\"eos_token_id\": [1, null]}", "\"eos_token_id\""},
        {"{\"eos_token_id\": [1, [2]]}", "\"eos_token_id\""},
        {"{\"eos_token_id\": {}}", "\"eos_token_id\""},
        {"{\"pad_token_id\": true}", "\"pad_token_id\""},
        {"{\"bos_token_id\": \"<s>\"}", "\"bos_token_id\""},
        {"{\"eos_token_id\": 1, \"eos_token_id\": 2}", "eos_token_id"},
        {"{\"eos_token_id\": 99999999999999999999}", "no JSON"},
        {"{\"a\": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}", "nests deeper"}};
    char many[1024] = "{\"eos_token_id\": [0";

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check(wrong[i][0], "{}", "", "", wrong[i][1]);
    for (int i = 1; i <= 64; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ", %d", i);
    check(strcat(many, "]}"), "{}", "", "", "at most 64");
    check("{}", "{\"eos_token_id\": \"2\"}", "", "", "/config.json: \"eos_token_id\"");
}

static void a_file_that_cannot_be_read_is_reported(void)
{
    wf_error error = {WF_OK, ""};
    wf_par_pretrained_ends ends;

    write_file("generation_config.json", NULL);
    write_file("config.json", NULL);
    CU_ASSERT_EQUAL(wf_par_pretrained_ends_read(folder, &ends, &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/config.json"));
    write_file("config.json", "{}");
    CU_ASSERT_EQUAL(symlink("nowhere", path_in("generation_config.json")), 0);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_par_pretrained_ends_read(folder, &ends, &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/generation_config.json"));
    CU_ASSERT_EQUAL(unlink(path_in("generation_config.json")), 0);
    CU_ASSERT_EQUAL(mkdir(path_in("generation_config.json"), 0700), 0);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_par_pretrained_ends_read(folder, &ends, &error), WF_EIO);
    CU_ASSERT_EQUAL(rmdir(path_in("generation_config.json")), 0);
}

static wf_status read_ends(wf_error *error)
{
    wf_par_pretrained_ends ends;

    return wf_par_pretrained_ends_read(folder, &ends, error);
}

static void memory_ends(void)
{
    write_file("generation_config.json", "{\"eos_token_id\": [3, 9], \"num_beams\": 1}");
    write_file("config.json", "{\"eos_token_id\": 9, \"model_type\": \"llama\"}");
    each_allocation_fails(
        read_ends, 2); /* jansson's own are not made to fail: it takes that for bad JSON */
}

int main(void)
{
    static const wf_test tests[] = {
        {"ends are found", ends_are_found},
        {"unknown keys are refused", unknown_keys_are_refused},
        {"damage is refused", damage_is_refused},
        {"a file that cannot be read is reported", a_file_that_cannot_be_read_is_reported},
        {"memory ends", memory_ends},
        {NULL, NULL}};

    wf_test_new_folder(folder);
    return wf_test_main("generation config", tests);
}
