/* nn/layers/linear_internal.h - the parts of adapted linears, for MLPs in tiles, and linears
   that add to the residual stream. Not installed. */
#ifndef WF_NN_LAYERS_LINEAR_INTERNAL_H
#define WF_NN_LAYERS_LINEAR_INTERNAL_H

#include "kernels/rope_scaling.h"
#include "nn/layers/linear.h"

/* Passes u = x A^T by the point "lora" and scales it. What is partial is scaled when it is
   summed; where u is whole its gradient may be partial, and is summed before it is scaled. */
wf_tensor *wf_nn_adapter_scaled(wf_nn_linear *m, wf_tensor *u);

/* Returns scale x A^T, which B takes; x and in: before and after the point "in". */
wf_tensor *wf_nn_adapter_of(wf_nn_linear *m, wf_tensor *x, wf_tensor *in);

/* The same of up to three members of a group; u gets NULL for those without an adapter. */
void wf_nn_adapters_of(wf_nn_linear_group *group, wf_nn_module *const *member, int count,
                       wf_tensor *x, wf_tensor *in, wf_tensor **u);

/* Returns true where nothing happens to the product: no adapter, no cap, and a plan leaves it
   as it is. What comes next may join it then. */
bool wf_nn_leaves_product(const wf_nn_linear *m);

/* Returns true where nothing happens to what a linear returns, so that it can be added to
   something where it is made. */
bool wf_nn_linear_joins_sum(wf_nn_linear *m);

/* Runs such a linear: residual + (x W^T + b), in one op (wf_linear_add). */
wf_tensor *wf_nn_linear_add(wf_nn_linear *m, wf_tensor *residual, wf_tensor *x);

/* Runs a group of gate and up: silu(gate(x)) * up(x), in one op where nothing happens to what
   they return. */
wf_tensor *wf_nn_call_swiglu(wf_nn_linear_group *group, wf_tensor *x);

/* Runs a group of queries, keys and values, of which the first two are rotated, in one op where
   nothing happens to what they return; else returns false, and has done nothing. y: queries and
   keys as heads, values (wf_linear_rope). */
bool wf_nn_call_rotated(wf_nn_linear_group *group, wf_tensor *x, wf_tensor *positions,
                        const wf_rope_options *options, wf_tensor *y[3]);

#endif
