/*
 * mesh/transport/nccl/nccl_world.c - the plugin's symbol, and worlds: each is one below with
 * communicators of NCCL beside it.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_SECONDS = 600 };

wf_plugin_host wf_nccl_host;

int64_t wf_nccl_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void wf_nccl_nap(int *naps)
{
    enum { FIRST = 10000, LAST = 500000 };
    long nap = FIRST << (*naps < 6 ? *naps : 6);

    nanosleep(&(struct timespec){.tv_nsec = nap < LAST ? nap : LAST}, NULL);
    ++*naps;
}

wf_status wf_nccl_cuda(cudaError_t code, const char *what, wf_error *error)
{
    if (code == cudaSuccess)
        return WF_OK;
    return wf_nccl_host.error_set(error, WF_ELOST, "transport nccl: %s: %s", what,
                                  cudaGetErrorString(code));
}

wf_status wf_nccl_good(const nccl_comm *c, ncclResult_t code, const char *what, wf_error *error)
{
    if (code == ncclSuccess || code == ncclInProgress)
        return WF_OK;
    return wf_nccl_host.error_set(
        error, WF_ELOST,
        "NCCL: %s over %s: %s%s; NCCL_DEBUG=WARN in the environment "
        "says more",
        what, c->base.name, ncclGetErrorString(code),
        code == ncclInvalidUsage
            ? " (does each rank have a GPU of its own? Ranks that share one are threads of a "
              "process, .transport threads, or have an NCCL_HOSTID each)"
            : "");
}

wf_status wf_nccl_check(const nccl_comm *c, const char *op, uint64_t call, wf_error *error)
{
    nccl_rank *r = c->rank;
    wf_status status = WF_OK;

    if (c->inner)
        status = c->inner->transport->alive(c->inner, op, call, error);
    if (status != WF_OK)
        return status;
    pthread_mutex_lock(&r->lock);
    if (r->stopped)
        status =
            wf_nccl_host.error_set(error, r->why.code, "%.1200s; rank %d was in %s over %s",
                                   r->why.text, r->index, op, c->base.name);
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* Refuses, in one line, a machine without the devices that this transport joins. */
static wf_status check_devices(wf_error *error)
{
    const char *kind = wf_nccl_host.launcher.kind;
    int count = 0; /* untouched where there is no driver */
    cudaError_t code = cudaGetDeviceCount(&count);

    if (code == cudaSuccess && count > 0)
        return WF_OK;
    return wf_nccl_host.error_set(
        error, WF_EUNSUPPORTED,
        "transport nccl joins GPUs, and there is none here (%s); use %s",
        code == cudaSuccess ? "CUDA finds no device" : cudaGetErrorString(code),
        strcmp(kind, "mpi") == 0        ? ".transport mpi"
        : strcmp(kind, "torchrun") == 0 ? "mpirun -np N PROGRAM ..."
                                        : ".transport threads");
}

/* Processes that NCCL alone joins. */
static wf_status open_alone(int ranks, wf_error *error)
{
    const wf_launcher *l = &wf_nccl_host.launcher;
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    char id[300];
    long number = port ? strtol(port, NULL, 10) : 0;

    if (ranks != l->processes)
        return wf_nccl_host.error_set(error, WF_EINVAL,
                                      "%s started %d processes for %d ranks: under torchrun "
                                      "each process is one rank; use "
                                      "--nproc-per-node so that there are %d",
                                      l->name, l->processes, ranks, ranks);
    if (!getenv("NCCL_COMM_ID")) {
        if (!address || number < 1 || number > 65534)
            return wf_nccl_host.error_set(
                error, WF_EINVAL,
                "ranks under torchrun find each other at MASTER_ADDR=%s, MASTER_PORT=%s, which "
                "is no address; set both, or NCCL_COMM_ID=HOST:PORT",
                address ? address : "", port ? port : "");
        /* torchrun itself listens at MASTER_PORT where it says so */
        number += agent && strcmp(agent, "True") == 0;
        snprintf(id, sizeof id, strchr(address, ':') ? "[%.200s]:%ld" : "%.200s:%ld", address,
                 number);
        setenv("NCCL_COMM_ID", id, 1);
    }
    return WF_OK;
}

static wf_status open_below(nccl_world *w, const wf_world_options *options, wf_error *error)
{
    const char *kind = wf_nccl_host.launcher.kind;

    if (strcmp(kind, "torchrun") == 0)
        return open_alone(options->ranks, error);
    w->below = wf_nccl_host.transport_find(kind, error);
    return w->below ? w->below->open(options, &w->below_world, error) : error->code;
}

static void world_free(nccl_world *w)
{
    for (int i = 0; w->rank && i < w->local_size; i++) {
        wf_nccl_close_rank(&w->rank[i]);
        pthread_mutex_destroy(&w->rank[i].lock);
    }
    if (w->below_world)
        w->below->close(w->below_world);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->rank);
    free(w);
}

static wf_status open_world(const wf_world_options *options, void **world, wf_error *error)
{
    const char *patience = getenv("WEFT_NCCL_TIMEOUT");
    double seconds = patience ? strtod(patience, NULL) : 0;
    nccl_world *w = NULL;
    wf_status status = check_devices(error);

    if (status == WF_OK && !(w = calloc(1, sizeof *w)))
        status = wf_nccl_host.error_set(error, WF_ENOMEM, "no memory for a world of %d ranks",
                                        options->ranks);
    if (status != WF_OK)
        return status;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->ranks = options->ranks;
    w->patience = (int64_t)((seconds > 0 ? seconds : PATIENCE_SECONDS) * 1e9);
    status = wf_nccl_window_open(w, error);
    if (status == WF_OK)
        status = open_below(w, options, error);
    if (status != WF_OK) {
        world_free(w);
        return status;
    }
    *world = w;
    return WF_OK;
}

/* Describes the processes; without a control transport, NCCL has yet to find the hosts. */
static wf_status processes(void *opaque, wf_processes *out, wf_error *error)
{
    nccl_world *w = opaque;
    const wf_launcher *l = &wf_nccl_host.launcher;

    if (w->below && w->below->processes)
        return w->below->processes(w->below_world, out, error);
    *out = w->below ? (wf_processes){.n = 1}
                    : (wf_processes){.n = l->processes, .mine = l->process, .host = l->process};
    return WF_OK;
}

static wf_status gather(void *opaque, const void *mine, size_t bytes, char **all, size_t *begin,
                        wf_error *error)
{
    nccl_world *w = opaque;

    return w->below->gather(w->below_world, mine, bytes, all, begin, error);
}

static wf_status map_ranks(void *opaque, const wf_local_ranks *ranks, wf_error *error)
{
    nccl_world *w = opaque;
    wf_status status = w->below && w->below->map_ranks
                           ? w->below->map_ranks(w->below_world, ranks, error)
                           : WF_OK;

    if (status != WF_OK)
        return status;
    w->rank = calloc((size_t)ranks->n, sizeof *w->rank);
    if (!w->rank)
        return wf_nccl_host.error_set(error, WF_ENOMEM, "no memory for %d ranks", ranks->n);
    w->local_size = ranks->n;
    for (int i = 0; i < w->local_size; i++) {
        w->rank[i] = (nccl_rank){.world = w, .index = ranks->rank[i]};
        pthread_mutex_init(&w->rank[i].lock, NULL);
    }
    return WF_OK;
}

/* Returns the cause of a failure; without a control transport, each process reports its own
   rank, and torchrun ends the others. */
static wf_status cause(void *opaque, int *failed_rank, wf_error *error)
{
    nccl_world *w = opaque;
    nccl_rank *r = w->rank;
    const char *colon, *text;
    bool stopped;

    if (w->below)
        return w->below->cause(w->below_world, failed_rank, error);
    pthread_mutex_lock(&r->lock);
    stopped = r->stopped; /* `why` stays from then on */
    pthread_mutex_unlock(&r->lock);
    if (!stopped)
        return WF_OK;
    *failed_rank = r->index;
    text = wf_nccl_host.error_after_rank(&r->why, r->index, &colon);
    return wf_nccl_host.error_set(error, r->why.code, "rank %d%s%.1400s", r->index, colon,
                                  text);
}

static void fail(void *opaque, int failed_rank, const wf_error *why, bool lost)
{
    nccl_world *w = opaque;

    if (w->below)
        w->below->fail(w->below_world, failed_rank, why, lost);
    if (!*why->text)
        return;
    for (int i = 0; i < w->local_size; i++) {
        pthread_mutex_lock(&w->rank[i].lock);
        wf_nccl_stop(&w->rank[i], why);
        pthread_mutex_unlock(&w->rank[i].lock);
    }
}

static wf_status share(void *opaque, void *data, size_t bytes, wf_error *error)
{
    nccl_world *w = opaque;

    return w->below->share(w->below_world, data, bytes, error);
}

static void settle(void *opaque)
{
    nccl_world *w = opaque;

    if (w->below && w->below->settle)
        w->below->settle(w->below_world);
}

static void close_world(void *opaque)
{
    nccl_world *w = opaque;

    wf_nccl_watch_stop(w);
    world_free(w);
}

static void abort_world(wf_comm *comm, const wf_error *why)
{
    nccl_comm *c = wf_nccl_of(comm);
    nccl_rank *r = c->rank;

    pthread_mutex_lock(&r->lock);
    wf_nccl_stop(r, why);
    pthread_mutex_unlock(&r->lock);
    if (c->inner)
        c->inner->transport->abort(c->inner, why);
}

const wf_transport wf_transport_nccl = {.name = "nccl",
                                        .moves = true,
                                        .device_memory = true,
                                        .groups_messages = true,
                                        .open = open_world,
                                        .close = close_world,
                                        .processes = processes,
                                        .gather = gather,
                                        .map_ranks = map_ranks,
                                        .share = share,
                                        .settle = settle,
                                        .cause = cause,
                                        .fail = fail,
                                        .attach = wf_nccl_group_attach,
                                        .split = wf_nccl_group_split,
                                        .detach = wf_nccl_group_detach,
                                        .finish = wf_nccl_group_finish,
                                        .abort = abort_world,
                                        .begin = wf_nccl_begin,
                                        .wait = wf_nccl_wait,
                                        .reduces = true};

static wf_transport alone; /* torchrun started the processes */

__attribute__((visibility("default"))) wf_plugin_entry wf_plugin;

const wf_transport *wf_plugin(const wf_plugin_host *host)
{
    if (host->size != sizeof *host || host->version != WF_PLUGIN_VERSION)
        return NULL;
    wf_nccl_host = *host;
    alone = wf_transport_nccl;
    alone.gather = NULL; /* processes with nothing below cannot speak before NCCL is up */
    alone.share = NULL;
    return strcmp(host->launcher.kind, "torchrun") == 0 ? &alone : &wf_transport_nccl;
}
