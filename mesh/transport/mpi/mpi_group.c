/*
 * mesh/transport/mpi/mpi_group.c - groups over processes: of the world, and split off one
 * another. What of a group lies in one process is a group of threads.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <stdlib.h>
#include <string.h>

static mpi_comm *comm_new(mpi_world *w, const char *name, const int *ranks, int n, int rank)
{
    size_t size = (size_t)n;
    mpi_comm *c = calloc(1, sizeof *c + size * (2 * sizeof(int) + 2 * sizeof(uint64_t)));
    int inner = 0;

    if (!c)
        return NULL;
    c->world = w;
    c->sent = (uint64_t *)(c + 1);
    c->received = c->sent + size;
    c->ranks = (int *)(c->received + size);
    c->local = c->ranks + size;
    memcpy(c->ranks, ranks, size * sizeof *ranks);
    for (int i = 0; i < n; i++) {
        bool mine = w->process_of[ranks[i]] == w->process;

        c->local[i] = mine ? inner++ : -1;
        c->members = wf_mpi_hash(c->members, (uint64_t)ranks[i] + 1);
    }
    wf_mpi_host.comm_init(&c->base, &wf_transport_mpi, name, rank, n, c->ranks);
    return c;
}

static wf_status no_memory(const char *name, int n, wf_error *error)
{
    return wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for group %s of %d ranks", name,
                                 n);
}

wf_status wf_mpi_attach(void *opaque, int rank, wf_comm **out, wf_error *error)
{
    mpi_world *w = opaque;
    int *ranks = malloc((size_t)w->ranks * sizeof *ranks);
    mpi_comm *c = NULL;
    wf_status status;

    for (int i = 0; ranks && i < w->ranks; i++)
        ranks[i] = i;
    if (ranks)
        c = comm_new(w, "world", ranks, w->ranks, rank);
    free(ranks);
    if (!c)
        return no_memory("world", w->ranks, error);
    c->key = 1;
    status = wf_mpi_host.threads->attach(w->threads, rank, &c->inner, error);
    if (status != WF_OK) {
        free(c);
        return status;
    }
    *out = &c->base;
    return WF_OK;
}

/* Lists the members of this process, as members of the parent's inner group; returns how
   many. */
static int inner_members(const mpi_comm *parent, const int *members, int n, int *inner)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        if (parent->local[members[i]] >= 0)
            inner[count++] = parent->local[members[i]];
    return count;
}

/* Nothing is agreed on over MPI: a group is known by which split of which group it is. Its
   members' lists are compared when they first meet. */
wf_status wf_mpi_split(wf_comm *comm, const char *name, const int *members, int n,
                       wf_comm **out, wf_error *error)
{
    mpi_comm *parent = wf_mpi_of(comm), *c = NULL;
    int *ranks = calloc(2 * (size_t)n, sizeof *ranks), rank = 0, inner;
    uint64_t key = wf_mpi_hash(wf_mpi_hash(parent->key, ~(uint64_t)0), parent->splits++);
    wf_comm *threads = NULL;
    wf_status status;

    if (!ranks)
        return no_memory(name, n, error);
    inner = inner_members(parent, members, n, ranks + n);
    status = wf_mpi_host.threads->split(parent->inner, name, ranks + n, inner, &threads, error);
    for (int i = 0; i < n; i++) {
        ranks[i] = parent->ranks[members[i]];
        if (members[i] == comm->rank)
            rank = i;
    }
    if (status == WF_OK && inner < n) {
        c = comm_new(parent->world, name, ranks, n, rank);
        status = c ? WF_OK : no_memory(name, n, error);
    }
    free(ranks);
    if (status != WF_OK) {
        if (threads)
            wf_mpi_host.threads->detach(threads);
        return status;
    }
    if (c) {
        c->key = key;
        c->inner = threads;
    }
    *out = c ? &c->base : threads;
    return WF_OK;
}

void wf_mpi_detach(wf_comm *comm)
{
    wf_mpi_host.threads->detach(wf_mpi_of(comm)->inner);
    free(comm);
}

void wf_mpi_finish(wf_comm *comm)
{
    mpi_comm *c = wf_mpi_of(comm);

    wf_mpi_host.threads->finish(c->inner);
    pthread_mutex_lock(&c->world->lock);
    wf_mpi_send_finished(c->world, c->ranks[comm->rank]);
    pthread_mutex_unlock(&c->world->lock);
}
