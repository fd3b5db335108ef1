/* mine.h - what this example adds to Weft: an op, a module, a style, a plan and a model. */
#ifndef MINE_H
#define MINE_H

#include <weft/weft.h>

/* my_op.c */

extern const wf_op my_relu2_op, my_relu2_grad_op;

/**
 * my_relu2 - y = max(x, 0)^2   (So et al. 2021, "Primer")
 *
 * Layout:      "...->..."
 * Gradient:    to x, by my_relu2_grad: dx = 2 max(x, 0) dy
 */
wf_tensor *my_relu2(wf_tensor *x);
wf_tensor *my_relu2_grad(wf_tensor *x, wf_tensor *dy);

/* my_module.c */

/* y = relu2(x U^T) D^T; points: "in" (x), "sum" (y) */
typedef struct my_feed_forward {
    wf_nn_module base;
    wf_nn_parameter *up;   /* [hidden, width] */
    wf_nn_parameter *down; /* [width, hidden] */
} my_feed_forward;

typedef struct my_layer {
    wf_nn_module base;
    wf_nn_norm *norm;
    my_feed_forward *feed;
} my_layer;

/* What follows a token? Paths: embed, layer.N.{norm, feed}, norm, head, loss. */
typedef struct my_model {
    wf_nn_module base;
    wf_nn_embedding *embed;
    int64_t layers;
    wf_nn_module **layer; /* my_layer each */
    wf_nn_norm *norm;
    wf_nn_linear *head;
    wf_nn_loss *loss;
} my_model;

typedef struct my_sizes {
    int64_t vocabulary, width, hidden, layers;
} my_sizes;

/** my_model_new - on the fake device. Owner: caller, wf_nn_free. NULL: see the context. */
my_model *my_model_new(wf_context *ctx, const my_sizes *sizes);

/** my_model_loss - cross-entropy of every token, for wf_par_train_options. */
wf_tensor *my_model_loss(wf_nn_module *model, const wf_par_batch *batch);

/* my_plan.c */

extern const wf_par_style my_feed_forward_style;
extern const wf_par_rule my_plan[];

#endif
