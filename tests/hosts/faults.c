/*
 * tests/hosts/faults.c - gpt_train with a fault: linked in front of functions that it calls
 * (see CMakeLists.txt). WEFT_FAULT="ACTION PHASE RANK STEP" is an action in a phase, once:
 *
 *     kill segv abort   its process dies of a signal,
 *     stop quit         is stopped, exits with 0 by the system call alone,
 *     exit              calls _exit(0)
 *     term overflow     is asked to end, or has no stack left
 *     slow_abort        its process reports slowly, and dies of a signal soon
 *     stall             the rank never continues
 *     leave             it returns as if its work were done
 *     mismatch          it makes one barrier more than the others
 *     nonfinite         the loss of its sequences is infinite
 *     read              its data cannot be read
 *     full              its disk is full
 *     lose              its device is gone, and the rank ends by that
 *     vanish            the same, at most WEFT_FAULT_MS milliseconds after a step's begin
 *     mark              no fault: it writes the time to the log
 *
 *     start (before the launch) meet init forward optimizer save exit end (after the launch)
 *     last (when the program exits) destructor (MPI has ended, too), an action of a pipeline
 *     (F I W B RECVD SENT UNSHARD REDUCE TIE NORM ..), the name of a collective
 *
 * Several faults, with ; between them, are of one process each. Steps count from 1, 0 is any
 * time: in that step or later. With a collective as the phase all ranks make one of each kind
 * over the world as each step begins. The rank writes the time to the file WEFT_FAULT_LOG. With
 * WEFT_FAULT_EVERY=N it vanishes also N steps later; WEFT_FAULT_WITH has lost its state, too.
 */
#include "nn/dataset/dataset.h"
#include "mesh/transport/launcher.h"
#include "mesh/health/recorder_internal.h"
#include "mesh/health/failure_detector_internal.h"
#include "parallel/shard/update_internal.h"
#include "parallel/models/gpt/gpt.h"
#include "tests/hosts/all_collectives.h"
#include "tests/hosts/rendezvous_faults.h"
#include "tests/hosts/vanish.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FAULTS = 8 };

/* The fault of this process, or, where all ranks are in one, of all of its ranks. */
static struct fault {
    char action[16], phase[16];
    int rank, step;
    bool any, collective;
} fault;

static _Thread_local wf_rank *me;
static _Thread_local wf_context *ctx;
static _Thread_local int step_now;
static _Thread_local bool in_phase; /* the pipeline's action is the phase */
static _Thread_local jmp_buf way_out;
static atomic_flag acted = ATOMIC_FLAG_INIT;
static const struct timespec late = {.tv_nsec = 300000000};

__attribute__((constructor)) static void read_fault(void)
{
    const char *text = getenv("WEFT_FAULT");

    for (int i = 0; text && *text && i < MOST_FAULTS && !fault.any; i++) {
        fault.any = sscanf(text, "%15s %15s %d %d", fault.action, fault.phase, &fault.rank,
                           &fault.step) == 4 &&
                    (!strchr(text, ';') || fault.rank == wf_launcher_detected().process);
        text = strchr(text, ';');
        text = text ? text + 1 : NULL;
    }
    for (int k = 0; fault.any && k < WF_COLLECTIVE_KINDS; k++)
        fault.collective = fault.collective ||
                           strcmp(fault.phase, wf_collective_name((wf_collective_kind)k)) == 0;
}

static bool is_action(const char *action)
{
    return strcmp(fault.action, action) == 0;
}

/* Returns true where the phase is the one, for this rank or another. */
static bool is_time(const char *phase)
{
    return fault.any && strcmp(fault.phase, phase) == 0 && step_now >= fault.step;
}

static void note_time(void)
{
    const char *path = getenv("WEFT_FAULT_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (file && fprintf(file, "%lld.%09ld\n", (long long)t.tv_sec, t.tv_nsec) > 0)
        fclose(file);
}

/* Returns true once, for the faulty rank (-1: each), and again if it vanishes again. */
static bool is_mine(const char *phase, int rank)
{
    if (!is_time(phase) || (rank != fault.rank && fault.rank >= 0))
        return false;
    if (atomic_flag_test_and_set(&acted) && !vanish_again(step_now))
        return fault.rank < 0;
    note_time();
    return true;
}

static void stall(void)
{
    for (;;)
        pause();
}

/* Ends or holds up the rank. */
static void act(void)
{
    if (is_action("kill"))
        kill(getpid(), SIGKILL);
    if (is_action("segv"))
        *(volatile int *)(uintptr_t)(getpid() * 0) = 1;
    if (is_action("abort") || is_action("slow_abort"))
        abort();
    if (is_action("term"))
        kill(getpid(), SIGTERM);
    if (is_action("overflow"))
        overflow_stack(NULL);
    if (is_action("stop"))
        kill(getpid(), SIGSTOP);
    if (is_action("quit"))
        syscall(SYS_exit_group, 0);
    if (is_action("exit"))
        _exit(0);
    if (is_action("stall") || is_action("slow_stall"))
        stall();
    if (is_action("lose") && ctx)
        wf_fail(ctx, WF_EDEVICE, "its device is gone (a drill)");
    if (is_action("leave") && me)
        longjmp(way_out, 1);
}

/* Returns true where the rank does not go on after its action. */
static bool ends(void)
{
    return !is_action("nonfinite") && !is_action("read") && !is_action("mismatch");
}

static void come_to(const char *phase)
{
    if (me && is_mine(phase, me->index))
        act();
}

#define REAL(type, name, ...)                                                                  \
    type __real_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__)

static wf_status (*rank_main)(wf_rank *rank, void *arg);
static wf_status run_rank(wf_rank *rank, void *arg)
{
    wf_status status;

    me = rank;
    vanish_with_another(rank);
    status = setjmp(way_out) ? WF_OK : rank_main(rank, arg);
    vanish_wait();
    return status;
}

REAL(wf_par *, wf_par_open, wf_rank *rank, const wf_par_options *options, wf_error *error)
{
    wf_par *par;

    come_to("init");
    par = __real_wf_par_open(rank, options, error);
    ctx = par ? wf_par_context(par) : NULL;
    return par;
}

REAL(void, wf_par_close, wf_par *par)
{
    come_to("exit");
    __real_wf_par_close(par);
}

static void act_at_exit(void)
{
    if (is_mine("last", wf_launcher_detected().process))
        act();
}

static void (*report)(const wf_error *error, void *arg); /* the program's */

static void report_slowly(const wf_error *error, void *arg)
{
    report(error, arg);
    nanosleep(&late, NULL); /* no rank knows of it yet */
}

REAL(wf_status, wf_launch, const wf_launch_options *options,
     wf_status (*function)(wf_rank *rank, void *arg), void *arg, wf_error *error)
{
    wf_launch_options slow = *options;
    wf_status status;

    report = options->report;
    slow.report = report_slowly;
    options = is_action("slow_abort") ? &slow : options;
    if (options->transport && strcmp(options->transport, "fake") == 0) /* a plan */
        return __real_wf_launch(options, function, arg, error);
    rank_main = function;
    if (is_mine("start", wf_launcher_detected().process))
        act();
    status = __real_wf_launch(options, run_rank, arg, error);
    atexit(act_at_exit); /* before MPI ends */
    return status;
}

__attribute__((destructor)) static void act_in_destructor(void)
{
    if (is_mine("destructor", wf_launcher_detected().process))
        act();
}

REAL(wf_status, wf_detector_open, const wf_detector_options *options, wf_detector **detector,
     wf_error *error)
{
    wf_status status;

    if (is_mine("meet", options->process))
        act();
    fail_calls_from_now_on();
    status = __real_wf_detector_open(options, detector, error);
    fail_calls_no_more();
    if (is_action("kill") && is_time("init") && options->process % 2)
        nanosleep(&late, NULL); /* while another one has begun already, and dies */
    return status;
}

REAL(bool, wf_detector_crash_notice, int rank, const char *text)
{
    bool reports = __real_wf_detector_crash_notice(rank, text);

    if (is_action("slow_abort"))
        nanosleep(&(struct timespec){.tv_nsec = late.tv_nsec / 3}, NULL);
    return reports;
}

/* The process of the rank that stalls takes a second to write recordings, then reports. */
REAL(void, wf_recorder_write_all, void)
{
    if (is_action("slow_stall") && fault.rank == wf_launcher_detected().process)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    __real_wf_recorder_write_all();
}

REAL(void, wf_dataset_close, wf_dataset *data)
{
    int process = wf_launcher_detected().process;

    if (is_mine("end", process))
        act();
    __real_wf_dataset_close(data);
}

/* The whole tensor-parallel group sees the same sequences. */
REAL(wf_tensor *, wf_par_gpt_loss, wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *loss;
    int tp = wf_mesh_size(wf_mesh_of(ctx), wf_mesh_axis(wf_mesh_of(ctx), "tp"));

    come_to("forward");
    loss = __real_wf_par_gpt_loss(model, batch);
    if (loss && me && is_action("nonfinite") && is_time("forward") &&
        me->index / tp == fault.rank / tp) {
        is_mine("forward", me->index);
        for (int64_t i = 0; i < wf_tensor_local_count(loss); i++)
            ((float *)loss->data)[i] = INFINITY;
    }
    return loss;
}

/* Makes the input of a stage in an action infinite; again where the step is run again. */
static void spoil(wf_tensor *t)
{
    if (!t || !me || !in_phase || !is_action("nonfinite") || !is_time(fault.phase) ||
        me->index != fault.rank)
        return;
    is_mine(fault.phase, me->index);
    for (int64_t i = 0; i < wf_tensor_local_count(t); i++)
        ((float *)t->data)[i] = INFINITY;
}

REAL(wf_status, wf_nn_chain_run, wf_nn_module *model, int64_t first, int64_t end, int n,
     wf_tensor **x)
{
    spoil(x[0]);
    return __real_wf_nn_chain_run(model, first, end, n, x);
}

REAL(wf_status, wf_backward_many, int n, wf_tensor *const *y, wf_tensor *const *dy, bool defer)
{
    spoil(n > 0 ? dy[0] : NULL);
    return __real_wf_backward_many(n, y, dy, defer);
}

REAL(wf_status, wf_dataset_read, const wf_dataset *data, wf_dataset_part part, int64_t step,
     int64_t first, int64_t count, int32_t *tokens, int32_t *targets, wf_error *error)
{
    if (is_action("read") && me && is_mine(in_phase ? fault.phase : "forward", me->index))
        return wf_error_set(error, WF_EIO, "cannot read the text: %s", strerror(EIO));
    return __real_wf_dataset_read(data, part, step, first, count, tokens, targets, error);
}

REAL(wf_status, wf_par_update, wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
     wf_nn_parameter *const *parameter, wf_tensor *const *grad, float lr, float scale)
{
    come_to("optimizer");
    return __real_wf_par_update(par, optimizer, count, parameter, grad, lr, scale);
}

REAL(ssize_t, pwrite, int file, const void *data, size_t bytes, off_t at)
{
    if (is_action("full") && me && is_time("save") && me->index == fault.rank) {
        if (is_mine("save", me->index))
            act();
        errno = ENOSPC;
        return -1;
    }
    come_to("save");
    return __real_pwrite(file, data, bytes, at);
}

REAL(wf_status, wf_par_train_launch, wf_par_trainer *trainer, int64_t step,
     const wf_par_data *data)
{
    if (!me) /* a plan */
        return __real_wf_par_train_launch(trainer, step, data);
    step_now = (int)step;
    if (is_action("vanish") && is_mine("step", me->index))
        vanish_soon(me, step_now);
    if (fault.any && fault.step == step &&
        !is_action("vanish")) /* so that processes have heard of each other */
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    if (fault.collective)
        make_all_kinds(me);
    if (me->error.code != WF_OK)
        return wf_fail(ctx, me->error.code, "%s", me->error.text);
    return __real_wf_par_train_launch(trainer, step, data);
}

/* Other processes hear where a rank is five times a second. */
static void act_in_action(void)
{
    if (is_action("kill") || is_action("stop"))
        nanosleep(&(struct timespec){.tv_nsec = 450000000}, NULL);
    act();
}

/* Wraps the begin of every action of a pipeline: its name precedes its stage and direction. */
REAL(void, wf_recorder_action, wf_comm *comm, const char *name, int64_t number, int64_t of)
{
    size_t n = strlen(fault.phase);

    __real_wf_recorder_action(comm, name, number, of);
    in_phase = name && strncmp(name, fault.phase, n) == 0 && !isupper((unsigned char)name[n]);
    if (me && in_phase && ends() && is_mine(fault.phase, me->index))
        act_in_action();
}

/* Wraps the begin of every collective. */
REAL(uint64_t, wf_recorder_begin, wf_comm *comm, const wf_collective *what, int64_t bytes)
{
    uint64_t sequence = __real_wf_recorder_begin(comm, what, bytes);
    const char *phase =
        in_phase && is_action("mismatch") ? fault.phase : wf_collective_name(what->kind);

    if (me && is_mine(phase, me->index)) {
        wf_error error = {WF_OK, ""};

        act();
        if (is_action("mismatch"))
            wf_barrier(comm, &error);
    }
    return sequence;
}
