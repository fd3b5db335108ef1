/*
 * kernels/cuda/table.c - the kernel of every row of kernels/ops.def: wf_cuda_<row>, in the file
 * that is named like the row's own. One that is not there has a reason in missing.def, and its
 * call is an error that says it, in a plan as well.
 */
#include "kernels/cuda/device_internal.h"

#define VIEW(name, signature, flags)
#define OP(name, signature, flags) extern const wf_kernel wf_cuda_##name __attribute__((weak));
#include "kernels/ops.def"
#undef OP

static const wf_kernel *const rows[WF_ID_count] = {
#define VIEW(name, signature, flags)
#define OP(name, signature, flags) [WF_ID_##name] = &wf_cuda_##name,
#include "kernels/ops.def"
#undef OP
};

static const bool needed[WF_ID_count] = {
#define VIEW(name, signature, flags)
#define OP(name, signature, flags) [WF_ID_##name] = true,
#include "kernels/ops.def"
#undef OP
};

static const char *const reasons[WF_ID_count] = {
#define MISSING(name, reason) [WF_ID_##name] = reason,
#include "kernels/cuda/missing.def"
#undef MISSING
    [WF_ID_none] = NULL};

const wf_kernel *wf_cuda_row(int id)
{
    return rows[id];
}

const char *wf_cuda_missing(int id)
{
    if (id <= 0 || id >= WF_ID_count || rows[id] || !needed[id])
        return NULL;
    return reasons[id] ? reasons[id] : "it is not written";
}

/* Workspace is what a plan asks for too. */
static size_t refuse(const wf_call *call)
{
    wf_cuda_host_table->fail(call->ctx, WF_EUNSUPPORTED,
                             "%s does not run on the GPU: %s; use .device cpu", call->op->name,
                             wf_cuda_missing(call->op->id));
    return 0;
}

static wf_status never(const wf_call *call, void *workspace)
{
    (void)call, (void)workspace;
    return WF_EUNSUPPORTED;
}

const wf_kernel *wf_cuda_kernel(const wf_device *device, const wf_op *op)
{
    static const wf_kernel refused = {.run = never, .workspace = refuse};
    const wf_kernel *kernel = wf_kernel_lookup(device, rows, op);
    const wf_cuda *cuda = device->self;

    if (!kernel)
        return wf_cuda_missing(op->id) ? &refused : NULL;
    if (cuda->ordinal >= 0)
        wf_cuda_enter(cuda);
    return kernel;
}
