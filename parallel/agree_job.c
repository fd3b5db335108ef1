/* parallel/agree_job.c - jobs of ranks, compared by hash and, where hashes differ, entry by
   entry with those of rank 0. */
#include "mesh/comm/collective.h"
#include "parallel/agree.h"
#include "parallel/agree_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 6 };

/* The least and the greatest of hashes. */
typedef struct range {
    uint64_t least, most;
} range;

static void widen(void *into, const void *from, size_t bytes)
{
    const range *b = from;
    range *a = into;

    (void)bytes;
    a->least = b->least < a->least ? b->least : a->least;
    a->most = b->most > a->most ? b->most : a->most;
}

/* Ranks whose entries are not those of rank 0: how many, the first ones in ascending order, and
   what the first of them found. */
typedef struct found {
    int32_t count, rank[SHOWN];
    char text[1100];
} found;

static void merge(void *into, const void *from, size_t bytes)
{
    const found *b = from;
    found *a = into, sum = {.count = a->count + b->count};
    int i = 0, j = 0;

    (void)bytes;
    for (int n = 0; n < SHOWN && n < sum.count; n++) {
        bool mine = j == b->count || j == SHOWN ||
                    (i < a->count && i < SHOWN && a->rank[i] < b->rank[j]);

        sum.rank[n] = mine ? a->rank[i++] : b->rank[j++];
    }
    if (sum.count)
        memcpy(sum.text, a->count && sum.rank[0] == a->rank[0] ? a->text : b->text,
               sizeof sum.text);
    *a = sum;
}

wf_par_party wf_par_party_of(int rank)
{
    wf_par_party p;
    char host[60] = "";

    gethostname(host, sizeof host - 1);
    snprintf(p.text, sizeof p.text, "rank %d (%s)", rank, host);
    return p;
}

/* The text of rank 0, ended by 0, and who that is in *zero. NULL: an error, in the context.
   Owner: caller. */
static char *text_of_zero(wf_par *par, const wf_job *job, size_t *bytes, wf_par_party *zero)
{
    wf_comm *world = wf_mesh_world(par->mesh);
    const char *mine = wf_job_text(job, bytes);
    int64_t n = (int64_t)*bytes;
    wf_error error = {WF_OK, ""};
    char *text = NULL;

    *zero = wf_par_party_of(0);
    if (wf_broadcast(world, 1, 0, zero, sizeof *zero, &error) == WF_OK &&
        wf_broadcast(world, sizeof n, 0, &n, 1, &error) == WF_OK &&
        !(text = malloc((size_t)n + 1)))
        wf_error_set(&error, WF_ENOMEM, "no memory for the job of rank 0");
    if (text && wf_comm_rank(world) == 0)
        memcpy(text, mine, (size_t)n);
    if (text && n)
        wf_broadcast(world, 1, 0, text, n, &error);
    *bytes = (size_t)n;
    if (error.code == WF_OK)
        return text;
    wf_fail(par->ctx, error.code, "%s", error.text);
    free(text);
    return NULL;
}

/* Compares this rank's entries with those of rank 0; all ranks return what the first rank with
   a difference found. */
static wf_status name_differences(wf_par *par, const wf_job *job)
{
    int rank = wf_context_rank(par->ctx);
    wf_par_party zero, mine = wf_par_party_of(rank);
    size_t zero_bytes, bytes;
    char *text = text_of_zero(par, job, &zero_bytes, &zero), others[120] = "";
    char message[WF_ERROR_TEXT];
    found all = {.count = 0};
    int used = 0;

    if (!text)
        return wf_context_status(par->ctx);
    if (wf_job_differences(text, zero_bytes, zero.text, wf_job_text(job, &bytes), bytes,
                           mine.text, all.text, sizeof all.text) > 0) {
        all.count = 1;
        all.rank[0] = rank;
    }
    free(text);
    if (wf_agree_on(par, sizeof all, &all, merge) != WF_OK)
        return wf_context_status(par->ctx);
    for (int i = 1; i < all.count && i < SHOWN; i++)
        used += snprintf(others + used, sizeof others - (size_t)used, "%s %d",
                         i == 1 ? "; others than rank 0 also have ranks" : ",", all.rank[i]);
    if (all.count > SHOWN)
        snprintf(others + used, sizeof others - (size_t)used, " and %d more",
                 all.count - SHOWN);
    snprintf(message, sizeof message, "ranks were given different jobs: %s%s",
             all.count ? all.text : "hashes of models differ, and no entry", others);
    return wf_par_fail_as(par, all.count ? all.rank[0] : 0, WF_EMISMATCH, message);
}

wf_status wf_par_agree_job(wf_par *par, uint64_t hash, wf_par_describe *describe, void *arg)
{
    range all = {hash, hash};
    wf_job *job = NULL;

    if (wf_agree_on(par, sizeof all, &all, widen) != WF_OK)
        return wf_context_status(par->ctx);
    if (all.least == all.most)
        return WF_OK;
    job = wf_job_new();
    if (!job) /* the others hear so when this rank returns */
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for the entries of a job");
    describe(job, arg);
    name_differences(par, job);
    wf_job_free(job);
    return wf_context_status(par->ctx);
}

static void copy_job(wf_job *job, void *arg)
{
    wf_job_append(job, arg);
}

wf_status wf_par_compare_job(wf_par *par, const wf_job *job)
{
    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (job && wf_job_error(job)->code != WF_OK)
        return wf_fail(par->ctx, wf_job_error(job)->code, "%s", wf_job_error(job)->text);
    return wf_par_agree_job(par, wf_job_digest(job), copy_job, (void *)(uintptr_t)job);
}
