/*
 * tests/parallel/parallel_harness.h - a training run as a value: a model, a layout and options
 * go in, the loss bits of every step and the final digest come out. A test may watch it on
 * every rank, before the first step and after each.
 */
#ifndef WF_TESTS_PARALLEL_PARALLEL_HARNESS_H
#define WF_TESTS_PARALLEL_PARALLEL_HARNESS_H

#include "kernels/ops.h"
#include "nn/checkpointing.h"
#include "nn/layers/lora.h"
#include "nn/layers/moe.h"
#include "parallel/shard/materialize.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/stages/pipeline.h"
#include "parallel/train/train.h"
#include "tests/parallel/part.h"
#include <inttypes.h>
#include <math.h>

enum { MAX_STEPS = 30, TOKENS = 16, VOCABULARY = 257, WIDTH = 24, HEADS = 12 };

typedef enum model_kind { GPT2, LLAMA } model_kind;

typedef struct training {
    wf_nn_gpt_config model;
    wf_par_options layout;
    wf_par_train_options options;
    int steps;
    const wf_par_data *data; /* NULL: count_up */
    const char *frozen;      /* a pattern of wf_nn_freeze; NULL: none */
    wf_nn_lora_options lora; /* adapters, all else frozen; of rank 0: none */
    const char *recompute;   /* type of modules that are recomputed in backward; NULL: none */
    double buffer;           /* room for experts' rows (wf_nn_buffer_experts); 0: for all */
    void (*change)(wf_nn_gpt *model); /* makes it another one than its config says; or NULL */
    const wf_par_rule *plan;          /* NULL: wf_par_gpt_plan */
    wf_status (*parallelize)(wf_par *par, wf_nn_module *model); /* instead of wf_par_plan */
    /* has a schedule: its stages are trained; model, input and, where it has none, loss are
       filled in */
    wf_par_pipeline_options pipeline;

    /* on every rank; step 0 is before the first one. NULL: none */
    wf_status (*watch)(struct training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                       int step);
    void *arg;

    /* results, written by rank 0 */
    float loss[MAX_STEPS];
    double grad_norm[MAX_STEPS];
    float added[MAX_STEPS]; /* the first of wf_par_step_losses; 0 where there is none */
    int added_by;           /* its modules */
    uint64_t digest;
    char inexact[WF_INEXACT]; /* the text of wf_par_inexact, or "" */
} training;

/* Sequences that count up by 1 to 7, with a wrong token here and there; self is NULL, or how
   long they are. */
static inline wf_status count_up(void *self, int64_t step, int64_t first, int64_t count,
                                 void *const *field, wf_error *error)
{
    int64_t length = self ? *(const int64_t *)self : TOKENS;
    int32_t *tokens = field[0], *targets = field[1];

    (void)error;
    for (int64_t s = 0; s < count; s++) {
        int64_t seq = first + s, by = 1 + (seq + step) % 7;

        for (int64_t i = 0; i <= length; i++) {
            int64_t wrong = (step * 31 + seq * 17 + i * 5) % 13 == 0 ? 100 : 0;
            int32_t token = (int32_t)((37 * step + 101 * seq + by * i + wrong) % VOCABULARY);

            if (i < length)
                tokens[s * length + i] = token;
            if (i > 0)
                targets[s * length + i - 1] = token;
        }
    }
    return WF_OK;
}

static inline training new_training(model_kind kind, int64_t kv_heads, int64_t global_batch)
{
    wf_nn_gpt_config model = *wf_nn_gpt_family(kind == GPT2 ? "gpt2" : "llama");

    model.vocabulary = VOCABULARY;
    model.positions = TOKENS;
    model.layers = 2;
    model.heads = HEADS;
    model.kv_heads = kv_heads;
    model.width = WIDTH;
    model.ffn = 4 * WIDTH;
    return (training){
        .model = model,
        .layout = {.tp = 1, .dp = 1, .seed = 7},
        .options = {.global_batch = global_batch,
                    .field = WF_PAR_GPT_FIELDS(TOKENS),
                    .clip = 1,
                    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                  .weight_decay = 0.1f},
                    .schedule = {.lr = 1e-2, .min_lr = 1e-3, .warmup = 3, .steps = MAX_STEPS},
                    .loss = wf_par_gpt_loss},
        .steps = 1};
}

/* A test's work on each rank with the trainer of a run; the part's arg is the test's own. */
typedef struct trainer_test {
    const training *t;
    wf_status (*work)(part *p, wf_par_trainer *trainer);
    void *arg;
} trainer_test;

/* Prepares a model before it is materialized. */
static inline wf_status prepare(const training *t, wf_par *par, wf_nn_gpt *gpt)
{
    wf_nn_module *model = &gpt->base;

    if (t->change)
        t->change(gpt);
    wf_nn_recompute(model, t->recompute);
    if (t->buffer > 0)
        wf_nn_buffer_experts(model, t->buffer);
    if (t->lora.rank)
        GOOD(wf_nn_lora(model, &t->lora));
    if (t->frozen)
        wf_nn_freeze(model, t->frozen);
    if (t->parallelize)
        t->parallelize(par, model);
    else
        wf_par_plan(par, model, t->plan ? t->plan : wf_par_gpt_plan);
    return wf_context_status(wf_par_context(par));
}

/* A wf_par_model_function. */
static inline wf_nn_module *prepared(wf_par *par, void *arg)
{
    const training *t = arg;
    wf_nn_gpt *gpt = wf_nn_gpt_new(wf_par_context(par), &t->model);

    if (gpt)
        prepare(t, par, gpt);
    return (wf_nn_module *)gpt;
}

static inline wf_status trainer_part(part *p)
{
    const trainer_test *test = p->arg;
    const wf_par_pipeline *pipeline = test->t->options.pipeline;
    wf_par_trainer *trainer;
    wf_status status;

    p->arg = test->arg;
    GOOD(prepare(test->t, p->par, p->gpt));
    if (pipeline)
        wf_par_pipeline_materialize(pipeline, p->par, p->model);
    else
        wf_par_materialize(p->par, p->model);
    trainer = wf_par_trainer_open(p->par, p->model, &test->t->options);
    status = trainer ? test->work(p, trainer) : wf_context_status(p->ctx);
    wf_par_trainer_close(trainer);
    return status;
}

/* On this rank a run's model is made real, and its trainer opened for the work. */
static inline wf_status on_trainer(wf_rank *rank, const training *t,
                                   wf_status (*work)(part *, wf_par_trainer *), void *arg)
{
    trainer_test test = {t, work, arg};
    part_test in = {
        .options = t->layout, .config = &t->model, .body = trainer_part, .arg = &test};

    return part_rank(rank, &in);
}

static inline void keep_digest(training *t, part *p, wf_par_trainer *trainer)
{
    uint64_t digest = 0;

    if (wf_context_status(p->ctx) == WF_OK && !t->layout.plan &&
        wf_par_trainer_digest(trainer, &digest) == WF_OK && p->rank->index == 0)
        t->digest = digest;
}

static inline wf_status train_steps(part *p, wf_par_trainer *trainer)
{
    training *t = p->arg;
    const wf_par_data data = {.read = count_up, .self = &t->options.field[0].dim[0].size};

    if (t->watch)
        GOOD(t->watch(t, p->rank, p->par, p->gpt, 0));
    for (int step = 1; step <= t->steps && wf_context_status(p->ctx) == WF_OK; step++) {
        const wf_par_step_loss *added;
        wf_par_step result;
        int names;

        GOOD(wf_par_train_step(trainer, step, t->data ? t->data : &data, &result));
        if (p->rank->index == 0) {
            t->loss[step - 1] = result.loss;
            t->grad_norm[step - 1] = result.grad_norm;
            added = wf_par_step_losses(trainer, &names);
            t->added[step - 1] = names ? added->mean : 0;
            t->added_by = names ? added->modules : 0;
        }
        if (t->watch)
            GOOD(t->watch(t, p->rank, p->par, p->gpt, step));
    }
    keep_digest(t, p, trainer);
    if (p->rank->index == 0 && wf_par_inexact(p->par))
        snprintf(t->inexact, sizeof t->inexact, "%s", wf_par_inexact(p->par));
    return WF_OK;
}

static inline wf_status training_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, train_steps, arg);
}

/* The pipeline of a run that has a schedule. */
static inline wf_par_pipeline *pipeline_of(training *t, wf_error *error)
{
    wf_par_pipeline_options how = t->pipeline;
    wf_par_pipeline *pipeline = NULL;

    if (!how.schedule)
        return NULL;
    how.model = prepared;
    how.arg = t;
    how.input = "tokens";
    if (!how.head_loss)
        how.head_loss = wf_par_gpt_head_loss;
    wf_par_pipeline_new(&t->layout, &t->options, &how, &pipeline, error);
    return pipeline;
}

/* Run it over a transport, or the usual one; whether it succeeded, which the test demands. */
static inline bool train_over(training *t, const char *transport)
{
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t->layout), .transport = transport};
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *pipeline = pipeline_of(t, &error);

    t->options.pipeline = pipeline;
    if (error.code == WF_OK)
        wf_launch(&launch, training_rank, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    pp %d tp %d dp %d: %s\n", t->layout.pp, t->layout.tp, t->layout.dp,
               error.text);
    t->options.pipeline = NULL;
    wf_par_pipeline_free(pipeline);
    return error.code == WF_OK;
}

static inline bool train(training *t)
{
    return train_over(t, NULL);
}

enum { OF_DOCUMENTS = 2049 }; /* tokens of read_documents's sequences */

/* Reads three documents a sequence, which begin at no multiple of a block of keys. */
static inline wf_status read_documents(void *self, int64_t step, int64_t first, int64_t count,
                                       void *const *field, wf_error *error)
{
    static const int32_t starts[] = {0, 700, 1555};
    int32_t *begins = field[2], *positions = field[3];
    int64_t length = OF_DOCUMENTS;

    (void)self;
    for (int64_t i = 0; i < count * length; i++) {
        int32_t at = (int32_t)(i % length);

        begins[i] = starts[(at >= starts[1]) + (at >= starts[2])];
        positions[i] = at - begins[i];
    }
    return count_up(&length, step, first, count, field, error);
}

#endif
