/* apps/tools/recording.h - the recordings of a world's ranks, read from files, and what is
   found in them. */
#ifndef WF_APPS_RECORDING_H
#define WF_APPS_RECORDING_H

#include <stdbool.h>
#include <weft/weft.h>

typedef struct recordings {
    int n;
    wf_recording **of; /* [n] */
} recordings;

/* Read a file. Errors: WF_EIO: it cannot be read, is none of this version, or contradicts
   itself. Owner of *out: the caller, free, also after an error. */
wf_status recording_read(const char *path, wf_recording **out, wf_error *error);

/* Its events are those from the oldest to head.count - 1; one of them. */
uint64_t recording_oldest(const wf_recording *r);
const wf_event *recording_event(const wf_recording *r, uint64_t i);

/* Groups that found no room in the table share its last row, where nothing can be compared. */
bool recording_is_shared(int group);

bool recording_is_message(const wf_event *e);

/* The group's number in a recording, or -1. */
int recording_group(const wf_recording *r, const wf_recorded_group *group);

/* A filter of events: a group's collectives (peer -1), or its messages of a kind with a
   rank. */
typedef struct recorded_line {
    int group, op, peer; /* op counts for messages alone */
} recorded_line;

/* The n-th of a line, in the kind of event asked for; NULL where it is not held. */
const wf_event *recording_find(const wf_recording *r, const recorded_line *line,
                               uint64_t sequence, int kind);

/* The first and the last of a line that a recording holds; 0 for none. */
void recording_held(const wf_recording *r, const recorded_line *line, uint64_t *first,
                    uint64_t *last);

/* Finds the operation in which a rank was blocked when it failed, or was asked; false: in
   none. */
bool recording_hangs(const wf_recording *r, wf_recorded_wait *in);

/* The recording of a rank, or NULL. */
const wf_recording *recording_of(const recordings *w, int rank);

#endif
