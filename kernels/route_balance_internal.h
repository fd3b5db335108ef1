/*
 * kernels/route_balance_internal.h - what route_load and route_balance and their kernels share.
 */
#ifndef WF_KERNELS_ROUTE_BALANCE_INTERNAL_H
#define WF_KERNELS_ROUTE_BALANCE_INTERNAL_H

#include "kernels/moe_internal.h"

/* Weights of the losses of balance, and the number of sequences over which they are means. The
   first is of each sequence's own choices, or of counts where a call has these. */
typedef struct wf_balance {
    double weight, z, sequences;
    bool sigmoid; /* scores are sigmoids, here divided by their sum */
} wf_balance;

/* Attributes of route_load. */
typedef struct wf_load_attr {
    int64_t plain; /* not 0: counts as they are; else less their mean, times a whole number */
} wf_load_attr;

/* Sizes of a call on this rank. A choice counts `one`, and of an expert's count `mean` is taken
   once a sequence: both are whole numbers, of k tokens / experts without a common divisor; 1
   and 0 of plain counts. */
typedef struct wf_load_sizes {
    int64_t sequences, tokens, k, experts; /* tokens of a sequence that are here */
    int64_t one, mean;
    bool first; /* this rank has a sequence's first tokens, and takes the mean */
} wf_load_sizes;

/* Returns the greatest common divisor, 1 where both are 0: sizes that the check of choices
   refuses. */
static inline int64_t wf_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a ? a : 1;
}

static inline wf_load_sizes wf_load_sizes_of(const wf_call *call)
{
    const wf_tensor *index = call->in[1];
    int last = index->ndim - 1;
    wf_load_sizes s = {.sequences = last > 0 ? index->local[0] : 1,
                       .k = index->local[last],
                       .experts = call->in[0]->local[last],
                       .first = true};
    int64_t whole = s.k, divisor;

    s.tokens = wf_extent(index, 1, last);
    for (int d = 1; d < last; d++) {
        whole *= index->dim[d].size;
        s.first = s.first && index->start[d] == 0 && index->local[d] > 0; /* one rank */
    }
    if (call->op->id == WF_ID_route_load && call->attr &&
        ((const wf_load_attr *)call->attr)->plain) {
        s.one = 1;
        return s;
    }
    divisor = wf_common_divisor(s.experts, whole);
    s.one = s.experts / divisor;
    s.mean = whole / divisor;
    return s;
}

/* Returns the losses of a router in a step. */
wf_balance wf_balance_of(const wf_route_options *o, const wf_tensor *logits);

/* Checks that indices are of experts that there are. Errors: WF_ESHAPE, WF_EINVAL. */
wf_status wf_route_choices_check(const wf_call *call,
                                 double (*at)(const void *data, int64_t e));

#endif
