/*
 * tests/nn/test_gguf_llama4.c - a Llama 4 as a GGUF file: loaded as the folder that it was made
 * of, and refused where it is not what llama.cpp takes for granted.
 */
#include "tests/nn/gguf_loaded.h"
#include <stdlib.h>

static wf_nn_gpt_config small_llama4(void)
{
    wf_nn_gpt_config m = *wf_nn_gpt_family("llama4_text");

    m.positions = m.vocabulary = 64;
    m.ffn = 48;
    m.width = 32;
    m.layers = m.heads = m.experts = 4;
    m.kv_heads = 2;
    m.expert_ffn = m.shared_ffn = 24;
    wf_nn_block_list(&m.dense_blocks, 0);
    wf_nn_block_list(&m.dense_blocks, 2);
    return m;
}

/* Every second block is a mixture, and every fourth one does not rotate. */
static void a_llama4_is_loaded(void)
{
    static const wf_par_options layouts[] = {{.tp = 1, .dp = 1}, {.tp = 2, .dp = 2, .ep = 4}};
    char from[PATH];
    model_test test = {.options = layouts[0], .body = save_folder, .arg = from};
    gguf_file f;

    snprintf(from, sizeof from, "%s", path_in("llama4"));
    test.config = small_llama4();
    on_model_ranks(&test);
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        is_loaded_as(from, &layouts[l]);
    gguf_read(&f, path_in("back.gguf"));
    CU_ASSERT_EQUAL(gguf_number(&f, "llama4.interleave_moe_layer_step"), 2);
    CU_ASSERT_EQUAL(gguf_number(&f, "llama4.feed_forward_length"), 48);
    CU_ASSERT_EQUAL(gguf_number(&f, "llama4.expert_feed_forward_length"), 24);
    CU_ASSERT_EQUAL(gguf_number(&f, "llama4.context_length"), 64);
    CU_ASSERT_PTR_NOT_NULL(gguf_find(&f, "blk.0.ffn_gate.weight"));
    CU_ASSERT_PTR_NOT_NULL(gguf_find(&f, "blk.1.ffn_gate_shexp.weight"));
    CU_ASSERT_PTR_NULL(gguf_find(&f, "blk.1.ffn_gate.weight"));
    free(f.bytes);
}

/* A model is not written that has otherwise what every Llama 4 of llama.cpp has. */
static void other_llama4s(void)
{
    static const char *const missing[] = {"chunks of another",       "chunks of another",
                                          "another temperature",     "norms of rotated heads",
                                          "norms of rotated heads",  "a shared expert",
                                          "mixtures in other blocks"};
    wf_nn_gpt_config m = small_llama4();

    m.positions = 40000;
    m.window = 8192;
    CU_ASSERT(wf_gguf_has(&m));
    m.experts = 128;
    m.qk_l2_norm = false;
    CU_ASSERT(wf_gguf_has(&m));
    for (int i = 0; i < 7; i++) {
        m = small_llama4();
        if (i == 0)
            m.positions = 40000; /* without chunks */
        if (i == 1)
            m.window = 32;
        if (i == 2)
            m.temperature = 0.2;
        if (i == 3)
            m.experts = 128;
        if (i == 4)
            m.qk_l2_norm = false;
        if (i == 5)
            m.shared_ffn = 32;
        if (i == 6)
            wf_nn_block_list(&m.dense_blocks, 3); /* block 1 alone is a mixture */
        CU_ASSERT_FALSE(wf_gguf_has(&m));
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_gguf_missing(&m), missing[i]));
    }
}

int main(void)
{
    static const wf_test tests[] = {{"a Llama 4 is loaded", a_llama4_is_loaded},
                                    {"other Llama 4s are not written", other_llama4s},
                                    {NULL, NULL}};

    wf_test_new_folder(folder);
    return wf_test_main("Llama 4 as gguf", tests);
}
