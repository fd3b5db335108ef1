/* tests/hosts/vanish.c - see the header. */
#include "tests/hosts/vanish.h"
#include "mesh/comm/transport_internal.h"
#include "parallel/recovery/snapshot.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Thread_local bool vanishes; /* this thread's rank */
static _Thread_local bool lost_too; /* the same, once another one is lost */
static _Thread_local pthread_t vanishing;
static atomic_int vanished_in; /* a step; 0: none yet */

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
    rank->world->transport->abort(rank->world, &error); /* its recorder is its own thread's */
    return NULL;
}

bool vanish_again(int step)
{
    const char *every = getenv("WEFT_FAULT_EVERY");
    int last = atomic_load(&vanished_in);

    return every && last > 0 && step >= last + atoi(every);
}

void vanish_soon(wf_rank *rank, int step)
{
    atomic_store(&vanished_in, step);
    if (!vanishes) /* it may be about to, for many steps */
        vanishes = pthread_create(&vanishing, NULL, vanish, rank) == 0;
}

void vanish_wait(void)
{
    if (vanishes)
        pthread_join(vanishing, NULL);
    vanishes = false;
}

void vanish_with_another(const wf_rank *rank)
{
    const char *text = getenv("WEFT_FAULT_WITH");

    lost_too = text && atoi(text) == rank->index;
}

wf_status __real_wf_par_snapshot_put(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                     wf_error *error);
wf_status __wrap_wf_par_snapshot_put(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                     wf_error *error);

/* A rank that is gone has nothing to leave, nor has, once, one that goes with it. */
wf_status __wrap_wf_par_snapshot_put(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                     wf_error *error)
{
    static atomic_flag gone = ATOMIC_FLAG_INIT;
    bool with = lost_too && !atomic_flag_test_and_set(&gone);

    return vanishes || with ? wf_error_set(error, WF_EINVAL, "it is lost")
                            : __real_wf_par_snapshot_put(snapshot, trainer, error);
}

int overflow_stack(volatile char *above)
{
    static volatile bool goes_on = true;
    volatile char room[4096];

    room[0] = above ? (char)(above[0] + 1) : 0;
    return goes_on ? overflow_stack(room) + room[0] : 0;
}
