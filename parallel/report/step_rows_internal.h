/* parallel/report/step_rows_internal.h - the rows of --log-jsonl, whose form run_log.h
   describes. */
#ifndef WF_PARALLEL_REPORT_STEP_ROWS_INTERNAL_H
#define WF_PARALLEL_REPORT_STEP_ROWS_INTERNAL_H

#include "parallel/report/run_log.h"

typedef struct wf_step_rows wf_step_rows;

/* Opens options->path and reads what it has; changes nothing. Errors: those of
   wf_run_log_open. */
wf_status wf_step_rows_open(const wf_run_log_options *options, wf_step_rows **rows,
                            wf_error *error);

/* Returns the last step that it had; 0: none. */
int64_t wf_step_rows_logged(const wf_step_rows *rows);

/* Writes the row of the run. */
wf_status wf_step_rows_begin(wf_step_rows *rows, int64_t after, wf_error *error);

/* Writes the row of a step. mfu: NaN where it is not known. unwritten: WF_EIO where the file
   takes none, which ends no run. Errors: WF_ENOMEM */
wf_status wf_step_rows_write(wf_step_rows *rows, const wf_step_log *record, double mfu,
                             wf_error *unwritten, wf_error *error);

/* Closes it; NULL is allowed. Errors: WF_EIO */
wf_status wf_step_rows_close(wf_step_rows *rows, wf_error *error);

#endif
