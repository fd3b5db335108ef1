/*
 * parallel/train/trained_internal.h - what of a trainer outlives it: masters, moments and counts. Not installed.
 */
#ifndef WF_PARALLEL_TRAIN_TRAINED_INTERNAL_H
#define WF_PARALLEL_TRAIN_TRAINED_INTERNAL_H

#include "parallel/parallel_internal.h"
#include "parallel/train/train.h"

typedef struct wf_par_trained {
    wf_par *par;
    int64_t count;
    wf_nn_parameter *const *parameter; /* [count] */
    wf_nn_optimizer *optimizer;
    int64_t global_batch;
} wf_par_trained;

/* Alive as long as the trainer. */
wf_par_trained wf_par_trainer_trained(const wf_par_trainer *trainer);

/* What the optimizer updates of parameter i, f32, in the layout at rest or one that is split
   further: the parameter itself. */
static inline wf_tensor *wf_par_master(const wf_par_trained *t, int64_t i)
{
    return t->parameter[i]->tensor;
}

#endif
