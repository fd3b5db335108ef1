/* tests/bench/models.h - the models that are trained here, and the work of a step. */
#ifndef WF_TESTS_BENCH_MODELS_H
#define WF_TESTS_BENCH_MODELS_H

#include "tests/bench/bench.h"

typedef struct bench_model {
    const char *name;
    wf_nn_gpt_config config;
    int64_t batch, seq;    /* sequences of a step, and their tokens */
    int64_t micro;         /* sequences of a micro-batch; 0: all that a rank has */
    const char *recompute; /* wf_nn_recompute's; NULL: nothing */
} bench_model;

/* NULL and a text that lists those that there are. */
const bench_model *bench_model_find(const char *name, wf_error *error);

/*
 * Operations that training on one token takes: 6 for each weight of a matrix that multiplies it
 * (a lookup does not), and attention's 12 S width a layer, of which the causal half is counted.
 */
double bench_model_flops(const bench_model *model);

/* A rank's part of training a model on tokens that are a function of step and sequence. */
typedef struct bench_trainee {
    wf_par *par;
    wf_nn_module *model;
    wf_par_trainer *trainer;
    int64_t step;
} bench_trainee;

/* A model, planned, a wf_par_model_function whose arg is the bench_model; how it is trained. */
wf_nn_module *bench_model_new(wf_par *par, void *model);
wf_par_train_options bench_training(const bench_model *model);

/* Opens a rank's part, through the stages of a pipeline where that is not NULL; the rank's
   error is set on failure. */
bench_trainee *bench_trainee_open(wf_rank *rank, const wf_par_options *options,
                                  const bench_model *model, const wf_par_pipeline *pipeline);
wf_status bench_trainee_step(wf_rank *rank, bench_trainee *trainee, const bench_model *model,
                             float *loss);
void bench_trainee_close(bench_trainee *trainee);

/* ---- the products of a step by other libraries (ceiling.c) ---- */

typedef struct bench_ceiling bench_ceiling;

/* Loads the libraries; NULL and a text where there are none. It forks: open it before
   threads. */
bench_ceiling *bench_ceiling_open(const bench_model *model, bench_report *report,
                                  wf_error *error);
void bench_ceiling_close(bench_ceiling *ceiling);

/* Adds an entrant per library with `threads` threads, whose seconds are those of all products
   of a step; returns how many, BENCH_BLAS at most. Of all calls there may be BENCH_ENTRANTS. */
int bench_ceiling_entrants(bench_ceiling *ceiling, int threads, bench_entrant *entrant);

/* Returns the rate of the fastest library, from its entrants after a race. */
double bench_ceiling_gflops(const bench_ceiling *ceiling, const bench_entrant *entrant);

#endif
