/*
 * kernels/cuda/cuda_internal.h - what the files of the CUDA plugin share: the device, the
 * host's table, and the launchers of what the device table needs beyond ops. For C and C++,
 * with C linkage.
 */
#ifndef WF_KERNELS_CUDA_CUDA_INTERNAL_H
#define WF_KERNELS_CUDA_CUDA_INTERNAL_H

#include "kernels/cuda_host_internal.h"
#include "kernels/now.h"
#include "kernels/op_table_internal.h"
#include <cublasLt.h>
#include <cuda_runtime.h>

WF_BEGIN_DECLS

extern const wf_cuda_host *wf_cuda_host_table;

/* Returns the kernel of a row of ops.def that has one. */
const wf_kernel *wf_cuda_row(int id);

/* One rank's GPU. */
typedef struct wf_cuda {
    wf_device device; /* device.queue is `stream` */
    int ordinal;      /* -1: none, memory is only planned; kernels are not run then */
    int arch;         /* 90 for compute capability 9.0; of a plan 90 */
    int processors;   /* streaming multiprocessors; of a plan those of an H200, 132 */
    bool tf32;
    cudaStream_t stream;   /* all that the rank computes, in order */
    cudaStream_t moves;    /* stream of exchanges between ranks, used by any thread */
    cublasLtHandle_t blas; /* made when first asked for (linear.c), closed with the device */
    void *math;            /* linear.c's and attention.c's own: algorithms, plans */
    struct wf_cuda_staging *staging;     /* memory.c: pinned memory on the way to the GPU */
    struct wf_cuda_transfers *transfers; /* transfers.c; NULL: none has begun */
    struct wf_cuda_levels *levels;       /* levels.c: on the device; NULL: not asked for yet */
    struct wf_cuda_rope_kept *rope_tables; /* rope_table.cu */
    bool capturing;                        /* graph.c: the stream is captured */
    wf_now *now; /* graph.c: what captured kernels read; there from the first capture on */
    wf_error *failure; /* the first failure that could not be returned at once; under `lock` */
    void *lock;
} wf_cuda;

static inline wf_cuda *wf_cuda_of(const wf_call *call)
{
    return (wf_cuda *)wf_cuda_host_table->context_device(call->ctx)->self;
}

/* Counts the work and the waits that this thread has asked of its GPU so far. */
extern __thread wf_device_counts wf_cuda_counts;

/* Returns where a kernel of this call finds the numbers of the step that will run; NULL: they
   are those of the call. */
static inline const wf_now *wf_cuda_now(const wf_call *call)
{
    const wf_cuda *cuda = wf_cuda_of(call);

    return cuda->capturing ? cuda->now : NULL;
}

/* Checks a code: WF_OK, or a failure in the context that names `what` and says what CUDA says.
   A kernel's run() ends with `return wf_cuda_check(call->ctx, cudaGetLastError(),
   call->op->name)`. */
wf_status wf_cuda_check(wf_context *ctx, cudaError_t code, const char *what);

/* Notes a failure where there is no context for it: the next check, read or wait reports it. */
void wf_cuda_note(wf_cuda *cuda, cudaError_t code, const char *what);

#define VIEW(name, signature, flags)
#define OP(name, signature, flags) extern const wf_kernel wf_cuda_##name;
#include "kernels/ops.def"
#undef OP

/* ---- launchers, in reduce.cu, storage.cu, measure.cu and judge.cu ---- */

enum { WF_CUDA_SOURCES = 64, WF_CUDA_TARGETS = 64 };

/* Makes n reductions (core/device.h). At index i dst[d][i] = the midpoint tree over s of
   src[s][i], or their chain, or the greatest (a NaN where one is, +0 for either zero). Each
   source is read before a target is written at i, so a target may be a source. Of floats
   (element 4), or of bf16 (element 2) summed in float and rounded once. */
cudaError_t wf_cuda_launch_reduce(cudaStream_t stream, const wf_reduce *reductions, int64_t n);

enum { WF_CUDA_COPIES = 64 }; /* by one launch, at most */

/* Makes copies, of which none touches what another one writes. */
cudaError_t wf_cuda_launch_copies(cudaStream_t stream, const wf_copy *copies, int64_t n);

/* out = a + b, both f32 or bf16 (added in float, rounded once); out may be a. */
cudaError_t wf_cuda_launch_add(cudaStream_t stream, const void *a, const void *b, void *out,
                               wf_dtype dtype, int64_t n);
/* core/numerics/bf16.h: to nearest even, denormals flushed */
cudaError_t wf_cuda_launch_narrow(cudaStream_t stream, const float *from, uint16_t *to,
                                  int64_t n);
cudaError_t wf_cuda_launch_widen(cudaStream_t stream, const uint16_t *from, float *to,
                                 int64_t n);
cudaError_t wf_cuda_launch_fill(cudaStream_t stream, uint32_t *to, uint32_t word, int64_t n);

enum { WF_CUDA_SQUARED = 32 }; /* tensors of a launch, at most */

/* The local part of a tensor whose squares are summed: rows, each of some chunks. */
typedef struct wf_cuda_squared {
    const float *x;
    int64_t rows, columns;         /* columns: elements of a row */
    int64_t at[WF_MAX_CHUNKS + 1]; /* starts of its chunks, and the end of the last */
    int chunks;
} wf_cuda_squared;

/* *sum += for all tensors, rows r and chunks l the squares, in double, of x[r * columns + at[l]
   .. at[l + 1]): element i of a chunk in lane i % 8, the lanes added 4, 2, 1 apart. */
cudaError_t wf_cuda_launch_squares(cudaStream_t stream, int n, const wf_cuda_squared *list,
                                   struct wf_exact_sum *sum);

/* *part: a rank's squares, settled, and its numbers of *now */
cudaError_t wf_cuda_launch_judge_part(cudaStream_t stream, const struct wf_exact_sum *squares,
                                      const wf_now *now, wf_judged_part *part);

/* *judge.judged: by core/device.h; and the scale of captured updates, or that they are held, to
   *now. */
cudaError_t wf_cuda_launch_judge(cudaStream_t stream, const wf_judge *judge, wf_now *now);

/* *digest += wf_digest_part of a tensor's floats */
cudaError_t wf_cuda_launch_digest(cudaStream_t stream, const wf_tensor *t, uint64_t path_hash,
                                  uint32_t kind, uint64_t *digest);

/* Runs a call of update_elements by its function on the host (update_host.c). */
wf_status wf_cuda_update_on_host(const wf_call *call);

/* Widens what is stored as nf4 to f32 or bf16 (core/nf4_tensor.h), by nf4.cu. */
cudaError_t wf_cuda_launch_nf4(wf_cuda *cuda, const wf_tensor *t, wf_dtype as, void *to);

/* rope_table.cu: frees the tables that are kept. */
void wf_cuda_rope_close(wf_cuda *cuda);

/* ---- linear.c: frees blas and math ---- */
void wf_cuda_math_close(wf_cuda *cuda);

WF_END_DECLS

#endif
