/* parallel/recovery/elastic.c - launch after launch; see the header. */
#include "parallel/recovery/elastic_internal.h"
#include "parallel/main.h"
#include "parallel/recovery/elastic_files.h"
#include <inttypes.h>
#include <stdio.h>
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

void wf_elastic_hold(wf_elastic *e, wf_par_trainer *trainer)
{
    pthread_mutex_lock(&e->lock);
    if (e->holder && e->holders < WF_ELASTIC_RANKS)
        e->holder[e->holders++] = trainer;
    pthread_mutex_unlock(&e->lock);
}

void wf_elastic_release(wf_elastic *e, wf_par_trainer *trainer)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->holders; i++)
        if (e->holder[i] == trainer)
            e->holder[i--] = e->holder[--e->holders];
    pthread_mutex_unlock(&e->lock);
}

/* Leaves the state of ranks that do not return: they compute, or wait inside of MPI for one
   that is lost. Neither changes a trainer's state, and one in the middle of an update is not
   taken. */
static void put_for_others(wf_elastic *e)
{
    wf_error error = {WF_OK, ""};

    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->holders; i++)
        wf_par_snapshot_put(e->into, e->holder[i], &error);
    pthread_mutex_unlock(&e->lock);
}

/* Returns seconds, 0 where no rank was lost; under the lock. */
static double since_loss(const wf_elastic *e)
{
    return e->lost_at > 0 ? now() - e->lost_at : 0;
}

double wf_elastic_ago(wf_elastic *e, int64_t *made)
{
    double ago;

    pthread_mutex_lock(&e->lock);
    ago = since_loss(e);
    *made = e->made.step;
    pthread_mutex_unlock(&e->lock);
    return ago;
}

void wf_elastic_lost(wf_elastic *e, double ago)
{
    pthread_mutex_lock(&e->lock);
    e->lost_at = now() - ago;
    pthread_mutex_unlock(&e->lock);
}

double wf_elastic_began(wf_elastic *e, int64_t step, bool first)
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

void wf_elastic_give_up(wf_elastic *e, bool restarts)
{
    pthread_mutex_lock(&e->lock);
    e->incomplete = restarts;
    e->made = (wf_elastic_step){.step = 0};
    pthread_mutex_unlock(&e->lock);
}

void wf_elastic_ended(wf_elastic *e)
{
    pthread_mutex_lock(&e->lock);
    e->whole = true;
    pthread_mutex_unlock(&e->lock);
}

bool wf_elastic_whole(wf_elastic *e)
{
    bool whole;

    pthread_mutex_lock(&e->lock);
    whole = e->whole;
    pthread_mutex_unlock(&e->lock);
    return whole;
}

void wf_elastic_made(wf_elastic *e, const wf_elastic_step *made)
{
    pthread_mutex_lock(&e->lock);
    if (made->step > e->made.step)
        e->made = *made;
    pthread_mutex_unlock(&e->lock);
}

void wf_elastic_saved(wf_elastic *e, int64_t step, float best_loss)
{
    pthread_mutex_lock(&e->lock);
    e->ended = step;
    e->best_loss = best_loss;
    pthread_mutex_unlock(&e->lock);
}

/* ---- launch after launch ---- */

static bool may_go_on(wf_status status)
{
    return status == WF_ELOST || status == WF_ETIMEOUT || status == WF_EDEVICE ||
           status == WF_EINTERNAL;
}

/* Launches once: a rank that was lost when all had ended is not missed. */
static wf_status launch(const wf_elastic_run *r, const void *o, wf_launch_end *end,
                        wf_error *error)
{
    wf_elastic *e = r->elastic;
    wf_status status = r->launch(o, r->job, end, error);

    pthread_mutex_lock(&e->lock);
    e->lost_at = e->lost_at > 0 ? e->lost_at : now();
    pthread_mutex_unlock(&e->lock);
    if (!wf_elastic_whole(e) || !may_go_on(status))
        return status;
    if (!e->holder) /* else one process has reported it */
        wf_par_report_line(e->program, "%s; the run had reached its end", error->text);
    *error = (wf_error){WF_OK, ""};
    return WF_OK;
}

/* Sets the line of rank 0 when the next launch has restored the state. */
static void set_report(const wf_elastic_run *r, const void *o, int64_t step, int left,
                       const char *why)
{
    wf_elastic *e = r->elastic;
    char mesh[400];

    r->meshes->name(o, mesh, sizeof mesh);
    if (e->incomplete)
        snprintf(e->report, sizeof e->report,
                 "%.1200s; the run continues from a checkpoint, %s", why, mesh);
    else if (why && step < 0)
        snprintf(e->report, sizeof e->report,
                 "%.1200s; no step was made yet: the run restarts, %s", why, mesh);
    else if (why)
        snprintf(e->report, sizeof e->report,
                 "%.1200s; the run continues after step %" PRId64
                 " with what %d ranks hold, %s",
                 why, step, left, mesh);
    else
        snprintf(e->report, sizeof e->report,
                 "ranks are back: continuing after step %" PRId64 ", %s", step, mesh);
}

/* Closes a snapshot that no rank reads any more. */
static void drop(const wf_elastic *e, wf_par_snapshot *snapshot)
{
    if (!e->left_behind)
        wf_par_snapshot_close(snapshot);
}

/* Gives the next launch the state that this one has left; of one that made no step the state
   that it was given itself, since buddies may not have updated their copies; where there are
   gaps, none. Returns the step after which it is; -1: it begins anew. */
static int64_t seal_for_next_launch(wf_elastic *e)
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

/* Sets the options of the next launch: for all ranks that were asked for, or for those that are
   left for a while. */
static wf_status next_mesh(const wf_elastic_run *r, void *o, int64_t left, int64_t step,
                           wf_error *error)
{
    wf_elastic *e = r->elastic;
    int64_t absent = r->rejoin_after, back = (step > 0 ? step : 0) + absent;

    memcpy(o, r->asked, r->meshes->size);
    e->leave_after = 0;
    if (left >= r->meshes->ranks(o) || absent == 0)
        return WF_OK;
    if (back < r->steps)
        e->leave_after = back;
    return r->meshes->shrink(o, left, error);
}

/* Returns whether another launch makes sense: for ranks that have left their state for a larger
   mesh, or have lost others. Where nothing was made and nothing kept, it begins as the first
   one did. */
static bool may_launch(const wf_elastic *e, wf_status status, int64_t left, int64_t step,
                       int failures)
{
    if (status == WF_OK)
        return left > 0;
    if (e->incomplete)
        return failures < MOST_FAILURES;
    return may_go_on(status) && (step >= 0 || e->made.step == 0) && failures < MOST_FAILURES;
}

/* Makes options and job of the launch that follows one that has ended so. */
static wf_status plan_next(const wf_elastic_run *r, void *o, int64_t left, int64_t step,
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

wf_status wf_elastic_train(const wf_elastic_run *r, wf_launch_end *end, wf_error *error)
{
    wf_elastic *e = r->elastic;
    int failures = 0, stuck = 0;
    int64_t step = -1, last, left = 0, ranks = r->meshes->ranks(r->asked);
    void *o = malloc(r->meshes->size), *next;
    wf_status status;

    if (o)
        memcpy(o, r->asked, r->meshes->size);
    for (;;) {
        e->into = o ? wf_par_snapshot_open(error) : NULL;
        if (!e->into)
            return wf_error_set(error, WF_ENOMEM, "no memory for a launch");
        e->began = INT64_MAX; /* until its ranks have the state that they continue from */
        status = launch(r, o, end, error);
        stuck += end->stuck;
        e->left_behind = stuck > 0;
        if (!e->incomplete)
            left = wf_par_snapshot_ranks(e->into);
        last = step;
        step = seal_for_next_launch(e);
        failures = status == WF_OK || step > last ? 0 : failures + 1;
        if (!may_launch(e, status, left, step, failures))
            break;
        next = end->stuck ? malloc(r->meshes->size) : o; /* stuck ranks use theirs */
        o = next;
        left = status == WF_OK || left == 0 ? ranks : left;
        status = o ? plan_next(r, o, left, step, error) : WF_ENOMEM;
        if (status != WF_OK)
            break;
        set_report(r, o, step, (int)left, *error->text ? error->text : NULL);
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

wf_status wf_elastic_train_process(const wf_elastic_run *r, wf_launch_end *end, wf_error *error)
{
    wf_elastic *e = r->elastic;
    wf_error keeping = {WF_OK, ""};
    wf_status status;

    e->into = wf_par_snapshot_open(error);
    e->holder = calloc(WF_ELASTIC_RANKS, sizeof *e->holder);
    if (!e->into || !e->holder)
        return wf_error_set(error, WF_ENOMEM, "no memory for what ranks may leave");
    e->began = INT64_MAX;
    status = launch(r, r->asked, end, error);
    if (end->stuck)
        put_for_others(e);
    if (wf_par_snapshot_ranks(e->into)) {
        if (wf_elastic_files_save(e, &keeping) != WF_OK)
            wf_par_report_line(e->program, "what ranks held is not kept: %s", keeping.text);
        else if (status != WF_OK)
            wf_elastic_files_wait(e->recovery_dir);
    } else if (status == WF_OK && wf_elastic_whole(e)) {
        wf_elastic_files_remove(e->recovery_dir);
    }
    if (!end->stuck) {
        wf_par_snapshot_close(e->from);
        wf_par_snapshot_close(e->into);
        free(e->holder);
    }
    e->from = e->into = NULL;
    return status;
}
