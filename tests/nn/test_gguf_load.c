/*
 * tests/nn/test_gguf_load.c - GGUF files as models: loaded on any layout as the folder that
 * they were made of, and what they say that no model here has.
 */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/gguf_loaded.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_file_is_loaded_as_its_folder(void)
{
    static const char *const models[] = {"/hf_gpt2",    "/hf_llama", "/hf_llama_tied",
                                         "/hf_qwen2",   "/hf_qwen3", "/hf_granite",
                                         "/hf_llama31", "/hf_phi35"};
    static const wf_par_options layouts[] = {{.tp = 1, .dp = 1}, {.tp = 2, .dp = 2}, {.tp = 4}};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            char from[PATH];

            snprintf(from, sizeof from, WEFT_REFERENCE "%s", models[i]);
            is_loaded_as(from, &layouts[l]);
        }
}

/* Experts lie on ranks that split them; llama.cpp has one length for a Mixtral's features, that
   of its experts. */
static void mixtures_are_loaded(void)
{
    static const char *const families[][2] = {{"mixtral", "llama"}, {"qwen3_moe", "qwen3moe"}};
    static const wf_par_options layouts[] = {{.tp = 1, .dp = 1}, {.tp = 2, .dp = 2, .ep = 4}};
    char from[PATH], key[PATH];

    snprintf(from, sizeof from, "%s", path_in("mixture"));
    for (int i = 0; i < 2; i++) {
        model_test test = {.options = layouts[0], .body = save_folder, .arg = from};
        wf_nn_gpt_config *m = &test.config;
        gguf_file f;

        *m = *wf_nn_gpt_family(families[i][0]);
        m->positions = m->vocabulary = m->ffn = 64;
        m->width = 32;
        m->layers = 2;
        m->heads = 4;
        m->kv_heads = 2;
        m->experts = 8;
        m->top_k = 2;
        m->router_normalised = true;
        m->expert_ffn = i ? 24 : 64;
        on_model_ranks(&test);
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
            is_loaded_as(from, &layouts[l]);
        gguf_read(&f, path_in("back.gguf"));
        snprintf(key, sizeof key, "%s.feed_forward_length", families[i][1]);
        CU_ASSERT_EQUAL(gguf_number(&f, key), 64);
        snprintf(key, sizeof key, "%s.expert_feed_forward_length", families[i][1]);
        CU_ASSERT_EQUAL(gguf_number(&f, key), i ? 24 : UINT32_MAX);
        free(f.bytes);
    }
}

/* A Mixtral's one length is that of its experts, whatever an MLP of it would have. */
static void length_of_a_mixtral(void)
{
    wf_gguf_header h = {.bytes = NULL};
    wf_nn_gpt_config m = *wf_nn_gpt_family("mixtral");
    wf_error error = {WF_OK, ""};
    int64_t data;
    gguf_file f;

    m.positions = m.vocabulary = m.width = 32;
    m.layers = m.heads = m.kv_heads = 2;
    m.experts = 4;
    m.ffn = 48;
    m.expert_ffn = 80;
    wf_gguf_put_config(&h, &m);
    CU_ASSERT_EQUAL(wf_gguf_end(&h, NULL, 0, &data, &error), WF_OK);
    f = (gguf_file){.bytes = h.bytes, .count = h.count, .keys = h.keys};
    CU_ASSERT_EQUAL(gguf_number(&f, "llama.feed_forward_length"), 80);
    free(h.bytes);
}

/* Llama 3.1's scaling is in a file as factors of frequencies: what is read gives the same ones,
   whatever was written. */
static void each_scaling_is_read_back(void)
{
    static const struct {
        int64_t head;
        double base, factor, low, high, length;
    } scalings[] = {{64, 500000, 8, 1, 4, 8192},    {128, 500000, 32, 1, 4, 8192},
                    {128, 500000, 8, 3, 4, 8192},   {128, 10000, 4, 2.5, 7, 5000},
                    {12, 500, 8, 1, 4, 8},          {16, 10000, 8, 1, 4, 8192},
                    {16, 10000, 3.3, 1.7, 2, 100},  {8, 10000, 8, 1, 4, 64},
                    {8, 1e6, 8, 1, 1.01, 64},       {64, 500000, 8, 1, 4, 100000000},
                    {64, 500000, 8, 1, 4, 2},       {64, 10000, 16, 0.001, 40, 8192},
                    {64, 500000, 1, 1, 4, 8192},    {64, 500000, 0.5, 1, 4, 8192},
                    {128, 500000, 1000, 1, 4, 8192}};

    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        wf_nn_gpt_config m = *wf_nn_gpt_family("llama"), back;
        float factors[2][64];

        m.heads = m.kv_heads = 1;
        m.width = m.head_dim = scalings[i].head;
        m.rope_base = scalings[i].base;
        m.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LLAMA3,
                                           .factor = scalings[i].factor,
                                           .low_freq_factor = scalings[i].low,
                                           .high_freq_factor = scalings[i].high,
                                           .original_positions = scalings[i].length};
        wf_gguf_rope_factors(&m, factors[0]);
        back = m;
        back.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_UNSCALED};
        CU_ASSERT(wf_gguf_find_scaling(&back, factors[0]));
        for (int64_t k = 0; k < m.head_dim / 2; k++)
            factors[1][k] = 1;
        if (back.rope_scaling.kind != WF_ROPE_UNSCALED)
            wf_gguf_rope_factors(&back, factors[1]);
        for (int64_t k = 0; k < m.head_dim / 2; k++)
            if (!(fabsf(factors[0][k] - factors[1][k]) <= 1e-6f * factors[0][k])) {
                printf("\n    scaling %zu, pair %lld: %.9g and %.9g\n", i, (long long)k,
                       (double)factors[0][k], (double)factors[1][k]);
                CU_FAIL("another scaling");
                break;
            }
    }
}

/* A factor without a type beside it is linear, and the older key is read, as in llama.cpp. */
static void a_factor_is_linear(void)
{
    static const wf_par_gguf_text none = {"none", 4};
    static const struct {
        const char *key;
        float value;
        bool none;
        double factor; /* 0: unscaled */
    } cases[] = {{"llama.rope.scaling.factor", 4, false, 4},
                 {"llama.rope.scale_linear", 2.5f, false, 2.5},
                 {"llama.rope.scaling.factor", 4, true, 0},
                 {"llama.rope.scaling.factor", 0, false, 0},
                 {"llama.rope.scale_linear", 1, false, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wf_par_gguf_key keys[] = {
            {cases[i].key, WF_PAR_GGUF_F32, false, 0, &cases[i].value},
            {"llama.rope.scaling.type", WF_PAR_GGUF_TEXT, false, 0, &none}};
        wf_error error = {WF_OK, ""};
        wf_nn_gpt_config c;

        CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, keys,
                                  1 + cases[i].none, path_in("linear.gguf"), &error),
                        WF_OK);
        CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("linear.gguf"), &c, &error), WF_OK);
        CU_ASSERT_EQUAL(c.rope_scaling.kind,
                        cases[i].factor > 0 ? WF_ROPE_LINEAR : WF_ROPE_UNSCALED);
        CU_ASSERT_DOUBLE_EQUAL(c.rope_scaling.factor, cases[i].factor, 0);
    }
}

static void write_file(const gguf_file *f, const char *path)
{
    FILE *out = fopen(path, "w");

    CU_ASSERT_FATAL(out && fwrite(f->bytes, 1, f->count, out) == f->count && fclose(out) == 0);
}

/* llama.cpp needs the key, and nothing says what it would be. */
static void an_epsilon_is_needed(void)
{
    static const char key[] = "llama.attention.layer_norm_rms_epsilon";
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config c;
    gguf_file f;
    size_t at;

    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, NULL, 0,
                              path_in("less.gguf"), &error),
                    WF_OK);
    gguf_read(&f, path_in("less.gguf"));
    for (at = 0; memcmp(f.bytes + at, key, sizeof key - 1) != 0;)
        at++;
    memcpy(f.bytes + at, "general", 7); /* a key of no architecture */
    write_file(&f, path_in("less.gguf"));
    free(f.bytes);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("less.gguf"), &c, &error), WF_EDATA);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "layer_norm_rms_epsilon\" is missing"));
}

/* An epsilon and a base of 0 were taken for defaults, what is no model for one, and a file of
   the other byte order for one of version 50331648. */
static void zero_is_no_default(void)
{
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon",
                                       "llama.rope.freq_base"};
    enum { F32 = 6, TEXT = 8 };
    const uint32_t swapped = 3u << 24;
    const float zero = 0;
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config c;
    gguf_file f;

    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, NULL, 0,
                              path_in("zero.gguf"), &error),
                    WF_OK);
    gguf_read(&f, path_in("zero.gguf"));
    for (int i = 0; i < 2; i++) {
        size_t at = gguf_value(&f, keys[i], F32);
        float before;

        CU_ASSERT_FATAL(at > 0);
        memcpy(&before, f.bytes + at, sizeof before);
        memcpy(f.bytes + at, &zero, sizeof zero);
        write_file(&f, path_in("zero.gguf"));
        memcpy(f.bytes + at, &before, sizeof before);
        error = (wf_error){WF_OK, ""};
        CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("zero.gguf"), &c, &error), WF_EDATA);
        CU_ASSERT(strstr(error.text, keys[i]) && strstr(error.text, "is 0, and it has to lie"));
    }
    memcpy(f.bytes + gguf_value(&f, "general.type", TEXT) + sizeof(uint64_t), "other", 5);
    write_file(&f, path_in("zero.gguf"));
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("zero.gguf"), &c, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "key \"general.type\" is other"));
    memcpy(f.bytes + 4, &swapped, sizeof swapped);
    write_file(&f, path_in("zero.gguf"));
    free(f.bytes);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("zero.gguf"), &c, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "it is big-endian"));
}

static wf_status load_in_vain(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;

    NEED(wf_par_pretrained_load(r->par, r->model, arg) == WF_EINVAL);
    NEED(strstr(wf_context_error(r->ctx)->text, "none of the file's config") != NULL);
    wf_context_clear(r->ctx);
    return WF_OK;
}

static void another_model_is_refused(void)
{
    wf_error error = {WF_OK, ""};
    model_test test = {
        .options = {.tp = 2}, .body = load_in_vain, .arg = (void *)path_in("of_llama.gguf")};

    CU_ASSERT_EQUAL(
        gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, NULL, 0, test.arg, &error),
        WF_OK);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(WEFT_REFERENCE "/hf_llama", &test.config, &error),
                    WF_OK);
    test.config.order = WF_NN_POST_NORM;
    on_model_ranks(&test);
}

/* A key, and what a model of such a file would be: refused by that key. */
static void refused_for(const char *key, wf_par_gguf_kind kind, const void *value,
                        wf_status status)
{
    const wf_par_gguf_key more = {key, kind, false, 0, value};
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config config;

    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, &more, 1,
                              path_in("more.gguf"), &error),
                    WF_OK);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("more.gguf"), &config, &error), status);
    if (status != WF_OK)
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, key));
}

static void what_a_file_says_is_read_or_refused(void)
{
    refused_for("llama.expert_used_count", WF_PAR_GGUF_U32, &(uint32_t){2}, WF_EUNSUPPORTED);
    refused_for("llama.expert_count", WF_PAR_GGUF_U32, &(uint32_t){0}, WF_OK);
    refused_for("llama.attention.sliding_window", WF_PAR_GGUF_U32, &(uint32_t){64},
                WF_EUNSUPPORTED);
    refused_for("llama.final_logit_softcapping", WF_PAR_GGUF_F32, &(float){30},
                WF_EUNSUPPORTED);
    refused_for("llama.attention.sliding_window", WF_PAR_GGUF_BOOL, &(bool){true},
                WF_EUNSUPPORTED);
    refused_for("llama.attention.scale", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_EDATA);
    refused_for("llama.rope.scaling.type", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_EDATA);
    refused_for("llama.some.new_thing", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_EUNSUPPORTED);
    refused_for("llama.some.new_thing", WF_PAR_GGUF_U32, &(uint32_t){0}, WF_OK);
    refused_for("llama.attention.causal", WF_PAR_GGUF_BOOL, &(bool){false}, WF_EUNSUPPORTED);
    refused_for("llama.attention.causal", WF_PAR_GGUF_BOOL, &(bool){true}, WF_OK);
    refused_for("llama.rope.scaling.attn_factor", WF_PAR_GGUF_F32, &(float){1.5f},
                WF_EUNSUPPORTED);
    refused_for("llama.rope.scaling.attn_factor", WF_PAR_GGUF_F32, &(float){1}, WF_OK);
    refused_for("split.count", WF_PAR_GGUF_U32, &(uint32_t){3}, WF_EUNSUPPORTED);
    refused_for("split.count", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_OK);
}

static void rotations_without_a_key(void)
{
    static const wf_rope_scaling_kind kinds[] = {WF_ROPE_UNSCALED, WF_ROPE_YARN,
                                                 WF_ROPE_DYNAMIC};

    for (int i = 0; i < 3; i++) {
        wf_nn_gpt_config m = *wf_gguf_family("llama", false);

        m.rope_scaling.kind = kinds[i];
        CU_ASSERT_EQUAL(wf_gguf_has(&m), kinds[i] != WF_ROPE_DYNAMIC);
    }
}

static const wf_test tests[] = {
    {"rotations without a key", rotations_without_a_key},
    {"a file is loaded as its folder", a_file_is_loaded_as_its_folder},
    {"mixtures are loaded", mixtures_are_loaded},
    {"length of a mixtral", length_of_a_mixtral},
    {"each scaling is read back", each_scaling_is_read_back},
    {"a factor is linear", a_factor_is_linear},
    {"an epsilon is needed", an_epsilon_is_needed},
    {"zero is no default", zero_is_no_default},
    {"another model is refused", another_model_is_refused},
    {"what a file says is read or refused", what_a_file_says_is_read_or_refused},
    {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("loading gguf", tests);
}
