/* nn/layers/groupnorm.h - norms of groups of channels, as vision models have them. */
#ifndef WF_NN_LAYERS_GROUPNORM_H
#define WF_NN_LAYERS_GROUPNORM_H

#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_groupnorm {
    wf_nn_module base;
    wf_nn_parameter *gain, *bias; /* [channels] */
    int64_t groups;
    float eps;
} wf_nn_groupnorm;

/**
 * wf_nn_groupnorm_new - makes y = wf_group_norm(x) of [batch, .., channels]; its gain starts
 * from 1, its bias from 0
 *
 * @param channels  wf_dim_heads(groups, ..) where ranks are to split them, by whole groups
 * @param groups    divide the channels
 * Points: "in", "out"
 * Owner:  its parent
 * Errors: WF_EINVAL in the context (groups that do not divide the channels); NULL then
 */
WF_API wf_nn_groupnorm *wf_nn_groupnorm_new(wf_context *ctx, wf_dim channels, int64_t groups,
                                            float eps);

WF_END_DECLS

#endif
