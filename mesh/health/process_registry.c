/* mesh/health/process_registry.c - the names of a host's processes, what they say to each
 * other, and who claims to report. */
#include "mesh/transport/launcher.h"
#include "mesh/health/process_registry_parts_internal.h"
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
    GOODBYE = 'f',
    REPORTS = 'r',
    AT_THE_END = 'e',
    FIRST_IS = 'i',
    ALL_ARE = 'a'
};

enum { WORD_MS = 200 }; /* from a connection to what is said: no time, but for who is stopped */

wf_registry_state wf_registry = {.listener = -1};

static atomic_flag claimed = ATOMIC_FLAG_INIT;
static int claim = -1;
static int worlds;

/* ---- names ---- */

static void name_of(char *name, int number)
{
    snprintf(name, WF_NAME_BYTES, "%.32s-%d", wf_registry.base, number);
}

int wf_registry_reach(int number, pid_t *pid)
{
    char name[WF_NAME_BYTES];

    name_of(name, number);
    return wf_names_connect(name, pid);
}

/* Returns the process id of one of this host, or 0 where it can't be reached. */
static pid_t reached(int number)
{
    pid_t pid = 0;
    int fd = number == wf_registry.local ? -1 : wf_registry_reach(number, &pid);

    if (fd >= 0)
        close(fd);
    return pid;
}

/* ---- messages ---- */

void wf_registry_hear(void)
{
    pid_t who;
    int fd;

    while ((fd = accept4(wf_registry.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct pollfd word_comes = {.fd = fd, .events = POLLIN};
        bool ours = wf_names_is_peer(fd, &who);
        char word = 0;

        if (ours && poll(&word_comes, 1, WORD_MS) > 0 &&
            recv(fd, &word, 1, MSG_DONTWAIT) == 1) {
            if (word == MET)
                atomic_store(&wf_registry.met, true);
            if (word == GOODBYE && who == wf_registry.next)
                atomic_store(&wf_registry.left, true);
            if (word == REPORTS)
                atomic_store(&wf_registry.reported, true);
            if (word == AT_THE_END && wf_registry.at_the_end < wf_registry.n)
                wf_registry.came[wf_registry.at_the_end++] = who;
            wf_registry.first_is = wf_registry.first_is || word == FIRST_IS;
            wf_registry.all_are = wf_registry.all_are || word == ALL_ARE;
        }
        close(fd);
    }
}

static void say(int number, char word)
{
    pid_t pid;
    int fd = wf_registry_reach(number, &pid);

    if (fd < 0)
        return;
    send(fd, &word, 1, MSG_NOSIGNAL);
    close(fd);
}

/* Sends a word to the process that watches this one. */
static void say_to_watcher(char word)
{
    if (wf_registry.active && wf_registry.n > 1)
        say((wf_registry.local + wf_registry.n - 1) % wf_registry.n, word);
}

void wf_registry_note_here(void)
{
    bool first = wf_registry.local == 0;

    for (int i = first ? 1 : 0; i < (first ? wf_registry.n : 1); i++)
        wf_registry.here[i] = reached(i);
    wf_registry.noted = true;
}

void wf_registry_met(void)
{
    if (wf_registry.active)
        wf_registry_note_here();
    atomic_store(&wf_registry.met, true);
    say_to_watcher(MET);
}

void wf_registry_come_to_the_end(void)
{
    if (wf_registry.local > 0)
        say(0, AT_THE_END);
    for (int i = 1; wf_registry.local == 0 && i < wf_registry.n; i++)
        say(i, FIRST_IS);
}

bool wf_registry_is_at_the_end(int number, pid_t pid)
{
    if (wf_registry.local > 0)
        return number == 0 && wf_registry.first_is;
    for (int i = 0; i < wf_registry.at_the_end; i++)
        if (wf_registry.came[i] == pid)
            return true;
    return false;
}

bool wf_registry_all_are_at_the_end(void)
{
    wf_registry_hear();
    if (wf_registry.local > 0 || wf_registry.all_are)
        return wf_registry.all_are || !wf_registry.here[0];
    wf_registry.all_are = true;
    for (int i = 1; i < wf_registry.n; i++)
        wf_registry.all_are =
            wf_registry.all_are &&
            (!wf_registry.here[i] || wf_registry_is_at_the_end(i, wf_registry.here[i]));
    for (int i = 1; wf_registry.all_are && i < wf_registry.n; i++)
        say(i, ALL_ARE);
    return wf_registry.all_are;
}

bool wf_registry_claim(void)
{
    if (atomic_flag_test_and_set(&claimed))
        return false;
    if (wf_registry.active)
        wf_registry_hear();
    if (!wf_registry.named || atomic_load(&wf_registry.reported))
        return !wf_registry.named;
    claim = wf_names_lock(wf_registry.claim);
    if (claim < 0 && errno == EAGAIN)
        return false;
    wf_fd_holder_keep(claim);
    for (int i = 0; i < wf_registry.n; i++)
        if (i != wf_registry.local)
            say(i, REPORTS);
    return true;
}

bool wf_registry_claimed(void)
{
    return claim >= 0;
}

bool wf_registry_early(void)
{
    return wf_registry.named && !wf_registry.active;
}

void wf_registry_say_goodbye(void)
{
    say_to_watcher(GOODBYE);
}

static void give_name_back(void)
{
    char name[WF_NAME_BYTES];

    if (!wf_registry.active)
        return;
    name_of(name, wf_registry.local);
    wf_names_remove(name);
}

static void end_well(void)
{
    atomic_store(&wf_registry.over, true);
    wf_registry_say_goodbye();
    wf_registry_watch_exit();
    give_name_back();
}

/* ---- the beginning ---- */

static void forget(void)
{
    give_name_back();
    if (wf_registry.listener >= 0)
        close(wf_registry.listener);
    if (claim >= 0)
        close(claim);
    claim = -1;
    free(wf_registry.came);
    free(wf_registry.here);
    free(wf_registry.rank);
    wf_registry = (wf_registry_state){.listener = -1};
    atomic_flag_clear(&claimed);
}

/* Makes the names of the next world; false: there are no other processes, nothing distinguishes
   this job from others, or no folder is this user's alone, and *why says so. */
static bool make_names(const wf_launcher *l, char *why, size_t room)
{
    char job[WF_NAME_BYTES / 2];

    *why = '\0';
    wf_registry.local = l->local_process;
    wf_registry.n = l->local > 0 ? l->local : 1;
    wf_registry.processes = l->processes;
    if (l->processes == 1 || !wf_names_job(job, sizeof job) || !wf_names_open(why, room))
        return false;
    snprintf(wf_registry.base, sizeof wf_registry.base, "%s-%d", job, worlds);
    snprintf(wf_registry.claim, sizeof wf_registry.claim, "%.32s-reports", wf_registry.base);
    return true;
}

void wf_registry_prepare(void)
{
    const wf_launcher l = wf_launcher_detected();
    char why[128];

    if (!wf_registry.active)
        wf_registry.named = make_names(&l, why, sizeof why);
}

/* Returns a limit in milliseconds, of at least `seconds`; WF_REGISTRY_MOST_S where the user
   sets none. */
static int64_t at_least(int seconds, double limit)
{
    return limit <= 0        ? WF_REGISTRY_MOST_S * 1000
           : limit < seconds ? seconds * 1000
                             : (int64_t)(limit * 1e3);
}

void wf_registry_name_ranks(int ranks, const int *process)
{
    if (!wf_registry.active ||
        !(wf_registry.rank = calloc((size_t)wf_registry.processes, sizeof(int))))
        return;
    for (int r = ranks - 1; r >= 0; r--)
        wf_registry.rank[process[r]] = r;
}

/* Warns that there are no names: the run continues, and the limits of its start and end
   hold. */
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

const char *wf_registry_warning(void)
{
    return *warning ? warning : NULL;
}

void wf_registry_open(bool joins, double limit, void (*exit_now)(wf_status status))
{
    const wf_launcher l = wf_launcher_detected();
    char name[WF_NAME_BYTES], why[128];

    forget();
    *warning = 0;
    wf_registry.named = make_names(&l, why, sizeof why);
    if (!joins || l.processes == 1)
        return;
    if (worlds++ == 0)
        atexit(end_well); /* before MPI asks for the same, so after MPI has ended */
    wf_registry.joins = true;
    wf_registry.begun = wf_detector_now();
    wf_registry.limit = at_least(WF_REGISTRY_LEAST_S, limit);
    wf_registry.end_limit = at_least(WF_REGISTRY_END_LEAST_S, limit);
    wf_registry.exit_now = exit_now;
    if (!wf_registry.named)
        warn(why);
    if (!wf_registry.named || wf_registry.local >= wf_registry.n)
        return;
    wf_registry.came = calloc((size_t)wf_registry.n, sizeof *wf_registry.came);
    wf_registry.here = calloc((size_t)wf_registry.n, sizeof *wf_registry.here);
    name_of(name, wf_registry.local);
    wf_registry.listener = wf_registry.came && wf_registry.here ? wf_names_listen(name) : -1;
    if (wf_registry.listener < 0) /* the others do not wait for who can't be reached */
        return;
    atomic_store(&wf_registry.reported, wf_names_is_locked(wf_registry.claim));
    wf_registry.active = true;
    wf_fd_holder_add(wf_registry.listener);
}
