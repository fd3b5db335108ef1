/* mesh/health/muster.c - the names of a host's processes, what they say to each other, and who
 * claims to report. */
#include "mesh/transport/launcher.h"
#include "mesh/health/muster_parts_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char warning[400]; /* the last start's; "" */

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

static void name_of(char *name, int number)
{
    snprintf(name, WF_NAME_BYTES, "%.32s-%d", wf_muster.base, number);
}

int wf_muster_reach(int number, pid_t *pid)
{
    char name[WF_NAME_BYTES];

    name_of(name, number);
    return wf_names_connect(name, pid);
}

/* Returns the process id of one of this host, or 0 where it can't be reached. */
static pid_t reached(int number)
{
    pid_t pid = 0;
    int fd = number == wf_muster.local ? -1 : wf_muster_reach(number, &pid);

    if (fd >= 0)
        close(fd);
    return pid;
}

/* ---- messages ---- */

void wf_muster_hear(void)
{
    pid_t who;
    int fd;

    while ((fd = accept4(wf_muster.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct pollfd word_comes = {.fd = fd, .events = POLLIN};
        bool ours = wf_names_is_peer(fd, &who);
        char word = 0;

        if (ours && poll(&word_comes, 1, WORD_MS) > 0 &&
            recv(fd, &word, 1, MSG_DONTWAIT) == 1) {
            if (word == MET)
                atomic_store(&wf_muster.met, true);
            if (word == FAREWELL && who == wf_muster.next)
                atomic_store(&wf_muster.left, true);
            if (word == REPORTS)
                atomic_store(&wf_muster.reported, true);
            if (word == AT_THE_END && wf_muster.at_the_end < wf_muster.n)
                wf_muster.came[wf_muster.at_the_end++] = who;
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

void wf_muster_note_here(void)
{
    bool first = wf_muster.local == 0;

    for (int i = first ? 1 : 0; i < (first ? wf_muster.n : 1); i++)
        wf_muster.here[i] = reached(i);
    wf_muster.noted = true;
}

void wf_muster_met(void)
{
    if (wf_muster.active)
        wf_muster_note_here();
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
        return wf_muster.all_are || !wf_muster.here[0];
    wf_muster.all_are = true;
    for (int i = 1; i < wf_muster.n; i++)
        wf_muster.all_are =
            wf_muster.all_are &&
            (!wf_muster.here[i] || wf_muster_is_at_the_end(i, wf_muster.here[i]));
    for (int i = 1; wf_muster.all_are && i < wf_muster.n; i++)
        say(i, ALL_ARE);
    return wf_muster.all_are;
}

bool wf_muster_claim(void)
{
    if (atomic_flag_test_and_set(&claimed))
        return false;
    if (wf_muster.active)
        wf_muster_hear();
    if (!wf_muster.named || atomic_load(&wf_muster.reported))
        return !wf_muster.named;
    claim = wf_names_lock(wf_muster.claim);
    if (claim < 0 && errno == EAGAIN)
        return false;
    wf_fd_holder_keep(claim);
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

static void give_name_back(void)
{
    char name[WF_NAME_BYTES];

    if (!wf_muster.active)
        return;
    name_of(name, wf_muster.local);
    wf_names_remove(name);
}

static void end_well(void)
{
    atomic_store(&wf_muster.over, true);
    wf_muster_say_farewell();
    wf_muster_watch_exit();
    give_name_back();
}

/* ---- the beginning ---- */

static void forget(void)
{
    give_name_back();
    if (wf_muster.listener >= 0)
        close(wf_muster.listener);
    if (claim >= 0)
        close(claim);
    claim = -1;
    free(wf_muster.came);
    free(wf_muster.here);
    free(wf_muster.rank);
    wf_muster = (wf_muster_state){.listener = -1};
    atomic_flag_clear(&claimed);
}

/* Names of the next world; false: there are no other processes, nothing distinguishes this job
   from others, or no folder is this user's alone, and *why says so. */
static bool make_names(const wf_launcher *l, char *why, size_t room)
{
    char job[WF_NAME_BYTES / 2];

    *why = '\0';
    wf_muster.local = l->local_process;
    wf_muster.n = l->local > 0 ? l->local : 1;
    wf_muster.processes = l->processes;
    if (l->processes == 1 || !wf_names_job(job, sizeof job) || !wf_names_open(why, room))
        return false;
    snprintf(wf_muster.base, sizeof wf_muster.base, "%s-%d", job, worlds);
    snprintf(wf_muster.claim, sizeof wf_muster.claim, "%.32s-reports", wf_muster.base);
    return true;
}

void wf_muster_prepare(void)
{
    const wf_launcher l = wf_launcher_detected();
    char why[128];

    if (!wf_muster.active)
        wf_muster.named = make_names(&l, why, sizeof why);
}

/* Returns a limit in milliseconds, of at least `seconds`; WF_MUSTER_MOST_S where the user sets
   none. */
static int64_t at_least(int seconds, double limit)
{
    return limit <= 0        ? WF_MUSTER_MOST_S * 1000
           : limit < seconds ? seconds * 1000
                             : (int64_t)(limit * 1e3);
}

void wf_muster_name_ranks(int ranks, const int *process)
{
    if (!wf_muster.active ||
        !(wf_muster.rank = calloc((size_t)wf_muster.processes, sizeof(int))))
        return;
    for (int r = ranks - 1; r >= 0; r--)
        wf_muster.rank[process[r]] = r;
}

/* Without names a run goes on, and the limits of its start and end count. */
static void warn(const char *why)
{
    if (*why)
        snprintf(
            warning, sizeof warning,
            "no folder that this user alone may enter (%s): processes that stop while the run "
            "starts or ends are noticed by its limits alone; set XDG_RUNTIME_DIR to a folder "
            "of mode 700",
            why);
}

const char *wf_muster_warning(void)
{
    return *warning ? warning : NULL;
}

void wf_muster_open(bool joins, double limit, void (*exit_now)(wf_status status))
{
    const wf_launcher l = wf_launcher_detected();
    char name[WF_NAME_BYTES], why[128];

    forget();
    *warning = 0;
    wf_muster.named = make_names(&l, why, sizeof why);
    if (!joins || l.processes == 1)
        return;
    if (worlds++ == 0)
        atexit(end_well); /* before MPI asks for the same, so after MPI has ended */
    wf_muster.joins = true;
    wf_muster.begun = wf_detector_now();
    wf_muster.limit = at_least(WF_MUSTER_LEAST_S, limit);
    wf_muster.end_limit = at_least(WF_MUSTER_END_LEAST_S, limit);
    wf_muster.exit_now = exit_now;
    if (!wf_muster.named)
        warn(why);
    if (!wf_muster.named || wf_muster.local >= wf_muster.n)
        return;
    wf_muster.came = calloc((size_t)wf_muster.n, sizeof *wf_muster.came);
    wf_muster.here = calloc((size_t)wf_muster.n, sizeof *wf_muster.here);
    name_of(name, wf_muster.local);
    wf_muster.listener = wf_muster.came && wf_muster.here ? wf_names_listen(name) : -1;
    if (wf_muster.listener < 0) /* the others do not wait for who can't be reached */
        return;
    atomic_store(&wf_muster.reported, wf_names_is_locked(wf_muster.claim));
    wf_muster.active = true;
    wf_fd_holder_add(wf_muster.listener);
}
