/* mesh/health/process_registry_look.c - who of a host's processes is there, while a run starts
   and while it ends. */
#include "core/thread.h"
#include "core/futex.h"
#include "mesh/transport/launcher_internal.h"
#include "mesh/health/process_registry_parts_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 100,
    MPI_MS = 15000,    /* longer than another host takes to notice a loss: it says so first */
    GOODBYE_MS = 2000, /* from a goodbye message to the end of all */
    STACK_BYTES = 128 << 10
};

#define LIMIT "; the limit is the stall timeout, %d s at least, and %d s where that is 0"

static _Atomic bool ended;     /* this process is asked to end */
static struct sigaction usual; /* the usual handler */
static _Atomic uint32_t may_end;

/* ---- who is there ---- */

/* Returns the state as ps shows it: T is stopped, Z has ended; X: there is no such process. */
static char state_of(pid_t pid)
{
    char path[32], text[512];
    const char *after;
    ssize_t length;
    int file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? 'X' : '?';
    length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    after = strrchr(text, ')');
    return after && after[1] ? after[2] : length < 0 ? 'X' : '?';
}

static bool has_ended(char state)
{
    return state == 'Z' || state == 'X' || state == 'x';
}

static int next_number(void)
{
    return (wf_registry.local + 1) % wf_registry.n;
}

/* "process 3 (pid 1234, rank 3)", or its number on the host where that is all that is known. */
static const char *name_process(int number, int process, pid_t pid, char *text, size_t room)
{
    char by[48] = "", rank[20] = "";

    if (wf_registry.n == wf_registry.processes)
        process = number;
    if (wf_registry.rank && process >= 0 && process < wf_registry.processes)
        snprintf(rank, sizeof rank, ", rank %d", wf_registry.rank[process]);
    if (pid > 0)
        snprintf(by, sizeof by, " (pid %d%s)", (int)pid, rank);
    if (process >= 0)
        snprintf(text, room, "process %d%s", process, by);
    else
        snprintf(text, room, "process number %d of this host%s", number, by);
    return text;
}

static const char *host_name(char *host, size_t room)
{
    memset(host, 0, room);
    gethostname(host, room - 1);
    return host;
}

/* Names the first process that has not come, or is stopped; but: one that does not count.
   False: there is none on this host. */
static bool name_missing(int but, char *text, size_t room)
{
    char who[80];

    for (int i = 0; i < wf_registry.n; i++) {
        pid_t pid = 0;
        int fd = i == wf_registry.local ? -1 : wf_registry_reach(i, &pid);
        char state = fd >= 0 ? state_of(pid) : 'X';

        if (fd >= 0)
            close(fd);
        if (i == wf_registry.local || i == but || (state != 'T' && !has_ended(state)))
            continue;
        name_process(i, fd >= 0 ? wf_launcher_process_of((int)pid) : -1, fd >= 0 ? pid : 0, who,
                     sizeof who);
        snprintf(text, room, "%s %s", who, state == 'T' ? "is stopped" : "has not come");
        return true;
    }
    return false;
}

static bool look_at_next(bool ending, int64_t now, wf_error *error)
{
    const char *when = ending ? "while the run ended" : "while the run started";
    char host[64], who[80], missing[160] = "", state;
    int fd;

    if (!wf_registry.next) {
        fd = wf_registry_reach(next_number(), &wf_registry.next);
        if (fd < 0) {
            wf_registry.next = 0;
            return false;
        }
        close(fd);
        wf_registry.next_process = wf_launcher_process_of((int)wf_registry.next);
        return false;
    }
    state = state_of(wf_registry.next);
    wf_registry.stopped = state != 'T' ? 0 : wf_registry.stopped ? wf_registry.stopped : now;
    wf_registry.gone = !has_ended(state) ? 0 : wf_registry.gone ? wf_registry.gone : now;
    if (!wf_registry.gone &&
        (!wf_registry.stopped || now - wf_registry.stopped < WF_DETECTOR_SILENCE * 1000))
        return false;
    wf_registry_hear();
    if (wf_registry.gone && wf_registry.left && now - wf_registry.gone < GOODBYE_MS)
        return false;
    name_process(next_number(), wf_registry.next_process, wf_registry.next, who, sizeof who);
    wf_error_set(error, WF_ELOST, "%s on %s %s %s%s%s", who, host_name(host, sizeof host),
                 wf_registry.gone ? "has ended" : "has been stopped for 10 s", when,
                 !ending && name_missing(next_number(), missing, sizeof missing) ? "; " : "",
                 ending ? "" : missing);
    return true;
}

/* Notes the signal by which a launcher ends all processes when one has died, the only trace of
   one that never came; the process that watches this one is not to take it for that one. */
static void note_end(int number)
{
    atomic_store(&ended, true);
    wf_registry_say_goodbye();
    if (usual.sa_handler == SIG_DFL) { /* as if it had not been noted */
        sigaction(number, &usual, NULL);
        raise(number);
    } else if (usual.sa_handler != SIG_IGN) {
        usual.sa_handler(number);
    }
}

void wf_registry_listen(bool on)
{
    struct sigaction action = {.sa_handler = note_end, .sa_flags = SA_RESTART};

    if (!wf_registry.active)
        return;
    sigemptyset(&action.sa_mask);
    if (on)
        sigaction(SIGTERM, &action, &usual);
    else
        sigaction(SIGTERM, &usual, NULL);
}

/* Returns whether no process of a lower number is here: this one speaks for its host. */
static bool is_first_here(void)
{
    pid_t pid;
    int fd = -1;

    for (int i = 0; wf_registry.active && fd < 0 && i < wf_registry.local; i++)
        fd = wf_registry_reach(i, &pid);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

/* Says once that others have not come, and the usual cause. */
static void report_long_start(int64_t now)
{
    char host[64], missing[160];

    wf_registry.warned = true;
    if (!is_first_here())
        return;
    if (!wf_registry.active || !name_missing(-1, missing, sizeof missing))
        snprintf(missing, sizeof missing, "%d processes have to come", wf_registry.processes);
    dprintf(STDERR_FILENO,
            "%s: still waits for the run's start after %d s, seen from %s: %s. It is another "
            "program (mpirun -n 1 A : -n 1 B), has failed, or its host is not reached; %d s "
            "are left\n",
            program_invocation_short_name, (int)((now - wf_registry.begun) / 1000),
            host_name(host, sizeof host), missing,
            (int)((wf_registry.limit - (now - wf_registry.begun)) / 1000));
}

static bool has_failed(wf_error *error)
{
    int64_t now = wf_detector_now();
    char host[64], missing[160];

    if (wf_registry.active && wf_registry.n > 1 && look_at_next(false, now, error))
        return true;
    if (wf_registry.active && atomic_load(&ended) &&
        name_missing(-1, missing, sizeof missing)) {
        wf_error_set(error, WF_ELOST, "the run has been ended while it started, on %s: %s",
                     host_name(host, sizeof host), missing);
        return true;
    }
    if (now - wf_registry.begun < wf_registry.limit) {
        if (!wf_registry.warned && now - wf_registry.begun >= WF_REGISTRY_LEAST_S * 1000)
            report_long_start(now);
        return false;
    }
    if (!wf_registry.active)
        snprintf(missing, sizeof missing, "%d processes have to come", wf_registry.processes);
    else if (!name_missing(-1, missing, sizeof missing))
        snprintf(missing, sizeof missing,
                 "all %d processes of this host have come, and others have not", wf_registry.n);
    wf_error_set(error, WF_ELOST, "the run has not started within %d s, seen from %s: %s" LIMIT,
                 (int)(wf_registry.limit / 1000), host_name(host, sizeof host), missing,
                 WF_REGISTRY_LEAST_S, WF_REGISTRY_MOST_S);
    return true;
}

/* Returns true where processes were lost before all have met; a message that one sent before
   counts. */
bool wf_registry_look(wf_error *error)
{
    wf_error found = {WF_OK, ""};

    if (!wf_registry.joins || !has_failed(&found))
        return false;
    if (wf_registry.active)
        wf_registry_hear();
    if (atomic_load(&wf_registry.met))
        return false;
    *error = found;
    return true;
}

/* ---- the end ---- */

/* Ends the process with the status of the program, where that is known. */
static void end_now(wf_status status)
{
    if (wf_registry.exit_now)
        wf_registry.exit_now(status);
    signal(SIGALRM, SIG_DFL);
    kill(getpid(), SIGALRM);
}

static void end_process(const wf_error *error)
{
    char line[sizeof error->text + 64];
    int length =
        snprintf(line, sizeof line, "%s: %s\n", program_invocation_short_name, error->text);

    if (wf_registry_claim() && write(STDERR_FILENO, line, (size_t)length) < 0)
        length = 0; /* no process hears it */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    end_now(error->code);
}

/* Names a process of this host that has not reached the end of the run, where this one is to
   report it. For one that is stopped or has ended look_at_next has limits of its own; this
   limit counts where the process that watches it is lost as well. */
static bool find_late(int64_t waited, wf_error *error)
{
    bool beyond = waited > wf_registry.end_limit + MPI_MS;
    char host[64], who[80], state;

    for (int i = 0; i < (wf_registry.local == 0 ? wf_registry.n : 1); i++) {
        pid_t pid = wf_registry.here[i];

        if (!pid || wf_registry_is_at_the_end(i, pid))
            continue;
        state = state_of(pid);
        if (!beyond && (state == 'T' || has_ended(state)))
            continue;
        name_process(i, wf_launcher_process_of((int)pid), pid, who, sizeof who);
        wf_error_set(error, WF_ETIMEOUT,
                     "%s on %s has not reached the end of the run within %d s of the others, "
                     "though its ranks have ended: %s" LIMIT,
                     who, host_name(host, sizeof host), (int)(wf_registry.end_limit / 1000),
                     has_ended(state) ? "it has ended"
                     : state == 'T'   ? "it is stopped"
                                      : "it hangs in what it does last",
                     WF_REGISTRY_END_LEAST_S, WF_REGISTRY_MOST_S);
        return true;
    }
    return false;
}

/* Finds late processes of MPI; where one of another host is late, those of that host report it
   first. */
static void find_mpi_late(wf_error *error)
{
    char host[64];

    wf_error_set(
        error, WF_ETIMEOUT,
        "MPI_Finalize has not ended within %d s, seen from %s, all %d processes of which "
        "have reached the end of the run: one of another host hangs or is lost" LIMIT,
        (int)((wf_registry.end_limit + MPI_MS) / 1000), host_name(host, sizeof host),
        wf_registry.n, WF_REGISTRY_END_LEAST_S, WF_REGISTRY_MOST_S);
}

static void look_for_late(int64_t since, bool all, wf_error *error)
{
    int64_t waited = wf_detector_now() - since, limit = wf_registry.end_limit;

    if (all && waited > limit + MPI_MS)
        find_mpi_late(error);
    else if (!all && waited > limit)
        find_late(waited, error);
}

static void *look_to_the_end(void *unused)
{
    struct pollfd words = {.fd = wf_registry.listener, .events = POLLIN};
    int64_t since = wf_detector_now();
    wf_error error = {WF_OK, ""};

    (void)unused;
    wf_registry_come_to_the_end();
    while (error.code == WF_OK && !atomic_load(&wf_registry.over)) {
        bool all = wf_registry_all_are_at_the_end();

        if (all && !atomic_exchange(&may_end, 1)) {
            wf_futex_wake(&may_end, 1);
            since = wf_detector_now();
        }
        poll(&words, 1, LOOK_MS);
        look_for_late(since, all, &error);
        if (wf_registry.n > 1)
            look_at_next(true, wf_detector_now(), &error);
    }
    if (!atomic_load(&wf_registry.over))
        end_process(&error);
    return NULL;
}

void wf_registry_leave(void)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (!wf_registry
             .active) { /* no process here waits for this one, and its own end has a limit */
        wf_registry_watch_exit();
        return;
    }
    if (!wf_registry.noted) /* the start has failed, and some may never come */
        wf_registry_note_here();
    wf_registry_listen(true);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (wf_thread_start(&thread, &attributes, look_to_the_end, NULL) != 0) {
        wf_registry_watch_exit(); /* without the others, then */
        atomic_store(&may_end, 1);
    }
    pthread_attr_destroy(&attributes);
    while (!atomic_load(&may_end)) /* or until the thread ends all */
        wf_futex_wait(&may_end, 0, LOOK_MS);
}

static char late_line[320];

static void end_late(int number)
{
    (void)number;
    if (wf_registry_claim() && write(STDERR_FILENO, late_line, strlen(late_line)) < 0)
        *late_line = '\0'; /* no process hears it */
    end_now(WF_ETIMEOUT);
}

void wf_registry_watch_exit(void)
{
    const wf_launcher l = wf_launcher_detected();
    char host[64], who[80];

    if (!wf_registry.joins)
        return;
    name_process(wf_registry.local, l.process, getpid(), who, sizeof who);
    snprintf(late_line, sizeof late_line,
             "%s: %s on %s has not ended within %d s of the run: it hangs in what it does "
             "last" LIMIT "\n",
             program_invocation_short_name, who, host_name(host, sizeof host),
             (int)(wf_registry.end_limit / 1000), WF_REGISTRY_END_LEAST_S, WF_REGISTRY_MOST_S);
    signal(SIGTERM, SIG_DFL); /* there is nothing left to be saved */
    signal(SIGALRM, end_late);
    alarm((unsigned)(wf_registry.end_limit / 1000));
}
