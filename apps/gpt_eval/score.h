/* apps/gpt_eval/score.h - answers of a model, and how often they are right. */
#ifndef WF_APPS_GPT_EVAL_SCORE_H
#define WF_APPS_GPT_EVAL_SCORE_H

#include "apps/gpt_eval/requests.h"

typedef struct app_answer {
    double logprob; /* the continuation's */
    bool greedy;    /* each token of it is the likeliest */
} app_answer;

/* The first request behind those of one question. */
int64_t app_answers_next(const app_requests *requests, int64_t begin);

/* Of questions whose right answer is known. */
typedef struct app_score {
    int64_t questions, labelled;
    int64_t right,
        right_by_bytes;   /* where the likeliest is the right one; the likeliest by its bytes */
    double bits_per_byte; /* the mean of those of right answers */
} app_score;

app_score app_answers_score(const app_requests *requests, const app_answer *answer);

#endif
