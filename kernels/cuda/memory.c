/*
 * kernels/cuda/memory.c - the GPU's memory: stream-ordered blocks from CUDA's pool, which keeps
 * what is given back, and what the host reads, writes, fills and asks the digest of.
 */
#include "kernels/cuda/device_internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 64, SLOTS = 64, SLOT_BYTES = 1 << 20, STAGED = 16 << 20 };

/* Staging buffers: data written by the host wait here for their copy, so that the host need
   not: batches of tokens, of a step that is queued after another one. Slots are made when they
   are needed, and each takes writes until it is full. */
struct wf_cuda_staging {
    struct {
        char *pinned;
        cudaEvent_t copied; /* the last write in it */
        size_t used;
    } slot[SLOTS];
    int slots, at; /* those that are there; the one that is written to */
};

static void *allocate(void *self, size_t bytes)
{
    wf_cuda *cuda = self;
    void *block = NULL;

    wf_cuda_enter(cuda);
    if (cudaMallocAsync(&block, bytes ? bytes : LEAST, cuda->stream) == cudaSuccess)
        return block;
    cudaGetLastError(); /* the pool reports it */
    return NULL;
}

static void release(void *self, void *block, size_t bytes)
{
    wf_cuda *cuda = self;
    wf_error failed = {WF_OK, ""};

    (void)bytes;
    wf_cuda_enter(cuda);
    if (wf_cuda_failure(cuda, &failed) != WF_OK)
        return; /* it may never have been there: graph.c */
    wf_cuda_note(cuda, cudaFreeAsync(block, cuda->stream), "memory given back");
}

/* Host memory that the GPU copies from and to without another copy in between. */
static void *allocate_pinned(void *self, size_t bytes)
{
    void *block = NULL;

    wf_cuda_enter(self);
    if (cudaMallocHost(&block, bytes ? bytes : LEAST) == cudaSuccess)
        return block;
    cudaGetLastError(); /* the pool reports it */
    return NULL;
}

static void release_pinned(void *self, void *block, size_t bytes)
{
    (void)bytes;
    wf_cuda_enter(self);
    wf_cuda_note(self, cudaFreeHost(block), "host memory given back");
}

/* Gives other GPUs access to the blocks of a pool, which are its GPU's alone at first: unlike
   cudaMalloc's, which need cudaDeviceEnablePeerAccess. */
static wf_status let_in(const wf_cuda *cuda, cudaMemPool_t pool, int readers, wf_error *error)
{
    for (int i = 0; i < readers; i++) {
        struct cudaMemAccessDesc reader = {.location = {cudaMemLocationTypeDevice, .id = i},
                                           .flags = cudaMemAccessFlagsProtReadWrite};
        int can = 0;
        cudaError_t code =
            i == cuda->ordinal ? cudaSuccess : cudaDeviceCanAccessPeer(&can, i, cuda->ordinal);

        if (i == cuda->ordinal)
            continue;
        if (code == cudaSuccess && can)
            code = cudaMemPoolSetAccess(pool, &reader, 1);
        if (code != cudaSuccess || !can)
            return wf_cuda_host_table->error_set(
                error, WF_EUNSUPPORTED,
                "GPU %d cannot read the memory of GPU %d (%s), as ranks that are threads do; "
                "use "
                ".transport nccl, or one GPU by CUDA_VISIBLE_DEVICES",
                i, cuda->ordinal,
                code == cudaSuccess ? "no peer access between them" : cudaGetErrorString(code));
    }
    return WF_OK;
}

wf_status wf_cuda_memory_open(wf_cuda *cuda, int readers, wf_error *error)
{
    uint64_t keep = UINT64_MAX; /* nothing goes back to the system while the process lives */
    cudaMemPool_t pool;
    cudaError_t code = cudaDeviceGetDefaultMemPool(&pool, cuda->ordinal);

    if (code == cudaSuccess)
        code = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    if (code != cudaSuccess)
        return wf_cuda_host_table->error_set(
            error, WF_EDEVICE, "GPU %d has no stream-ordered memory: %s (%s)", cuda->ordinal,
            cudaGetErrorString(code), cudaGetErrorName(code));
    cuda->device.allocator =
        (wf_allocator){.alloc = allocate, .release = release, .opaque = true, .self = cuda};
    cuda->device.host_allocator =
        (wf_allocator){.alloc = allocate_pinned, .release = release_pinned, .self = cuda};
    return let_in(cuda, pool, readers, error);
}

cudaError_t wf_cuda_queue_copy(void *to, const void *from, size_t bytes,
                               enum cudaMemcpyKind kind, cudaStream_t stream)
{
    wf_cuda_counts.launches++;
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
}

static wf_status finish(wf_cuda *cuda, cudaError_t code, const char *what, wf_error *error)
{
    wf_cuda_counts.syncs++;
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(cuda->stream);
    wf_cuda_note(cuda, code, what);
    return wf_cuda_failure(cuda, error);
}

static wf_status read_back(wf_device *device, void *host, const void *from, size_t bytes,
                           wf_error *error)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    return finish(cuda,
                  wf_cuda_queue_copy(host, from, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                  "a copy to the host", error);
}

/* Makes one more slot, and writes to it from now on. */
static cudaError_t add_slot(struct wf_cuda_staging *s)
{
    cudaError_t code = cudaMallocHost((void **)&s->slot[s->slots].pinned, SLOT_BYTES);

    s->at = s->slots;
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&s->slot[s->slots].copied, cudaEventDisableTiming);
    s->slots += code == cudaSuccess;
    return code;
}

/* Takes the next slot: the oldest where it is free, else a new one, or where there are
   SLOTS the oldest after a wait. */
static cudaError_t next_slot(struct wf_cuda_staging *s)
{
    const int oldest = s->slots ? (s->at + 1) % s->slots : 0;
    cudaError_t code = cudaErrorNotReady;

    if (s->slots)
        code = cudaEventQuery(s->slot[oldest].copied);
    if (code == cudaErrorNotReady && s->slots < SLOTS)
        return add_slot(s);
    if (code == cudaErrorNotReady) {
        wf_cuda_counts.waits++;
        code = cudaEventSynchronize(s->slot[oldest].copied);
    }
    s->at = oldest;
    s->slot[oldest].used = 0;
    return code;
}

void wf_cuda_memory_close(wf_cuda *cuda)
{
    for (int i = 0; cuda->staging && i < SLOTS; i++) {
        if (cuda->staging->slot[i].copied)
            cudaEventDestroy(cuda->staging->slot[i].copied);
        if (cuda->staging->slot[i].pinned)
            cudaFreeHost(cuda->staging->slot[i].pinned);
    }
    free(cuda->staging);
    cuda->staging = NULL;
}

/* Copies what fits into a slot. */
static cudaError_t write_slot(wf_cuda *cuda, void *to, const void *host, size_t bytes)
{
    const size_t room = (bytes + LEAST - 1) / LEAST * LEAST;
    struct wf_cuda_staging *s = cuda->staging;
    cudaError_t code = cudaSuccess;
    char *pinned;

    if (!s->slots || s->slot[s->at].used + room > SLOT_BYTES)
        code = next_slot(s);
    if (code != cudaSuccess)
        return code;
    pinned = s->slot[s->at].pinned + s->slot[s->at].used;
    s->slot[s->at].used += room;
    memcpy(pinned, host, bytes);
    code = wf_cuda_queue_copy(to, pinned, bytes, cudaMemcpyHostToDevice, cuda->stream);
    return code == cudaSuccess ? cudaEventRecord(s->slot[s->at].copied, cuda->stream) : code;
}

static cudaError_t write_staged(wf_cuda *cuda, void *to, const void *host, size_t bytes)
{
    cudaError_t code = cudaSuccess;

    if (!cuda->staging)
        cuda->staging = calloc(1, sizeof *cuda->staging);
    if (!cuda->staging)
        return cudaErrorMemoryAllocation;
    for (size_t at = 0; at < bytes && code == cudaSuccess; at += SLOT_BYTES)
        code = write_slot(cuda, (char *)to + at, (const char *)host + at,
                          bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES);
    return code;
}

static void write_there(wf_device *device, void *to, const void *host, size_t bytes)
{
    wf_cuda *cuda = device->self;
    cudaError_t code = cudaSuccess;

    wf_cuda_enter(cuda);
    if (cuda->capturing) { /* later runs would copy what is in the staging memory then */
        wf_cuda_note(cuda, cudaErrorStreamCaptureUnsupported, "a copy to the GPU");
        return;
    }
    pthread_mutex_lock(cuda->lock); /* a checkpoint is loaded by two threads */
    if (bytes <= STAGED)
        code = write_staged(cuda, to, host, bytes);
    pthread_mutex_unlock(cuda->lock);
    if (bytes > STAGED) {
        wf_cuda_counts.syncs++;
        code = wf_cuda_queue_copy(to, host, bytes, cudaMemcpyHostToDevice, cuda->stream);
        if (code == cudaSuccess)
            code = cudaStreamSynchronize(cuda->stream);
    }
    wf_cuda_note(cuda, code, "a copy to the GPU");
}

static void fill(wf_device *device, void *to, uint32_t word, int64_t n)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    wf_cuda_note(cuda, wf_cuda_launch_fill(cuda->stream, to, word, n), "fill");
}

static wf_status wait(wf_device *device, wf_error *error)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    return finish(cuda, cudaSuccess, "work on the GPU", error);
}

static cudaError_t sum_digest(wf_cuda *cuda, const wf_tensor *t, uint64_t path_hash,
                              uint32_t kind, uint64_t *room)
{
    cudaError_t code =
        wf_cuda_launch_fill(cuda->stream, (uint32_t *)(void *)room, 0, sizeof *room / 4);

    return code == cudaSuccess ? wf_cuda_launch_digest(cuda->stream, t, path_hash, kind, room)
                               : code;
}

/* Computes a digest on the device; only the sum is copied to the host. */
static wf_status digest(const wf_tensor *t, uint64_t path_hash, uint32_t kind, uint64_t *sum)
{
    const wf_cuda_host *host = wf_cuda_host_table;
    wf_cuda *cuda = host->context_device(t->ctx)->self;
    wf_pool *pool = host->context_pool(t->ctx);
    wf_error error = {WF_OK, ""};
    uint64_t *room = host->pool_take(pool, sizeof *room, WF_MEMORY_WORKSPACE, &error);

    if (room) {
        wf_cuda_enter(cuda);
        wf_cuda_note(cuda, sum_digest(cuda, t, path_hash, kind, room), "digest");
        read_back(&cuda->device, sum, room, sizeof *room, &error);
        host->pool_give(pool, room, sizeof *room, WF_MEMORY_WORKSPACE);
    }
    return error.code == WF_OK ? WF_OK : host->fail(t->ctx, error.code, "%s", error.text);
}

const wf_device_memory wf_cuda_memory = {.read = read_back,
                                         .write = write_there,
                                         .copy = wf_cuda_copy,
                                         .copy_all = wf_cuda_copy_all,
                                         .reduce = wf_cuda_reduce,
                                         .fill = fill,
                                         .wait = wait,
                                         .mark = wf_cuda_mark,
                                         .follow = wf_cuda_follow,
                                         .point_wait = wf_cuda_point_wait,
                                         .point_free = wf_cuda_point_free,
                                         .copy_begin = wf_cuda_copy_begin,
                                         .copy_join = wf_cuda_copy_join,
                                         .copy_wait = wf_cuda_copy_wait,
                                         .digest = digest};
