/*
 * parallel/pipeline/lower_unshard.c - inserts gathers of stages: at most `resident` at a time,
 * and the one whose next use is the farthest is resharded (Belady), as soon as it has been
 * used.
 */
#include "parallel/pipeline/lower_internal.h"
#include <stdlib.h>

/* Something to be added before the compute actions of index `at`. */
typedef struct insertion {
    int64_t at, order;
    wf_pipe_kind kind;
    int stage;
} insertion;

typedef struct residency {
    const wf_pipe_row *row;
    int most, prefetch, n_resident;
    int64_t
        *next; /* [actions] where the stage of an action is used next; past the end: never */
    int64_t *seen; /* [stages] where a stage is used next; of those resident, valid */
    int64_t *used; /* [stages] after its last use so far; of those not resident: not before */
    int *resident; /* [most] */
    insertion *add;
    int64_t n;
} residency;

static void add(residency *d, int64_t at, wf_pipe_kind kind, int stage)
{
    d->add[d->n] = (insertion){at, d->n, kind, stage};
    d->n++;
}

/* Reshards the stage whose next use is the farthest, right after its last use; returns
   where. */
static int64_t evict(residency *d)
{
    int victim = 0, stage;

    for (int i = 1; i < d->n_resident; i++)
        if (d->seen[d->resident[i]] > d->seen[d->resident[victim]])
            victim = i;
    stage = d->resident[victim];
    d->resident[victim] = d->resident[--d->n_resident];
    add(d, d->used[stage], WF_PIPE_RESHARD, stage);
    return d->used[stage];
}

static bool is_resident(const residency *d, int stage)
{
    for (int i = 0; i < d->n_resident; i++)
        if (d->resident[i] == stage)
            return true;
    return false;
}

/* Two that overlap need both of their stages, from where the first one stands. */
static wf_status use(residency *d, int64_t i, int64_t at, int64_t after)
{
    int stage = d->row->action[i].stage;

    if (!is_resident(d, stage)) {
        int64_t earliest = d->n_resident == d->most ? evict(d) : 0;
        int64_t begin = at - d->prefetch;

        /* A stage is resharded before it is regathered. */
        earliest = d->used[stage] > earliest ? d->used[stage] : earliest;
        if (earliest > at)
            return WF_EINVAL;
        add(d, begin > earliest ? begin : earliest, WF_PIPE_UNSHARD, stage);
        d->resident[d->n_resident++] = stage;
    }
    d->seen[stage] = d->next[i];
    d->used[stage] = after;
    return WF_OK;
}

static int by_index(const void *a, const void *b)
{
    const insertion *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static wf_status plan_row(residency *d, const wf_pipe_table *in)
{
    const wf_pipe_row *row = d->row;
    wf_status status = WF_OK;

    for (int s = 0; s < in->shape.stages; s++) {
        d->seen[s] = row->n;
        d->used[s] = 0;
    }
    for (int64_t i = row->n - 1; i >= 0; i--) {
        d->next[i] = d->seen[row->action[i].stage];
        d->seen[row->action[i].stage] = i;
    }
    for (int64_t i = 0, n; status == WF_OK && i < row->n; i += n) {
        n = wf_pipe_together(row, i);
        for (int64_t k = 0; status == WF_OK && k < n; k++)
            status = use(d, i + k, i, i + n);
    }
    for (int i = 0; i < d->n_resident; i++)
        add(d, d->used[d->resident[i]], WF_PIPE_RESHARD, d->resident[i]);
    qsort(d->add, (size_t)d->n, sizeof *d->add, by_index);
    return status;
}

static void fill_row(const residency *d, wf_pipe_table *out, int rank)
{
    int64_t next = 0;

    for (int64_t i = 0; i <= d->row->n; i++) {
        while (next < d->n && d->add[next].at <= i &&
               !(i && i < d->row->n && d->row->action[i - 1].with_next)) {
            wf_pipe_table_add(out, rank, d->add[next].kind, d->add[next].stage, 0);
            next++;
        }
        if (i < d->row->n)
            wf_pipe_table_append(out, rank, &d->row->action[i]);
    }
}

static wf_status unshard_row(residency *d, const wf_pipe_table *in, wf_pipe_table *out,
                             int rank)
{
    size_t n = (size_t)in->row[rank].n + 1, stages = (size_t)in->shape.stages;
    wf_status status = WF_ENOMEM;

    d->row = &in->row[rank];
    d->next = malloc(n * sizeof *d->next);
    d->seen = malloc(2 * stages * sizeof *d->seen);
    d->resident = malloc(((size_t)d->most + 1) * sizeof *d->resident);
    d->add = malloc(2 * n * sizeof *d->add);
    if (d->next && d->seen && d->resident && d->add) {
        d->used = d->seen + stages;
        status = plan_row(d, in);
    }
    if (status == WF_OK)
        fill_row(d, out, rank);
    else if (status == WF_ENOMEM)
        wf_error_set(&out->error, status, "no memory to lower a row of %zu actions", n);
    else
        wf_pipe_table_refuse(out,
                             "rank %d has two actions on different stages that may overlap, "
                             "and at most %d stage gathered: make resident 2 or more",
                             rank, d->most);
    free(d->next);
    free(d->seen);
    free(d->resident);
    free(d->add);
    return out->error.code;
}

wf_status wf_pipe_pass_unshard(const wf_pipe_table *in, const wf_pipe_lowering *how,
                               wf_pipe_table *out)
{
    int most = how->resident < in->shape.stages ? how->resident : in->shape.stages;

    out->facts.resident = most;
    for (int r = 0; r < in->shape.ranks && out->error.code == WF_OK; r++) {
        residency d = {.most = most, .prefetch = how->prefetch};

        if (most) {
            unshard_row(&d, in, out, r);
            continue;
        }
        for (int64_t i = 0; i < in->row[r].n; i++)
            wf_pipe_table_append(out, r, &in->row[r].action[i]);
    }
    return out->error.code;
}
