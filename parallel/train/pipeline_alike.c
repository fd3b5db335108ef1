/*
 * parallel/train/pipeline_alike.c - whether all ranks have the same pipeline: those of other processes have made
 * theirs by themselves, maybe of another file.
 */
#include "parallel/agree_internal.h"
#include "parallel/train/pipeline_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(uint64_t *hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

/* Of the table and the cut. */
static uint64_t hash_of(const wf_par_pipeline *p)
{
    uint64_t hash = 14695981039346656037u;
    int ranks = wf_pipe_table_shape(p->table).ranks;

    add(&hash, p->first, ((size_t)p->stages + 1) * sizeof *p->first);
    for (int s = 0; s < p->stages; s++) {
        int rank = wf_pipe_table_rank(p->table, s);

        add(&hash, &rank, sizeof rank);
    }
    for (int r = 0; r < ranks; r++) {
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(p->table, r, &n);

        add(&hash, &n, sizeof n);
        for (int64_t i = 0; i < n; i++) {
            int field[] = {a[i].kind, a[i].with_next, a[i].stage, a[i].micro, a[i].last};

            add(&hash, field, sizeof field);
        }
    }
    return hash;
}

/* A rank's pipeline. */
typedef struct account {
    uint64_t hash;
    int rank;
    char text[256];
} account;

/* Those of the lowest and of the highest hash; of equal ones that of the lowest rank. */
typedef struct extremes {
    account least, most;
} extremes;

static account account_of(const wf_par_pipeline *p, int rank)
{
    account a;
    size_t used;

    memset(&a, 0, sizeof a);
    a.hash = hash_of(p);
    a.rank = rank;
    used = (size_t)snprintf(a.text, sizeof a.text, "%.*s, cut before steps",
                            (int)strcspn(p->text, ";") < 120 ? (int)strcspn(p->text, ";") : 120,
                            p->text);
    for (int s = 1; s < p->stages && used < sizeof a.text; s++)
        used += (size_t)snprintf(a.text + used, sizeof a.text - used, "%s %" PRId64,
                                 s > 1 ? "," : "", p->first[s]);
    return a;
}

static void widen(void *into, const void *from, size_t bytes)
{
    extremes *a = into;
    const extremes *b = from;

    (void)bytes;
    if (b->least.hash < a->least.hash ||
        (b->least.hash == a->least.hash && b->least.rank < a->least.rank))
        a->least = b->least;
    if (b->most.hash > a->most.hash ||
        (b->most.hash == a->most.hash && b->most.rank < a->most.rank))
        a->most = b->most;
}

wf_status wf_par_pipeline_alike(const wf_par_pipeline *p, wf_par *par)
{
    const account mine = account_of(p, wf_context_rank(par->ctx)), *first, *other;
    extremes all = {mine, mine};

    if (wf_agree_on(par, sizeof all, &all, widen) != WF_OK || all.least.hash == all.most.hash)
        return wf_context_status(par->ctx);
    first = all.least.rank < all.most.rank ? &all.least : &all.most;
    other = first == &all.least ? &all.most : &all.least;
    return wf_fail(par->ctx, WF_EINVAL,
                   "ranks were given different pipelines: rank %d has %s (%016" PRIx64
                   "), and rank %d has %s (%016" PRIx64
                   "): give all processes the same schedule file, split, model and batch sizes",
                   first->rank, first->text, first->hash, other->rank, other->text,
                   other->hash);
}
