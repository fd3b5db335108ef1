/*
 * tests/nn/test_pretrained.c - models of each family that transformers saved (made by
 * tests/reference/make_pretrained.py): loaded on several layouts they give transformers'
 * logits, and what is saved has the bytes that were read.
 */
#include "tests/nn/pretrained_case.h"

static const wf_par_options layouts[] = {
    {.tp = 1, .dp = 1},
    {.tp = 2, .dp = 1},
    {.tp = 3, .dp = 1},
    {.tp = 8, .dp = 1},
    {.tp = 1, .dp = 2, .strategy = "no_shard"},
    {.tp = 2, .dp = 2, .strategy = "no_shard"},
    {.tp = 1, .dp = 2, .strategy = "full_shard"},
    {.tp = 2, .dp = 3, .strategy = "full_shard"},
    {.tp = 2, .dp = 4, .strategy = "hybrid_shard", .dp_replicate = 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct source {
    const char *folder, *dtype;
} source;

static const source fixtures[] = {
    {WEFT_REFERENCE "/hf_gpt2", "f32"},        {WEFT_REFERENCE "/hf_llama", "bf16"},
    {WEFT_REFERENCE "/hf_llama_tied", "bf16"}, {WEFT_REFERENCE "/hf_llama31", "bf16"},
    {WEFT_REFERENCE "/hf_mistral", "bf16"},    {WEFT_REFERENCE "/hf_qwen2", "f32"},
    {WEFT_REFERENCE "/hf_qwen3", "f32"},       {WEFT_REFERENCE "/hf_smollm3", "bf16"},
    {WEFT_REFERENCE "/hf_granite", "bf16"},    {WEFT_REFERENCE "/hf_phi3", "bf16"},
    {WEFT_REFERENCE "/hf_gemma", "bf16"},      {WEFT_REFERENCE "/hf_olmo2", "bf16"},
    {WEFT_REFERENCE "/hf_phi35", "bf16"},      {WEFT_REFERENCE "/hf_mistral_layers", "bf16"},
    {WEFT_REFERENCE "/hf_ministral", "bf16"},  {WEFT_REFERENCE "/hf_olmo3", "bf16"},
    {WEFT_REFERENCE "/hf_gemma3", "bf16"},     {WEFT_REFERENCE "/hf_glm4", "bf16"},
    {WEFT_REFERENCE "/hf_stablelm", "bf16"},   {WEFT_REFERENCE "/hf_cohere", "bf16"},
    {WEFT_REFERENCE "/hf_phi", "bf16"},        {WEFT_REFERENCE "/hf_gpt_neox", "bf16"},
    {WEFT_REFERENCE "/hf_gemma2", "bf16"},     {WEFT_REFERENCE "/hf_llama4", "bf16"}};
static const source *models = fixtures;
static int model_count = sizeof fixtures / sizeof *fixtures;

static void logits_are_those_of_transformers(void)
{
    for (int m = 0; m < model_count; m++) {
        char path[FOLDER];
        wf_error error = {WF_OK, ""};
        pretrained p = {.folder = models[m].folder};
        model_test test = {.body = load_and_compare, .arg = &p};

        snprintf(path, sizeof path, "%s/logits.safetensors", p.folder);
        p.file = safetensors_open(path);
        CU_ASSERT_FATAL(p.file != NULL);
        CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
        for (int l = UNDER_SANITIZER; l < LAYOUTS; l += UNDER_SANITIZER ? 6 : 1) {
            test.options = layouts[l];
            p.off = 1;
            on_model_ranks(&test);
            CU_ASSERT(p.off < 2e-5);
        }
        printf("%.1e .. ", p.off);
        safetensors_close(p.file);
    }
}

/* A model that has run with other weights keeps no copies of them. */
static wf_status run_load_and_compare(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    const wf_dim dims[] = {wf_dim_batch(6), wf_dim_chunked(2)};
    const int32_t tokens[12] = {1, 2};

    wf_scope_open(r->ctx);
    NEED(wf_nn_gpt_logits(
        r->model, wf_distribute(r->ctx, tokens, WF_I32, 2, dims, wf_par_batch_layout(r->par))));
    wf_scope_close(r->ctx);
    return load_and_compare(r, arg);
}

/* The weights of this Llama are bf16, so that bf16 parameters lose nothing of them. */
static void a_model_that_has_run(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.folder = WEFT_REFERENCE "/hf_llama",
                    .file = safetensors_open(WEFT_REFERENCE "/hf_llama/logits.safetensors")};
    model_test test = {.body = run_load_and_compare, .arg = &p};

    CU_ASSERT_FATAL(p.file != NULL);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    for (int l = 0; l < LAYOUTS; l++) {
        test.options = layouts[l];
        test.options.param_dtype = WF_BF16;
        on_model_ranks(&test);
    }
    safetensors_close(p.file);
}

/* The tensors that were read come back to the byte, from any layout; config.json says the
   same. */
static void a_round_trip_keeps_every_byte(void)
{
    for (int m = 0; m < model_count; m++)
        for (int l = UNDER_SANITIZER; l < LAYOUTS; l += UNDER_SANITIZER ? 6 : 1) {
            wf_error error = {WF_OK, ""};
            pretrained p = {
                .folder = models[m].folder, .dtype = models[m].dtype, .like = models[m].folder};
            model_test test = {.options = layouts[l], .body = load_and_save, .arg = &p};
            wf_nn_gpt_config again;

            wf_test_new_folder(p.saved);
            CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
            on_model_ranks(&test);
            CU_ASSERT(same_tensors(p.folder, p.saved));
            CU_ASSERT_EQUAL(wf_par_pretrained_config(p.saved, &again, &error), WF_OK);
            CU_ASSERT(wf_nn_gpt_same(&again, &test.config));
            remove_folder(p.saved);
        }
}

static const wf_test tests[] = {
    {"logits are those of transformers", logits_are_those_of_transformers},
    {"a model that has run with other weights", a_model_that_has_run},
    {"a round trip keeps every byte", a_round_trip_keeps_every_byte},
    {NULL, NULL}};

/* Folders as arguments, of fp32 and each with its logits.safetensors, take the place of the
   fixtures. */
int main(int argc, char **argv)
{
    static const wf_test of_folders[] = {
        {"logits are those of transformers", logits_are_those_of_transformers},
        {"a round trip keeps every byte", a_round_trip_keeps_every_byte},
        {NULL, NULL}};
    source *given = calloc((size_t)argc, sizeof *given);
    int status;

    if (!given)
        return 1;
    for (int i = 1; i < argc; i++)
        given[i - 1] = (source){argv[i], "f32"};
    if (argc > 1) {
        models = given;
        model_count = argc - 1;
    }
    status = wf_test_main("pretrained", argc > 1 ? of_folders : tests);
    free(given);
    return status;
}
