/*
 * tests/hosts/lose_rank.c - stands before functions of the library in a program of a user, and
 * loses a rank of it:
 *
 *     WEFT_LOSE="lose 1 5"   the device of rank 1 is gone before step 5, once
 *     WEFT_LOSE="kill 1 5"   its process is killed
 *     WEFT_LOSE="late 1 5"   the device is gone when the others make the update of step 5
 */
#include "parallel/parallel_internal.h"
#include "parallel/recovery/snapshot.h"
#include "parallel/shard/update_internal.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL(type, name, ...)                                                                  \
    type __real_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__)

static _Thread_local wf_par *mine;
static _Thread_local int64_t step_now;
static _Thread_local bool lost;
static atomic_flag acted = ATOMIC_FLAG_INIT;

/* Loses the rank where it is the one and this is the step. */
static void lose(bool late)
{
    const char *text = getenv("WEFT_LOSE");
    char action[8] = "";
    int rank = -1;
    long long step = 0;

    if (!text || sscanf(text, "%7s %d %lld", action, &rank, &step) != 3 || !mine ||
        wf_context_rank(wf_par_context(mine)) != rank || step_now != step ||
        (strcmp(action, "late") == 0) != late || atomic_flag_test_and_set(&acted))
        return;
    if (strcmp(action, "kill") == 0)
        raise(SIGKILL);
    lost = true;
    wf_fail(wf_par_context(mine), WF_EDEVICE, "its device is gone (a drill)");
}

REAL(wf_par *, wf_par_open, wf_rank *rank, const wf_par_options *options, wf_error *error)
{
    lost = false;
    mine = NULL;
    return mine = __real_wf_par_open(rank, options, error);
}

REAL(wf_status, wf_par_train_launch, wf_par_trainer *trainer, int64_t step,
     const wf_par_data *data)
{
    step_now = step;
    lose(false);
    return lost ? WF_EDEVICE : __real_wf_par_train_launch(trainer, step, data);
}

REAL(wf_status, wf_par_update, wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
     wf_nn_parameter *const *parameter, wf_tensor *const *grad, float lr, float scale)
{
    lose(true);
    return lost ? WF_EDEVICE
                : __real_wf_par_update(par, optimizer, count, parameter, grad, lr, scale);
}

/* A rank that is gone has no state to leave. */
REAL(wf_status, wf_par_snapshot_put, wf_par_snapshot *snapshot, wf_par_trainer *trainer,
     wf_error *error)
{
    return lost ? wf_error_set(error, WF_EINVAL, "it is lost")
                : __real_wf_par_snapshot_put(snapshot, trainer, error);
}
