/*
 * mesh/cluster/launch_open.c - a world until its ranks start: its transport, which ranks run
 * here, the failure detector. What joins processes may wait for one of them for ever, so a
 * thread of its own does that, and is abandoned when one does not come.
 */
#include "core/futex.h"
#include "mesh/cluster/launch_internal.h"
#include "mesh/transport/launcher.h"
#include "mesh/transport/registry_internal.h"
#include "mesh/health/process_registry_internal.h"
#include "mesh/health/observe_internal.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static wf_status attach(launch *l, const wf_launch_options *o, wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = 0; status == WF_OK && i < l->n; i++) {
        wf_rank *rank = &l->rank[i].rank;

        l->rank[i].launch = l;
        l->rank[i].bound = l->map.local_rank[i] % l->map.sharing;
        rank->index = l->map.rank[i];
        rank->size = o->ranks;
        rank->local_rank = l->map.local_rank[i];
        rank->local_size = l->n;
        rank->warning = l->map.warning ? l->map.warning : wf_registry_warning();
        status = l->transport->attach(l->world, rank->index, &l->comm[i], error);
        rank->world = l->comm[i];
        if (status == WF_OK)
            status = wf_health_observe(l->comm[i], error);
    }
    l->detection = (wf_detector_options){.transport = l->transport,
                                         .world = l->world,
                                         .comm = l->comm,
                                         .ranks = o->ranks,
                                         .rank = l->map.rank,
                                         .local_size = l->n,
                                         .processes = o->ranks / l->n,
                                         .process = l->process,
                                         .limit = o->stall_timeout};
    l->detection.alone = l->detection.processes == wf_launcher_detected().local;
    if (status != WF_OK || !l->transport->moves ||
        (l->detection.processes == 1 ? o->stall_timeout <= 0 : !l->transport->share))
        return status;
    status = wf_detector_open(&l->detection, &l->detector, error);
    for (int i = 0; i < l->n; i++)
        wf_health_wake(l->comm[i], l->detector);
    return status;
}

static const double LEAST_STALL_S = 0.1; /* heartbeats come as often */
static const double MOST_SECONDS = 1e6;  /* milliseconds of them are an int */

static wf_status check(const wf_launch_options *o, const wf_transport *t, wf_error *error)
{
    if (o->ranks < 1 || (t->moves && o->ranks > WF_MAX_RANKS))
        return wf_error_set(error, WF_EINVAL, "%d ranks: a world has 1 to %d ranks", o->ranks,
                            WF_MAX_RANKS);
    if (!t->moves && (o->rank < 0 || o->rank >= o->ranks))
        return wf_error_set(error, WF_EINVAL, "rank %d of a world of %d: ranks are 0 to %d",
                            o->rank, o->ranks, o->ranks - 1);
    if (!(o->stall_timeout == 0 || o->stall_timeout >= LEAST_STALL_S) ||
        o->stall_timeout > MOST_SECONDS)
        return wf_error_set(error, WF_EINVAL,
                            "a stall timeout of %g s would end any run, or none: give %g s or "
                            "more, up to %g, or "
                            "0 for never",
                            o->stall_timeout, LEAST_STALL_S, MOST_SECONDS);
    if (!(o->grace >= 0 && o->grace <= MOST_SECONDS) || o->threads < 0 ||
        (unsigned)o->order > WF_ORDER_TRANSPOSED)
        return wf_error_set(error, WF_EINVAL,
                            "a launch with grace %g s, threads %d, order %d: the first two are "
                            "not negative, seconds are at most %g, and an order is a value of "
                            "wf_rank_order",
                            o->grace, o->threads, (int)o->order, MOST_SECONDS);
    return WF_OK;
}

/* Returns the transport to use; one that moves nothing ignores launchers. */
const wf_transport *wf_launch_transport(const wf_launch_options *o, wf_error *error)
{
    const wf_transport *asked = o->transport ? wf_transport_find(o->transport, error) : NULL;
    wf_launcher launcher;

    if (o->transport && (!asked || !asked->moves))
        return asked;
    if (wf_launcher_choose(o->launcher, o->transport, o->ranks, &launcher, error) != WF_OK)
        return NULL;
    return asked ? asked : wf_transport_find(wf_launcher_transport(&launcher), error);
}

/* Maps ranks to this process: all of them in one process, or the one that is asked for where
   nothing moves. Of several processes each has those that the rank map gives it, or one where
   processes cannot exchange their hosts. */
static wf_status map_ranks(const wf_transport *t, void *world, const wf_launch_options *o,
                           const wf_processes *all, wf_rank_map *map, wf_error *error)
{
    const wf_rank_map_options options = {o->ranks, o->threads, o->n_axes, o->axis, o->order};
    int local = wf_launcher_detected().local_process;
    wf_status status;

    if (o->ranks % all->n)
        return wf_error_set(error, WF_EINVAL,
                            "%d ranks cannot be shared out evenly over %d processes; start 1, "
                            "%d, or a divisor of %d",
                            o->ranks, all->n, o->ranks, o->ranks);
    if (all->n > 1 && t->gather)
        status = wf_rank_map_find(&options, &(wf_rank_map_peers){*all, t->gather, world}, map,
                                  error);
    else if (all->n > 1)
        status = wf_rank_map_even(o->ranks, 1, all->mine, local, map, error);
    else if (t->moves)
        status = wf_rank_map_even(o->ranks, o->ranks, 0, 0, map, error);
    else
        status = wf_rank_map_even(o->ranks, 1, o->rank, 0, map, error);
    if (status != WF_OK || !t->map_ranks)
        return status;
    return t->map_ranks(
        world, &(wf_local_ranks){map->n, map->rank, map->process, map->local_processes}, error);
}

static launch *launch_new(const wf_transport *transport, void *world, const wf_rank_map *map)
{
    size_t n = (size_t)map->n;
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
    l->map = *map;
    l->n = map->n;
    return l;
}

/* Arranges that this process ends with the one that started it, except for what it may have to
   write down first. */
static void prepare_process(const wf_launch_options *o)
{
    wf_launcher l = wf_launcher_detected();

    prctl(PR_SET_PDEATHSIG, o->grace > 0 ? SIGTERM : SIGKILL);
    /* two connections more: what the process registry and process 0 listen to */
    if (l.processes > 1)
        wf_fd_holder_start((l.process == 0 ? l.processes - 1 : 1) + 2);
}

/* The information of a process about the others, once the transport knows them. */
typedef struct meeting {
    wf_processes of; /* n is 1 until they are known */
    bool alike;      /* all of them have the same error */
} meeting;

/* Compares the environment of the processes that meet here with what they are, and their
   jobs. */
static wf_status meet(const wf_transport *t, void *world, const wf_launch_options *o,
                      meeting *met, wf_error *error)
{
    wf_status status = t->processes ? t->processes(world, &met->of, error) : WF_OK;

    if (status != WF_OK || met->of.n == 1 || !t->gather)
        return status;
    status = wf_launch_check(t, world, &met->of, error);
    if (status == WF_OK)
        status = wf_job_compare(
            o->job, &(wf_job_peers){met->of.n, met->of.mine, t->gather, world}, error);
    met->alike = status != WF_OK;
    return status;
}

/* Opens a world, and finds which of its ranks run here. */
static wf_status open_world(const wf_transport *t, const wf_launch_options *o, launch **out,
                            meeting *met, wf_error *error)
{
    wf_world_options options = {.ranks = o->ranks, .leave = wf_registry_leave};
    wf_processes all = {.n = 1};
    wf_rank_map map = {.n = 0};
    wf_affinity *affinity = NULL;
    wf_status status;
    void *world;

    /* each of several processes has to know of the others on its host first */
    if (t->moves && !t->processes && o->threads > 0)
        affinity = wf_affinity_open(NULL, o->ranks, o->threads);
    options.own_cores = affinity != NULL;
    status = t->open(&options, &world, error);
    if (status != WF_OK) {
        wf_affinity_close(affinity);
        return status;
    }
    status = meet(t, world, o, met, error);
    all = met->of;
    if (status == WF_OK)
        status = map_ranks(t, world, o, &all, &map, error);
    if (status == WF_OK && !(*out = launch_new(t, world, &map)))
        status = wf_error_set(error, WF_ENOMEM, "no memory to start %d ranks", map.n);
    if (status == WF_OK && t->processes && o->threads > 0)
        affinity = wf_affinity_open(NULL, map.sharing, o->threads);
    if (status == WF_OK) {
        (*out)->affinity = affinity;
        (*out)->process = all.mine;
        (*out)->compares = all.n > 1 && !t->gather;
        wf_registry_name_ranks(o->ranks, map.process);
        return WF_OK;
    }
    t->close(world);
    wf_affinity_close(affinity);
    wf_rank_map_free(&map);
    return status;
}

void wf_launch_close(launch *l)
{
    for (int i = 0; i < l->n; i++)
        wf_comm_close(l->comm[i]);
    l->transport->close(l->world);
    if (l->detector) /* the transport may ask it to the end */
        wf_detector_close(l->detector);
    wf_affinity_close(l->affinity);
    wf_rank_map_free(&l->map);
    wf_job_free(l->job);
    free(l->comm);
    free(l);
}

static wf_status open_here(const wf_transport *t, const wf_launch_options *o, launch **out,
                           meeting *met, wf_error *error)
{
    wf_status status = open_world(t, o, out, met, error);

    if (status == WF_OK)
        status = attach(*out, o, error);
    if (status != WF_OK && *out) {
        if (t->fail) /* others may wait for this process: it is not to wait for them */
            t->fail((*out)->world, (*out)->map.rank[0], error, true);
        wf_launch_close(*out);
        *out = NULL;
    }
    return status;
}

/* On the heap, with what it needs of the caller's: it may outlive the call. */
typedef struct opening {
    const wf_transport *transport;
    wf_launch_options options;
    wf_placement_axis *axis;
    launch *launch;
    meeting met;
    wf_status status;
    wf_error error;
    _Atomic uint32_t done;
    struct opening *next; /* the next abandoned one */
} opening;

static opening *_Atomic left_behind;

static void *run_opening(void *arg)
{
    opening *p = arg;

    p->status = open_here(p->transport, &p->options, &p->launch, &p->met, &p->error);
    atomic_store(&p->done, 1);
    wf_futex_wake(&p->done, 1);
    return NULL;
}

static opening *opening_new(const wf_transport *t, const wf_launch_options *o)
{
    size_t axes = (size_t)o->n_axes;
    opening *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->axis = calloc(axes + 1, sizeof *p->axis);
    if (!p->axis) {
        free(p);
        return NULL;
    }
    if (axes)
        memcpy(p->axis, o->axis, axes * sizeof *p->axis);
    p->transport = t;
    p->options = *o;
    p->options.axis = p->axis;
    p->met.of.n = 1;
    return p;
}

/* Waits for the opening; false: it does not end, and the error says why. */
static bool await_opening(opening *p, wf_error *error)
{
    bool failed = false;

    wf_registry_listen(true);
    while (!atomic_load(&p->done) && !failed) {
        wf_futex_wait(&p->done, 0, 25);
        failed = !atomic_load(&p->done) && wf_registry_look(error);
    }
    wf_registry_listen(false);
    return !failed;
}

/* Opens in a thread that is abandoned when the processes of this host do not all come. */
static wf_status open_together(const wf_transport *t, const wf_launch_options *o, launch **out,
                               wf_launch_end *end, wf_error *error)
{
    opening *p = opening_new(t, o);
    pthread_t thread;
    wf_status status;
    int failure = p ? pthread_create(&thread, NULL, run_opening, p) : ENOMEM;

    if (failure) {
        if (p)
            free(p->axis);
        free(p);
        return wf_error_set(error, WF_ENOMEM,
                            "no thread can be started that joins processes: %s; raise the "
                            "limits on threads and memory",
                            strerror(failure));
    }
    if (!await_opening(p, error)) {
        end->stuck = 1;
        end->reported = !wf_registry_claim();
        pthread_detach(thread);
        p->next = atomic_exchange(&left_behind, p);
        return error->code;
    }
    pthread_join(thread, NULL);
    status = p->status;
    *out = p->launch;
    if (status != WF_OK)
        *error = p->error;
    if (wf_launch_is_own(status) && !p->met.alike)
        end->reported = !wf_registry_claim();
    else if (status != WF_OK && p->met.of.n > 1) /* the environment may say something else */
        end->reported = p->met.of.mine > 0;
    free(p->axis);
    free(p);
    return status;
}

/* Makes the job of a launch: entries of the caller, and those that every launch has. */
static wf_job *make_job(const wf_transport *t, const wf_launch_options *o)
{
    wf_job *job = wf_job_new();

    wf_job_add(job, "libweft", "%s", WEFT_VERSION);
    wf_job_append(job, o->job);
    wf_job_add(job, "transport", "%s", t->name);
    wf_job_add(job, "number of ranks", "%d", o->ranks);
    for (int i = 0; i < o->n_axes; i++) {
        char name[40];

        snprintf(name, sizeof name, "axis %.30s", o->axis[i].name);
        wf_job_add(job, name, "%d ranks, %.0f bytes received in a step", o->axis[i].size,
                   o->axis[i].bytes);
    }
    return job;
}

wf_status wf_launch_open(const wf_transport *t, const wf_launch_options *o, launch **out,
                         wf_launch_end *end, wf_error *error)
{
    wf_status status = check(o, t, error);
    wf_launch_options with_job = *o;
    meeting met = {.of = {.n = 1}};
    wf_job *job;

    *out = NULL;
    end->reported = wf_launcher_reports_elsewhere();
    if (status != WF_OK)
        return status;
    if (t->processes)
        prepare_process(o);
    wf_registry_open(t->processes != NULL, o->stall_timeout, o->exit_now);
    with_job.job = job = t->processes ? make_job(t, o) : NULL;
    if (t->processes && !job)
        return wf_error_set(error, WF_ENOMEM, "no memory for what processes compare");
    status = t->processes && wf_launcher_detected().processes > 1
                 ? open_together(t, &with_job, out, end, error)
                 : open_here(t, &with_job, out, &met, error);
    if (status == WF_OK)
        (*out)->job = job;
    else if (!end->stuck) /* else a thread may still compare it */
        wf_job_free(job);
    return status;
}
