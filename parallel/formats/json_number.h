/* parallel/formats/json_number.h - numbers of JSON, which has neither NaN nor infinity: such a
   value is refused by its key. */
#ifndef WF_PARALLEL_FORMATS_JSON_NUMBER_H
#define WF_PARALLEL_FORMATS_JSON_NUMBER_H

#include "core/status.h"
#include <stdio.h>

WF_BEGIN_DECLS

struct json_t; /* jansson's, <jansson.h> */

/** wf_json_number - returns the value as a number of JSON; NULL where it is not finite, which
 * wf_json_check of this thread reports with the key. Owner: the caller, json_decref */
WF_API struct json_t *wf_json_number(const char *key, double value);

/**
 * wf_json_check - checks the numbers that this thread has made since its last check
 *
 * @param json  the value made of them; NULL: there was no memory for it
 * @param what  its name in the text: "a line of answers"
 * Errors:  WF_ENONFINITE where a number was refused, WF_ENOMEM
 */
WF_API wf_status wf_json_check(const struct json_t *json, const char *what, wf_error *error);

/** wf_json_write - checks an object and writes it as a line, with flags of json_dumpf. Errors:
 * as wf_json_check's, WF_EIO */
WF_API wf_status wf_json_write(const struct json_t *json, FILE *out, size_t flags,
                               const char *what, wf_error *error);

/** wf_json_line - writes an object as a line, its numbers with `digits` digits, and frees it.
 * Errors: as wf_json_write's */
WF_API wf_status wf_json_line(struct json_t *json, FILE *out, int digits, const char *what,
                              wf_error *error);

WF_END_DECLS

#endif
