/* apps/tools/run_rows.h - what a run logged (gpt_train --log-jsonl), step by step. */
#ifndef WF_APPS_TOOLS_RUN_ROWS_H
#define WF_APPS_TOOLS_RUN_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A step's row of a log. */
typedef struct app_run_row {
    json_int_t number;
    /* index among all rows: a run that continued from an earlier step repeats steps */
    size_t index;
    json_t *row;
} app_run_row;

/* The last row of every step of a log, in the order of steps. */
typedef struct app_run_rows {
    app_run_row *of;
    size_t steps, room;
    json_t *first; /* the last row of the run, which says by what rules it computes; or NULL */
} app_run_rows;

/* False, and what is wrong on stderr, where the file is no such log. Owner: caller,
   app_run_rows_free, in any case. */
bool app_run_rows_read(const char *path, app_run_rows *rows);
void app_run_rows_free(app_run_rows *rows);

#endif
