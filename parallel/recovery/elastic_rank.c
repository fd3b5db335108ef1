/* parallel/recovery/elastic_rank.c - see the header. */
#include "parallel/recovery/elastic_rank.h"
#include "parallel/main.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/elastic_internal.h"
#include "parallel/recovery/signal_requests.h"

wf_elastic_rank wf_elastic_rank_of(wf_elastic *elastic, wf_par *par, int64_t checkpoint)
{
    return (wf_elastic_rank){.elastic = elastic,
                             .par = par,
                             .into = elastic->into,
                             .kept = -1,
                             .checkpoint = checkpoint};
}

static wf_context *context(const wf_elastic_rank *r)
{
    return wf_par_context(r->par);
}

static bool is_first(const wf_elastic_rank *r)
{
    return wf_context_rank(context(r)) == 0;
}

wf_status wf_elastic_rank_before(wf_elastic_rank *r)
{
    typedef struct before {
        int64_t kept, kept_step, step, checkpoint;
        double ago;
    } before;
    wf_elastic *e = r->elastic;
    before mine = {.kept = e->from ? wf_par_snapshot_ranks(e->from) : 0,
                   .kept_step = e->from ? wf_par_snapshot_seal(e->from) : -1,
                   .checkpoint = r->checkpoint};
    const before *all, *last = &mine;

    mine.ago = wf_elastic_ago(e, &mine.step);
    r->restarted = *e->report != 0;
    r->checkpoint = -1; /* it matters where hosts have kept states */
    if (!e->recovery_dir || !e->from)
        return WF_OK;
    all = wf_mesh_gather(wf_par_mesh(r->par), &mine, sizeof mine);
    for (int k = 0; all && k < wf_mesh_ranks(wf_par_mesh(r->par)); k++) {
        r->restarted = r->restarted || all[k].kept;
        r->kept = all[k].kept_step > r->kept ? all[k].kept_step : r->kept;
        if (all[k].kept && all[k].step >= last->step)
            last = &all[k];
    }
    r->checkpoint = all ? all[0].checkpoint : -1;
    if (is_first(r))
        wf_elastic_lost(e, last->ago);
    return wf_context_status(context(r));
}

wf_status wf_elastic_rank_serves(wf_elastic_rank *r, wf_par_trainer *trainer)
{
    r->trainer = trainer;
    if (trainer && r->into)
        wf_par_snapshot_serves(trainer);
    return wf_context_status(context(r));
}

/* Drops the state that ranks left: of several processes this launch continues from a
   checkpoint, else the next one, which finds those of this run. */
static wf_status give_up(wf_elastic_rank *r)
{
    wf_context *ctx = context(r);
    const char *dir = r->elastic->recovery_dir;

    if (dir && r->checkpoint < 0)
        return wf_fail(
            ctx, r->missing.code,
            "%.900s. There is no checkpoint to continue from: start the run where the other "
            "shards are kept, or remove .recovery_dir %.400s to begin anew",
            r->missing.text, dir);
    wf_elastic_give_up(r->elastic, !dir);
    if (!dir)
        return wf_fail(ctx, r->missing.code, "%s", r->missing.text);
    wf_elastic_files_forget(dir);
    return wf_context_status(ctx);
}

/* Shares the results of the step, from the first rank that knows them, unless they were logged
   and saved as well; and the lowest validation loss until then. */
static wf_status share_made(wf_elastic_rank *r, int64_t step, wf_elastic_step *made,
                            float *best_loss)
{
    wf_elastic *e = r->elastic;
    const wf_elastic_step *all;
    wf_elastic_step mine = {.step = 0};

    pthread_mutex_lock(&e->lock);
    if (e->ended < step)
        mine = e->made;
    *best_loss = e->best_loss;
    pthread_mutex_unlock(&e->lock);
    all = wf_mesh_gather(wf_par_mesh(r->par), &mine, sizeof mine);
    for (int k = wf_mesh_ranks(wf_par_mesh(r->par)) - 1; all && k >= 0; k--)
        if (all[k].step == step)
            *made = all[k];
    return wf_context_status(context(r));
}

wf_status wf_elastic_rank_restore(wf_elastic_rank *r, int64_t *step, wf_elastic_step *made,
                                  float *best_loss)
{
    wf_elastic *e = r->elastic;
    wf_context *ctx = context(r);

    *made = (wf_elastic_step){.step = 0};
    if (r->kept >= 0 && r->checkpoint > r->kept) {
        wf_error_set(&r->missing, WF_EDATA,
                     "what hosts have kept in %.400s is older, of step %lld", e->recovery_dir,
                     (long long)r->kept);
        return give_up(r);
    }
    if (!e->from || !r->restarted)
        return wf_context_status(ctx);
    if (wf_par_snapshot_restore(e->from, r->trainer, step, &r->missing) != WF_OK)
        return r->missing.code != WF_OK ? give_up(r) : wf_context_status(ctx);
    if (share_made(r, *step, made, best_loss) == WF_OK)
        r->ready = true;
    return wf_context_status(ctx);
}

void wf_elastic_rank_begin(wf_elastic_rank *r, int64_t step, const char *mesh)
{
    wf_elastic *e = r->elastic;
    double ago = wf_elastic_began(e, step, is_first(r));

    if (is_first(r) && r->restarted) {
        if (*e->report)
            wf_par_report_line(e->program, "%s, %.2f s later", e->report, ago);
        else if (r->missing.code != WF_OK)
            wf_par_report_line(
                e->program,
                "%s; continuing after step %lld with a checkpoint, %s, %.2f s later",
                r->missing.text, (long long)step, mesh, ago);
        else
            wf_par_report_line(
                e->program,
                "continuing after step %lld with what hosts have kept in %s, %s, %.2f s later",
                (long long)step, e->recovery_dir, mesh, ago);
    }
    wf_elastic_hold(e, r->trainer);
}

wf_status wf_elastic_rank_end(wf_elastic_rank *r)
{
    const char done = 1;

    if (r->into && !r->leaves && wf_context_status(context(r)) == WF_OK &&
        wf_mesh_gather(wf_par_mesh(r->par), &done, sizeof done))
        wf_elastic_ended(r->elastic);
    return wf_context_status(context(r));
}

void wf_elastic_rank_leave(wf_elastic_rank *r, wf_status status)
{
    wf_error error = {WF_OK, ""};

    if (r->into && r->ready && r->elastic->recovery_dir) /* a launcher's haste loses nothing */
        wf_signal_requests_hold();
    if (r->into && r->ready && (status == WF_ELOST || (status == WF_OK && r->leaves)) &&
        wf_par_snapshot_put(r->into, r->trainer, &error) == WF_ENOMEM)
        wf_par_report_line(r->elastic->program, "%s", error.text);
    wf_elastic_release(r->elastic, r->trainer);
}
