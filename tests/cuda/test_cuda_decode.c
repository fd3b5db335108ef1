/*
 * tests/cuda/test_cuda_decode.c - decode steps as CUDA graphs: the tokens and log probabilities
 * of steps that run op by op, whatever texts come and go; a launch for all ops of a token;
 * memory as planned; what cannot be captured is refused.
 *
 * ctest: builds plain, links weft_text_open
 */
#include "parallel/generate/batch.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/shard/materialize.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>

enum { VOCABULARY = 61, POSITIONS = 24, SLOTS = 3, PROMPTS = 7, MOST = 6, TOP = 2 };

static const wf_nn_gpt_config gpt2 = {WF_NN_GPT2,
                                      .vocabulary = VOCABULARY,
                                      .positions = POSITIONS,
                                      .layers = 2,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .width = 16,
                                      .ffn = 32};
static const wf_nn_gpt_config llama = {.vocabulary = VOCABULARY,
                                       .positions = POSITIONS,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .width = 32,
                                       .ffn = 48,
                                       .window = 5,
                                       .qk_norm = true};
static const wf_nn_gpt_config mixture = {.vocabulary = VOCABULARY,
                                         .positions = POSITIONS,
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .width = 32,
                                         .ffn = 32,
                                         .experts = 4,
                                         .top_k = 2,
                                         .expert_ffn = 16,
                                         .router_normalised = true};

typedef struct outcome {
    int64_t count;
    int32_t ids[POSITIONS];
    float logprob[POSITIONS], top[POSITIONS * TOP];
} outcome;

/* A run, and what it makes of the prompts. */
typedef struct job {
    const wf_nn_gpt_config *model;
    wf_par_options layout;
    bool graphs, logprobs;
    void (*work)(struct job *j, wf_rank *rank, wf_gen_engine *e);
    outcome text[PROMPTS];
    int64_t launches, syncs; /* those of one decode step */
    wf_memory_report memory;
    wf_status opened;
    wf_error error;
} job;

static job make_job(const wf_nn_gpt_config *model, bool graphs)
{
    return (job){.model = model,
                 .graphs = graphs,
                 .logprobs = true,
                 .layout = {.strategy = "no_shard", .device = "cuda", .seed = 3, .threads = 1}};
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    job *j = arg;
    wf_par *par = wf_par_open(rank, &j->layout, &rank->error);
    wf_nn_gpt *model = par ? wf_nn_gpt_new(wf_par_context(par), j->model) : NULL;
    const wf_gen_engine_options options = {.par = par,
                                           .model = model,
                                           .slots = SLOTS,
                                           .positions = POSITIONS,
                                           .chunk = 4,
                                           .cuda_graph = j->graphs};
    wf_gen_engine e;

    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    wf_context_training(wf_par_context(par), false);
    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(par, &model->base);
    j->opened = wf_gen_engine_open(&e, &options);
    if (j->opened == WF_OK)
        j->work(j, rank, &e);
    wf_gen_engine_close(&e);
    wf_pool_report(wf_context_pool(wf_par_context(par)), &j->memory);
    j->error = *wf_context_error(wf_par_context(par));
    wf_nn_free(&model->base);
    wf_par_close(par);
    return WF_OK;
}

static void run(job *j, int ranks, bool plan)
{
    wf_error error = {WF_OK, ""};

    j->layout.plan = plan;
    CU_ASSERT_EQUAL(
        wf_launch(&(wf_launch_options){.ranks = ranks, .transport = plan ? "fake" : NULL},
                  rank_main, j, &error),
        WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
}

static void keep(void *arg, wf_gen_text *t)
{
    outcome *o = &((job *)arg)->text[t->index];

    o->count = t->count;
    memcpy(o->ids, t->ids, (size_t)t->count * sizeof *o->ids);
    if (t->logprob)
        memcpy(o->logprob + 1, t->logprob + 1, (size_t)(t->count - 1) * sizeof *o->logprob);
    for (int64_t i = t->prompt * TOP; t->top_logprob && i < t->count * TOP; i++)
        o->top[i] = t->top_logprob[i];
}

/* More prompts than slots, of lengths that differ: texts begin between the tokens of others,
   with one token too, and at the end fewer and fewer are left. */
static void texts(job *j, wf_rank *rank, wf_gen_engine *e)
{
    static const int32_t ends[] = {7, 11, 13};
    const wf_gen_options options = {
        .sampling = {.temperature = 1, .repetition_penalty = 1, .top_p = 1},
        .seed = 5,
        .most = MOST,
        .ends = ends,
        .n_ends = 3,
        .size = VOCABULARY,
        .logprobs = j->logprobs,
        .top = j->logprobs ? TOP : 0};
    const wf_gen_events events = {.finished = keep, .arg = j};
    wf_gen_prompt prompts[PROMPTS];
    int32_t ids[PROMPTS][POSITIONS];

    for (int p = 0; p < PROMPTS; p++) {
        prompts[p] = (wf_gen_prompt){ids[p], 1 + p * 5 % 11, (uint64_t)p};
        for (int i = 0; i < POSITIONS; i++)
            ids[p][i] = (17 * p + 5 * i) % VOCABULARY;
    }
    wf_gen_run(e, &options, prompts, PROMPTS, wf_par_dp_rank(e->o.par), wf_par_dp(e->o.par),
               &events);
    (void)rank;
}

static void same_texts_over(const wf_nn_gpt_config *model, wf_dtype dtype, int tp, int dp,
                            const char *what)
{
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        job at_once = make_job(model, false), graphs = make_job(model, true);
        job *const both[] = {&at_once, &graphs};

        for (int i = 0; i < 2; i++) {
            both[i]->work = texts;
            both[i]->logprobs = logprobs;
            both[i]->layout.dtype = both[i]->layout.param_dtype = dtype;
            both[i]->layout.tp = tp;
            both[i]->layout.dp = dp;
            run(both[i], tp * dp, false);
            CU_ASSERT_EQUAL(both[i]->error.code, WF_OK);
        }
        if (graphs.error.code != WF_OK)
            printf("\n    %s: %s", what, graphs.error.text);
        CU_ASSERT(at_once.text[0].count > 1);
        CU_ASSERT_EQUAL(memcmp(at_once.text, graphs.text, sizeof graphs.text), 0);
    }
}

static void same_texts(const wf_nn_gpt_config *model, wf_dtype dtype, int dp, const char *what)
{
    same_texts_over(model, dtype, 1, dp, what);
}

static void tokens_are_the_same(void)
{
    same_texts(&gpt2, WF_F32, 1, "gpt2");
    same_texts(&llama, WF_F32, 1, "llama");
    same_texts(&llama, WF_BF16, 1, "llama in bf16");
    same_texts(&mixture, WF_F32, 1, "mixture");
}

static void copies_have_graphs_each(void)
{
    same_texts(&gpt2, WF_F32, 2, "two copies");
    same_texts(&llama, WF_BF16, 2, "two copies in bf16");
}

/* Ranks that split a model have a graph each, cut where they meet. */
static void ranks_that_split(void)
{
    setenv("WEFT_EMULATOR_DEVICES", "2", 1);
    same_texts_over(&llama, WF_F32, 2, 1, "two ranks");
    if (getenv("WEFT_TEST_ALL"))
        same_texts_over(&mixture, WF_F32, 2, 1, "two ranks of a mixture");
    unsetenv("WEFT_EMULATOR_DEVICES");
}

/* A text that becomes longer than the original length is recomputed, and goes on. */
static void long_texts(void)
{
    static const float factors[] = {1, 1.5F, 2, 4};
    wf_nn_gpt_config model = llama;

    model.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LONG, .original_positions = 9};
    for (int i = 0; i < 4; i++) {
        model.rope_factors.short_factor[i] = 1;
        model.rope_factors.long_factor[i] = factors[i];
    }
    model.rope_factors.count = 4;
    same_texts(&model, WF_F32, 1, "long texts");
    model.rope_scaling =
        (wf_rope_scaling){.kind = WF_ROPE_DYNAMIC, .original_positions = 9, .factor = 4};
    same_texts(&model, WF_F32, 1, "RoPE that is scaled by each length");
}

static wf_device_counts counts_of(const wf_gen_engine *e)
{
    return wf_context_device(e->ctx)->counts();
}

static void steps(wf_gen_engine *e, int n, const float *logits)
{
    wf_gen_engine_row row[SLOTS];

    for (int at = 1; at <= n; at++) {
        for (int s = 0; s < SLOTS; s++)
            row[s] = (wf_gen_engine_row){s, at, 3 * s + at, NULL};
        wf_gen_engine_next(e, SLOTS, row, (float *)(uintptr_t)logits, NULL);
    }
}

static void count_launches(job *j, wf_rank *rank, wf_gen_engine *e)
{
    static float logits[SLOTS * VOCABULARY];
    wf_device_counts before;

    steps(e, 2, logits);
    before = counts_of(e);
    steps(e, 1, logits);
    j->launches = counts_of(e).launches - before.launches;
    j->syncs = counts_of(e).syncs - before.syncs;
    (void)rank;
}

/* The graph, the numbers of a step that are written (ids, positions, slots), and the logits. */
static void one_launch(void)
{
    wf_nn_gpt_config model = llama;
    job at_once = make_job(&model, false), graphs = make_job(&model, true);

    model.width = 128; /* depths of chunks are aligned, as those of real models */
    model.ffn = 256;
    at_once.work = graphs.work = count_launches;
    run(&at_once, 1, false);
    run(&graphs, 1, false);
    printf(" (%d launches a token, %d by a graph; waits %d and %d) ", (int)at_once.launches,
           (int)graphs.launches, (int)at_once.syncs, (int)graphs.syncs);
    CU_ASSERT_EQUAL(graphs.launches, 6);
    CU_ASSERT(at_once.launches > 40);
    CU_ASSERT(graphs.syncs <= at_once.syncs);
}

static void prompt_and_steps(job *j, wf_rank *rank, wf_gen_engine *e)
{
    static float logits[SLOTS * VOCABULARY];
    const bool plan = wf_context_dry_run(e->ctx);
    int32_t ids[4] = {1, 2, 3, 4};

    for (int i = 0; i < 3; i++) {
        wf_gen_engine_prefill(e, 0, 4, 0, plan ? NULL : ids, 4, NULL, NULL);
        steps(e, 1, plan ? NULL : logits);
    }
    (void)rank;
    (void)j;
}

/* A graph keeps its memory, beside which prompts are computed. */
static void memory(void)
{
    job ran = make_job(&llama, true), planned = ran, at_once = make_job(&llama, false);

    ran.work = planned.work = at_once.work = prompt_and_steps;
    run(&ran, 1, false);
    run(&planned, 1, true);
    run(&at_once, 1, false);
    CU_ASSERT(ran.memory.most[WF_MEMORY_GRAPH] > 0);
    CU_ASSERT(ran.memory.peak > at_once.memory.peak);
    CU_ASSERT_EQUAL(ran.memory.peak, planned.memory.peak);
    CU_ASSERT_EQUAL(memcmp(ran.memory.most, planned.memory.most, sizeof ran.memory.most), 0);
    CU_ASSERT_EQUAL(ran.memory.in_use, at_once.memory.in_use);
}

/* An error of a caller's frees the graph; the next steps have another. */
static void after_an_error(job *j, wf_rank *rank, wf_gen_engine *e)
{
    float logits[SLOTS * VOCABULARY] = {0};
    const wf_gen_engine_row beyond[SLOTS] = {
        {0, POSITIONS, 1, NULL}, {1, 1, 1, NULL}, {2, 1, 1, NULL}};

    steps(e, 3, logits);
    j->opened = wf_gen_engine_next(e, SLOTS, beyond, logits, NULL);
    wf_context_clear(e->ctx);
    steps(e, 3, logits);
    for (int s = 0; s < SLOTS; s++)
        memcpy(j->text[s].logprob, logits + s * VOCABULARY, sizeof j->text[s].logprob);
    (void)rank;
}

static void errors(void)
{
    job at_once = make_job(&gpt2, false), graphs = make_job(&gpt2, true);
    job split = make_job(&gpt2, true), cpu = make_job(&gpt2, true);

    at_once.work = graphs.work = after_an_error;
    split.work = cpu.work = texts;
    run(&at_once, 1, false);
    run(&graphs, 1, false);
    CU_ASSERT_EQUAL(graphs.opened, WF_EINVAL);
    CU_ASSERT_EQUAL(graphs.error.code, WF_OK);
    CU_ASSERT_EQUAL(memcmp(at_once.text, graphs.text, sizeof graphs.text), 0);
    split.layout.dp = 2;
    split.layout.strategy = "full_shard";
    run(&split, 2, false);
    CU_ASSERT_EQUAL(split.opened, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(split.error.text, "copies that split their parameters"));
    cpu.layout.device = "cpu";
    run(&cpu, 1, false);
    CU_ASSERT_EQUAL(cpu.opened, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(cpu.error.text, "a device without graphs"));
}

int main(void)
{
    static const wf_test tests[] = {{"tokens of graphs are those of ops", tokens_are_the_same},
                                    {"copies of a model", copies_have_graphs_each},
                                    {"ranks that split a model", ranks_that_split},
                                    {"texts that become long ones", long_texts},
                                    {"one launch for the ops of a token", one_launch},
                                    {"memory is as planned", memory},
                                    {"errors", errors},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_decode", tests);
}
