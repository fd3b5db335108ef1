/* parallel/report/step_report_internal.h - the report of a step as JSON, for reports that have
   more. Not installed. */
#ifndef WF_PARALLEL_REPORT_STEP_REPORT_INTERNAL_H
#define WF_PARALLEL_REPORT_STEP_REPORT_INTERNAL_H

#include "parallel/report/step_report.h"
#include <jansson.h>

/* Returns the object of step_report.h; NULL: no memory, or facts that are no object. Owner: the
   caller. */
json_t *wf_step_report_json(const wf_step_report *run, const wf_par_report *report);

/* Writes an object to a file, replacing that; takes json. Errors: WF_EIO with path and
   reason */
wf_status wf_step_report_publish(json_t *json, const char *path, wf_error *error);

#endif
