/*
 * parallel/stages/stages_internal.h - the stages of a pipeline that a rank has, and the
 * micro-batches on their way through them. Not installed.
 */
#ifndef WF_PARALLEL_STAGES_STAGES_INTERNAL_H
#define WF_PARALLEL_STAGES_STAGES_INTERNAL_H

#include "mesh/array/message.h"
#include "nn/pass.h"
#include "parallel/stages/pipeline_internal.h"
#include "parallel/train/train_internal.h"

/* The four messages of a (stage, micro-batch): into it and out of it, forward and back. */
typedef enum wf_par_edge {
    WF_PAR_RECV_F,
    WF_PAR_SEND_F,
    WF_PAR_RECV_B,
    WF_PAR_SEND_B,
    WF_PAR_EDGES
} wf_par_edge;

/* A micro-batch in a stage; all NULL before its forward and after the gradients of its
   weights. */
typedef struct wf_par_flight {
    wf_nn_pass *pass;
    wf_tape *tape;
    /* the tensors that are carried into the stage and out of it, retained, as what follows */
    wf_tensor *in[WF_NN_CARRIED], *out[WF_NN_CARRIED];
    /* inputs as the tape knows them; NULL where no gradient of one is wanted */
    wf_tensor *source[WF_NN_CARRIED];
    wf_tensor *dout[WF_NN_CARRIED], *din[WF_NN_CARRIED]; /* gradients */
    wf_message *message[WF_PAR_EDGES][WF_NN_CARRIED];
} wf_par_flight;

enum { WF_PAR_ACTION = 24 };

typedef struct wf_par_stage {
    int number;
    int64_t first, end; /* its steps of the chain */
    bool is_first, is_last;
    wf_par_gradients *gradients;
    wf_par_unit **unit; /* [units] that have parameters in it */
    int64_t units;
    wf_par_order order;
    wf_par_flight *flight; /* [micros] */
    /* [micros] its forward is recomputed (R), so that the first one keeps its input alone */
    bool *recomputed;
} wf_par_stage;

typedef struct wf_par_stages {
    const wf_par_pipeline *pipeline;
    wf_par_trainer *t;
    int rank, ranks; /* coordinate on axis pp, and its size */
    int count;
    wf_par_stage *stage; /* [count] ascending */
    int *of;        /* [stages of the pipeline] its index in `stage`; -1: another rank has it */
    bool *in_stage; /* wf_par_pipeline_stages_of */
    bool summed;    /* the gradients of the step are in step.grad */
    bool beside;    /* experts' tokens are exchanged: actions that may overlap alternate */
    const wf_par_data *data;
    const wf_pipe_action *row; /* [actions] of this rank */
    int64_t actions;
    /* [actions] as texts, which traces show as long as this lives */
    char (*name)[WF_PAR_ACTION];
} wf_par_stages;

/* ---- stages_open.c ---- */

wf_status wf_par_stages_open(wf_par_trainer *t);
void wf_par_stages_close(wf_par_trainer *t);

/* Returns a stage of the pipeline; NULL: another rank has it. */
wf_par_stage *wf_par_stage_here(const wf_par_stages *s, int stage);

/* ---- stages.c ---- */

/* Runs the parts of a step for a trainer with a pipeline. */
extern const wf_par_engine wf_par_engine_stages;

/* Returns the stages of a trainer; NULL: it has no pipeline. */
static inline wf_par_stages *wf_par_stages_of(const wf_par_trainer *t)
{
    return t->options.pipeline ? t->own : NULL;
}

/* Reports that the rank is at action i of its row, or runs that action. */
typedef void wf_par_action_step(wf_par_stages *s, int64_t i);

/* ---- stages_beside.c ---- */

/* Sets `beside`. */
void wf_par_stages_find_exchange(wf_par_stages *s);

/* Begins actions i and i + 1 of the row, of which wf_pipe_runs_beside is true, and runs them
   alternately. */
void wf_par_actions_beside(wf_par_stages *s, int64_t i, wf_par_action_step *begin,
                           wf_par_action_step *act);

/* ---- stages_sum.c and stages_forward.c ---- */

/* Gradients, of tied parameters too, to step.grad, once. Collective: over the mesh */
wf_status wf_par_stages_sum(wf_par_stages *s);

/* Returns true where the last stage is here, which has the loss; wf_par_pipeline_share brings
   it to all. */
bool wf_par_stages_have_loss(const wf_par_stages *s);

/* Releases the sum of the losses, NULL where the last stage is not, and puts their mean on all
   ranks where it is not NULL. Collective: over axis pp */
wf_status wf_par_stages_mean(wf_par_trainer *t, wf_tensor *total, float *mean);

/* Puts the means of losses that modules add on all ranks, from the stages that have them.
   Collective: over the mesh */
wf_status wf_par_stages_share_added(wf_par_trainer *t);

/* `evaluate` of the engine. */
wf_status wf_par_stages_evaluate(wf_par_trainer *t, int64_t number, const wf_par_data *data,
                                 wf_par_loss_function *metric, float *mean);

/* ---- stage_compute.c and stage_messages.c ---- */

void wf_par_stage_forward(wf_par_stages *s, wf_par_stage *stage, int64_t micro);
void wf_par_stage_recompute(wf_par_stages *s, wf_par_stage *stage, int64_t micro);
void wf_par_stage_backward(wf_par_stages *s, wf_par_stage *stage, int64_t micro, bool defer);
void wf_par_stage_weights(wf_par_stages *s, wf_par_stage *stage, int64_t micro, int64_t last);
void wf_par_stage_unshard(wf_par_stages *s, wf_par_stage *stage);
void wf_par_stage_reshard(wf_par_stages *s, wf_par_stage *stage);
void wf_par_flight_drop(wf_par_flight *f);

/* Returns the number of tensors that are carried into a stage; of stage 0 its inputs, of the
   one after the last those that the last leaves to the head. */
int wf_par_stage_carried(const wf_par_pipeline *p, int stage);

/* Returns whether a gradient of tensor k that is carried into a stage is sent back. */
bool wf_par_stage_wants(const wf_par_pipeline *p, int stage, int k);

/* The k-th tensor that comes into a stage, without values. Owner: the scope */
wf_tensor *wf_par_stage_input(const wf_par_stages *s, int stage, int k);

/* The same in a plan where x is the input of step 0, and not a micro-batch's: dims that a
   micro-batch's input has too are those of x, and data-parallel ranks have all of it. */
wf_tensor *wf_par_stage_input_of(const wf_par_stages *s, int stage, int k, const wf_tensor *x);

/* The inputs of step 0 in a batch, as many as wf_par_stage_carried of stage 0. */
void wf_par_stage_batch(const wf_par_pipeline *p, const wf_par_batch *batch, wf_tensor **x);

/* Begin the messages of an edge, a tensor each, or (ends) end them. */
void wf_par_stage_message(wf_par_stages *s, wf_par_stage *stage, int64_t micro,
                          wf_par_edge edge, bool ends);

#endif
