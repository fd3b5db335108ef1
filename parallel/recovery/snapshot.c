/* parallel/recovery/snapshot.c - what ranks leave; see the header. */
#include "parallel/recovery/snapshot_internal.h"
#include "core/host_data.h"
#include "parallel/train/measure_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

wf_par_snapshot *wf_par_snapshot_open(wf_error *error)
{
    wf_par_snapshot *k = calloc(1, sizeof *k);

    if (!k) {
        wf_error_set(error, WF_ENOMEM, "no memory to keep what ranks leave");
        return NULL;
    }
    pthread_mutex_init(&k->lock, NULL);
    k->last.step = -1;
    return k;
}

void wf_kept_clear(wf_kept *kept)
{
    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
        free(kept->data[kind]);
    free(kept->path);
    *kept = (wf_kept){.path = NULL};
}

void wf_par_snapshot_close(wf_par_snapshot *k)
{
    if (!k)
        return;
    for (int64_t i = 0; i < k->count; i++)
        wf_kept_clear(&k->kept[i]);
    free(k->kept);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

wf_status wf_par_snapshot_serves(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    for (int64_t i = 0; i < t->count; i++) {
        const wf_nn_parameter *p = t->parameter[i];
        const wf_par_parameter_state *h = wf_par_state_of(p);

        if (p->frozen)
            continue;
        if (!wf_nn_optimizer_is_alone(t->optimizer, i))
            return wf_fail(
                ctx, WF_EUNSUPPORTED,
                "the state that ranks leave cannot be restored: ranks make the update of %s "
                "together (muon, adafactor), and one that is lost in it leaves others "
                "in the middle: use adamw",
                p->path);
        if (h->optimizer != h->gradient || h->optimizer != h->shard_layout)
            return wf_fail(
                ctx, WF_EUNSUPPORTED,
                "the state that ranks leave cannot be restored: strategy %s gathers what each "
                "rank has updated of %s, and one that is lost in it leaves others in "
                "the middle: use shard_grad_op",
                h->policy->strategy->name, p->path);
        if (wf_par_shard_cuts_blocks(wf_nn_optimizer_moment(t->optimizer, i, 0)))
            return wf_fail(
                ctx, WF_EUNSUPPORTED,
                "the state that ranks leave cannot be restored: the columns of %s are cut, and "
                "with them rows of moments in 8 bits: use adamw",
                p->path);
    }
    return wf_context_status(ctx);
}

/* A rank's state of one parameter, its own or a buddy's. */
typedef struct shard {
    const wf_nn_parameter *parameter;
    wf_part part;
    kept_state state;
    const wf_tensor *tensor[WF_PAR_BUDDY_KINDS];
} shard;

static bool is_same(const wf_kept *kept, const shard *s, int64_t step)
{
    return kept->step == step && kept->state == s->state &&
           memcmp(kept->part.start, s->part.start, sizeof s->part.start) == 0 &&
           memcmp(kept->part.local, s->part.local, sizeof s->part.local) == 0 &&
           strcmp(kept->path, s->parameter->path) == 0;
}

bool wf_par_snapshot_append(wf_par_snapshot *k, const wf_kept *kept)
{
    int64_t room = k->room ? 2 * k->room : 256;
    wf_kept *longer =
        k->count < k->room ? k->kept : realloc(k->kept, (size_t)room * sizeof *longer);

    if (!longer)
        return false;
    k->room = k->count < k->room ? k->room : room;
    k->kept = longer;
    k->kept[k->count++] = *kept;
    return true;
}

/* Returns a slot for a shard that no rank has put; -1: one has, or there is no memory. */
static int64_t claim(wf_par_snapshot *k, const shard *s, int64_t step)
{
    wf_kept kept = {.part = s->part, .step = step, .state = s->state};
    bool there = k->sealed;

    for (int64_t i = k->count - 1; i >= 0 && !there; i--) /* it was put lately, if it was */
        there = is_same(&k->kept[i], s, step);
    if (there)
        return -1;
    kept.path = strdup(s->parameter->path);
    if (kept.path && wf_par_snapshot_append(k, &kept))
        return k->count - 1;
    free(kept.path);
    k->failed = true;
    return -1;
}

static float *copy_of(const wf_tensor *t)
{
    size_t n = (size_t)wf_tensor_local_count(t);
    float *copy = malloc(n * sizeof *copy);
    wf_host_data view;
    const float *data = wf_data_read_f32(t, &view);

    if (copy && data)
        memcpy(copy, data, n * sizeof *copy);
    wf_data_close(&view);
    if (data)
        return copy;
    free(copy);
    return NULL;
}

static void put_shard(wf_par_snapshot *k, const shard *s, int64_t step)
{
    float *data[WF_PAR_BUDDY_KINDS] = {NULL};
    int64_t at, bytes = 0;
    bool failed = false;

    if (wf_part_count(&s->part) == 0)
        return;
    pthread_mutex_lock(&k->lock);
    at = claim(k, s, step);
    pthread_mutex_unlock(&k->lock);
    if (at < 0)
        return;
    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
        if (s->tensor[kind]) {
            data[kind] = copy_of(s->tensor[kind]);
            failed = failed || !data[kind];
            bytes += wf_part_count(&s->part) * 4;
        }
    pthread_mutex_lock(
        &k->lock); /* the shards may have moved; sealed, they are in another order */
    if (!k->sealed) {
        memcpy(k->kept[at].data, data, sizeof data);
        k->bytes += bytes;
        k->failed = k->failed || failed;
        memset(data, 0, sizeof data);
    }
    pthread_mutex_unlock(&k->lock);
    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
        free(data[kind]);
}

static kept_state state_of(const wf_par_trainer *t, int64_t i)
{
    if (t->parameter[i]->frozen)
        return KEPT_UNTOUCHED;
    if (t->step.at != WF_PAR_AT_REDUCED)
        return KEPT_SETTLED;
    return t->step.grad[i] ? KEPT_PENDING : KEPT_UNTOUCHED;
}

/* Puts this rank's own shards; of an adapted model the trained ones, since the base stays in
   its files. */
static void put_own(wf_par_snapshot *k, wf_par_trainer *t)
{
    bool adapted = wf_par_is_adapted(t->count, t->parameter);

    for (int64_t i = 0; i < t->count; i++) {
        const wf_nn_parameter *p = t->parameter[i];
        shard s = {.parameter = p, .state = state_of(t, i)};

        if (wf_tensor_is_fake(p->tensor) || (adapted && p->frozen))
            continue;
        s.part = wf_part_of_tensor(p->tensor);
        for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT; kind++)
            s.tensor[kind] = wf_par_kept(p, t->optimizer, i, kind);
        if (s.state == KEPT_PENDING)
            s.tensor[WF_PAR_BUDDY_GRADIENT] = t->step.grad[i];
        put_shard(k, &s, t->committed.step);
    }
}

static void put_buddies(wf_par_snapshot *k, wf_par_trainer *t)
{
    int64_t n;
    const wf_par_buddy *list = wf_par_buddies_list(t->buddies, &n);

    for (int64_t j = 0; j < n; j++) {
        const wf_par_buddy *b = &list[j];
        shard s = {.parameter = t->parameter[b->i], .state = state_of(t, b->i)};

        s.part.ndim = t->parameter[b->i]->tensor->ndim;
        memcpy(s.part.start, b->start, sizeof b->start);
        memcpy(s.part.local, b->local, sizeof b->local);
        for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
            s.tensor[kind] = b->tensor[kind];
        put_shard(k, &s, t->committed.step);
    }
}

wf_status wf_par_snapshot_put(wf_par_snapshot *k, wf_par_trainer *t, wf_error *error)
{
    wf_status status = wf_context_status(t->par->ctx);
    bool failed;

    if ((status != WF_OK && status != WF_ELOST) || t->committed.under_way)
        return wf_error_set(error, WF_EINVAL,
                            "rank %d failed by itself, and leaves nothing: %s",
                            wf_context_rank(t->par->ctx), wf_context_error(t->par->ctx)->text);
    put_own(k, t);
    if (t->buddies && t->mirrored)
        put_buddies(k, t);
    pthread_mutex_lock(&k->lock);
    k->ranks += !k->sealed;
    if (t->committed.step > k->last.step && !k->sealed)
        k->last = t->committed;
    failed = k->failed;
    pthread_mutex_unlock(&k->lock);
    return failed ? wf_error_set(error, WF_ENOMEM,
                                 "no memory to keep what rank %d has of step %" PRId64,
                                 wf_context_rank(t->par->ctx), t->committed.step)
                  : WF_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const wf_kept *)a)->path, ((const wf_kept *)b)->path);
}

void wf_par_snapshot_sort(wf_par_snapshot *k)
{
    if (!k->failed && k->count)
        qsort(k->kept, (size_t)k->count, sizeof *k->kept, by_path);
}

int64_t wf_par_snapshot_first(const wf_par_snapshot *k, const char *path)
{
    int64_t low = 0, high = k->count;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (strcmp(k->kept[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool wf_kept_is_last(const wf_par_snapshot *k, const wf_kept *kept)
{
    return kept->step == k->last.step ||
           (kept->step == k->last.step - 1 && kept->state == KEPT_UNTOUCHED);
}

int64_t wf_par_snapshot_seal(wf_par_snapshot *k)
{
    int64_t step;

    pthread_mutex_lock(&k->lock);
    if (!k->sealed)
        wf_par_snapshot_sort(k);
    k->sealed = true;
    atomic_store(&k->next_pending, 0); /* the rank that restored it may have failed in that */
    step = k->failed || !k->count ? -1 : k->last.step;
    pthread_mutex_unlock(&k->lock);
    return step;
}

int wf_par_snapshot_ranks(const wf_par_snapshot *k)
{
    return k->ranks;
}

int64_t wf_par_snapshot_bytes(const wf_par_snapshot *k)
{
    return k->bytes;
}
