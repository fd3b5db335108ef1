/* apps/gpt_train/elastic.c - launch after launch; see the header. */
#include "apps/gpt_train/elastic.h"
#include "apps/gpt_train/elastic_files.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_FAILURES = 3 }; /* in a row, without a step in between */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void app_elastic_hold(app_elastic *e, wf_par_trainer *trainer)
{
    pthread_mutex_lock(&e->lock);
    if (e->holder && e->holders < APP_ELASTIC_RANKS)
        e->holder[e->holders++] = trainer;
    pthread_mutex_unlock(&e->lock);
}

void app_elastic_release(app_elastic *e, wf_par_trainer *trainer)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->holders; i++)
        if (e->holder[i] == trainer)
            e->holder[i--] = e->holder[--e->holders];
    pthread_mutex_unlock(&e->lock);
}

/* What ranks hold that do not return: they compute, or wait inside of MPI for one that is lost. None of the two changes
   what a trainer holds, and an update under way is not taken. */
static void put_for_others(app_elastic *e)
{
    wf_error error = {WF_OK, ""};

    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->holders; i++)
        wf_par_snapshot_put(e->into, e->holder[i], &error);
    pthread_mutex_unlock(&e->lock);
}

/* In s, 0 where nobody was lost; under the lock. */
static double since_loss(const app_elastic *e)
{
    return e->lost_at > 0 ? now() - e->lost_at : 0;
}

double app_elastic_ago(app_elastic *e, int64_t *made)
{
    double ago;

    pthread_mutex_lock(&e->lock);
    ago = since_loss(e);
    *made = e->made.step;
    pthread_mutex_unlock(&e->lock);
    return ago;
}

void app_elastic_lost(app_elastic *e, double ago)
{
    pthread_mutex_lock(&e->lock);
    e->lost_at = now() - ago;
    pthread_mutex_unlock(&e->lock);
}

double app_elastic_began(app_elastic *e, int64_t step, bool first)
{
    double ago;

    pthread_mutex_lock(&e->lock);
    ago = since_loss(e);
    e->began = step;
    if (first)
        e->lost_at = 0;
    pthread_mutex_unlock(&e->lock);
    return ago;
}

void app_elastic_give_up(app_elastic *e, bool again)
{
    pthread_mutex_lock(&e->lock);
    e->incomplete = again;
    e->made = (app_made_step){.step = 0};
    pthread_mutex_unlock(&e->lock);
}

void app_elastic_ended(app_elastic *e)
{
    pthread_mutex_lock(&e->lock);
    e->whole = true;
    pthread_mutex_unlock(&e->lock);
}

bool app_elastic_whole(app_elastic *e)
{
    bool whole;

    pthread_mutex_lock(&e->lock);
    whole = e->whole;
    pthread_mutex_unlock(&e->lock);
    return whole;
}

void app_elastic_made(app_elastic *e, const app_made_step *made)
{
    pthread_mutex_lock(&e->lock);
    if (made->step > e->made.step)
        e->made = *made;
    pthread_mutex_unlock(&e->lock);
}

/* ---- launch after launch ---- */

static bool may_go_on(wf_status status)
{
    return status == WF_ELOST || status == WF_ETIMEOUT || status == WF_EDEVICE ||
           status == WF_EINTERNAL;
}

/* What a launch came to: nobody who was lost when all had come to their end is missed. */
static wf_status launch(const app_elastic_run *r, const app_options *o, wf_launch_end *end,
                        wf_error *error)
{
    app_elastic *e = r->elastic;
    wf_status status = r->launch(o, r->job, end, error);

    pthread_mutex_lock(&e->lock);
    e->lost_at = e->lost_at > 0 ? e->lost_at : now();
    pthread_mutex_unlock(&e->lock);
    if (!app_elastic_whole(e) || !may_go_on(status))
        return status;
    if (!e->holder) /* else one process has told it */
        fprintf(stderr, "gpt_train: %s; the run had come to its end\n", error->text);
    *error = (wf_error){WF_OK, ""};
    return WF_OK;
}

static void name_mesh(const app_options *o, char *text, size_t size)
{
    snprintf(text, size, "--pp %" PRId64 " --dp %" PRId64 " --tp %" PRId64, o->pp, o->dp,
             o->tp);
}

/* What rank 0 says when the next launch has taken up what there is. */
static void tell(app_elastic *e, const app_options *o, int64_t step, int left, const char *why)
{
    char mesh[96];

    name_mesh(o, mesh, sizeof mesh);
    if (e->incomplete)
        snprintf(e->told, sizeof e->told, "%.1200s; the run goes on from a checkpoint, %s", why,
                 mesh);
    else if (why && step < 0)
        snprintf(e->told, sizeof e->told,
                 "%.1200s; no step was made yet: the run begins again, %s", why, mesh);
    else if (why)
        snprintf(e->told, sizeof e->told,
                 "%.1200s; the run goes on after step %" PRId64 " with what %d ranks hold, %s",
                 why, step, left, mesh);
    else
        snprintf(e->told, sizeof e->told,
                 "ranks are there again: going on after step %" PRId64 ", %s", step, mesh);
}

/* Nobody looks at it any more. */
static void drop(const app_elastic *e, wf_par_snapshot *snapshot)
{
    if (!e->left_behind)
        wf_par_snapshot_close(snapshot);
}

/* The next launch takes up what this one has left; of one that made no step what that was given itself, since buddies may not
   have come to their copies; of what is not all, nothing. Returns the step after which it is; -1: it begins anew. */
static int64_t hand_over(app_elastic *e)
{
    int64_t step = wf_par_snapshot_seal(e->into);
    int64_t given = e->from ? wf_par_snapshot_seal(e->from) : -1;

    if (e->incomplete) {
        drop(e, e->into);
        drop(e, e->from);
        e->from = NULL;
    } else if (step > e->began) {
        drop(e, e->from);
        e->from = e->into;
        given = step;
    } else {
        drop(e, e->into);
    }
    e->into = NULL;
    return given;
}

/* The options of the next launch: of all ranks that were asked for, or of those that are left for a while. */
static wf_status next_mesh(const app_elastic_run *r, app_options *o, int64_t left, int64_t step,
                           wf_error *error)
{
    app_elastic *e = r->elastic;
    int64_t absent = r->asked->rejoin_after, back = (step > 0 ? step : 0) + absent;

    *o = *r->asked;
    e->leave_after = 0;
    if (left >= app_options_ranks(o) || absent == 0)
        return WF_OK;
    if (back < o->steps)
        e->leave_after = back;
    return app_elastic_mesh(o, left, error);
}

/* Whether another launch makes sense: for ranks that have left what they hold for a larger mesh, or were left by
   others. Where nothing was made and nothing kept, it begins as the first one did. */
static bool may_launch(const app_elastic *e, wf_status status, int64_t left, int64_t step,
                       int failures)
{
    if (status == WF_OK)
        return left > 0;
    if (e->incomplete)
        return failures < MOST_FAILURES;
    return may_go_on(status) && (step >= 0 || e->made.step == 0) && failures < MOST_FAILURES;
}

/* Options and job of the launch that follows one that has ended so. */
static wf_status plan_next(const app_elastic_run *r, app_options *o, int64_t left, int64_t step,
                           wf_error *error)
{
    wf_error why = {WF_OK, ""}, both = {WF_OK, ""};

    if (next_mesh(r, o, left, step, &why) == WF_OK && r->prepare(o, r->job, &why) == WF_OK)
        return WF_OK;
    wf_error_set(&both, why.code, "%.900s%s%.500s", error->text, *error->text ? "; " : "",
                 why.text);
    *error = both;
    return error->code;
}

wf_status app_elastic_train(const app_elastic_run *r, wf_launch_end *end, wf_error *error)
{
    app_elastic *e = r->elastic;
    int failures = 0, stuck = 0;
    int64_t step = -1, last, left = 0, ranks = app_options_ranks(r->asked);
    app_options *o = malloc(sizeof *o), *next;
    wf_status status;

    if (o)
        *o = *r->asked;
    for (;;) {
        e->into = o ? wf_par_snapshot_open(error) : NULL;
        if (!e->into)
            return wf_error_set(error, WF_ENOMEM, "no memory for a launch");
        e->began = INT64_MAX; /* until its ranks have what they go on from */
        status = launch(r, o, end, error);
        stuck += end->stuck;
        e->left_behind = stuck > 0;
        if (!e->incomplete)
            left = wf_par_snapshot_ranks(e->into);
        last = step;
        step = hand_over(e);
        failures = status == WF_OK || step > last ? 0 : failures + 1;
        if (!may_launch(e, status, left, step, failures))
            break;
        next = end->stuck ? malloc(sizeof *next) : o; /* who is stuck keeps what it was given */
        o = next;
        left = status == WF_OK || left == 0 ? ranks : left;
        status = o ? plan_next(r, o, left, step, error) : WF_ENOMEM;
        if (status != WF_OK)
            break;
        tell(e, o, step, (int)left, *error->text ? error->text : NULL);
        e->incomplete = false;
        *error = (wf_error){WF_OK, ""};
    }
    end->stuck = stuck;
    drop(e, e->from);
    if (!stuck)
        free(o);
    e->from = NULL;
    return status;
}

wf_status app_elastic_train_process(const app_elastic_run *r, wf_launch_end *end,
                                    wf_error *error)
{
    app_elastic *e = r->elastic;
    wf_error keeping = {WF_OK, ""};
    wf_status status;

    e->into = wf_par_snapshot_open(error);
    e->holder = calloc(APP_ELASTIC_RANKS, sizeof *e->holder);
    if (!e->into || !e->holder)
        return wf_error_set(error, WF_ENOMEM, "no memory for what ranks may leave");
    e->began = INT64_MAX;
    status = launch(r, r->asked, end, error);
    if (end->stuck)
        put_for_others(e);
    if (wf_par_snapshot_ranks(e->into)) {
        if (elastic_files_save(e, r->asked->recovery_dir, &keeping) != WF_OK)
            fprintf(stderr, "gpt_train: what ranks held is not kept: %s\n", keeping.text);
        else if (status != WF_OK)
            elastic_files_wait(r->asked->recovery_dir);
    } else if (status == WF_OK && app_elastic_whole(e)) {
        elastic_files_remove(r->asked->recovery_dir);
    }
    if (!end->stuck) {
        wf_par_snapshot_close(e->from);
        wf_par_snapshot_close(e->into);
        free(e->holder);
    }
    e->from = e->into = NULL;
    return status;
}
