/*
 * tests/parallel/test_hf_written.c - caps, roots and RoPE of windows in config.json: read as
 * they are meant, and written so that they are read as the same; a family that lacks one is not
 * written. And which tensors nothing reads.
 *
 * ctest: builds plain
 */
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>

#define SIZES                                                                                  \
    "{\"num_hidden_layers\":2,\"num_attention_heads\":4,\"hidden_size\":8,\"vocab_size\":9,"   \
    "\"intermediate_size\":8,\"max_position_embeddings\":8000,"
#define GEMMA2 SIZES "\"model_type\":\"gemma2\""
#define GEMMA3 SIZES "\"model_type\":\"gemma3_text\""
#define OLMO3  SIZES "\"model_type\":\"olmo3\",\"sliding_window\":9"

static void read_as_written(void)
{
    static const struct {
        const char *text, *written;
        double cap, scale, base;
        int64_t window;
    } rows[] = {
        {GEMMA2 ",\"attn_logit_softcapping\":null,\"query_pre_attn_scalar\":144}",
         "\"query_pre_attn_scalar\": 144.0", 0, 1.0 / 12, 0, 4096},
        {GEMMA2 ",\"attn_logit_softcapping\":20.5,\"sliding_window\":9000}",
         "\"attn_logit_softcapping\": 20.5", 20.5, 1.0 / 16, 0, 0},
        {GEMMA3 ",\"sliding_window\":9000,\"rope_local_base_freq\":500,"
                "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
         "500.0", 0, 1.0 / 16, 500, 9000},
        {GEMMA3
         ",\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}",
         "\"factor\": 8.0", 0, 1.0 / 16, 10000, 4096},
        {OLMO3 ",\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]}",
         "\"layer_types\": [", 0, 0, 0, 9},
        {GEMMA2 ",\"rms_norm_eps\":1e-15}", "e-15", 50, 1.0 / 16, 0, 4096},
        {GEMMA2 ",\"attn_logit_softcapping\":9.5e-7,\"query_pre_attn_scalar\":1e10}", "9.5",
         9.5e-7, 1e-5, 0, 4096},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *config = rows[i].text;
        wf_error error = {WF_OK, ""};
        wf_hf_config c, again;
        char *text = NULL;

        CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", config, strlen(config), &error), WF_OK);
        CU_ASSERT_EQUAL(c.model.score_cap, rows[i].cap);
        CU_ASSERT_DOUBLE_EQUAL(c.model.attention_scale, rows[i].scale, 1e-9);
        CU_ASSERT_EQUAL(wf_nn_gpt_complete(&c.model).window_rope_base, rows[i].base);
        CU_ASSERT_EQUAL(wf_nn_gpt_complete(&c.model).window, rows[i].window);
        CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, rows[i].written));
        if (!strstr(text, rows[i].written))
            printf("\n    %s is not in %s", rows[i].written, text);
        CU_ASSERT_EQUAL(wf_hf_config_parse(&again, "c", text, strlen(text), &error), WF_OK);
        CU_ASSERT(wf_nn_gpt_same(&c.model, &again.model));
        free(text);
    }
}

static void is_refused(wf_nn_gpt_config model, const char *lacks)
{
    wf_error error = {WF_OK, ""};
    char *text = NULL;

    model.vocabulary = 300;
    model.positions = 20;
    model.layers = 5;
    model.heads = model.kv_heads = 4;
    model.width = 32;
    model.ffn = 48;
    CU_ASSERT_EQUAL(wf_hf_config_format(&model, WF_ST_F32, NULL, &text, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, lacks));
    if (!strstr(error.text, lacks))
        printf("\n    %s", error.text);
    free(text);
}

static void not_left_out(void)
{
    wf_nn_gpt_config llama = *wf_nn_gpt_family("llama"), model = llama;

    model.score_cap = 30;
    is_refused(model, "(.score_cap)");
    model = llama;
    model.logit_cap = 30;
    is_refused(model, "(.logit_cap)");
    model = llama;
    model.head_bias = true;
    is_refused(model, "(.head_bias)");
    model = llama;
    model.sinks = true;
    is_refused(model, "(.sinks)");
    model = llama;
    model.rope_neighbours = true;
    is_refused(model, "(.rope_neighbours)");
    model = *wf_nn_gpt_family("mistral");
    model.window = 8;
    model.window_rope_base = 500;
    is_refused(model, "(.window_rope_base)");
    model = *wf_nn_gpt_family("gpt2");
    model.gelu_erf = true;
    is_refused(model, "(.gelu_erf)");
}

/* Masks and angles that older versions wrote beside weights, and a bias. */
static void idle(void)
{
    CU_ASSERT(wf_hf_idle("h.0.attn.bias") && wf_hf_idle("h.0.attn.masked_bias"));
    CU_ASSERT(wf_hf_idle("gpt_neox.layers.0.attention.bias"));
    CU_ASSERT(wf_hf_idle("gpt_neox.layers.0.attention.masked_bias"));
    CU_ASSERT(wf_hf_idle("model.layers.0.self_attn.rotary_emb.inv_freq"));
    CU_ASSERT(!wf_hf_idle("gpt_neox.layers.0.attention.dense.bias"));
}

#define DYNAMIC                                                                                \
    SIZES "\"model_type\":\"llama\",\"head_dim\":6,\"rope_scaling\":{\"type\":\"dynamic\""

/* Dynamic scaling: the trained length is the file's, and texts may be as many times longer as
   the factor says. */
static void dynamic(void)
{
    static const char *const wrong[][2] = {
        {DYNAMIC "}}", "its factor must be greater than 0"},
        {DYNAMIC ",\"factor\":0.5}}", "its factor must be 1 or more"},
        {DYNAMIC ",\"factor\":2,\"original_max_position_embeddings\":7}}",
         "beside \"max_position_embeddings\""}};
    static const char config[] = DYNAMIC ",\"factor\":2.5}}";
    wf_error error = {WF_OK, ""};
    wf_hf_config c, again;
    char *text = NULL;
    int64_t trained;

    CU_ASSERT_EQUAL(wf_hf_config_parse(&c, "c", config, sizeof config - 1, &error), WF_OK);
    trained = (int64_t)c.model.rope_scaling.original_positions;
    CU_ASSERT(c.model.rope_scaling.kind == WF_ROPE_DYNAMIC && trained > 0);
    CU_ASSERT_EQUAL(c.model.positions, trained * 5 / 2);
    CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_EQUAL(wf_hf_config_parse(&again, "c", text, strlen(text), &error), WF_OK);
    CU_ASSERT(wf_nn_gpt_same(&c.model, &again.model));
    free(text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT(wf_hf_config_parse(&again, "c", wrong[i][0], strlen(wrong[i][0]), &error) !=
                  WF_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, wrong[i][1]));
        error = (wf_error){WF_OK, ""};
    }
    c.model.positions++;
    CU_ASSERT_EQUAL(wf_hf_config_format(&c.model, WF_ST_F32, NULL, &text, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT(!text && strstr(error.text, "number of positions"));
}

int main(void)
{
    static const wf_test tests[] = {
        {"what is written is read as the same", read_as_written},
        {"nothing is left out", not_left_out},
        {"tensors that nothing reads", idle},
        {"dynamic scaling", dynamic},
        {NULL, NULL},
    };

    return wf_test_main("config.json as written", tests);
}
