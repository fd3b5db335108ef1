/* tests/parallel/test_hf_config.c - config.json of transformers: what is refused and how that
   is said, what is reported, and that each family is written as itself. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "tests/parallel/hostile.h"

#define GPT2 "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":4"
#define LLAMA                                                                                  \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"              \
    "\"hidden_size\":8,\"intermediate_size\":8,\"max_position_embeddings\":4,\"vocab_size\":9"

#define QWEN2                                                                                  \
    "\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"              \
    "\"hidden_size\":8,\"intermediate_size\":8,\"max_position_embeddings\":99,\"vocab_size\":" \
    "9"

#define PHI3                                                                                   \
    "\"model_type\":\"phi3\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"               \
    "\"hidden_size\":16,\"intermediate_size\":8,\"max_position_embeddings\":99,\"vocab_"       \
    "size\":"                                                                                  \
    "9"
#define LONGROPE(short_factor, long_factor)                                                    \
    ",\"rope_scaling\":{\"type\":\"longrope\",\"original_max_position_embeddings\":20,"        \
    "\"short_factor\":" short_factor ",\"long_factor\":" long_factor "}"

/* Configurations, by their text after a good beginning, and the reason given. */
static const struct {
    const char *text, *why;
} configs[] = {
    {"{}", "\"model_type\" is missing"},
    {"[]", "no object"},
    {"{\"model_type\":\"gpt2\"}", "\"n_layer\" is missing"},
    {"{\"model_type\":\"bert\"}", "is bert"},
    {"{\"model_type\":7}", "is no text"},
    {"{" GPT2 "}", "\"vocab_size\" is missing"},
    {"{" GPT2 ",\"vocab_size\":-9}", "\"vocab_size\" is -9"},
    {"{" GPT2 ",\"vocab_size\":9e9}", "no whole number"},
    {"{" GPT2 ",\"vocab_size\":99999999999}", "\"vocab_size\" is 99999999999"},
    {"{" GPT2 ",\"n_layer\":2}", "duplicate"},
    {"{" GPT2 ",\"vocab_size\":9,\"n_inner\":0}", "\"n_inner\" is 0"},
    {"{" GPT2 ",\"vocab_size\":9,\"activation_function\":\"relu\"}", "is relu"},
    {"{" GPT2 ",\"vocab_size\":9,\"scale_attn_weights\":false}", "\"scale_attn_weights\""},
    {"{" GPT2 ",\"vocab_size\":9,\"scale_attn_by_inverse_layer_idx\":true}",
     "\"scale_attn_by_inverse_layer_idx\" is true"},
    {"{" GPT2 ",\"vocab_size\":9,\"add_cross_attention\":1}", "\"add_cross_attention\" is 1"},
    {"{" GPT2 ",\"vocab_size\":9,\"tie_word_embeddings\":1}", "neither true nor false"},
    {"{" GPT2 ",\"vocab_size\":9,\"layer_norm_epsilon\":0}", "\"layer_norm_epsilon\""},
    {"{" GPT2 ",\"vocab_size\":9,\"quantization_config\":{\"quant_method\":\"gptq\"}}",
     "\"quant_method\" is gptq"},
    {"{" GPT2 ",\"vocab_size\":9,\"quantization_config\":{\"quant_method\":\"bitsandbytes\","
     "\"bnb_4bit_quant_type\":\"fp4\"}}",
     "\"bnb_4bit_quant_type\" is fp4"},
    {"{" LLAMA ",\"num_key_value_heads\":3}", "3 key-value heads"},
    {"{" LLAMA ",\"head_dim\":-4}", "\"head_dim\""},
    {"{" LLAMA ",\"head_dim\":\"4\"}", "\"head_dim\""},
    {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "is gelu"},
    {"{" LLAMA ",\"attention_bias\":1}", "neither true nor false"},
    {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
     "\"layer_types\" is sliding_attention"},
    {"{" LLAMA ",\"layer_types\":\"full_attention\"}", "\"layer_types\""},
    {"{" LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":2e4}}",
     "\"rope_theta\" and \"rope_parameters.rope_theta\" say different things"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}", "original length"},
    {"{" LLAMA LONGROPE("[1,2]", "[1,2]") "}", "factor for each pair"},
    {"{" LLAMA LONGROPE("[1,2]", "[1]") "}", "\"long_factor\" is no array"},
    {"{" LLAMA LONGROPE("[]", "[1]") "}", "\"short_factor\" is no array"},
    {"{" PHI3 LONGROPE("[1,2]", "[1,0]") "}", "must be greater than 0"},
    {"{" PHI3 LONGROPE("[1,2]", "[1,\"2\"]") "}", "must be greater than 0"},
    {"{" PHI3 LONGROPE("[1,2]", "[1,1e300]") "}", "must be greater than 0"},
    {"{" PHI3 ",\"original_max_position_embeddings\":1" LONGROPE("[1,2]", "[1,2]") "}",
     "say different things"},
    {"{" PHI3 ",\"original_max_position_embeddings\":1,\"rope_scaling\":{\"type\":\"longrope\","
     "\"short_factor\":[1,2],\"long_factor\":[1,2]}}",
     "greater than 1"},
    {"{" PHI3 ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "is linear"},
    {"{" PHI3 ",\"rope_scaling\":{\"type\":\"-\"}}", "is -"},
    {"{" PHI3 ",\"partial_rotary_factor\":0.3}", "an even number of features"},
    {"{" PHI3 ",\"partial_rotary_factor\":0}", "\"partial_rotary_factor\" is 0"},
    {"{" PHI3
     ",\"partial_rotary_factor\":0.5,\"rope_parameters\":{\"partial_rotary_factor\":1}}",
     "say different things"},
    {"{" PHI3 ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "is dynamic"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
     "\"high_freq_factor\":3,\"original_max_position_embeddings\":8}}",
     "and its high_freq_factor not below that"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}", "original length"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
     "\"original_max_position_embeddings\":8,\"beta_fast\":-2}}",
     "\"beta_fast\" is -2"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":1}}",
     "\"mscale\""},
    {"{" LLAMA ",\"rope_scaling\":2}", "\"rope_scaling\" is no object"},
    {"{" LLAMA ",\"rope_parameters\":{\"rope_theta\":-1}}", "\"rope_theta\" is -1"},
    {"{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "is 0.5"},
    {"{" LLAMA ",\"rope_theta\":\"10000\"}", "no number"},
    {"{" QWEN2 ",\"sliding_window\":0}", "\"sliding_window\" is 0"},
    {"{" QWEN2 ",\"max_window_layers\":-1}", "\"max_window_layers\" is -1"},
    {"{" QWEN2 ",\"use_sliding_window\":\"yes\"}", "\"use_sliding_window\""},
    {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\"]}",
     "\"layer_types\": it must have a word for each layer"},
    {"{" QWEN2
     ",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"chunked\"]}",
     "Weft knows full_attention and sliding_attention"},
    {"{" QWEN2 ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
     "nothing says over how many tokens"},
    {"{" LLAMA ",\"rope_scaling.factor\":2}", "\"rope_scaling.factor\""},
    {"{" LLAMA ",\"rope_parameters\":{\"f\":{\"factor\":2}}}", "rope_parameters.f"},
    {"{" LLAMA ",\"x\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", "deeper"},
};

/* Keys that no row knows are refused by name, those of an object that rows look into too; null
   says nothing. */
static void unknown_keys_are_refused(void)
{
    const char text[] =
        "{" LLAMA ",\"novelty\":1,\"use_cache\":true,\"rope_scaling\":"
        "{\"rope_type\":\"linear\",\"factor\":2,\"slow\":3},\"z\\n\":{\"a\":1}}";
    const char silent[] = "{" LLAMA ",\"novelty\":null,\"id2label\":{\"0\":\"a\"},"
                          "\"pruned_heads\":{},\"task_specific_params\":{\"a\":{\"b\":1}}}";
    wf_error error = {WF_OK, ""};
    wf_hf_config c;

    CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", silent, sizeof silent - 1, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", text, sizeof text - 1, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(error.text, "novelty, rope_scaling.slow, a key that cannot be printed;"));
}

static wf_nn_gpt_config sized(const char *family)
{
    wf_nn_gpt_config model = *wf_nn_gpt_family(family);

    model.vocabulary = 300;
    model.positions = 20;
    model.layers = 5;
    model.heads = model.kv_heads = 4;
    model.width = 32;
    model.ffn = 48;
    model.eps = 1e-6f;
    return model;
}

/* The first family whose model is the same. */
static const char *first_alike(const wf_nn_gpt_config *model)
{
    for (int i = 0; wf_hf_family_at(i); i++) {
        const wf_nn_gpt_config other = sized(wf_hf_family_at(i)->type);

        if (wf_nn_gpt_same(model, &other))
            return wf_hf_family_at(i)->type;
    }
    return "";
}

/* A family's rows say all that it has: what is written is read as the same, by the name of the
   first family that has it: an OLMo 3 without windows is an OLMo 2. */
static void families_are_written_as_themselves(void)
{
    const wf_hf_family *family;

    for (int i = 0; (family = wf_hf_family_at(i)); i++) {
        wf_nn_gpt_config model = sized(family->type);
        wf_error error = {WF_OK, ""};
        wf_hf_config c = {.family = NULL};
        char *text = NULL;

        CU_ASSERT_EQUAL(wf_hf_config_format(&model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &model));
        CU_ASSERT_STRING_EQUAL(c.family->type, first_alike(&model));
        free(text);
    }
}

/* Texts about windows, and the numbers of the model; of 6 layers. */
static const struct {
    const char *text;
    int64_t window, first, skip;
    uint64_t blocks; /* a bit for each, where there is a list */
} windows[] = {
    {"\"model_type\":\"mistral\"", 4096, 0, 0,
     0}, /* as transformers have it where nothing is said */
    {"\"model_type\":\"mistral\",\"sliding_window\":null", 0, 0, 0, 0},
    {"\"model_type\":\"mistral\",\"sliding_window\":9", 9, 0, 0, 0},
    {"\"model_type\":\"mistral\",\"sliding_window\":9000", 0, 0, 0,
     0}, /* it holds all positions */
    {"\"model_type\":\"mistral\",\"sliding_window\":9,\"layer_types\":[SSSSSS]", 9, 0, 0, 0},
    {"\"model_type\":\"mistral\",\"sliding_window\":9,\"layer_types\":[FFFFFF]", 0, 0, 0, 0},
    {"\"model_type\":\"mistral\",\"sliding_window\":9,\"layer_types\":[SFSFSF]", 9, 0, 2, 0},
    {"\"model_type\":\"mistral\",\"sliding_window\":9,\"layer_types\":[FSSFFS]", 9, 0, 0, 0x26},
    {"\"model_type\":\"phi3\"", 0, 0, 0, 0},
    {"\"model_type\":\"qwen2\",\"sliding_window\":9,\"max_window_layers\":2", 0, 0, 0, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":9", 0, 0, 0, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":9,"
     "\"max_window_layers\":2",
     9, 2, 0, 0},
    {"\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"max_window_layers\":0", 4096, 0, 0,
     0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[FFFFFF]", 0, 0, 0,
     0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[SSSSSS]", 4096, 0,
     0, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[SSFSSF]", 4096, 0,
     3, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[FFSFSF]", 4096, 2,
     2, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[FFFSSS]", 4096, 3,
     0, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[SSSSSF]", 4096, 0,
     6, 0},
    {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":[SFSSSS]", 4096, 0,
     0, 0x3d},
    {"\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"layer_types\":[FSSFFS]", 4096, 0,
     0, 0x26},
};

/* With words for the letters of layer_types. */
static void config_of(const char *text, char config[2048])
{
    size_t n = (size_t)snprintf(config, 2048,
                                "{\"num_hidden_layers\":6,\"num_attention_heads\":4,"
                                "\"hidden_size\":8,\"intermediate_size\":8,\"vocab_size\":9,"
                                "\"max_position_embeddings\":8000,");
    bool letters = false;

    for (; *text; text++) {
        bool letter = letters && (*text == 'F' || *text == 'S');

        letters = *text == '[' || (letters && *text != ']');
        n += (size_t)snprintf(config + n, 2048 - n, letter ? "%s\"%s_attention\"" : "%s%.1s",
                              letter && text[-1] != '[' ? "," : "",
                              !letter        ? text
                              : *text == 'F' ? "full"
                                             : "sliding");
    }
    snprintf(config + n, 2048 - n, "}");
}

/* The windows that are read are the model's, and are read again from the file that is written
   of it. */
static void windows_of_layers(void)
{
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        char config[2048], *text = NULL;
        wf_error error = {WF_OK, ""};
        wf_hf_config c, again;
        wf_status status;

        config_of(windows[i].text, config);
        status = wf_hf_config_parse(&c, "c", config, strlen(config), &error);
        CU_ASSERT_EQUAL(status, WF_OK);
        CU_ASSERT_EQUAL(c.model.window, windows[i].window);
        CU_ASSERT_EQUAL(c.model.window_first, windows[i].first);
        CU_ASSERT_EQUAL(c.model.window_skip, windows[i].skip);
        CU_ASSERT_EQUAL(c.model.window_blocks.bits[0], windows[i].blocks);
        CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&again, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &again.model));
        free(text);
    }
}

/* Layers without experts: by a step, a list or both, and written as a list. */
static void layers_without_experts(void)
{
    static const struct {
        const char *text;
        uint64_t dense; /* a bit for each layer; of all: no experts */
    } rows[] = {{"", 0},
                {", \"decoder_sparse_step\": 1, \"mlp_only_layers\": []", 0},
                {", \"decoder_sparse_step\": 2", 0x15},
                {", \"decoder_sparse_step\": 3, \"mlp_only_layers\": [2]", 0x1f},
                {", \"mlp_only_layers\": [0, 3, 3]", 0x9},
                {", \"mlp_only_layers\": null", 0},
                {", \"decoder_sparse_step\": 9", 0x3f}};
    static const char *const wrong[] = {
        ", \"decoder_sparse_step\": 0", ", \"decoder_sparse_step\": 1.5",
        ", \"mlp_only_layers\": [-1]", ", \"mlp_only_layers\": 3",
        ", \"mlp_only_layers\": [\"0\"]"};
    char config[1024], *text;
    wf_hf_config c, again;

    for (size_t i = 0; i < sizeof rows / sizeof *rows + sizeof wrong / sizeof *wrong; i++) {
        const size_t k = i - sizeof rows / sizeof *rows;
        const bool good = i < sizeof rows / sizeof *rows;
        wf_error error = {WF_OK, ""};

        snprintf(config, sizeof config,
                 "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 6, "
                 "\"num_attention_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 24, "
                 "\"max_position_embeddings\": 8, \"vocab_size\": 10%s}",
                 good ? rows[i].text : wrong[k]);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", config, strlen(config), &error),
                        good ? WF_OK : WF_EUNSUPPORTED);
        if (!good) {
            CU_ASSERT_PTR_NOT_NULL(
                strstr(error.text, k < 2 ? "decoder_sparse_step" : "mlp_only"));
            continue;
        }
        CU_ASSERT_EQUAL(c.model.experts == 0, rows[i].dense == 0x3f);
        CU_ASSERT_EQUAL(c.model.dense_blocks.bits[0], c.model.experts ? rows[i].dense : 0);
        if (!c.model.experts)
            continue; /* a Qwen 3 is written as one */
        CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&again, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &again.model));
        free(text);
    }
}

/* Factors of long texts, the share of a head that turns: read by the old names of the scaling,
   and as written. */
static void rotations(void)
{
    static const char *const types[] = {"longrope", "su", "yarn"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char config[1024], *text = NULL;
        wf_error error = {WF_OK, ""};
        wf_hf_config c, again;
        int n = snprintf(config, sizeof config,
                         "{" PHI3 ",\"partial_rotary_factor\":0.5,"
                         "\"original_max_position_embeddings\":33,\"rope_scaling\":{"
                         "\"type\":\"%s\",\"short_factor\":[1.05],\"long_factor\":[7]}}",
                         types[i]);

        CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", config, (size_t)n, &error), WF_OK);
        CU_ASSERT_EQUAL(c.model.rope_scaling.kind, WF_ROPE_LONG);
        CU_ASSERT_EQUAL(c.model.rope_scaling.original_positions, 33);
        CU_ASSERT_EQUAL(wf_nn_gpt_complete(&c.model).rope_scaling.factor, 3);
        CU_ASSERT(c.model.rope_factors.count == 1 &&
                  c.model.rope_factors.short_factor[0] == 1.05F &&
                  c.model.rope_factors.long_factor[0] == 7);
        CU_ASSERT_EQUAL(wf_nn_gpt_rotary(&c.model), 2);
        CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT(strstr(text, "1.05") && strstr(text, "\"longrope\"") &&
                  strstr(text, "\"phi3\""));
        CU_ASSERT_EQUAL(wf_hf_config_parse(&again, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &again.model));
        again.model.rope_factors.long_factor[0] = 8;
        CU_ASSERT(!wf_nn_gpt_same(&c.model, &again.model));
        free(text);
    }
}

/* A model of no family cannot be written as one. */
static void a_model_of_no_family(void)
{
    const wf_nn_gpt_config odd = {WF_NN_GPT2, .vocabulary = 300, .positions = 20, .layers = 1,
                                  .heads = 4, .kv_heads = 2,     .width = 32,     .ffn = 48};
    wf_error error = {WF_OK, ""};
    char *text = NULL;

    CU_ASSERT_EQUAL(wf_hf_config_format(&odd, WF_ST_F32, NULL, &text, &error), WF_EUNSUPPORTED);
    CU_ASSERT(strstr(error.text, "no family of transformers") != NULL &&
              strstr(error.text, "does not have its number of key-value heads") != NULL);
}

static void hostile_configs_are_refused(void)
{
    wf_hf_config c;
    wf_error good = {WF_OK, ""};
    const char llama[] = "{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5}}";

    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        wf_error error = {WF_OK, ""};
        wf_status status = wf_hf_config_parse(&c, "config.json", configs[i].text,
                                              strlen(configs[i].text), &error);

        CU_ASSERT(status == WF_EDATA || status == WF_EUNSUPPORTED);
        CU_ASSERT(strstr(error.text, configs[i].why) && strstr(error.text, "config.json"));
        if (!strstr(error.text, configs[i].why))
            printf("\n    %s: \"%s\"\n", configs[i].text, error.text);
    }
    CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", llama, sizeof llama - 1, &good), WF_OK);
    CU_ASSERT(c.model.rope_base == 5e5 && c.model.kv_heads == 4 && !c.model.tied &&
              c.model.eps == 1e-6f);
}

static const wf_test tests[] = {
    {"hostile configs are refused", hostile_configs_are_refused},
    {"unknown keys are refused", unknown_keys_are_refused},
    {"families are written as themselves", families_are_written_as_themselves},
    {"windows of layers", windows_of_layers},
    {"layers without experts", layers_without_experts},
    {"rotations", rotations},
    {"a model of no family", a_model_of_no_family},
    {NULL, NULL}};

int main(void)
{
    return wf_test_main("hf_config", tests);
}
