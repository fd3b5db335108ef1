/*
 * strategy.c - a strategy of data parallelism of one's own: ZeRO-2 as its paper has it, which
 * splits gradients and optimizer state and leaves parameters whole, but for vectors, whose few
 * bytes stay whole everywhere. A row that is registered is run, planned and searched like
 * those of Weft, with the digest of one rank:
 *
 *     strategy --strategy zero2_matrices --dp 4 --log-jsonl run.jsonl
 *     strategy --plan --strategy zero2_matrices --dp 4
 *     strategy --plan --search --ranks 8 --machine docs/machines/h100.json
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { TOKENS = 16, STEPS = 10 };

/* Returns true for what is worth its messages. */
static bool is_matrix(const wf_nn_parameter *p)
{
    return p->tensor->ndim > 1;
}

static const wf_par_strategy zero2_matrices = {.name = "zero2_matrices",
                                               .split_gradients = true,
                                               .split_optimizer = true,
                                               .reduce_each = true,
                                               .splits = is_matrix};

static wf_nn_gpt_config config = {.vocabulary = 67,
                                  .positions = TOKENS,
                                  .layers = 2,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .width = 32,
                                  .ffn = 96};

/* Token t is followed by 5 t + 3. */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];

    (void)self, (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] = (int32_t)((31 * step + 7 * first * TOKENS + 7 * i) % 67);
        targets[i] = (5 * tokens[i] + 3) % 67;
    }
    return WF_OK;
}

static const wf_par_train_options training = {
    .global_batch = 8,
    .field = WF_PAR_GPT_FIELDS(TOKENS),
    .clip = 1,
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
    .schedule = {.lr = 1e-2f, .min_lr = 1e-2f, .steps = STEPS},
    .loss = wf_par_gpt_loss};

/* The digest of a run, and the bytes of memory that one of its ranks took at most. */
typedef struct run {
    wf_par_options options;
    uint64_t digest;
    size_t peak;
} run;

static wf_status train(wf_par *par, void *arg)
{
    run *r = arg;
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = wf_par_gpt_make(par, &config);
    wf_memory_report memory;
    wf_par_trainer *trainer;
    uint64_t digest = 0;

    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= STEPS && wf_context_status(ctx) == WF_OK; step++)
        wf_par_train_step(trainer, step, &(wf_par_data){.read = read_data}, NULL);
    wf_pool_report(wf_context_pool(ctx), &memory);
    wf_par_trainer_digest(trainer, &digest);
    if (wf_context_rank(ctx) == 0) {
        r->digest = digest;
        r->peak = memory.peak;
    }
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    return wf_context_status(ctx);
}

/* Compares layouts and strategies. Returns the exit status. */
static int compare(char **argv)
{
    run runs[] = {{.options = {.dp = 1}},
                  {.options = {.dp = 4, .strategy = "no_shard"}},
                  {.options = {.dp = 4, .strategy = "zero2_matrices"}},
                  {.options = {.dp = 4, .strategy = "full_shard"}},
                  {.options = {.dp = 2, .tp = 2, .strategy = "zero2_matrices"}}};
    bool same = true;

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run *r = &runs[i];
        int status = wf_par_main(1, argv, &r->options, train, r);

        if (status != 0)
            return status;
        printf("%-15s dp %d: digest %016llx, at most %zu bytes on the first rank\n",
               r->options.strategy ? r->options.strategy : "one rank", r->options.dp,
               (unsigned long long)r->digest, r->peak);
        same = same && r->digest == runs[0].digest;
    }
    return same && runs[2].peak < runs[1].peak ? 0 : 1;
}

int main(int argc, char **argv)
{
    wf_par_program program = {.job = {.mesh = {.dp = 2},
                                      .model = wf_par_gpt_make,
                                      .arg = &config,
                                      .name = "a small llama",
                                      .train = training,
                                      .data = {.read = read_data},
                                      .steps = STEPS},
                              .about = "Trains a small model by a strategy of its own."};
    wf_error error;

    if (wf_par_strategy_register(&zero2_matrices, &error) != WF_OK)
        return fprintf(stderr, "%s\n", error.text), 2;
    return argc > 1 ? wf_par_run(argc, argv, &program) : compare(argv);
}
