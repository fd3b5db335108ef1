/* apps/gpt_train/step_rows.h - the rows of --log-jsonl, whose form run_log.h describes. */
#ifndef WF_APPS_STEP_ROWS_H
#define WF_APPS_STEP_ROWS_H

#include "apps/gpt_train/run_log.h"

typedef struct app_step_rows app_step_rows;

/* Opens options->path and reads what it has; changes nothing. Errors: those of app_run_log_open. */
wf_status app_step_rows_open(const app_run_log_options *options, app_step_rows **rows,
                             wf_error *error);

/* Returns the last step that it had; 0: none. */
int64_t app_step_rows_logged(const app_step_rows *rows);

/* Writes the row of the run. */
wf_status app_step_rows_begin(app_step_rows *rows, int64_t after, wf_error *error);

/* Writes the row of a step. mfu: NaN where it is not known. unwritten: WF_EIO where the file takes none, which ends no run. Errors: WF_ENOMEM */
wf_status app_step_rows_write(app_step_rows *rows, const app_step_log *record, double mfu,
                              wf_error *unwritten, wf_error *error);

/* Closes it; NULL is allowed. Errors: WF_EIO */
wf_status app_step_rows_close(app_step_rows *rows, wf_error *error);

#endif
