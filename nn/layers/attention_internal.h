/* nn/layers/attention_internal.h - what layers of attention share. */
#ifndef WF_NN_LAYERS_ATTENTION_INTERNAL_H
#define WF_NN_LAYERS_ATTENTION_INTERNAL_H

#include "core/context.h"

/* The sizes of a layer; zeros are filled in. */
typedef struct wf_nn_attention_sizes {
    int64_t width, heads, kv_heads, head_dim;
} wf_nn_attention_sizes;

/* Replaces zeros by the default sizes; WF_EINVAL where they, or a dropout, make no
   attention. */
wf_status wf_nn_attention_complete(wf_context *ctx, wf_nn_attention_sizes *s, float dropout);

#endif
