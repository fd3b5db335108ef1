/* parallel/program/session.c - a run that is driven from outside; see the header. */
#include "parallel/program/session.h"
#include "mesh/comm/collective.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

typedef enum wf_session_kind { SESSION_STEP, SESSION_CALL, SESSION_STOP } wf_session_kind;

/* All fields but the first ones are guarded by the lock; ranks read those of a call while it
   lasts. */
struct wf_session {
    wf_process *process;
    int ranks;
    int64_t last; /* the number of the last step */
    wf_par_data own;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t called, ended;
    int64_t number; /* calls so far; ranks take each once */
    wf_session_kind kind;
    const wf_par_data *data; /* the step's batch */
    wf_par_hook *function;   /* called by a call, with `arg` */
    void *arg;
    int waiting;   /* ranks that have reached the end of the call, and wait for the next */
    bool leaving;  /* a rank has left the run */
    bool closing;  /* no call comes any more */
    bool over;     /* wf_process_run has returned */
    bool returned; /* a call has returned the failure */
    int64_t steps;
    wf_step_log made;
    wf_launch_end end;
    wf_error error;
};

/* ---- the ranks ---- */

/* Waits for the next call, which comes when all ranks wait for it. Returns its kind. */
static wf_session_kind await_call(wf_session *s)
{
    wf_session_kind kind;
    int64_t seen;

    pthread_mutex_lock(&s->lock);
    seen = s->number;
    if (++s->waiting == s->ranks)
        pthread_cond_broadcast(&s->ended);
    while (s->number == seen && !s->leaving && !s->closing && !s->over)
        pthread_cond_wait(&s->called, &s->lock);
    kind = s->number == seen ? SESSION_STOP : s->kind;
    pthread_mutex_unlock(&s->lock);
    return kind;
}

/* Keeps the record of a step; of rank 0. */
static void note_step(wf_session *s, const wf_par_running *rank, const wf_step_log *made)
{
    pthread_mutex_lock(&s->lock);
    s->steps = rank->steps;
    if (made) {
        s->made = *made;
        s->made.losses = NULL;
        s->made.scalars = NULL;
        s->made.of = NULL;
        s->made.loads = NULL;
        s->made.loss_count = s->made.scalar_count = s->made.load_count = 0;
        s->made.tensors = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

/* A wf_run_between: waits for calls up to the next step. */
static wf_status serve(wf_par_running *rank, const wf_step_log *made, bool *stop, void *arg)
{
    wf_session *s = arg;
    wf_context *ctx = wf_par_context(rank->par);
    wf_comm *world = wf_mesh_world(wf_par_mesh(rank->par));
    wf_session_kind kind;

    if (wf_context_rank(ctx) == 0)
        note_step(s, rank, made);
    do {
        wf_comm_at_files(world, true); /* to wait for a caller is no stall */
        kind = await_call(s);
        wf_comm_at_files(world, false);
        if (kind == SESSION_CALL)
            s->function(rank, s->arg);
    } while (kind == SESSION_CALL && wf_context_status(ctx) == WF_OK);
    *stop = kind == SESSION_STOP;
    return wf_context_status(ctx);
}

/* Wakes all others: those that wait would do so for ever. */
static void leave(void *session)
{
    wf_session *s = session;

    pthread_mutex_lock(&s->lock);
    s->leaving = true;
    pthread_cond_broadcast(&s->called);
    pthread_mutex_unlock(&s->lock);
}

static wf_status read_rows(void *session, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    const wf_session *s = session;
    const wf_par_data *data = s->data ? s->data : &s->own;

    return data->read ? data->read(data->self, step, first, count, field, error)
                      : wf_error_set(error, WF_EINVAL,
                                     "step %" PRId64 " has no batch: give it one", step);
}

static wf_status count_elements(void *session, int64_t step, int64_t *count, wf_error *error)
{
    const wf_session *s = session;
    const wf_par_data *data = s->data ? s->data : &s->own;

    return data->counted
               ? data->counted(data->self, step, count, error)
               : wf_error_set(error, WF_EINVAL,
                              "the batch of step %" PRId64 " does not say how many of "
                              "its elements count, as those of the job do",
                              step);
}

/* ---- the thread of the run ---- */

static void *run(void *session)
{
    wf_session *s = session;
    wf_error error = {WF_OK, ""};
    wf_launch_end end;

    wf_process_run(s->process, &end, &error);
    pthread_mutex_lock(&s->lock);
    s->end = end;
    s->process->ranks_left = end.stuck;
    s->error = error;
    s->over = true;
    pthread_cond_broadcast(&s->called);
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the caller ---- */

/* Waits until all ranks wait, or the run is over. Locked. Returns the failure of the run. */
static wf_status await_ranks(wf_session *s, wf_error *error)
{
    while (!s->over && (s->leaving || s->waiting < s->ranks))
        pthread_cond_wait(&s->ended, &s->lock);
    if (!s->over)
        return WF_OK;
    s->returned = true;
    if (s->error.code == WF_OK)
        return wf_error_set(error, WF_EINVAL,
                            "the run ended after step %" PRId64 ": open another one", s->steps);
    *error = s->error;
    return error->code;
}

/* Makes a call of the ranks, and waits for its end. Locked. */
static wf_status call(wf_session *s, wf_session_kind kind, wf_error *error)
{
    if (await_ranks(s, error) != WF_OK)
        return error->code;
    s->kind = kind;
    s->number++;
    s->waiting = 0;
    pthread_cond_broadcast(&s->called);
    return await_ranks(s, error);
}

/* Refuses what a session cannot drive. */
static wf_status check(const wf_process *p, wf_error *error)
{
    if (p->is_elastic)
        return wf_error_set(error, WF_EINVAL,
                            "an elastic run restarts by itself, and a session is driven step "
                            "by step: leave out --elastic");
    if (p->launcher.processes > 1)
        return wf_error_set(error, WF_EINVAL,
                            "a session has its ranks in one process, and the launcher has "
                            "started %d: start one",
                            p->launcher.processes);
    if (!p->job.steps)
        return wf_error_set(error, WF_EINVAL,
                            "a session of 0 steps: give it --steps of 1 or more");
    return WF_OK;
}

static void free_session(wf_session *s)
{
    pthread_cond_destroy(&s->called);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Lets the process call the session, from its ranks. */
static void attach(wf_session *s)
{
    wf_process *p = s->process;

    s->own = p->job.data;
    p->job.data = (wf_par_data){
        .read = read_rows, .self = s, .counted = s->own.counted ? count_elements : NULL};
    p->run.between = (wf_run_between){.function = serve, .left = leave, .arg = s};
    p->is_embedded = true;
}

wf_session *wf_session_open(wf_process *process, wf_error *error)
{
    wf_session *s;

    if (check(process, error) != WF_OK)
        return NULL;
    s = calloc(1, sizeof *s);
    if (!s) {
        wf_error_set(error, WF_ENOMEM, "no memory for a session");
        return NULL;
    }
    s->process = process;
    s->ranks = (int)wf_par_ranks(&process->job.mesh);
    s->last = process->job.steps;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->called, NULL);
    pthread_cond_init(&s->ended, NULL);
    attach(s);
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        free_session(s);
        wf_error_set(error, WF_ENOMEM, "no thread for a session: raise the limit on threads");
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    await_ranks(s, error);
    pthread_mutex_unlock(&s->lock);
    if (error->code == WF_OK)
        return s;
    wf_session_close(s, &(wf_error){WF_OK, ""});
    return NULL;
}

int64_t wf_session_steps(const wf_session *session)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&session->lock; /* no change of it */
    int64_t steps;

    pthread_mutex_lock(lock);
    steps = session->steps;
    pthread_mutex_unlock(lock);
    return steps;
}

wf_status wf_session_step(wf_session *s, const wf_par_data *data, wf_step_log *made,
                          wf_error *error)
{
    pthread_mutex_lock(&s->lock);
    if (!s->over && s->steps >= s->last) {
        wf_error_set(error, WF_EINVAL,
                     "the run has made its %" PRId64 " steps: open one with more --steps",
                     s->last);
    } else {
        s->data = data;
        if (call(s, SESSION_STEP, error) == WF_OK && made)
            *made = s->made;
        s->data = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return error->code;
}

wf_status wf_session_call(wf_session *s, wf_par_hook *function, void *arg, wf_error *error)
{
    pthread_mutex_lock(&s->lock);
    s->function = function;
    s->arg = arg;
    call(s, SESSION_CALL, error);
    pthread_mutex_unlock(&s->lock);
    return error->code;
}

wf_status wf_session_close(wf_session *s, wf_error *error)
{
    bool stuck;

    if (!s)
        return error->code;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->called);
    while (!s->over)
        pthread_cond_wait(&s->ended, &s->lock);
    if (s->error.code != WF_OK && !s->returned)
        *error = s->error;
    stuck = s->end.stuck > 0;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    if (!stuck) /* else ranks still use it */
        free_session(s);
    return error->code;
}
