/*
 * core/pace.h - a rank that takes its time: what it computes and what it waits for takes as
 * long as another machine would take, and it sleeps for what is left of that. Numbers are
 * computed as ever.
 *
 * A pace is a clock of the rank's own, in seconds of CLOCK_MONOTONIC, that stands where all it
 * has done so far would be over. Ops and transfers move it on, and the rank is never ahead of
 * it: before others can see what it did, it sleeps until then. So what this machine takes for
 * the numbers themselves does not show, as long as it is less.
 */
#ifndef WF_CORE_PACE_H
#define WF_CORE_PACE_H

#include "core/export.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

struct wf_call;

/** wf_pace_transfer - something that moves: a collective, or a message ("send") from member 0
 * to member 1. */
typedef struct wf_pace_transfer {
    const char *op;     /* "all_reduce", .. */
    int64_t bytes;      /* the whole: what is gathered, or reduced */
    const int *members; /* [size] ranks of the world */
    int size;
} wf_pace_transfer;

/** wf_pace_machine - what things take, in seconds. */
typedef struct wf_pace_machine {
    double (*op)(const void *self, const struct wf_call *call);
    /* behind `latency`, which does not keep the next one waiting */
    double (*transfer)(const void *self, const wf_pace_transfer *what, double *latency);
    /* what was begun moves beside what is computed; else who ends it moves it */
    bool background;
    const void *self;
} wf_pace_machine;

/** wf_pace - of a rank; its thread alone uses it. */
typedef struct wf_pace {
    const wf_pace_machine *machine; /* NULL: nothing is paced yet */
    double now;
} wf_pace;

/** wf_pace_start - from now on; the machine lives as long as the pace. */
WF_API void wf_pace_start(wf_pace *pace, const wf_pace_machine *machine);

/** wf_pace_catch_up - what was late until now is forgotten: a new span of time begins. */
WF_API void wf_pace_catch_up(wf_pace *pace);

/** wf_pace_spend, wf_pace_until - so many seconds more, or until that time; then sleep what is
 * left of it. */
WF_API void wf_pace_spend(wf_pace *pace, double seconds);
WF_API void wf_pace_until(wf_pace *pace, double time);

/** wf_pace_sleep - until all that was spent is over. */
WF_API void wf_pace_sleep(const wf_pace *pace);

WF_END_DECLS

#endif
