/* tests/parallel/test_hf_config.c - config.json of transformers: what is refused and how that is said, what is told of,
   and that each family is written as itself. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "tests/parallel/hostile.h"

#define GPT2 "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":4"
#define LLAMA                                                                                  \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"              \
    "\"hidden_size\":8,\"intermediate_size\":8,\"max_position_embeddings\":4,\"vocab_size\":9"

/* What follows a good beginning, and the reason given. */
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
    {"{" GPT2 ",\"vocab_size\":9,\"tie_word_embeddings\":false}",
     "\"tie_word_embeddings\" is false, and"},
    {"{" GPT2 ",\"vocab_size\":9,\"layer_norm_epsilon\":0}", "\"layer_norm_epsilon\""},
    {"{" GPT2 ",\"vocab_size\":9,\"quantization_config\":{}}", "\"quantization_config\""},
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
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}", "is yarn"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"dynamic\"}}", "is dynamic"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "\"factor\""},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
     "\"high_freq_factor\":4,\"original_max_position_embeddings\":8}}",
     "and its high_freq_factor greater than that"},
    {"{" LLAMA ",\"rope_scaling\":2}", "\"rope_scaling\" is no object"},
    {"{" LLAMA ",\"rope_parameters\":{\"rope_theta\":-1}}", "\"rope_theta\" is -1"},
    {"{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "is 0.5"},
    {"{" LLAMA ",\"rope_theta\":\"10000\"}", "no number"},
    {"{" LLAMA ",\"x\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", "deeper"},
};

/* Keys that mean nothing to Weft are listed, those of an object that means something too. */
static void unknown_keys_are_listed(void)
{
    const char text[] =
        "{" LLAMA ",\"novelty\":1,\"use_cache\":true,\"rope_scaling\":"
        "{\"rope_type\":\"linear\",\"factor\":2,\"slow\":3},\"z\\n\":{\"a\":1}}";
    wf_error error = {WF_OK, ""};
    wf_hf_config c;

    CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", text, sizeof text - 1, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(c.unknown,
                           "novelty, rope_scaling.slow, a key that cannot be printed");
}

/* A family's rows say all that it has: what is written is read as the same, and by its own name, or a
   Llama's where it has what that has. */
static void families_are_written_as_themselves(void)
{
    const wf_hf_family *family;

    for (int i = 0; (family = wf_hf_family_at(i)); i++) {
        wf_nn_gpt_config model = *wf_nn_gpt_family(family->type);
        wf_error error = {WF_OK, ""};
        wf_hf_config c = {.family = NULL};
        char *text = NULL;

        model.vocabulary = 300;
        model.positions = 20;
        model.layers = 3;
        model.heads = model.kv_heads = 4;
        model.width = 32;
        model.ffn = 48;
        model.eps = 1e-6f;
        CU_ASSERT_EQUAL(wf_hf_config_format(&model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &model));
        CU_ASSERT_STRING_EQUAL(c.unknown, "");
        CU_ASSERT_STRING_EQUAL(
            c.family->type,
            wf_nn_gpt_alike(&model, wf_nn_gpt_family("llama")) ? "llama" : family->type);
        free(text);
    }
}

/* What no family has cannot be written as one. */
static void a_model_of_no_family(void)
{
    const wf_nn_gpt_config odd = {WF_NN_GPT2, .vocabulary = 300, .positions = 20, .layers = 1,
                                  .heads = 4, .kv_heads = 2,     .width = 32,     .ffn = 48};
    wf_error error = {WF_OK, ""};
    char *text = NULL;

    CU_ASSERT_EQUAL(wf_hf_config_format(&odd, WF_ST_F32, NULL, &text, &error), WF_EUNSUPPORTED);
    CU_ASSERT(strstr(error.text, "no family of transformers") != NULL);
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
    {"unknown keys are listed", unknown_keys_are_listed},
    {"families are written as themselves", families_are_written_as_themselves},
    {"a model of no family", a_model_of_no_family},
    {NULL, NULL}};

int main(void)
{
    return wf_test_main("hf_config", tests);
}
