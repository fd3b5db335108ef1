/* tests/nn/test_gguf_yarn.c - YaRN in GGUF files: written as keys, read back as the same model,
   and refused where llama.cpp computes something else. */
#include "nn/models/gpt/gpt.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/harness.h"
#include "tests/nn/gguf_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 128, FLOAT = 6, TEXT = 8 };

static char folder[WF_TEST_FOLDER];

static const char *path_in(const char *name)
{
    static char path[PATH];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Copies a reference model, whose scaling becomes another: of the first object that says
   one. */
static void scaled(const char *name, const char *scaling, char to[PATH])
{
    char command[8 * PATH];

    snprintf(to, PATH, "%s/scaled", folder);
    snprintf(command, sizeof command,
             "rm -rf %s && cp -r %s%s %s && sed -i 's/\"rope_type\": \"[a-z]*\"/%s/' "
             "%s/config.json",
             to, WEFT_REFERENCE, name, to, scaling, to);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
}

static float number_of(gguf_file *r, const char *key)
{
    const size_t at = gguf_value(r, key, FLOAT);
    float x = 0;

    if (at)
        memcpy(&x, r->bytes + at, sizeof x);
    return x;
}

#define YARN "\"rope_type\": \"yarn\", \"factor\": 2.5, \"original_max_position_embeddings\": 8"

static void keys_of_yarn(void)
{
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config ours, theirs;
    char from[PATH];
    gguf_file r;

    scaled("/hf_llama",
           YARN ", \"beta_fast\": 32, \"beta_slow\": 1, \"attention_factor\": 1.35", from);
    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path_in("yarn.gguf"), &error),
                    WF_OK);
    gguf_read(&r, path_in("yarn.gguf"));
    CU_ASSERT(gguf_value(&r, "llama.rope.scaling.type", TEXT) != 0);
    CU_ASSERT_EQUAL(number_of(&r, "llama.rope.scaling.factor"), 2.5f);
    CU_ASSERT_EQUAL(gguf_number(&r, "llama.rope.scaling.original_context_length"), 8);
    CU_ASSERT_EQUAL(number_of(&r, "llama.rope.scaling.yarn_beta_fast"), 32.0f);
    CU_ASSERT_EQUAL(number_of(&r, "llama.rope.scaling.yarn_beta_slow"), 1.0f);
    CU_ASSERT_EQUAL(number_of(&r, "llama.rope.scaling.attn_factor"),
                    (float)(1.35 / (0.1 * log(2.5) + 1)));
    free(r.bytes);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(from, &ours, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("yarn.gguf"), &theirs, &error), WF_OK);
    CU_ASSERT_EQUAL(theirs.rope_scaling.kind, WF_ROPE_YARN);
    CU_ASSERT_EQUAL(theirs.rope_scaling.attention_factor, 1.35);
    CU_ASSERT(wf_nn_gpt_same(&ours, &theirs));
}

/* Numbers that are llama.cpp's own need no key. */
static void keys_that_are_not_written(void)
{
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config ours, theirs;
    char from[PATH];
    gguf_file r;

    scaled("/hf_stablelm", YARN, from); /* a part of a head rotates */
    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path_in("yarn.gguf"), &error),
                    WF_OK);
    gguf_read(&r, path_in("yarn.gguf"));
    CU_ASSERT_EQUAL(gguf_value(&r, "stablelm.rope.scaling.yarn_beta_fast", FLOAT), 0);
    CU_ASSERT_EQUAL(gguf_value(&r, "stablelm.rope.scaling.attn_factor", FLOAT), 0);
    free(r.bytes);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(from, &ours, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("yarn.gguf"), &theirs, &error), WF_OK);
    CU_ASSERT(wf_nn_gpt_same(&ours, &theirs));
}

/* A Gemma's factor would be that of blocks with a window, too. */
static void what_is_not_written(void)
{
    static const struct {
        const char *model, *scaling, *says;
    } cases[] = {
        {"/hf_gemma", YARN ", \"attention_factor\": 1.5", "attention_factor"},
        {"/hf_llama", YARN ", \"beta_fast\": 16", "beta_fast"},
        {"/hf_llama", "\"rope_type\": \"dynamic\", \"factor\": 2.5", "dynamic"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_error error = {WF_OK, ""};
        char from[PATH];

        scaled(cases[i].model, cases[i].scaling, from);
        CU_ASSERT_EQUAL(
            gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path_in("no.gguf"), &error),
            WF_EUNSUPPORTED);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, cases[i].says));
    }
}

/* Reads hf_llama with a scaling of this type, by 4, and one key more. */
static wf_status with(const char *type, const char *key, float value, wf_nn_gpt_config *config,
                      wf_error *error)
{
    const wf_par_gguf_text text = {type, (int64_t)strlen(type)};
    const wf_par_gguf_key keys[] = {
        {"llama.rope.scaling.type", WF_PAR_GGUF_TEXT, false, 0, &text},
        {"llama.rope.scaling.factor", WF_PAR_GGUF_F32, false, 0, &(float){4}},
        {key, WF_PAR_GGUF_F32, false, 0, &value}};

    *error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_FLOAT32, keys,
                              key ? 3 : 2, path_in("with.gguf"), error),
                    WF_OK);
    return wf_par_pretrained_config(path_in("with.gguf"), config, error);
}

static void what_keys_of_yarn_say(void)
{
    static const float own = 1.13862944f; /* 0.1 ln(4) + 1 */
    static const struct {
        const char *type, *key;
        float value;
        wf_status status;
        double attention;
    } cases[] = {
        {"yarn", NULL, 0, WF_OK, 0},
        {"yarn", "llama.rope.scaling.attn_factor", 1, WF_OK, 0},
        {"yarn", "llama.rope.scaling.attn_factor", 2, WF_OK, 2.27725887},
        {"yarn", "llama.rope.scaling.yarn_ext_factor", 1, WF_OK, 0},
        {"yarn", "llama.rope.scaling.yarn_ext_factor", 0.5f, WF_EUNSUPPORTED, 0},
        {"yarn", "llama.rope.scaling.yarn_attn_factor", own, WF_OK, 0},
        {"yarn", "llama.rope.scaling.yarn_attn_factor", 1, WF_EUNSUPPORTED, 0},
        {"yarn", "llama.rope.scaling.yarn_attn_factor", 1.5f, WF_EUNSUPPORTED, 0},
        {"yarn", "llama.rope.scaling.yarn_beta_fast", 32, WF_OK, 0},
        {"yarn", "llama.rope.scaling.yarn_beta_fast", 16, WF_EUNSUPPORTED, 0},
        {"yarn", "llama.rope.scaling.yarn_beta_slow", 2, WF_EUNSUPPORTED, 0},
        {"yarn", "llama.rope.scaling.yarn_log_multiplier", 0.1f, WF_EUNSUPPORTED, 0},
        {"linear", "llama.rope.scaling.yarn_ext_factor", 1, WF_EUNSUPPORTED, 0},
        {"linear", "llama.rope.scaling.yarn_beta_fast", 32, WF_EUNSUPPORTED, 0},
        {"linear", "llama.rope.scaling.yarn_beta_slow", 0, WF_OK, 0},
        {"longrope", NULL, 0, WF_EUNSUPPORTED, 0}, /* without factors */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_nn_gpt_config config;
        wf_error error;

        CU_ASSERT_EQUAL(with(cases[i].type, cases[i].key, cases[i].value, &config, &error),
                        cases[i].status);
        if (cases[i].status == WF_OK && strcmp(cases[i].type, "yarn") == 0) {
            CU_ASSERT_EQUAL(config.rope_scaling.kind, WF_ROPE_YARN);
            CU_ASSERT_EQUAL(config.rope_scaling.original_positions, (double)config.positions);
            CU_ASSERT_DOUBLE_EQUAL(config.rope_scaling.attention_factor, cases[i].attention,
                                   3e-7);
        } else if (cases[i].status != WF_OK) {
            CU_ASSERT_PTR_NOT_NULL(
                strstr(error.text, cases[i].key ? cases[i].key : "llama.rope.scaling.type"));
        }
    }
}

/* A Phi-3's two lists may have a type beside them, and no factor. */
static void a_type_beside_two_lists(void)
{
    static const wf_par_gguf_text type = {"longrope", 8};
    const wf_par_gguf_key keys[] = {
        {"phi3.rope.scaling.type", WF_PAR_GGUF_TEXT, false, 0, &type},
        {"phi3.rope.scaling.factor", WF_PAR_GGUF_F32, false, 0, &(float){4}}};

    for (int more = 1; more <= 2; more++) {
        wf_error error = {WF_OK, ""};
        wf_nn_gpt_config config;

        CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_phi35", WF_PAR_GGUF_FLOAT32, keys, more,
                                  path_in("phi.gguf"), &error),
                        WF_OK);
        CU_ASSERT_EQUAL(wf_par_pretrained_config(path_in("phi.gguf"), &config, &error),
                        more == 1 ? WF_OK : WF_EUNSUPPORTED);
        if (more == 1)
            CU_ASSERT_EQUAL(config.rope_scaling.kind, WF_ROPE_LONG)
        else
            CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "phi3.rope.scaling.factor"))
    }
}

static const wf_test tests[] = {{"keys of yarn", keys_of_yarn},
                                {"keys that are not written", keys_that_are_not_written},
                                {"what is not written", what_is_not_written},
                                {"what keys of yarn say", what_keys_of_yarn_say},
                                {"a type beside two lists", a_type_beside_two_lists},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("yarn in gguf", tests);
}
