/*
 * tests/mesh/test_job_compare.c - jobs of processes, played by ranks of a world of threads: all
 * hear the same.
 *
 * ctest: builds address thread
 */
#include "mesh/cluster/job_compare_internal.h"
#include "tests/harness.h"
#include "tests/mesh/ranks.h"
#include <stdio.h>

enum { N = 5 };

typedef struct play {
    int odd[N];           /* the value of process i in place of 0 */
    const char *fails[N]; /* NULL, or why it failed before */
    wf_error of[N];
} play;

static wf_status play_rank(wf_rank *rank, void *arg)
{
    play *p = arg;
    wf_job *job = wf_job_new();
    const wf_job_peers peers = {rank->size, rank->index, wf_job_gather_ranks, rank->world};
    wf_error *error = &p->of[rank->index], failed = {WF_OK, ""};

    wf_job_add(job, "lr", "%s", "0.1");
    wf_job_add(job, "seed", "%d", p->odd[rank->index]);
    if (p->fails[rank->index]) {
        wf_error_set(&failed, WF_EIO, "%s", p->fails[rank->index]);
        wf_job_fail(job, &failed);
    }
    wf_job_compare(job, &peers, error);
    wf_job_free(job);
    return WF_OK;
}

static void play_all(play *p)
{
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = N}, play_rank, p, &error), WF_OK);
    for (int i = 1; i < N; i++) {
        CU_ASSERT_EQUAL(p->of[i].code, p->of[0].code);
        CU_ASSERT_STRING_EQUAL(p->of[i].text, p->of[0].text);
    }
}

static void names_values_and_processes(void)
{
    play same = {.odd = {7, 7, 7, 7, 7}}, one = {.odd = {0, 0, 3, 0, 0}},
         last = {.odd = {0, 0, 0, 0, 3}}, zero = {.odd = {3, 0, 0, 0, 0}},
         all = {.odd = {0, 1, 2, 3, 4}};

    play_all(&same);
    CU_ASSERT_EQUAL(same.of[0].code, WF_OK);
    play_all(&one);
    CU_ASSERT(
        says(&one.of[0], WF_EMISMATCH, "seed is 0 in process 0 (", " and 3 in process 2 ("));
    CU_ASSERT(says(&one.of[0], WF_EMISMATCH, "(1 difference)", ""));
    play_all(&last);
    CU_ASSERT(
        says(&last.of[0], WF_EMISMATCH, "seed is 0 in process 0 (", " and 3 in process 4 ("));
    play_all(&zero);
    CU_ASSERT(says(&zero.of[0], WF_EMISMATCH, "seed is 3 in process 0 (",
                   "others than process 0 also have processes 2, 3, 4"));
    play_all(&all);
    CU_ASSERT(says(&all.of[0], WF_EMISMATCH, " and 1 in process 1 (", "processes 2, 3, 4"));
}

static void failures_of_processes(void)
{
    play one = {.odd = {0, 1, 0, 0, 0}, .fails = {[3] = "no such file"}},
         all = {.fails = {"--x is no flag", "--x is no flag", "--x is no flag",
                          "--x is no flag", "--x is no flag"}},
         others = {.fails = {"--x is no flag", "--y is no flag", "--x is no flag",
                             "--x is no flag", "--x is no flag"}};

    play_all(&one);
    CU_ASSERT(says(&one.of[0], WF_EIO, "process 3 (", "): no such file"));
    play_all(&all);
    CU_ASSERT_STRING_EQUAL(all.of[0].text, "--x is no flag");
    play_all(&others);
    CU_ASSERT(says(&others.of[0], WF_EIO, "process 0 (", "): --x is no flag"));
}

int main(void)
{
    static const wf_test tests[] = {{"names, values and processes", names_values_and_processes},
                                    {"failures of processes", failures_of_processes},
                                    {NULL, NULL}};

    return wf_test_main("job_compare", tests);
}
