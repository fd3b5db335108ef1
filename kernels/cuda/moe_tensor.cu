/*
 * kernels/cuda/moe_tensor.cu - grouped products of bf16 by mma.sync, which every GPU from
 * compute capability 8.0 on has.
 */
#include "kernels/cuda/moe_tensor_rows_internal.h"
#include "kernels/cuda/moe_tensor_weights_internal.h"

const wf_moe_products wf_cuda_moe_mma = {launch_rows<group_mma>, launch_weights<group_mma>};
