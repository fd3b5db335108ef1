/*
 * tests/cuda/ahead_run.h - runs whose steps are launched before the one before them is
 * finished, beside the same ones op by op: rows, digests and errors are the same, on one rank
 * or several.
 */
#ifndef WF_TESTS_CUDA_AHEAD_RUN_H
#define WF_TESTS_CUDA_AHEAD_RUN_H

#include "parallel/train/ahead.h"
#include "tests/parallel/rows.h"

enum { AHEAD_STEPS = 8 }; /* the most that a run has */

/* A run, and what its steps were said to be on rank 0. */
typedef struct ahead_run {
    training t;
    bool ahead; /* by graphs, a step launched before the one before it is finished */
    /* the steps whose data are spoiled, without data, and not the same on all ranks; 0 */
    int64_t bad, missing, differs;
    int64_t sequence; /* the one that is meant; -1: any */
    bool evaluates;   /* after step 2, on data that are not the same on all ranks */
    int late;         /* milliseconds that the last rank's host is late by in each step */
    const char *transport;
    wf_par_step row[AHEAD_STEPS];
    int64_t syncs; /* waits after which the device was idle, of steps 3 and later */
    int64_t waits; /* for copies, of the same */
    wf_error error;
} ahead_run;

/* Returns a run of 5 steps of a small model, with a moving average of its weights. */
ahead_run ahead_run_of(model_kind kind, bool ahead);

/* A wf_par_data.read of a run. */
wf_status ahead_read(void *run, int64_t step, int64_t first, int64_t count, void *const *field,
                     wf_error *error);

/* A rank of a run. The context's error, after which the state is still digested where the rank
   is alone. */
wf_status ahead_rank(wf_rank *rank, void *run);

/* Runs it on its ranks. Of an error that counts collectives the number is cut off. */
void ahead_go(ahead_run *run);

/* Checks that two that were run have the same rows, digests and errors. */
void ahead_check(const ahead_run *one, const ahead_run *other, const char *what);

/* Runs two, and checks that they have. */
void ahead_same(ahead_run *one, ahead_run *other, const char *what);

#endif
