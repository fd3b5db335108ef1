/* tests/nn/test_gguf_convert.c - GGUF files become folders, a parameter at a time, and nothing
   is lost on the way. */
#include "nn/models/gpt/gpt.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/gguf_file.h"
#include "tests/nn/model_ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 128 };

#define GEMMA "/hf_gemma"

static char folder[WF_TEST_FOLDER];

static void save(const char *from, const char *path)
{
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path, &error), WF_OK);
}

static char *bytes_of(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *bytes;

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*n);
    CU_ASSERT_EQUAL_FATAL(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

/* Finds the folder of a model. Scores of Gemma 2 and 3 have a factor of their own there, and
   are given the one that llama.cpp takes for granted. */
static void reference(const char *name, char from[PATH])
{
    char command[4 * PATH];

    snprintf(from, PATH, WEFT_REFERENCE "%s", name);
    if (strncmp(name, GEMMA, strlen(GEMMA)) != 0 || strlen(name) == strlen(GEMMA))
        return;
    snprintf(command, sizeof command,
             "cp -r %s %s/ && sed -i 's/scalar\": 14/scalar\": 10/' %s%s/config.json", from,
             folder, folder, name);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
    snprintf(from, PATH, "%s%s", folder, name);
}

/* Written in f32, made a folder and written again: the same bytes, whatever a family's tensors
   are called there. */
static void a_file_becomes_a_folder(void)
{
    static const char *const models[] = {
        "/hf_gpt2",  "/hf_llama",    "/hf_llama_tied", "/hf_llama31",  "/hf_mistral",
        "/hf_qwen2", "/hf_qwen3",    "/hf_phi3",       "/hf_granite",  "/hf_phi35",
        "/hf_gemma", "/hf_olmo2",    "/hf_glm4",       "/hf_stablelm", "/hf_cohere",
        "/hf_phi",   "/hf_gpt_neox", GEMMA "2",        GEMMA "3"};
    char path[3][PATH];

    snprintf(path[0], PATH, "%s/first.gguf", folder);
    snprintf(path[1], PATH, "%s/converted", folder);
    snprintf(path[2], PATH, "%s/second.gguf", folder);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        wf_error error = {WF_OK, ""};
        wf_context *ctx = lone_context(1);
        wf_nn_gpt_config config;
        wf_nn_gpt *model;
        char from[PATH], *bytes[2];
        size_t n[2];

        reference(models[i], from);
        save(from, path[0]);
        CU_ASSERT_EQUAL(wf_par_pretrained_config(path[0], &config, &error), WF_OK);
        model = wf_nn_gpt_new(ctx, &config);
        CU_ASSERT_EQUAL(wf_par_pretrained_convert(model, path[0], path[1], NULL, NULL, &error),
                        WF_OK);
        wf_nn_free(&model->base);
        close_lone(ctx, WF_OK);
        save(path[1], path[2]);
        for (int k = 0; k < 2; k++)
            bytes[k] = bytes_of(path[2 * k], &n[k]);
        CU_ASSERT(n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
        for (int k = 0; k < 2; k++)
            free(bytes[k]);
    }
}

static const wf_test tests[] = {{"a file becomes a folder", a_file_becomes_a_folder},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("gguf_convert", tests);
}
