/*
 * rl.c - reinforcement learning where the generator runs on another mesh than the trainer, and
 * its log probabilities are the trainer's, bit for bit: REINFORCE (Williams 1992) on a toy
 * reward.
 *
 * In each step the weights go from the trainer's layout to the generator's, which writes texts
 * token by token with a key-value cache; the trainer computes the losses of these texts anew,
 * in one pass over all of each. The importance ratio of every token, exp(log p of the trainer -
 * log p of the generator), is 1, and the KL divergence 0: not nearly, and on any pair of
 * meshes. All pairs end with the same weights, too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { VOCABULARY = 12, TOKENS = 10, BATCH = 48, STEPS = 80 };

/* The tokens that a step has generated, with their log probabilities and advantages. */
typedef struct rollout {
    int32_t token[BATCH][TOKENS + 1];
    float logprob[BATCH][TOKENS], advantage[BATCH][TOKENS];
    double reward; /* the mean of a token's */
} rollout;

/* Two meshes over the same ranks, a model on each, and what came of it. */
typedef struct pair {
    const char *name;
    const wf_nn_gpt_config *model;
    wf_par_options train, generate;
    double reward; /* the last step's */
    uint64_t digest;
    int64_t compared, different;
} pair;

typedef struct comparison {
    int64_t compared, different;
    double kl, least, most; /* sum of log ratios; the smallest and the largest ratio */
} comparison;

static _Thread_local comparison seen; /* a rank is a thread */

#define SIZES                                                                                  \
    .vocabulary = VOCABULARY, .positions = TOKENS, .layers = 2, .heads = 6, .kv_heads = 3,     \
    .width = 24

/* A Llama, and one with experts instead of MLPs; generation and training choose the same
   experts. */
static const wf_nn_gpt_config dense = {SIZES, .ffn = 48};
static const wf_nn_gpt_config mixture = {SIZES, .ffn = 24, .experts = 8, .top_k = 2,
                                         .router_normalised = true};

/* ---- the generator ---- */

/* Every parameter from the trainer's layout to the generator's: whole for a moment, one after
   the other. */
static void copy_parameters(wf_nn_module *from, wf_nn_module *to)
{
    int64_t n, m;
    wf_nn_parameter **source = wf_nn_parameters(from, &n), **target = wf_nn_parameters(to, &m);

    for (int64_t i = 0; source && target && i < n; i++) {
        wf_tensor *t = target[i]->tensor, *all, *part;
        wf_host_data whole, view;
        const float *numbers;

        wf_scope_open(from->ctx);
        wf_scope_open(to->ctx);
        all = wf_whole(source[i]->tensor);
        numbers = all ? wf_data_read(all, &whole) : NULL;
        part = numbers ? wf_distribute(to->ctx, numbers, WF_F32, t->ndim, t->dim, t->layout)
                       : NULL;
        if (part) {
            wf_data_get(part, 0, wf_tensor_local_count(t), wf_data_write(t, false, &view));
            wf_data_close(&view);
        }
        if (numbers)
            wf_data_close(&whole);
        wf_scope_close(to->ctx);
        wf_scope_close(from->ctx);
    }
    free(source);
    free(target);
}

/* Returns one token of each text, [BATCH, 1], at this position. */
static wf_tensor *tokens_at(wf_context *ctx, const rollout *r, int64_t at)
{
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(1)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    int32_t *id = t ? wf_data_write(t, false, &view) : NULL;

    for (int b = 0; id && b < BATCH; b++)
        id[b] = r->token[b][at];
    if (t)
        wf_data_close(&view);
    return t;
}

/* Draws the token at position t + 1 of text b, as gpt_generate does, and its log probability:
   its logit less the logsumexp, as the trainer has it. */
static int32_t draw(const rollout *r, int b, int64_t t, const float *logit, float logsumexp,
                    double uniform, float *logprob)
{
    static const wf_gen_sampling plain = {
        .repetition_penalty = 1, .temperature = 1, .top_p = 1};
    const wf_gen_sampling_text text = {.ids = r->token[b], .count = t + 1, .prompt = 1};
    wf_gen_sampling_candidate room[VOCABULARY];
    int32_t v = wf_gen_sampling_draw(&plain, &text, logit, VOCABULARY, uniform, room);

    *logprob = logit[v] - logsumexp;
    return v;
}

/* A token after the one before it is worth 1, any other 0. */
static void reward(rollout *r)
{
    r->reward = 0;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TOKENS; t++)
            r->reward += r->token[b][t + 1] == (r->token[b][t] + 1) % VOCABULARY;
    r->reward /= BATCH * TOKENS;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TOKENS; t++)
            r->advantage[b][t] =
                (float)((r->token[b][t + 1] == (r->token[b][t] + 1) % VOCABULARY) - r->reward);
}

static void generate(wf_nn_gpt *model, wf_nn_cache *cache, int64_t step, rollout *r)
{
    wf_context *ctx = model->base.ctx;
    uint64_t key = wf_random_key(7, WF_RANDOM_SAMPLE);
    wf_nn_cache_position sequence[BATCH];

    for (int b = 0; b < BATCH; b++)
        r->token[b][0] = b % VOCABULARY;
    wf_nn_cache_switch(ctx, cache);
    for (int64_t t = 0; t < TOKENS && wf_context_status(ctx) == WF_OK; t++) {
        float logit[BATCH * VOCABULARY], sum[BATCH];
        wf_tensor *y;

        for (int b = 0; b < BATCH; b++)
            sequence[b] = (wf_nn_cache_position){.slot = b, .first = t};
        wf_scope_open(ctx);
        wf_nn_cache_at(cache, BATCH, 1, sequence);
        y = wf_nn_gpt_logits(model, tokens_at(ctx, r, t));
        if (y && wf_data_get(wf_whole(y), 0, BATCH * VOCABULARY, logit) == WF_OK &&
            wf_data_get(wf_whole(wf_nn_logsumexp(model->loss, y)), 0, BATCH, sum) == WF_OK)
            for (int b = 0; b < BATCH; b++)
                r->token[b][t + 1] = draw(
                    r, b, t, logit + b * VOCABULARY, sum[b],
                    (double)wf_random_uniform(key, (uint64_t)step, (uint64_t)(b * TOKENS + t)),
                    &r->logprob[b][t]);
        wf_scope_close(ctx);
    }
    wf_nn_cache_switch(ctx, NULL);
    reward(r);
}

/* ---- the trainer ---- */

static wf_status read_rollout(void *self, int64_t step, int64_t first, int64_t count,
                              void *const *field, wf_error *error)
{
    const rollout *r = self;

    (void)step, (void)error;
    for (int64_t i = 0; i < count; i++) {
        int64_t b = first % BATCH + i;

        memcpy((int32_t *)field[0] + i * TOKENS, r->token[b], sizeof(int32_t) * TOKENS);
        memcpy((int32_t *)field[1] + i * TOKENS, r->token[b] + 1, sizeof(int32_t) * TOKENS);
        memcpy((float *)field[2] + i * TOKENS, r->advantage[b], sizeof r->advantage[b]);
        memcpy((float *)field[3] + i * TOKENS, r->logprob[b], sizeof r->logprob[b]);
    }
    return WF_OK;
}

/* This rank's losses beside what the generator said of the same tokens. */
static void compare(wf_tensor *losses, wf_tensor *logprobs)
{
    wf_host_data a, b;
    const float *loss = wf_data_read(losses, &a), *generated = wf_data_read(logprobs, &b);

    for (int64_t i = 0; loss && generated && i < wf_tensor_local_count(losses); i++) {
        float trained = -loss[i];
        double ratio = exp((double)trained - (double)generated[i]);

        seen.compared++;
        seen.different += memcmp(&trained, &generated[i], sizeof trained) != 0;
        seen.kl += (double)generated[i] - (double)trained;
        seen.least = fmin(seen.least, ratio);
        seen.most = fmax(seen.most, ratio);
    }
    wf_data_close(&a);
    wf_data_close(&b);
}

/* -log p(token) x advantage */
static wf_tensor *policy_loss(wf_nn_module *module, const wf_par_batch *batch)
{
    wf_nn_gpt *model = (wf_nn_gpt *)module;
    wf_tensor *losses = wf_nn_cross_entropy(
        model->loss, wf_nn_gpt_logits(model, wf_par_batch_tensor(batch, "tokens")),
        wf_par_batch_tensor(batch, "targets"));

    if (losses)
        compare(losses, wf_par_batch_tensor(batch, "logprobs"));
    return wf_mul(losses, wf_par_batch_tensor(batch, "advantages"));
}

static const wf_par_train_options training = {
    .global_batch = BATCH,
    .field = {{"tokens", WF_I32, {{TOKENS, 1, WF_CHUNKS_8}}},
              {"targets", WF_I32, {{TOKENS, 1, WF_CHUNKS_8}}},
              {"advantages", WF_F32, {{TOKENS, 1, WF_CHUNKS_8}}},
              {"logprobs", WF_F32, {{TOKENS, 1, WF_CHUNKS_8}}}},
    .clip = 1,
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
    .schedule = {.lr = 1e-2, .min_lr = 1e-2, .steps = STEPS},
    .loss = policy_loss};

/* The sums of all ranks; ranks that share a batch count it more than once. */
static void log_step(const pair *p, wf_par *par, int64_t step, double reward)
{
    const comparison *all = wf_mesh_gather(wf_par_mesh(par), &seen, sizeof seen);
    comparison sum = {.least = INFINITY};

    for (int r = 0; all && r < wf_mesh_ranks(wf_par_mesh(par)); r++) {
        sum.compared += all[r].compared;
        sum.different += all[r].different;
        sum.kl += all[r].kl;
        sum.least = fmin(sum.least, all[r].least);
        sum.most = fmax(sum.most, all[r].most);
    }
    if (wf_context_rank(wf_par_context(par)) == 0 && step % 20 == 0)
        printf("%s, step %d: reward %.3f, KL %g, ratios from %.9g to %.9g, %lld of %lld log "
               "probabilities have other bits\n",
               p->name, (int)step, reward, sum.kl / (double)sum.compared, sum.least, sum.most,
               (long long)sum.different, (long long)sum.compared);
    seen.compared = sum.compared;
    seen.different = sum.different;
}

static wf_nn_gpt *model_on(wf_par *par, const wf_nn_gpt_config *config)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), config);

    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK)
        wf_par_materialize(par, &model->base);
    return model;
}

static void learn(pair *p, wf_par *train, wf_par *generator, bool first_rank)
{
    wf_context *other = wf_par_context(generator);
    wf_nn_gpt *trained = model_on(train, p->model), *generating = model_on(generator, p->model);
    wf_nn_cache *cache = wf_nn_cache_open(other, BATCH, TOKENS);
    wf_par_trainer *trainer =
        trained ? wf_par_trainer_open(train, &trained->base, &training) : NULL;
    rollout *r = calloc(1, sizeof *r);
    wf_par_step result;
    uint64_t digest = 0;

    wf_context_training(other, false);
    for (int64_t step = 1; r && trainer && cache && step <= STEPS; step++) {
        copy_parameters(&trained->base, &generating->base);
        generate(generating, cache, step, r);
        seen = (comparison){.least = INFINITY};
        if (wf_context_status(other) != WF_OK ||
            wf_par_train_step(trainer, step, &(wf_par_data){.read = read_rollout, .self = r},
                              &result) != WF_OK)
            break;
        log_step(p, train, step, r->reward);
        if (first_rank) {
            p->compared += seen.compared;
            p->different += seen.different;
            p->reward = r->reward;
        }
    }
    if (trainer && wf_par_trainer_digest(trainer, &digest) == WF_OK && first_rank)
        p->digest = digest;
    free(r);
    wf_par_trainer_close(trainer);
    wf_nn_cache_close(cache);
    if (generating)
        wf_nn_free(&generating->base);
    if (trained)
        wf_nn_free(&trained->base);
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    pair *p = arg;
    wf_par *train = wf_par_open(rank, &p->train, &rank->error);
    wf_par *generator = train ? wf_par_open(rank, &p->generate, &rank->error) : NULL;

    if (generator)
        learn(p, train, generator, rank->index == 0);
    if (generator && rank->error.code == WF_OK)
        rank->error = *wf_context_error(wf_par_context(generator));
    if (train && rank->error.code == WF_OK)
        rank->error = *wf_context_error(wf_par_context(train));
    wf_par_close(generator);
    wf_par_close(train);
    return rank->error.code;
}

int main(void)
{
    pair pairs[] = {
        {.name = "one rank for both", .train = {.tp = 1}, .generate = {.tp = 1}},
        {.name = "FSDP 2 x tp 2, tp 4", .train = {.dp = 2, .tp = 2}, .generate = {.tp = 4}},
        {.name = "tp 4, 4 copies",
         .train = {.tp = 4, .sequence_parallel = true},
         .generate = {.dp = 4, .strategy = "no_shard"}},
        {.name = "experts, one rank",
         .model = &mixture,
         .train = {.tp = 1},
         .generate = {.tp = 1}},
        {.name = "experts on dp 2 x tp 2, tp 4",
         .model = &mixture,
         .train = {.dp = 2, .tp = 2, .ep = 4},
         .generate = {.tp = 4}}};
    uint64_t digest = 0;
    bool good = true;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const wf_launch_options launch = {.ranks = (int)wf_par_ranks(&pairs[i].train)};
        wf_error error = {WF_OK, ""};

        if (!pairs[i].model)
            pairs[i].model = &dense;
        pairs[i].train.seed = 3;
        if (wf_launch(&launch, rank_main, &pairs[i], &error) != WF_OK) {
            fprintf(stderr, "rl: %s\n", error.text);
            return 1;
        }
        printf("%s: reward %.3f, digest %016llx\n", pairs[i].name, pairs[i].reward,
               (unsigned long long)pairs[i].digest);
        if (i == 0 || pairs[i].model != pairs[i - 1].model)
            digest = pairs[i].digest; /* on one rank */
        good = good && pairs[i].compared > 0 && pairs[i].different == 0 &&
               pairs[i].digest == digest && pairs[i].reward > 0.8;
    }
    return good ? 0 : 1;
}
