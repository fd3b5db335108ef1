/* apps/gpt_train/eval_requests.h - --eval-requests: questions that a model in training answers
   beside its validation loss. */
#ifndef WF_APPS_TRAIN_EVAL_REQUESTS_H
#define WF_APPS_TRAIN_EVAL_REQUESTS_H

#include "parallel/generate/answers.h"
#include "apps/options/options.h"

typedef struct app_eval_requests {
    wf_gen_requests requests; /* none: nothing is asked */
    wf_gen_answer *answer;    /* [requests], rank 0's */
} app_eval_requests;

/* Reads the file, where --eval-requests names one. Owner: caller, app_eval_requests_close (also
   of a failed one). Errors: those of app_train_tokenizer_open and wf_gen_requests_read. */
wf_status app_eval_requests_open(const app_options *options, bool data_are_text,
                                 app_eval_requests *asked, wf_error *error);
void app_eval_requests_close(app_eval_requests *asked);

/* Every rank goes through all questions; rank 0 has the score, unless stop(arg) ended them
   early, as in wf_gen_answers_options. pipelined: as wf_gen_answers_options has it. Collective
   over the world. */
wf_status app_eval_requests_answer(const app_eval_requests *asked, wf_par *par,
                                   wf_nn_gpt *model, wf_par_trainer *pipelined, bool first_rank,
                                   bool (*stop)(void *arg), void *arg, wf_gen_score *score);

/* Takes in a plan what that takes; nothing where there are no questions. */
wf_status app_eval_requests_plan(const app_eval_requests *asked, wf_par *par, wf_nn_gpt *model,
                                 wf_par_trainer *pipelined);

#endif
