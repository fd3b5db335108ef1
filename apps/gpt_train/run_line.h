/* apps/gpt_train/run_line.h - the console line of a step. */
#ifndef WF_APPS_RUN_LINE_H
#define WF_APPS_RUN_LINE_H

#include "apps/gpt_train/run_log.h"

enum { APP_RUN_LINE = 512 };

/* Writes the line of a step of `steps`, each of which takes about mean_ms. What is a mean over nothing is "none".
   mfu: NaN where it is not known */
void app_run_line(char line[APP_RUN_LINE], const app_step_log *record, int64_t steps,
                  double mean_ms, double mfu);

/* Returns how many of the questions with a label are right, as a share; NaN where none has one. */
double app_run_share(const wf_gen_score *score, int64_t right);

#endif
