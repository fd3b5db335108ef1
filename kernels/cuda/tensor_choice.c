/*
 * kernels/cuda/tensor_choice.c - which kernel makes a product of bf16 in exact mode, on tensor
 * cores.
 *
 * A Hopper has two, whose results are the same to the bit: tensor_product_hopper.cu and
 * tensor_product_persistent_hopper.cu. Which is faster depends on the product and on the GPU,
 * so the first time that a product of a kind is asked for both are timed, on the operands that
 * it has, and the faster one serves that kind for the life of the device. The first serves
 * where turns hide nothing, since every cluster has at most one job, and under a capture, where
 * no time can be taken. Products with weights of nf4 have one kernel by wgmma.
 */
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/cuda/tile_schedule_internal.h"
#include "kernels/cuda/wgmma_internal.h"
#include <stdlib.h>
#include <string.h>

enum { HOPPER = 90, MOST = 1024, TURNS = 3, RUNS = 3 };

/* Bits of kind.has. */
enum {
    A_ALONG = 1,
    B_ALONG = 2,
    ADD = 4,
    BIAS = 8,
    GELU = 16,
    BF16 = 32,
    RESIDUAL = 64,
    GATE = 128,
    ROTATED = 256
};

/* A kind of product; without padding, since kinds are compared as bytes. */
typedef struct kind {
    int64_t m, n, terms;
    int32_t chunks, members, levels, has;
} kind;

_Static_assert(sizeof(kind) == 3 * sizeof(int64_t) + 4 * sizeof(int32_t), "no padding");

typedef struct wf_cuda_choice {
    kind of;
    wf_tensor_kernel kernel;
} wf_cuda_choice;

static const char *const names[WF_TENSOR_KERNELS] = {"mma", "wgmma", "persistent"};

/* Takes what the environment asks for; WF_TENSOR_KERNELS: nothing. */
static wf_status asked_for(const wf_call *call, const wf_cuda *cuda, wf_tensor_kernel *kernel)
{
    const char *asked = getenv("WEFT_TENSOR_CORES");
    int k = 0;

    while (asked && k < WF_TENSOR_KERNELS && strcmp(asked, names[k]) != 0)
        k++;
    *kernel = asked ? (wf_tensor_kernel)k : WF_TENSOR_KERNELS;
    if (asked && k == WF_TENSOR_KERNELS)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EINVAL,
            "%s: WEFT_TENSOR_CORES=%s is none of mma, wgmma and persistent: unset it to have "
            "the fastest",
            call->op->name, asked);
    if (asked && k != WF_TENSOR_MMA && cuda->arch != HOPPER)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "%s: WEFT_TENSOR_CORES=%s is for GPUs of compute capability 9.0, and this one has "
            "%d.%d: unset it, or set it to mma",
            call->op->name, asked, cuda->arch / 10, cuda->arch % 10);
    return WF_OK;
}

bool wf_cuda_multiplies_by_wgmma(const wf_cuda *cuda)
{
    const char *asked = getenv("WEFT_TENSOR_CORES");

    return cuda->arch == HOPPER && !(asked && strcmp(asked, names[WF_TENSOR_MMA]) == 0);
}

static kind kind_of(const wf_tensor_product *p)
{
    const wf_cuda_result *r = &p->result;
    kind k = {.m = p->m,
              .n = p->n,
              .chunks = p->chunks,
              .members = p->members,
              .levels = p->levels,
              .has = (p->a_along ? A_ALONG : 0) | (p->b_along ? B_ALONG : 0) |
                     (r->add ? ADD : 0) | (r->bias ? BIAS : 0) | (r->gelu ? GELU : 0) |
                     (r->type == WF_BF16 ? BF16 : 0) | (r->residual ? RESIDUAL : 0) |
                     (r->gate ? GATE : 0) | (r->rotation.cosine ? ROTATED : 0)};

    for (int i = 0; i < p->chunks * p->members; i++)
        k.terms += p->piece[i].depth;
    return k;
}

static cudaError_t run_several(const wf_cuda *cuda, wf_tensor_kernel kernel,
                               const wf_tensor_product *p, int runs)
{
    cudaError_t code = cudaSuccess;

    for (int i = 0; i < runs && code == cudaSuccess; i++)
        code = wf_cuda_launch_tensor_kernel(cuda, kernel, p);
    return code;
}

/* Waits for the GPU once. */
static cudaError_t time_kernel(const wf_cuda *cuda, wf_tensor_kernel kernel,
                               const wf_tensor_product *p, const cudaEvent_t event[2],
                               float *milliseconds)
{
    cudaError_t code = cudaEventRecord(event[0], cuda->stream);

    if (code == cudaSuccess)
        code = run_several(cuda, kernel, p, RUNS);
    if (code == cudaSuccess)
        code = cudaEventRecord(event[1], cuda->stream);
    if (code == cudaSuccess)
        code = cudaEventSynchronize(event[1]);
    wf_cuda_counts.syncs++;
    return code == cudaSuccess ? cudaEventElapsedTime(milliseconds, event[0], event[1]) : code;
}

/* Times both kernels alternately, after a run of each that is not counted; the least time of
   each counts. */
static cudaError_t race(const wf_cuda *cuda, const wf_tensor_product *p,
                        const cudaEvent_t event[2], wf_tensor_kernel *faster)
{
    static const wf_tensor_kernel entrant[2] = {WF_TENSOR_WGMMA, WF_TENSOR_PERSISTENT};
    float least[2] = {0, 0}, time = 0;
    cudaError_t code = cudaSuccess;

    for (int e = 0; e < 2 && code == cudaSuccess; e++)
        code = run_several(cuda, entrant[e], p, 1);
    for (int i = 0; i < 2 * TURNS && code == cudaSuccess; i++) {
        code = time_kernel(cuda, entrant[i % 2], p, event, &time);
        if (i < 2 || time < least[i % 2])
            least[i % 2] = time;
    }
    *faster = entrant[least[1] < least[0]];
    return code;
}

/* Times both kernels. A result that is added to goes to memory of its own meanwhile; where
   there is none, nothing is timed and *faster stays. */
static cudaError_t time_both(const wf_cuda *cuda, const wf_tensor_product *p,
                             wf_tensor_kernel *faster, bool *timed)
{
    wf_tensor_product q = *p;
    size_t size = p->result.type == WF_BF16 ? 2 : 4;
    cudaEvent_t event[2] = {NULL, NULL};
    void *room = NULL;
    cudaError_t code = cudaSuccess;

    *timed = false;
    if (p->result.add) {
        if (cudaMallocAsync(&room, (size_t)(p->m * p->result.to_ld) * size, cuda->stream) !=
            cudaSuccess) {
            cudaGetLastError();
            return cudaSuccess;
        }
        q.result.to = room;
    }
    for (int i = 0; i < 2 && code == cudaSuccess; i++)
        code = cudaEventCreate(&event[i]);
    if (code == cudaSuccess)
        code = race(cuda, &q, event, faster);
    *timed = code == cudaSuccess;
    for (int i = 0; i < 2; i++)
        if (event[i])
            cudaEventDestroy(event[i]);
    if (room)
        cudaFreeAsync(room, cuda->stream);
    return code;
}

static void keep(wf_cuda_math *math, const kind *of, wf_tensor_kernel kernel)
{
    if (math->n_choices == math->choice_room) {
        int room = math->choice_room ? 2 * math->choice_room : 16;
        wf_cuda_choice *more = realloc(math->choice, (size_t)room * sizeof *more);

        if (!more)
            return; /* it is timed once more */
        math->choice = more;
        math->choice_room = room;
    }
    math->choice[math->n_choices++] = (wf_cuda_choice){*of, kernel};
}

wf_status wf_cuda_choose_tensor_kernel(const wf_call *call, const wf_tensor_product *p,
                                       wf_tensor_kernel *kernel)
{
    const wf_cuda *cuda = wf_cuda_of(call);
    wf_status status = asked_for(call, cuda, kernel);
    wf_cuda_math *math;
    kind of;
    bool timed;

    if (status != WF_OK || *kernel != WF_TENSOR_KERNELS)
        return status;
    *kernel = cuda->arch == HOPPER ? WF_TENSOR_WGMMA : WF_TENSOR_MMA;
    if (cuda->arch != HOPPER || p->coded || !wf_tensor_is_stored(p) ||
        wf_jobs_of(p->m, p->n, p->levels) <= cuda->processors / WF_CLUSTER)
        return WF_OK;
    math = wf_cuda_math_of(call);
    if (!math)
        return WF_ENOMEM;
    of = kind_of(p);
    for (int i = 0; i < math->n_choices; i++)
        if (memcmp(&math->choice[i].of, &of, sizeof of) == 0) {
            *kernel = math->choice[i].kernel;
            return WF_OK;
        }
    if (cuda->capturing || math->n_choices == MOST)
        return WF_OK;
    status = wf_cuda_check(call->ctx, time_both(cuda, p, kernel, &timed), call->op->name);
    if (status == WF_OK && timed)
        keep(math, &of, *kernel);
    return status;
}
