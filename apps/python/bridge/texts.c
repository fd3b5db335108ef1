/* apps/python/bridge/texts.c - texts of a run's model, by its ranks; see bridge.h. */
#include "apps/python/bridge/bridge_internal.h"
#include "parallel/generate/batch.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 32 }; /* texts at once, at most */

wf_status weft_python_tokenizer(weft_python_run *r, wf_error *error)
{
    return r->tokenizer
               ? WF_OK
               : app_train_tokenizer_open(&r->options, r->options.vocab_size == 256,
                                          "a text of this model", &r->tokenizer, error);
}

int weft_python_encode(weft_python_run *r, const char *text, int64_t bytes, int32_t **ids,
                       int64_t *count, wf_error *error)
{
    wf_tok_ids found = {.data = NULL};

    *error = (wf_error){WF_OK, ""};
    if (weft_python_tokenizer(r, error) == WF_OK)
        wf_tok_encode_text(r->tokenizer, text, (size_t)bytes, WF_TOK_SPECIAL | WF_TOK_TEMPLATE,
                           &found, error);
    if (error->code != WF_OK)
        wf_tok_ids_free(&found);
    *ids = found.data;
    *count = (int64_t)found.count;
    return (int)error->code;
}

int weft_python_decode(weft_python_run *r, const int32_t *ids, int64_t count, char **text,
                       int64_t *bytes, wf_error *error)
{
    wf_tok_bytes found = {.data = NULL};

    *error = (wf_error){WF_OK, ""};
    if (weft_python_tokenizer(r, error) == WF_OK)
        wf_tok_decode(r->tokenizer, ids, (size_t)count, WF_TOK_SKIP_SPECIAL, &found, error);
    if (error->code != WF_OK)
        wf_tok_bytes_free(&found);
    *text = found.data;
    *bytes = (int64_t)found.bytes;
    return (int)error->code;
}

/* A call of the ranks. Rank 0 writes what comes of it. */
typedef struct generation {
    const wf_gen_options *options;
    const wf_gen_prompt *prompts;
    int64_t count, positions, width;
    int32_t *out;
    int64_t *lengths;
    float *logprobs;
} generation;

static void keep(void *arg, wf_gen_text *t)
{
    const generation *g = arg;
    int64_t most = t->prompt + g->options->most, n = t->count < most ? t->count : most;

    memcpy(g->out + t->index * g->width, t->ids, sizeof *t->ids * (size_t)n);
    g->lengths[t->index] = n;
    if (g->logprobs && t->logprob)
        memcpy(g->logprobs + t->index * g->width, t->logprob, sizeof *t->logprob * (size_t)n);
}

static wf_status generate(wf_par_running *rank, void *arg)
{
    const generation *g = arg;
    wf_context *ctx = wf_par_context(rank->par);
    const wf_gen_events events = {.finished = wf_context_rank(ctx) == 0 ? keep : NULL,
                                  .arg = arg};
    const wf_gen_engine_options options = {.par = rank->par,
                                           .model = (wf_nn_gpt *)rank->model,
                                           .pipelined = rank->pipeline ? rank->trainer : NULL,
                                           .slots = g->count < SLOTS ? g->count : SLOTS,
                                           .positions = g->positions};
    wf_gen_engine e;

    wf_context_training(ctx, false);
    if (wf_gen_engine_open(&e, &options) == WF_OK)
        wf_gen_run(&e, g->options, g->prompts, g->count, 0, 1, &events);
    wf_gen_engine_close(&e);
    wf_context_training(ctx, true);
    return wf_context_status(ctx);
}

/* Checks the prompts, and lists them. Returns the longest; 0: an error. */
static int64_t list_prompts(const weft_python_run *r, const generation *g, const int32_t *ids,
                            const int64_t *counts, wf_gen_prompt *prompts, wf_error *error)
{
    int64_t longest = 0, at = 0;

    for (int64_t i = 0; i < g->count && error->code == WF_OK; i++) {
        if (counts[i] < 1)
            wf_error_set(error, WF_EINVAL,
                         "text %" PRId64 " is empty: a prompt has one id at least", i);
        else if (weft_python_check_ids(r, "prompts", ids + at, counts[i], false, error) ==
                 WF_OK)
            prompts[i] =
                (wf_gen_prompt){.ids = ids + at, .count = counts[i], .stream = (uint64_t)i};
        at += counts[i];
        longest = counts[i] > longest ? counts[i] : longest;
    }
    return error->code == WF_OK ? longest : 0;
}

/* Sets how many positions the texts need, within those of the model. */
static wf_status fit(const weft_python_run *r, generation *g, int64_t longest, wf_error *error)
{
    int64_t most = app_options_model(&r->options).positions;

    g->positions = longest + g->options->most;
    if (longest > most)
        return wf_error_set(error, WF_EINVAL,
                            "a text of %" PRId64 " ids, and the model has %" PRId64
                            " positions: give it shorter ones",
                            longest, most);
    if (g->positions > most)
        g->positions = most;
    return WF_OK;
}

/* Returns the sum of counts; of one that is none, which is refused later, 0. */
static int64_t sum_of(const int64_t *counts, int64_t n)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += counts[i] > 0 ? counts[i] : 0;
    return sum;
}

/* Has the ranks generate into memory that is lent, and copies what came of it. */
static void call_generate(weft_python_run *r, generation *g, int32_t *out, int64_t *lengths,
                          float *logprobs, wf_error *error)
{
    const size_t n = (size_t)g->count, all = n * (size_t)g->width;
    generation *lent;

    g->out = weft_python_lend(r, out, all * sizeof *out, error);
    g->lengths = weft_python_lend(r, lengths, n * sizeof *lengths, error);
    if (logprobs)
        g->logprobs = weft_python_lend(r, logprobs, all * sizeof *logprobs, error);
    lent = weft_python_lend(r, g, sizeof *g, error);
    if (!lent || wf_session_call(r->session, generate, lent, error) != WF_OK)
        return;
    memcpy(out, lent->out, all * sizeof *out);
    memcpy(lengths, lent->lengths, n * sizeof *lengths);
    if (logprobs)
        memcpy(logprobs, lent->logprobs, all * sizeof *logprobs);
}

int weft_python_generate(weft_python_run *r, const weft_python_sampling *s, int64_t count,
                         const int32_t *ids, const int64_t *counts, int64_t width, int32_t *out,
                         int64_t *lengths, float *logprobs, wf_error *error)
{
    wf_gen_options options = {.sampling = {.temperature = s->temperature,
                                           .top_k = s->top_k,
                                           .top_p = s->top_p,
                                           .min_p = s->min_p,
                                           .repetition_penalty = s->repetition_penalty},
                              .seed = s->seed,
                              .most = s->most,
                              .n_ends = s->n_ends,
                              .size = r->options.vocab_size,
                              .logprobs = logprobs != NULL};
    generation g = {.count = count, .width = width};
    wf_gen_prompt *prompts;
    int64_t longest;

    *error = (wf_error){WF_OK, ""};
    options.ends = weft_python_lend(r, s->ends, sizeof *s->ends * (size_t)s->n_ends, error);
    g.options = weft_python_lend(r, &options, sizeof options, error);
    ids = weft_python_lend(r, ids, sizeof *ids * (size_t)sum_of(counts, count), error);
    g.prompts = prompts = weft_python_lend(r, NULL, sizeof *prompts * (size_t)count, error);
    longest = prompts ? list_prompts(r, &g, ids, counts, prompts, error) : 0;
    if (longest && fit(r, &g, longest, error) == WF_OK)
        call_generate(r, &g, out, lengths, logprobs, error);
    weft_python_return(r);
    return (int)error->code;
}

/* Texts of one length, whose log probabilities are wanted. */
typedef struct judgement {
    int64_t count, length;
    const int32_t *ids;
    float *out; /* [count][length - 1], rank 0's */
} judgement;

static wf_status judge(wf_par_running *rank, void *arg)
{
    const judgement *j = arg;
    wf_context *ctx = wf_par_context(rank->par);
    const wf_gen_engine_options options = {.par = rank->par,
                                           .model = (wf_nn_gpt *)rank->model,
                                           .pipelined = rank->pipeline ? rank->trainer : NULL,
                                           .slots = 1,
                                           .positions = j->length - 1};
    float *mine = malloc(sizeof *mine * (size_t)j->length);
    int64_t n = j->length - 1;
    wf_gen_engine e;

    if (!mine)
        wf_fail(ctx, WF_ENOMEM, "no memory for log probabilities");
    wf_context_training(ctx, false);
    if (wf_gen_engine_open(&e, &options) == WF_OK)
        for (int64_t i = 0; mine && i < j->count; i++) {
            if (wf_gen_logprobs(&e, 0, n, j->ids + i * j->length, n, mine) != WF_OK)
                break;
            if (wf_context_rank(ctx) == 0)
                memcpy(j->out + i * n, mine + 1, sizeof *mine * (size_t)n);
        }
    wf_gen_engine_close(&e);
    wf_context_training(ctx, true);
    free(mine);
    return wf_context_status(ctx);
}

int weft_python_logprobs(weft_python_run *r, int64_t count, int64_t length, const int32_t *ids,
                         float *out, wf_error *error)
{
    judgement j = {.count = count, .length = length}, *lent;
    const size_t n = (size_t)count * (size_t)(length > 1 ? length - 1 : 0);
    int64_t most = app_options_model(&r->options).positions;

    *error = (wf_error){WF_OK, ""};
    if (length < 2 || length - 1 > most)
        return (int)wf_error_set(error, WF_EINVAL,
                                 "texts of %" PRId64
                                 " ids: log probabilities are of 2 to %" PRId64
                                 ", the positions of the model and the token after them",
                                 length, most + 1);
    if (weft_python_check_ids(r, "texts", ids, count * length, false, error) != WF_OK)
        return (int)error->code;
    j.ids = weft_python_lend(r, ids, sizeof *ids * (size_t)(count * length), error);
    j.out = weft_python_lend(r, NULL, sizeof *out * n, error);
    lent = weft_python_lend(r, &j, sizeof j, error);
    if (lent && wf_session_call(r->session, judge, lent, error) == WF_OK)
        memcpy(out, lent->out, sizeof *out * n);
    weft_python_return(r);
    return (int)error->code;
}
