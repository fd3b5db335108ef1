/*
 * kernels/cuda/tensor_product.c - which kernel makes a product in exact mode.
 *
 * An element of the result is one expression in every layout, since the kernels say how a chunk
 * is summed: of f32 from its first term on, each added by a multiply-add, which is the CPU's
 * expression; of bf16 16 terms by one instruction of the tensor cores, added to the sum of
 * those before. What the instruction does with an element does not depend on where it lies. On
 * an H200 the two kernels of bf16 have the same bits, as far as was looked (docs/gpu.md);
 * nothing relies on it: which of them serves is a question to the GPU alone.
 */
#include "kernels/cuda/tensor_product_internal.h"
#include <stdlib.h>
#include <string.h>

enum { HOPPER = 90, CODED_ROWS = 512, CODED_ROWS_HOPPER = 64 };

/* Returns true where the kernel for Hopper serves, unless the environment asks for the
   other. */
static bool is_hopper(const wf_cuda *cuda)
{
    const char *asked = getenv("WEFT_TENSOR_CORES");

    return cuda->arch == HOPPER && !(asked && strcmp(asked, "mma") == 0);
}

/* Takes any number of rows of f32: a number that is widened meets 128 rows, and few
   instructions are no multiply-adds. Tensor cores leave little time for it: with more rows the
   matrix is widened once, before; on Hopper, whose kernel for many rows has tiles copied as
   they are, with more than one tile. */
bool wf_cuda_tensor_product_takes_nf4(const wf_call *call, wf_dtype type, int64_t m)
{
    return type == WF_F32 ||
           m <= (is_hopper(wf_cuda_of(call)) ? CODED_ROWS_HOPPER : CODED_ROWS);
}

wf_status wf_cuda_tensor_product_run(const wf_call *call, const wf_tensor_product *p)
{
    const wf_cuda *cuda = wf_cuda_of(call);
    cudaError_t code;

    if (p->type == WF_F32)
        code = wf_cuda_launch_float_product(cuda->stream, p);
    else if (is_hopper(cuda) && p->coded)
        code = wf_cuda_launch_nf4_product_hopper(cuda->stream, p);
    else if (is_hopper(cuda))
        code = wf_cuda_launch_tensor_product_hopper(cuda->stream, p, cuda->processors);
    else
        code = wf_cuda_launch_tensor_product(cuda->stream, p);
    return wf_cuda_check(call->ctx, code, call->op->name);
}
