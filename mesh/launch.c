/* mesh/launch.c - a world of ranks as threads of this process: all start, or none. */
#include "mesh/launch.h"
#include "mesh/comm.h"
#include "mesh/futex.h"
#include "mesh/launcher.h"
#include "mesh/places.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Modest, so that thousands of ranks fit; data lives on the heap. */
enum { STACK_BYTES = 4 << 20 };

enum { GATE_SHUT, GATE_OPEN, GATE_CANCELLED };

typedef struct launch {
    const wf_transport *transport;
    wf_status (*rank_main)(wf_rank *rank, void *arg);
    void *arg;
    wf_places *places; /* NULL: the system's choice */
    _Atomic uint32_t gate;
} launch;

typedef struct started {
    launch *launch;
    wf_rank rank;
    int place; /* among the ranks that are bound to cores */
    wf_status status;
    pthread_t thread;
} started;

static void *run_rank(void *opaque)
{
    started *s = opaque;
    launch *l = s->launch;
    wf_rank *rank = &s->rank;

    while (atomic_load(&l->gate) == GATE_SHUT)
        wf_futex_wait(&l->gate, GATE_SHUT, 1000);
    if (atomic_load(&l->gate) == GATE_CANCELLED)
        return NULL;
    if (l->places)
        wf_places_bind(l->places, s->place);
    s->status = l->rank_main(rank, l->arg);
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
    return NULL;
}

/* Start all; where one cannot be, send the others home and say so. */
static wf_status start_threads(launch *l, started *ranks, int n, wf_error *error)
{
    pthread_attr_t attributes;
    wf_status status = WF_OK;
    int running, failure = 0;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (running = 0; running < n; running++) {
        failure =
            pthread_create(&ranks[running].thread, &attributes, run_rank, &ranks[running]);
        if (failure)
            break;
    }
    pthread_attr_destroy(&attributes);
    if (failure)
        status =
            wf_error_set(error, WF_ENOMEM,
                         "only %d of %d ranks can be started here: %s; ask for fewer ranks, "
                         "or raise the limits on threads and memory",
                         running, n, strerror(failure));
    atomic_store(&l->gate, failure ? GATE_CANCELLED : GATE_OPEN);
    wf_futex_wake(&l->gate, INT32_MAX);
    for (int i = 0; i < running; i++)
        pthread_join(ranks[i].thread, NULL);
    return status;
}

static wf_status run_world(launch *l, void *world, const wf_launch_options *o, started *ranks,
                           const wf_seating *seats, wf_error *error)
{
    wf_status status = WF_OK;
    bool elsewhere = false;
    int n = seats->n;

    for (int i = 0; status == WF_OK && i < n; i++) {
        ranks[i].launch = l;
        ranks[i].place = seats->slot[i];
        ranks[i].rank.index = seats->rank[i];
        ranks[i].rank.size = o->ranks;
        ranks[i].rank.warning = seats->warning;
        status = l->transport->attach(world, ranks[i].rank.index, &ranks[i].rank.world, error);
    }
    if (status == WF_OK)
        status = start_threads(l, ranks, n, error);
    if (status == WF_OK)
        status = l->transport->cause(world, &elsewhere, error);
    if (o->elsewhere)
        *o->elsewhere = elsewhere;
    for (int i = 0; status == WF_OK && i < n; i++)
        if (ranks[i].status != WF_OK) {
            const wf_rank *rank = &ranks[i].rank;
            const char *colon, *text = wf_error_behind_rank(&rank->error, rank->index, &colon);

            status = wf_error_set(error, ranks[i].status, "rank %d%s%.1400s", rank->index,
                                  colon, text);
        }
    for (int i = 0; i < n; i++)
        wf_comm_close(ranks[i].rank.world);
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
    return asked ? asked : wf_transport_find(launcher.kind, error);
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

/* Which ranks run here, and on which cores, and then their whole life. */
static wf_status seat_and_run(launch *l, void *world, const wf_launch_options *o,
                              wf_error *error)
{
    const wf_seating_wish wish = {o->ranks, o->threads, o->n_axes, o->axis, o->order};
    wf_seating seats = {.n = 0};
    started *ranks = NULL;
    wf_status status = l->transport->seat ? l->transport->seat(world, &wish, &seats, error)
                                          : seat_here(o, l->transport->moves, &seats, error);

    if (status == WF_OK) {
        ranks = calloc((size_t)seats.n, sizeof *ranks);
        status = ranks ? WF_OK
                       : wf_error_set(error, WF_ENOMEM, "no memory to start %d ranks", seats.n);
    }
    if (status == WF_OK && l->transport->seat && o->threads > 0)
        l->places = wf_places_open(NULL, seats.sharing, o->threads);
    if (status == WF_OK)
        status = run_world(l, world, o, ranks, &seats, error);
    free(ranks);
    wf_seating_free(&seats);
    return status;
}

wf_status wf_launch(const wf_launch_options *options,
                    wf_status (*rank_main)(wf_rank *rank, void *arg), void *arg,
                    wf_error *error)
{
    launch l = {
        .transport = choose_transport(options, error), .rank_main = rank_main, .arg = arg};
    wf_status status;
    void *world;

    if (!l.transport)
        return error->code;
    status = check(options, l.transport, error);
    if (status != WF_OK)
        return status;
    /* of several processes each has to know of the others on its host first */
    if (l.transport->moves && !l.transport->seat && options->threads > 0)
        l.places = wf_places_open(NULL, options->ranks, options->threads);
    status = l.transport->open(options->ranks, l.places != NULL, &world, error);
    if (status != WF_OK) {
        wf_places_close(l.places);
        return status;
    }
    status = seat_and_run(&l, world, options, error);
    l.transport->close(world);
    wf_places_close(l.places);
    return status;
}
