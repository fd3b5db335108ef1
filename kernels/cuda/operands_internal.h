/*
 * kernels/cuda/operands_internal.h - in which type the tensors of a call are stored, and the
 * kernel that is compiled for it. Activations of a call (wf_kernel.all_bf16) are all f32 or all
 * bf16, or dispatch widens them; vectors of parameters (wf_kernel.mixed_ok) may be either, each
 * for itself; all other floats (statistics, sums, losses, gradients of vectors) are f32.
 */
#ifndef WF_KERNELS_CUDA_OPERANDS_INTERNAL_H
#define WF_KERNELS_CUDA_OPERANDS_INTERNAL_H

#include "kernels/cuda/launch_internal.h"
#include "kernels/shared_internal.h"

static inline wf_status wf_refuse_dtype(const wf_call *call, const wf_tensor *t, bool output,
                                        int i, const char *must)
{
    static const char *const names[] = {"f32", "f64",      "bf16",     "i32",
                                        "nf4", "dynamic8", "dynamic8u"};

    return wf_cuda_host_table->fail(
        call->ctx, WF_EDTYPE, "%s: %s %d is %s, but the GPU's kernel takes it as %s",
        call->op->name, output ? "output" : "operand", i, names[t->dtype], must);
}

/* Checks the types: WF_OK and *bf16, or WF_EDTYPE. */
static inline wf_status wf_check_types(const wf_call *call, bool *bf16)
{
    const wf_kernel *kernel = wf_cuda_row(call->op->id);
    wf_dtype stored = WF_DTYPES;

    for (int k = 0; k < call->n_in + call->n_out; k++) {
        bool output = k >= call->n_in;
        int i = output ? k - call->n_in : k;
        const wf_tensor *t = output ? call->out[i] : call->in[i];
        unsigned bit = output ? WF_OUT(i) : WF_IN(i);
        bool either = (kernel->mixed_ok & bit) != 0;

        if (!output && ((call->op->integers | call->op->shapes) >> i & 1))
            continue;
        if (wf_dtype_is_dynamic8(t->dtype) && !output && (kernel->dynamic8_ok & bit))
            continue;
        if (kernel->all_bf16 & bit) {
            if (stored == WF_DTYPES)
                stored = t->dtype;
            if (t->dtype != stored || (stored != WF_F32 && stored != WF_BF16))
                return wf_refuse_dtype(call, t, output, i, "the first one's f32 or bf16");
        } else if (t->dtype != WF_F32 && !(either && t->dtype == WF_BF16)) {
            return wf_refuse_dtype(call, t, output, i, either ? "f32 or bf16" : "f32");
        }
    }
    *bf16 = stored == WF_BF16;
    return WF_OK;
}

/*
 * Checks the types, calls launch(a value of the storage type), which gives a cudaError_t, and
 * returns its status:  return wf_run(call, [&](auto zero) { typedef decltype(zero) T; ..
 */
template <class L> static inline wf_status wf_run(const wf_call *call, L launch)
{
    bool bf16 = false;
    wf_status status = wf_check_types(call, &bf16);

    if (status != WF_OK)
        return status;
    return wf_cuda_check(call->ctx, bf16 ? launch(wf_bf16{0}) : launch(0.0f), call->op->name);
}

static inline int64_t wf_count(const wf_tensor *t)
{
    return wf_extent(t, 0, t->ndim);
}

/* Returns the rows of the last dim, and its length. */
static inline int64_t wf_rows(const wf_tensor *t)
{
    return wf_extent(t, 0, t->ndim - 1);
}

static inline int64_t wf_width(const wf_tensor *t)
{
    return t->local[t->ndim - 1];
}

/* Cuts n chunks further, to eight pieces that are the leaves of a tree in which each chunk is a
   node; n divides eight. at[]: n + 1 local offsets, then nine. */
static inline void wf_cut_to_eight(int64_t at[WF_MAX_CHUNKS + 1], int n)
{
    const int pieces = WF_MAX_CHUNKS / n;

    for (int l = n - 1; l >= 0; l--) {
        const int64_t first = at[l], length = at[l + 1] - first;

        for (int i = pieces; i >= 0; i--)
            at[l * pieces + i] = first + wf_cut(length, 1, pieces, i);
    }
}

#endif
