/*
 * tests/nccl/device_memory.c - a device that does everything later, on an emulated stream: what
 * does not wait for it finds nothing there, and what it does not wait for is gone.
 */
#include "tests/nccl/device_memory.h"
#include "core/numerics/bf16.h"
#include "core/numerics/digest.h"
#include "tests/mesh/ranks.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <time.h>

struct wf_point {
    cudaEvent_t event;
};

typedef struct reduce_job {
    wf_reduce reduce;
    const void *pointers[]; /* sources, then targets */
} reduce_job;

static void copy_rows(const wf_copy *c)
{
    for (int64_t r = 0; r < c->rows; r++)
        memmove((char *)c->to + (size_t)r * c->to_step,
                (const char *)c->from + (size_t)r * c->from_step, c->bytes);
}

static float tree_or_chain(const float *x, int n, bool tree)
{
    int left = tree ? n / 2 : n - 1;

    return n == 1 ? x[0]
                  : tree_or_chain(x, left, tree) + tree_or_chain(x + left, n - left, tree);
}

static void reduce_floats(const wf_reduce *r)
{
    float *x = malloc((size_t)r->n_src * sizeof *x);

    for (int64_t i = 0; i < r->n; i++) {
        float y;

        for (int s = 0; s < r->n_src; s++)
            x[s] = ((const float *)r->src[s])[i];
        y = x[0];
        for (int s = 1; s < r->n_src && r->maximum; s++)
            y = x[s] > y ? x[s] : y;
        if (!r->maximum)
            y = tree_or_chain(x, r->n_src, r->tree);
        for (int d = 0; d < r->n_dst; d++)
            if (r->out_element == sizeof y)
                ((float *)r->dst[d])[i] = y;
            else
                ((uint16_t *)r->dst[d])[i] = wf_bf16_of(y);
    }
    free(x);
}

static void run_copy(void *opaque)
{
    copy_rows(opaque);
    free(opaque);
}

static void run_reduce(void *opaque)
{
    reduce_floats(&((reduce_job *)opaque)->reduce);
    free(opaque);
}

/* The rank's own queue, or the other one, which is the device's `self`. */
static cudaStream_t queue_of(const wf_device *device, bool side_stream)
{
    return side_stream ? device->self : device->queue;
}

static wf_status later(wf_device *device, bool side_stream, void (*run)(void *), void *job,
                       wf_error *error)
{
    if (job && cudaLaunchHostFunc(queue_of(device, side_stream), run, job) == cudaSuccess)
        return WF_OK;
    return wf_error_set(error, WF_ENOMEM, "the emulated stream takes no more");
}

static wf_status queue_copy(wf_device *device, const wf_copy *copy, bool side_stream,
                            wf_error *error)
{
    wf_copy *job = malloc(sizeof *job);

    if (job)
        *job = *copy;
    return later(device, side_stream, run_copy, job, error);
}

static wf_status queue_copies(wf_device *device, const wf_copy *copies, int64_t n,
                              bool side_stream, wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < n && status == WF_OK; i++)
        status = queue_copy(device, &copies[i], side_stream, error);
    return status;
}

static wf_status queue_sum(wf_device *device, const wf_reduce *r, bool side_stream,
                           wf_error *error)
{
    size_t pointers = (size_t)r->n_src + (size_t)r->n_dst;
    reduce_job *job = malloc(sizeof *job + pointers * sizeof *job->pointers);

    if (job) {
        job->reduce = *r;
        memcpy(job->pointers, r->src, (size_t)r->n_src * sizeof *r->src);
        memcpy(job->pointers + r->n_src, r->dst, (size_t)r->n_dst * sizeof *r->dst);
        job->reduce.src = job->pointers;
        job->reduce.dst = (void *const *)(job->pointers + r->n_src);
    }
    return later(device, side_stream, run_reduce, job, error);
}

static wf_status queue_reduce(wf_device *device, const wf_reduce *reductions, int64_t n,
                              bool side_stream, wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < n && status == WF_OK; i++)
        status = queue_sum(device, &reductions[i], side_stream, error);
    return status;
}

static wf_status mark(wf_device *device, bool side_stream, wf_point **point, wf_error *error)
{
    if (!*point && (*point = malloc(sizeof **point)) &&
        cudaEventCreateWithFlags(&(*point)->event, 0) != cudaSuccess) {
        free(*point);
        *point = NULL;
    }
    if (*point &&
        cudaEventRecord((*point)->event, queue_of(device, side_stream)) == cudaSuccess)
        return WF_OK;
    return wf_error_set(error, WF_ENOMEM, "no memory for an event");
}

static wf_status follow(wf_device *device, bool side_stream, const wf_point *point,
                        wf_error *error)
{
    if (cudaStreamWaitEvent(queue_of(device, side_stream), point->event, 0) == cudaSuccess)
        return WF_OK;
    return wf_error_set(error, WF_ENOMEM, "no memory for an event");
}

static wf_status point_wait(const wf_point *point, wf_error *error)
{
    (void)error;
    while (cudaEventQuery(point->event) == cudaErrorNotReady)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return WF_OK;
}

static void point_free(wf_point *point)
{
    if (point)
        cudaEventDestroy(point->event);
    free(point);
}

static const wf_device_memory queued = {.copy = queue_copy,
                                        .copy_all = queue_copies,
                                        .reduce = queue_reduce,
                                        .mark = mark,
                                        .follow = follow,
                                        .point_wait = point_wait,
                                        .point_free = point_free};

static void *take(void *self, size_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);

    (void)self;
    if (block)
        memset(block, 0xff, bytes);
    return block;
}

static void give(void *self, void *block, size_t bytes)
{
    (void)bytes;
    cudaLaunchHostFunc(((wf_device *)self)->queue, free, block);
}

/* One a thread, which is a rank. */
static _Thread_local wf_device device;
static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void end_queues(void *opaque)
{
    const wf_device *d = opaque;

    cudaStreamDestroy(d->queue);
    cudaStreamDestroy(d->self);
}

static void make_key(void)
{
    pthread_key_create(&at_end, end_queues);
}

struct wf_device *test_device(void)
{
    cudaStream_t queue, side;

    pthread_once(&once, make_key);
    if (!device.queue && cudaStreamCreateWithPriority(&queue, 0, 0) == cudaSuccess &&
        cudaStreamCreateWithPriority(&side, 0, 0) == cudaSuccess) {
        pthread_setspecific(at_end, &device);
        device = (wf_device){.name = "emulated",
                             .dtype = WF_F32,
                             .allocator = {.alloc = take, .release = give, .self = &device},
                             .memory = &queued,
                             .queue = queue,
                             .self = side};
    }
    return &device;
}

void test_device_settle(void)
{
    cudaStreamSynchronize(device.queue);
}

static wf_status read_now(wf_device *d, void *host, const void *from, size_t bytes,
                          wf_error *error)
{
    (void)d, (void)error;
    memcpy(host, from, bytes);
    return WF_OK;
}

static void write_now(wf_device *d, void *to, const void *host, size_t bytes)
{
    (void)d;
    memcpy(to, host, bytes);
}

static wf_status copy_now(wf_device *d, const wf_copy *copy, bool side_stream, wf_error *error)
{
    (void)d, (void)side_stream, (void)error;
    copy_rows(copy);
    return WF_OK;
}

static wf_status copy_all_now(wf_device *d, const wf_copy *copies, int64_t n, bool side_stream,
                              wf_error *error)
{
    (void)d, (void)side_stream, (void)error;
    for (int64_t i = 0; i < n; i++)
        copy_rows(&copies[i]);
    return WF_OK;
}

static wf_status reduce_now(wf_device *d, const wf_reduce *reductions, int64_t n,
                            bool side_stream, wf_error *error)
{
    (void)d, (void)side_stream, (void)error;
    for (int64_t i = 0; i < n; i++)
        reduce_floats(&reductions[i]);
    return WF_OK;
}

static void fill_now(wf_device *d, void *to, uint32_t word, int64_t n)
{
    (void)d;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * sizeof word, &word, sizeof word);
}

static wf_status wait_now(wf_device *d, wf_error *error)
{
    (void)d, (void)error;
    return WF_OK;
}

static wf_status digest_now(const wf_tensor *t, uint64_t path_hash, uint32_t kind,
                            uint64_t *digest)
{
    int64_t size[WF_MAX_DIMS];

    for (int d = 0; d < t->ndim; d++)
        size[d] = t->dim[d].size;
    *digest = wf_digest_part(path_hash, kind, t->ndim, size, t->start, t->local, t->data);
    return WF_OK;
}

const wf_device_memory memory_at_once = {.read = read_now,
                                         .write = write_now,
                                         .copy = copy_now,
                                         .copy_all = copy_all_now,
                                         .reduce = reduce_now,
                                         .fill = fill_now,
                                         .wait = wait_now,
                                         .digest = digest_now};
