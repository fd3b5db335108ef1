/*
 * tests/text/test_engine.c - generation takes the memory that its plan says, to the byte, on
 * every rank; stop strings end texts.
 */
#include "parallel/generate/batch.h"
#include "core/host_data.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/shard/materialize.h"
#include "tests/harness.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, PROMPT = 70, TEXTS = 3, POSITIONS = 80 };

typedef struct job {
    wf_par_options options;
    wf_memory_report memory[RANKS];
} job;

static const wf_nn_gpt_config config = {.vocabulary = 101,
                                        .positions = POSITIONS,
                                        .layers = 3,
                                        .heads = 6,
                                        .kv_heads = 3,
                                        .width = 48,
                                        .ffn = 96};

/* A prompt in chunks, then a token of each text. */
static void generate(wf_par *par, wf_nn_gpt *model, wf_memory_report *memory)
{
    const wf_gen_engine_options options = {
        .par = par, .model = model, .slots = TEXTS, .positions = POSITIONS, .chunk = 32};
    static const wf_gen_engine_row rows[TEXTS] = {
        {0, PROMPT, 5, NULL}, {1, 0, 7, NULL}, {2, 0, 9, NULL}};
    bool plan = wf_context_dry_run(wf_par_context(par));
    float logits[TEXTS * 101], sums[TEXTS];
    int32_t ids[PROMPT];
    wf_gen_engine e;

    for (int i = 0; i < PROMPT; i++)
        ids[i] = i;
    if (wf_gen_engine_open(&e, &options) == WF_OK &&
        wf_gen_engine_prefill(&e, 0, PROMPT, 0, plan ? NULL : ids, PROMPT, NULL, NULL) == WF_OK)
        wf_gen_engine_next(&e, TEXTS, rows, plan ? NULL : logits, plan ? NULL : sums);
    wf_gen_engine_close(&e);
    wf_pool_report(wf_context_pool(wf_par_context(par)), memory);
}

static wf_status run(wf_rank *rank, void *arg)
{
    job *j = arg;
    wf_par *par = wf_par_open(rank, &j->options, &rank->error);
    wf_nn_gpt *model;

    if (!par)
        return rank->error.code;
    wf_context_training(wf_par_context(par), false);
    model = wf_nn_gpt_new(wf_par_context(par), &config);
    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK)
        generate(par, model, &j->memory[rank->index]);
    rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static void as_planned(wf_par_options options)
{
    int ranks = (int)wf_par_ranks(&options);
    job ran = {.options = options}, planned = {.options = options};
    wf_error error = {WF_OK, ""};

    planned.options.plan = true;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = ranks}, run, &ran, &error), WF_OK);
    for (int r = 0; r < ranks; r++) {
        const wf_memory_report *a = &ran.memory[r], *b = &planned.memory[r];

        CU_ASSERT_EQUAL(
            wf_launch(&(wf_launch_options){.ranks = ranks, .transport = "fake", .rank = r}, run,
                      &planned, &error),
            WF_OK);
        CU_ASSERT(a->peak > 0 && a->at_peak[WF_MEMORY_CACHE] > 0);
        CU_ASSERT_EQUAL(a->peak, b->peak);
        CU_ASSERT_EQUAL(memcmp(a->most, b->most, sizeof a->most), 0);
        if (a->peak != b->peak)
            printf("\n    rank %d of %d: %zu bytes, planned %zu", r, ranks, a->peak, b->peak);
    }
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
}

static void memory_is_as_planned(void)
{
    as_planned((wf_par_options){.tp = 1, .strategy = "no_shard"});
    as_planned((wf_par_options){.tp = 2, .strategy = "no_shard"});
    as_planned((wf_par_options){.tp = 4, .strategy = "no_shard"});
    as_planned((wf_par_options){.dp = 2, .tp = 2, .strategy = "full_shard"});
    as_planned((wf_par_options){
        .tp = 2, .strategy = "no_shard", .dtype = WF_BF16, .param_dtype = WF_BF16});
}

/* A text is long from the token behind the original length on, as transformers have it. */
static void long_texts_begin_after_the_original(void)
{
    wf_nn_gpt model = {
        .config = {.rope_scaling = {.kind = WF_ROPE_LONG, .original_positions = 70}}};
    int64_t scaled_for[] = {0, 1};
    const wf_gen_engine e = {.o = {.model = &model, .slots = 2, .positions = POSITIONS},
                             .scaled_for = scaled_for};

    CU_ASSERT_TRUE(wf_gen_engine_keeps(&e, 0, 70));
    CU_ASSERT_FALSE(wf_gen_engine_keeps(&e, 0, 71));
    CU_ASSERT_FALSE(wf_gen_engine_keeps(&e, 1, 70));
    CU_ASSERT_TRUE(wf_gen_engine_keeps(&e, 1, 71));
    CU_ASSERT_EQUAL(wf_gen_engine_together(&e, 69), 70);
    CU_ASSERT_EQUAL(wf_gen_engine_together(&e, 70), 70);
    CU_ASSERT_EQUAL(wf_gen_engine_together(&e, 71), 71);
    model.config.rope_scaling.kind = WF_ROPE_DYNAMIC; /* each length is another */
    scaled_for[1] = 75;
    CU_ASSERT_TRUE(wf_gen_engine_keeps(&e, 0, 70));
    CU_ASSERT_FALSE(wf_gen_engine_keeps(&e, 0, 71));
    CU_ASSERT_FALSE(wf_gen_engine_keeps(&e, 1, 76));
    CU_ASSERT_TRUE(wf_gen_engine_keeps(&e, 1, 75));
    CU_ASSERT_EQUAL(wf_gen_engine_together(&e, 69), 69);
}

/* A text that ended, and the most of it that was shown before. */
typedef struct ended {
    char text[POSITIONS];
    size_t bytes, settled;
    const char *finish;
    const wf_gen_options *options;
} ended;

static void see_token(void *arg, const wf_gen_text *t)
{
    ended *e = arg;
    size_t settled = wf_gen_text_settled(e->options, t);

    e->settled = settled > e->settled ? settled : e->settled;
}

static void see_end(void *arg, wf_gen_text *t)
{
    ended *e = arg;

    e->bytes = t->text.bytes < sizeof e->text ? t->text.bytes : 0;
    memcpy(e->text, t->text.data, e->bytes);
    e->finish = t->finish;
}

/* Returns the length at which a text of a byte a token is cut: with the byte that completes a
   stop string, before the first of all that it completes. */
static size_t cut_of(const ended *whole, const char *const *stops, int64_t n)
{
    for (size_t end = 1; end <= whole->bytes; end++) {
        size_t cut = SIZE_MAX;

        for (int64_t i = 0; i < n; i++) {
            size_t bytes = strlen(stops[i]);

            if (bytes <= end && memcmp(whole->text + end - bytes, stops[i], bytes) == 0 &&
                end - bytes < cut)
                cut = end - bytes;
        }
        if (cut != SIZE_MAX)
            return cut;
    }
    return SIZE_MAX;
}

static bool stops_at(wf_gen_engine *e, wf_gen_options *o, const ended *whole, size_t at,
                     size_t n)
{
    static const int32_t first = 5;
    const wf_gen_prompt prompt = {&first, 1, 0};
    char stop[16] = {0};
    const char *stops[] = {stop, stop + n / 2, "\x7f"}; /* both end with one byte */
    ended cut = {.options = o};
    const wf_gen_events events = {see_token, see_end, &cut};

    memcpy(stop, whole->text + at, n);
    o->stops = stops;
    o->n_stops = 3;
    return wf_gen_run(e, o, &prompt, 1, 0, 1, &events) == WF_OK && cut.finish &&
           strcmp(cut.finish, "stop") == 0 && cut.bytes == cut_of(whole, stops, o->n_stops) &&
           memcmp(cut.text, whole->text, cut.bytes) == 0 && cut.settled <= cut.bytes;
}

/* A text of many tokens, each of a byte; the same with stop strings out of it. */
static bool stop_everywhere(wf_gen_engine *e)
{
    static const int32_t first = 5;
    const wf_gen_prompt prompt = {&first, 1, 0};
    wf_tok *bytes;
    wf_error error = {WF_OK, ""};
    wf_gen_options o = {.sampling = {.repetition_penalty = 1, .temperature = 1, .top_p = 1},
                        .seed = 1,
                        .most = 40,
                        .size = 101};
    ended whole = {.options = &o};
    const wf_gen_events events = {NULL, see_end, &whole};
    bool good = wf_tok_open(NULL, &bytes, &error) == WF_OK;

    if (!good)
        return false;
    o.tokenizer = bytes;
    good = wf_gen_run(e, &o, &prompt, 1, 0, 1, &events) == WF_OK && whole.bytes == 40 &&
           memchr(whole.text, 0, whole.bytes) == NULL && strcmp(whole.finish, "length") == 0;
    for (size_t n = 1; n <= 9 && good; n++)
        for (size_t at = 0; at + n <= whole.bytes && good; at += 31 / n) {
            good = stops_at(e, &o, &whole, at, n);
            if (!good)
                printf("\n    %zu bytes from %zu on", n, at);
        }
    wf_tok_close(bytes);
    return good;
}

static wf_status stop_rank(wf_rank *rank, void *arg)
{
    const wf_par_options one = {.tp = 1, .strategy = "no_shard", .seed = 1};
    wf_par *par = wf_par_open(rank, &one, &rank->error);
    wf_nn_gpt *model;
    wf_gen_engine e;

    if (!par)
        return rank->error.code;
    wf_context_training(wf_par_context(par), false);
    model = wf_nn_gpt_new(wf_par_context(par), &config);
    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK) {
        const wf_gen_engine_options options = {
            .par = par, .model = model, .slots = 1, .positions = POSITIONS, .chunk = 32};

        *(bool *)arg = wf_gen_engine_open(&e, &options) == WF_OK && stop_everywhere(&e);
        wf_gen_engine_close(&e);
    }
    rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

/* A stop string ends a text before its first byte, wherever it begins and however many tokens
   it has. */
static void stop_strings_of_many_tokens(void)
{
    wf_error error = {WF_OK, ""};
    bool good = false;

    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 1}, stop_rank, &good, &error),
                    WF_OK);
    CU_ASSERT(good);
}

int main(void)
{
    static const wf_test tests[] = {
        {"memory is as planned", memory_is_as_planned},
        {"stop strings of many tokens", stop_strings_of_many_tokens},
        {"long texts begin behind the original length", long_texts_begin_after_the_original},
        {NULL, NULL}};

    return wf_test_main("generation", tests);
}
