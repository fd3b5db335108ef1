/*
 * mesh/health/crash_notice.c - a crash in this process becomes the failure detector's failure
 * cause. Called by a signal: it stores, wakes the detector's thread and sleeps.
 */
#include "mesh/health/failure_detector_parts_internal.h"
#include <string.h>
#include <time.h>

/* Times that a crash waits for its reporter, and until others know of that. */
enum { REPORT_MS = 3000 };

static wf_detector *_Atomic current;

void wf_detector_for_crashes(wf_detector *old, wf_detector *d)
{
    if (!old)
        atomic_store(&current, d);
    else
        atomic_compare_exchange_strong(&current, &old, d);
}

/* Returns true where the user may not have been notified yet, and the thread would learn of
   it. */
static bool may_be_reported(const wf_detector *d)
{
    return !atomic_load(&d->passed_on) && !atomic_load(&d->stop);
}

bool wf_detector_crashed(const wf_detector *d)
{
    return d && atomic_load(&d->crashed);
}

bool wf_detector_crash_notice(int rank, const char *text)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    wf_detector *d = atomic_load(&current);

    if (!d || !d->n_peers)
        return true;
    d->crash = (wf_failure){.failed_rank = rank >= 0 ? rank : d->o.rank[0],
                            .reporter = d->o.process,
                            .code = WF_ELOST,
                            .stuck = true};
    memcpy(d->crash.text, text, strnlen(text, sizeof d->crash.text - 1));
    atomic_store(&d->crashed, true);
    wf_detector_wake(d);
    for (int ms = 0; ms < REPORT_MS && may_be_reported(d) && !atomic_load(&d->orphaned) &&
                     atomic_load(&d->decided) != d->o.process;
         ms++)
        nanosleep(&nap, NULL);
    return !atomic_load(&d->passed_on);
}

void wf_detector_crash_reported(bool here)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    wf_detector *d = atomic_load(&current);

    if (!d || !d->n_peers)
        return;
    if (here) {
        atomic_store(&d->notified, true);
        wf_detector_wake(d);
    }
    for (int ms = 0; ms < REPORT_MS && may_be_reported(d); ms++)
        nanosleep(&nap, NULL);
}
