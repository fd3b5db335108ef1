/* parallel/stages/pipeline_internal.h - the parts of a pipeline, and the stages that each
   parameter lies in. Not installed. */
#ifndef WF_PARALLEL_STAGES_PIPELINE_INTERNAL_H
#define WF_PARALLEL_STAGES_PIPELINE_INTERNAL_H

#include "parallel/parallel_internal.h"
#include "parallel/stages/pipeline.h"
#include "parallel/train/engine_internal.h"

struct wf_par_pipeline {
    wf_par_pipeline_head head; /* the first member: what trainers see */
    /* its texts are the caller's, and not read after it was made */
    wf_par_pipeline_options options;
    char input[64];
    int stages;
    int64_t *first; /* [stages + 1] steps */
    wf_par_borders borders;
    wf_pipe_table *table; /* lowered and proved */
    wf_pipe_table *given; /* the table of a file, until then */
    char text[512];
    /* found in the plan */
    int micros;
    int frozen;   /* number of first stages that have nothing to train */
    bool tied;    /* the first and the last stage share a parameter that is trained */
    bool gathers; /* parameters are gathered for use */
    bool keeps;   /* .. and kept for the whole step, as the strategy has it */
    bool reduces; /* gradients are summed over ranks once a step */
};

/* Counts the stages: those of the options, the schedule or the file, which is read. */
wf_status wf_par_pipeline_count(wf_par_pipeline *p, int ranks, wf_error *error);

/* The table of the schedule or file that the options name, lowered and proved. */
wf_status wf_par_pipeline_schedule(wf_par_pipeline *p, int ranks, wf_error *error);

/* Writes head.job: the schedule, a hash of table and cut, and the cut. */
void wf_par_pipeline_describe(wf_par_pipeline *p);

/* Returns the step after a stage's last; the head belongs to the last stage. */
static inline int64_t wf_par_pipeline_end(const wf_par_pipeline *p, int stage)
{
    return p->first[stage + 1] + (stage + 1 == p->stages);
}

/* Which stages a model's parameters lie in: [count * stages], of parameter i and stage s at i *
   stages + s. NULL on errors. Owner: caller, free. */
bool *wf_par_pipeline_places(const wf_par_pipeline *p, wf_nn_module *model, int64_t count,
                             wf_nn_parameter *const *parameter);

/* Returns the next stage after s that a parameter lies in; -1 after the last. `places` is the
   parameter's row. */
int wf_par_pipeline_next_place(const wf_par_pipeline *p, const bool *places, int s);

#endif
