/*
 * parallel/report/run_log.h - the log of a training run: a line per step on the console, a row
 * in a JSONL file, scalars for TensorBoard.
 *
 * On a terminal one line rewrites itself, and about twenty lines of a run are kept. Elsewhere
 * there are about a hundred plain lines. The first step, the last one and each one with a
 * validation loss always have a line. The JSONL file has a row of the run, then a row per step:
 *
 *     {"mesh": {"dp": 2, "tp": 2}, "world": 4, "transport": "threads", "numerics": "3f2a..",
 *      "options": {...}, "after": 0}
 *     {"step": 1, "loss": 5.54528999, "loss_bits": "40b17301", "grad_norm": ..., "lr": ...,
 *      "ms": ..., "tokens_per_s": ..., "model_flops_per_s": ..., "mfu": null, "val_loss": null,
 *      "digest": "91c4..."}
 *
 * "after" is the step after which these rows begin: 0 of a run from its beginning. A file that
 * has rows of steps is continued by a run that is resumed, or may be, and refused by another
 * one.
 *
 * Losses that modules add to the step's own (wf_nn_add_loss) follow val_loss, by name:
 * "losses": {"balance": 1.02}; TensorBoard has them as loss_metrics/NAME.
 *
 * After these follow the scalars of the program's own, by their keys. loss is null where no
 * token of the batch counts, val_loss on steps without an evaluation, as is any number that is
 * not finite; digest is there only if the record has one. With digests of tensors it is
 * followed by "digests": {PATH: ..., ...}, in the order of parameters; those of moments are
 * PATH.m and PATH.v. "skipped": true follows val_loss in a step that changed no parameter.
 * "expert_load" is there only if the record has one: the tokens of each expert by mixture,
 * {"block.0.moe": [17, ..], ..}.
 */
#ifndef WF_PARALLEL_REPORT_RUN_LOG_H
#define WF_PARALLEL_REPORT_RUN_LOG_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_run_axis {
    const char *name;
    int64_t size;
} wf_run_axis;

typedef struct wf_run_log_options {
    FILE *console;    /* NULL: no lines */
    bool terminal;    /* the console is one: rewrite a line */
    int columns;      /* columns of the terminal; 0: 80 */
    int64_t steps;    /* the last step's number */
    const char *path; /* JSONL file; NULL: none */
    bool continues;   /* append to the rows of the file; else it must have no row of a step */
    double peak;      /* FLOP/s of all devices at their peak, for MFU; 0: not known */
    const char *tensorboard; /* directory for a new file of events (event_file.h); NULL: none */

    const wf_run_axis *axes; /* outermost first; borrowed for the call, as what follows */
    int axis_count;

    /* The first row, needed with path only. */
    const char *transport;
    const char
        *numerics; /* the run's identity (parallel/models/gpt/numerics.h); NULL or "": null */
    const char *settings; /* the run's options, as a JSON object */
    /* Called with warnings that do not stop the run: a row that found no room, a step without a
       loss; NULL: wf_par_warn. */
    void (*warning)(void *arg, const char *text);
    void *arg;
} wf_run_log_options;

/* Scalars of a program's own in a step, at most. */
enum { WF_LOG_SCALARS = 32 };

/** wf_log_scalar - a number of a program's own beside those of every run. */
typedef struct wf_log_scalar {
    const char *key; /* in the rows, and on the console where `shown` */
    const char *tag; /* for TensorBoard; NULL: not there */
    double value;    /* NaN: null in rows, "none" on the console, no point in TensorBoard */
    int digits;      /* significant ones in rows */
    bool shown;
} wf_log_scalar;

typedef struct wf_step_log {
    int64_t step;    /* from 1 */
    float loss;      /* mean over the global batch */
    float grad_norm; /* before clipping */
    double lr, ms, tokens_per_s;
    /* model FLOPs of all ranks in a second (wf_context_model_flops) */
    double model_flops_per_s;
    size_t memory_peak; /* bytes, of the rank with most */
    bool has_val_loss, has_digest;
    bool skipped; /* the step has changed no parameter (wf_par_train_options.skip) */
    float val_loss;
    /* [loss_count] means of the losses that modules add, without their weights; borrowed */
    const struct wf_par_step_loss *losses;
    int loss_count;
    const wf_log_scalar *scalars; /* [scalar_count]; borrowed for the call */
    int scalar_count;
    uint64_t digest;
    const struct wf_par_tensor_digest *of; /* [tensors], with a digest; borrowed for the call */
    int64_t tensors;
    const struct wf_layer_load *loads; /* [load_count] of experts; borrowed for the call */
    int load_count;
} wf_step_log;

typedef struct wf_run_log wf_run_log;

/** wf_run_log_console - fills in console, terminal and columns for a stream. */
WF_API void wf_run_log_console(wf_run_log_options *options, FILE *console);

/**
 * wf_run_log_open - opens the file and checks the folder of events; nothing that exists
 * changes.
 *
 * Owner:   the caller, wf_run_log_close
 * Errors:  WF_EIO with path and reason, WF_EINVAL: the file has rows that this run does not
 *          continue, or is none of rows; WF_ENOMEM; *log is then NULL
 */
WF_API wf_status wf_run_log_open(const wf_run_log_options *options, wf_run_log **log,
                                 wf_error *error);

/** wf_run_log_logged - returns the last step of which the file had a row when it was opened; 0
 * where it had none. */
WF_API int64_t wf_run_log_logged(const wf_run_log *log);

/**
 * wf_run_log_begin - writes the first row and makes the file of events, once the run has all
 * that it needs; calls after the first one do nothing.
 *
 * @param after  the step after which its rows begin
 * Errors:       WF_EIO with path and reason, WF_ENOMEM
 */
WF_API wf_status wf_run_log_begin(wf_run_log *log, int64_t after, wf_error *error);

/**
 * wf_run_log_step - logs one step: a row that is in the file on return, and a line on the
 * console. It begins the log.
 *
 * Errors:  WF_EIO with path and reason
 */
WF_API wf_status wf_run_log_step(wf_run_log *log, const wf_step_log *record, wf_error *error);

/**
 * wf_run_log_clear - ends a progress line, so that other text can follow on the console.
 */
WF_API void wf_run_log_clear(wf_run_log *log);

/**
 * wf_run_log_close - closes the file; NULL is allowed.
 *
 * Errors:  WF_EIO when the file's last bytes could not be kept
 */
WF_API wf_status wf_run_log_close(wf_run_log *log, wf_error *error);

WF_END_DECLS

#endif
