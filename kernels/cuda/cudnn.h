/*
 * kernels/cuda/cudnn.h - attention of bf16 by cuDNN's composite graphs.
 */
#ifndef WF_KERNELS_CUDA_CUDNN_H
#define WF_KERNELS_CUDA_CUDNN_H

#include "kernels/cuda/attention.h"

WF_BEGIN_DECLS

/* Whether cuDNN serves a call; else our kernels do. */
bool wf_cudnn_serves(const wf_call *call, const wf_cuda_heads *h, bool backward);

/* 0 where it does not serve. */
size_t wf_cudnn_attention_workspace(const wf_call *call, const wf_cuda_heads *h, bool backward);

wf_status wf_cudnn_attention_run(const wf_call *call, const wf_cuda_heads *h, bool backward,
                                 void *workspace);

WF_END_DECLS

#endif
