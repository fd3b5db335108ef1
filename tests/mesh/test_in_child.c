/*
 * tests/mesh/test_in_child.c - what reads in a child process: its answers, its errors, and its
 * end.
 *
 * ctest: defines WEFT_TOPOLOGIES=tests/mesh/topologies
 */
#include "mesh/cluster/host.h"
#include "mesh/cluster/in_child_internal.h"
#include "tests/harness.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static wf_status answers(void *arg, FILE *out, wf_error *error)
{
    (void)error;
    fputs(arg, out);
    return WF_OK;
}

static wf_status fails(void *arg, FILE *out, wf_error *error)
{
    fputs("not to be seen", out);
    return wf_error_set(error, WF_EDATA, "%s is wrong", (const char *)arg);
}

static wf_status crashes(void *arg, FILE *out, wf_error *error)
{
    (void)error;
    fputs(arg, out);
    raise(SIGSEGV);
    return WF_OK;
}

static wf_status is_killed(void *arg, FILE *out, wf_error *error)
{
    (void)error;
    fputs(arg, out);
    raise(SIGKILL);
    return WF_OK;
}

static wf_status writes_much(void *arg, FILE *out, wf_error *error)
{
    (void)error;
    for (int i = 0; i < 10000; i++)
        fputs(arg, out);
    return WF_OK;
}

static void children(void)
{
    static const struct row {
        wf_child_body *body;
        wf_status status;
        const char *words;
    } rows[] = {{answers, WF_OK, ""},
                {fails, WF_EDATA, "a text is wrong"},
                {crashes, WF_EIO, "a file: hwloc crashes on it (Segmentation fault)"},
                {is_killed, WF_EIO, "a file: hwloc gives up on it"},
                {writes_much, WF_EIO, "too large a machine"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_error error = {WF_OK, ""};
        char text[] = "a text", *result;
        size_t bytes;

        CU_ASSERT_EQUAL(
            wf_in_child("a file", rows[i].body, text, 4096, &result, &bytes, &error),
            rows[i].status);
        CU_ASSERT(strstr(error.text, rows[i].words) != NULL);
        CU_ASSERT((result != NULL) == (rows[i].status == WF_OK));
        CU_ASSERT(!result || (bytes == 6 && memcmp(result, "a text", 6) == 0));
        free(result);
    }
}

/* hwloc 2.9 crashes on it; any other may do as it likes, but for that. */
static void a_file_that_hwloc_does_not_survive(void)
{
    static const char path[] =
        WEFT_TOPOLOGIES "/../../fuzz/corpus/topology/crashes_hwloc_2.9.xml";
    wf_error error = {WF_OK, ""};
    wf_host *host;
    wf_status status = wf_host_read(&(wf_host_options){.source = path}, &host, &error);

    CU_ASSERT((host != NULL) == (status == WF_OK));
    CU_ASSERT(status == WF_OK || status == WF_EIO || status == WF_EINVAL);
    wf_host_free(host);
}

int main(void)
{
    static const wf_test tests[] = {
        {"answers, errors and ends of children", children},
        {"a file that hwloc does not survive", a_file_that_hwloc_does_not_survive},
        {NULL, NULL}};

    return wf_test_main("in_child", tests);
}
