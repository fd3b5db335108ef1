/*
 * main.c - trains the model of my_module.c on several meshes, and compares every bit: the
 * layout decides where numbers are computed, never what they are. Nothing here divides: 27
 * hidden units and 67 tokens on 2 or 4 ranks.
 */
#include "mine.h"
#include <stdio.h>
#include <string.h>

enum { STEPS = 40, VOCABULARY = 67, TOKENS = 16 };

typedef struct run {
    wf_par_options options;
    float loss[STEPS];
    uint64_t digest; /* covers all parameters and optimizer state, after the last step */
} run;

/* Sequences of random tokens, each followed by 5 t + 3: a function of (step, sequence) alone.
 */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    uint64_t key = wf_random_key(1, WF_RANDOM_DATA);
    int32_t *tokens = field[0], *targets = field[1];

    (void)self;
    (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        uint64_t index = (uint64_t)(first * TOKENS + i);

        tokens[i] = (int32_t)wf_random_below(key, (uint64_t)step, index, VOCABULARY);
        targets[i] = (5 * tokens[i] + 3) % VOCABULARY;
    }
    return WF_OK;
}

/* One rank: mesh, model, plan, steps. */
static wf_status train(wf_par *par, run *r, bool writes)
{
    const my_sizes sizes = {.vocabulary = VOCABULARY, .width = 24, .hidden = 27, .layers = 2};
    const wf_par_train_options options = {
        .global_batch = 8,
        .field = WF_PAR_GPT_FIELDS(TOKENS),
        .clip = 1,
        .optimizer = {WF_NN_ADAMW, 0.9f, 0.95f, 1e-8f, 0.01f},
        .schedule = {.lr = 3e-2, .min_lr = 3e-3, .warmup = 4, .steps = STEPS},
        .loss = my_model_loss};
    const wf_par_data data = {.read = read_data};
    wf_context *ctx = wf_par_context(par);
    my_model *model = my_model_new(ctx, &sizes);
    wf_par_trainer *trainer;
    wf_par_step result;
    uint64_t digest = 0;

    wf_par_plan(par, (wf_nn_module *)model, my_plan);
    wf_par_materialize(par, (wf_nn_module *)model);
    trainer = wf_par_trainer_open(par, (wf_nn_module *)model, &options);
    for (int step = 0; step < STEPS && wf_context_status(ctx) == WF_OK; step++)
        if (wf_par_train_step(trainer, step + 1, &data, &result) == WF_OK && writes)
            r->loss[step] = result.loss;
    if (wf_context_status(ctx) == WF_OK && wf_par_trainer_digest(trainer, &digest) == WF_OK &&
        writes)
        r->digest = digest;
    wf_par_trainer_close(trainer);
    wf_nn_free((wf_nn_module *)model);
    return wf_context_status(ctx);
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    run *r = arg;
    wf_par *par = wf_par_open(rank, &r->options, &rank->error);
    wf_status status;

    if (!par)
        return rank->error.code;
    status = train(par, r, rank->index == 0);
    if (status != WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(wf_par_context(par))->text);
    wf_par_close(par);
    return status;
}

int main(void)
{
    run runs[] = {{.options = {.tp = 1, .dp = 1, .seed = 7}},
                  {.options = {.tp = 2, .dp = 2, .seed = 7}},
                  {.options = {.tp = 4, .dp = 1, .seed = 7, .sequence_parallel = true}}};
    bool same = true, learned;

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run *r = &runs[i];
        wf_launch_options launch = {.ranks = r->options.tp * r->options.dp};
        wf_error error = {WF_OK, ""};
        bool equal;

        if (wf_launch(&launch, rank_main, r, &error) != WF_OK) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        equal =
            r->digest == runs[0].digest && memcmp(r->loss, runs[0].loss, sizeof r->loss) == 0;
        same = same && equal;
        printf("tp %d x dp %d: loss %.6f -> %.6f, digest %016llx %s\n", r->options.tp,
               r->options.dp, (double)r->loss[0], (double)r->loss[STEPS - 1],
               (unsigned long long)r->digest, equal ? "same bits" : "DIFFERENT BITS");
    }
    learned = runs[0].loss[STEPS - 1] < 0.5f * runs[0].loss[0];
    return same && learned ? 0 : 1;
}
