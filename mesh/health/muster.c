/* mesh/health/muster.c - the names of a host's processes, what they say to each other, and who
 * claims to report. */
#include "mesh/transport/launcher.h"
#include "mesh/health/muster_parts_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MET = 'm',
    FAREWELL = 'f',
    REPORTS = 'r',
    AT_THE_END = 'e',
    FIRST_IS = 'i',
    ALL_ARE = 'a'
};

enum { WORD_MS = 200 }; /* from a connection to what is said: no time, but for who is stopped */

wf_muster_state wf_muster = {.listener = -1};

static atomic_flag claimed = ATOMIC_FLAG_INIT;
static int claim = -1;
static int worlds;

/* ---- names ---- */

static socklen_t name_of(struct sockaddr_un *a, const char *what, int number)
{
    int length;

    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX; /* the first byte of the path stays 0 */
    length = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%s%d", wf_muster.base, what,
                      number);
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

int wf_muster_reach(int number, pid_t *pid)
{
    struct sockaddr_un a;
    socklen_t length = name_of(&a, "", number);

    return reach_name(&a, length, pid);
}

/* ---- what is said ---- */

void wf_muster_hear(void)
{
    int fd;

    while ((fd = accept4(wf_muster.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct ucred who = {0};
        socklen_t size = sizeof who;
        struct pollfd word_comes = {.fd = fd, .events = POLLIN};
        char word = 0;

        poll(&word_comes, 1, WORD_MS);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid() &&
            recv(fd, &word, 1, MSG_DONTWAIT) == 1) {
            if (word == MET)
                atomic_store(&wf_muster.met, true);
            if (word == FAREWELL && who.pid == wf_muster.next)
                atomic_store(&wf_muster.left, true);
            if (word == REPORTS)
                atomic_store(&wf_muster.reported, true);
            if (word == AT_THE_END && wf_muster.at_the_end < wf_muster.n)
                wf_muster.came[wf_muster.at_the_end++] = who.pid;
            wf_muster.first_is = wf_muster.first_is || word == FIRST_IS;
            wf_muster.all_are = wf_muster.all_are || word == ALL_ARE;
        }
        close(fd);
    }
}

static void say(int number, char word)
{
    pid_t pid;
    int fd = wf_muster_reach(number, &pid);

    if (fd < 0)
        return;
    send(fd, &word, 1, MSG_NOSIGNAL);
    close(fd);
}

/* To the one that looks at this one. */
static void say_to_watcher(char word)
{
    if (wf_muster.active && wf_muster.n > 1)
        say((wf_muster.local + wf_muster.n - 1) % wf_muster.n, word);
}

void wf_muster_met(void)
{
    atomic_store(&wf_muster.met, true);
    say_to_watcher(MET);
}

void wf_muster_come_to_the_end(void)
{
    if (wf_muster.local > 0)
        say(0, AT_THE_END);
    for (int i = 1; wf_muster.local == 0 && i < wf_muster.n; i++)
        say(i, FIRST_IS);
}

bool wf_muster_is_at_the_end(int number, pid_t pid)
{
    if (wf_muster.local > 0)
        return number == 0 && wf_muster.first_is;
    for (int i = 0; i < wf_muster.at_the_end; i++)
        if (wf_muster.came[i] == pid)
            return true;
    return false;
}

bool wf_muster_all_are_at_the_end(void)
{
    wf_muster_hear();
    if (wf_muster.local > 0 || wf_muster.all_are)
        return wf_muster.all_are;
    wf_muster.all_are = wf_muster.at_the_end == wf_muster.n - 1;
    for (int i = 1; wf_muster.all_are && i < wf_muster.n; i++)
        say(i, ALL_ARE);
    return wf_muster.all_are;
}

static socklen_t claim_length(void)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(wf_muster.claim.sun_path + 1));
}

bool wf_muster_claim(void)
{
    if (atomic_flag_test_and_set(&claimed))
        return false;
    if (wf_muster.active)
        wf_muster_hear();
    if (!wf_muster.named || atomic_load(&wf_muster.reported))
        return !wf_muster.named;
    claim = take_name(&wf_muster.claim, claim_length());
    if (claim < 0 && errno == EADDRINUSE)
        return false;
    listen(claim, SOMAXCONN); /* who comes later sees that it is taken */
    for (int i = 0; i < wf_muster.n; i++)
        if (i != wf_muster.local)
            say(i, REPORTS);
    return true;
}

bool wf_muster_claimed(void)
{
    return claim >= 0;
}

bool wf_muster_early(void)
{
    return wf_muster.named && !wf_muster.active;
}

void wf_muster_say_farewell(void)
{
    say_to_watcher(FAREWELL);
}

static void end_well(void)
{
    atomic_store(&wf_muster.over, true);
    wf_muster_say_farewell();
    wf_muster_watch_exit();
}

/* ---- the beginning ---- */

static void forget(void)
{
    if (wf_muster.listener >= 0)
        close(wf_muster.listener);
    if (claim >= 0)
        close(claim);
    claim = -1;
    free(wf_muster.came);
    free(wf_muster.rank);
    wf_muster = (wf_muster_state){.listener = -1};
    atomic_flag_clear(&claimed);
}

static bool is_claimed(void)
{
    pid_t pid;
    int fd = reach_name(&wf_muster.claim, claim_length(), &pid);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Names of the next world; false: nobody else is here, or nothing distinguishes this job from others. */
static bool make_names(const wf_launcher *l)
{
    if (l->processes == 1 || !wf_launcher_job(wf_muster.base, sizeof wf_muster.base - 16))
        return false;
    snprintf(wf_muster.base + strlen(wf_muster.base), 16, "-%d", worlds);
    name_of(&wf_muster.claim, "reports", 0);
    wf_muster.local = l->local_process;
    wf_muster.n = l->local > 0 ? l->local : 1;
    wf_muster.processes = l->processes;
    return true;
}

void wf_muster_prepare(void)
{
    const wf_launcher l = wf_launcher_detected();

    if (!wf_muster.active)
        wf_muster.named = make_names(&l);
}

static int64_t at_least(int seconds, double limit)
{
    return limit <= 0 ? 0 : limit < seconds ? seconds * 1000 : (int64_t)(limit * 1e3);
}

void wf_muster_name_ranks(int ranks, const int *process)
{
    if (!wf_muster.active ||
        !(wf_muster.rank = calloc((size_t)wf_muster.processes, sizeof(int))))
        return;
    for (int r = ranks - 1; r >= 0; r--)
        wf_muster.rank[process[r]] = r;
}

void wf_muster_open(bool joins, double limit, void (*exit_now)(wf_status status))
{
    const wf_launcher l = wf_launcher_detected();
    struct sockaddr_un a;
    socklen_t length;

    forget();
    wf_muster.named = make_names(&l);
    if (!joins || !wf_muster.named)
        return;
    if (worlds++ == 0)
        atexit(end_well); /* before MPI asks for the same, so after MPI has ended */
    wf_muster.begun = wf_detector_now();
    wf_muster.limit = at_least(WF_MUSTER_LEAST_S, limit);
    wf_muster.end_limit = at_least(WF_MUSTER_END_LEAST_S, limit);
    wf_muster.exit_now = exit_now;
    wf_muster.came = calloc((size_t)wf_muster.n, sizeof *wf_muster.came);
    length = name_of(&a, "", wf_muster.local);
    wf_muster.listener = take_name(&a, length);
    if (!wf_muster.came || wf_muster.listener < 0 ||
        listen(wf_muster.listener, SOMAXCONN) != 0) {
        forget(); /* somebody has the name: there is nothing to be known of the others */
        return;
    }
    atomic_store(&wf_muster.reported, is_claimed());
    wf_muster.active = true;
    wf_fd_holder_add(wf_muster.listener);
}
