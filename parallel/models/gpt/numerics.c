/* parallel/models/gpt/numerics.c - the digest of small training runs; see the header. */
#include "parallel/models/gpt/numerics.h"
#include "mesh/cluster/launch.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/parallel_internal.h"
#include "parallel/shard/materialize.h"
#include <string.h>

/* More tokens than attention takes keys at once, and sizes that no chunk, vector or tile
   divides. */
enum { TOKENS = 83, VOCABULARY = 101, STEPS = 2 };

static const uint64_t factor = 0x9e3779b97f4a7c15u;

typedef struct program {
    wf_nn_gpt_config model;
    wf_par_train_options training;
} program;

#define SIZES                                                                                  \
    .vocabulary = VOCABULARY, .positions = TOKENS, .layers = 1, .width = 36, .dropout = 0.1f

#define TRAINING(kind)                                                                         \
    {                                                                                          \
        .global_batch = 3, .micro_batch = 1, .field = WF_PAR_GPT_FIELDS(TOKENS), .clip = 0.5f, \
        .optimizer = {(kind), .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,                     \
                      .weight_decay = 0.1f},                                                   \
        .schedule = {.lr = 1e-2, .min_lr = 1e-3, .warmup = 1, .steps = STEPS},                 \
        .loss = wf_par_gpt_loss                                                                \
    }

/* Those of every run, and one more of runs in bf16 on a GPU: its attention is cuDNN's, where
   one is found and asked. */
enum { OF_ALL = 2, OF_BF16_ON_A_GPU };

static const program programs[OF_BF16_ON_A_GPU] = {
    {{SIZES, WF_NN_GPT2, .heads = 3, .kv_heads = 3, .ffn = 75}, TRAINING(WF_NN_ADAMW)},
    {{SIZES, .heads = 3, .kv_heads = 1, .ffn = 75, .qk_norm = true}, TRAINING(WF_NN_MUON)},
    {{.vocabulary = VOCABULARY,
      .positions = TOKENS,
      .layers = 1,
      .width = 16,
      .heads = 2,
      .kv_heads = 2,
      .ffn = 16},
     TRAINING(WF_NN_ADAMW)},
};

/* Documents of a sequence begin at 0 and at these tokens, none of which begins a block. */
static const int starts[] = {7, 8, 30, TOKENS};

static wf_status read_tokens(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];
    const bool *documents = self;

    (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] =
            (int32_t)((37 * step + 11 * (first + i / TOKENS) + i % TOKENS * i) % VOCABULARY);
        targets[i] = (tokens[i] + 1) % VOCABULARY;
    }
    for (int64_t i = 0; *documents && i < count * TOKENS; i++) {
        int32_t *begins = field[2], *positions = field[3], token = (int32_t)(i % TOKENS);

        begins[i] = 0;
        for (int d = 0; starts[d] <= token; d++)
            begins[i] = starts[d];
        positions[i] = token - begins[i];
    }
    return WF_OK;
}

typedef struct measurement {
    const wf_par_options *options;
    bool documents;
    uint64_t identity;
} measurement;

static void train(wf_par *par, const program *p, bool documents, uint64_t *identity)
{
    static const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(TOKENS);
    const wf_par_data data = {.read = read_tokens, .self = &documents};
    wf_par_train_options training = p->training;
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = (wf_nn_module *)wf_nn_gpt_new(ctx, &p->model);
    wf_par_trainer *trainer;
    wf_par_step result;
    uint64_t digest = 0;

    if (documents)
        memcpy(training.field, fields, sizeof fields);
    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= STEPS && wf_context_status(ctx) == WF_OK; step++)
        wf_par_train_step(trainer, step, &data, &result);
    wf_par_trainer_digest(trainer, &digest);
    *identity = (*identity ^ digest) * factor;
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
}

static bool is_in_bf16_on_a_gpu(const wf_par_options *o)
{
    return o->device && strcmp(o->device, "cpu") != 0 && o->dtype == WF_BF16 &&
           !o->compute_fp32;
}

static wf_status measure(wf_rank *rank, void *arg)
{
    measurement *m = arg;
    const int count = is_in_bf16_on_a_gpu(m->options) ? OF_BF16_ON_A_GPU : OF_ALL;
    wf_par *par = wf_par_open(rank, m->options, &rank->error);

    if (par) { /* the run itself reports its rules and warns of what it has */
        par->reported_inexact = true;
        wf_context_on_warning(wf_par_context(par), NULL, NULL);
    }
    for (int i = 0; par && i < count; i++)
        if (wf_context_status(wf_par_context(par)) == WF_OK)
            train(par, &programs[i], m->documents, &m->identity);
    if (par && wf_context_status(wf_par_context(par)) != WF_OK)
        rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    return rank->error.code;
}

/* The most chunks of tokens that sequences of a run are cut in; the programs' are too short for
   more than one. */
static int token_chunks(const wf_par_field *field)
{
    int most = 1;

    for (int i = 0; field && i < WF_PAR_FIELDS && field[i].name; i++) {
        const wf_dim *tokens = &field[i].dim[0];
        int chunks = tokens->chunks == WF_CHUNKS_8 ? wf_token_chunks(tokens->size) : 1;

        most = chunks > most ? chunks : most;
    }
    return most;
}

wf_status wf_par_numerics(const wf_par_options *options, const wf_par_field *field,
                          uint64_t *identity, wf_error *error)
{
    const wf_par_options one = {.device = options->device,
                                .tf32 = options->tf32,
                                .dtype = options->dtype,
                                .compute_fp32 = options->compute_fp32,
                                .fp32_residual = options->fp32_residual,
                                .param_dtype = options->param_dtype,
                                .reduce_dtype = options->reduce_dtype,
                                .exact_off = options->exact_off,
                                .exact_tp = options->exact_tp};
    /* one rank exchanges nothing, whatever launcher has started this process and others */
    const wf_launch_options launch = {.ranks = 1, .transport = "fake"};
    measurement m = {.options = &one};
    int chunks = options->exact_off ? 1 : token_chunks(field);
    wf_status status;

    for (int i = 0; field && i < WF_PAR_FIELDS && field[i].name; i++)
        m.documents = m.documents || strcmp(field[i].name, "first") == 0;
    status = wf_launch(&launch, measure, &m, error);
    if (status == WF_OK)
        *identity = chunks > 1 ? (m.identity ^ (uint64_t)chunks) * factor : m.identity;
    return status;
}
