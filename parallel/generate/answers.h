/* parallel/generate/answers.h - evaluation tasks with choices (multiple choice): log
   probabilities of continuations. */
#ifndef WF_PARALLEL_GENERATE_ANSWERS_H
#define WF_PARALLEL_GENERATE_ANSWERS_H

#include "parallel/generate/score.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

/* Requests at once: the default, and the most. */
enum { WF_GEN_ANSWERS_BATCH = 8, WF_GEN_ANSWERS_MOST_BATCH = 64 };

typedef struct wf_gen_answers_options {
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    const wf_gen_requests *requests;
    int64_t batch;        /* requests at once */
    int64_t copies, copy; /* every copies-th request is this rank's, from number `copy` on */
    /* Called before each choice of a batch of requests: true, on all ranks of the copy alike,
       ends them there, and answers not found yet stay as they are. NULL: all are found. */
    bool (*stop)(void *arg);
    void *arg;
} wf_gen_answers_options;

/**
 * wf_gen_answers_find - computes the answers of this rank's requests, the same on any exact
 * layout and batch
 *
 * A context is computed once for all choices that follow it. In a dry run nothing is answered,
 * and passes that are no smaller in some size than all before are run alone.
 *
 * @param answer  [requests], written where the request is this rank's; NULL: the rank only
 *                takes part
 * Collective over the ranks of a copy; over all of them where parameters are sharded over
 * copies: copies is 1 then.
 * Errors:  those of the engine, WF_ENOMEM, in the context
 */
WF_API wf_status wf_gen_answers_find(const wf_gen_answers_options *options,
                                     wf_gen_answer *answer);

WF_END_DECLS

#endif
