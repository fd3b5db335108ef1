/* apps/gpt_train/exam.h - --eval-requests: questions that a model in training answers beside
   its validation loss. */
#ifndef WF_APPS_TRAIN_EXAM_H
#define WF_APPS_TRAIN_EXAM_H

#include "parallel/generate/answers.h"
#include "apps/options/options.h"

typedef struct app_exam {
    wf_gen_requests requests; /* none: nothing is asked */
    wf_gen_answer *answer;    /* [requests], rank 0's */
} app_exam;

/* Reads the file, where --eval-requests names one, and sets options->exam_tokens. Owner:
   caller, app_exam_close (also of a failed one). Errors: those of app_train_tokenizer_open and
   wf_gen_requests_read. */
wf_status app_exam_open(app_options *options, bool data_are_text, app_exam *exam,
                        wf_error *error);
void app_exam_close(app_exam *exam);

/* Every rank goes through all questions; rank 0 has the score, unless stop(arg) ended them
   early, as in wf_gen_answers_options. pipelined: as wf_gen_answers_options has it. Collective
   over the world. */
wf_status app_exam_take(const app_exam *exam, wf_par *par, wf_nn_gpt *model,
                        wf_par_trainer *pipelined, bool first_rank, bool (*stop)(void *arg),
                        void *arg, wf_gen_score *score);

/* Takes in a plan what that takes; nothing where there are no questions. */
wf_status app_exam_plan(const app_options *options, wf_par *par, wf_nn_gpt *model,
                        wf_par_trainer *pipelined);

#endif
