/*
 * mesh/transport/mpi/mpi_helper.c - a thread of each process that moves exchanges on while the
 * ranks compute. MPI has no way to sleep until something comes,
 * so the helper looks: often while an exchange is in the background, now and then otherwise.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <time.h>

enum { BUSY_NS = 100000, IDLE_NS = 50000000 };

/* Sleeps for so long, or until woken. */
static void nap(mpi_world *w, long ns)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
}

static void *run(void *arg)
{
    mpi_world *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        wf_mpi_progress(w);
        nap(w, w->background > 0 ? BUSY_NS : IDLE_NS);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

wf_status wf_mpi_helper_start(mpi_world *w, wf_error *error)
{
    w->helping = wf_mpi_host.thread_start(&w->helper, NULL, run, w) == 0;
    return w->helping ? WF_OK
                      : wf_mpi_host.error_set(error, WF_ENOMEM, "no thread to serve MPI");
}

void wf_mpi_help(mpi_world *w)
{
    w->background++;
    pthread_cond_signal(&w->wake);
}

void wf_mpi_helper_stop(mpi_world *w)
{
    if (!w->helping)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->helper, NULL);
}
