/*
 * kernels/cuda/device.c - one rank's GPU: its streams, the functions of the device table that
 * compute, and failures, which CUDA reports late.
 *
 * A launch that cannot start is reported at once; one that fails while it runs is reported by
 * whatever is called next, and stays: CUDA then says the same to every call. So the name that
 * an error carries is that of the op which noticed, and CUDA_LAUNCH_BLOCKING=1 in the
 * environment finds the one that failed.
 */
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/levels_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Several threads may see a failure of one device: the rank's own and those that work on
   exchanges. */
typedef struct owned {
    wf_cuda cuda;
    pthread_mutex_t lock;
    wf_error failure;
} owned;

static wf_cuda *cuda_of(const wf_device *device)
{
    return device->self;
}

void wf_cuda_enter(const wf_cuda *cuda)
{
    cudaSetDevice(cuda->ordinal); /* a failure is that of the next call as well */
}

static void describe(char *text, size_t size, cudaError_t code, const char *what)
{
    snprintf(text, size, "%s: the GPU says %s (%s)", what, cudaGetErrorString(code),
             cudaGetErrorName(code));
}

static wf_status status_of(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? WF_ENOMEM : WF_EDEVICE;
}

void wf_cuda_note(wf_cuda *cuda, cudaError_t code, const char *what)
{
    char text[256];

    if (code == cudaSuccess)
        return;
    describe(text, sizeof text, code, what);
    pthread_mutex_lock(cuda->lock);
    wf_cuda_host_table->error_set(cuda->failure, status_of(code), "%s", text);
    pthread_mutex_unlock(cuda->lock);
}

wf_status wf_cuda_failure(wf_cuda *cuda, wf_error *error)
{
    wf_status status;

    pthread_mutex_lock(cuda->lock);
    status = cuda->failure->code;
    if (status != WF_OK)
        wf_cuda_host_table->error_set(error, status, "%s", cuda->failure->text);
    pthread_mutex_unlock(cuda->lock);
    return status;
}

wf_status wf_cuda_check(wf_context *ctx, cudaError_t code, const char *what)
{
    wf_cuda *cuda = cuda_of(wf_cuda_host_table->context_device(ctx));
    wf_error error = {WF_OK, ""};

    wf_cuda_note(cuda, code, what);
    if (wf_cuda_failure(cuda, &error) == WF_OK)
        return WF_OK;
    return wf_cuda_host_table->fail(ctx, error.code, "%s", error.text);
}

__thread wf_device_counts wf_cuda_counts;

static wf_device_counts counts(void)
{
    return wf_cuda_counts;
}

static void add(const wf_tensor *a, const wf_tensor *b, wf_tensor *out)
{
    wf_cuda *cuda = cuda_of(wf_cuda_host_table->context_device(a->ctx));
    int64_t n = wf_cuda_host_table->tensor_local_count(a);

    wf_cuda_enter(cuda);
    if (n)
        wf_cuda_note(cuda,
                     wf_cuda_launch_add(cuda->stream, a->data, b->data, out->data, a->dtype, n),
                     "add");
}

static void narrow(const wf_device *device, const void *from, uint16_t *to, int64_t n)
{
    wf_cuda *cuda = cuda_of(device);

    wf_cuda_enter(cuda);
    if (n)
        wf_cuda_note(cuda, wf_cuda_launch_narrow(cuda->stream, from, to, n), "cast");
}

static void widen(const wf_device *device, const uint16_t *from, void *to, int64_t n)
{
    wf_cuda *cuda = cuda_of(device);

    wf_cuda_enter(cuda);
    if (n)
        wf_cuda_note(cuda, wf_cuda_launch_widen(cuda->stream, from, to, n), "cast");
}

static void widen_nf4(const wf_device *device, const wf_tensor *t, wf_dtype as, void *to)
{
    wf_cuda *cuda = cuda_of(device);

    wf_cuda_enter(cuda);
    if (wf_cuda_host_table->tensor_local_count(t))
        wf_cuda_note(cuda, wf_cuda_launch_nf4(cuda, t, as, to), "cast");
}

/* Describes rows of a tensor and their chunks, as kernels/squares.c cuts them. */
static wf_cuda_squared squared(const wf_tensor *t)
{
    int d = t->ndim > 2 && t->dim[0].chunks == WF_CHUNKS_EXPERTS ? 2 : 1; /* the dim cut */
    wf_cuda_squared s = {.x = t->data, .rows = 1, .columns = 1, .chunks = 1, .at = {0, 1}};
    int64_t inner = 1;

    for (int i = 0; i < d && i < t->ndim; i++)
        s.rows *= t->local[i];
    if (t->ndim < 2)
        return s;
    for (int i = d + 1; i < t->ndim; i++)
        inner *= t->local[i];
    s.columns = t->local[d] * inner;
    s.chunks = WF_MAX_CHUNKS;
    for (int l = 1; l <= WF_MAX_CHUNKS; l++) {
        int64_t cut = wf_cut(t->dim[d].size, t->dim[d].grain, WF_MAX_CHUNKS, l) - t->start[d];

        s.at[l] = (cut < 0 ? 0 : cut > t->local[d] ? t->local[d] : cut) * inner;
    }
    return s;
}

static void sum_squares(int64_t n, wf_tensor *const *tensor, struct wf_exact_sum *sum)
{
    wf_cuda_squared list[WF_CUDA_SQUARED];
    wf_cuda *cuda = n ? cuda_of(wf_cuda_host_table->context_device(tensor[0]->ctx)) : NULL;

    for (int64_t i = 0; i < n;) {
        int k = 0;

        for (; i < n && k < WF_CUDA_SQUARED; i++) {
            list[k] = squared(tensor[i]);
            k += list[k].rows && list[k].columns;
        }
        wf_cuda_enter(cuda);
        wf_cuda_note(cuda, wf_cuda_launch_squares(cuda->stream, k, list, sum), "sum_squares");
    }
}

static void close_device(wf_device *device)
{
    owned *o = (owned *)device->self;
    wf_cuda *cuda = &o->cuda;

    if (cuda->ordinal >= 0) {
        wf_cuda_enter(cuda);
        if (cuda->stream)
            cudaStreamSynchronize(cuda->stream);
        wf_cuda_graph_close(cuda);
        wf_cuda_levels_close(cuda);
        wf_cuda_rope_close(cuda);
        wf_cuda_math_close(cuda);
        wf_cuda_memory_close(cuda);
        wf_cuda_transfers_close(cuda);
        if (cuda->moves)
            cudaStreamDestroy(cuda->moves);
        if (cuda->stream)
            cudaStreamDestroy(cuda->stream);
    }
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static cudaError_t ask(wf_cuda *cuda)
{
    int major = 0, minor = 0;
    cudaError_t code = cudaSetDevice(cuda->ordinal);

    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&cuda->processors, cudaDevAttrMultiProcessorCount,
                                      cuda->ordinal);
    cuda->arch = 10 * major + minor;
    return code;
}

static wf_status open_gpu(wf_cuda *cuda, int readers, wf_error *error)
{
    cudaError_t code = ask(cuda);

    if (code == cudaSuccess)
        code = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess)
        code = cudaStreamCreateWithFlags(&cuda->moves, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        return wf_cuda_host_table->error_set(error, status_of(code),
                                             "GPU %d cannot be opened: %s (%s)", cuda->ordinal,
                                             cudaGetErrorString(code), cudaGetErrorName(code));
    if (cuda->arch < 80)
        return wf_cuda_host_table->error_set(
            error, WF_EUNSUPPORTED,
            "GPU %d has compute capability %d.%d, and kernels are made for 8.0 and later: use "
            ".device cpu, or choose another GPU by CUDA_VISIBLE_DEVICES",
            cuda->ordinal, cuda->arch / 10, cuda->arch % 10);
    cuda->device.queue = cuda->stream;
    return wf_cuda_memory_open(cuda, readers, error);
}

wf_device *wf_cuda_device_open(const wf_cuda_options *options, wf_error *error)
{
    owned *o = calloc(1, sizeof *o);
    wf_cuda *cuda = o ? &o->cuda : NULL;

    if (!o) {
        wf_cuda_host_table->error_set(error, WF_ENOMEM, "no memory for a device");
        return NULL;
    }
    pthread_mutex_init(&o->lock, NULL);
    *cuda = (wf_cuda){.ordinal = options->plan ? -1 : options->ordinal,
                      .arch = 90,
                      .processors = 132,
                      .tf32 = options->tf32,
                      .failure = &o->failure,
                      .lock = &o->lock};
    cuda->device = (wf_device){.name = "cuda",
                               .dtype = WF_F32,
                               .memory = &wf_cuda_memory,
                               .graphs = &wf_cuda_graphs,
                               .counts = counts,
                               .kernel = wf_cuda_kernel,
                               .sum_squares = sum_squares,
                               .add = add,
                               .narrow = narrow,
                               .widen = widen,
                               .widen_nf4 = widen_nf4,
                               .close = close_device,
                               .self = o};
    if (options->plan || open_gpu(cuda, options->readers, error) == WF_OK)
        return &cuda->device;
    close_device(&cuda->device);
    return NULL;
}
