/*
 * kernels/cuda/cudnn_internal.h - attention of bf16 by cuDNN, where Weft is built with it and
 * finds it when it runs; its files are in cudnn/.
 */
#ifndef WF_KERNELS_CUDA_CUDNN_INTERNAL_H
#define WF_KERNELS_CUDA_CUDNN_INTERNAL_H

#include "kernels/cuda/attention_internal.h"

WF_BEGIN_DECLS

#ifdef WF_WITH_CUDNN

/* Returns true where cuDNN serves attention with these arguments, if it is found and has a
   plan. */
bool wf_cudnn_may_serve(const wf_cuda_heads *h);

/* Returns true where there is a cuDNN that may be used. */
bool wf_cudnn_is_found(void);

/* Returns the workspace that a call may need; the same with and without cuDNN, since plans
   account for it (but for the gradient of long sequences, which a cuDNN of 9.25 or later that
   is found makes in less). 0 of a call that cuDNN never serves. */
size_t wf_cudnn_attention_workspace(const wf_call *call, const wf_cuda_heads *h, bool backward);

/*
 * Returns true where cuDNN served the call, or tried to and failed: then *status. In exact mode
 * its engine is the one that serves a single head best, whatever the number of heads and
 * sequences here. Chunks of the heads of h are set for a gradient.
 */
bool wf_cudnn_attention(const wf_call *call, const wf_cuda_heads *h, bool backward,
                        void *workspace, wf_status *status);

struct wf_cudnn;
void wf_cudnn_close(struct wf_cudnn *cudnn);

#else

static inline bool wf_cudnn_may_serve(const wf_cuda_heads *h)
{
    (void)h;
    return false;
}

static inline bool wf_cudnn_is_found(void)
{
    return false;
}

static inline size_t wf_cudnn_attention_workspace(const wf_call *call, const wf_cuda_heads *h,
                                                  bool backward)
{
    (void)call, (void)h, (void)backward;
    return 0;
}

static inline bool wf_cudnn_attention(const wf_call *call, const wf_cuda_heads *h,
                                      bool backward, void *workspace, wf_status *status)
{
    (void)call, (void)h, (void)backward, (void)workspace, (void)status;
    return false;
}

struct wf_cudnn;

static inline void wf_cudnn_close(struct wf_cudnn *cudnn)
{
    (void)cudnn;
}

#endif

WF_END_DECLS

#endif
