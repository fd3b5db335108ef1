/*
 * parallel/train/ahead.h - steps that are launched before the one before them is finished, so
 * that a device has always work:
 *
 *     wf_par_train_launch(trainer, 1, &data);
 *     for (int64_t step = 1; step <= steps; step++) {
 *         if (step < steps)
 *             wf_par_train_launch(trainer, step + 1, &data);
 *         wf_par_train_finish(trainer, &result);
 *     }
 */
#ifndef WF_PARALLEL_TRAIN_AHEAD_H
#define WF_PARALLEL_TRAIN_AHEAD_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

/**
 * wf_par_train_launch, wf_par_train_finish - make a step in two calls: launch begins it, and
 * finish gives its result. wf_par_train_step is one after the other
 *
 * A second step may be launched before the first is finished: its work is then queued while the
 * device has that of the first, and the host waits for neither. That is so where steps are
 * captured as graphs (wf_par_options.cuda_graph), from the second on, and the device judges
 * them (wf_par_train_at_once); elsewhere launch makes the whole step. A step that is not
 * finite, or is skipped, changes nothing on the device, nor does one that was launched after
 * it. Finish repeats it with the host as its judge, and launches the later one anew, so that
 * errors, reports and bits are those of wf_par_train_step. All ranks judge by the same numbers,
 * so they repeat together; one whose data cannot be read fails then. Of several ranks a launch
 * that fails ends the run of all.
 *
 * Between the two calls nothing may read or change parameters: evaluations, digests and
 * checkpoints come when all that was launched is finished.
 *
 * @param data  as of wf_par_train_step; what it points to is there until the step is finished
 * Collective:  over the mesh
 * Errors:      those of wf_par_train_step; WF_EINVAL (two steps are launched, or none). A
 *              second step whose launch fails is not launched, where a rank is alone
 */
WF_API wf_status wf_par_train_launch(wf_par_trainer *trainer, int64_t step,
                                     const wf_par_data *data);
WF_API wf_status wf_par_train_finish(wf_par_trainer *trainer, wf_par_step *result);

/** wf_par_train_at_once - returns why the host judges each step before its update, by name;
 * NULL: the device judges them. */
WF_API const char *wf_par_train_at_once(const wf_par_trainer *trainer);

WF_END_DECLS

#endif
