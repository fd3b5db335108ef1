/* mesh/muster.c - see the header. */
#include "mesh/muster.h"
#include "core/signals.h"
#include "mesh/launcher.h"
#include "mesh/watch_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FAREWELL = 'f', TOLD = 't' };

enum {
    LOOK_MS = 100,
    LEAVE_MS = 30000, /* for MPI to end */
    SAID_MS = 2000,   /* from a farewell to the end of all */
    STACK_BYTES = 128 << 10
};

static struct muster {
    bool active, named;
    int local, n;             /* this process's number on its host, of how many */
    char base[64];            /* of all names of this world */
    struct sockaddr_un claim; /* the name of who tells */
    int listener;
    int processes;     /* of all hosts */
    _Atomic bool left; /* the one behind this one has said farewell */
    _Atomic bool told; /* another one has said that it tells the user */
    pid_t next;        /* the one behind; 0: it has not come */
    int next_process;
    int64_t begun, stopped, gone; /* since when, in milliseconds; 0: it is not */
    int64_t limit;
} muster = {.listener = -1};

static atomic_flag claimed = ATOMIC_FLAG_INIT;
static _Atomic bool over;      /* MPI has ended */
static _Atomic bool ended;     /* somebody asks this process to end */
static struct sigaction usual; /* what that would do */
static int claim = -1;
static int worlds;

/* ---- names ---- */

static socklen_t name_of(struct sockaddr_un *a, const char *what, int number)
{
    int length;

    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX; /* the first byte of the path stays 0 */
    length =
        snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%s%d", muster.base, what, number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int take_name(const struct sockaddr_un *a, socklen_t length)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)a, length) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A connection to who of this host and this user has a name; -1: nobody has. */
static int reach_name(const struct sockaddr_un *a, socklen_t length, pid_t *pid)
{
    struct ucred who = {0};
    socklen_t size = sizeof who;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 &&
        (connect(fd, (const struct sockaddr *)a, length) != 0 ||
         getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    *pid = who.pid;
    return fd;
}

/* A process; -1: it has not come, or is gone. */
static int reach(int number, pid_t *pid)
{
    struct sockaddr_un a;
    socklen_t length = name_of(&a, "", number);

    return reach_name(&a, length, pid);
}

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
    return (muster.local + 1) % muster.n;
}

/* "process 3 (pid 1234)", or its number on the host where that is all that is known. */
static const char *name_process(int number, int process, pid_t pid, char *text, size_t room)
{
    char by[24] = "";

    if (muster.n == muster.processes)
        process = number;
    if (pid > 0)
        snprintf(by, sizeof by, " (pid %d)", (int)pid);
    if (process >= 0)
        snprintf(text, room, "process %d%s", process, by);
    else
        snprintf(text, room, "process number %d of this host%s", number, by);
    return text;
}

static const char *here(char *host, size_t room)
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

    for (int i = 0; i < muster.n; i++) {
        pid_t pid = 0;
        int fd = i == muster.local ? -1 : reach(i, &pid);
        char state = fd >= 0 ? state_of(pid) : 'X';

        if (fd >= 0)
            close(fd);
        if (i == muster.local || i == but || (state != 'T' && !has_ended(state)))
            continue;
        name_process(i, fd >= 0 ? wf_launcher_process_of((int)pid) : -1, fd >= 0 ? pid : 0, who,
                     sizeof who);
        snprintf(text, room, "%s %s", who, state == 'T' ? "is stopped" : "has not come");
        return true;
    }
    return false;
}

/* What others have said: that they end as they should, or that they tell. */
static void hear(void)
{
    int fd;

    while ((fd = accept4(muster.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct ucred who = {0};
        socklen_t size = sizeof who;
        char word = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid() &&
            recv(fd, &word, 1, MSG_DONTWAIT) == 1) {
            if (word == FAREWELL && who.pid == muster.next)
                atomic_store(&muster.left, true);
            if (word == TOLD)
                atomic_store(&muster.told, true);
        }
        close(fd);
    }
}

static void say(int number, char word)
{
    pid_t pid;
    int fd = reach(number, &pid);

    if (fd < 0)
        return;
    send(fd, &word, 1, MSG_NOSIGNAL);
    close(fd);
}

static socklen_t claim_length(void)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(muster.claim.sun_path + 1));
}

bool wf_muster_claim(void)
{
    if (atomic_flag_test_and_set(&claimed))
        return false;
    if (muster.active)
        hear();
    if (!muster.named || atomic_load(&muster.told))
        return !muster.named;
    claim = take_name(&muster.claim, claim_length());
    if (claim < 0 && errno == EADDRINUSE)
        return false;
    listen(claim, SOMAXCONN); /* who comes later sees that it is taken */
    for (int i = 0; i < muster.n; i++)
        if (i != muster.local)
            say(i, TOLD);
    return true;
}

bool wf_muster_claimed(void)
{
    return claim >= 0;
}

bool wf_muster_early(void)
{
    return muster.named && !muster.active;
}

static bool look_at_next(bool ending, int64_t now, wf_error *error)
{
    const char *when = ending ? "while the run ended" : "while the run started";
    char host[64], who[80], missing[160] = "", state;
    int fd;

    if (!muster.next) {
        fd = reach(next_number(), &muster.next);
        if (fd < 0) {
            muster.next = 0;
            return false;
        }
        close(fd);
        muster.next_process = wf_launcher_process_of((int)muster.next);
        return false;
    }
    state = state_of(muster.next);
    muster.stopped = state != 'T' ? 0 : muster.stopped ? muster.stopped : now;
    muster.gone = !has_ended(state) ? 0 : muster.gone ? muster.gone : now;
    if (!muster.gone && (!muster.stopped || now - muster.stopped < WF_WATCH_SILENCE * 1000))
        return false;
    hear();
    if (muster.gone && muster.left && now - muster.gone < SAID_MS)
        return false;
    name_process(next_number(), muster.next_process, muster.next, who, sizeof who);
    wf_error_set(error, WF_ELOST, "%s on %s %s %s%s%s", who, here(host, sizeof host),
                 muster.gone ? "has ended" : "has been stopped for 10 s", when,
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

    if (!muster.active)
        return;
    sigemptyset(&action.sa_mask);
    if (on)
        sigaction(SIGTERM, &action, &usual);
    else
        sigaction(SIGTERM, &usual, NULL);
}

bool wf_muster_look(wf_error *error)
{
    int64_t now = wf_watch_now();
    char host[64], missing[160];

    if (!muster.active)
        return false;
    if (muster.n > 1 && look_at_next(false, now, error))
        return true;
    if (atomic_load(&ended) && name_missing(-1, missing, sizeof missing)) {
        wf_error_set(error, WF_ELOST, "the run has been ended while it started, on %s: %s",
                     here(host, sizeof host), missing);
        return true;
    }
    if (!muster.limit || now - muster.begun < muster.limit)
        return false;
    if (!name_missing(-1, missing, sizeof missing))
        snprintf(missing, sizeof missing,
                 "all %d processes of this host have come, and others have not", muster.n);
    wf_error_set(error, WF_ELOST,
                 "the run has not started within %d s, seen from %s: %s; the limit is the "
                 "stall timeout, and %d s at least",
                 (int)(muster.limit / 1000), here(host, sizeof host), missing,
                 WF_MUSTER_LEAST_S);
    return true;
}

/* ---- the end ---- */

static void end_process(const wf_error *error)
{
    char line[sizeof error->text + 64];
    int length =
        snprintf(line, sizeof line, "%s: %s\n", program_invocation_short_name, error->text);

    if (wf_muster_claim() && write(STDERR_FILENO, line, (size_t)length) < 0)
        length = 0; /* nobody can be told */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    signal(SIGALRM, SIG_DFL);
    kill(getpid(), SIGALRM);
}

static void *look_to_the_end(void *unused)
{
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    int64_t until = wf_watch_now() + LEAVE_MS;
    wf_error error = {WF_OK, ""};

    (void)unused;
    while (error.code == WF_OK && !atomic_load(&over) && wf_watch_now() < until) {
        nanosleep(&nap, NULL);
        if (muster.n > 1)
            look_at_next(true, wf_watch_now(), &error);
    }
    if (atomic_load(&over))
        return NULL;
    if (error.code == WF_OK)
        wf_error_set(&error, WF_ELOST,
                     "MPI_Finalize does not end: a process of this run has been lost or "
                     "stopped while it ended");
    end_process(&error);
    return NULL;
}

void wf_muster_leave(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (!muster.active)
        return;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    wf_signals_of_process(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, look_to_the_end, NULL) != 0)
        alarm(LEAVE_MS / 1000);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static void say_farewell(void)
{
    atomic_store(&over, true);
    if (muster.active && muster.n > 1)
        say((muster.local + muster.n - 1) % muster.n, FAREWELL);
}

/* ---- the beginning ---- */

static void forget(void)
{
    if (muster.listener >= 0)
        close(muster.listener);
    if (claim >= 0)
        close(claim);
    claim = -1;
    muster = (struct muster){.listener = -1};
    atomic_flag_clear(&claimed);
}

static bool is_claimed(void)
{
    pid_t pid;
    int fd = reach_name(&muster.claim, claim_length(), &pid);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Names of the next world; false: nobody else is here, or nothing tells this job from others. */
static bool make_names(const wf_launcher *l)
{
    if (l->processes == 1 || !wf_launcher_job(muster.base, sizeof muster.base - 16))
        return false;
    snprintf(muster.base + strlen(muster.base), 16, "-%d", worlds);
    name_of(&muster.claim, "tells", 0);
    muster.local = l->local_process;
    muster.n = l->local > 0 ? l->local : 1;
    muster.processes = l->processes;
    return true;
}

void wf_muster_prepare(void)
{
    const wf_launcher l = wf_launcher_detected();

    if (!muster.active)
        muster.named = make_names(&l);
}

void wf_muster_open(bool joins, double limit)
{
    const wf_launcher l = wf_launcher_detected();
    struct sockaddr_un a;
    socklen_t length;

    forget();
    muster.named = make_names(&l);
    if (!joins || !muster.named)
        return;
    if (worlds++ == 0)
        atexit(say_farewell); /* before MPI asks for the same, so after MPI has ended */
    muster.begun = wf_watch_now();
    muster.limit = limit <= 0                  ? 0
                   : limit < WF_MUSTER_LEAST_S ? WF_MUSTER_LEAST_S * 1000
                                               : (int64_t)(limit * 1e3);
    length = name_of(&a, "", muster.local);
    muster.listener = take_name(&a, length);
    if (muster.listener < 0 || listen(muster.listener, SOMAXCONN) != 0) {
        forget(); /* somebody has the name: there is nothing to be known of the others */
        return;
    }
    atomic_store(&muster.told, is_claimed());
    muster.active = true;
    wf_watch_kept(muster.listener);
}
