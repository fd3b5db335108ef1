/* apps/json_number.h - numbers of JSON, which has neither NaN nor infinity: such a value is refused by its key. */
#ifndef WF_APPS_JSON_NUMBER_H
#define WF_APPS_JSON_NUMBER_H

#include "core/status.h"
#include <jansson.h>
#include <stdio.h>

/* Returns the value as a number of JSON; NULL where it is not finite, which app_json_check of this thread reports with
   the key. Owner: the caller */
json_t *app_json_number(const char *key, double value);

/* Checks what was made of numbers since the last check of this thread. Errors: WF_ENONFINITE where one was refused,
   whatever became of the object; WF_ENOMEM where there is no object. `what` is in the text: "a line of answers" */
wf_status app_json_check(const json_t *json, const char *what, wf_error *error);

/* Checks an object and writes it as a line, with flags of json_dumpf. Errors also WF_EIO */
wf_status app_json_write(const json_t *json, FILE *out, size_t flags, const char *what,
                         wf_error *error);

/* The same with so many digits of a number, and frees it. Errors also WF_EIO */
wf_status app_json_line(json_t *json, FILE *out, int digits, const char *what, wf_error *error);

#endif
