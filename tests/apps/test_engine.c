/*
 * tests/apps/test_engine.c - generation takes the memory that its plan says, to the byte, on every rank.
 */
#include "apps/generate/engine.h"
#include "tests/harness.h"
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
    const app_engine_options options = {
        .par = par, .model = model, .slots = TEXTS, .positions = POSITIONS, .chunk = 32};
    static const app_engine_row rows[TEXTS] = {
        {0, PROMPT, 5, NULL}, {1, 0, 7, NULL}, {2, 0, 9, NULL}};
    bool plan = wf_context_dry_run(wf_par_context(par));
    float logits[TEXTS * 101], sums[TEXTS];
    int32_t ids[PROMPT];
    app_engine e;

    for (int i = 0; i < PROMPT; i++)
        ids[i] = i;
    if (app_engine_open(&e, &options) == WF_OK &&
        app_engine_prefill(&e, 0, PROMPT, 0, plan ? NULL : ids, PROMPT, NULL, NULL) == WF_OK)
        app_engine_next(&e, TEXTS, rows, plan ? NULL : logits, plan ? NULL : sums);
    app_engine_close(&e);
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
static void long_texts_begin_behind_the_original(void)
{
    wf_nn_gpt model = {
        .config = {.rope_scaling = {.kind = WF_ROPE_LONG, .original_positions = 70}}};
    bool is_long[] = {false, true};
    const app_engine e = {.o = {.model = &model, .slots = 2, .positions = POSITIONS},
                          .is_long = is_long};

    CU_ASSERT_TRUE(app_engine_keeps(&e, 0, 70));
    CU_ASSERT_FALSE(app_engine_keeps(&e, 0, 71));
    CU_ASSERT_FALSE(app_engine_keeps(&e, 1, 70));
    CU_ASSERT_TRUE(app_engine_keeps(&e, 1, 71));
    CU_ASSERT_EQUAL(app_engine_together(&e, 69), 70);
    CU_ASSERT_EQUAL(app_engine_together(&e, 70), 70);
    CU_ASSERT_EQUAL(app_engine_together(&e, 71), 71);
}

int main(void)
{
    static const wf_test tests[] = {
        {"memory is as planned", memory_is_as_planned},
        {"long texts begin behind the original length", long_texts_begin_behind_the_original},
        {NULL, NULL}};

    return wf_test_main("generation", tests);
}
