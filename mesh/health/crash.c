/*
 * mesh/health/crash.c - signals that end the process: recordings are written, and the rank is
 * named, by plain system calls alone. What the signal did before, it then does: a core, a
 * sanitizer's report.
 */
#include "mesh/health/crash_internal.h"
#include "core/context.h"
#include "mesh/health/process_registry_internal.h"
#include "mesh/health/observe_internal.h"
#include "mesh/health/recorder_internal.h"
#include "mesh/health/failure_detector_internal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 700,
    STACK_BYTES = 64 << 10, /* for the handler, beside what the machine needs for a signal */
    EARLY_MS = 900,         /* the first one stays so long where no world is open yet */
    OTHERS_MS = 3000 /* a rank that crashed later waits so long for the line of the first */
};

static const struct {
    int number;
    const char *name;
} deadly[] = {{SIGSEGV, "SIGSEGV, an invalid memory reference"},
              {SIGBUS, "SIGBUS, memory that cannot be had"},
              {SIGFPE, "SIGFPE, an invalid arithmetic operation"},
              {SIGILL, "SIGILL, an invalid instruction"},
              {SIGABRT, "SIGABRT, the program gave up"}};

enum { DEADLY = sizeof deadly / sizeof deadly[0] };

static struct sigaction before[DEADLY];
static int report_fd = -1;
static _Atomic pid_t crashed;  /* the thread that reports */
static _Atomic pid_t observed; /* the process whose exits are reported; 0: none */
static _Atomic bool done;
static _Thread_local wf_recorder *mine;
static _Thread_local stack_t stack; /* for a rank whose own has overflowed */

/* Gives the thread a signal stack; one that it has already serves. */
static void take_stack(void)
{
    size_t bytes = STACK_BYTES + getauxval(AT_MINSIGSTKSZ);
    stack_t now = {.ss_flags = 0};
    void *memory;

    if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE))
        return;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    stack = (stack_t){.ss_sp = memory, .ss_size = bytes};
    sigaltstack(&stack, NULL);
}

void wf_crash_no_rank(void)
{
    const stack_t none = {.ss_flags = SS_DISABLE};

    mine = NULL;
    if (!stack.ss_sp)
        return;
    sigaltstack(&none, NULL);
    munmap(stack.ss_sp, stack.ss_size);
    stack = (stack_t){.ss_sp = NULL};
}

static void add(char *line, const char *text)
{
    size_t used = strlen(line);

    for (; *text && used + 2 < LINE_BYTES; text++)
        line[used++] = *text;
    line[used] = '\0';
}

static void add_number(char *line, int number)
{
    char digits[16], *at = digits + sizeof digits;
    unsigned left = number < 0 ? 0 : (unsigned)number;

    *--at = '\0';
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    add(line, at);
}

/* Adds the op, module and phase that the thread's context is in. */
static void add_op(char *line, const wf_context *ctx)
{
    const char *op = wf_context_op_now(ctx), *module = wf_context_path(ctx);
    const char *phase = wf_context_phase_now(ctx);

    if (op || module)
        add(line, op ? "; in op " : "; in module ");
    add(line, op ? op : "");
    if (op && module)
        add(line, " of module ");
    add(line, module ? module : "");
    if ((op || module) && phase) {
        add(line, ", ");
        add(line, phase);
    }
}

static void report(const char *signal)
{
    char line[LINE_BYTES] = "", where[WF_RECORDER_WHERE] = "";
    const wf_context *ctx = wf_context_running();
    int rank = mine ? wf_recorder_rank(mine) : ctx ? wf_context_rank(ctx) : -1;
    const char *text;
    bool here;

    add(line, program_invocation_short_name);
    add(line, ": ");
    text = line + strlen(line);
    if (mine)
        wf_recorder_where(mine, where, sizeof where);
    if (rank >= 0) {
        add(line, "rank ");
        add_number(line, rank);
    } else {
        add(line, "a thread of process ");
        add_number(line, (int)getpid());
    }
    add(line, ": ");
    add(line, signal);
    add(line, mine ? "; it was " : "");
    add(line, where);
    if (ctx)
        add_op(line, ctx);
    if (mine)
        wf_recorder_cause(mine, text);
    here = wf_detector_crash_notice(rank, text) && wf_registry_claim();
    if (here) {
        size_t length;

        add(line, "\n");
        length = strlen(line);
        if (report_fd >= 0 && write(report_fd, line, length) != (ssize_t)length)
            add(line, "");       /* no detector hears it */
        if (wf_registry_early()) /* others crash alike, and have to see that this one reports */
            nanosleep(&(struct timespec){.tv_nsec = EARLY_MS * 1000000L}, NULL);
    }
    wf_detector_crash_reported(here);
    wf_recorder_write_all();
}

/* Reports the first crash, and ends the process after that; threads that crash later wait for
   it. */
static void report_or_wait(const char *signal)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    pid_t nobody = 0, me = gettid();

    if (atomic_compare_exchange_strong(&crashed, &nobody, me)) {
        report(signal);
        atomic_store(&done, true);
    } else if (nobody != me) { /* else it crashed while it reported */
        for (int ms = 0; ms < OTHERS_MS && !atomic_load(&done); ms++)
            nanosleep(&nap, NULL);
    }
}

#define INSTEAD ", which ends all ranks: return from the function of the run instead"

/* Returns whether the caller is a rank that ends the process, which had ended the others' work
   with a status of success. A child process that a rank has forked ends as it likes. `mine` is
   read last: the first access of a thread may take memory, which there may be none of. */
static bool is_rank(void)
{
    return getpid() == atomic_load(&observed) && mine;
}

static void on_exit_of_rank(int status, void *arg)
{
    (void)arg;
    if (!is_rank())
        return;
    report_or_wait("exit was called" INSTEAD);
    _exit(status ? status : 1);
}

static void on_quick_exit(void)
{
    if (!is_rank())
        return;
    report_or_wait("quick_exit was called" INSTEAD);
    _exit(1); /* its own is not known here */
}

int wf_recorder_exit_status(int status)
{
    if (status || !is_rank()) /* other statuses are libraries', too, which say why */
        return status;
    report_or_wait("_exit was called" INSTEAD);
    return 1;
}

void wf_crash_rank(wf_comm *world)
{
    mine = wf_recorder_of(world);
    take_stack();
    if (report_fd >= 0 && atomic_exchange(&observed, getpid()) == 0) {
        on_exit(on_exit_of_rank, NULL); /* called before those of earlier, as MPI's is */
        at_quick_exit(on_quick_exit);
    }
}

/* Handles a crash's signal, which is raised a second time when the handler has returned. */
static void on_crash(int number)
{
    int keep = errno;

    for (int i = 0; i < DEADLY; i++)
        if (deadly[i].number == number) {
            report_or_wait(deadly[i].name);
            sigaction(number, &before[i], NULL);
        }
    raise(number);
    errno = keep;
}

void wf_recorder_crashes(int fd)
{
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};

    report_fd = fd;
    wf_registry_prepare();
    take_stack();
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < DEADLY; i++) {
        struct sigaction now;

        if (sigaction(deadly[i].number, NULL, &now) == 0 && now.sa_handler != on_crash) {
            before[i] = now;
            sigaction(deadly[i].number, &action, NULL);
        }
    }
}
