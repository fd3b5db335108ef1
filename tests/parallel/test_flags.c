/* tests/parallel/test_flags.c - flags of a program from a config file, as a job, and
   printed. */
#include "parallel/flag_names.h"
#include "parallel/program/flags.h"
#include "tests/harness.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *log_file;
static int64_t steps;
static double rate;
static bool plan;

static const wf_flag flags[] = {
    {.name = "log-jsonl", .kind = WF_FLAG_TEXT, .value = &log_file},
    {.name = "steps", .kind = WF_FLAG_COUNT, .value = &steps, .least = 1, .most = 10},
    {.name = "lr", .kind = WF_FLAG_REAL, .value = &rate, .least = 0, .most = 1},
    {.name = "plan", .kind = WF_FLAG_SWITCH, .value = &plan},
    {.name = NULL}};

static wf_status read_config(const char *text, wf_error *error)
{
    char path[] = "/tmp/weft-test-flags-XXXXXX";
    int fd = mkstemp(path);
    wf_status status;

    *error = (wf_error){WF_OK, ""};
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    status = wf_flags_config("test", path, flags, error);
    unlink(path);
    return status;
}

/* The text of a config's flag, which lives as long as a program; here as long as this. */
static void forget_log_file(const char *text)
{
    CU_ASSERT(log_file && strcmp(log_file, text) == 0);
    free((void *)(uintptr_t)log_file);
    log_file = NULL;
}

static void from_a_config(void)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {{"{\"steps\": 1, \"steps\": 2}", "no JSON object of flags: duplicate"},
                 {"[]", "another value"},
                 {"{\"step\": 1}", "\"step\" is an unknown key; did you mean \"steps\"?"},
                 {"{\"steps\": 11}", "a whole number from 1 to 10"},
                 {"{\"steps\": \"2\"}", "a value of another kind"},
                 {"{\"lr\": 1e-60}", "as a 32-bit float"},
                 {"{\"plan\": 1}", "a value of another kind"}};
    wf_error error;

    CU_ASSERT_EQUAL(
        read_config("{\"log_jsonl\": \"a\", \"steps\": 3, \"lr\": 0.5, \"plan\": true}",
                    &error),
        WF_OK);
    CU_ASSERT(steps == 3 && rate == 0.5 && plan);
    forget_log_file("a");
    CU_ASSERT_EQUAL(read_config("{\"log-jsonl\": \"b\"}", &error), WF_OK);
    forget_log_file("b");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT(read_config(wrong[i].text, &error) != WF_OK);
        if (!strstr(error.text, wrong[i].words)) {
            printf("\n    '%s' is not in '%s'\n", wrong[i].words, error.text);
            CU_FAIL("see above");
        }
    }
}

static uint64_t digest_of(void)
{
    static const char *const own[] = {"log-jsonl", NULL};
    wf_job *job = wf_job_new();
    uint64_t digest;

    wf_flags_job(flags, own, job);
    CU_ASSERT_EQUAL(wf_job_error(job)->code, WF_OK);
    digest = wf_job_digest(job);
    wf_job_free(job);
    return digest;
}

/* Flags that processes may have of their own are no part of the job that they compare. */
static void own_flags(void)
{
    uint64_t digest = digest_of();

    log_file = "another";
    CU_ASSERT_EQUAL(digest_of(), digest);
    steps++;
    CU_ASSERT_NOT_EQUAL(digest_of(), digest);
}

/* Prints ".steps" with the flags of a program, or none; the caller's, free. */
static char *printed(wf_flag_of *flag_of)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    CU_ASSERT_FATAL(out != NULL);
    wf_flags_report(flag_of, flags);
    wf_flags_print(out, "more .%s, .log_jsonl (.unknown=%d) and v1.lr\n", "steps", 2);
    wf_flags_report(NULL, NULL);
    fclose(out);
    return text;
}

/* Texts name fields; a program that has flags for them prints these, another one the fields. */
static void printed_flags(void)
{
    char *with = printed(wf_flags_find), *without = printed(NULL);

    CU_ASSERT_STRING_EQUAL(with, "more --steps, --log-jsonl (.unknown=2) and v1.lr\n");
    CU_ASSERT_STRING_EQUAL(without, "more .steps, .log_jsonl (.unknown=2) and v1.lr\n");
    free(with);
    free(without);
}

int main(void)
{
    static const wf_test tests[] = {{"flags of a config", from_a_config},
                                    {"flags of a process", own_flags},
                                    {"flags that are printed", printed_flags},
                                    {NULL, NULL}};

    return wf_test_main("flags", tests);
}
