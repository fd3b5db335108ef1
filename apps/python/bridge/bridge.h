/*
 * apps/python/bridge/bridge.h - what the Python module weft calls: a run of gpt_train's flags
 * that is driven step by step (parallel/program/session.h), in a few calls with plain
 * arguments.
 *
 * Each returns a wf_status, with the error's text in `error`, which the caller gives. Arrays
 * are the caller's, of C order. One call of a run at a time; they come from one thread or
 * several.
 */
#ifndef WF_APPS_PYTHON_BRIDGE_H
#define WF_APPS_PYTHON_BRIDGE_H

#include "core/export.h"
#include "core/status.h"
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct weft_python_run weft_python_run;

/* Sizes of a run, and its settings. */
typedef struct weft_python_sizes {
    int64_t batch, tokens, vocabulary, positions, ranks, steps;
} weft_python_sizes;

/* A step that was made. Where there is no digest has_digest is 0, and so on. */
typedef struct weft_python_step {
    int64_t step;
    double loss, grad_norm, lr, ms, tokens_per_s, val_loss;
    uint64_t digest, memory_peak;
    int32_t has_digest, has_val_loss, skipped;
} weft_python_step;

/* The way in which texts are drawn (wf_gen_sampling), and what ends them. */
typedef struct weft_python_sampling {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, most; /* most: tokens that are generated, at most */
    uint64_t seed;
    const int32_t *ends; /* [n_ends] ids that end a text */
    int64_t n_ends;
} weft_python_sampling;

/**
 * weft_python_open - opens the run of a command line, whose ranks are threads of this process
 *
 * @param argv   [argc] as of gpt_train; it has --data, or `fed` is 1
 * @param fed    1: each step is given its batch
 * @param quiet  1: nothing is printed on stdout
 * Owner:        the caller, weft_python_close
 * Errors:       those of gpt_train; *run is NULL then
 */
WF_API int weft_python_open(int argc, char **argv, int fed, int quiet, weft_python_run **run,
                            wf_error *error);

/** weft_python_close - ends a run and frees it. Errors: a failure that no call has returned */
WF_API int weft_python_close(weft_python_run *run, wf_error *error);

/** weft_python_sizes_of - fills in the sizes; weft_python_steps - returns the steps done */
WF_API void weft_python_sizes_of(const weft_python_run *run, weft_python_sizes *sizes);
WF_API int64_t weft_python_steps(const weft_python_run *run);

/** weft_python_options - returns the complete flags as a JSON object. Owner: the caller,
 * weft_python_free; NULL: no memory */
WF_API char *weft_python_options(const weft_python_run *run);
WF_API void weft_python_free(void *memory);

/**
 * weft_python_train - makes the next step
 *
 * @param tokens   [batch, tokens]; NULL: the run reads its own data
 * @param targets  [batch, tokens], the token after each; below 0: does not count
 */
WF_API int weft_python_train(weft_python_run *run, const int32_t *tokens,
                             const int32_t *targets, weft_python_step *made, wf_error *error);

/** weft_python_batch - reads the batch that a run with data of its own has in a step, counted
 * from 1. tokens, targets: [batch, tokens]; validation 1: of the validation part, from 0 */
WF_API int weft_python_batch(weft_python_run *run, int validation, int64_t step,
                             int32_t *tokens, int32_t *targets, wf_error *error);

/** weft_python_evaluate - computes the mean loss over whole batches, without dropout. tokens,
 * targets: [batches x batch, tokens] */
WF_API int weft_python_evaluate(weft_python_run *run, int64_t batches, const int32_t *tokens,
                                const int32_t *targets, double *mean, wf_error *error);

/**
 * weft_python_generate - continues texts, with the bits of the trainer
 *
 * @param count     texts
 * @param ids       the ids of all prompts, one after the other; counts: [count] of each
 * @param out       [count][width] the prompt and what was generated; width is at least the
 *                  longest prompt and sampling->most
 * @param lengths   [count] ids of each text in `out`
 * @param logprobs  NULL, or [count][width]: at i the log probability of the id at i, given
 *                  those before it; 0 for prompts
 */
WF_API int weft_python_generate(weft_python_run *run, const weft_python_sampling *sampling,
                                int64_t count, const int32_t *ids, const int64_t *counts,
                                int64_t width, int32_t *out, int64_t *lengths, float *logprobs,
                                wf_error *error);

/** weft_python_logprobs - computes log probabilities: out[i][t] of ids[i][t + 1], given those
 * before it, with the bits of the trainer. ids: [count][length]; out: [count][length - 1] */
WF_API int weft_python_logprobs(weft_python_run *run, int64_t count, int64_t length,
                                const int32_t *ids, float *out, wf_error *error);

/** weft_python_digest - computes the digest of parameters and optimizer */
WF_API int weft_python_digest(weft_python_run *run, uint64_t *digest, wf_error *error);

/** weft_python_save - saves a checkpoint into a folder of some, as --save does;
 * weft_python_export - writes the model for transformers. dtype: "f32" .. */
WF_API int weft_python_save(weft_python_run *run, const char *folder, wf_error *error);
WF_API int weft_python_export(weft_python_run *run, const char *folder, const char *dtype,
                              wf_error *error);

/** weft_python_encode - encodes a text with the model's tokenizer; weft_python_decode - decodes
 * ids. Owner: the caller, weft_python_free of *ids or *text */
WF_API int weft_python_encode(weft_python_run *run, const char *text, int64_t bytes,
                              int32_t **ids, int64_t *count, wf_error *error);
WF_API int weft_python_decode(weft_python_run *run, const int32_t *ids, int64_t count,
                              char **text, int64_t *bytes, wf_error *error);

/** weft_python_plan - plans the run of a command line, or searches its layouts (--search); a
 * table for people. Owner: the caller, weft_python_free of *report */
WF_API int weft_python_plan(int argc, char **argv, char **report, wf_error *error);

/** weft_python_version - returns the library's version */
WF_API const char *weft_python_version(void);

WF_END_DECLS

#endif
