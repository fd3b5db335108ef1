/*
 * parallel/shard/gradient_slots_internal.h - where the gradients of a step are, for
 * gradient_collect.c, gradient_buckets.c and gradient_reduce.c. Not installed.
 */
#ifndef WF_PARALLEL_SHARD_GRADIENT_SLOTS_INTERNAL_H
#define WF_PARALLEL_SHARD_GRADIENT_SLOTS_INTERNAL_H

#include "parallel/shard/gradient_sequences_internal.h"
#include "parallel/shard/gradient_reduce_internal.h"
#include "parallel/shard/gradient_sum_internal.h"

/* The slots of a parameter: as many as it ever had uses in a micro-step. */
struct slots {
    wf_par_sum *slot;
    wf_par_sum
        *group; /* terms of groups of micro-steps (wf_par.group) of which some are to come */
    int count;
    wf_par_sum ended; /* a sum without terms: the micro-steps whose gradients have all come */
};

struct wf_par_gradients {
    wf_par *par;
    int64_t count;
    wf_nn_parameter *const *parameter;
    const wf_nn_pass *pass; /* the one whose gradients come */
    int64_t micro, micros;  /* the number of its micro-step, of how many */
    /* number of sequences whose gradients are added one by one; 0: sums over ranks are added */
    int64_t sequences;
    int64_t ranks;         /* number of ranks with one sequence each in a micro-step */
    struct slots *slots;   /* [count] */
    int64_t n_slots, room; /* all parameters'; those that the arrays below have room for */
    wf_tensor **list;
    const wf_layout **to;
    wf_tensor ***slot;
    wf_move *summing; /* gradients on their way to the sums of [n_summing] slots */
    wf_par_sum **sum;
    int64_t n_summing;
    int64_t nodes,
        /* number of sums over a step, and the first of them that is not summed over ranks */
        next_node;
    wf_move *bucket; /* some of them on their way */
    bool summed;     /* sums over ranks have begun */
};

/* ---- gradient_collect.c ---- */

/* Waits for the gradients whose sum over ranks was begun last, and adds them to their slots. */
wf_status wf_par_gradients_settle(wf_par_gradients *g);

/* ---- gradient_buckets.c ---- */

/* Refuses a step in which some micro-step has not ended. */
wf_status wf_par_gradients_complete(const wf_par_gradients *g);

/* Lists the sums that data-parallel ranks have to add: where they are, and their target
   layouts. */
void wf_par_gradients_list(wf_par_gradients *g);

#endif
