/*
 * tests/nn/test_gguf.c - models as GGUF files, read byte by byte: what the format asks for, the
 * tensors' numbers, and what is refused.
 */
#include "nn/models/gpt/gpt.h"
#include "parallel/formats/gguf_internal.h"
#include "parallel/formats/hf_files_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/gguf_file.h"
#include "tests/nn/model_ranks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 128 };

/* The elements of a tensor of a folder; bf16 and f32 come as f32. Owner: caller, free. */
static float *weights_of(const char *folder, const char *name, int64_t *count)
{
    wf_error error = {WF_OK, ""};
    wf_hf_files files = {.open = -1};
    const wf_safetensors_entry *e;
    const wf_file *file;
    int64_t number;
    float *x;

    CU_ASSERT_EQUAL_FATAL(wf_hf_files_open(&files, &wf_system_files, folder, &error), WF_OK);
    e = wf_hf_find(&files, name, &number);
    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    CU_ASSERT_EQUAL_FATAL(wf_hf_reader(&files, number, &file, &error), WF_OK);
    *count = (e->end - e->begin) / wf_safetensors_dtype_size(e->dtype);
    x = malloc((size_t)*count * sizeof *x);
    wf_file_read(file, x, (size_t)(e->end - e->begin),
                 files.file[number].header.data + e->begin, &error);
    if (e->dtype == WF_ST_BF16)
        for (int64_t i = *count - 1; i >= 0; i--) {
            uint32_t bits = (uint32_t)((const uint16_t *)(const void *)x)[i] << 16;

            memcpy(&x[i], &bits, sizeof bits);
        }
    wf_hf_files_close(&files);
    return x;
}

static char folder[WF_TEST_FOLDER];

static const char *path_in(const char *name)
{
    static char path[PATH];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void every_byte_has_its_position(void)
{
    static const char *const models[] = {"/hf_gpt2",    "/hf_llama",   "/hf_llama_tied",
                                         "/hf_llama31", "/hf_mistral", "/hf_qwen2",
                                         "/hf_qwen3",   "/hf_phi3"};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int type = WF_PAR_GGUF_STORED; type <= WF_PAR_GGUF_Q8_0; type++) {
            wf_error error = {WF_OK, ""};
            wf_nn_gpt_config config;
            char from[PATH];
            gguf_file r;

            snprintf(from, sizeof from, WEFT_REFERENCE "%s", models[i]);
            CU_ASSERT_EQUAL(
                gguf_save(from, (wf_par_gguf_type)type, NULL, 0, path_in("x.gguf"), &error),
                WF_OK);
            gguf_read(&r, path_in("x.gguf"));
            CU_ASSERT_PTR_NOT_NULL(gguf_find(&r, "token_embd.weight"));
            CU_ASSERT_EQUAL(gguf_find(&r, "rope_freqs.weight") != NULL, i == 3);
            CU_ASSERT_EQUAL(wf_par_pretrained_config(from, &config, &error), WF_OK);
            CU_ASSERT_EQUAL(gguf_find(&r, "output.weight") == NULL, config.tied);
            CU_ASSERT_EQUAL(gguf_find(&r, "blk.0.attn_norm.weight")->type, 0);
            CU_ASSERT(access(path_in("x.gguf.partial"), F_OK) != 0);
            free(r.bytes);
        }
}

/* Queries come in llama.cpp's order: of a head's rows those that turn together are
   neighbours. */
static void a_llamas_heads_rotate_neighbours(void)
{
    static const char *const from = WEFT_REFERENCE "/hf_llama";
    wf_error error = {WF_OK, ""};
    int64_t count, columns, rows, head;
    gguf_file r;
    const gguf_tensor *t;
    float *x;

    CU_ASSERT_EQUAL(
        gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path_in("llama.gguf"), &error), WF_OK);
    gguf_read(&r, path_in("llama.gguf"));
    t = gguf_find(&r, "blk.1.attn_k.weight");
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    x = weights_of(from, "model.layers.1.self_attn.k_proj.weight", &count);
    columns = (int64_t)t->size[0];
    rows = (int64_t)t->size[1];
    head = rows / gguf_number(&r, "llama.attention.head_count_kv");
    CU_ASSERT(rows * columns == count && head > 2 &&
              head == gguf_number(&r, "llama.rope.dimension_count"));
    for (int64_t row = 0; row < rows; row++) {
        int64_t pair = row % head / 2, ours = row - row % head + pair + row % 2 * (head / 2);

        CU_ASSERT_EQUAL(
            memcmp(t->data + row * columns * 4, x + ours * columns, (size_t)columns * 4), 0);
    }
    free(x);
    x = weights_of(from, "model.layers.1.self_attn.v_proj.weight", &count);
    CU_ASSERT_EQUAL(memcmp(gguf_find(&r, "blk.1.attn_v.weight")->data, x, (size_t)count * 4),
                    0);
    free(x);
    free(r.bytes);
}

/* Phi-3's tensors are several in one; what two lists of factors divide by lies beside them. */
static void rotation_of_phi3(void)
{
    static const char *const from = WEFT_REFERENCE "/hf_phi35";
    static const float lists[2][2] = {{1.5f, 4.25f}, {1, 1.3f}};
    wf_error error = {WF_OK, ""};
    const gguf_tensor *t;
    int64_t count;
    gguf_file r;
    float *x, factor;
    size_t at;

    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_FLOAT32, NULL, 0, path_in("phi.gguf"), &error),
                    WF_OK);
    gguf_read(&r, path_in("phi.gguf"));
    CU_ASSERT_EQUAL(gguf_number(&r, "phi3.rope.dimension_count"), 4);
    CU_ASSERT_EQUAL(gguf_number(&r, "phi3.rope.scaling.original_context_length"), 8);
    CU_ASSERT_EQUAL(gguf_number(&r, "phi3.attention.sliding_window"), 0);
    at = gguf_value(&r, "phi3.rope.scaling.attn_factor", 6);
    CU_ASSERT_FATAL(at != 0);
    memcpy(&factor, r.bytes + at, sizeof factor);
    CU_ASSERT_EQUAL(factor, (float)sqrt(1 + log(4) / log(8)));
    for (int i = 0; i < 2; i++) {
        t = gguf_find(&r, i ? "rope_factors_short.weight" : "rope_factors_long.weight");
        CU_ASSERT_FATAL(t && t->dims == 1 && t->size[0] == 2 && t->type == 0);
        CU_ASSERT_EQUAL(memcmp(t->data, lists[i], sizeof lists[i]), 0);
    }
    t = gguf_find(&r, "blk.1.attn_qkv.weight");
    CU_ASSERT_FATAL(t && t->size[0] == 32 && t->size[1] == 64);
    x = weights_of(from, "model.layers.1.self_attn.qkv_proj.weight", &count);
    CU_ASSERT_EQUAL(memcmp(t->data, x, (size_t)count * 4), 0);
    free(x);
    t = gguf_find(&r, "blk.0.ffn_up.weight");
    CU_ASSERT_FATAL(t && t->size[1] == 96 && !gguf_find(&r, "blk.0.ffn_gate.weight"));
    x = weights_of(from, "model.layers.0.mlp.gate_up_proj.weight", &count);
    CU_ASSERT_EQUAL(memcmp(t->data, x, (size_t)count * 4), 0);
    free(x);
    free(r.bytes);
}

static float half(const char *at)
{
    uint16_t bits;
    int exponent;

    memcpy(&bits, at, sizeof bits);
    exponent = bits >> 10 & 31;
    return exponent ? ldexpf((float)(1024 + (bits & 1023)), exponent - 25)
                    : ldexpf((float)(bits & 1023), -24);
}

static void blocks_are_near_their_numbers(void)
{
    static const char *const from = WEFT_REFERENCE "/hf_llama";
    wf_error error = {WF_OK, ""};
    int64_t count;
    gguf_file r;
    const gguf_tensor *t;
    float *x;

    CU_ASSERT_EQUAL(gguf_save(from, WF_PAR_GGUF_Q8_0, NULL, 0, path_in("q.gguf"), &error),
                    WF_OK);
    gguf_read(&r, path_in("q.gguf"));
    t = gguf_find(&r, "token_embd.weight");
    CU_ASSERT_FATAL(t && t->type == 8 && gguf_number(&r, "general.file_type") == 7);
    x = weights_of(from, "model.embed_tokens.weight", &count);
    for (int64_t b = 0; b < count / 32; b++) {
        const char *block = t->data + b * 34;
        float scale = half(block), most = 0;

        for (int i = 0; i < 32; i++) {
            float off = x[b * 32 + i] - scale * (float)(signed char)block[2 + i];

            CU_ASSERT(fabsf(off) <= 0.502f * scale + 0.07f * scale);
            most = fabsf(x[b * 32 + i]) > most ? fabsf(x[b * 32 + i]) : most;
        }
        CU_ASSERT(fabsf(scale * 127 - most) <= most / 1024);
    }
    free(x);
    free(r.bytes);
}

/* Known blocks, as ggml's reference has them: ties go away from zero, a block of zeros has no
   scale. */
static void blocks_by_hand(void)
{
    float x[64] = {0};
    char to[68];

    x[0] = 127;
    x[1] = 2.5f;
    x[2] = -2.5f;
    x[3] = -126.4f;
    wf_gguf_convert(WF_GGUF_Q8_0, x, to, 64);
    CU_ASSERT(to[0] == 0x00 && to[1] == 0x3c); /* 1 */
    CU_ASSERT(to[2] == 127 && to[3] == 3 && to[4] == -3 && to[5] == -126 && to[6] == 0);
    for (int i = 34; i < 68; i++)
        CU_ASSERT_EQUAL(to[i], 0);
}

static void keys_that_are_given(void)
{
    static const wf_par_gguf_text texts[] = {{"a", 1}, {"\0b", 2}, {"", 0}};
    static const uint32_t seven = 7;
    static const wf_par_gguf_key keys[] = {{"some.texts", WF_PAR_GGUF_TEXT, true, 3, texts},
                                           {"some.none", WF_PAR_GGUF_I32, true, 0, texts},
                                           {"some.number", WF_PAR_GGUF_U32, false, 0, &seven}};
    wf_error error = {WF_OK, ""};
    size_t at;
    gguf_file r;

    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_qwen2", WF_PAR_GGUF_STORED, keys, 3,
                              path_in("keys.gguf"), &error),
                    WF_OK);
    gguf_read(&r, path_in("keys.gguf"));
    CU_ASSERT_EQUAL(gguf_number(&r, "some.number"), 7);
    CU_ASSERT_NOT_EQUAL(gguf_value(&r, "some.none", 9), 0);
    CU_ASSERT_NOT_EQUAL(gguf_number(&r, "qwen2.block_count"), UINT32_MAX);
    at = gguf_value(&r, "some.texts", 9);
    CU_ASSERT_FATAL(at != 0);
    CU_ASSERT_EQUAL(memcmp(r.bytes + at,
                           "\10\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\2\0\0\0\0\0\0\0\0b", 31),
                    0);
    free(r.bytes);
}

/* A failed write leaves what was there. */
static void what_cannot_be(void)
{
    wf_error error = {WF_OK, ""};
    char path[PATH];
    FILE *file;

    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_STORED, NULL, 0,
                              path_in("no/where.gguf"), &error),
                    WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "/no"));
    error.code = WF_OK;
    CU_ASSERT_EQUAL(
        gguf_save(WEFT_REFERENCE "/hf_llama", WF_PAR_GGUF_STORED, NULL, 0, path_in(""), &error),
        WF_EINVAL);
    error.code = WF_OK;
    CU_ASSERT_EQUAL(gguf_save(WEFT_REFERENCE "/hf_gemma2", WF_PAR_GGUF_STORED, NULL, 0,
                              path_in("x.gguf"), &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "query_pre_attn_scalar"));
    error.code = WF_OK;
    snprintf(path, sizeof path, "cp -r " WEFT_REFERENCE "/hf_gpt2 %s/bad", folder);
    CU_ASSERT_EQUAL_FATAL(system(path), 0);
    file = fopen(path_in("bad/model.safetensors"), "r+b");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fseek(file, -4, SEEK_END);
    fwrite("\0\0\300\177", 1, 4, file); /* a NaN */
    fclose(file);
    snprintf(path, sizeof path, "%s/bad", folder);
    CU_ASSERT_EQUAL(gguf_save(path, WF_PAR_GGUF_FLOAT16, NULL, 0, path_in("bad.gguf"), &error),
                    WF_EDATA);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "has the number nan"));
    CU_ASSERT(access(path_in("bad.gguf"), F_OK) != 0);
    CU_ASSERT(access(path_in("bad.gguf.partial"), F_OK) != 0);
}

static const wf_test tests[] = {
    {"every byte has its place", every_byte_has_its_position},
    {"a llama's heads turn neighbours", a_llamas_heads_rotate_neighbours},
    {"rotation of Phi-3", rotation_of_phi3},
    {"blocks are near their numbers", blocks_are_near_their_numbers},
    {"blocks by hand", blocks_by_hand},
    {"keys that are given", keys_that_are_given},
    {"what cannot be", what_cannot_be},
    {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("gguf", tests);
}
