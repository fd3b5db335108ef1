/* nn/layers/norm.h - LayerNorm and RMSNorm over the last dim. */
#ifndef WF_NN_LAYERS_NORM_H
#define WF_NN_LAYERS_NORM_H

#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_norm {
    wf_nn_module base;
    wf_nn_parameter *gain; /* [width], from 1 */
    wf_nn_parameter *bias; /* [width], from 0; NULL: none */
    float eps;
    bool unbiased; /* a LayerNorm all the same */
    bool offset;   /* the gain is 1 + what the parameter has, which is from 0 */
} wf_nn_norm;

/** wf_nn_layernorm_new, wf_nn_rmsnorm_new - make a norm: see wf_layernorm and wf_rmsnorm.
 * Owner: its parent. */
WF_API wf_nn_norm *wf_nn_layernorm_new(wf_context *ctx, wf_dim width, float eps);
WF_API wf_nn_norm *wf_nn_rmsnorm_new(wf_context *ctx, wf_dim width, float eps);

/** wf_nn_layernorm_unbiased_new - makes a LayerNorm without a bias. Owner: its parent. */
WF_API wf_nn_norm *wf_nn_layernorm_unbiased_new(wf_context *ctx, wf_dim width, float eps);

/** wf_nn_rmsnorm_offset_new - makes an RMSNorm whose gains are 1 + w: w is the parameter
 * `gain`, from 0. Owner: its parent. */
WF_API wf_nn_norm *wf_nn_rmsnorm_offset_new(wf_context *ctx, wf_dim width, float eps);

/**
 * wf_nn_add_norm - adds a branch to the residual stream, *x becomes *x + dropout(y), and norms
 * it
 *
 * One op adds and norms, see wf_add_layernorm, but where something happens at "in", which the
 * sum passes for the norm alone.
 *
 * @param p, site  of the branch's dropout, see wf_dropout
 * Returns: the norm of the new *x
 */
WF_API wf_tensor *wf_nn_add_norm(wf_nn_norm *m, wf_tensor **x, wf_tensor *y, float p, int site);

WF_END_DECLS

#endif
