/*
 * core/trace.h - tracing: a rank's actions as intervals of time in a buffer of fixed size.
 *
 * One thread writes, mostly a rank's own: into memory that was taken when the trace was opened,
 * so that a traced step allocates nothing. Events beyond its capacity are counted as lost.
 */
#ifndef WF_CORE_TRACE_H
#define WF_CORE_TRACE_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef enum wf_trace_kind {
    WF_TRACE_OP,      /* a kernel ran */
    WF_TRACE_PHASE,   /* forward, backward, ..: contains the rank's own other events */
    WF_TRACE_ACTION,  /* an action of a schedule: "I3.17" */
    WF_TRACE_WAIT,    /* the rank waited for a transfer, or worked on it itself */
    WF_TRACE_HOST,    /* the rank did something else that is worth a name: "gradient norm" */
    WF_TRACE_TRANSFER /* data were in flight, whatever the rank did meanwhile */
} wf_trace_kind;

/* Times are of wf_trace_now(). Texts are borrowed: they live as long as the trace is read. */
typedef struct wf_trace_event {
    wf_trace_kind kind;
    const char *name;     /* the op's, the phase's, the transfer's */
    const char *location; /* the module of an op, the group of a transfer; NULL: none */
    int64_t start, end;
    int64_t own;      /* end - start, less the events that it contains */
    int64_t bytes;    /* transfers: received by this rank; ops: of all operands and results */
    double flops;     /* ops that declare theirs (wf_op.flops); else 0 */
    uint64_t message; /* waits for messages: its number, equal at both ends; else 0 */
    int64_t begun;    /* the time at which this rank had begun that message */
} wf_trace_event;

typedef struct wf_trace wf_trace;

/**
 * wf_trace_open - opens an empty trace with room for `capacity` events
 *
 * Owner:   caller; wf_trace_close (NULL is allowed), after the last write to it
 * Errors:  WF_ENOMEM; result is then NULL
 */
WF_API wf_trace *wf_trace_open(int64_t capacity, wf_error *error);
WF_API void wf_trace_close(wf_trace *trace);

/** wf_trace_now - returns nanoseconds of a clock that all ranks of a machine share. */
WF_API int64_t wf_trace_now(void);

/** wf_trace_add - appends an event, in the order in which they end; one without room is counted
 * as lost. */
WF_API void wf_trace_add(wf_trace *trace, const wf_trace_event *event);

/** wf_trace_mark - a moment of a traced rank, and the time that its events had then */
typedef struct wf_trace_mark {
    int64_t at; /* 0: nothing is traced */
    int64_t counted;
} wf_trace_mark;

/** wf_trace_begin - returns the moment at which something begins; of NULL none, at no cost. */
WF_API wf_trace_mark wf_trace_begin(const wf_trace *trace);

/**
 * wf_trace_end - appends what began at a mark, ends now, and may contain other ops, waits and
 * work of the host: start, end and own are filled in
 *
 * @param trace  NULL, or a mark of nothing that was traced: nothing is appended
 * @param event  its other fields, of kind OP, WAIT or HOST
 */
WF_API void wf_trace_end(wf_trace *trace, wf_trace_mark mark, const wf_trace_event *event);

/** wf_trace_launched - counts what began at a mark and ends now as the dispatch of an op, less
 * what events in it have; wf_trace_launches - returns the nanoseconds of all that were counted,
 * and *calls. Such a time is no event: there is one for every op. */
WF_API void wf_trace_launched(wf_trace *trace, wf_trace_mark mark);
WF_API int64_t wf_trace_launches(const wf_trace *trace, int64_t *calls);

struct wf_device_counts; /* core/device.h */

/** wf_trace_device - adds to what the rank has asked of its device while it was traced: the
 * difference of two counts; wf_trace_device_counts - returns the sums, without the waits that
 * wf_trace_wait_for_ops makes. */
WF_API void wf_trace_device(wf_trace *trace, const struct wf_device_counts *from,
                            const struct wf_device_counts *to);
WF_API const struct wf_device_counts *wf_trace_device_counts(const wf_trace *trace);

/** wf_trace_wait_for_ops - makes ops of a device with a queue be waited for, so that their
 * times are those of their kernels and not of their launches: kernels then run one at a time.
 * wf_trace_waits - returns true where it was called. */
WF_API void wf_trace_wait_for_ops(wf_trace *trace);
WF_API bool wf_trace_waits(const wf_trace *trace);

/** wf_trace_clear - empties the trace, for the next step. */
WF_API void wf_trace_clear(wf_trace *trace);

/** wf_trace_count - returns the number of events; wf_trace_at - one of them, from 0 on, owned
 * by the trace; wf_trace_lost - how many found no room. */
WF_API int64_t wf_trace_count(const wf_trace *trace);
WF_API const wf_trace_event *wf_trace_at(const wf_trace *trace, int64_t i);
WF_API int64_t wf_trace_lost(const wf_trace *trace);

/**
 * wf_trace_hidden - returns the nanoseconds of transfer i during which kernels ran on this rank
 *
 * @param i  of an event of kind WF_TRACE_TRANSFER, added when it was over
 */
WF_API int64_t wf_trace_hidden(const wf_trace *trace, int64_t i);

WF_END_DECLS

#endif
