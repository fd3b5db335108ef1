/* core/trace.c - see the header. */
#include "core/trace.h"
#include "core/device.h"
#include <stdlib.h>
#include <time.h>

struct wf_trace {
    int64_t count, capacity, lost;
    int64_t counted;            /* nanoseconds of ops, waits, work of the host and launches */
    int64_t launch, n_launched; /* wf_trace_launches */
    wf_device_counts device;    /* wf_trace_device */
    bool waits;
    wf_trace_event event[];
};

static const int64_t MOST_EVENTS = (int64_t)1 << 30;

wf_trace *wf_trace_open(int64_t capacity, wf_error *error)
{
    size_t bytes = sizeof(wf_trace) + (size_t)capacity * sizeof(wf_trace_event);
    wf_trace *trace = capacity <= MOST_EVENTS ? malloc(bytes) : NULL;

    if (!trace) {
        wf_error_set(error, WF_ENOMEM, "no memory for a trace of %lld events",
                     (long long)capacity);
        return NULL;
    }
    trace->capacity = capacity;
    trace->waits = false;
    wf_trace_clear(trace);
    return trace;
}

void wf_trace_clear(wf_trace *trace)
{
    trace->count = trace->lost = 0;
    trace->counted = trace->launch = trace->n_launched = 0;
    trace->device = (wf_device_counts){.launches = 0};
}

void wf_trace_close(wf_trace *trace)
{
    free(trace);
}

int64_t wf_trace_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void wf_trace_add(wf_trace *trace, const wf_trace_event *event)
{
    if (trace->count < trace->capacity)
        trace->event[trace->count++] = *event;
    else
        trace->lost++;
}

wf_trace_mark wf_trace_begin(const wf_trace *trace)
{
    return trace ? (wf_trace_mark){wf_trace_now(), trace->counted} : (wf_trace_mark){0, 0};
}

void wf_trace_end(wf_trace *trace, wf_trace_mark mark, const wf_trace_event *event)
{
    wf_trace_event e = *event;

    if (!trace || !mark.at)
        return;
    e.start = mark.at;
    e.end = wf_trace_now();
    e.own = e.end - e.start - (trace->counted - mark.counted);
    trace->counted += e.own;
    wf_trace_add(trace, &e);
}

void wf_trace_launched(wf_trace *trace, wf_trace_mark mark)
{
    int64_t own;

    if (!trace || !mark.at)
        return;
    own = wf_trace_now() - mark.at - (trace->counted - mark.counted);
    trace->counted += own;
    trace->launch += own;
    trace->n_launched++;
}

void wf_trace_device(wf_trace *trace, const wf_device_counts *from, const wf_device_counts *to)
{
    trace->device.launches += to->launches - from->launches;
    trace->device.syncs += to->syncs - from->syncs;
    trace->device.waits += to->waits - from->waits;
}

const wf_device_counts *wf_trace_device_counts(const wf_trace *trace)
{
    return &trace->device;
}

void wf_trace_wait_for_ops(wf_trace *trace)
{
    trace->waits = true;
}

bool wf_trace_waits(const wf_trace *trace)
{
    return trace->waits;
}

int64_t wf_trace_launches(const wf_trace *trace, int64_t *calls)
{
    *calls = trace->n_launched;
    return trace->launch;
}

int64_t wf_trace_count(const wf_trace *trace)
{
    return trace->count;
}

const wf_trace_event *wf_trace_at(const wf_trace *trace, int64_t i)
{
    return &trace->event[i];
}

int64_t wf_trace_lost(const wf_trace *trace)
{
    return trace->lost;
}

/* Kernels run one after the other, so those before i that ended later than its start are the
   last ones before it. */
int64_t wf_trace_hidden(const wf_trace *trace, int64_t i)
{
    const wf_trace_event *transfer = &trace->event[i];
    int64_t sum = 0;

    while (--i >= 0) {
        const wf_trace_event *e = &trace->event[i];
        int64_t start = e->start > transfer->start ? e->start : transfer->start;
        int64_t end = e->end < transfer->end ? e->end : transfer->end;

        if (e->kind != WF_TRACE_OP)
            continue;
        if (e->end <= transfer->start)
            break;
        sum += end > start ? end - start : 0;
    }
    return sum;
}
