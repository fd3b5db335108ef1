/*
 * parallel/train/engine_internal.h - the engines that run the parts of a step, a row each.
 * step.c, evaluate.c and anomaly.c know which part comes when; a row knows how it is run. Not
 * installed.
 *
 *     eager    op by op, micro-step by micro-step; every rank has all of the model
 *              (eager_step.c)
 *     graph    the same captured once as graphs of the device, which are run from then on
 *              (graph_step.c)
 *     stages   action by action, as the schedule of a pipeline says (parallel/stages/stages.c)
 *
 * A trainer gets a row from its options: the last one from its pipeline, so that
 * parallel/stages includes parallel/train, and not the other way round.
 */
#ifndef WF_PARALLEL_TRAIN_ENGINE_INTERNAL_H
#define WF_PARALLEL_TRAIN_ENGINE_INTERNAL_H

#include "core/judgment.h"
#include "parallel/train/train_internal.h"

struct wf_par_engine {
    /* A schedule runs the micro-steps, with a loss of its own, so that none can be begun from
       outside. */
    bool scheduled;

    /* Makes what the engine needs beside a trainer's other parts, in t->own. Collective: over
       the world */
    wf_status (*open)(wf_par_trainer *t);

    /* Runs all micro-steps of a step. Collective: over the mesh */
    wf_status (*forward_backward)(wf_par_trainer *t, const wf_par_data *data);

    /* Sums over ranks and micro-steps: gradients to step.grad, and the mean loss, on all ranks,
       where it is not NULL; with the means of losses that modules add. Collective: over the
       mesh */
    wf_status (*reduce)(wf_par_trainer *t, float *mean);

    /* Takes the mean of the metric, or with NULL of the loss, over one global batch, on all
       ranks. Collective: over the mesh */
    wf_status (*evaluate)(wf_par_trainer *t, int64_t number, const wf_par_data *data,
                          wf_par_loss_function *metric, float *mean);

    /* Updates parameters with the gradients of step.grad. Collective: over the mesh */
    wf_status (*update)(wf_par_trainer *t, float lr, float scale);

    /* Returns why the host judges steps, before their updates; NULL: the device may. NULL, the
       function: nothing is captured */
    const char *(*at_once)(const wf_par_trainer *t);

    /* Returns whether the next step is judged by the device: not where it is the first. */
    bool (*launches)(const wf_par_trainer *t);

    /* Queues the judgment of a step whose gradients are in step.grad, then the update that it
       may hold back. slot: as of wf_judgment_run */
    wf_status (*launch)(wf_par_trainer *t, float lr, int slot);

    /* Waits for what was judged. */
    wf_judged (*judged)(wf_par_trainer *t, int slot);

    /* Has updates change parameters again, after the host has found which step was held. */
    void (*clear)(wf_par_trainer *t);

    /* Forgets what of a step is under way, after an error too, when other ranks may never come.
       NULL: nothing is */
    void (*drop)(wf_par_trainer *t);

    /* Frees t->own, of an opening that failed in the middle too. */
    void (*close)(wf_par_trainer *t);

    /* Returns whether a rank reads batches; NULL: all do. May be called before `open`. */
    bool (*reads)(const wf_par_trainer *t, int rank);

    /* Returns whether a rank has parameter i; NULL: all have all. */
    bool (*has)(const wf_par_trainer *t, int64_t i, int rank);
};

extern const wf_par_engine wf_par_engine_eager, wf_par_engine_graph;

/* The trainer's view of a pipeline: the first member of its struct. */
typedef struct wf_par_pipeline_head {
    const wf_par_engine *engine;
    char job[320]; /* schedule, hash and cut: what all ranks must have alike */
} wf_par_pipeline_head;

static inline const wf_par_pipeline_head *wf_par_pipeline_head_of(const wf_par_pipeline *p)
{
    return (const wf_par_pipeline_head *)(const void *)p;
}

/* ---- eager_step.c: parts of its row, for the graph's ---- */

wf_status wf_par_eager_open(wf_par_trainer *t);
wf_status wf_par_eager_reduce(wf_par_trainer *t, float *mean);
wf_status wf_par_eager_evaluate(wf_par_trainer *t, int64_t number, const wf_par_data *data,
                                wf_par_loss_function *metric, float *mean);
wf_status wf_par_eager_update(wf_par_trainer *t, float lr, float scale);
void wf_par_eager_close(wf_par_trainer *t);

/* wf_par_eager_reduce up to what the host reads: gradients to step.grad; returns the sum of the
   losses, retained. */
wf_tensor *wf_par_eager_sums(wf_par_trainer *t);

#endif
