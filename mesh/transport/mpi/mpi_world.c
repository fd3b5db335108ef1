/*
 * mesh/transport/mpi/mpi_world.c - the plugin's symbol, and worlds over processes. MPI is
 * initialised by the first world of a process, and finalised when the process exits, unless a
 * world has ended badly: then others may be gone, and finalising would wait for them.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TAGS = 1 << 20, STUCK_NS = 200000000 };

wf_plugin_host wf_mpi_host;
static bool ours;
static void (*leave)(void); /* as the last world has it: wf_world_options */
static _Atomic bool ended_badly;

uint64_t wf_mpi_hash(uint64_t seed, uint64_t word)
{
    uint64_t x = (seed ^ word) * 0x9e3779b97f4a7c15u + 1;

    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 29);
}

/* Finalises MPI, when all processes have been waited for and the failure detector has ended. */
static void finalise(void)
{
    if (!ours || ended_badly)
        return;
    if (leave)
        leave();
    MPI_Finalize();
}

/* Sets defaults of MPI for more ranks than cores, which are usual. On one host processes wait
   for each other before MPI ends (wf_registry_leave); where some are killed while others wait
   in there, OpenMPI's mpirun may end the others and never itself. */
static void set_defaults(void)
{
    const wf_launcher *l = &wf_mpi_host.launcher;

    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (l->local == l->processes)
        setenv("OMPI_MCA_async_mpi_finalize", "1", 0);
}

static wf_status initialise(wf_error *error)
{
    int already = 0, provided = MPI_THREAD_SINGLE;

    MPI_Initialized(&already);
    if (already) {
        MPI_Query_thread(&provided);
    } else {
        set_defaults();
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
            return wf_mpi_host.error_set(error, WF_EUNSUPPORTED, "MPI cannot be initialised");
        ours = true;
        atexit(finalise);
    }
    if (provided < MPI_THREAD_SERIALIZED)
        return wf_mpi_host.error_set(
            error, WF_EUNSUPPORTED,
            "this MPI serves one thread only (level %d), and a rank is a "
            "thread; use one with MPI_THREAD_SERIALIZED",
            provided);
    return WF_OK;
}

/* Checks the number of processes: a launcher of another MPI starts processes that each see a
   world of their own. */
static wf_status check_size(int processes, wf_error *error)
{
    const wf_launcher *l = &wf_mpi_host.launcher;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    if (*l->name && l->processes != processes)
        return wf_mpi_host.error_set(
            error, WF_EINVAL,
            "%s started %d processes (%s), but %s, which libweft_mpi is built with, sees %d: "
            "the "
            "launcher belongs to another MPI; use the mpirun of %s, or srun --mpi=pmix; or "
            "unset "
            "%s where it is left from another job",
            l->name, l->processes, l->variable, version, processes, version, l->variable);
    return WF_OK;
}

static void world_free(mpi_world *w)
{
    while (w->early) {
        early *next = w->early->next;

        free(w->early);
        w->early = next;
    }
    while (w->unused_early) {
        early *next = w->unused_early->next;

        free(w->unused_early);
        w->unused_early = next;
    }
    while (w->notices) {
        notice *next = w->notices->next;

        free(w->notices->request);
        free(w->notices);
        w->notices = next;
    }
    if (w->threads)
        wf_mpi_host.threads->close(w->threads);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->finished);
    free(w->process_of);
    free(w);
}

static wf_status world_start(mpi_world *w, int ranks, wf_error *error)
{
    int *tags, found = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &w->process);
    w->ranks = ranks;
    w->local_size = ranks / w->processes;
    w->finished = calloc((size_t)ranks, sizeof *w->finished);
    if (!w->finished)
        return wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for a world of %d ranks",
                                     ranks);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &w->comm) != MPI_SUCCESS)
        return wf_mpi_host.error_set(error, WF_ELOST, "MPI cannot make a communicator");
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tags, &found);
    w->tags = found && *tags - TAG_DATA < MOST_TAGS ? *tags - TAG_DATA : MOST_TAGS;
    return wf_mpi_open_slots(w, error);
}

/* Processes have the cores that their launcher gives them. */
static wf_status open_world(const wf_world_options *options, void **world, wf_error *error)
{
    wf_status status = initialise(error);
    int processes = 1, ranks = options->ranks;
    mpi_world *w;

    leave = options->leave;
    if (status == WF_OK) {
        MPI_Comm_size(MPI_COMM_WORLD, &processes);
        status = check_size(processes, error);
    }
    if (status != WF_OK)
        return status;
    w = calloc(1, sizeof *w);
    if (!w)
        return wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for a world of %d ranks",
                                     ranks);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->processes = processes;
    status = world_start(w, ranks, error);
    if (status != WF_OK) {
        ended_badly = true;
        world_free(w);
        return status;
    }
    *world = w;
    return WF_OK;
}

static bool notices_sent(mpi_world *w)
{
    for (notice *n = w->notices; n; n = n->next) {
        int sent = 0;

        MPI_Testall(w->processes, n->request, &sent, MPI_STATUSES_IGNORE);
        if (!sent)
            return false;
    }
    return true;
}

/* Shares data in a call of all processes, before their ranks run. */
static wf_status share(void *opaque, void *data, size_t bytes, wf_error *error)
{
    mpi_world *w = opaque;
    int code;

    pthread_mutex_lock(&w->lock);
    code = MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, w->comm);
    pthread_mutex_unlock(&w->lock);
    return code == MPI_SUCCESS
               ? WF_OK
               : wf_mpi_host.error_set(error, WF_ELOST, "MPI cannot reach all processes");
}

static void settle(void *opaque)
{
    mpi_world *w = opaque;

    for (bool through = false; !through;) {
        pthread_mutex_lock(&w->lock);
        wf_mpi_progress(w);
        through = atomic_load(&w->aborted) || (notices_sent(w) && w->n_finished == w->ranks);
        pthread_mutex_unlock(&w->lock);
        if (!through)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static wf_status cause(void *opaque, int *failed_rank, wf_error *error)
{
    mpi_world *w = opaque;
    const char *colon, *text;

    if (!atomic_load(&w->aborted))
        return WF_OK;
    *failed_rank = w->failed_rank;
    text = wf_mpi_host.error_after_rank(&w->cause, w->failed_rank, &colon);
    return wf_mpi_host.error_set(error, w->cause.code, "rank %d%s%.1400s", w->failed_rank,
                                 colon, text);
}

/* Takes the lock to abort. False: a process is lost, and the thread that holds the lock is in
   MPI, which waits for it: the ranks here are stuck. */
static bool lock_for_abort(mpi_world *w, bool lost)
{
    struct timespec until;

    if (!lost)
        return pthread_mutex_lock(&w->lock) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STUCK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(&w->lock, &until) == 0;
}

static void fail(void *opaque, int failed_rank, const wf_error *why, bool lost)
{
    mpi_world *w = opaque;

    if (lost) {
        atomic_store(&w->lost, true);
        ended_badly = true;
    }
    if (!*why->text || !lock_for_abort(w, lost))
        return;
    wf_mpi_abort(w, failed_rank, why);
    pthread_mutex_unlock(&w->lock);
}

/* Closes the world. Messages may still be in flight to a world that was aborted: its
   communicator stays, for MPI would give its context to the next world, which would then
   receive them. */
static void close_world(void *opaque)
{
    mpi_world *w = opaque;

    wf_mpi_helper_stop(w);
    wf_mpi_close_slots(w);
    if (!ended_badly && !atomic_load(&w->aborted))
        MPI_Comm_free(&w->comm);
    world_free(w);
}

/* Ends the rank's exchanges: their memory is returned to the caller. */
static void abort_world(wf_comm *comm, const wf_error *why)
{
    mpi_comm *c = wf_mpi_of(comm);
    mpi_world *w = c->world;
    int rank = c->ranks[comm->rank];

    pthread_mutex_lock(&w->lock);
    wf_mpi_abort(w, rank, why);
    for (transfer **link = &w->active; *link;) {
        transfer *t = *link;

        if (t->comm->ranks[t->comm->base.rank] != rank) {
            link = &t->next;
            continue;
        }
        *link = t->next;
        t->listed = false;
        wf_mpi_abandon(t);
        t->x->slot = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    wf_mpi_host.threads->abort(c->inner, why);
}

const wf_transport wf_transport_mpi = {.name = "mpi",
                                       .moves = true,
                                       .open = open_world,
                                       .close = close_world,
                                       .processes = wf_mpi_processes,
                                       .gather = wf_mpi_gather,
                                       .map_ranks = wf_mpi_map_ranks,
                                       .share = share,
                                       .settle = settle,
                                       .cause = cause,
                                       .fail = fail,
                                       .attach = wf_mpi_attach,
                                       .split = wf_mpi_split,
                                       .detach = wf_mpi_detach,
                                       .finish = wf_mpi_finish,
                                       .abort = abort_world,
                                       .begin = wf_mpi_begin,
                                       .wait = wf_mpi_wait,
                                       .alive = wf_mpi_alive};

__attribute__((visibility("default"))) wf_plugin_entry wf_plugin;

const wf_transport *wf_plugin(const wf_plugin_host *host)
{
    if (host->size != sizeof *host || host->version != WF_PLUGIN_VERSION)
        return NULL;
    wf_mpi_host = *host;
    return &wf_transport_mpi;
}
