/*
 * tests/apps/test_generate_memory.c - every allocation of generating texts and printing them,
 * of gpt_eval's commands, and of writing a GGUF file with its tokenizer fails once: each is
 * reported, and nothing leaks.
 *
 * ctest: cost 50, defines WEFT_TOKENIZERS=tests/text/tokenizers WEFT_REFERENCE=tests/reference
 * ctest: links weft_app_texts weft_allocations
 */
#include "apps/gpt_eval/choices.h"
#include "apps/gpt_eval/perplexity.h"
#include "apps/gpt_generate/output.h"
#include "apps/tools/gguf_export.h"
#include "tests/allocations.h"
#include "tests/nn/dataset_files.h"
#include <jansson.h>

enum { VOCABULARY = 256, POSITIONS = 48, TEXTS = 3, PROMPT = 20 };

static const wf_nn_gpt_config small = {.vocabulary = VOCABULARY,
                                       .positions = POSITIONS,
                                       .layers = 1,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .width = 8,
                                       .ffn = 16};

/* Texts of one rank, and where they go. */
typedef struct texts {
    app_generate_request request;
    wf_gen_options options;
    wf_gen_prompt prompts[TEXTS];
    wf_tok *tokenizer;
    app_prompts read;
    app_output output;
    int32_t ids[PROMPT];
} texts;

static void generate_texts(texts *x, wf_par *par, wf_nn_gpt *model)
{
    const wf_gen_engine_options options = {
        .par = par, .model = model, .slots = 2, .positions = POSITIONS, .chunk = 16};
    const wf_gen_events print = {app_output_token, app_output_finished, &x->output};
    wf_gen_engine e;

    wf_context_training(wf_par_context(par), false);
    if (wf_gen_engine_open(&e, &options) == WF_OK)
        wf_gen_run(&e, &x->options, x->prompts, TEXTS, 0, 1, &print);
    wf_gen_engine_close(&e);
}

/* The model is made in peace: what fails there is tests/parallel/test_no_memory.c's. */
static wf_status generate_rank(wf_rank *rank, void *arg)
{
    const wf_par_options options = {.tp = 1, .strategy = "no_shard", .threads = 1};
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_nn_gpt *model = par ? wf_nn_gpt_new(wf_par_context(par), &small) : NULL;

    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK) {
        allocations_matter(true);
        generate_texts(arg, par, model);
        allocations_matter(false);
    }
    rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static wf_status generate(wf_error *error)
{
    static const char *const stops[] = {"no such text"};
    texts x = {.request = {.n = 1, .logprobs = 2, .json = true, .echo = true}};

    allocations_matter(false);
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(NULL, &x.tokenizer, error), WF_OK);
    for (int i = 0; i < PROMPT; i++)
        x.ids[i] = 'a' + i;
    for (int i = 0; i < TEXTS; i++)
        x.prompts[i] = (wf_gen_prompt){x.ids, PROMPT - 3 * i, (uint64_t)i};
    x.options = (wf_gen_options){.most = 6,
                                 .stops = stops,
                                 .n_stops = 1,
                                 .tokenizer = x.tokenizer,
                                 .size = VOCABULARY,
                                 .logprobs = true,
                                 .prompt_logprobs = true,
                                 .top = 2};
    x.output = (app_output){.request = &x.request,
                            .prompts = &x.read,
                            .options = &x.options,
                            .out = fopen("/dev/null", "w"),
                            .count = TEXTS};
    allocations_matter(true);
    app_output_open(&x.output, error);
    allocations_matter(false);
    if (error->code == WF_OK &&
        wf_launch(&(wf_launch_options){.ranks = 1}, generate_rank, &x, error) == WF_OK &&
        x.output.error.code != WF_OK)
        *error = x.output.error;
    app_output_close(&x.output);
    fclose(x.output.out);
    wf_tok_close(x.tokenizer);
    allocations_matter(true);
    return error->code;
}

static void generation(void)
{
    json_malloc_t standard_malloc;
    json_free_t standard_free;

    json_get_alloc_funcs(&standard_malloc, &standard_free);
    json_set_alloc_funcs(malloc, free); /* Lines are printed by allocations that fail too. */
    each_allocation_fails(generate, 100);
    json_set_alloc_funcs(standard_malloc,
                         standard_free); /* A reader without memory says that it is no JSON. */
}

static app_model_run run_of(const char *folder)
{
    app_model_run run = APP_MODEL_RUN_STANDARD;

    run.of.model = folder;
    run.of.tokenizer = "bytes";
    run.of.threads = 1;
    return run;
}

static wf_status use_perplexity(wf_error *error)
{
    app_perplexity_request q = {.run = run_of(WEFT_REFERENCE "/hf_llama"),
                                .data = path_of("text.txt"),
                                .batch = 2,
                                .seq_length = 8,
                                .json = true};

    return app_perplexity(&q, error);
}

static wf_status use_choices(wf_error *error)
{
    app_choices_request q = {.run = run_of(WEFT_REFERENCE "/hf_llama"),
                             .requests = path_of("requests.jsonl"),
                             .json = true};

    return app_choices(&q, error);
}

static void evaluation(void)
{
    static const char
        text[] = "every token of it counts once",
        requests[] = "{\"request\":{\"context\":\"a\",\"continuation\":\" b\"},\"doc_id\":0,"
                     "\"label\":0}\n"
                     "{\"request\":{\"context\":\"a\",\"continuation\":\" c\"},\"doc_id\":0,"
                     "\"label\":0}\n";

    write_bytes("text.txt", text, strlen(text));
    write_bytes("requests.jsonl", requests, strlen(requests));
    each_allocation_fails(use_perplexity, 100);
    each_allocation_fails(use_choices, 100);
}

/* A folder of weights whose vocabulary has room for the tokenizers here. */
static wf_status save_rank(wf_rank *rank, void *arg)
{
    const wf_par_options options = {.tp = 1, .strategy = "no_shard", .threads = 1};
    wf_nn_gpt_config config = small;
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_nn_gpt *model;

    CU_ASSERT_PTR_NOT_NULL_FATAL(par);
    config.vocabulary = 560;
    model = wf_nn_gpt_new(wf_par_context(par), &config);
    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK)
        wf_par_pretrained_save(par, model, arg, "f32", NULL);
    rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static const char *tokenizer, *type; /* The request. */

static wf_status export_rank(wf_rank *rank, void *arg)
{
    const app_gguf_export e = {.file = path_of("x.gguf"), .type = type, .tokenizer = tokenizer};
    const wf_par_options options = {.tp = 1, .threads = 1};
    wf_par *par = wf_par_open(rank, &options, &rank->error);

    if (par) {
        allocations_matter(true);
        app_gguf_export_write(&e, arg, wf_par_context(par), &rank->error);
        allocations_matter(false);
    }
    wf_par_close(par);
    return rank->error.code;
}

static wf_status export(wf_error *error)
{
    wf_gen_model source;

    allocations_matter(false);
    CU_ASSERT_EQUAL_FATAL(wf_gen_model_open(path_of("model"), NULL, &source, error), WF_OK);
    wf_launch(&(wf_launch_options){.ranks = 1}, export_rank, &source, error);
    wf_gen_model_close(&source);
    allocations_matter(true);
    return error->code;
}

static void writing_gguf(void)
{
    static const char *const tokenizers[] = {"none", WEFT_TOKENIZERS "/llama2.json",
                                             WEFT_TOKENIZERS "/gpt2.json"};
    static const char *const types[] = {"f32", "f16", "q8_0"};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(
        wf_launch(&(wf_launch_options){.ranks = 1}, save_rank, path_of("model"), &error),
        WF_OK);
    for (int i = 0; i < 2 + WEFT_HAS_PCRE2; i++) {
        tokenizer = tokenizers[i];
        type = types[i];
        each_allocation_fails(export, 50);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"generation", generation},
                                    {"evaluation", evaluation},
                                    {"writing gguf", writing_gguf},
                                    {NULL, NULL}};

    return data_main("memory of generation", tests);
}
