/* kernels/cpu/cpu_internal.h - what the CPU's kernels have at hand: the inner loops and the
   thread pool. */
#ifndef WF_KERNELS_CPU_CPU_INTERNAL_H
#define WF_KERNELS_CPU_CPU_INTERNAL_H

#include "core/numerics/dynamic8.h"
#include "kernels/cpu/simd_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include "kernels/op_table_internal.h"

typedef struct wf_cpu {
    wf_device device;
    const wf_simd *simd;
    wf_thread_pool *pool;
    wf_dynamic8_map dynamic8[2]; /* tables of moments of 8 bits: with signs, and without */
} wf_cpu;

#define VIEW(name, signature, flags)
#define OP(name, signature, flags) extern const wf_kernel wf_cpu_##name;
#include "kernels/ops.def"
#undef OP

/* table.c: the kernel of an op; NULL: an application's that brings none. */
const wf_kernel *wf_cpu_kernel(const wf_device *device, const wf_op *op);

/* nf4.c: wf_device.widen_nf4 */
void wf_cpu_widen_nf4(const wf_device *device, const wf_tensor *t, wf_dtype as, void *to);

static inline wf_cpu *wf_cpu_of(const wf_call *call)
{
    return wf_context_device(call->ctx)->self;
}

#endif
