/*
 * tests/cuda/emulator/stream.c - streams as queues of work, and events in them.
 *
 * Nothing of a queue runs before somebody waits for it or asks how far it is; a queue that
 * grows long runs as well, as a device would not wait forever. An eager queue runs what it is
 * given as far as that waits for no other queue. The stream 0 is CUDA's legacy one: it comes
 * after all that others were given before.
 */
#include "emulator.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONG_QUEUE = 4096 };

typedef struct item {
    struct item *next;
    void (*run)(void *arg);     /* NULL: attempt, or an event is recorded or waited for */
    bool (*attempt)(void *arg); /* called until it is true */
    void (*drop)(void *arg);
    void *arg;
    cudaEvent_t event;
    unsigned long number; /* the record's; */
    bool wait;
    bool on_host; /* device memory stays closed */
} item;

struct CUstream_st {
    item *first, **last;
    struct CUstream_st *next; /* links all streams */
    int length;
    int device; /* on which it was made; kernels are launched with that one current */
    bool running;
    pthread_t runner;  /* the thread that does */
    cudaGraph_t graph; /* records what the stream is given */
};

struct CUevent_st {
    cudaStream_t stream; /* the last record's */
    int device;          /* on which it was made, and alone can be recorded */
    unsigned long recorded, done;
    struct timespec time;
    int refs; /* the owner's and those of items in queues */
};

static cudaStream_t streams;
static struct CUstream_st legacy = {.last = &legacy.first};

static cudaStream_t stream_of(cudaStream_t stream)
{
    return !stream || stream == cudaStreamLegacy ? &legacy : stream;
}

static void release_event(cudaEvent_t event)
{
    if (event && --event->refs == 0)
        free(event);
}

static bool step(cudaStream_t stream, bool waits);

static bool run_until(cudaStream_t stream, cudaEvent_t event, unsigned long number)
{
    while (event->done < number)
        if (!step(stream, true))
            return false;
    return true;
}

static void run_item(item *i)
{
    if (i->run) {
        if (!i->on_host)
            emulator_memory_open();
        i->run(i->arg);
        if (!i->on_host)
            emulator_memory_close();
    } else if (i->wait) {
        if (i->event->done < i->number && !run_until(i->event->stream, i->event, i->number))
            emulator_die("a stream waits for an event that waits for the stream");
    } else if (!i->attempt) {
        i->event->done = i->number;
        clock_gettime(CLOCK_MONOTONIC, &i->event->time);
    }
    if (i->drop)
        i->drop(i->arg);
    release_event(i->event);
}

static bool is_elsewhere(cudaStream_t stream)
{
    return stream->running && !pthread_equal(stream->runner, pthread_self());
}

/* Returns true where a piece of work is not over yet, or waits for a stream that another thread
   runs. Who does not wait brings that stream on as far as it goes. */
static bool goes_on(const item *i, bool waits)
{
    bool over = true;

    if (i->wait && i->event->done < i->number) {
        while (!waits && i->event->done < i->number && step(i->event->stream, false))
            continue;
        return is_elsewhere(i->event->stream) || (!waits && i->event->done < i->number);
    }
    if (i->attempt) {
        emulator_memory_open();
        over = i->attempt(i->arg);
        emulator_memory_close();
    }
    return !over;
}

/* Run one piece of work; false where there is none, one is running, or one waits for another
   stream's: but who waits tries that again after a moment, unless it is the one who runs it. */
static bool step(cudaStream_t stream, bool waits)
{
    item *i = stream->first;

    if (stream->running ? !is_elsewhere(stream) : !i)
        return false;
    if (is_elsewhere(stream) || goes_on(i, waits)) {
        if (waits)
            emulator_nap();
        return waits;
    }
    stream->first = i->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->length--;
    stream->running = true;
    stream->runner = pthread_self();
    run_item(i);
    stream->running = false;
    free(i);
    return true;
}

static void bring_on(cudaStream_t stream, bool waits)
{
    emulator_memory_open(); /* once for all of them */
    while (step(stream, waits))
        continue;
    emulator_memory_close();
}

/* The legacy stream comes after all others, and they after it. */
static void order_legacy(cudaStream_t stream)
{
    if (stream != &legacy) {
        if (legacy.first && !legacy.running)
            bring_on(&legacy, true);
        return;
    }
    for (cudaStream_t s = streams; s; s = s->next)
        if (!s->running)
            bring_on(s, true);
}

cudaGraph_t *emulator_stream_graph(cudaStream_t stream)
{
    return &stream_of(stream)->graph;
}

int emulator_stream_device(cudaStream_t stream)
{
    return stream_of(stream) == &legacy ? -1 : stream->device;
}

/* An event that was not recorded in the capture cannot be waited for in it. */
static cudaError_t record(cudaStream_t stream, const item *what)
{
    if (what->wait) {
        emulator_graph_lose(stream->graph);
        release_event(what->event);
        return emulator_error(cudaErrorStreamCaptureIsolation);
    }
    if (!what->run || what->on_host)
        emulator_die("a graph of functions on the host is not emulated");
    return emulator_graph_record(stream->graph, what->run, what->arg, what->drop);
}

static cudaError_t push(cudaStream_t asked, item what)
{
    cudaStream_t stream = stream_of(asked);
    item *i;

    if (stream->graph)
        return record(stream, &what);
    if (stream == &legacy && emulator_graph_forbids()) {
        if (what.drop)
            what.drop(what.arg);
        return emulator_error(cudaErrorStreamCaptureImplicit);
    }
    i = malloc(sizeof *i);
    if (!i)
        emulator_die("no memory for a piece of work");
    *i = what;
    emulator_lock();
    order_legacy(stream);
    *stream->last = i;
    stream->last = &i->next;
    if (++stream->length > LONG_QUEUE || emulator_eager())
        bring_on(stream, stream->length > LONG_QUEUE);
    emulator_unlock();
    return cudaSuccess;
}

cudaError_t emulator_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg,
                             void (*drop)(void *arg))
{
    return push(stream, (item){.run = run, .arg = arg, .drop = drop});
}

cudaError_t emulator_enqueue_attempts(cudaStream_t stream, bool (*attempt)(void *arg),
                                      void *arg)
{
    return push(stream, (item){.attempt = attempt, .arg = arg});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    return push(stream, (item){.run = function, .arg = arg, .on_host = true});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    cudaStream_t s = calloc(1, sizeof *s);

    (void)flags;
    if (!s)
        return emulator_error(cudaErrorMemoryAllocation);
    s->last = &s->first;
    cudaGetDevice(&s->device);
    emulator_lock();
    s->next = streams;
    streams = s;
    emulator_unlock();
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

/* Destroys a stream; its queued work is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaStream_t *at = &streams;

    if (!stream)
        return emulator_error(cudaErrorInvalidResourceHandle);
    emulator_lock();
    bring_on(stream, true);
    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = stream->next;
    emulator_unlock();
    free(stream);
    return cudaSuccess;
}

/* Whoever asks for a stream that is captured loses the capture. */
static bool is_captured(cudaStream_t stream)
{
    cudaGraph_t graph = stream_of(stream)->graph;

    if (graph)
        emulator_graph_lose(graph);
    return graph != NULL;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (is_captured(stream))
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    emulator_lock();
    order_legacy(stream_of(stream));
    bring_on(stream_of(stream), true);
    emulator_unlock();
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    return cudaStreamSynchronize(&legacy);
}

/* Who asks again and again brings it on, a piece at a time. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    bool done;

    if (is_captured(stream))
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    emulator_lock();
    step(stream_of(stream), false);
    done = !stream_of(stream)->first && !stream_of(stream)->running;
    emulator_unlock();
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    unsigned long number;

    (void)flags;
    emulator_lock();
    number = event->recorded;
    event->refs += number > 0;
    emulator_unlock();
    return number ? push(stream, (item){.event = event, .number = number, .wait = true})
                  : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return emulator_error(cudaErrorMemoryAllocation);
    (*event)->refs = 1;
    cudaGetDevice(&(*event)->device);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emulator_lock();
    release_event(event);
    emulator_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    unsigned long number;

    if (stream_of(stream) != &legacy && stream_of(stream)->device != event->device)
        return emulator_error(cudaErrorInvalidResourceHandle);
    if (is_captured(stream)) /* a device could; no other stream joins a capture here */
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    emulator_lock();
    event->stream = stream_of(stream);
    number = ++event->recorded;
    event->refs++;
    emulator_unlock();
    return push(stream, (item){.event = event, .number = number});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    emulator_lock();
    if (event->done < event->recorded && !run_until(event->stream, event, event->recorded))
        emulator_die("an event is waited for that never comes");
    emulator_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool done;

    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    emulator_lock();
    if (event->done < event->recorded)
        step(event->stream, false);
    done = event->done >= event->recorded;
    emulator_unlock();
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    if (from->done < from->recorded || to->done < to->recorded)
        return emulator_error(cudaErrorNotReady);
    *milliseconds = (float)(1e3 * (double)(to->time.tv_sec - from->time.tv_sec) +
                            1e-6 * (double)(to->time.tv_nsec - from->time.tv_nsec));
    return cudaSuccess;
}
