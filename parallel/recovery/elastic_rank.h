/*
 * parallel/recovery/elastic_rank.h - a rank's part of an elastic run: restores the state that
 * others left, and leaves its own.
 *
 *     wf_elastic_rank r = wf_elastic_rank_of(elastic, par, checkpoint step or -1);
 *     wf_elastic_rank_before(&r);               before the model is made
 *     wf_elastic_rank_serves(&r, trainer);      the trainer is open
 *     wf_elastic_rank_restore(&r, &step, &made, &best_loss);
 *     if (!r.ready)   load a checkpoint, or begin; then r.ready = true
 *     else if (made.step == step)   log and save the step, which ranks were lost in
 *     wf_elastic_rank_begin(&r, step, "--dp 2 --tp 1");
 *     steps; wf_elastic_made after each
 *     wf_elastic_rank_end(&r);                  all that ranks do together is done
 *     wf_elastic_rank_leave(&r, status);        in any case, before the trainer is closed
 *
 * Of a run that is not elastic these do nothing.
 */
#ifndef WF_PARALLEL_RECOVERY_ELASTIC_RANK_H
#define WF_PARALLEL_RECOVERY_ELASTIC_RANK_H

#include "parallel/recovery/elastic.h"

WF_BEGIN_DECLS

typedef struct wf_elastic_rank {
    wf_elastic *elastic;
    wf_par *par;
    wf_par_trainer *trainer;
    wf_par_snapshot *into; /* the folder for the rank's state at the end; NULL: none */
    bool restarted;        /* launches or starts were before this one */
    int64_t kept,
        /* steps of the state that there is, and of the newest checkpoint; -1: none */
        checkpoint;
    wf_error missing; /* why that state is not restored; code WF_OK: it is, or there is none */
    bool ready;       /* the trainer has the state to continue from */
    bool leaves;      /* all ranks leave their state, for a mesh that has grown */
} wf_elastic_rank;

/** wf_elastic_rank_of - returns a rank of a launch. checkpoint: the step of the newest
 * checkpoint that the process has found; -1: none */
WF_API wf_elastic_rank wf_elastic_rank_of(wf_elastic *elastic, wf_par *par, int64_t checkpoint);

/**
 * wf_elastic_rank_before - finds out whether there is a state to restore, and when ranks were
 * lost: of several processes any may know it. The newest checkpoint is the one that rank 0 sees
 *
 * Collective: over the world. Errors: in the context
 */
WF_API wf_status wf_elastic_rank_before(wf_elastic_rank *r);

/** wf_elastic_rank_serves - takes the trainer, whose state another one has to be able to
 * restore. Errors: wf_par_snapshot_serves, in the context */
WF_API wf_status wf_elastic_rank_serves(wf_elastic_rank *r, wf_par_trainer *trainer);

/**
 * wf_elastic_rank_restore - restores the state that ranks of the launch before have left, if
 * there is any and no checkpoint is newer; else r->ready stays false
 *
 * @param step       set where r->ready: the steps that are done
 * @param made       its step is *step where that step is made, and was not logged or saved any
 *                   more; else 0
 * @param best_loss  the lowest of validation until then; as it was where nothing is restored
 * Collective: over the world. Errors: in the context; WF_EDATA: there are gaps, and no
 * checkpoint
 */
WF_API wf_status wf_elastic_rank_restore(wf_elastic_rank *r, int64_t *step,
                                         wf_elastic_step *made, float *best_loss);

/** wf_elastic_rank_begin - steps begin after `step`: reports on rank 0 why the launch became
 * necessary, and after how long. mesh: names it */
WF_API void wf_elastic_rank_begin(wf_elastic_rank *r, int64_t step, const char *mesh);

/** wf_elastic_rank_end - keeps the rank's state until all ranks have ended. Collective: over
 * the world, where ranks do not leave. Errors: in the context */
WF_API wf_status wf_elastic_rank_end(wf_elastic_rank *r);

/** wf_elastic_rank_leave - leaves the state for the next launch, where ranks were lost or are
 * back; a rank that failed by itself leaves nothing. status: how the rank has ended.
 * Collective: no */
WF_API void wf_elastic_rank_leave(wf_elastic_rank *r, wf_status status);

WF_END_DECLS

#endif
