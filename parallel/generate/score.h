/* parallel/generate/score.h - answers of a model to evaluation tasks, and their accuracy. */
#ifndef WF_PARALLEL_GENERATE_SCORE_H
#define WF_PARALLEL_GENERATE_SCORE_H

#include "parallel/generate/requests.h"

WF_BEGIN_DECLS

typedef struct wf_gen_answer {
    double logprob; /* the continuation's */
    bool greedy;    /* each token of it is the likeliest */
} wf_gen_answer;

/* The score of questions whose right answer is known. */
typedef struct wf_gen_score {
    int64_t questions, labelled;
    int64_t right,
        right_by_bytes;   /* the likeliest is the right one; the likeliest by its bytes is */
    double bits_per_byte; /* the mean over right answers; NaN where none is known */
} wf_gen_score;

/** wf_gen_answers_labelled - returns true where the right answer of any question is known */
WF_API bool wf_gen_answers_labelled(const wf_gen_requests *requests);

/**
 * wf_gen_answers_check - checks that all answers are numbers: one that is not finite is neither
 * right nor wrong
 *
 * @param path  of the file of requests, for errors
 * Errors:  WF_ENONFINITE, with the line of the file
 */
WF_API wf_status wf_gen_answers_check(const wf_gen_requests *requests,
                                      const wf_gen_answer *answer, const char *path,
                                      wf_error *error);

/** wf_gen_answers_score - counts right answers (accuracy), and bits per byte of right ones */
WF_API wf_gen_score wf_gen_answers_score(const wf_gen_requests *requests,
                                         const wf_gen_answer *answer);

WF_END_DECLS

#endif
