/*
 * mesh/health/flight_recorder.c - the flight recorder: see the header.
 *
 * Recorders are never freed but reused by later ranks: a signal may look at any of them at any
 * time. Everything that a signal does is a plain system call.
 */
#include "mesh/health/observe_internal.h"
#include "mesh/health/recorder_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RECORDERS = 4096 };

enum { FREE, TAKEN, LIVE };

_Static_assert(sizeof(wf_event) == 96, "an event has no holes");
_Static_assert(sizeof(wf_recording_head) == WF_RECORDER_HEAD, "the head has no holes");
_Static_assert(offsetof(wf_recording_head, groups) % sizeof(uint64_t) == 0 &&
                   offsetof(wf_recording_head, pid) ==
                       offsetof(wf_recording_head, groups) + sizeof(int32_t),
               "groups and pid are a word");
_Static_assert((int)WF_RECORDER_GROUPS <= 1 << 8 && (int)WF_COLLECTIVE_KINDS < 1 << 4,
               "a wait is a word");

static wf_recorder *_Atomic recorders[MOST_RECORDERS];
static char directory[WF_RECORDER_PATH];
static _Atomic unsigned failures;
static _Atomic int files;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_one(const wf_recorder *r)
{
    if (wf_recorder_write(r))
        atomic_fetch_add(&files, 1);
}

void wf_recorder_write_all(void)
{
    for (int i = 0; i < MOST_RECORDERS; i++) {
        const wf_recorder *r = atomic_load(&recorders[i]);

        if (!r)
            break;
        if (atomic_load(&r->state) == LIVE)
            write_one(r);
    }
}

static void on_wish(int signal)
{
    int keep = errno;

    (void)signal;
    wf_recorder_write_all();
    errno = keep;
}

wf_status wf_recorder_files(const char *name, bool on_signal, wf_error *error)
{
    struct sigaction action = {.sa_handler = on_wish, .sa_flags = SA_RESTART};

    if (name && strlen(name) >= sizeof directory)
        return wf_error_set(error, WF_EINVAL, "a recorder's directory of %zu characters",
                            strlen(name));
    snprintf(directory, sizeof directory, "%s", name ? name : "");
    sigemptyset(&action.sa_mask);
    if (on_signal)
        sigaction(SIGUSR2, &action, NULL);
    return WF_OK;
}

int wf_recorder_written(void)
{
    return atomic_load(&files);
}

static wf_recorder *recorder_new(void)
{
    wf_recorder *r = calloc(1, sizeof *r);

    if (r && !(r->image = calloc(1, sizeof(wf_recording)))) {
        free(r);
        return NULL;
    }
    if (r)
        atomic_store(&r->state, TAKEN);
    return r;
}

/* Takes an unused recorder, or a new one. */
static wf_recorder *take(void)
{
    for (int i = 0; i < MOST_RECORDERS; i++) {
        wf_recorder *r = atomic_load(&recorders[i]), *mine;
        int state = FREE;

        if (r && atomic_compare_exchange_strong(&r->state, &state, TAKEN))
            return r;
        if (r)
            continue;
        mine = recorder_new();
        if (!mine || atomic_compare_exchange_strong(&recorders[i], &r, mine))
            return mine;
        free(mine->image); /* another rank was faster */
        free(mine);
    }
    return NULL;
}

static void begin_image(wf_recorder *r, const wf_comm *comm)
{
    wf_recording_head head = {.magic = "WEFTREC",
                              .version = WF_RECORDER_VERSION,
                              .events = WF_RECORDER_EVENTS,
                              .rank = wf_comm_world_rank(comm, comm->rank),
                              .ranks = comm->size,
                              .pid = (int32_t)getpid()};

    gethostname(head.host, sizeof head.host - 1);
    wf_recorder_store(r, 0, &head, sizeof head);
}

static wf_recorder *recorder_open(const wf_comm *comm)
{
    wf_recorder *r = take();

    if (!r)
        return NULL;
    r->offset = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    r->step = 0;
    r->groups = 0;
    r->count = 0;
    atomic_store(&r->failed_at, UINT64_MAX);
    r->failures = atomic_load(&failures);
    r->written = false;
    atomic_store(&r->files, false);
    memset(r->module, 0, sizeof r->module);
    memset(r->action, 0, sizeof r->action);
    memcpy(r->directory, directory, sizeof r->directory);
    snprintf(r->name, sizeof r->name, "rank-%d.rec", wf_comm_world_rank(comm, comm->rank));
    begin_image(r, comm);
    atomic_store(&r->state, LIVE);
    return r;
}

/* Counts the groups of this name, first rank and size. */
static uint64_t same_groups(const wf_recorder *r, const wf_recorded_group *g)
{
    size_t key = offsetof(wf_recorded_group, members);
    uint64_t same = 0;

    for (int i = 0; i < r->groups; i++)
        same += memcmp(&r->group[i], g, key) == 0;
    return same;
}

/* Adds a row of the table of groups; what does not fit shares the last. Returns its index. */
static int add_group(wf_recorder *r, const wf_comm *comm)
{
    wf_recorded_group g = {.first = wf_comm_world_rank(comm, 0), .size = comm->size};
    int32_t word_of_two[2] = {r->groups + 1, (int32_t)getpid()};
    int at = r->groups;

    if (at == WF_RECORDER_GROUPS)
        return at - 1;
    memcpy(g.name, comm->name, sizeof g.name);
    g.members = 14695981039346656037u;
    for (int i = 0; i < comm->size; i++)
        g.members = (g.members ^ (uint64_t)wf_comm_world_rank(comm, i)) * 1099511628211u;
    g.members ^= same_groups(r, &g) << 48;
    r->group[r->groups++] = g;
    wf_recorder_store(r, offsetof(wf_recording, group) + (size_t)at * sizeof g, &g, sizeof g);
    wf_recorder_store(r, offsetof(wf_recording_head, groups), word_of_two, sizeof word_of_two);
    return at;
}

wf_recorder *wf_recorder_of(const wf_comm *comm)
{
    const wf_recorded *notes = comm->observed;

    return notes ? notes->recorder : NULL;
}

static wf_status note(wf_comm *comm, wf_recorder *r, bool owns_recorder,
                      struct wf_detector *detector, wf_error *error)
{
    wf_recorded *notes =
        calloc(1, sizeof *notes + 2 * (size_t)comm->size * sizeof *notes->messages);

    if (!notes)
        return wf_error_set(error, WF_ENOMEM, "no memory to record group %s", comm->name);
    *notes = (wf_recorded){.recorder = r,
                           .detector = detector,
                           .owns_recorder = owns_recorder,
                           .group = add_group(r, comm)};
    comm->observed = notes;
    return WF_OK;
}

wf_status wf_recorder_open(wf_comm *world, wf_error *error)
{
    wf_recorder *r = recorder_open(world);
    wf_status status = r ? note(world, r, true, NULL, error) : WF_OK;

    if (status != WF_OK)
        atomic_store(&r->state, FREE);
    return status;
}

wf_status wf_recorder_join(const wf_comm *parent, wf_comm *comm, wf_error *error)
{
    const wf_recorded *notes = parent->observed;

    return note(comm, notes->recorder, false, notes->detector, error);
}

/* Also what ended well is of interest when others have failed meanwhile. */
void wf_recorder_leave(wf_comm *comm)
{
    wf_recorded *notes = comm->observed;
    wf_recorder *r = notes->recorder;

    if (notes->owns_recorder) {
        if (!r->written && r->count && atomic_load(&failures) != r->failures)
            write_one(r);
        atomic_store(&r->state, FREE);
    }
    free(notes);
    comm->observed = NULL;
}

void wf_recorder_coordinates(wf_comm *comm, const char *text)
{
    char at[WF_RECORDER_AT] = "";

    memcpy(at, text, strnlen(text, sizeof at - 1));
    wf_recorder_store(wf_recorder_of(comm), offsetof(wf_recording_head, at), at, sizeof at);
}

void wf_recorder_cause(wf_recorder *r, const char *text)
{
    char cause[sizeof((wf_recording_head *)0)->cause] = "";

    memcpy(cause, text, strnlen(text, sizeof cause - 1));
    wf_recorder_store(r, offsetof(wf_recording_head, cause), cause, sizeof cause);
}

void wf_recorder_fail(wf_comm *comm, const wf_error *cause)
{
    const wf_recorded *notes = comm->observed;
    wf_recorder *r = notes->recorder;
    wf_event e = {.kind = WF_EVENT_FAIL,
                  .op = WF_COLLECTIVE_KINDS,
                  .group = (uint16_t)notes->group,
                  .peer = -1};

    atomic_fetch_add(&failures, 1);
    if (r->count == 0) /* nothing has happened that a file could show */
        return;
    if (r->count < atomic_load(&r->failed_at))
        atomic_store(&r->failed_at, r->count);
    wf_recorder_record(r, &e);
    wf_recorder_cause(r, cause ? cause->text : "");
    r->written = true;
    write_one(r);
}
