/* mesh/health/muster_look.c - who of a host's processes is there, while a run starts and while it ends. */
#include "core/thread.h"
#include "core/futex.h"
#include "mesh/transport/launcher.h"
#include "mesh/health/muster_parts_internal.h"
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
    LEAVE_MS = 30000,   /* for all to come to the end, and for MPI to end */
    FAREWELL_MS = 2000, /* from a farewell to the end of all */
    STACK_BYTES = 128 << 10
};

static _Atomic bool ended;     /* somebody asks this process to end */
static struct sigaction usual; /* what that would do */
static _Atomic uint32_t may_end;

/* ---- who is there ---- */

/* As ps shows it: T is stopped, Z has ended; X where there is no such process. */
static char state_of(pid_t pid)
{
    char path[32], text[512];
    const char *behind;
    ssize_t length;
    int file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? 'X' : '?';
    length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    behind = strrchr(text, ')');
    return behind && behind[1] ? behind[2] : length < 0 ? 'X' : '?';
}

static bool has_ended(char state)
{
    return state == 'Z' || state == 'X' || state == 'x';
}

static int next_number(void)
{
    return (wf_muster.local + 1) % wf_muster.n;
}

/* "process 3 (pid 1234)", or its number on the host where that is all that is known. */
static const char *name_process(int number, int process, pid_t pid, char *text, size_t room)
{
    char by[24] = "";

    if (wf_muster.n == wf_muster.processes)
        process = number;
    if (pid > 0)
        snprintf(by, sizeof by, " (pid %d)", (int)pid);
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

/* The first that has not come, or is stopped; but: one that does not count. False: there is none on
   this host. */
static bool name_missing(int but, char *text, size_t room)
{
    char who[80];

    for (int i = 0; i < wf_muster.n; i++) {
        pid_t pid = 0;
        int fd = i == wf_muster.local ? -1 : wf_muster_reach(i, &pid);
        char state = fd >= 0 ? state_of(pid) : 'X';

        if (fd >= 0)
            close(fd);
        if (i == wf_muster.local || i == but || (state != 'T' && !has_ended(state)))
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

    if (!wf_muster.next) {
        fd = wf_muster_reach(next_number(), &wf_muster.next);
        if (fd < 0) {
            wf_muster.next = 0;
            return false;
        }
        close(fd);
        wf_muster.next_process = wf_launcher_process_of((int)wf_muster.next);
        return false;
    }
    state = state_of(wf_muster.next);
    wf_muster.stopped = state != 'T' ? 0 : wf_muster.stopped ? wf_muster.stopped : now;
    wf_muster.gone = !has_ended(state) ? 0 : wf_muster.gone ? wf_muster.gone : now;
    if (!wf_muster.gone &&
        (!wf_muster.stopped || now - wf_muster.stopped < WF_DETECTOR_SILENCE * 1000))
        return false;
    wf_muster_hear();
    if (wf_muster.gone && wf_muster.left && now - wf_muster.gone < FAREWELL_MS)
        return false;
    name_process(next_number(), wf_muster.next_process, wf_muster.next, who, sizeof who);
    wf_error_set(error, WF_ELOST, "%s on %s %s %s%s%s", who, host_name(host, sizeof host),
                 wf_muster.gone ? "has ended" : "has been stopped for 10 s", when,
                 !ending && name_missing(next_number(), missing, sizeof missing) ? "; " : "",
                 ending ? "" : missing);
    return true;
}

/* A launcher ends all processes so when one has died: of one that never came, the only trace. */
static void note_end(int number)
{
    atomic_store(&ended, true);
    if (usual.sa_handler == SIG_DFL) { /* as if nobody had noted it */
        sigaction(number, &usual, NULL);
        raise(number);
    } else if (usual.sa_handler != SIG_IGN) {
        usual.sa_handler(number);
    }
}

void wf_muster_listen(bool on)
{
    struct sigaction action = {.sa_handler = note_end, .sa_flags = SA_RESTART};

    if (!wf_muster.active)
        return;
    sigemptyset(&action.sa_mask);
    if (on)
        sigaction(SIGTERM, &action, &usual);
    else
        sigaction(SIGTERM, &usual, NULL);
}

static bool has_failed(wf_error *error)
{
    int64_t now = wf_detector_now();
    char host[64], missing[160];

    if (wf_muster.n > 1 && look_at_next(false, now, error))
        return true;
    if (atomic_load(&ended) && name_missing(-1, missing, sizeof missing)) {
        wf_error_set(error, WF_ELOST, "the run has been ended while it started, on %s: %s",
                     host_name(host, sizeof host), missing);
        return true;
    }
    if (!wf_muster.limit || now - wf_muster.begun < wf_muster.limit)
        return false;
    if (!name_missing(-1, missing, sizeof missing))
        snprintf(missing, sizeof missing,
                 "all %d processes of this host have come, and others have not", wf_muster.n);
    wf_error_set(error, WF_ELOST,
                 "the run has not started within %d s, seen from %s: %s; the limit is the "
                 "stall timeout, and %d s at least",
                 (int)(wf_muster.limit / 1000), host_name(host, sizeof host), missing,
                 WF_MUSTER_LEAST_S);
    return true;
}

/* What somebody said before it was lost counts. */
bool wf_muster_look(wf_error *error)
{
    wf_error found = {WF_OK, ""};

    if (!wf_muster.active || !has_failed(&found))
        return false;
    wf_muster_hear();
    if (atomic_load(&wf_muster.met))
        return false;
    *error = found;
    return true;
}

/* ---- the end ---- */

static void end_process(const wf_error *error)
{
    char line[sizeof error->text + 64];
    int length =
        snprintf(line, sizeof line, "%s: %s\n", program_invocation_short_name, error->text);

    if (wf_muster_claim() && write(STDERR_FILENO, line, (size_t)length) < 0)
        length = 0; /* nobody hears it */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    signal(SIGALRM, SIG_DFL);
    kill(getpid(), SIGALRM);
}

static void *look_to_the_end(void *unused)
{
    struct pollfd words = {.fd = wf_muster.listener, .events = POLLIN};
    int64_t until = wf_detector_now() + LEAVE_MS;
    wf_error error = {WF_OK, ""};

    (void)unused;
    wf_muster_come_to_the_end();
    while (error.code == WF_OK && !atomic_load(&wf_muster.over) && wf_detector_now() < until) {
        if (wf_muster_all_are_at_the_end() && !atomic_exchange(&may_end, 1))
            wf_futex_wake(&may_end, 1);
        poll(&words, 1, LOOK_MS);
        if (wf_muster.n > 1)
            look_at_next(true, wf_detector_now(), &error);
    }
    if (atomic_load(&wf_muster.over))
        return NULL;
    if (error.code == WF_OK)
        wf_error_set(&error, WF_ELOST,
                     "%s does not end: a process of this run has been lost or stopped while it "
                     "ended",
                     atomic_load(&may_end) ? "MPI_Finalize" : "the run");
    end_process(&error);
    return NULL;
}

void wf_muster_leave(void)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (!wf_muster.active)
        return;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (wf_thread_start(&thread, &attributes, look_to_the_end, NULL) != 0) {
        alarm(LEAVE_MS / 1000);
        atomic_store(&may_end, 1);
    }
    pthread_attr_destroy(&attributes);
    while (!atomic_load(&may_end)) /* or until the thread ends all */
        wf_futex_wait(&may_end, 0, LOOK_MS);
}
