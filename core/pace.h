/*
 * core/pace.h - throttled ranks: emulates the speed of another machine. What a rank computes
 * and waits for takes as long as on that machine, since the rank sleeps for what is left of
 * that time. Numbers are computed as ever.
 *
 * A pace is the rank's emulated clock, in seconds of CLOCK_MONOTONIC: the time at which all it
 * has done so far would be over. Ops and transfers advance it, and the rank is never ahead of
 * it: before other ranks can see a result, it sleeps until then. So the time that this machine
 * takes for the numbers themselves does not show, as long as it is less.
 */
#ifndef WF_CORE_PACE_H
#define WF_CORE_PACE_H

#include "core/export.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

struct wf_call;

/** wf_pace_transfer - a transfer: a collective, or a message ("send") from member 0 to member
 * 1. */
typedef struct wf_pace_transfer {
    const char *op;     /* "all_reduce", .. */
    int64_t bytes;      /* bytes of all that is gathered, or reduced */
    const int *members; /* [size] ranks of the world */
    int size;
} wf_pace_transfer;

/** wf_pace_machine - the times of the emulated machine, in seconds. */
typedef struct wf_pace_machine {
    double (*op)(const void *self, const struct wf_call *call);
    /* beside `latency`, which does not delay the next transfer */
    double (*transfer)(const void *self, const wf_pace_transfer *what, double *latency);
    /* a transfer that was begun runs while the rank computes; false: it runs when the rank
       waits for it */
    bool background;
    const void *self;
} wf_pace_machine;

/** wf_pace - a rank's emulated clock; used by its thread alone. */
typedef struct wf_pace {
    const wf_pace_machine *machine; /* NULL: not throttled yet */
    double now;
} wf_pace;

/** wf_pace_start - starts throttling to a machine, which lives as long as the pace. */
WF_API void wf_pace_start(wf_pace *pace, const wf_pace_machine *machine);

/** wf_pace_catch_up - sets the emulated clock to now: a new span of time begins. */
WF_API void wf_pace_catch_up(wf_pace *pace);

/** wf_pace_spend, wf_pace_until - advance the emulated clock by `seconds`, or to a time, and
 * sleep until then. */
WF_API void wf_pace_spend(wf_pace *pace, double seconds);
WF_API void wf_pace_until(wf_pace *pace, double time);

/** wf_pace_sleep - sleeps until the emulated clock. */
WF_API void wf_pace_sleep(const wf_pace *pace);

WF_END_DECLS

#endif
