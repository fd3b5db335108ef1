/*
 * kernels/cuda/cudnn/serve_internal.h - what serve.c, which knows calls, and served.c, which
 * keeps plans, share.
 */
#ifndef WF_KERNELS_CUDA_CUDNN_SERVE_INTERNAL_H
#define WF_KERNELS_CUDA_CUDNN_SERVE_INTERNAL_H

#include "kernels/cuda/cudnn/graph_internal.h"
#include "kernels/cuda/cudnn_internal.h"

/* A plan, or the knowledge that there is none. */
typedef struct served {
    wf_cudnn_heads key;
    bool exact;
    wf_cudnn_graph graph;
    wf_cudnn_descriptor plan; /* the graph's; NULL: there is none */
    wf_cudnn_engine engine;
} served;

struct wf_cudnn {
    const wf_cudnn_api *api; /* NULL: cuDNN is not used */
    cudnnHandle_t handle;
    served **all;
    int count, room;
};

/* Returns the rank's cuDNN, opened when first asked for; NULL: it is not used. */
struct wf_cudnn *wf_cudnn_open(const wf_call *call);

/*
 * Returns the plan for a key, kept from the first time on; NULL where our kernels serve, or
 * with a failure in *status. In exact mode its engine is that of a single head of a single
 * sequence, and where only that has a plan it is a failure.
 */
served *wf_cudnn_served(const wf_call *call, struct wf_cudnn *c, const wf_cudnn_heads *key,
                        wf_status *status);

/* Runs a plan on tensors by their ids. */
wf_status wf_cudnn_execute(const wf_call *call, struct wf_cudnn *c, const served *s, int n,
                           const int64_t *ids, void *const *data, void *workspace);

#endif
