/*
 * tests/nn/test_gguf_load.c - GGUF files as models: loaded on any layout as the folder that they were made of, and
 * what they say that no model here has.
 */
#include "parallel/models/gpt/pretrained.h"
#include "parallel/train/measure.h"
#include "tests/nn/gguf_file.h"
#include "tests/nn/model_ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER = 64, PATH = 128 };

static char folder[FOLDER];

static const char *path_in(const char *name)
{
    static char path[PATH];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* What a rank loads from a folder, and from a file that was made of it. */
typedef struct both {
    const char *folder, *file;
    uint64_t digest[2];
} both;

static wf_status load_both(model_rank *r, void *arg)
{
    both *b = arg;
    uint64_t digest[2] = {0, 0};
    wf_rank *rank = r->rank;

    for (int i = 0; i < 2; i++) {
        NEED(wf_par_pretrained_load(r->par, r->model, i ? b->file : b->folder) == WF_OK);
        NEED(wf_par_digest(r->par, r->count, r->parameter, NULL, &digest[i]) == WF_OK);
    }
    if (rank->index == 0)
        memcpy(b->digest, digest, sizeof digest);
    return WF_OK;
}

static void a_file_is_loaded_as_its_folder(void)
{
    static const char *const models[] = {"/hf_gpt2",    "/hf_llama", "/hf_llama_tied",
                                         "/hf_qwen2",   "/hf_qwen3", "/hf_granite",
                                         "/hf_llama31", "/hf_phi35"};
    static const wf_par_options layouts[] = {{.tp = 1, .dp = 1}, {.tp = 2, .dp = 2}, {.tp = 4}};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            wf_error error = {WF_OK, ""};
            wf_nn_gpt_config theirs;
            char from[PATH];
            both b = {.folder = from, .file = path_in("back.gguf")};
            model_test test = {.options = layouts[l], .body = load_both, .arg = &b};

            snprintf(from, sizeof from, WEFT_REFERENCE "%s", models[i]);
            CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, b.file, &error),
                            WF_OK);
            CU_ASSERT_EQUAL(wf_par_pretrained_config(from, &test.config, &error), WF_OK);
            CU_ASSERT_EQUAL(wf_par_pretrained_config(b.file, &theirs, &error), WF_OK);
            CU_ASSERT(wf_nn_gpt_same(&theirs, &test.config));
            if (!wf_nn_gpt_same(&theirs, &test.config))
                printf("%s %.20g %.20g %.20g %.20g\n", from, theirs.embedding_scale,
                       test.config.embedding_scale, theirs.attention_scale,
                       test.config.attention_scale);
            on_model_ranks(&test);
            CU_ASSERT(b.digest[0] && b.digest[0] == b.digest[1]);
        }
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
    static const wf_par_gguf_text yarn = {"yarn", 4};
    char text[300];
    wf_error error = {WF_OK, ""};

    refused_for("llama.expert_count", WF_PAR_GGUF_U32, &(uint32_t){8}, WF_EUNSUPPORTED);
    refused_for("llama.expert_count", WF_PAR_GGUF_U32, &(uint32_t){0}, WF_OK);
    refused_for("llama.attention.sliding_window", WF_PAR_GGUF_U32, &(uint32_t){64},
                WF_EUNSUPPORTED);
    refused_for("llama.final_logit_softcapping", WF_PAR_GGUF_F32, &(float){30},
                WF_EUNSUPPORTED);
    refused_for("llama.rope.scaling.type", WF_PAR_GGUF_TEXT, &yarn, WF_EUNSUPPORTED);
    refused_for("llama.attention.sliding_window", WF_PAR_GGUF_BOOL, &(bool){true}, WF_EDATA);
    refused_for("llama.attention.scale", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_EDATA);
    refused_for("llama.rope.scaling.type", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_EDATA);
    refused_for("llama.some.new_thing", WF_PAR_GGUF_U32, &(uint32_t){1}, WF_OK);
    CU_ASSERT_EQUAL(wf_par_pretrained_unknown(path_in("more.gguf"), text, sizeof text, &error),
                    WF_OK);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "not known for its architecture: llama.some.new_thing"));
}

static const wf_test tests[] = {
    {"a file is loaded as its folder", a_file_is_loaded_as_its_folder},
    {"another model is refused", another_model_is_refused},
    {"what a file says is read or refused", what_a_file_says_is_read_or_refused},
    {NULL, NULL}};

int main(void)
{
    int failed;

    snprintf(folder, sizeof folder, "/tmp/weft-gguf-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    failed = wf_test_main("loading gguf", tests);
    wf_test_remove(folder);
    return failed;
}
