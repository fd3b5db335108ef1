/* mesh/health/recorder_internal.h - a rank's flight recorder: what it records, and what is read
   from it. */
#ifndef WF_MESH_HEALTH_RECORDER_INTERNAL_H
#define WF_MESH_HEALTH_RECORDER_INTERNAL_H

#include "mesh/comm/transport_internal.h"
#include "mesh/health/flight_recorder.h"
#include <stdatomic.h>

typedef _Atomic uint64_t wf_word;

enum { WF_RECORDER_PATH = 512, WF_RECORDER_WHERE = 320 };

typedef struct wf_recorder {
    _Atomic int state;
    _Atomic bool files; /* the rank reads or writes files */
    wf_word *image;     /* a wf_recording */
    uint64_t offset;    /* from the monotonic clock to 1970 */
    _Atomic int32_t step;
    int groups;
    uint64_t count;
    wf_word failed_at; /* events before the rank itself failed; UINT64_MAX: it has not */
    unsigned failures; /* those of the process, when this was opened */
    bool written;
    char module[WF_RECORDER_MODULE], action[WF_RECORDER_ACTION];
    char directory[WF_RECORDER_PATH], name[32];
    wf_recorded_group group[WF_RECORDER_GROUPS]; /* as in the image */
} wf_recorder;

/* The state kept with each handle: wf_comm.observed. */
typedef struct wf_recorded {
    wf_recorder *recorder;
    struct wf_detector *detector; /* the failure detector that is woken, or NULL */
    bool owns_recorder;
    int group;           /* in the recorder's table */
    uint64_t count;      /* collectives, so far */
    uint64_t messages[]; /* so far, [2 * members]: sent to each, then received */
} wf_recorded;

/* Opens a recorder for the rank of this handle; none where there is no memory for one. Errors:
   WF_ENOMEM, of the notes. */
wf_status wf_recorder_open(wf_comm *world, wf_error *error);

/* Returns the recorder of a handle, or NULL. */
wf_recorder *wf_recorder_of(const wf_comm *comm);

/* Joins a group that was split off to the parent's recorder. Errors: WF_ENOMEM. */
wf_status wf_recorder_join(const wf_comm *parent, wf_comm *comm, wf_error *error);

/* Notes that the handle closes; the one that opened the recorder gives it back. */
void wf_recorder_leave(wf_comm *comm);

/* "shard 1, tp 0": where the rank is in its mesh. */
void wf_recorder_coordinates(wf_comm *comm, const char *text);

/* Records the rank's position for later events. module: copied, NULL for none. */
void wf_recorder_position(wf_comm *comm, int64_t step, const char *module);

/* Records the action that the rank is in from now on, number `number` of `of`: "I3.17"; NULL
   for none. */
void wf_recorder_action(wf_comm *comm, const char *name, int64_t number, int64_t of);

/* Records that a collective begins; returns its sequence number, for its end. */
uint64_t wf_recorder_begin(wf_comm *comm, const wf_collective *what, int64_t bytes);
void wf_recorder_end(wf_comm *comm, const wf_collective *what, uint64_t sequence, bool failed);

/* Record that the rank waits for others in a collective, and no longer. */
void wf_recorder_wait(wf_comm *comm, const wf_collective *what, uint64_t sequence);
void wf_recorder_wait_over(wf_comm *comm);

/* Notes that the rank reads or writes files from now on, or no longer. A disk may take any
   time: until it is done the failure detector does not count the rank as stuck. */
void wf_recorder_at_files(wf_comm *comm, bool at_files);

/* Appends "; it was on .." to the text, where none is there yet. */
void wf_recorder_locate(wf_comm *comm, wf_error *error);

/* Records that this rank has failed, and writes its file. */
void wf_recorder_fail(wf_comm *comm, const wf_error *cause);

/* ---- from any thread, and from a signal (recorder_where.c) ---- */

/* Changes whenever the rank begins or ends something; *waits: for others. */
uint64_t wf_recorder_pulse(const wf_recorder *r, bool *waits);

/* "on node1, pp 3, tp 0, in step 12, in I3.17 (action 41 of 96), in all_reduce over tp
   (collective 57), at block.1.attn". */
size_t wf_recorder_where(const wf_recorder *r, char *text, size_t room);

int wf_recorder_rank(const wf_recorder *r);

/* Write the rank's file (recorder_file.c); false: it has none, or it cannot be written. */
bool wf_recorder_write(const wf_recorder *r);

/* ---- of recorder_events.c and flight_recorder.c ---- */

/* Store whole words of the image at an offset, and append an event. By the rank's own
   thread. */
void wf_recorder_store(wf_recorder *r, size_t at, const void *from, size_t bytes);
void wf_recorder_record(wf_recorder *r, wf_event *e);

/* Why the rank's file will be written. */
void wf_recorder_cause(wf_recorder *r, const char *text);

#endif
