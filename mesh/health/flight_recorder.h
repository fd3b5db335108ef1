/*
 * mesh/health/flight_recorder.h - the flight recorder: the last 4,096 events of each rank's
 * collectives and of its actions (wf_comm_action), always kept, and written to a file when a
 * rank fails, or at a signal. `recorder_diff` reads the files of all ranks.
 *
 * A file is a wf_recording as it lies in memory. Its words are written by the rank alone, each
 * atomically, so a writer of the file at a signal sees whole words; the event that is being
 * recorded at that moment may be half old.
 */
#ifndef WF_MESH_HEALTH_FLIGHT_RECORDER_H
#define WF_MESH_HEALTH_FLIGHT_RECORDER_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

enum {
    WF_RECORDER_EVENTS = 4096,
    WF_RECORDER_GROUPS = 256,
    WF_RECORDER_MODULE = 32,
    WF_RECORDER_ACTION = 20,
    WF_RECORDER_AT = 64,
    WF_RECORDER_DOES = 56,
    WF_RECORDER_HEAD = 768,
    WF_RECORDER_VERSION = 3
};

typedef enum wf_event_kind {
    WF_EVENT_BEGIN,
    WF_EVENT_END,
    WF_EVENT_FAIL,
    WF_EVENT_ACTION /* the rank begins an action; no collective */
} wf_event_kind;

/* Sequences are numbers from 1: of a collective in its group; of a message among those of its
   group from the one rank to the other; of an action in its row. */
typedef struct wf_event {
    uint64_t time; /* nanoseconds since 1970 */
    uint64_t sequence;
    int64_t bytes;  /* size of the buffers, all members together where they differ */
    int32_t step;   /* the step of training; 0 where there is none */
    uint16_t group; /* in the recording's table */
    uint8_t kind;   /* wf_event_kind */
    uint8_t op;     /* wf_collective_kind; WF_COLLECTIVE_KINDS where none is meant */
    char module[WF_RECORDER_MODULE]; /* the module at work; ends with 0 */
    uint64_t tag;                    /* a message has the same at both ends; else 0 */
    int32_t peer;                    /* the world's rank of a message's other end; else -1 */
    /* the action that it is part of, "I3.17" with stage and micro-batch; ends with 0, ""
       outside */
    char action[WF_RECORDER_ACTION];
} wf_event;

typedef struct wf_recorded_group {
    char name[32];
    int32_t first, size; /* rank of the world of its first member; members */
    /* hash of their ranks, and of the group's number among groups of its kind */
    uint64_t members;
} wf_recorded_group;

typedef struct wf_recording_head {
    char magic[8]; /* "WEFTREC" */
    uint32_t version, events;
    int32_t rank, ranks, groups, pid;
    uint64_t count; /* events so far; the last are kept, event i at [i % events] */
    char host[64];
    char at[WF_RECORDER_AT];     /* "shard 1, tp 0": its coordinates; "" before it has a mesh */
    char does[WF_RECORDER_DOES]; /* "I3.17 (action 41 of 96)": the action it is in, or "" */
    /* the operation that it waits in, see wf_recorded_wait_of; 0: none */
    uint64_t wait;
    char cause[WF_RECORDER_HEAD - 232]; /* the reason for the file, where a rank failed */
} wf_recording_head;

typedef struct wf_recording {
    wf_recording_head head;
    wf_recorded_group group[WF_RECORDER_GROUPS];
    wf_event event[WF_RECORDER_EVENTS];
} wf_recording;

/** wf_recorded_wait - a collective or message that a rank waits in. */
typedef struct wf_recorded_wait {
    int op, group, peer; /* as in wf_event */
    uint64_t sequence;
} wf_recorded_wait;

/** wf_recorded_wait_of - unpacks wf_recording_head.wait where it is not 0: from the lowest bit
 * on a 1, op in 4 bits, group in 8, peer + 1 in 13, sequence in 38. */
WF_API wf_recorded_wait wf_recorded_wait_of(uint64_t word);

/**
 * wf_recorder_files - sets the directory that recordings of worlds launched from now on are
 * written to when a rank fails
 *
 * Files are <directory>/rank-<n>.rec, readable by their user alone; the directory is made when
 * the first is written. Where it is another user's, or a symbolic link, nothing is.
 *
 * @param directory  NULL: nothing is written, as at the start
 * @param on_signal  SIGUSR2 writes those of all ranks of this process too, hung ones included
 * Errors:           WF_EINVAL (a name too long)
 */
WF_API wf_status wf_recorder_files(const char *directory, bool on_signal, wf_error *error);

/**
 * wf_recorder_crashes - installs signal handlers that report a crash
 *
 * From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write the recordings of all ranks of
 * this process, and one line that names the rank and its state; then they do what they did
 * before. Other processes of the world get the same report.
 *
 * @param fd  of the line, 2 for stderr; -1: no line
 */
WF_API void wf_recorder_crashes(int fd);

/**
 * wf_recorder_exit_status - returns the status with which a process ends that calls _exit
 *
 * Where wf_recorder_crashes was called, a rank that calls exit, quick_exit, or _exit(0) is
 * reported like one that crashes, and the status is 1 instead. libweft.so defines
 * _exit for that. Not seen in one process: the system call alone (exit_group), _exit of a
 * program that links libc's first, and other threads than ranks'. Other processes report that
 * this one is lost.
 */
WF_API int wf_recorder_exit_status(int status);

/** wf_recorder_written - returns the number of files that this process has written. */
WF_API int wf_recorder_written(void);

WF_END_DECLS

#endif
