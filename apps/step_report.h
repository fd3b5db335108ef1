/*
 * apps/step_report.h - what a step takes and moves, printed and as JSON. A plan and a run write
 * the same keys in the same order, so that the two files can be compared with a diff:
 *
 *     {"mesh": {"pp": 1, "replicate": 4, "shard": 1, "tp": 2}, "rank": 7, "strategy": "no_shard",
 *      "model": {...}, "parameters": {"trained": {"count": 1774464, "share": 1774464, "at_rest": 7097856},
 *      "adapters": {...}, "frozen": {...}}, "units": [{"type": "gpt_block", "count": 6, "parameters": 1774464,
 *      "at_rest": 792192, "gathered": 1584384}], "batch": {...},
 *      "memory": {"peak": 123, "moment": "backward of block.1.mlp", "at_peak": {...},
 *                 "most": {...}},
 *      "bytes_per_parameter": {...},
 *      "collectives": [{"axis": "tp", "ranks": 2, "kind": "all_reduce", "calls": 9, "bytes": 64}],
 *      "flops": 1e9}
 *
 * A plan has one key more, "plan", for what only a plan knows; it comes first.
 */
#ifndef WF_APPS_STEP_REPORT_H
#define WF_APPS_STEP_REPORT_H

#include "apps/options/options.h"
#include <weft/weft.h>

/* The object above; NULL where memory ran out. Owner: the caller. */
json_t *app_step_report_json(const app_options *options, const wf_par_report *report);

/* Write it to a file, replacing that; takes json. WF_EIO with path and reason. */
wf_status app_step_report_write(json_t *json, const char *path, wf_error *error);

#endif
