/*
 * parallel/report/step_report.h - what a step takes and moves, printed and as JSON. A plan and
 * a run write the same keys in the same order, so that the two files can be compared with a
 * diff:
 *
 *     {"mesh": {"pp": 1, "replicate": 4, "shard": 1, "tp": 2}, "rank": 7, "strategy":
 *     "no_shard",
 *      "model": {...}, "parameters": {"trained": {"count": 1774464, "share": 1774464,
 *      "at_rest": 7097856}, "adapters": {...}, "frozen": {...}}, "units": [{"type":
 *      "gpt_block", "count": 6, "parameters": 1774464, "at_rest": 792192, "gathered":
 *      1584384}], "batch": {...}, "memory": {"peak": 123, "moment": "backward of block.1.mlp",
 *      "at_peak": {...},
 *                 "most": {...}}, "host_memory": {"peak": 0, "most": {...}},
 *      "bytes_per_parameter": {...},
 *      "collectives": [{"axis": "tp", "ranks": 2, "kind": "all_reduce", "calls": 9, "bytes":
 *      64, "parameter_bytes": 0}], "flops": 1e9}
 *
 * A plan has one key more, "plan", for what only a plan knows; it comes first.
 */
#ifndef WF_PARALLEL_REPORT_STEP_REPORT_H
#define WF_PARALLEL_REPORT_STEP_REPORT_H

#include "parallel/train/report.h"

WF_BEGIN_DECLS

/** wf_step_report - the facts of a run that a report has beside those of its step. */
typedef struct wf_step_report {
    const char *strategy;
    const char *facts;     /* an object of JSON about the model; NULL: none */
    int64_t global, micro; /* sequences of a step and of a micro-step */
    int64_t tokens;        /* in a sequence */
} wf_step_report;

/**
 * wf_step_report_write - writes the object above to a file, replacing that
 *
 * Errors:  WF_EIO with path and reason, WF_EDATA (facts that are no object), WF_ENOMEM
 */
WF_API wf_status wf_step_report_write(const wf_step_report *run, const wf_par_report *report,
                                      const char *path, wf_error *error);

WF_END_DECLS

#endif
