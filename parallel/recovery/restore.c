/* parallel/recovery/restore.c - from what ranks left to a trainer on any mesh; see
   snapshot.h. */
#include "core/host_data.h"
#include "parallel/agree_internal.h"
#include "parallel/recovery/snapshot_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/train/measure_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the update that some ranks had not made ---- */

static int64_t parameter_of(const wf_par_trainer *t, const char *path)
{
    int64_t i = 0;

    while (i < t->count && strcmp(t->parameter[i]->path, path) != 0)
        i++;
    return i;
}

/* Makes a tensor of a shard's shape alone, with its numbers; a moment is stored as moments
   are. */
static wf_tensor *tensor_of(wf_par_trainer *t, int64_t i, const wf_kept *kept, int kind)
{
    const wf_tensor *moment = kind > 0 && kind < WF_PAR_BUDDY_GRADIENT
                                  ? wf_nn_optimizer_moment(t->optimizer, i, kind - 1)
                                  : NULL;
    wf_host_data view;
    wf_tensor *x = wf_par_shard_tensor(t->parameter[i]->tensor, kept->part.local,
                                       moment ? moment->dtype : WF_F32, WF_MEMORY_BUFFER);
    float *data;

    data = x ? wf_data_write_f32(x, &view) : NULL;
    if (data)
        memcpy(data, kept->data[kind], (size_t)wf_part_count(&kept->part) * sizeof *data);
    if (x)
        wf_data_close(&view);
    return data ? x : NULL;
}

static void read_back(const wf_tensor *x, float *to)
{
    wf_host_data view;
    const float *data = wf_data_read_f32(x, &view);

    if (data)
        memcpy(to, data, (size_t)wf_tensor_local_count(x) * sizeof *data);
    wf_data_close(&view);
}

/* The update of one shard, from its gradient. */
static wf_status finish(wf_par_trainer *t, wf_kept *kept)
{
    wf_context *ctx = t->par->ctx;
    int64_t i = parameter_of(t, kept->path);
    wf_tensor *x[WF_PAR_BUDDY_KINDS] = {NULL};

    if (i == t->count)
        return wf_fail(ctx, WF_EINVAL,
                       "what ranks left has a parameter %s, and this model has none",
                       kept->path);
    wf_scope_open(ctx);
    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS && wf_context_status(ctx) == WF_OK; kind++)
        x[kind] = kept->data[kind] ? tensor_of(t, i, kept, kind) : NULL;
    if (wf_context_status(ctx) == WF_OK)
        wf_nn_optimizer_update_copy(t->optimizer, i, x[0], x + 1, x[WF_PAR_BUDDY_GRADIENT]);
    for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT && wf_context_status(ctx) == WF_OK; kind++)
        if (x[kind])
            read_back(x[kind], kept->data[kind]);
    wf_scope_close(ctx);
    if (wf_context_status(ctx) == WF_OK) {
        kept->step++;
        kept->state = KEPT_SETTLED;
    }
    return wf_context_status(ctx);
}

/* Makes the last update of shards that lack it; the ranks of a process share the work. */
static wf_status finish_all(wf_par_snapshot *k, wf_par_trainer *t)
{
    wf_error error = {WF_OK, ""};
    int64_t i;

    wf_nn_optimizer_resume(t->optimizer, k->last.step - 1 - k->last.fresh,
                           k->last.skipped - k->last.skip);
    wf_nn_optimizer_begin(t->optimizer, k->last.lr, k->last.scale);
    while ((i = atomic_fetch_add(&k->next_pending, 1)) < k->count) {
        wf_kept *kept = &k->kept[i];

        if (kept->state != KEPT_PENDING || kept->step != k->last.step - 1)
            continue;
        if (k->last.skip) { /* there was no update */
            kept->step++;
            kept->state = KEPT_SETTLED;
        } else if (finish(t, kept) != WF_OK) {
            break;
        }
    }
    if (wf_context_status(t->par->ctx) != WF_OK)
        error = *wf_context_error(t->par->ctx);
    return wf_agree(t->par, 0, NULL, &error);
}

/* ---- shards into tensors ---- */

typedef struct copying {
    const float *from;
    float *to;
} copying;

static wf_status copy_run(void *arg, int64_t at_from, int64_t at_to, int64_t n)
{
    const copying *c = arg;

    memcpy(c->to + at_to, c->from + at_from, (size_t)n * sizeof *c->to);
    return WF_OK;
}

/* Copy what of a shard is missing; false where there is no memory. */
static bool take_shard(const wf_kept *kept, int kind, const wf_part *part, wf_missing *m,
                       float *to)
{
    copying c = {kept->data[kind], to};
    bool wanted, good = wf_missing_found(m, &kept->part, &wanted);

    if (wanted)
        wf_part_runs(&kept->part, part, copy_run, &c);
    return good;
}

/* Fill one tensor of this rank. */
static wf_status take_tensor(wf_par_snapshot *k, wf_tensor *t, const char *path, int kind,
                             wf_error *error)
{
    wf_part part = wf_part_of_tensor(t);
    wf_missing m = {0};
    wf_host_data view;
    float *to;
    bool good = wf_missing_add(&m, &part);

    to = wf_data_write_f32(t, &view);
    for (int64_t i = wf_par_snapshot_first(k, path);
         good && to && i < k->count && strcmp(k->kept[i].path, path) == 0; i++)
        if (k->kept[i].part.ndim == part.ndim && k->kept[i].data[kind] &&
            wf_kept_is_last(k, &k->kept[i]))
            good = take_shard(&k->kept[i], kind, &part, &m, to);
    wf_data_close(&view);
    if (!good || !to)
        wf_error_set(error, WF_ENOMEM, "no memory to restore %s", path);
    else if (m.n)
        wf_error_set(error, WF_EDATA,
                     "no rank that is left has the %s%s%s after step %" PRId64
                     ", elements %" PRId64 " to %" PRId64 " of its dim 0: it was lost with "
                     "the ranks that held it; with .redundancy buddy others hold it too",
                     kind ? wf_nn_kept_words(kind) : "", kind ? " of " : "", path, k->last.step,
                     m.part[0].start[0], m.part[0].start[0] + m.part[0].local[0] - 1);
    free(m.part);
    return error->code;
}

static void take_all(wf_par_snapshot *k, wf_par_trainer *t, wf_error *error)
{
    bool adapted = wf_par_is_adapted(t->count, t->parameter);

    for (int64_t i = 0; i < t->count && error->code == WF_OK; i++)
        for (int kind = 0; kind < WF_PAR_KINDS && error->code == WF_OK; kind++) {
            const wf_nn_parameter *p = t->parameter[i];
            wf_tensor *x = wf_par_kept(p, t->optimizer, i, kind);

            if (x && !wf_tensor_is_fake(x) && wf_tensor_local_count(x) &&
                !(adapted && p->frozen))
                take_tensor(k, x, p->path, kind, error);
        }
}

/* The last update that a rank of any process has made. */
static wf_status agree_last(wf_par_snapshot *k, wf_par_trainer *t)
{
    const wf_par_committed *all = wf_mesh_gather(t->par->mesh, &k->last, sizeof k->last);
    wf_par_committed last = {.step = -1};
    wf_error error = {WF_OK, ""};

    for (int r = 0; all && r < wf_mesh_ranks(t->par->mesh); r++)
        if (all[r].step > last.step)
            last = all[r];
    if (all && last.step < 0)
        wf_error_set(&error, WF_ELOST, "what ranks left has nothing in it");
    if (!all || wf_agree(t->par, 0, NULL, &error) != WF_OK) /* all have read it */
        return wf_context_status(t->par->ctx) != WF_OK
                   ? wf_context_status(t->par->ctx)
                   : wf_fail(t->par->ctx, error.code, "%s", error.text);
    pthread_mutex_lock(&k->lock);
    if (k->last.step != last.step)
        k->last = last;
    pthread_mutex_unlock(&k->lock);
    return wf_agree(t->par, 0, NULL, &error);
}

wf_status wf_par_snapshot_restore(wf_par_snapshot *k, wf_par_trainer *t, int64_t *step,
                                  wf_error *missing)
{
    wf_context *ctx = t->par->ctx;
    wf_error error = {WF_OK, ""};

    *step = -1;
    *missing = error;
    if (agree_last(k, t) != WF_OK)
        return wf_context_status(ctx);
    *step = k->last.step;
    if (finish_all(k, t) == WF_OK) {
        wf_par_models_change(t->par);
        if (wf_par_snapshot_exchange(k, t, &error) == WF_OK)
            take_all(k, t, &error);
        wf_agree(t->par, 0, NULL, &error);
    } else if (wf_context_status(ctx) == WF_OK) {
        error = (wf_error){WF_EINTERNAL, "another rank could not finish its update"};
    }
    if (error.code == WF_EDATA && wf_context_status(ctx) == WF_OK) {
        *step = -1;
        *missing = error;
        return error.code;
    }
    if (error.code != WF_OK && wf_context_status(ctx) == WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    wf_par_trainer_restored(t, k->last.step, k->last.skipped, k->last.fresh);
    return wf_context_status(ctx);
}
