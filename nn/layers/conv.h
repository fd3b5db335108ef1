/* nn/layers/conv.h - convolutions of sequences and images, as products over patches. */
#ifndef WF_NN_LAYERS_CONV_H
#define WF_NN_LAYERS_CONV_H

#include "kernels/conv.h"
#include "nn/module.h"

WF_BEGIN_DECLS

typedef struct wf_nn_conv {
    wf_nn_module base;
    wf_nn_parameter *weight; /* [out, in / groups, taps] or [out, in / groups, rows, columns] */
    wf_nn_parameter *bias;   /* [out], or NULL */
    wf_conv_options how;     /* groups at least 1 */
} wf_nn_conv;

typedef struct wf_nn_conv_options {
    wf_dim in, out; /* channels */
    int kernel[2];  /* its length, or rows and columns */
    wf_conv_options how;
    bool bias;
    /* the standard deviation of the initial normal distribution of weights; biases start from
       0 */
    float deviation;
} wf_nn_conv_options;

/**
 * wf_nn_conv1d_new, wf_nn_conv2d_new - make y = conv(x) + b of [batch, length, in], and of
 * [batch, rows, columns, in]
 *
 * Tensor parallel as a linear is: WF_COLUMN splits channels of y, WF_ROW those of x. The dims
 * that a kernel moves over are whole on each rank.
 *
 * Points: "in" (patches of x, [batch, positions.., in, taps]: before the product, so that its
 *         gradient is whole before pixels are summed), "sum" (before the bias)
 * Owner:  its parent
 * Errors: WF_EINVAL in the context (a kernel or groups that do not fit); NULL then
 */
WF_API wf_nn_conv *wf_nn_conv1d_new(wf_context *ctx, const wf_nn_conv_options *options);
WF_API wf_nn_conv *wf_nn_conv2d_new(wf_context *ctx, const wf_nn_conv_options *options);

WF_END_DECLS

#endif
