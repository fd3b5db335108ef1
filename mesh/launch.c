/* mesh/launch.c - a world of ranks as threads of this process: all start, or none. */
#include "mesh/launch.h"
#include "mesh/crash.h"
#include "mesh/futex.h"
#include "mesh/launcher.h"
#include "mesh/places.h"
#include "mesh/recorder_parts.h"
#include "mesh/watch.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Modest, so that thousands of ranks fit; data lives on the heap. */
enum { STACK_BYTES = 4 << 20 };

/* How long ranks may take to return when their world has failed: to the end of what they compute,
   and hardly at all where a process is lost, whose launcher will kill the others in a second. */
enum {
    LOOK_MS = 100,
    GRACE_MS = 10000,
    GRACE_STUCK_MS = 600,
    GRACE_LOST_MS = 300,
    AWAIT_LOST_MS = 1200,
    VERDICT_MS = 1000 * (WF_WATCH_SILENCE + 3)
};

enum { GATE_SHUT, GATE_OPEN, GATE_CANCELLED };

typedef struct started {
    struct launch *launch;
    wf_rank rank;
    int place; /* among the ranks that are bound to cores */
    wf_status status;
    pthread_t thread;
} started;

/* On the heap, for a rank that is stuck may outlive the call. */
typedef struct launch {
    const wf_transport *transport;
    wf_status (*rank_main)(wf_rank *rank, void *arg);
    void *arg;
    void *world;
    wf_places *places; /* NULL: the system's choice */
    wf_watch_options watched;
    wf_world_watch *watch; /* NULL: there is nothing that ranks do not notice themselves */
    wf_comm **comm;        /* [n] */
    wf_seating seats;      /* who runs here: */
    int n;                 /* so many */
    _Atomic uint32_t gate, running;
    struct launch *next; /* of those left behind */
    started rank[];
} launch;

static launch *_Atomic left_behind; /* with ranks that are stuck; no leak, but theirs */

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
    wf_watch_finished(l->watch, (int)(s - l->rank));
}

static void *run_rank(void *opaque)
{
    started *s = opaque;
    launch *l = s->launch;

    while (atomic_load(&l->gate) == GATE_SHUT)
        wf_futex_wait(&l->gate, GATE_SHUT, 1000);
    if (atomic_load(&l->gate) == GATE_CANCELLED)
        return NULL;
    if (l->places)
        wf_places_bind(l->places, s->place);
    wf_crash_rank(s->rank.world);
    s->status = l->rank_main(&s->rank, l->arg);
    end_rank(l, s);
    if (atomic_fetch_sub(&l->running, 1) == 1)
        wf_futex_wake(&l->running, 1);
    return NULL;
}

/* Start all; where one cannot be, send the others home and say so. */
static wf_status start_threads(launch *l, wf_error *error)
{
    pthread_attr_t attributes;
    int running, failure = 0;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
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

/* Whether the world has failed, and how. */
static bool verdict(const launch *l, int wait_ms, wf_verdict *v)
{
    return l->watch ? wf_watch_verdict(l->watch, wait_ms, v) : wf_watch_look(&l->watched, v);
}

static int grace_ms(const wf_verdict *v)
{
    return !v->stuck ? GRACE_MS : v->code == WF_ELOST ? GRACE_LOST_MS : GRACE_STUCK_MS;
}

/* Wait for the ranks here; how many do not return. */
static int await_ranks(launch *l)
{
    int64_t failed = 0;
    uint32_t left;
    wf_verdict v;

    while ((left = atomic_load(&l->running)) > 0) {
        wf_futex_wait(&l->running, left, LOOK_MS);
        if (!verdict(l, 0, &v))
            continue;
        failed = failed ? failed : now_ms();
        if (now_ms() - failed > grace_ms(&v))
            break;
    }
    for (int i = 0; i < l->n; i++)
        if (left)
            pthread_detach(l->rank[i].thread);
        else
            pthread_join(l->rank[i].thread, NULL);
    return (int)left;
}

/* What a rank here has returned where its transport keeps no cause. */
static wf_status first_status(const launch *l, wf_error *error)
{
    for (int i = 0; i < l->n; i++)
        if (l->rank[i].status != WF_OK) {
            const wf_rank *rank = &l->rank[i].rank;
            const char *colon, *text = wf_error_behind_rank(&rank->error, rank->index, &colon);

            return wf_error_set(error, l->rank[i].status, "rank %d%s%.1400s", rank->index,
                                colon, text);
        }
    return WF_OK;
}

/* A world that failed is told by one process, for which the others wait. */
static wf_status tell(launch *l, const wf_launch_options *o, const wf_verdict *v,
                      wf_launch_end *end, wf_error *error)
{
    wf_error_set(error, (wf_status)v->code, "%s", v->text);
    end->told = v->teller != l->watched.process;
    if (end->told) {
        wf_watch_await_told(l->watch, v->stuck ? AWAIT_LOST_MS : GRACE_MS);
    } else if (o->tell) {
        o->tell(error, l->arg);
        end->told = true;
    }
    if (l->watch && v->teller == l->watched.process)
        wf_watch_told(l->watch);
    return error->code;
}

static wf_status run_ranks(launch *l, const wf_launch_options *o, wf_launch_end *end,
                           wf_error *error)
{
    wf_status status = start_threads(l, error);
    wf_verdict v;
    bool failed;

    for (int i = 0; status != WF_OK && l->watch && i < l->n; i++) /* the others are told */
        wf_comm_abort(l->comm[i], error);
    if (status == WF_OK)
        end->stuck = await_ranks(l);
    if (end->stuck)
        wf_recorder_write_all();
    else if (status == WF_OK && l->transport->settle)
        l->transport->settle(l->world);
    failed = verdict(l, wf_watch_look(&l->watched, &v) ? VERDICT_MS : 0, &v);
    if (failed && status == WF_OK)
        status = tell(l, o, &v, end, error);
    if (l->watch)
        wf_watch_leave(l->watch);
    if (!failed && status == WF_OK && verdict(l, 0, &v)) /* while the others left */
        status = tell(l, o, &v, end, error);
    return status == WF_OK ? first_status(l, error) : status;
}

static wf_status attach(launch *l, const wf_launch_options *o, wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = 0; status == WF_OK && i < l->n; i++) {
        wf_rank *rank = &l->rank[i].rank;

        l->rank[i].launch = l;
        l->rank[i].place = l->seats.slot[i];
        rank->index = l->seats.rank[i];
        rank->size = o->ranks;
        rank->warning = l->seats.warning;
        status = l->transport->attach(l->world, rank->index, &l->comm[i], error);
        rank->world = l->comm[i];
        if (status == WF_OK)
            wf_recorder_of(l->comm[i]);
    }
    l->watched =
        (wf_watch_options){.transport = l->transport,
                           .world = l->world,
                           .comm = l->comm,
                           .ranks = o->ranks,
                           .rank = l->seats.rank,
                           .here = l->n,
                           .processes = o->ranks / l->n,
                           .process = l->transport->seat ? wf_launcher_detected().process : 0,
                           .limit = o->stall_timeout};
    if (status != WF_OK || !l->transport->moves ||
        (l->watched.processes == 1 ? o->stall_timeout <= 0 : !l->transport->share))
        return status;
    status = wf_watch_open(&l->watched, &l->watch, error);
    for (int i = 0; i < l->n; i++)
        l->comm[i]->watch = l->watch;
    return status;
}

static wf_status run_world(launch *l, const wf_launch_options *o, wf_error *error)
{
    wf_launch_end end = {.stuck = 0};
    wf_status status = attach(l, o, error);

    if (status == WF_OK)
        status = run_ranks(l, o, &end, error);
    if (o->end)
        *o->end = end;
    if (end.stuck) { /* all of it is theirs */
        l->next = atomic_exchange(&left_behind, l);
        return status;
    }
    for (int i = 0; i < l->n; i++)
        wf_comm_close(l->comm[i]);
    l->transport->close(l->world);
    if (l->watch) /* the transport may ask it to the end */
        wf_watch_close(l->watch);
    wf_places_close(l->places);
    wf_seating_free(&l->seats);
    free(l->comm);
    free(l);
    return status;
}

static wf_status check(const wf_launch_options *o, const wf_transport *t, wf_error *error)
{
    if (o->ranks < 1 || (t->moves && o->ranks > WF_MAX_RANKS))
        return wf_error_set(error, WF_EINVAL, "%d ranks: a world has 1 to %d ranks", o->ranks,
                            WF_MAX_RANKS);
    if (!t->moves && (o->rank < 0 || o->rank >= o->ranks))
        return wf_error_set(error, WF_EINVAL, "rank %d of a world of %d: ranks are 0 to %d",
                            o->rank, o->ranks, o->ranks - 1);
    return WF_OK;
}

/* A transport that moves nothing takes no part in what launchers start. */
static const wf_transport *choose_transport(const wf_launch_options *o, wf_error *error)
{
    const wf_transport *asked = o->transport ? wf_transport_find(o->transport, error) : NULL;
    wf_launcher launcher;

    if (o->transport && (!asked || !asked->moves))
        return asked;
    if (wf_launcher_choose(o->launcher, o->transport, o->ranks, &launcher, error) != WF_OK)
        return NULL;
    return asked ? asked : wf_transport_find(wf_launcher_transport(&launcher), error);
}

/* Threads of one process: all ranks, or the one that is asked for where nothing moves. */
static wf_status seat_here(const wf_launch_options *o, bool moves, wf_seating *seats,
                           wf_error *error)
{
    int n = moves ? o->ranks : 1;

    *seats = (wf_seating){.n = n, .sharing = n, .local = 1};
    seats->rank = malloc((size_t)n * sizeof *seats->rank);
    seats->slot = malloc((size_t)n * sizeof *seats->slot);
    if (!seats->rank || !seats->slot)
        return wf_error_set(error, WF_ENOMEM, "no memory to start %d ranks", n);
    for (int i = 0; i < n; i++) {
        seats->rank[i] = moves ? i : o->rank;
        seats->slot[i] = i;
    }
    return WF_OK;
}

static launch *launch_new(const wf_transport *transport, void *world, const wf_seating *seats)
{
    size_t n = (size_t)seats->n;
    launch *l = calloc(1, sizeof *l + n * sizeof l->rank[0]);

    if (!l)
        return NULL;
    l->comm = calloc(n, sizeof *l->comm);
    if (!l->comm) {
        free(l);
        return NULL;
    }
    l->transport = transport;
    l->world = world;
    l->seats = *seats;
    l->n = seats->n;
    return l;
}

/* Who started this process shall not leave it behind. */
static void prepare_process(void)
{
    wf_launcher l = wf_launcher_detected();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (l.processes > 1)
        wf_watch_keep(l.process == 0 ? l.processes - 1 : 1);
}

/* A world that is open, and which of its ranks run here. */
static wf_status open_world(const wf_transport *t, const wf_launch_options *o, launch **out,
                            wf_error *error)
{
    const wf_seating_wish wish = {o->ranks, o->threads, o->n_axes, o->axis, o->order};
    wf_seating seats = {.n = 0};
    wf_places *places = NULL;
    wf_status status;
    void *world;

    /* of several processes each has to know of the others on its host first */
    if (t->moves && !t->seat && o->threads > 0)
        places = wf_places_open(NULL, o->ranks, o->threads);
    status = t->open(o->ranks, places != NULL, &world, error);
    if (status != WF_OK) {
        wf_places_close(places);
        return status;
    }
    status =
        t->seat ? t->seat(world, &wish, &seats, error) : seat_here(o, t->moves, &seats, error);
    if (status == WF_OK && !(*out = launch_new(t, world, &seats)))
        status = wf_error_set(error, WF_ENOMEM, "no memory to start %d ranks", seats.n);
    if (status == WF_OK && t->seat && o->threads > 0)
        places = wf_places_open(NULL, seats.sharing, o->threads);
    if (status == WF_OK) {
        (*out)->places = places;
        return WF_OK;
    }
    t->close(world);
    wf_places_close(places);
    wf_seating_free(&seats);
    return status;
}

wf_status wf_launch(const wf_launch_options *options,
                    wf_status (*rank_main)(wf_rank *rank, void *arg), void *arg,
                    wf_error *error)
{
    const wf_transport *t = choose_transport(options, error);
    wf_status status;
    launch *l;

    if (!t)
        return error->code;
    status = check(options, t, error);
    if (status != WF_OK)
        return status;
    if (t->seat)
        prepare_process();
    status = open_world(t, options, &l, error);
    if (status == WF_OK) {
        l->rank_main = rank_main;
        l->arg = arg;
        status = run_world(l, options, error);
    }
    wf_watch_keep_no_more();
    return status;
}
