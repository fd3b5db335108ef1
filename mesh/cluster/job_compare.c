/*
 * mesh/cluster/job_compare.c - jobs of processes, compared: by hash in one gather of a small
 * card of each, and by name and value in a second one where hashes differ.
 */
#include "mesh/cluster/job_compare_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct card {
    uint64_t digest;
    int32_t failed; /* a wf_status */
    char host[60];
} card;

typedef struct gathered {
    char *all;
    size_t *begin; /* [n + 1] */
} gathered;

static wf_status gather(const wf_job_peers *p, const void *mine, size_t bytes, gathered *out,
                        wf_error *error)
{
    *out = (gathered){NULL, malloc(((size_t)p->n + 1) * sizeof(size_t))};
    if (!out->begin)
        return wf_error_set(error, WF_ENOMEM, "no memory to compare jobs of %d processes",
                            p->n);
    return p->gather(p->world, mine, bytes, &out->all, out->begin, error);
}

static void drop(gathered *g)
{
    free(g->all);
    free(g->begin);
}

/* "process 1 (node1)". */
typedef struct party {
    char text[96];
} party;

static party name_of(const card *c, int process)
{
    party p;

    snprintf(p.text, sizeof p.text, "process %d (%s)", process, c->host);
    return p;
}

/* Returns the first process that has failed, else the first whose job is another one than that
   of process 0; -1: none. */
static int find_other(const card *c, int n)
{
    for (int i = 0; i < n; i++)
        if (c[i].failed != WF_OK)
            return i;
    for (int i = 1; i < n; i++)
        if (c[i].digest != c[0].digest)
            return i;
    return -1;
}

/* "; so do processes 2, 3": the others whose job is not that of process 0. */
static void put_others(const card *c, int n, int other, char *text, size_t room)
{
    int used = 0, shown = 0;

    *text = '\0';
    for (int i = other + 1; i < n; i++)
        if (c[i].digest != c[0].digest && shown++ < 8 && used >= 0 && (size_t)used < room)
            used +=
                snprintf(text + used, room - (size_t)used, "%s %d",
                         shown == 1 ? "; others than process 0 also have processes" : ",", i);
    if (shown > 8 && (size_t)used < room)
        snprintf(text + used, room - (size_t)used, " and %d more", shown - 8);
}

/* Returns true where all processes have failed with the same text, as by a flag that all of
   them refuse. */
static bool all_say_that(int n, const gathered *g)
{
    for (int i = 0; i < n; i++)
        if (g->begin[i + 1] - g->begin[i] != g->begin[1] ||
            memcmp(g->all + g->begin[i], g->all, g->begin[1]) != 0)
            return false;
    return true;
}

/* Explains how `other` differs: its error, or entries beside those of process 0. */
static wf_status explain(const wf_job_peers *p, const card *c, int other, const gathered *g,
                         wf_error *error)
{
    const char *theirs = g->all + g->begin[other];
    size_t bytes = g->begin[other + 1] - g->begin[other];
    char text[900], others[160];
    party zero = name_of(&c[0], 0), one = name_of(&c[other], other);
    int n;

    if (c[other].failed != WF_OK && all_say_that(p->n, g))
        return wf_error_set(error, (wf_status)c[other].failed, "%.*s", (int)bytes, theirs);
    if (c[other].failed != WF_OK)
        return wf_error_set(error, (wf_status)c[other].failed, "%s: %.*s", one.text, (int)bytes,
                            theirs);
    n = wf_job_differences(g->all, g->begin[1], zero.text, theirs, bytes, one.text, text,
                           sizeof text);
    put_others(c, p->n, other, others, sizeof others);
    return wf_error_set(
        error, WF_EMISMATCH,
        "the processes of this run do not have the same job: %s%s (%d %s); start "
        "all with the same options and data",
        text, others, n, n == 1 ? "difference" : "differences");
}

wf_status wf_job_compare(const wf_job *job, const wf_job_peers *peers, wf_error *error)
{
    const wf_error *failed = wf_job_error(job);
    card mine = {.digest = wf_job_digest(job), .failed = (int32_t)failed->code};
    gathered cards, texts = {NULL, NULL};
    size_t bytes;
    const char *text = wf_job_text(job, &bytes);
    wf_status status;
    int other = -1;

    gethostname(mine.host, sizeof mine.host - 1);
    status = gather(peers, &mine, sizeof mine, &cards, error);
    if (status == WF_OK)
        other = find_other((const card *)(const void *)cards.all, peers->n);
    if (other >= 0) {
        const card *c = (const card *)(const void *)cards.all;

        if (failed->code != WF_OK)
            status = gather(peers, failed->text, strlen(failed->text), &texts, error);
        else if (peers->mine == 0 || peers->mine == other)
            status = gather(peers, text, bytes, &texts, error);
        else
            status = gather(peers, "", 0, &texts, error);
        if (status == WF_OK)
            status = explain(peers, c, other, &texts, error);
    }
    drop(&texts);
    drop(&cards);
    return status;
}

wf_status wf_job_gather_ranks(void *opaque, const void *mine, size_t bytes, char **all,
                              size_t *begin, wf_error *error)
{
    wf_comm *comm = opaque;
    int n = wf_comm_size(comm);
    int64_t *cuts = malloc(((size_t)n + 1) * sizeof *cuts), count = (int64_t)bytes;
    wf_status status = WF_OK;

    *all = NULL;
    for (int i = 0; cuts && i <= n; i++)
        cuts[i] = i;
    if (!cuts || !(*all = calloc((size_t)n, sizeof count)))
        status = wf_error_set(error, WF_ENOMEM, "no memory to compare jobs of %d ranks", n);
    if (status == WF_OK)
        status = wf_all_gather(comm, sizeof count, &count, *all, cuts, error);
    for (int i = 0; status == WF_OK && i < n; i++)
        memcpy(&cuts[i], *all + (size_t)i * sizeof count, sizeof count);
    begin[0] = 0;
    for (int i = 0; status == WF_OK && i < n; i++)
        begin[i + 1] = begin[i] + (size_t)cuts[i];
    for (int i = 0; status == WF_OK && i <= n; i++)
        cuts[i] = (int64_t)begin[i];
    if (status == WF_OK) {
        free(*all);
        *all = malloc(begin[n] + 1);
        status = *all ? wf_all_gather(comm, 1, mine, *all, cuts, error)
                      : wf_error_set(error, WF_ENOMEM, "no memory for jobs of %d ranks", n);
    }
    free(cuts);
    if (status != WF_OK) {
        free(*all);
        *all = NULL;
    }
    return status;
}
