/*
 * parallel/pipeline/split.h - cuts a chain of steps into stages. Pure functions: nothing here
 * needs a rank, a tensor or a device.
 *
 *     const wf_pipe_chain chain = {.steps = 14, .cost = cost, .end = head, .modules = n,
 *                                  .module = m};
 *     int64_t first[S + 1];
 *
 *     wf_pipe_split(&chain, "auto", S, first, &error);
 *
 * Stage s has the steps first[s] up to, and without, first[s + 1]. Stages may differ in length,
 * and one without steps passes its input on; but stage 0, which takes the batch, has one at
 * least. A schedule assigns stages to ranks.
 */
#ifndef WF_PARALLEL_PIPELINE_SPLIT_H
#define WF_PARALLEL_PIPELINE_SPLIT_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_pipe_module - a module that a step runs itself. */
typedef struct wf_pipe_module {
    const char *path;
    int64_t step;
} wf_pipe_module;

/** wf_pipe_chain - the steps of a model as a cut sees them: costs in any unit, 0 or more. */
typedef struct wf_pipe_chain {
    int64_t steps;
    /* [steps], forward and backward of a micro-batch; not read for counts and paths */
    const double *cost;
    double end; /* the cost of head and loss, which follow the last stage's steps */
    int64_t modules;
    const wf_pipe_module
        *module; /* [modules], in the order in which they run; read for paths */
} wf_pipe_chain;

/**
 * wf_pipe_split_auto - finds the cut whose most expensive stage is as cheap as can be
 *
 * Of all such cuts it is one of the most even: the sum of the squares of the stages' costs is
 * the least. Among those, it has the shortest first stages: these keep most activations.
 *
 * Work: O(stages x steps^2), by dynamic programming.
 *
 * @param first  [stages + 1], filled
 * Errors:       WF_EINVAL (no stage, a cost that is negative or not finite), WF_ENOMEM
 */
WF_API wf_status wf_pipe_split_auto(const wf_pipe_chain *chain, int stages, int64_t *first,
                                    wf_error *error);

/**
 * wf_pipe_split - cuts a chain as a user's text says:
 *
 *     auto                 wf_pipe_split_auto
 *     5,6,0,3              the number of steps of each stage
 *     block.4 block.10     the modules with which stages 1, 2, .. begin, each the first of its
 *                          step; the same one twice makes an empty stage
 *
 * Commas, blanks and ends of lines divide numbers and paths, so that the text may be that of a
 * file.
 *
 * @param first  [stages + 1], filled
 * Errors:       those of wf_pipe_split_auto, and WF_EINVAL: no step in stage 0, counts or paths
 *               that are too many or too few for the stages, counts that do not sum up to the
 *               steps, a path that begins no step or precedes an earlier one
 */
WF_API wf_status wf_pipe_split(const wf_pipe_chain *chain, const char *text, int stages,
                               int64_t *first, wf_error *error);

WF_END_DECLS

#endif
