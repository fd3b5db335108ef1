/* apps/gpt_eval/answers.h - what a model that is there makes of requests. */
#ifndef WF_APPS_GPT_EVAL_ANSWERS_H
#define WF_APPS_GPT_EVAL_ANSWERS_H

#include "apps/gpt_eval/score.h"
#include <weft/weft.h>

/* Questions at once: the standard, and at most. */
enum { APP_ANSWERS_BATCH = 8, APP_ANSWERS_MOST_BATCH = 64 };

typedef struct app_answers_options {
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    const app_requests *requests;
    int64_t batch;        /* questions at once */
    int64_t copies, copy; /* every copies-th question is this rank's, from number `copy` on */
    /* Called before each choice of a batch of questions: true, on all ranks of the copy alike, ends them there, and
       answers that are not found yet stay as they are. NULL: all are found. */
    bool (*stop)(void *arg);
    void *arg;
} app_answers_options;

/*
 * The answers of this rank's questions, the same on any exact layout and batch. A context is computed once for all that follow it.
 * answer: [requests], written where the question is this rank's; NULL: the rank takes part alone.
 * Collective over the ranks of a copy; over all of them where parameters are sharded over copies: copies is 1 then.
 * Errors: those of the engine, WF_ENOMEM, in the context.
 */
wf_status app_answers_find(const app_answers_options *options, app_answer *answer);

/* Tokens of the longest request, in a slot. */
int64_t app_answers_longest(const app_requests *requests);

/* In a plan: what the longest context takes, and the fullest pass over answers. `requests` is not looked at. */
wf_status app_answers_plan(const app_answers_options *options, int64_t longest);

#endif
