/* mesh/health/recorder_events.c - what a rank records while it runs: its collectives, messages
 * and actions, and what it waits in. */
#include "mesh/health/recorder_internal.h"
#include <stdio.h>
#include <string.h>

/* Stores words: the image is made of them, so that a signal on another thread may read it. */
void wf_recorder_store(wf_recorder *r, size_t at, const void *from, size_t bytes)
{
    uint64_t words[WF_RECORDER_HEAD / sizeof(uint64_t)];

    memcpy(words, from, bytes);
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        atomic_store_explicit(&r->image[at / sizeof *words + i], words[i],
                              memory_order_relaxed);
}

void wf_recorder_position(wf_comm *comm, int64_t step, const char *module)
{
    wf_recorder *r = wf_recorder_of(comm);

    r->step = (int32_t)step;
    strncpy(r->module, module ? module : "", sizeof r->module - 1);
}

void wf_recorder_record(wf_recorder *r, wf_event *e)
{
    size_t slot = r->count % WF_RECORDER_EVENTS;

    e->time = (uint64_t)wf_trace_now() + r->offset;
    e->step = r->step;
    memcpy(e->module, r->module, sizeof e->module);
    memcpy(e->action, r->action, sizeof e->action);
    wf_recorder_store(r, offsetof(wf_recording, event) + slot * sizeof *e, e, sizeof *e);
    r->count++;
    wf_recorder_store(r, offsetof(wf_recording_head, count), &r->count, sizeof r->count);
}

void wf_recorder_action(wf_comm *comm, const char *name, int64_t number, int64_t of)
{
    const wf_recorded *notes = comm->observed;
    char does[WF_RECORDER_DOES] = "";
    wf_recorder *r = notes->recorder;
    wf_event e = {.kind = WF_EVENT_ACTION,
                  .op = WF_COLLECTIVE_KINDS,
                  .group = (uint16_t)notes->group,
                  .peer = -1,
                  .sequence = (uint64_t)number};

    memset(r->action, 0, sizeof r->action);
    if (name) {
        memcpy(r->action, name, strnlen(name, sizeof r->action - 1));
        snprintf(does, sizeof does, "%s (action %lld of %lld)", r->action, (long long)number,
                 (long long)of);
        wf_recorder_record(r, &e);
    }
    wf_recorder_store(r, offsetof(wf_recording_head, does), does, sizeof does);
}

static bool is_message(const wf_collective *what)
{
    return what->kind == WF_SEND || what->kind == WF_RECV;
}

static int32_t peer_of(const wf_comm *comm, const wf_collective *what)
{
    return is_message(what) ? wf_comm_world_rank(comm, what->peer) : -1;
}

static wf_event event_of(const wf_comm *comm, const wf_collective *what, wf_event_kind kind)
{
    const wf_recorded *notes = comm->observed;

    return (wf_event){.kind = (uint8_t)kind,
                      .op = (uint8_t)what->kind,
                      .group = (uint16_t)notes->group,
                      .peer = peer_of(comm, what),
                      .tag = is_message(what) ? what->tag : 0};
}

uint64_t wf_recorder_begin(wf_comm *comm, const wf_collective *what, int64_t bytes)
{
    wf_recorded *notes = comm->observed;
    wf_event e = event_of(comm, what, WF_EVENT_BEGIN);
    uint64_t *count = is_message(what)
                          ? &notes->messages[what->peer + (what->kind == WF_RECV) * comm->size]
                          : &notes->count;

    e.bytes = bytes;
    e.sequence = ++*count;
    wf_recorder_record(notes->recorder, &e);
    return e.sequence;
}

void wf_recorder_end(wf_comm *comm, const wf_collective *what, uint64_t sequence, bool failed)
{
    const wf_recorded *notes = comm->observed;
    wf_event e = event_of(comm, what, failed ? WF_EVENT_FAIL : WF_EVENT_END);

    e.sequence = sequence;
    wf_recorder_record(notes->recorder, &e);
}

static void set_wait(wf_recorder *r, uint64_t word)
{
    wf_recorder_store(r, offsetof(wf_recording_head, wait), &word, sizeof word);
}

void wf_recorder_wait(wf_comm *comm, const wf_collective *what, uint64_t sequence)
{
    const wf_recorded *notes = comm->observed;

    set_wait(notes->recorder, sequence << 26 | (uint64_t)(peer_of(comm, what) + 1) << 13 |
                                  (uint64_t)notes->group << 5 | (uint64_t)what->kind << 1 | 1);
}

void wf_recorder_wait_over(wf_comm *comm)
{
    set_wait(wf_recorder_of(comm), 0);
}

void wf_recorder_at_files(wf_comm *comm, bool at_files)
{
    atomic_store_explicit(&wf_recorder_of(comm)->files, at_files, memory_order_relaxed);
}
