/* tests/core/test_job.c - named entries of a run, and what differs between two jobs. */
#include "core/job.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1100];

static int differences(const wf_job *a, const wf_job *b)
{
    size_t a_bytes, b_bytes;
    const char *one = wf_job_text(a, &a_bytes), *other = wf_job_text(b, &b_bytes);

    return wf_job_differences(one, a_bytes, "A", other, b_bytes, "B", text, sizeof text);
}

static wf_job *usual(int lr, const char *data)
{
    wf_job *job = wf_job_new();

    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_EQUAL(wf_job_add(job, "lr", "0.%d", lr), WF_OK);
    CU_ASSERT_EQUAL(wf_job_add(job, "data", "%s", data), WF_OK);
    CU_ASSERT_EQUAL(wf_job_add(job, "empty", "%s", ""), WF_OK);
    return job;
}

static void values(void)
{
    wf_job *a = usual(1, "text"), *same = usual(1, "text"), *lr = usual(2, "text"),
           *both = usual(2, "book");

    CU_ASSERT_EQUAL(wf_job_digest(a), wf_job_digest(same));
    CU_ASSERT_EQUAL(differences(a, same), 0);
    CU_ASSERT_NOT_EQUAL(wf_job_digest(a), wf_job_digest(lr));
    CU_ASSERT_EQUAL(differences(a, lr), 1);
    CU_ASSERT_STRING_EQUAL(text, "lr is 0.1 in A and 0.2 in B");
    CU_ASSERT_EQUAL(differences(a, both), 2);
    CU_ASSERT_STRING_EQUAL(text, "lr is 0.1 in A and 0.2 in B; data: text and book");
    wf_job_free(a);
    wf_job_free(same);
    wf_job_free(lr);
    wf_job_free(both);
}

/* The boundaries between values and names count; an entry that only one job has is reported
   with nothing on the other side. */
static void names(void)
{
    wf_job *a = wf_job_new(), *b = wf_job_new(), *c = usual(1, "text"), *none = wf_job_new();

    wf_job_add(a, "ab", "%s", "c");
    wf_job_add(b, "a", "%s", "bc");
    CU_ASSERT_NOT_EQUAL(wf_job_digest(a), wf_job_digest(b));
    CU_ASSERT_EQUAL(differences(a, b), 2);
    CU_ASSERT_STRING_EQUAL(text, "ab is c in A and not there in B; a: not there and bc");
    CU_ASSERT_EQUAL(wf_job_append(a, c), WF_OK);
    wf_job_add(b, "lr", "%s", "0.3");
    CU_ASSERT_EQUAL(differences(a, b), 1);
    CU_ASSERT_STRING_EQUAL(text, "lr is 0.1 in A and 0.3 in B");
    CU_ASSERT_EQUAL(differences(none, none), 0);
    CU_ASSERT_EQUAL(differences(none, c), 3);
    CU_ASSERT(strstr(text, "empty: not there and empty") != NULL);
    CU_ASSERT_EQUAL(wf_job_add(NULL, "lr", "%s", "0.3"), WF_OK);
    wf_job_free(a);
    wf_job_free(b);
    wf_job_free(c);
    wf_job_free(none);
}

/* Long values are shown where they begin to differ, and entries that have no room are left out
   whole. */
static void long_values(void)
{
    wf_job *a = wf_job_new(), *b = wf_job_new();
    char value[2001];

    memset(value, 'x', 2000);
    value[2000] = '\0';
    wf_job_add(a, "long", "%sone", value);
    wf_job_add(b, "long", "%stwo", value);
    for (int i = 0; i < 200; i++) {
        char name[16];

        snprintf(name, sizeof name, "entry%d", i);
        wf_job_add(a, name, "%d", i);
        wf_job_add(b, name, "%d", i + 1);
    }
    CU_ASSERT_EQUAL(differences(a, b), 201);
    CU_ASSERT(strstr(text, "xone in A and ..xxx") != NULL);
    CU_ASSERT(strstr(text, "xtwo in B; entry0: 0 and 1; ") != NULL);
    CU_ASSERT(strlen(text) < sizeof text);
    wf_job_free(a);
    wf_job_free(b);
}

static void errors(void)
{
    wf_job *a = usual(1, "text"), *b = wf_job_new();
    const wf_error error = {WF_EIO, "no such file"};

    wf_job_fail(a, &error);
    CU_ASSERT_EQUAL(wf_job_error(a)->code, WF_EIO);
    wf_job_append(b, a);
    CU_ASSERT_STRING_EQUAL(wf_job_error(b)->text, "no such file");
    wf_job_free(a);
    wf_job_free(b);
    wf_job_free(NULL);
}

int main(void)
{
    static const wf_test tests[] = {{"values", values},
                                    {"names", names},
                                    {"long values", long_values},
                                    {"errors", errors},
                                    {NULL, NULL}};

    return wf_test_main("job", tests);
}
