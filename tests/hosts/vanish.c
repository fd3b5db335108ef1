/* tests/hosts/vanish.c - see the header. */
#include "tests/hosts/vanish.h"
#include "parallel/recovery/keeper.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Thread_local bool vanishes; /* this thread's rank */

static void *vanish(void *arg)
{
    const wf_rank *rank = arg;
    const char *text = getenv("WEFT_FAULT_MS");
    wf_error error = {WF_EDEVICE, ""};
    struct timespec t;
    int64_t most = text ? atoll(text) * 1000000 : 0;

    clock_gettime(CLOCK_REALTIME, &t);
    if (most > 0) { /* a moment by chance: the lowest digits of the clock */
        int64_t after = (int64_t)t.tv_nsec * 7919 % most;

        nanosleep(&(struct timespec){after / 1000000000, after % 1000000000}, NULL);
    }
    snprintf(error.text, sizeof error.text, "rank %d: its device is gone (a drill)",
             rank->index);
    wf_comm_abort(rank->world, &error);
    return NULL;
}

void vanish_soon(wf_rank *rank)
{
    pthread_t thread;

    vanishes = true;
    if (pthread_create(&thread, NULL, vanish, rank) == 0)
        pthread_detach(thread);
}

wf_status __real_wf_par_keeper_put(wf_par_keeper *keeper, wf_par_trainer *trainer,
                                   wf_error *error);
wf_status __wrap_wf_par_keeper_put(wf_par_keeper *keeper, wf_par_trainer *trainer,
                                   wf_error *error);

/* A rank that is gone has nothing to leave. */
wf_status __wrap_wf_par_keeper_put(wf_par_keeper *keeper, wf_par_trainer *trainer,
                                   wf_error *error)
{
    return vanishes ? wf_error_set(error, WF_EINVAL, "it is lost")
                    : __real_wf_par_keeper_put(keeper, trainer, error);
}
