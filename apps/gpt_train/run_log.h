/*
 * apps/gpt_train/run_log.h - what a training run says: a line per step on the console, a row in a file.
 *
 * On a terminal one line rewrites itself, and about twenty lines of a run are kept. Elsewhere
 * there are about a hundred plain lines. The first step, the last one and each one with a
 * validation loss always have a line. The JSONL file has a row of the run, then a row per step:
 *
 *     {"mesh": {"dp": 2, "tp": 2}, "world": 4, "transport": "threads", "numerics": "3f2a..",
 *      "options": {...}, "after": 0}
 *     {"step": 1, "loss": 5.54528999, "loss_bits": "40b17301", "grad_norm": ..., "lr": ...,
 *      "ms": ..., "tokens_per_s": ..., "model_flops_per_s": ..., "mfu": null, "val_loss": null, "digest": "91c4..."}
 *
 * "after" is the step behind which these rows go on: 0 of a run from its beginning. A file that has rows of steps is continued
 * by a run that goes on, or may, and refused by another one.
 *
 * Behind val_loss, with --eval-requests, "acc", "acc_norm" and "answer_bits_per_byte" are what gpt_eval choices says of the
 * model. loss is null where nothing of the batch counts, val_loss on steps without an evaluation, as is any number that
 * is not finite; digest is there only if the record has one. With digests of tensors it is followed by
 * "digests": {PATH: ..., ...}, in the order of parameters; those of moments are PATH.m and PATH.v.
 */
#ifndef WF_APPS_RUN_LOG_H
#define WF_APPS_RUN_LOG_H

#include "parallel/generate/score.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct app_run_axis {
    const char *name;
    int64_t size;
} app_run_axis;

typedef struct app_run_log_options {
    FILE *console;    /* NULL: no lines */
    bool terminal;    /* the console is one: rewrite a line */
    int columns;      /* columns of the terminal; 0: 80 */
    int64_t steps;    /* the last step's number */
    const char *path; /* JSONL file; NULL: none */
    bool continues;   /* behind rows that the file has; else it must have none of a step */
    double peak;      /* FLOP/s of all devices at their peak, for MFU; 0: not known */
    const char *tensorboard; /* directory for a new file of events (event_file.h); NULL: none */

    const app_run_axis *axes; /* outermost first; borrowed for the call, as what follows */
    int axis_count;

    /* The first row, needed with path only. */
    const char *transport;
    const char
        *numerics; /* the run's identity (parallel/models/gpt/numerics.h); NULL or "": null */
    const json_t *options;
} app_run_log_options;

typedef struct app_step_log {
    int64_t step;    /* from 1 */
    float loss;      /* mean over the global batch */
    float grad_norm; /* before clipping */
    double lr, ms, tokens_per_s;
    double
        model_flops_per_s; /* model FLOPs of all ranks in a second (wf_context_model_flops) */
    size_t memory_peak;    /* bytes, of the rank with most */
    bool has_val_loss, has_digest, has_score;
    float val_loss;
    wf_gen_score score; /* what --eval-requests came to */
    uint64_t digest;
    const struct wf_par_tensor_digest *of; /* [tensors], with a digest; borrowed for the call */
    int64_t tensors;
} app_step_log;

typedef struct app_run_log app_run_log;

/**
 * app_run_log_console - fills console, terminal and columns from what `console` is connected to.
 */
void app_run_log_console(app_run_log_options *options, FILE *console);

/**
 * app_run_log_open - opens the file and sees to the folder of events; nothing that is there changes.
 *
 * Owner:   the caller, app_run_log_close
 * Errors:  WF_EIO with path and reason, WF_EINVAL: the file has rows that this run does not continue, or is none of
 *          rows; WF_ENOMEM; *log is then NULL
 */
wf_status app_run_log_open(const app_run_log_options *options, app_run_log **log,
                           wf_error *error);

/** app_run_log_logged - returns the last step of which the file had a row when it was opened; 0 where it had none. */
int64_t app_run_log_logged(const app_run_log *log);

/**
 * app_run_log_begin - writes the first row and makes the file of events, once the run has all that it needs; calls after
 * the first one do nothing.
 *
 * @param after  the step behind which its rows go on
 * Errors:       WF_EIO with path and reason, WF_ENOMEM
 */
wf_status app_run_log_begin(app_run_log *log, int64_t after, wf_error *error);

/**
 * app_run_log_step - one step: a row that is in the file on return, and what the console shows. It begins the log.
 *
 * Errors:  WF_EIO with path and reason
 */
wf_status app_run_log_step(app_run_log *log, const app_step_log *record, wf_error *error);

/**
 * app_run_log_clear - ends a progress line, so that other text can follow on the console.
 */
void app_run_log_clear(app_run_log *log);

/**
 * app_run_log_close - closes the file; NULL is allowed.
 *
 * Errors:  WF_EIO when the file's last bytes could not be kept
 */
wf_status app_run_log_close(app_run_log *log, wf_error *error);

#endif
