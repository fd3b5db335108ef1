/* mesh/health/recorder_events.h - the flight recorder as communication uses it. Not installed. */
#ifndef WF_MESH_HEALTH_RECORDER_EVENTS_H
#define WF_MESH_HEALTH_RECORDER_EVENTS_H

#include "mesh/comm/transport.h"
#include "mesh/health/flight_recorder.h"
#include <stdatomic.h>

typedef _Atomic uint64_t wf_word;

enum { WF_RECORDER_PATH = 512 };

struct wf_recorder {
    _Atomic int state;
    wf_word wait;       /* 0, or what the rank waits in: see wf_recorder_wait() */
    _Atomic bool files; /* the rank reads or writes files */
    wf_word *image;     /* a wf_recording */
    uint64_t offset;    /* from the monotonic clock to 1970 */
    _Atomic int32_t step;
    int groups;
    uint64_t count;
    unsigned failures; /* of the process, when this was opened */
    bool written;
    char place[WF_RECORDER_PLACE];
    char directory[WF_RECORDER_PATH], name[32];
    wf_recorded_group group[WF_RECORDER_GROUPS]; /* as in the image */
};

/* The recorder of a rank, opened with its first group; NULL on a transport that moves nothing, or
   where there is no memory: a run does not fail for it. */
wf_recorder *wf_recorder_of(wf_comm *comm);

/* A group split off: its events go where the parent's go. */
void wf_recorder_join(wf_comm *parent, wf_comm *comm);

/* The handle closes; the one that opened the recorder gives it back. */
void wf_recorder_leave(wf_comm *comm);

/* "shard 1, tp 0": where the rank is in its mesh. */
void wf_recorder_coordinates(wf_comm *comm, const char *text);

/* What the rank is at, for the events to come. place: copied, NULL for none. */
void wf_recorder_place(wf_comm *comm, int64_t step, const char *place);

/* A collective begins; returns its sequence number, for its end. */
uint64_t wf_recorder_begin(wf_comm *comm, wf_collective_kind op, int64_t bytes);
void wf_recorder_end(wf_comm *comm, wf_collective_kind op, uint64_t sequence, bool failed);

/* The rank waits for others in a collective, and no longer. */
void wf_recorder_wait(wf_comm *comm, wf_collective_kind op, uint64_t sequence);
void wf_recorder_wait_over(wf_comm *comm);

/* The rank reads or writes files from now on, or no longer. A disk may be as slow as it likes: until
   then the rank goes on, as the watch sees it. */
void wf_recorder_at_files(wf_comm *comm, bool at_files);

/* "; it was on .." goes behind the text, where none is there yet. */
void wf_recorder_locate(wf_comm *comm, wf_error *error);

/* This rank has failed: say so and write its file. */
void wf_recorder_fail(wf_comm *comm, const wf_error *cause);

/* ---- from any thread, and from a signal (recorder_where.c) ---- */

/* Changes whenever the rank begins or ends something; *waits: for others. */
uint64_t wf_recorder_pulse(const wf_recorder *r, bool *waits);

/* "on node1, shard 1, tp 0, in step 12, in all_reduce over tp (collective 57), at block.1.attn". */
size_t wf_recorder_where(const wf_recorder *r, char *text, size_t room);

int wf_recorder_rank(const wf_recorder *r);

/* Why the rank's file will be written; write the files of all ranks of this process. */
void wf_recorder_cause(wf_recorder *r, const char *text);
void wf_recorder_write_all(void);

#endif
