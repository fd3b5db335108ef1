/*
 * tests/campaign/llama_logits.c - logits that llama.cpp has of a GGUF file, for
 * scripts/peers/gguf_check.py, which builds it against the llama.cpp that --llama-cpp names:
 * llama_logits MODEL.gguf CONTEXT <TOKENS >LOGITS. TOKENS is one text of i32, LOGITS the f32 of
 * all its positions. CONTEXT is how long a text may be: llama.cpp takes the long or the short
 * factors of RoPE by it.
 */
#include "llama.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static void quiet(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

/* Everything in f32, and no kernel that sums in f16. */
static struct llama_context *open_context(struct llama_model *model, uint32_t length)
{
    struct llama_context_params params = llama_context_default_params();

    params.n_ctx = length;
    params.n_batch = params.n_ubatch = MOST;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, params);
}

static int write_logits(struct llama_context *context, int32_t vocabulary)
{
    static int32_t ids[MOST];
    int32_t count = (int32_t)fread(ids, sizeof *ids, MOST, stdin);
    struct llama_batch batch = llama_batch_init(MOST, 0, 1);
    int status;

    batch.n_tokens = count;
    for (int32_t i = 0; i < count; i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    status = llama_decode(context, batch);
    for (int32_t i = 0; i < count && status == 0; i++)
        fwrite(llama_get_logits_ith(context, i), sizeof(float), (size_t)vocabulary, stdout);
    llama_batch_free(batch);
    return status;
}

int main(int argc, char **argv)
{
    struct llama_model_params params = llama_model_default_params();
    struct llama_model_kv_override none[2] = {{.tag = LLAMA_KV_OVERRIDE_TYPE_STR}};
    struct llama_model *model;
    struct llama_context *context;
    int status = 1;

    if (argc != 3 && argc != 4) {
        fprintf(stderr,
                "usage: llama_logits MODEL.gguf CONTEXT [none: a file without a tokenizer]\n");
        return 2;
    }
    strcpy(none[0].key, "tokenizer.ggml.model");
    strcpy(none[0].val_str, "none");
    if (argc == 4)
        params.kv_overrides = none;
    llama_log_set(quiet, NULL);
    model = llama_model_load_from_file(argv[1], params);
    context = model ? open_context(model, (uint32_t)atoi(argv[2])) : NULL;
    if (context)
        status = write_logits(context, llama_vocab_n_tokens(llama_model_get_vocab(model)));
    llama_free(context);
    llama_model_free(model);
    return status;
}
