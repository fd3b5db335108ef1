/*
 * mesh/health/recorder_where.c - what a rank is at, read from its recorder while it runs: by
 * another thread, or by a signal, so nothing here calls what a signal may not.
 */
#include "mesh/health/recorder_internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WHERE "; it was "

wf_recorded_wait wf_recorded_wait_of(uint64_t word)
{
    return (wf_recorded_wait){.op = (int)(word >> 1 & 0xf),
                              .group = (int)(word >> 5 & 0xff),
                              .peer = (int)(word >> 13 & 0x1fff) - 1,
                              .sequence = word >> 26};
}

static void load(const wf_recorder *r, size_t at, void *to, size_t bytes)
{
    uint64_t words[WF_RECORDER_HEAD / sizeof(uint64_t)];

    for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] =
            atomic_load_explicit(&r->image[at / sizeof *words + i], memory_order_relaxed);
    memcpy(to, words, bytes);
}

int wf_recorder_rank(const wf_recorder *r)
{
    int32_t rank_and_ranks[2];

    load(r, offsetof(wf_recording_head, rank), rank_and_ranks, sizeof rank_and_ranks);
    return rank_and_ranks[0];
}

uint64_t wf_recorder_pulse(const wf_recorder *r, bool *waits)
{
    uint64_t wait, count;

    load(r, offsetof(wf_recording_head, wait), &wait, sizeof wait);
    load(r, offsetof(wf_recording_head, count), &count, sizeof count);
    *waits = wait != 0;
    if (atomic_load_explicit(&r->files, memory_order_relaxed)) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return ~((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    }
    return wait ^ count << 32; /* a wait that is over has counted an event */
}

typedef struct line {
    char *text;
    size_t room, used;
} line;

static void put(line *l, const char *text)
{
    for (; *text && l->used + 1 < l->room; text++)
        l->text[l->used++] = *text;
    if (l->room)
        l->text[l->used] = '\0';
}

static void put_number(line *l, uint64_t number)
{
    char digits[24], *at = digits + sizeof digits;

    *--at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    put(l, at);
}

/* Finds the event before the last `back` ones; false: it is not kept. An end after the rank has
   failed says nothing of where that was. */
static bool event_at(const wf_recorder *r, uint64_t back, wf_event *e)
{
    uint64_t count, failed = atomic_load(&r->failed_at);

    load(r, offsetof(wf_recording_head, count), &count, sizeof count);
    back += failed < count ? count - failed : 0;
    if (back >= count || back >= WF_RECORDER_EVENTS)
        return false;
    load(r,
         offsetof(wf_recording, event) +
             (size_t)((count - 1 - back) % WF_RECORDER_EVENTS) * sizeof *e,
         e, sizeof *e);
    e->module[sizeof e->module - 1] = '\0';
    return true;
}

/* Finds the last event; where collectives have failed since one last ended, the first of them,
   from which the others follow. */
static bool last_event(const wf_recorder *r, wf_event *last)
{
    wf_event e;
    uint64_t back = 0;
    bool any = false;

    for (; event_at(r, back, &e) && e.kind != WF_EVENT_END; back++) {
        if (e.op >= WF_COLLECTIVE_KINDS || (any && e.kind != WF_EVENT_FAIL))
            continue;
        *last = e;
        any = true;
    }
    for (; !any && event_at(r, back, &e); back++)
        if (e.op < WF_COLLECTIVE_KINDS) {
            *last = e;
            any = true;
        }
    return any;
}

/* Appends a collective: what it is, its number, and the module that ran when it began. */
static void put_collective(line *l, const wf_recorder *r, const char *how,
                           const wf_recorded_wait *w, const char *module)
{
    wf_recorded_group g = {.size = 0};

    if (w->group < WF_RECORDER_GROUPS)
        load(r, offsetof(wf_recording, group) + (size_t)w->group * sizeof g, &g, sizeof g);
    g.name[sizeof g.name - 1] = '\0';
    put(l, how);
    put(l, wf_collective_name((wf_collective_kind)w->op));
    put(l, " over ");
    put(l, g.name);
    put(l, w->peer < 0 ? " (collective " : " (message ");
    put_number(l, w->sequence);
    if (w->peer >= 0) {
        put(l, w->op == WF_SEND ? " to rank " : " from rank ");
        put_number(l, (uint64_t)w->peer);
    }
    if (*module) {
        put(l, ", in ");
        put(l, module);
    }
    put(l, ")");
}

size_t wf_recorder_where(const wf_recorder *r, char *text, size_t room)
{
    static const char *const how[] = {[WF_EVENT_BEGIN] = ", having begun ",
                                      [WF_EVENT_END] = ", after ",
                                      [WF_EVENT_FAIL] = ", in "};
    int32_t step = atomic_load(&r->step);
    wf_recording_head head;
    line l = {text, room, 0};
    wf_event e;
    bool any = last_event(r, &e);

    load(r, 0, &head, sizeof head);
    put(&l, "on ");
    put(&l, head.host);
    put(&l, *head.at ? ", " : "");
    put(&l, head.at);
    if (step > 0) {
        put(&l, ", in step ");
        put_number(&l, (uint64_t)step);
    }
    if (*head.does) {
        put(&l, ", in ");
        put(&l, head.does);
    }
    if (head.wait) {
        wf_recorded_wait w = wf_recorded_wait_of(head.wait);

        put_collective(&l, r, ", in ", &w, any ? e.module : "");
    } else if (any) {
        put_collective(&l, r, how[e.kind % 3],
                       &(wf_recorded_wait){e.op, e.group, e.peer, e.sequence}, e.module);
    } else
        put(&l, ", before its first collective");
    return l.used;
}

void wf_recorder_locate(wf_comm *comm, wf_error *error)
{
    const wf_recorder *r = wf_recorder_of(comm);
    size_t used = strlen(error->text);
    char where[WF_RECORDER_WHERE];

    if (!r || strstr(error->text, WHERE))
        return;
    wf_recorder_where(r, where, sizeof where);
    snprintf(error->text + used, sizeof error->text - used, WHERE "%s", where);
}
