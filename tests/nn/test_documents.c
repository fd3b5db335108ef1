/*
 * tests/nn/test_documents.c - sequences of several documents: the logits of each are those that
 * it has alone, the same bits where it begins with a block of attention, and what else is in
 * the sequence leaves no trace; on every layout, for both families.
 */
#include "core/numerics/bits.h"
#include "nn/documents.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

enum { TOKENS = 150, VOCABULARY = 57, DOCUMENTS = 4 };

/* The second begins at a multiple of 64, the third has one token. */
static const int64_t begins[DOCUMENTS + 1] = {0, 64, 117, 118, TOKENS};

static const wf_nn_gpt_config gpt2 = {WF_NN_GPT2,          .vocabulary = VOCABULARY,
                                      .positions = TOKENS, .layers = 2,
                                      .heads = 6,          .kv_heads = 6,
                                      .width = 24,         .ffn = 40};
static const wf_nn_gpt_config llama = {.vocabulary = VOCABULARY,
                                       .positions = TOKENS,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 20,
                                       .width = 36,
                                       .ffn = 48};

static wf_tensor *numbers(wf_context *ctx, int64_t count)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(count)};

    return wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
}

/* Logits of the tokens [first, end), whole on every rank; `salt`: which tokens the others
   are. */
static const float *logits_of(model_rank *r, int64_t first, int64_t end, bool documents,
                              uint64_t salt)
{
    wf_tensor *tokens = numbers(r->ctx, end - first);
    wf_nn_documents d = {numbers(r->ctx, end - first), numbers(r->ctx, end - first)}, outside;
    wf_tensor *y;

    if (!tokens || !d.first || !d.positions)
        return NULL;
    for (int64_t i = first, k = 0; i < end; i++) {
        k += i == begins[k + 1];
        ((int32_t *)tokens->data)[i - first] =
            (int32_t)(wf_mix64((uint64_t)i ^ (k == 1 ? 0 : salt)) % VOCABULARY);
        ((int32_t *)d.first->data)[i - first] = (int32_t)(begins[k] - first);
        ((int32_t *)d.positions->data)[i - first] = (int32_t)(i - begins[k]);
    }
    if (!documents)
        d = (wf_nn_documents){NULL, NULL};
    outside = wf_nn_documents_switch(r->ctx, d);
    y = wf_whole(wf_nn_gpt_logits(r->model, tokens));
    wf_nn_documents_switch(r->ctx, outside);
    return y ? y->data : NULL;
}

static wf_status alone(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    const float *all, *other;
    size_t second = (size_t)(begins[2] - begins[1]) * VOCABULARY * sizeof(float);

    (void)arg;
    wf_context_training(r->ctx, false);
    wf_scope_open(r->ctx);
    all = logits_of(r, 0, TOKENS, true, 0);
    NEED(all);
    for (int k = 0; k < DOCUMENTS; k++) {
        const float *one = logits_of(r, begins[k], begins[k + 1], false, 0);
        const float *part = all + begins[k] * VOCABULARY;
        int64_t count = (begins[k + 1] - begins[k]) * VOCABULARY;

        NEED(one);
        if (begins[k] % 64 == 0)
            NEED(memcmp(one, part, (size_t)count * sizeof *one) == 0);
        for (int64_t i = 0; i < count; i++)
            NEED(fabsf(one[i] - part[i]) < 1e-5F);
    }
    other = logits_of(r, 0, TOKENS, true, 99);
    NEED(other &&
         memcmp(other + begins[1] * VOCABULARY, all + begins[1] * VOCABULARY, second) == 0);
    NEED(memcmp(other, all, second) != 0);
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void on_layouts(const wf_nn_gpt_config *config)
{
    static const wf_par_options layouts[] = {
        {.tp = 1}, {.tp = 4, .sequence_parallel = true}, {.tp = 2, .strategy = "full_shard"}};

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        model_test test = {.options = layouts[i], .config = *config, .body = alone};

        test.options.seed = 11;
        on_model_ranks(&test);
    }
}

static void of_gpt2(void)
{
    on_layouts(&gpt2);
}

static void of_llama(void)
{
    on_layouts(&llama);
}

/* Experts take a number of tokens of each document. */
static void of_mixture(void)
{
    wf_nn_gpt_config mixture = llama;

    mixture.experts = 6;
    mixture.top_k = 2;
    mixture.expert_ffn = 16;
    mixture.expert_capacity = 9;
    on_layouts(&mixture);
}

static const wf_test tests[] = {
    {"GPT-2: a document has the logits that it has alone", of_gpt2},
    {"Llama: a document has the logits that it has alone", of_llama},
    {"experts with a capacity: a document has the logits that it has alone", of_mixture},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("documents", tests);
}
