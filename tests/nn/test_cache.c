/*
 * tests/nn/test_cache.c - generation with a key-value cache has the bits of a forward pass over
 * the whole text: for both families, on every layout, whatever pieces and batches the tokens
 * come in.
 *
 * ctest: builds plain, cost 50
 */
#include "core/host_data.h"
#include "core/numerics/bits.h"
#include "nn/cache.h"
#include "tests/nn/model_ranks.h"

enum { SEQUENCES = 3, TOKENS = 140, SLOTS = 4, VOCABULARY = 57 };

static const wf_nn_gpt_config gpt2 = {WF_NN_GPT2,          .vocabulary = VOCABULARY,
                                      .positions = TOKENS, .layers = 2,
                                      .heads = 6,          .kv_heads = 6,
                                      .width = 24,         .ffn = 40,
                                      .dropout = 0.3F};
static const wf_nn_gpt_config llama = {.vocabulary = VOCABULARY,
                                       .positions = TOKENS,
                                       .layers = 2,
                                       .heads = 9,
                                       .kv_heads = 3,
                                       .head_dim = 20,
                                       .width = 36,
                                       .ffn = 48,
                                       .qk_norm = true};

/* Windows in two blocks of four. */
static const wf_nn_gpt_config windows = {.vocabulary = VOCABULARY,
                                         .positions = TOKENS,
                                         .layers = 4,
                                         .heads = 6,
                                         .kv_heads = 2,
                                         .width = 24,
                                         .ffn = 32,
                                         .window = 37,
                                         .window_first = 1,
                                         .window_skip = 3};

/* An MLP, and a mixture whose experts ranks do not cut evenly. */
static const wf_nn_gpt_config mixture = {.vocabulary = VOCABULARY,
                                         .positions = TOKENS,
                                         .layers = 2,
                                         .heads = 6,
                                         .kv_heads = 3,
                                         .width = 24,
                                         .ffn = 32,
                                         .experts = 12,
                                         .top_k = 3,
                                         .expert_ffn = 16,
                                         .shared_ffn = 8,
                                         .router_normalised = true,
                                         .dense_blocks = {{1}}};

/* Rank 0 of each layout leaves what the bits are; the first one's are wanted of the others. */
typedef struct outcome {
    uint64_t bits;
    bool known;
} outcome;

/* Tokens of sequence b from `first` on, and where they go in a cache. */
typedef struct piece {
    int64_t sequence, first;
} piece;

static int32_t token_of(int64_t sequence, int64_t at)
{
    return (int32_t)(wf_mix64((uint64_t)(sequence * TOKENS + at)) % VOCABULARY);
}

/* Logits of so many tokens of each piece, whole on every rank: [batch, tokens, vocabulary]. */
static wf_tensor *logits_of(model_rank *r, int64_t batch, int64_t tokens, const piece *pieces)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens)};
    wf_tensor *t = wf_tensor_new(r->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int64_t b = 0; t && b < batch; b++)
        for (int64_t i = 0; i < tokens; i++)
            ((int32_t *)t->data)[b * tokens + i] =
                token_of(pieces[b].sequence, pieces[b].first + i);
    return wf_whole(wf_nn_gpt_logits(r->model, t));
}

static void numbers_of(const wf_tensor *t, float *to)
{
    wf_host_data view;
    const float *from = wf_data_read_f32(t, &view);

    if (from)
        memcpy(to, from, (size_t)wf_tensor_count(t) * sizeof *to);
    wf_data_close(&view);
}

/* Returns the logits of one pass over all of each sequence: [SEQUENCES][TOKENS][VOCABULARY]. */
static float *whole_logits(model_rank *r)
{
    float *all = malloc(sizeof *all * SEQUENCES * TOKENS * VOCABULARY);

    for (int64_t s = 0; all && s < SEQUENCES; s++) {
        wf_tensor *y;

        wf_scope_open(r->ctx);
        y = logits_of(r, 1, TOKENS, &(piece){s, 0});
        if (y)
            numbers_of(y, all + s * TOKENS * VOCABULARY);
        wf_scope_close(r->ctx);
    }
    return all;
}

/* The pieces go through a cache as one batch; their logits shall be the rows of the whole. */
static wf_status go_on(model_rank *r, wf_nn_cache *cache, int64_t batch, int64_t tokens,
                       const piece *pieces, const float *whole)
{
    wf_rank *rank = r->rank;
    static const int64_t slots[SEQUENCES] = {2, 0, 3};
    wf_nn_cache_position sequence[SEQUENCES];
    size_t row = VOCABULARY * (size_t)tokens;
    bool same = true;
    float *got;
    wf_tensor *y;

    for (int64_t b = 0; b < batch; b++)
        sequence[b] =
            (wf_nn_cache_position){slots[pieces[b].sequence], pieces[b].first,
                                   r->model->config.rope_scaling.kind == WF_ROPE_LONG, TOKENS};
    GOOD(wf_nn_cache_at(cache, batch, tokens, sequence));
    wf_scope_open(r->ctx);
    wf_nn_cache_switch(r->ctx, cache);
    y = logits_of(r, batch, tokens, pieces);
    wf_nn_cache_switch(r->ctx, NULL);
    got = malloc((size_t)batch * row * sizeof *got);
    NEED(y && got);
    numbers_of(y, got);
    for (int64_t b = 0; b < batch; b++)
        same =
            same && memcmp(got + (size_t)b * row,
                           whole + (pieces[b].sequence * TOKENS + pieces[b].first) * VOCABULARY,
                           row * sizeof(float)) == 0;
    free(got);
    wf_scope_close(r->ctx);
    GOOD(wf_context_status(r->ctx));
    NEED(same);
    return WF_OK;
}

/* Each sequence in pieces of another size, then the rest of all of them, one by one, in batches
   that grow and shrink. */
static wf_status in_pieces(model_rank *r, const float *whole)
{
    wf_rank *rank = r->rank;
    static const int64_t sizes[SEQUENCES] = {65, 7, 1}, until[SEQUENCES] = {130, 63, 20};
    wf_nn_cache *cache = wf_nn_cache_open(r->ctx, SLOTS, TOKENS);
    int64_t seen[SEQUENCES] = {0};

    NEED(cache);
    for (int64_t s = 0; s < SEQUENCES; s++)
        for (; seen[s] < until[s]; seen[s] += sizes[s])
            GOOD(go_on(r, cache, 1, sizes[s], &(piece){s, seen[s]}, whole));
    for (int64_t step = 0; seen[2] < TOKENS; step++) {
        piece batch[SEQUENCES];
        int64_t n = 0;

        for (int64_t i = 0; i < SEQUENCES; i++) {
            int64_t s = (i + step) % SEQUENCES;

            if (seen[s] < TOKENS && (s == 2 || step % 3 > 0))
                batch[n++] = (piece){s, seen[s]++};
        }
        if (n)
            GOOD(go_on(r, cache, n, 1, batch, whole));
    }
    GOOD(go_on(r, cache, 1, 4, &(piece){1, 30}, whole)); /* back, over what is there */
    wf_nn_cache_close(cache);
    return WF_OK;
}

/* A log probability is a logit less the logsumexp: the loss of a token, with its bits, as a
   trainer has it. */
static wf_status losses_are_alike(model_rank *r, const float *whole)
{
    wf_rank *rank = r->rank;
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(TOKENS)};
    wf_tensor *tokens = wf_tensor_new(r->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *targets = wf_tensor_new(r->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *loss, *sum;
    bool same = true;

    NEED(tokens && targets);
    for (int64_t i = 0; i < TOKENS; i++) {
        ((int32_t *)tokens->data)[i] = token_of(0, i);
        ((int32_t *)targets->data)[i] = token_of(0, i + 1);
    }
    loss = wf_whole(wf_nn_gpt_loss(r->model, tokens, targets, 1));
    sum = wf_whole(wf_nn_logsumexp(r->model->loss, wf_nn_gpt_logits(r->model, tokens)));
    NEED(loss && sum);
    for (int64_t i = 0; i < TOKENS; i++) {
        float want = ((float *)sum->data)[i] - whole[i * VOCABULARY + token_of(0, i + 1)];

        same = same && memcmp(&want, (float *)loss->data + i, sizeof want) == 0;
    }
    NEED(same);
    return WF_OK;
}

static wf_status compare(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    outcome *o = arg;
    float *whole;
    uint64_t bits = 0;
    wf_status status;

    wf_context_training(r->ctx, false);
    wf_context_storage(r->ctx, wf_par_dtype(r->par));
    whole = whole_logits(r);
    NEED(whole);
    status = in_pieces(r, whole);
    wf_scope_open(r->ctx);
    if (status == WF_OK)
        status = losses_are_alike(r, whole);
    wf_scope_close(r->ctx);
    for (size_t i = 0; i < (size_t)SEQUENCES * TOKENS * VOCABULARY; i++) {
        uint32_t word;

        memcpy(&word, &whole[i], sizeof word);
        bits = wf_mix64(bits ^ word);
    }
    free(whole);
    GOOD(status);
    if (rank->index == 0 && !o->known)
        *o = (outcome){bits, true};
    else if (rank->index == 0)
        NEED(o->bits == bits);
    return WF_OK;
}

/* A sanitizer's build takes a thread pool, four ranks with one text among them, and four that
   gather weights. */
static void on_layouts(const wf_nn_gpt_config *config, wf_dtype dtype, bool fp32_residual)
{
    static const wf_par_options layouts[] = {
        {.tp = 1}, {.tp = 1, .threads = 2},
        {.tp = 2}, {.tp = 4, .sequence_parallel = true},
        {.tp = 8}, {.dp = 2, .tp = 2, .strategy = "full_shard"},
    };
    outcome o = {.known = false};

    for (size_t i = UNDER_SANITIZER; i < sizeof layouts / sizeof *layouts;
         i += 1 + UNDER_SANITIZER) {
        model_test test = {
            .options = layouts[i], .config = *config, .body = compare, .arg = &o};

        test.options.dtype = test.options.param_dtype = dtype;
        test.options.fp32_residual = fp32_residual;
        test.options.seed = 11;
        on_model_ranks(&test);
    }
    CU_ASSERT_TRUE(o.known);
}

static void of_gpt2(void)
{
    on_layouts(&gpt2, WF_F32, false);
}

static void of_llama(void)
{
    on_layouts(&llama, WF_F32, false);
}

static void of_windows(void)
{
    on_layouts(&windows, WF_F32, false);
}

/* Caps, norms on both sides and a base of windows; branches beside each other. */
static void of_patterns(void)
{
    wf_nn_gpt_config c = windows;

    c.order = WF_NN_BOTH_NORMS;
    c.qk_norm = c.gain_offset = true, c.window_rope_base = 50;
    c.score_cap = c.logit_cap = 0.4, c.sinks = true;
    on_layouts(&c, WF_F32, false);
    c = windows; /* chunks where heads rotate */
    c.window_first = 0, c.window_skip = c.rope_skip = 3;
    c.window_chunks = c.qk_l2_norm = true, c.temperature = 0.7, c.temperature_every = 11;
    on_layouts(&c, WF_F32, false);
    c = (wf_nn_gpt_config){.parallel = true, .shared_norm = true, .rope_neighbours = true};
    c.vocabulary = VOCABULARY, c.positions = TOKENS;
    c.layers = 2, c.heads = c.kv_heads = 6, c.width = 24, c.ffn = 32, c.rotary = 0.5;
    c.norm = WF_NN_LAYERNORM_UNBIASED, c.mlp = WF_NN_GELU;
    c.gelu_erf = c.head_bias = true;
    on_layouts(&c, WF_F32, false);
}

static void of_long_texts(void)
{
    wf_nn_gpt_config c = llama;

    c.qk_norm = false;
    c.head_dim = 18, c.rotary = 0.7; /* the first 12 features turn */
    c.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LONG, .original_positions = 100};
    c.rope_factors = (wf_rope_factors){6, {1, 1.1F, 1.3F, 1.4F, 2, 3}, {1, 1.5F, 2, 4, 9, 20}};
    on_layouts(&c, WF_F32, false);
    c.rope_scaling =
        (wf_rope_scaling){.kind = WF_ROPE_DYNAMIC, .factor = 2.5, .original_positions = 60};
    on_layouts(&c, WF_F32, false);
}

static void of_mixture(void)
{
    wf_nn_gpt_config limited = mixture; /* a third of what experts have where loads are equal */

    limited.expert_capacity = TOKENS * 3 / 12 / 3;
    on_layouts(&mixture, WF_F32, false);
    on_layouts(&limited, WF_F32, false);
}

static void of_bf16(void)
{
    on_layouts(&llama, WF_BF16, false);
}

static void of_fp32_residual(void)
{
    on_layouts(&gpt2, WF_BF16, true);
}

static wf_status no_position(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    wf_nn_cache *cache = wf_nn_cache_open(r->ctx, SLOTS, TOKENS);

    (void)arg;
    NEED(cache);
    NEED(wf_nn_cache_at(cache, 1, 2, &(wf_nn_cache_position){.slot = SLOTS}) == WF_EINVAL);
    NEED(strstr(wf_context_error(r->ctx)->text, "slot 4: the cache has 4 slots"));
    wf_context_clear(r->ctx);
    NEED(wf_nn_cache_at(cache, 1, 2, &(wf_nn_cache_position){.first = TOKENS - 1}) ==
         WF_EINVAL);
    NEED(strstr(wf_context_error(r->ctx)->text, "room for 140 tokens"));
    wf_context_clear(r->ctx);
    NEED(!wf_nn_cache_open(r->ctx, 0, 5));
    wf_context_clear(r->ctx);
    wf_nn_cache_close(cache);
    return WF_OK;
}

static wf_status not_causal(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(2), wf_dim_width(8)};
    const wf_nn_attention_options options = {.width = 8, .heads = 2};
    wf_nn_attention *m = wf_nn_attention_new(r->ctx, &options);
    wf_nn_cache *cache = wf_nn_cache_open(r->ctx, 1, 2);
    wf_tensor *x = wf_tensor_new(r->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);

    (void)arg;
    NEED(m && cache && x);
    GOOD(wf_nn_cache_at(cache, 1, 2, &(wf_nn_cache_position){.slot = 0}));
    wf_nn_cache_switch(r->ctx, cache);
    NEED(!wf_nn_call(m, x));
    NEED(wf_context_status(r->ctx) == WF_EUNSUPPORTED);
    NEED(strstr(wf_context_error(r->ctx)->text, "is not causal"));
    wf_context_clear(r->ctx);
    wf_nn_cache_close(cache);
    wf_nn_free(&m->base);
    return WF_OK;
}

static void are_refused(void)
{
    model_test test = {.options = {.tp = 1}, .config = gpt2, .body = no_position};

    on_model_ranks(&test);
    test.body = not_causal;
    on_model_ranks(&test);
}

int main(void)
{
    static const wf_test tests[] = {{"GPT-2", of_gpt2},
                                    {"Llama", of_llama},
                                    {"windows", of_windows},
                                    {"patterns", of_patterns},
                                    {"long texts", of_long_texts},
                                    {"a mixture", of_mixture},
                                    {"bf16", of_bf16},
                                    {"bf16, residual stream in f32", of_fp32_residual},
                                    {"refused", are_refused},
                                    {NULL, NULL}};
    static const wf_test of_ranks[] = {{"GPT-2", of_gpt2}, {"bf16", of_bf16}, {NULL, NULL}};

    /* other numbers in the same exchanges */
    return wf_test_main("key-value cache", UNDER_THREAD_SANITIZER ? of_ranks : tests);
}
