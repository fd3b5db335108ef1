/* kernels/cpu/table.c - the kernel of every row of kernels/ops.def on the CPU: wf_cpu_<row>. */
#include "kernels/cpu/cpu_internal.h"

static const wf_kernel *const rows[WF_ID_count] = {
#define VIEW(name, signature, flags)
#define OP(name, signature, flags) [WF_ID_##name] = &wf_cpu_##name,
#include "kernels/ops.def"
#undef OP
};

const wf_kernel *wf_cpu_kernel(const wf_device *device, const wf_op *op)
{
    return wf_kernel_lookup(device, rows, op);
}
