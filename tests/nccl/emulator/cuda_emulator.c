/*
 * tests/nccl/emulator/cuda_emulator.c - streams, events and memory (cuda_runtime_api.h). Stream
 * NULL does at once what it is given.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    struct job *next;
    void (*run)(void *arg);
    void *arg;
} job;

struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    job *first, **last;
    bool busy, stop;
};

/* Both words count its records: those asked for, and those that a stream has come to. */
struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t asked, done;
    int users; /* the owner, and jobs on streams */
};

static _Thread_local int current;

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *set = getenv("WEFT_EMULATED_GPUS");

    *count = set ? atoi(set) : 8;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    current = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
        return "device not ready";
    default:
        return "invalid argument";
    }
}

static void *work(void *opaque)
{
    cudaStream_t s = opaque;

    pthread_mutex_lock(&s->lock);
    while (!s->stop || s->first) {
        job *j = s->first;

        if (!j) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        s->first = j->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        j->run(j->arg);
        free(j);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        if (!s->first)
            pthread_cond_broadcast(&s->idle);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaStream_t s = calloc(1, sizeof *s);

    (void)flags, (void)priority;
    if (!s)
        return cudaErrorMemoryAllocation;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->idle, NULL);
    if (pthread_create(&s->thread, NULL, work, s) != 0) {
        free(s);
        return cudaErrorMemoryAllocation;
    }
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->idle);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (!s)
        return cudaSuccess;
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*run)(void *), void *arg)
{
    job *j;

    if (!s) {
        run(arg);
        return cudaSuccess;
    }
    j = malloc(sizeof *j);
    if (!j)
        return cudaErrorMemoryAllocation;
    *j = (job){.run = run, .arg = arg};
    pthread_mutex_lock(&s->lock);
    *s->last = j;
    s->last = &j->next;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaEvent_t e = calloc(1, sizeof *e);

    (void)flags;
    if (!e)
        return cudaErrorMemoryAllocation;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    e->users = 1;
    *event = e;
    return cudaSuccess;
}

/* Takes the lock with it. */
static void drop(cudaEvent_t e)
{
    bool last = --e->users == 0;

    pthread_mutex_unlock(&e->lock);
    if (!last)
        return;
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    pthread_mutex_lock(&e->lock);
    drop(e);
    return cudaSuccess;
}

typedef struct event_job {
    cudaEvent_t event;
    uint64_t count;
} event_job;

static void come_to(void *opaque)
{
    event_job *j = opaque;
    cudaEvent_t e = j->event;

    pthread_mutex_lock(&e->lock);
    if (e->done < j->count)
        e->done = j->count;
    pthread_cond_broadcast(&e->wake);
    drop(e);
    free(j);
}

static void wait_for(void *opaque)
{
    event_job *j = opaque;
    cudaEvent_t e = j->event;

    pthread_mutex_lock(&e->lock);
    while (e->done < j->count)
        pthread_cond_wait(&e->wake, &e->lock);
    drop(e);
    free(j);
}

static cudaError_t put(cudaEvent_t e, cudaStream_t stream, bool record)
{
    event_job *j = malloc(sizeof *j);

    if (!j)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&e->lock);
    e->asked += record;
    e->users++;
    *j = (event_job){e, e->asked};
    pthread_mutex_unlock(&e->lock);
    return cudaLaunchHostFunc(stream, record ? come_to : wait_for, j);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    return put(e, stream, true);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    return put(e, stream, false);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    bool ready;

    pthread_mutex_lock(&e->lock);
    ready = e->done == e->asked;
    pthread_mutex_unlock(&e->lock);
    return ready ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMalloc(void **block, size_t bytes)
{
    *block = malloc(bytes ? bytes : 1);
    if (!*block)
        return cudaErrorMemoryAllocation;
    memset(*block, 0xff, bytes); /* NaNs, until somebody writes there */
    return cudaSuccess;
}

cudaError_t cudaFree(void *block)
{
    free(block);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **block, size_t bytes)
{
    return cudaMalloc(block, bytes);
}

cudaError_t cudaFreeHost(void *block)
{
    return cudaFree(block);
}

typedef struct copy_job {
    void *to;
    const void *from;
    size_t bytes;
} copy_job;

static void copy(void *opaque)
{
    copy_job *j = opaque;

    memcpy(j->to, j->from, j->bytes);
    free(j);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    copy_job *j = malloc(sizeof *j);

    (void)kind;
    if (!j)
        return cudaErrorMemoryAllocation;
    *j = (copy_job){to, from, bytes};
    return cudaLaunchHostFunc(stream, copy, j);
}
