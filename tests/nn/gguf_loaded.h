/* tests/nn/gguf_loaded.h - models of a folder and of a GGUF file that was made of it, on
   ranks. */
#ifndef WF_TESTS_NN_GGUF_LOADED_H
#define WF_TESTS_NN_GGUF_LOADED_H

#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "parallel/train/measure.h"
#include "tests/nn/gguf_file.h"
#include "tests/nn/model_ranks.h"
#include <stdio.h>
#include <string.h>

enum { PATH = 128 };

static char folder[WF_TEST_FOLDER];

static inline const char *path_in(const char *name)
{
    static char path[PATH];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Digests of a model that a rank loads from a folder, and from a file that was made of it. */
typedef struct both {
    const char *folder, *file;
    uint64_t digest[2];
} both;

static inline wf_status load_both(model_rank *r, void *arg)
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

/* Checks that a folder's model, and that of a file made of it, are one on a layout. */
static inline void is_loaded_as(const char *from, const wf_par_options *layout)
{
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config theirs;
    both b = {.folder = from, .file = path_in("back.gguf")};
    model_test test = {.options = *layout, .body = load_both, .arg = &b};

    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, b.file, &error), WF_OK);
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

static inline wf_status save_folder(model_rank *r, void *arg)
{
    return wf_par_pretrained_save(r->par, r->model, arg, NULL, NULL);
}

#endif
