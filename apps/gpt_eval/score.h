/* apps/gpt_eval/score.h - answers of a model, and how often they are right. */
#ifndef WF_APPS_GPT_EVAL_SCORE_H
#define WF_APPS_GPT_EVAL_SCORE_H

#include "apps/gpt_eval/requests.h"

typedef struct app_answer {
    double logprob; /* the continuation's */
    bool greedy;    /* each token of it is the likeliest */
} app_answer;

/* Of questions whose right answer is known. */
typedef struct app_score {
    int64_t questions, labelled;
    int64_t right,
        right_by_bytes;   /* where the likeliest is the right one; the likeliest by its bytes */
    double bits_per_byte; /* the mean of those of right answers; NaN where none is known */
} app_score;

/* Returns whether the right answer of any question is known. */
bool app_answers_labelled(const app_requests *requests);

/* Checks that all answers are numbers: one that is none is neither right nor wrong. Errors: WF_ENONFINITE, with the line
   of the file at `path` */
wf_status app_answers_check(const app_requests *requests, const app_answer *answer,
                            const char *path, wf_error *error);

app_score app_answers_score(const app_requests *requests, const app_answer *answer);

#endif
