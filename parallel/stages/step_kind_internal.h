/* parallel/stages/step_kind_internal.h - which steps of a chain are alike: one number for what
   a step does in a plan and what it has. Not installed. */
#ifndef WF_PARALLEL_STAGES_STEP_KIND_INTERNAL_H
#define WF_PARALLEL_STAGES_STEP_KIND_INTERNAL_H

#include "nn/chain.h"
#include "parallel/run.h"

/* A step that runs, watched. */
typedef struct wf_par_step_watch {
    wf_par *par;
    wf_oplog log;
    uint64_t kind;
    size_t before; /* bytes in use as it began */
    double flops;
} wf_par_step_watch;

/* Watches what the rank does until wf_par_step_kind. */
void wf_par_step_watch_begin(wf_par_step_watch *watch, wf_par *par);

/* Ends what wf_par_step_watch_begin began, over step i, or over the head behind the last step.
   Returns its kind: steps of one kind have run the same ops, collectives and messages on
   tensors of the same shapes, types and layouts, have kept as many bytes, and have the same
   parameters, frozen or not, which are stored and gathered alike. Numbers of other passes are
   not comparable. */
uint64_t wf_par_step_kind(wf_par_step_watch *watch, wf_nn_module *model, int64_t i);

#endif
