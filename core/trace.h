/*
 * core/trace.h - what a rank did when: intervals of time in a buffer of fixed size.
 *
 * One thread writes, mostly a rank's own: into memory that was taken when the trace was opened,
 * so that a step which is traced asks the system for nothing. What finds no room is counted as
 * lost.
 */
#ifndef WF_CORE_TRACE_H
#define WF_CORE_TRACE_H

#include "core/status.h"
#include <stdint.h>

WF_BEGIN_DECLS

typedef enum wf_trace_kind {
    WF_TRACE_OP,      /* a kernel ran */
    WF_TRACE_PHASE,   /* forward, backward, ..: contains what else the rank itself did */
    WF_TRACE_ACTION,  /* an action of a schedule: "I3.17" */
    WF_TRACE_WAIT,    /* the rank stood still for a transfer, or worked on it itself */
    WF_TRACE_TRANSFER /* data were under way, whatever the rank itself did meanwhile */
} wf_trace_kind;

/* Times are of wf_trace_now(). Texts are borrowed: they live as long as the trace is read. */
typedef struct wf_trace_event {
    wf_trace_kind kind;
    const char *name;  /* the op's, the phase's, the transfer's */
    const char *place; /* the module of an op, the group of a transfer; NULL: none */
    int64_t start, end;
    int64_t bytes;    /* a transfer brings so many to this rank */
    uint64_t message; /* a wait for a message says which, the same at both ends; else 0 */
    int64_t begun;    /* when this rank had begun that */
} wf_trace_event;

typedef struct wf_trace wf_trace;

/**
 * wf_trace_open - an empty trace with room for `capacity` events
 *
 * Owner:   caller; wf_trace_close (NULL is allowed), after nobody writes to it any more
 * Errors:  WF_ENOMEM; result is then NULL
 */
WF_API wf_trace *wf_trace_open(int64_t capacity, wf_error *error);
WF_API void wf_trace_close(wf_trace *trace);

/** wf_trace_now - nanoseconds since some moment that is the same for all ranks of a machine. */
WF_API int64_t wf_trace_now(void);

/** wf_trace_add - put an event behind the others, in the order in which they end; or lose
 * it. */
WF_API void wf_trace_add(wf_trace *trace, const wf_trace_event *event);

/** wf_trace_count - events that there are; wf_trace_at - one of them, from 0 on, owned by the
 * trace; wf_trace_lost - how many more found no room. */
WF_API int64_t wf_trace_count(const wf_trace *trace);
WF_API const wf_trace_event *wf_trace_at(const wf_trace *trace, int64_t i);
WF_API int64_t wf_trace_lost(const wf_trace *trace);

/**
 * wf_trace_hidden - for how many nanoseconds of transfer i kernels ran on this rank
 *
 * @param i  of an event of kind WF_TRACE_TRANSFER, added when it was over
 */
WF_API int64_t wf_trace_hidden(const wf_trace *trace, int64_t i);

WF_END_DECLS

#endif
