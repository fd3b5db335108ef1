/*
 * kernels/cpu/simd/table.c - the table of kernels of the instruction set that is being
 * compiled.
 */
#include "kernels/cpu/simd/kernels.h"

const wf_simd WF_ISA_NAME(wf_simd) = {
    .name = WF_ISA_TEXT,
    .gemm_workspace = WF_ISA_NAME(wf_gemm_workspace),
    .gemm = WF_ISA_NAME(wf_gemm),
    .add = WF_ISA_NAME(wf_add),
    .mul = WF_ISA_NAME(wf_mul),
    .scale = WF_ISA_NAME(wf_scale),
    .maximum = WF_ISA_NAME(wf_maximum),
    .sum = WF_ISA_NAME(wf_sum),
    .sum_to_all = WF_ISA_NAME(wf_sum_to_all),
    .stream = WF_ISA_NAME(wf_stream),
    .bias_add = WF_ISA_NAME(wf_bias_add),
    .silu = WF_ISA_NAME(wf_silu),
    .silu_grad = WF_ISA_NAME(wf_silu_grad),
    .gelu = WF_ISA_NAME(wf_gelu),
    .gelu_grad = WF_ISA_NAME(wf_gelu_grad),
    .layernorm = WF_ISA_NAME(wf_layernorm),
    .layernorm_grad = WF_ISA_NAME(wf_layernorm_grad),
    .layernorm_leaf = WF_ISA_NAME(wf_layernorm_leaf),
    .rmsnorm = WF_ISA_NAME(wf_rmsnorm),
    .rmsnorm_grad = WF_ISA_NAME(wf_rmsnorm_grad),
    .rmsnorm_leaf = WF_ISA_NAME(wf_rmsnorm_leaf),
    .bias_leaf = WF_ISA_NAME(wf_bias_leaf),
    .rope = WF_ISA_NAME(wf_rope),
    .dropout = WF_ISA_NAME(wf_dropout),
    .row_max = WF_ISA_NAME(wf_row_max),
    .sum_exp = WF_ISA_NAME(wf_sum_exp),
    .exp_scale = WF_ISA_NAME(wf_exp_scale),
    .attention_workspace = WF_ISA_NAME(wf_attention_workspace),
    .attention = WF_ISA_NAME(wf_attention),
    .attention_grad = WF_ISA_NAME(wf_attention_grad),
    .adamw = WF_ISA_NAME(wf_adamw),
    .sgd = WF_ISA_NAME(wf_sgd),
    .sum_squares = WF_ISA_NAME(wf_sum_squares),
};
