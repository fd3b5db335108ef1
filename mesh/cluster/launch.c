/* mesh/cluster/launch.c - a world of ranks as threads of this process: all start, or none. */
#include "mesh/health/crash_internal.h"
#include "core/futex.h"
#include "mesh/cluster/launch_internal.h"
#include "mesh/health/process_registry_internal.h"
#include "mesh/health/observe_internal.h"
#include "mesh/transport/launcher.h"
#include <stdlib.h>
#include <string.h>

/* Times that ranks have to return when their world has failed: to the end of their computation,
   and hardly any where a process is lost, whose launcher will kill the others in a second. */
enum {
    LOOK_MS = 20,
    GRACE_MS = 10000,
    GRACE_STUCK_MS = 600,
    GRACE_LOST_MS = 300,
    AWAIT_LOST_MS = 700,
    FAILURE_MS = 1000 * (WF_DETECTOR_SILENCE + 3)
};

enum { GATE_SHUT, GATE_OPEN, GATE_CANCELLED };

static launch
    *_Atomic left_behind; /* launches with ranks that are stuck; no leak, but theirs */

static void end_rank(launch *l, started *s)
{
    wf_rank *rank = &s->rank;

    if (s->status == WF_OK)
        s->status = rank->error.code;
    if (s->status == WF_OK && rank->world->in_flight)
        s->status =
            wf_error_set(&rank->error, WF_EINVAL,
                         "rank %d has finished with a collective in flight", rank->index);
    if (s->status == WF_OK) {
        l->transport->finish(rank->world);
    } else {
        wf_error_set(&rank->error, s->status, "%s", wf_status_name(s->status));
        wf_comm_abort(rank->world, &rank->error);
    }
    wf_detector_finished(l->detector, (int)(s - l->rank));
}

/* Compares the jobs of ranks, each of which is alone in its process. */
static wf_status compare_jobs(const launch *l, wf_rank *rank)
{
    const wf_job_peers peers = {rank->size, rank->index, wf_job_gather_ranks, rank->world};

    return wf_job_compare(l->job, &peers, &rank->error);
}

static void *run_rank(void *opaque)
{
    started *s = opaque;
    launch *l = s->launch;

    while (atomic_load(&l->gate) == GATE_SHUT)
        wf_futex_wait(&l->gate, GATE_SHUT, 1000);
    if (atomic_load(&l->gate) == GATE_CANCELLED)
        return NULL;
    if (l->affinity)
        wf_affinity_bind(l->affinity, s->bound);
    wf_crash_rank(s->rank.world);
    if (l->compares)
        s->status = compare_jobs(l, &s->rank);
    if (s->status == WF_OK)
        s->status = l->rank_main(&s->rank, l->arg);
    end_rank(l, s);
    wf_crash_no_rank();
    if (atomic_fetch_sub(&l->running, 1) == 1)
        wf_futex_wake(&l->running, 1);
    return NULL;
}

/* Starts all threads; where one cannot be started, the others return at once and the error says
   so. */
static wf_status start_threads(launch *l, wf_error *error)
{
    pthread_attr_t attributes;
    int running, failure = 0;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WF_RANK_STACK);
    for (running = 0; running < l->n; running++) {
        failure =
            pthread_create(&l->rank[running].thread, &attributes, run_rank, &l->rank[running]);
        if (failure)
            break;
    }
    pthread_attr_destroy(&attributes);
    atomic_store(&l->running, (uint32_t)running);
    atomic_store(&l->gate, failure ? GATE_CANCELLED : GATE_OPEN);
    wf_futex_wake(&l->gate, INT32_MAX);
    if (!failure)
        return WF_OK;
    for (int i = 0; i < running; i++)
        pthread_join(l->rank[i].thread, NULL);
    return wf_error_set(error, WF_ENOMEM,
                        "only %d of %d ranks can be started here: %s; ask for fewer ranks, "
                        "or raise the limits on threads and memory",
                        running, l->n, strerror(failure));
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns true where the world has failed, with the cause. */
static bool failure(const launch *l, int wait_ms, wf_failure *v)
{
    return l->detector ? wf_detector_failure(l->detector, wait_ms, v)
                       : wf_detector_look(&l->detection, v);
}

static int grace_ms(const wf_launch_options *o, const wf_failure *v)
{
    int lost = o->grace > 0 ? (int)(o->grace * 1e3) : GRACE_LOST_MS;

    return !v->stuck ? GRACE_MS : v->code == WF_ELOST ? lost : GRACE_STUCK_MS;
}

/* Returns the status of a rank here where its transport keeps no cause. */
static wf_status first_status(const launch *l, wf_error *error)
{
    for (int i = 0; i < l->n; i++)
        if (l->rank[i].status != WF_OK) {
            const wf_rank *rank = &l->rank[i].rank;
            const char *colon, *text = wf_error_after_rank(&rank->error, rank->index, &colon);

            return wf_error_set(error, l->rank[i].status, "rank %d%s%.1400s", rank->index,
                                colon, text);
        }
    return WF_OK;
}

/* The state of the end of a world. */
typedef struct ending {
    wf_launch_end end;
    wf_error *error;
    bool failed; /* the world has; it has been reported, if that is this process's to do */
} ending;

/* Reports a world that failed, by one process, for which the others wait. */
static void report(launch *l, const wf_launch_options *o, const wf_failure *v, ending *e)
{
    bool mine = v->reporter == l->detection.process && !wf_detector_crashed(l->detector);

    e->failed = true; /* a process that crashes reports from its signal, which then ends it */
    wf_error_set(e->error, (wf_status)v->code, "%s", v->text);
    if (!mine) /* the reporter is lost as well: the first to claim the report makes it */
        mine = !wf_detector_await_reported(l->detector, v->ended ? AWAIT_LOST_MS : GRACE_MS);
    e->end.reported = !mine || !wf_registry_claim();
    if (!e->end.reported && o->report) {
        o->report(e->error, l->arg);
        e->end.reported = true;
    }
    if (l->detector && mine)
        wf_detector_reported(l->detector);
}

/* Wait for the ranks here; how many do not return. That a process is lost is reported before:
   the launcher may end all others at any moment. */
static int await_ranks(launch *l, const wf_launch_options *o, ending *e)
{
    int64_t failed = 0;
    uint32_t left;
    wf_failure v;

    while ((left = atomic_load(&l->running)) > 0) {
        wf_futex_wait(&l->running, left, LOOK_MS);
        if (!failure(l, 0, &v))
            continue;
        if (!failed && v.stuck && v.code == WF_ELOST) {
            wf_recorder_write_all();
            report(l, o, &v, e);
        }
        failed = failed ? failed : now_ms();
        if (now_ms() - failed > grace_ms(o, &v))
            break;
    }
    for (int i = 0; i < l->n; i++)
        if (left)
            pthread_detach(l->rank[i].thread);
        else
            pthread_join(l->rank[i].thread, NULL);
    return (int)left;
}

static wf_status run_ranks(launch *l, const wf_launch_options *o, ending *e)
{
    wf_status status = start_threads(l, e->error);
    wf_failure v;

    for (int i = 0; status != WF_OK && l->detector && i < l->n;
         i++) /* the others are notified */
        wf_comm_abort(l->comm[i], e->error);
    if (status == WF_OK)
        e->end.stuck = await_ranks(l, o, e);
    if (e->end.stuck)
        wf_recorder_write_all();
    else if (status == WF_OK && l->transport->settle)
        l->transport->settle(l->world);
    if (!e->failed && failure(l, wf_detector_look(&l->detection, &v) ? FAILURE_MS : 0, &v) &&
        status == WF_OK)
        report(l, o, &v, e);
    if (l->detector)
        wf_detector_leave(l->detector);
    if (!e->failed && status == WF_OK && failure(l, 0, &v)) /* while the others left */
        report(l, o, &v, e);
    if (e->failed)
        return e->error->code;
    return status == WF_OK ? first_status(l, e->error) : status;
}

static wf_status run_world(launch *l, const wf_launch_options *o, wf_error *error)
{
    ending e = {.error = error};
    wf_status status = run_ranks(l, o, &e);

    if (o->end)
        *o->end = e.end;
    if (e.end.stuck) /* all of it is theirs */
        l->next = atomic_exchange(&left_behind, l);
    else
        wf_launch_close(l);
    return status;
}

/* Returns true for the options of wf_launch_meet, which asks for nothing. */
static bool is_meeting(const wf_launch_options *o)
{
    return !o->launcher && !o->transport && o->ranks == wf_launcher_detected().processes;
}

wf_status wf_launch(const wf_launch_options *options,
                    wf_status (*rank_main)(wf_rank *rank, void *arg), void *arg,
                    wf_error *error)
{
    const wf_transport *t = wf_launch_transport(options, error);
    wf_launch_end end = {.reported = options->end && options->end->reported};
    wf_status status;
    launch *l;

    if (!t) {
        end.reported =
            is_meeting(options) ? wf_launcher_reports_elsewhere() : wf_launch_meet(NULL, error);
        if (options->end)
            *options->end = end;
        return error->code;
    }
    status = wf_launch_open(t, options, &l, &end, error);
    if (status != WF_OK && t->processes && options->end)
        *options->end = end;
    if (status == WF_OK) {
        l->rank_main = rank_main;
        l->arg = arg;
        status = run_world(l, options, error);
    }
    if (!wf_registry_claimed()) /* else its fd holder keeps that name a little longer */
        wf_fd_holder_stop();
    return status;
}
