/*
 * expressions.c - ops of one's own, a line each: the function, its gradient, its kernels for
 * every CPU and, where nvcc compiles this file too (nvcc -x cu -c expressions.c), for NVIDIA
 * GPUs. So it holds nothing else.
 */
#include <weft/kernels/elementwise.h>

/* exp(s) * x */
WF_ELEMENTWISE(exp_times, (s, x), WF_EXP(s) * x, (dy * WF_EXP(s) * x, dy *WF_EXP(s)))

/* gate > 0, as 1 and 0 */
WF_ELEMENTWISE(gate_is_open, (gate), WF_WHERE(gate > 0, 1, 0), (0))

/* softplus(beta x) / beta   (Dugas et al. 2001) */
WF_ELEMENTWISE_WITH(softplus, (x), (beta),
                    WF_MAX(x, 0) + WF_LOG(1 + WF_EXP(-WF_ABS(beta * x))) / beta,
                    (dy * WF_SIGMOID(beta * x)))
