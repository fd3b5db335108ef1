/* parallel/stages/pipeline_internal.h - the parts of a pipeline, and the stages that each
   parameter lies in. Not installed. */
#ifndef WF_PARALLEL_STAGES_PIPELINE_INTERNAL_H
#define WF_PARALLEL_STAGES_PIPELINE_INTERNAL_H

#include "parallel/parallel_internal.h"
#include "parallel/stages/pipeline.h"
#include "parallel/train/engine_internal.h"

/* A module that a step runs itself. */
typedef struct wf_par_step_module {
    char path[WF_NN_PATH];
    int64_t step;
} wf_par_step_module;

struct wf_par_pipeline {
    wf_par_pipeline_head head; /* the first member: what trainers see */
    /* its texts are the caller's, and not read after it was made */
    wf_par_pipeline_options options;
    char input[64];
    int stages;
    int64_t *first; /* [stages + 1] steps */
    bool *shares;   /* [stages] a parameter of it lies in another stage too */
    int64_t modules;
    wf_par_step_module *module; /* [modules] that steps run themselves, in their order */
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
bool *wf_par_pipeline_stages_of(const wf_par_pipeline *p, wf_nn_module *model, int64_t count,
                                wf_nn_parameter *const *parameter);

/* Returns the next stage after s that a parameter lies in; -1 after the last. `in_stage` is the
   parameter's row. */
int wf_par_pipeline_next_stage(const wf_par_pipeline *p, const bool *in_stage, int s);

/* Returns true where two pipeline ranks do the same in actions that are alike: they have as
   many stages, each with steps of the same kinds as the other's, in the order of their numbers.
   No stage of theirs is the first or the last, or shares parameters with another one, unless
   they are one rank. Writes into like[s] which stage of `other` stage s of `rank` is like. */
bool wf_par_ranks_alike(const wf_par_pipeline *p, int rank, int other, int *like);

/* Puts the module of `rank` into `module`, the path of a module or of one below it, that was
   found on a rank that is alike; `like` as wf_par_ranks_alike has it. */
void wf_par_alike_module(const wf_par_pipeline *p, int rank, const int *like,
                         char module[WF_MEMORY_MODULE]);

#endif
