/* tests/parallel/test_row_file.c - files of rows that grow: what they have stays, and is
   continued or refused. */
#include "parallel/report/row_file.h"
#include <jansson.h>
#include "parallel/report/run_log.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const wf_run_axis axes[] = {{"dp", 2}, {"tp", 4}};

/* Logs so many steps behind `after`. Returns the status of opening the log. */
static wf_status log_steps(const char *path, bool continues, int64_t after, int64_t steps,
                           int64_t *logged, wf_error *error)
{
    wf_run_log_options o = {.path = path,
                            .continues = continues,
                            .steps = 99,
                            .axes = axes,
                            .axis_count = 2,
                            .transport = "threads",
                            .settings = "{}"};
    wf_run_log *log;
    wf_status status;

    *error = (wf_error){0};
    status = wf_run_log_open(&o, &log, error);
    if (status != WF_OK)
        return status;
    *logged = wf_run_log_logged(log);
    if (steps)
        CU_ASSERT_EQUAL(wf_run_log_begin(log, after, error), WF_OK);
    for (int64_t step = after + 1; step <= after + steps; step++) {
        wf_step_log r = {.step = step, .loss = 5.5f, .ms = 3};

        CU_ASSERT_EQUAL(wf_run_log_step(log, &r, error), WF_OK);
    }
    CU_ASSERT_EQUAL(wf_run_log_close(log, error), WF_OK);
    return WF_OK;
}

static off_t size_of(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? s.st_size : -1;
}

/* Rows of a file stay: a run that continues appends to it, another one refuses it. */
static void rows_stay(void)
{
    char folder[WF_TEST_FOLDER], above[WF_TEST_FOLDER + 8], path[sizeof above + 8];
    int64_t logged = -1;
    wf_error error;
    off_t size;

    wf_test_new_folder(folder);
    snprintf(above, sizeof above, "%s/new", folder);
    snprintf(path, sizeof path, "%s/log", above);
    CU_ASSERT_EQUAL(log_steps(path, false, 0, 0, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(size_of(path), -1); /* nothing was begun, and nothing is left */
    CU_ASSERT_EQUAL(log_steps(path, false, 0, 3, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(logged, 0);
    size = size_of(path);
    CU_ASSERT_EQUAL(log_steps(path, false, 0, 3, &logged, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "has rows of a run, up to step 3"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "or continue with .resume"));
    CU_ASSERT_EQUAL(log_steps(path, true, 3, 0, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(size_of(path), size);
    CU_ASSERT_EQUAL(log_steps(path, true, 2, 2, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(logged, 3);
    CU_ASSERT_EQUAL(log_steps(path, true, 4, 0, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(logged, 4);
    CU_ASSERT_EQUAL(log_steps(path, true, 0, 1, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(log_steps(path, true, 1, 0, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(logged, 1); /* the last run began again */
    unlink(path);
    rmdir(above);
    rmdir(folder);
}

/* A row that was cut keeps its line, and the next one has its own; a text is taken for no
   log. */
static void cut_rows(void)
{
    char path[] = "/tmp/weft-row-file-XXXXXX", line[4096];
    int fd = mkstemp(path);
    int64_t logged;
    wf_error error;
    FILE *file;
    int lines = 0, bad = 0;

    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    CU_ASSERT_EQUAL(log_steps(path, false, 0, 3, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(truncate(path, size_of(path) - 20), 0);
    CU_ASSERT_EQUAL(log_steps(path, true, 2, 2, &logged, &error), WF_OK);
    CU_ASSERT_EQUAL(logged, 2);
    file = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    for (; fgets(line, sizeof line, file); lines++) {
        json_t *row = json_loads(line, 0, NULL);

        bad += !row;
        json_decref(row);
    }
    CU_ASSERT_EQUAL(lines, 7);
    CU_ASSERT_EQUAL(bad, 1);
    fclose(file);
    CU_ASSERT_EQUAL_FATAL(truncate(path, 0), 0);
    CU_ASSERT_EQUAL(log_steps(path, false, 0, 1, &logged, &error), WF_OK);
    file = fopen(path, "w");
    fputs("My letters\n", file);
    fclose(file);
    CU_ASSERT_EQUAL(log_steps(path, true, 0, 1, &logged, &error), WF_EINVAL);
    CU_ASSERT_EQUAL(size_of(path), 11);
    unlink(path);
}

/* A file whose name can be guessed is the program's own, or is refused and stays as it is. */
static void own_files(void)
{
    char folder[WF_TEST_FOLDER], inside[WF_TEST_FOLDER + 8], path[sizeof inside + 8],
        other[sizeof path];
    wf_error error = {0};
    wf_row_file f;

    wf_test_new_folder(folder);
    snprintf(inside, sizeof inside, "%s/new", folder);
    snprintf(path, sizeof path, "%s/rows", inside);
    snprintf(other, sizeof other, "%s/other", folder);
    CU_ASSERT_EQUAL(wf_row_file_open_own(&f, "--rows", inside, "rows", &error), WF_OK);
    CU_ASSERT_TRUE(f.empty);
    CU_ASSERT_EQUAL(wf_row_file_write(&f, "1\n", 2, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_row_file_close(&f, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_row_file_open_own(&f, "--rows", inside, "rows", &error), WF_OK);
    CU_ASSERT_FALSE(f.empty);
    CU_ASSERT_EQUAL(wf_row_file_close(&f, &error), WF_OK);
    CU_ASSERT_EQUAL(size_of(path), 2);
    CU_ASSERT_EQUAL(rename(path, other), 0);
    CU_ASSERT_EQUAL(link(other, path), 0); /* another name of a file */
    CU_ASSERT_EQUAL(wf_row_file_open_own(&f, "--rows", inside, "rows", &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "--rows: "));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/new/rows is no file of its own"));
    unlink(path);
    CU_ASSERT_EQUAL(symlink(other, path), 0); /* a link to a file, and to none */
    CU_ASSERT_EQUAL(wf_row_file_open_own(&f, "--rows", inside, "rows", &error), WF_EIO);
    CU_ASSERT_EQUAL(size_of(other), 2);
    unlink(other);
    CU_ASSERT_EQUAL(wf_row_file_open_own(&f, "--rows", inside, "rows", &error), WF_EIO);
    CU_ASSERT_EQUAL(size_of(other), -1);
    unlink(path);
    rmdir(inside);
    rmdir(folder);
}

/* Rows of a file that was removed under its writer were lost without a word; one that was moved
   takes them. */
static void removed_files(void)
{
    char folder[WF_TEST_FOLDER], path[WF_TEST_FOLDER + 8], moved[WF_TEST_FOLDER + 8];
    wf_row_file file;
    wf_error error = {WF_OK, ""};

    wf_test_new_folder(folder);
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(moved, sizeof moved, "%s/moved", folder);
    CU_ASSERT_EQUAL_FATAL(wf_row_file_open(&file, "--log", path, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_row_file_write(&file, "1\n", 2, &error), WF_OK);
    CU_ASSERT_EQUAL(rename(path, moved), 0);
    CU_ASSERT_EQUAL(wf_row_file_write(&file, "2\n", 2, &error), WF_OK);
    CU_ASSERT_EQUAL(size_of(moved), 4);
    CU_ASSERT_EQUAL(remove(moved), 0);
    CU_ASSERT_EQUAL(wf_row_file_write(&file, "3\n", 2, &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/log was removed while the run writes to it"));
    wf_row_file_close(&file, NULL);
}

static const wf_test tests[] = {
    {"own files", own_files},
    {"rows stay", rows_stay},
    {"rows that were cut", cut_rows},
    {"files that are removed", removed_files},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("row_file", tests);
}
