/* my_op.h - an op that this project adds to Weft. */
#ifndef MY_OP_H
#define MY_OP_H

#include <weft/weft.h>

extern const wf_op my_relu2_op, my_relu2_grad_op;

/**
 * my_relu2 - y = max(x, 0)^2   (So et al. 2021, "Primer")
 *
 * Layout:      "...->..."
 * Gradient:    to x, by my_relu2_grad: dx = 2 max(x, 0) dy
 */
wf_tensor *my_relu2(wf_tensor *x);
wf_tensor *my_relu2_grad(wf_tensor *x, wf_tensor *dy);

#endif
