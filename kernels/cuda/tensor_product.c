/*
 * kernels/cuda/tensor_product.c - which kernel makes a product in exact mode.
 *
 * An element of the result is one expression in every layout, since the kernels say how a chunk
 * is summed: of f32 from its first term on, each added by a multiply-add, which is the CPU's
 * expression; of bf16 16 terms by one instruction of the tensor cores, added to the sum of
 * those before. What the instruction does with an element does not depend on where it lies. On
 * an H200 mma.sync and wgmma have the same bits, as far as was looked (docs/gpu.md); nothing
 * relies on it: which of them serves is a question to the GPU alone. The two kernels by wgmma
 * make one expression: which of these serves is a question of time (tensor_choice.c). So does
 * the third one, which alone takes weights of nf4 there.
 */
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/cuda/wgmma_internal.h"

enum { CODED_ROWS = 512, CODED_ROWS_HOPPER = 64 };

cudaError_t wf_cuda_launch_tensor_kernel(const wf_cuda *cuda, wf_tensor_kernel kernel,
                                         const wf_tensor_product *p)
{
    if (p->coded && kernel != WF_TENSOR_MMA)
        return wf_cuda_launch_nf4_product_hopper(cuda->stream, p);
    switch (kernel) {
    case WF_TENSOR_WGMMA:
        return wf_cuda_launch_tensor_product_hopper(cuda->stream, p, cuda->processors);
    case WF_TENSOR_PERSISTENT:
        return wf_cuda_launch_tensor_product_persistent(cuda->stream, p, cuda->processors);
    default:
        return wf_cuda_launch_tensor_product(cuda->stream, p);
    }
}

/* Takes any number of rows of f32: a number that is widened meets 128 rows, and few
   instructions are no multiply-adds. Tensor cores leave little time for it: with more rows the
   matrix is widened once, before; on Hopper, whose kernel for many rows has tiles copied as
   they are, with more than one tile. */
bool wf_cuda_tensor_product_takes_nf4(const wf_call *call, wf_dtype type, int64_t m)
{
    return type == WF_F32 ||
           m <=
               (wf_cuda_multiplies_by_wgmma(wf_cuda_of(call)) ? CODED_ROWS_HOPPER : CODED_ROWS);
}

wf_status wf_cuda_tensor_product_run(const wf_call *call, const wf_tensor_product *p)
{
    const wf_cuda *cuda = wf_cuda_of(call);
    wf_tensor_kernel kernel = WF_TENSOR_MMA;
    wf_status status = WF_OK;

    if (p->type == WF_F32)
        return wf_cuda_check(call->ctx, wf_cuda_launch_float_product(cuda->stream, p),
                             call->op->name);
    status = wf_cuda_choose_tensor_kernel(call, p, &kernel);
    return status == WF_OK
               ? wf_cuda_check(call->ctx, wf_cuda_launch_tensor_kernel(cuda, kernel, p),
                               call->op->name)
               : status;
}
