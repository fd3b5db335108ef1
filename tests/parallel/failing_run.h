/*
 * tests/parallel/failing_run.h - a tiny model trained on a mesh of ranks in which something
 * goes wrong, and what became of each rank: a trial says which rank does what, run_trial sets
 * the other fields.
 *
 * CUnit's assertions are for the main thread, so ranks leave their errors in the trial. A
 * launch that hangs is ended by alarm().
 */
#ifndef WF_TESTS_PARALLEL_FAILING_RUN_H
#define WF_TESTS_PARALLEL_FAILING_RUN_H

#include "nn/layers/lora.h"
#include "nn/layers/moe.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/shard/materialize.h"
#include "parallel/stages/pipeline.h"
#include "parallel/train/train.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"
#include <ctype.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_RANKS = 8, NOBODY = -2, LIMIT_SECONDS = 60 };

typedef struct trial {
    int pp, tp, dp;       /* without a pipeline pp is 0 */
    const char *schedule; /* a pipeline's; NULL: the default one */
    int cp;               /* 0: 1 */
    const char *cp_form;
    int ep; /* ranks that split experts; 0: there are none */
    bool llama, sequence_parallel;
    bool qlora;           /* adapters on a base of 4 bits, their moments in 8 */
    const char *strategy; /* NULL: the default one */
    int prefetch;
    int64_t layers; /* 0: 1 */
    int64_t steps;
    int victim;              /* the rank that something happens to; NOBODY */
    const wf_par_rule *plan; /* NULL: that of GPTs */
    const wf_allocator *allocator;
    int64_t victim_seq_len; /* 0: like all others */
    bool victim_leaves;     /* after the model is built, content */
    int64_t skipped_step;   /* 0: none */
    /* NULL: nothing unusual */
    wf_par_loss_function *loss;
    wf_status (*read)(void *self, int64_t step, int64_t first, int64_t count,
                      void *const *field, wf_error *error);
    /* called after each step; false ends the rank */
    bool (*after)(struct trial *trial, wf_par *par, wf_par_trainer *trainer, int64_t step);

    wf_par_pipeline *pipeline; /* all ranks', made by run_trial */

    /* the results */
    wf_error launch, of[MOST_RANKS];
    wf_error before[MOST_RANKS]; /* for `after` to put an error that it clears */
    float last_loss[MOST_RANKS];
    uint64_t digest[MOST_RANKS];
    double seconds;
} trial;

/* The rank that runs on this thread; -1 is the thread that launched them. */
static _Thread_local int this_rank = -1;

static inline wf_status count_up(void *self, int64_t step, int64_t first, int64_t count,
                                 void *const *field, wf_error *error)
{
    const trial *t = self;
    int64_t length = this_rank == t->victim && t->victim_seq_len ? t->victim_seq_len : 8;
    int32_t *tokens = field[0], *targets = field[1];

    (void)error;
    for (int64_t i = 0; i < count * length; i++) {
        tokens[i] = (int32_t)((7 * step + 11 * (first + i / length) + i % length) % 61);
        targets[i] = (tokens[i] + 1) % 61;
    }
    return WF_OK;
}

static inline wf_par_train_options training_of(const trial *t, int64_t length)
{
    return (wf_par_train_options){
        .global_batch = 4,
        .micro_batch = 1,
        .field = WF_PAR_GPT_FIELDS(length),
        .clip = 1,
        .optimizer = {t->qlora ? WF_NN_ADAMW8BIT : WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                      .eps = 1e-8f, .weight_decay = 0.1f},
        .schedule = {.lr = 1e-2, .min_lr = 1e-3, .warmup = 1, .steps = 10},
        .loss = t->loss ? t->loss : wf_par_gpt_loss,
        .pipeline = t->pipeline};
}

static inline wf_par_options layout_of(const trial *t)
{
    return (wf_par_options){.pp = t->pp,
                            .tp = t->tp,
                            .dp = t->dp,
                            .cp = t->cp,
                            .cp_form = t->cp_form,
                            .ep = t->ep,
                            .dispatch =
                                t->ep > t->tp ? WF_PAR_DISPATCH_EXCHANGE : WF_PAR_DISPATCH_AUTO,
                            .exact_off = t->cp > 1,
                            .strategy = t->strategy,
                            .prefetch = t->prefetch,
                            .sequence_parallel = t->sequence_parallel,
                            .base_dtype = t->qlora ? WF_NF4 : WF_F32,
                            .seed = 1,
                            .allocator = t->allocator};
}

static inline int ranks_of(const trial *t)
{
    return (t->pp ? t->pp : 1) * t->tp * t->dp * (t->cp ? t->cp : 1);
}

static inline void train(trial *t, wf_rank *rank, wf_par *par, wf_nn_module *model)
{
    bool victim = rank->index == t->victim;
    const wf_par_data data = {.read = t->read ? t->read : count_up, .self = t};
    const wf_par_train_options options =
        training_of(t, victim && t->victim_seq_len ? t->victim_seq_len : 8);
    wf_par_trainer *trainer = wf_par_trainer_open(par, model, &options);

    for (int64_t step = 1; trainer && step <= t->steps; step++) {
        wf_par_step result = {.loss = 0};

        if (step == t->skipped_step)
            continue;
        if (wf_par_train_step(trainer, step, &data, &result) == WF_OK)
            t->last_loss[rank->index] = result.loss;
        if (t->after ? !t->after(t, par, trainer, step)
                     : wf_context_status(wf_par_context(par)) != WF_OK)
            break;
    }
    wf_par_trainer_close(trainer);
}

/* A wf_par_model_function: planned, and not real. */
static inline wf_nn_module *new_model(wf_par *par, void *arg)
{
    const trial *t = arg;
    wf_nn_gpt_config config = *wf_nn_gpt_family(t->llama ? "llama" : "gpt2");
    wf_nn_lora_options adapters = {
        .rank = 16, .alpha = 16, .site = 64, .targets = WF_NN_ALL_LINEAR, .train = "embed"};
    wf_nn_module *model;

    config.vocabulary = 61;
    config.positions = 16;
    config.layers = t->layers ? t->layers : 1;
    config.heads = 3;
    config.kv_heads = t->llama ? 1 : 3;
    config.width = 12;
    config.ffn = 20;
    config.dropout = 0.1f;
    config.experts = t->ep ? 4 : 0;
    config.top_k = t->ep ? 2 : 0;
    config.expert_ffn = config.shared_ffn = t->ep ? 8 : 0;
    config.bias_step = t->ep ? 0.1 : 0;
    model = (wf_nn_module *)wf_nn_gpt_new(wf_par_context(par), &config);
    if (model && t->ep)
        wf_nn_buffer_experts(model, 0.5);
    if (model && (!t->qlora || wf_nn_lora(model, &adapters) == WF_OK))
        wf_par_plan(par, model, t->plan ? t->plan : wf_par_gpt_plan);
    return model;
}

static inline wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    const wf_par_options options = layout_of(t);
    wf_nn_module *model = NULL;
    wf_context *ctx;
    wf_par *par;

    this_rank = rank->index;
    par = wf_par_open(rank, &options, &rank->error);
    if (par) {
        ctx = wf_par_context(par);
        model = new_model(par, t);
        if (model && t->pipeline)
            wf_par_pipeline_materialize(t->pipeline, par, model);
        else if (model)
            wf_par_materialize(par, model);
        if (wf_context_status(ctx) == WF_OK && !(t->victim_leaves && rank->index == t->victim))
            train(t, rank, par, model);
        if (wf_context_status(ctx) != WF_OK)
            give_up(rank, ctx);
        wf_nn_free(model);
        wf_par_close(par);
    }
    t->of[rank->index] = rank->error;
    return rank->error.code;
}

static inline wf_status make_pipeline(trial *t)
{
    const wf_par_options layout = layout_of(t);
    const wf_par_train_options training = training_of(t, 8);
    const wf_par_pipeline_options how = {.model = new_model,
                                         .arg = t,
                                         .schedule = t->schedule,
                                         .input = "tokens",
                                         .head_loss = wf_par_gpt_head_loss};

    return wf_par_pipeline_new(&layout, &training, &how, &t->pipeline, &t->launch);
}

static inline wf_status run_trial(trial *t)
{
    wf_launch_options options = {.ranks = ranks_of(t)};
    double start = wf_test_clock(CLOCK_MONOTONIC);
    wf_status status = WF_OK;

    alarm(LIMIT_SECONDS);
    if (t->pp)
        status = make_pipeline(t);
    if (status == WF_OK)
        status = wf_launch(&options, trial_rank, t, &t->launch);
    alarm(0);
    wf_par_pipeline_free(t->pipeline);
    t->pipeline = NULL;
    t->seconds = wf_test_clock(CLOCK_MONOTONIC) - start;
    return status;
}

static inline int64_t first_sequence(const wf_tensor *rows)
{
    wf_sequences sequences = wf_context_sequences(rows->ctx);

    return wf_sequence_of(&sequences, rows->start[0]);
}

/* Checks that after step 2 the model is that of step 1, and training can continue. */
static inline bool digest_after(trial *t, wf_par *par, wf_par_trainer *trainer, int64_t step)
{
    wf_context *ctx = wf_par_context(par);
    uint64_t digest = 0;

    if (step == 2) {
        t->before[this_rank] = *wf_context_error(ctx);
        wf_context_clear(ctx);
    }
    wf_par_trainer_digest(trainer, &digest);
    if (step == 2 && digest != t->digest[this_rank])
        wf_fail(ctx, WF_EINTERNAL, "the failed step has changed the model");
    t->digest[this_rank] = digest;
    return wf_context_status(ctx) == WF_OK;
}

/* The number before " bytes for": what the pool was asked for, before it rounded. */
static inline size_t bytes_said(const char *text)
{
    const char *at = strstr(text, " bytes for");

    while (at && at > text && isdigit((unsigned char)at[-1]))
        at--;
    return at ? strtoull(at, NULL, 10) : 0;
}

#endif
