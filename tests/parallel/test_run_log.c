/* tests/parallel/test_run_log.c - console lines and JSONL rows of a run, read back. */
#include "parallel/report/run_log.h"
#include <jansson.h>
#include "tests/harness.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const wf_run_axis axes[] = {{"dp", 2}, {"tp", 4}};

static wf_step_log record_of(int64_t step)
{
    return (wf_step_log){
        .step = step,
        .loss = 5.5f - 0.001f * (float)step,
        .grad_norm = 0.75f,
        .lr = 9.1e-4,
        .ms = 312.4,
        .tokens_per_s = 13110.5,
        .model_flops_per_s = 41.25e9,
        .memory_peak = 212 << 20,
    };
}

static char *temporary_path(void)
{
    static char path[64];
    int file;

    strcpy(path, "/tmp/weft-run-log-XXXXXX");
    file = mkstemp(path);
    CU_ASSERT_FATAL(file >= 0);
    close(file);
    return path;
}

/* The rows of a file, each parsed on its own. */
static json_t *rows_of(const char *path)
{
    json_t *rows = json_array();
    FILE *file = fopen(path, "r");
    char line[4096];

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    while (fgets(line, sizeof line, file)) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

        CU_ASSERT_PTR_NOT_NULL_FATAL(row);
        json_array_append_new(rows, row);
    }
    fclose(file);
    return rows;
}

static void check_first_row(const json_t *row, const json_t *options)
{
    const json_t *mesh = json_object_get(row, "mesh");

    CU_ASSERT_EQUAL(json_integer_value(json_object_get(mesh, "dp")), 2);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(mesh, "tp")), 4);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(row, "world")), 8);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(row, "transport")), "threads");
    CU_ASSERT_TRUE(json_equal(json_object_get(row, "options"), options));
}

/* The row of record_of(1) with this loss. */
static void check_step_row(const json_t *row, float loss)
{
    uint32_t bits;
    char hex[16];

    memcpy(&bits, &loss, sizeof bits);
    snprintf(hex, sizeof hex, "%08x", bits);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(row, "step")), 1);
    CU_ASSERT_EQUAL((float)json_real_value(json_object_get(row, "loss")), loss);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(row, "loss_bits")), hex);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "lr")), 9.1e-4);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "ms")), 312.4);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "tokens_per_s")), 13110.5);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "grad_norm")), 0.75);
    CU_ASSERT_TRUE(json_is_null(json_object_get(row, "val_loss")));
    CU_ASSERT_PTR_NULL(json_object_get(row, "digest"));
}

static void rows_parse(void)
{
    const char *path = temporary_path();
    json_t *options = json_pack("{s:f, s:f, s:s}", "lr", 0.1, "third", 1.0 / 3, "arch", "gpt2");
    char *settings = json_dumps(options, 0);
    wf_run_log_options o = {.path = path,
                            .steps = 3,
                            .axes = axes,
                            .axis_count = 2,
                            .transport = "threads",
                            .settings = settings};
    wf_step_log r = record_of(1);
    wf_error error = {0};
    json_t *rows, *row;
    wf_run_log *log;
    float loss = 5.545290f;

    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    r.loss = loss;
    CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    rows = rows_of(path); /* before the log is closed: each row is in the file at once */
    CU_ASSERT_EQUAL(json_array_size(rows), 2);
    json_decref(rows);
    r = record_of(2);
    r.loss = NAN;
    r.grad_norm = INFINITY;
    r.has_val_loss = r.has_digest = true;
    r.val_loss = 4.25f;
    r.digest = 0xabcdef;
    CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_run_log_close(log, &error), WF_OK);
    rows = rows_of(path);
    CU_ASSERT_EQUAL_FATAL(json_array_size(rows), 3);

    check_first_row(json_array_get(rows, 0), options);
    check_step_row(json_array_get(rows, 1), loss);
    row = json_array_get(rows, 2);
    CU_ASSERT_TRUE(json_is_null(json_object_get(row, "loss")));
    CU_ASSERT_TRUE(json_is_null(json_object_get(row, "grad_norm")));
    CU_ASSERT_EQUAL(strlen(json_string_value(json_object_get(row, "loss_bits"))), 8);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "val_loss")), 4.25);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(row, "digest")),
                           "0000000000abcdef");
    json_decref(rows);
    free(settings);
    json_decref(options);
    unlink(path);
}

static void failing_files(void)
{
    wf_run_log_options o = {
        .steps = 3, .axes = axes, .axis_count = 2, .transport = "threads", .settings = "{}"};
    wf_error error = {0};
    wf_run_log *log = (wf_run_log *)&o;

    o.path = "/dev/null/at/all.jsonl";
    CU_ASSERT_EQUAL(wf_run_log_open(&o, &log, &error), WF_EIO);
    CU_ASSERT_PTR_NULL(log);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/dev/null: Not a directory"));
    error = (wf_error){0};
    o.path = "/dev/full";
    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_run_log_begin(log, 0, &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/dev/full: No space left on device"));
    wf_run_log_close(log, NULL);
}

static void failing_console(void)
{
    FILE *full = fopen("/dev/full", "w");
    wf_run_log_options o = {.steps = 3, .console = full};
    wf_step_log r = record_of(1);
    wf_error error = {0};
    wf_run_log *log;

    CU_ASSERT_PTR_NOT_NULL_FATAL(full);
    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK); /* it is reported, once */
    CU_ASSERT_EQUAL(wf_run_log_close(log, NULL), WF_OK);
    fclose(full);
}

/* The disk is full for two rows: they are missing, the others are whole, and training went
   on. */
static void full_disk(void)
{
    const char *path = temporary_path();
    json_t *rows;
    wf_run_log_options o = {.path = path,
                            .steps = 9,
                            .axes = axes,
                            .axis_count = 2,
                            .transport = "threads",
                            .settings = "{}"};
    struct rlimit before, limit;
    wf_error error = {0};
    struct stat file;
    wf_run_log *log;

    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    for (int64_t step = 1; step <= 6; step++) {
        wf_step_log r = record_of(step);

        if (step == 3 && stat(path, &file) == 0 && getrlimit(RLIMIT_FSIZE, &before) == 0) {
            limit = before;
            limit.rlim_cur = (rlim_t)file.st_size + 50;
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        if (step == 5)
            setrlimit(RLIMIT_FSIZE, &before);
        CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    }
    CU_ASSERT_EQUAL(wf_run_log_close(log, &error), WF_OK);
    rows = rows_of(path);
    CU_ASSERT_EQUAL(json_array_size(rows), 5);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_array_get(rows, 3), "step")), 5);
    json_decref(rows);
    unlink(path);
}

/* Scalars of a program's own: in rows by their keys, on the console where shown; NaN is null
   and "none". */
static void test_scalars(void)
{
    const wf_log_scalar of[] = {{"acc", "validation_metrics/acc", 0.25, 9, true},
                                {"balance", NULL, 1.0 / 3, 5, false},
                                {"empty", NULL, NAN, 9, true}};
    char path[] = "/tmp/weft-test-log-XXXXXX", *text = NULL;
    size_t size;
    FILE *console = open_memstream(&text, &size);
    wf_run_log_options o = {
        .path = path, .console = console, .steps = 1, .transport = "threads"};
    wf_step_log r = record_of(1);
    wf_error error = {0};
    wf_run_log *log;
    json_t *rows, *row;

    close(mkstemp(path));
    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    r.scalars = of;
    r.scalar_count = 3;
    CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_run_log_close(log, &error), WF_OK);
    fclose(console);
    rows = rows_of(path);
    row = json_array_get(rows, 1);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "acc")), 0.25);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(row, "balance")), 0.33333);
    CU_ASSERT_TRUE(json_is_null(json_object_get(row, "empty")));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "  acc 0.2500  empty none"));
    CU_ASSERT_PTR_NULL(strstr(text, "balance"));
    json_decref(rows);
    free(text);
    unlink(path);
}

/* Runs all steps; returns what the console got. */
static char *console_of(int64_t steps, bool terminal, int columns, int64_t val_step)
{
    char *text = NULL;
    size_t size;
    FILE *console = open_memstream(&text, &size);
    wf_run_log_options o = {
        .steps = steps, .console = console, .terminal = terminal, .columns = columns};
    wf_error error = {0};
    wf_run_log *log;

    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    for (int64_t step = 1; step <= steps; step++) {
        wf_step_log r = record_of(step);

        r.has_val_loss = step == val_step;
        r.val_loss = 4.5f;
        CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    }
    CU_ASSERT_EQUAL(wf_run_log_close(log, &error), WF_OK);
    fclose(console);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

static void plain_console(void)
{
    char *text = console_of(50, false, 0, 0);

    CU_ASSERT_EQUAL(count(text, "\n"), 50);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step 20/50  loss 5.4800  norm 0.750  lr 9.10e-04  312 "
                                        "ms  13.1k tok/s  41.2 model GFLOP/s  "
                                        "mem 212 MiB  eta 0:10\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step 50/50"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "eta 0:00"));
    CU_ASSERT_PTR_NULL(strchr(text, '\r'));
    free(text);

    /* 1, every 200th, the evaluated one, the last one. */
    text = console_of(20001, false, 0, 777);
    CU_ASSERT_EQUAL(count(text, "\n"), 1 + 100 + 1 + 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step     1/20001"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step   777/20001"));
    CU_ASSERT_EQUAL(count(text, "val 4.5000"), 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step 20001/20001"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "eta 1:44:08\n")); /* 20000 steps of 312.4 ms */
    free(text);
}

static void terminal_console(void)
{
    char *text = console_of(1000, true, 40, 0), *line;

    CU_ASSERT_EQUAL(count(text, "\n"), 1 + 20); /* the first, then every 50th */
    CU_ASSERT_EQUAL(count(text, "\r\033[K"), 1000);
    line = strstr(text, "step   51/1000");
    CU_ASSERT_PTR_NOT_NULL_FATAL(line);
    CU_ASSERT_EQUAL(strcspn(line, "\r\n"), 39); /* cut, so that it can be rewritten */
    free(text);
}

/* Other text on the console starts on a clean line, and a closed log leaves none open. */
static void clear_ends_the_line(void)
{
    char *text = NULL;
    size_t size;
    FILE *console = open_memstream(&text, &size);
    wf_run_log_options o = {.steps = 1000, .console = console, .terminal = true};
    wf_error error = {0};
    wf_run_log *log;

    CU_ASSERT_EQUAL_FATAL(wf_run_log_open(&o, &log, &error), WF_OK);
    for (int64_t step = 1; step <= 2; step++) {
        wf_step_log r = record_of(step);

        CU_ASSERT_EQUAL(wf_run_log_step(log, &r, &error), WF_OK);
    }
    CU_ASSERT_NOT_EQUAL(memcmp(text + size - 4, "\r\033[K", 4), 0);
    wf_run_log_clear(log);
    CU_ASSERT_EQUAL(memcmp(text + size - 4, "\r\033[K", 4), 0);
    wf_run_log_clear(log);
    CU_ASSERT_EQUAL(wf_run_log_close(log, &error), WF_OK);
    fclose(console);
    CU_ASSERT_EQUAL(count(text, "\r\033[K"), 3);
    free(text);
}

static void console_of_a_pipe(void)
{
    wf_run_log_options o = {0};
    FILE *plain = fopen("/dev/null", "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(plain);
    wf_run_log_console(&o, plain);
    CU_ASSERT_PTR_EQUAL(o.console, plain);
    CU_ASSERT_FALSE(o.terminal);
    fclose(plain);
}

static const wf_test tests[] = {
    {"rows parse", rows_parse},
    {"failing files", failing_files},
    {"failing console", failing_console},
    {"a disk that is full for a while", full_disk},
    {"plain console", plain_console},
    {"terminal console", terminal_console},
    {"clear ends the line", clear_ends_the_line},
    {"a pipe is no terminal", console_of_a_pipe},
    {"scalars of a program's own", test_scalars},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("run_log", tests);
}
