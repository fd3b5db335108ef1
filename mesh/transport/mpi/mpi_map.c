/*
 * mesh/transport/mpi/mpi_map.c - a world before its ranks are attached: which processes there
 * are and who is on one host, bytes of all of them side by side, and which ranks run here. Only
 * here are MPI's own collectives used, while no other thread is in MPI.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { POLLS = 20, POLLS_ALONE = 20000, PATIENCE_ALONE = 32 };

static wf_status no_memory(size_t bytes, wf_error *error)
{
    return wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for %zu bytes that processes say",
                                 bytes);
}

static wf_status check(int code, wf_error *error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return WF_OK;
    MPI_Error_string(code, text, &length);
    return wf_mpi_host.error_set(error, WF_ELOST,
                                 "MPI, while processes spoke of their hosts: %s", text);
}

/* Gathers all processes' bytes; count[process]: how many each has. */
static wf_status gather_counted(mpi_world *w, const void *mine, int *count, char **all,
                                size_t *begin, wf_error *error)
{
    int *at = count + w->processes;

    begin[0] = 0;
    for (int p = 0; p < w->processes; p++)
        begin[p + 1] = begin[p] + (size_t)count[p];
    if (begin[w->processes] > INT_MAX)
        return wf_mpi_host.error_set(error, WF_EUNSUPPORTED,
                                     "what the processes say takes %zu bytes, more than MPI "
                                     "gathers at once; start fewer processes",
                                     begin[w->processes]);
    for (int p = 0; p < w->processes; p++)
        at[p] = (int)begin[p];
    *all = malloc(begin[w->processes] + 1);
    if (!*all)
        return no_memory(begin[w->processes], error);
    return check(
        MPI_Allgatherv(mine, count[w->process], MPI_BYTE, *all, count, at, MPI_BYTE, w->comm),
        error);
}

wf_status wf_mpi_gather(void *opaque, const void *mine, size_t bytes, char **all, size_t *begin,
                        wf_error *error)
{
    mpi_world *w = opaque;
    int *count = malloc(2 * (size_t)w->processes * sizeof *count), n = (int)bytes;
    wf_status status;

    *all = NULL;
    if (!count)
        return no_memory(bytes, error);
    status = check(MPI_Allgather(&n, 1, MPI_INT, count, 1, MPI_INT, w->comm), error);
    if (status == WF_OK)
        status = gather_counted(w, mine, count, all, begin, error);
    free(count);
    if (status != WF_OK) {
        free(*all);
        *all = NULL;
    }
    return status;
}

/* Finds the number of the first process on the same host. */
static wf_status find_host(mpi_world *w, int *host, wf_error *error)
{
    MPI_Comm local;
    wf_status status;

    *host = w->process;
    status = check(
        MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, w->process, MPI_INFO_NULL, &local),
        error);
    if (status == WF_OK) {
        status = check(MPI_Bcast(host, 1, MPI_INT, 0, local), error);
        MPI_Comm_free(&local);
    }
    return status;
}

/* Chooses the number of polls, as between threads: a process with a core of its own saves the
   slower sleep by more polls. */
static void choose_polls(mpi_world *w, int processes)
{
    int cores = 1;
    cpu_set_t set;
    bool alone;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
    alone = w->local_size * processes <= cores;
    w->polls = alone ? POLLS_ALONE : POLLS;
    w->patience = alone ? PATIENCE_ALONE : 1;
}

wf_status wf_mpi_processes(void *world, wf_processes *processes, wf_error *error)
{
    mpi_world *w = world;

    *processes = (wf_processes){.n = w->processes, .mine = w->process};
    return find_host(w, &processes->host, error);
}

wf_status wf_mpi_map_ranks(void *world, const wf_local_ranks *ranks, wf_error *error)
{
    mpi_world *w = world;
    size_t bytes = (size_t)w->ranks * sizeof *w->process_of;
    wf_status status;

    w->process_of = malloc(bytes);
    if (!w->process_of)
        return no_memory(bytes, error);
    memcpy(w->process_of, ranks->process, bytes);
    w->first = ranks->rank[0];
    choose_polls(w, ranks->local_processes);
    status = wf_mpi_host.threads_open(w->local_size, ranks->rank, false, &w->threads, error);
    return status == WF_OK ? wf_mpi_helper_start(w, error) : status;
}
