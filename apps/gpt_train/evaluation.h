/* apps/gpt_train/evaluation.h - the validation loss behind a step, and requests that end it early. */
#ifndef WF_APPS_EVALUATION_H
#define WF_APPS_EVALUATION_H

#include "apps/gpt_train/train_steps.h"

/* Returns what this rank's process was asked for (parallel/recovery/signal_requests.h). */
uint64_t app_loop_requests(const app_loop *loop);

/* Evaluates behind a step, where one is due. It may take longer than a scheduler waits, so a request to stop ends it before its
   next batch, or choice of a question: nothing is logged of a part. Collective. Errors: in the context. */
wf_status app_loop_evaluate(app_loop *loop, int64_t step, wf_step_log *record);

#endif
