/*
 * parallel/recovery/exchange.c - snapshots of several processes: shards that the ranks of one
 * process need and another one has are sent there.
 *
 * One rank acts for each process. These ranks exchange which shards they have, then which of
 * the others' they lack, and then these are sent, in buckets.
 */
#include "mesh/comm/collective.h"
#include "mesh/transport/launcher.h"
#include "parallel/agree_internal.h"
#include "parallel/recovery/snapshot_internal.h"
#include <stdlib.h>
#include <string.h>

enum { BUCKET = 16 << 20 }; /* floats that travel together, or one shard */

/* A shard that some process has. */
typedef struct offer {
    wf_part part;
    int process, kinds;
    char path[WF_NN_PATH];
} offer;

typedef struct exchange {
    wf_par_snapshot *snapshot;
    wf_par_trainer *trainer;
    wf_comm *world;
    wf_error *error;
    int ranks, process;
    bool speaks;
    int *process_of; /* [ranks] */
    int *speaker_of; /* [ranks]: of the process of that number; -1: none */
    int64_t offers;
    offer *offer;  /* [offers], of all processes in the order of their speakers */
    uint8_t *want; /* [ranks][offers]: what the process of a speaker lacks */
} exchange;

static bool no_memory(exchange *x)
{
    wf_error_set(x->error, WF_ENOMEM, "no memory to exchange what ranks left");
    return false;
}

/* Gathers the bytes of every rank, side by side. Collective; false with an error in the
   context. */
static bool gather(exchange *x, const void *mine, int64_t bytes, const int64_t *cuts, void *all)
{
    wf_context *ctx = x->trainer->par->ctx;
    wf_comm_buffer buffer = {.in = mine, .out = all, .cuts = cuts, .count = bytes};
    wf_collective what = {.kind = WF_ALL_GATHER,
                          .element = 1,
                          .n_buffers = 1,
                          .buffers = &buffer,
                          .at_once = true};
    wf_error error = {WF_OK, ""};

    if (wf_collective_run(x->world, &what, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx) == WF_OK;
}

/* Who is in which process. False: all in one, or an error. */
static bool meet(exchange *x)
{
    wf_mesh *mesh = x->trainer->par->mesh;
    const int *all;
    bool several = false;

    x->process = wf_launcher_detected().process;
    all = wf_mesh_gather(mesh, &x->process, sizeof x->process);
    if (!all)
        return false;
    x->process_of = calloc((size_t)x->ranks, sizeof *x->process_of);
    x->speaker_of = malloc((size_t)x->ranks * sizeof *x->speaker_of);
    if (!x->process_of || !x->speaker_of)
        return no_memory(x);
    memcpy(x->process_of, all, (size_t)x->ranks * sizeof *all);
    memset(x->speaker_of, -1, (size_t)x->ranks * sizeof *x->speaker_of);
    for (int r = x->ranks - 1; r >= 0; r--) {
        several = several || x->process_of[r] != x->process;
        if (x->process_of[r] < x->ranks)
            x->speaker_of[x->process_of[r]] = r;
    }
    x->speaks = x->speaker_of[x->process] == wf_comm_rank(x->world);
    return several;
}

static int kinds_of(const wf_kept *kept)
{
    int kinds = 0;

    for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT; kind++)
        kinds |= kept->data[kind] ? 1 << kind : 0;
    return kinds;
}

static int count_kinds(int kinds)
{
    return __builtin_popcount((unsigned)kinds);
}

/* All offers, on every rank. */
static bool gather_offers(exchange *x)
{
    const wf_par_snapshot *k = x->snapshot;
    int64_t *cuts = calloc((size_t)x->ranks + 1, sizeof *cuts), n = 0;
    offer *mine = calloc((size_t)(x->speaks ? k->count : 0) + 1, sizeof *mine);
    const int64_t *counts;
    bool good = cuts && mine;

    for (int64_t i = 0; good && x->speaks && i < k->count; i++) {
        const wf_kept *kept = &k->kept[i];

        if (!wf_kept_is_last(k, kept))
            continue;
        mine[n] = (offer){.part = kept->part, .process = x->process, .kinds = kinds_of(kept)};
        strncpy(mine[n++].path, kept->path, sizeof mine->path - 1);
    }
    counts = wf_mesh_gather(x->trainer->par->mesh, &n, sizeof n);
    for (int r = 0; good && counts && r < x->ranks; r++)
        cuts[r + 1] = cuts[r] + counts[r] * (int64_t)sizeof *mine;
    if (good && counts) {
        x->offers = cuts[x->ranks] / (int64_t)sizeof *mine;
        x->offer = calloc((size_t)x->offers + 1, sizeof *x->offer);
    }
    good = good && counts && x->offer &&
           gather(x, mine, n * (int64_t)sizeof *mine, cuts, x->offer);
    if (!good && wf_context_status(x->trainer->par->ctx) == WF_OK)
        no_memory(x);
    free(mine);
    free(cuts);
    return good;
}

/* Which offers rank r needs of parameter p, beside what its process has. */
static bool want_for(exchange *x, const wf_nn_parameter *p, int r, uint8_t *want)
{
    const wf_par_snapshot *k = x->snapshot;
    const wf_tensor *t = p->tensor;
    wf_missing m = {0};
    wf_part part = {.ndim = t->ndim};
    bool wanted, good;

    for (int d = 0; d < t->ndim; d++)
        wf_layout_part(x->trainer->par->mesh, t->layout, d, &t->dim[d], r, &part.start[d],
                       &part.local[d]);
    good = wf_part_count(&part) == 0 || wf_missing_add(&m, &part);
    for (int64_t i = wf_par_snapshot_first(k, p->path);
         good && i < k->count && strcmp(k->kept[i].path, p->path) == 0; i++)
        if (wf_kept_is_last(k, &k->kept[i]))
            good = wf_missing_found(&m, &k->kept[i].part, &wanted);
    for (int64_t i = 0; good && m.n && i < x->offers; i++)
        if (x->offer[i].process != x->process && x->offer[i].part.ndim == part.ndim &&
            strcmp(x->offer[i].path, p->path) == 0) {
            good = wf_missing_found(&m, &x->offer[i].part, &wanted);
            want[i] |= wanted;
        }
    free(m.part);
    return good;
}

/* Gathers the missing parts of every process, on every rank. */
static bool gather_wants(exchange *x)
{
    const wf_par_trainer *t = x->trainer;
    uint8_t *mine = calloc((size_t)x->offers + 1, 1);
    int64_t *cuts = calloc((size_t)x->ranks + 1, sizeof *cuts);
    bool good = mine && cuts;

    x->want = calloc((size_t)x->ranks * (size_t)x->offers + 1, 1);
    good = good && x->want;
    for (int64_t i = 0; good && x->speaks && i < t->count; i++)
        for (int r = 0; good && r < x->ranks; r++)
            if (x->process_of[r] == x->process)
                good = want_for(x, t->parameter[i], r, mine);
    for (int r = 0; cuts && r < x->ranks; r++) /* those of speakers, side by side */
        cuts[r + 1] = cuts[r] + (x->speaker_of[x->process_of[r]] == r ? x->offers : 0);
    good = good && gather(x, mine, x->speaks ? x->offers : 0, cuts, x->want);
    for (int r = x->ranks - 1; good && r >= 0; r--) /* each rank's at its own offset */
        memmove(x->want + r * x->offers, x->want + cuts[r], (size_t)(cuts[r + 1] - cuts[r]));
    if (!good && wf_context_status(t->par->ctx) == WF_OK)
        no_memory(x);
    free(mine);
    free(cuts);
    return good;
}

static bool wants(const exchange *x, int rank, int64_t i)
{
    return x->speaker_of[x->process_of[rank]] == rank && x->want[rank * x->offers + i];
}

static const wf_kept *own_of(const exchange *x, const offer *o)
{
    const wf_par_snapshot *k = x->snapshot;

    for (int64_t i = wf_par_snapshot_first(k, o->path);
         i < k->count && strcmp(k->kept[i].path, o->path) == 0; i++)
        if (wf_kept_is_last(k, &k->kept[i]) &&
            memcmp(&k->kept[i].part, &o->part, sizeof o->part) == 0)
            return &k->kept[i];
    return NULL;
}

/* A shard that came: from `data` on. */
static bool keep(exchange *x, const offer *o, const float *data)
{
    size_t n = (size_t)wf_part_count(&o->part);
    wf_kept kept = {.path = strdup(o->path),
                    .part = o->part,
                    .step = x->snapshot->last.step,
                    .state = KEPT_SETTLED};
    bool good = kept.path != NULL;

    for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT && good; kind++)
        if (o->kinds >> kind & 1) {
            kept.data[kind] = malloc(n * sizeof *data);
            good = kept.data[kind] != NULL;
            if (good)
                memcpy(kept.data[kind], data, n * sizeof *data);
            data += n;
        }
    if (good && wf_par_snapshot_append(x->snapshot, &kept))
        return true;
    wf_kept_clear(&kept);
    return no_memory(x);
}

/* Offers [first, end), on their way between the ranks that speak. */
typedef struct bucket {
    int64_t first, end;
    int64_t *cuts, *out_cuts; /* [ranks + 1], in floats */
    float *in, *out;
} bucket;

static int64_t floats_of(const offer *o)
{
    return wf_part_count(&o->part) * count_kinds(o->kinds);
}

/* Returns true where this rank sends offer i to rank r; where it comes from there. */
static bool goes_to(const exchange *x, int r, int64_t i)
{
    return x->speaks && x->offer[i].process == x->process && wants(x, r, i);
}

static bool comes_from(const exchange *x, int r, int64_t i)
{
    return x->speaker_of[x->offer[i].process] == r && wants(x, wf_comm_rank(x->world), i);
}

static bool bucket_open(exchange *x, bucket *b)
{
    b->cuts = calloc(2 * ((size_t)x->ranks + 1), sizeof *b->cuts);
    if (!b->cuts)
        return no_memory(x);
    b->out_cuts = b->cuts + x->ranks + 1;
    for (int r = 0; r < x->ranks; r++) {
        b->cuts[r + 1] = b->cuts[r];
        b->out_cuts[r + 1] = b->out_cuts[r];
        for (int64_t i = b->first; i < b->end; i++) {
            b->cuts[r + 1] += goes_to(x, r, i) ? floats_of(&x->offer[i]) : 0;
            b->out_cuts[r + 1] += comes_from(x, r, i) ? floats_of(&x->offer[i]) : 0;
        }
    }
    b->in = malloc((size_t)b->cuts[x->ranks] * sizeof *b->in + 1);
    b->out = malloc((size_t)b->out_cuts[x->ranks] * sizeof *b->out + 1);
    return (b->in && b->out) || no_memory(x);
}

static void bucket_close(bucket *b)
{
    free(b->cuts);
    free(b->in);
    free(b->out);
}

static void fill(const exchange *x, bucket *b)
{
    float *at = b->in;

    for (int r = 0; r < x->ranks; r++)
        for (int64_t i = b->first; i < b->end; i++) {
            const wf_kept *kept = goes_to(x, r, i) ? own_of(x, &x->offer[i]) : NULL;
            int64_t n = wf_part_count(&x->offer[i].part);

            for (int kind = 0; kept && kind < WF_PAR_BUDDY_GRADIENT; kind++)
                if (kept->data[kind]) {
                    memcpy(at, kept->data[kind], (size_t)n * sizeof *at);
                    at += n;
                }
        }
}

/* Offers [first, end) travel. */
static bool send_bucket(exchange *x, int64_t first, int64_t end)
{
    wf_context *ctx = x->trainer->par->ctx;
    bucket b = {.first = first, .end = end};
    wf_comm_buffer buffer;
    wf_collective what = {.kind = WF_ALL_TO_ALL,
                          .element = 4,
                          .n_buffers = 1,
                          .buffers = &buffer,
                          .at_once = true};
    wf_error error = {WF_OK, ""};
    bool good = bucket_open(x, &b);
    const float *at = b.out;

    if (good) {
        fill(x, &b);
        buffer =
            (wf_comm_buffer){.in = b.in, .out = b.out, .cuts = b.cuts, .out_cuts = b.out_cuts};
        if (wf_collective_run(x->world, &what, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
        good = wf_context_status(ctx) == WF_OK;
    }
    for (int r = 0; good && r < x->ranks; r++)
        for (int64_t i = first; good && i < end; i++)
            if (comes_from(x, r, i)) {
                good = keep(x, &x->offer[i], at);
                at += floats_of(&x->offer[i]);
            }
    bucket_close(&b);
    return good;
}

static bool send_all(exchange *x)
{
    bool good = true;

    for (int64_t first = 0, end; good && first < x->offers; first = end) {
        int64_t floats = 0;

        for (end = first; end < x->offers && (end == first || floats < BUCKET); end++)
            floats += floats_of(&x->offer[end]);
        good = send_bucket(x, first, end);
    }
    return good;
}

wf_status wf_par_snapshot_exchange(wf_par_snapshot *k, wf_par_trainer *t, wf_error *error)
{
    exchange x = {.snapshot = k,
                  .trainer = t,
                  .world = wf_mesh_world(t->par->mesh),
                  .error = error,
                  .ranks = wf_mesh_ranks(t->par->mesh)};

    if (meet(&x)) {
        if (gather_offers(&x) && gather_wants(&x))
            send_all(&x);
        if (x.speaks && error->code == WF_OK)
            wf_par_snapshot_sort(k);
        wf_agree(t->par, 0, NULL, error);
    }
    free(x.process_of);
    free(x.speaker_of);
    free(x.offer);
    free(x.want);
    return wf_context_status(t->par->ctx) == WF_OK ? error->code
                                                   : wf_context_status(t->par->ctx);
}
