/* parallel/report/run_line_internal.h - the console line of a step. */
#ifndef WF_PARALLEL_REPORT_RUN_LINE_INTERNAL_H
#define WF_PARALLEL_REPORT_RUN_LINE_INTERNAL_H

#include "parallel/report/run_log.h"

enum { WF_RUN_LINE = 512 };

/* Writes the line of a step of `steps`, each of which takes about mean_ms. What is a mean over
   nothing is "none". mfu: NaN where it is not known */
void wf_run_line(char line[WF_RUN_LINE], const wf_step_log *record, int64_t steps,
                 double mean_ms, double mfu);

#endif
