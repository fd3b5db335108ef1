/*
 * kernels/route_balance_internal.h - what route_load and route_balance and their kernels share.
 */
#ifndef WF_KERNELS_ROUTE_BALANCE_INTERNAL_H
#define WF_KERNELS_ROUTE_BALANCE_INTERNAL_H

#include "kernels/moe_internal.h"

/* Weights of the losses of balance, and the number of sequences over which they are means. */
typedef struct wf_balance {
    double sequence, z, sequences;
    bool sigmoid; /* scores are sigmoids, here divided by their sum */
} wf_balance;

/* Sizes of a call on this rank. A choice counts `one`, and of an expert's count `mean` is taken
   once a sequence: both are whole numbers, of k tokens / experts without a common divisor. */
typedef struct wf_load_sizes {
    int64_t sequences, tokens, k, experts; /* tokens of a sequence that are here */
    int64_t one, mean;
    bool first; /* this rank has a sequence's first tokens, and takes the mean */
} wf_load_sizes;

wf_load_sizes wf_load_sizes_of(const wf_call *call);

/* Returns the losses of a router in a step. */
wf_balance wf_balance_of(const wf_route_options *o, const wf_tensor *logits);

/* Checks that indices are of experts that there are. Errors: WF_ESHAPE, WF_EINVAL. */
wf_status wf_route_choices_check(const wf_call *call,
                                 double (*at)(const void *data, int64_t e));

#endif
