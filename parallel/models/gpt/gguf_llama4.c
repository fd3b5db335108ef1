/* parallel/models/gpt/gguf_llama4.c - what llama.cpp takes for granted of a Llama 4, and files
   say nothing of; see gguf_names_internal.h. */
#include "parallel/models/gpt/gguf_source_internal.h"
#include <stdlib.h>

enum {
    CHUNK = 8192, /* tokens that see each other, and those of a step of the temperature */
    SKIP = 4,     /* every fourth block has neither chunks nor positions */
    NO_NORM = 128 /* experts of the models without norms of rotated heads */
};

static const double temperature = 0.1;

/* Returns n, where every n-th block is a mixture and no other; 0: there is none. */
static int64_t step_of(const wf_nn_gpt_config *m)
{
    int64_t step = 1, i = 0;

    while (step <= m->layers && !wf_nn_gpt_is_mixture(m, step - 1))
        step++;
    while (i < m->layers && wf_nn_gpt_is_mixture(m, i) == ((i + 1) % step == 0))
        i++;
    return step <= m->layers && i == m->layers ? step : 0;
}

/* Returns true where blocks see chunks as llama.cpp's do, or texts are no longer than one. */
static bool has_chunks(const wf_nn_gpt_config *m)
{
    if (!m->window)
        return m->positions <= CHUNK;
    if (!m->window_chunks)
        return false;
    for (int64_t i = 0; i < m->layers; i++)
        if (wf_nn_gpt_window(m, i) != ((i + 1) % SKIP ? CHUNK : 0))
            return false;
    return true;
}

const char *wf_gguf_llama4_missing(const wf_nn_gpt_config *model)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);

    if (!has_chunks(&m))
        return "chunks of another length than 8192 tokens, or in other blocks "
               "(\"attention_chunk_size\")";
    if (m.rope_skip &&
        ((float)m.temperature != (float)temperature || m.temperature_every != CHUNK))
        return "another temperature than Llama 4's (\"attn_scale\", \"floor_scale\")";
    if (m.qk_l2_norm != (m.experts != NO_NORM))
        return "norms of rotated heads beside 128 experts, or none beside others "
               "(\"use_qk_norm\")";
    if (m.shared_ffn != m.expert_ffn)
        return "a shared expert of other features than the others'";
    return step_of(&m) ? NULL : "mixtures in other blocks than every n-th (\"moe_layers\")";
}

int64_t wf_gguf_llama4_step(const wf_nn_gpt_config *model)
{
    return step_of(model);
}

void wf_gguf_read_llama4(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    const int64_t step = wf_gguf_size_or(s, "interleave_moe_layer_step", 0);
    const int64_t window = wf_gguf_size_or(s, "attention.sliding_window", CHUNK);

    if (s->error->code == WF_OK && (window != CHUNK || m->layers > WF_NN_LISTED_BLOCKS))
        wf_error_set(
            s->error, WF_EUNSUPPORTED,
            "%.900s: a llama4 of %lld blocks with \"llama4.attention.sliding_window\" "
            "%lld: those are read that have chunks of %d tokens, and %d blocks at most",
            s->path, (long long)m->layers, (long long)window, CHUNK, WF_NN_LISTED_BLOCKS);
    if (s->error->code != WF_OK)
        return;
    for (int64_t i = 0; i < m->layers; i++)
        if ((i + 1) % step)
            wf_nn_block_list(&m->dense_blocks, i);
    m->shared_ffn = m->expert_ffn;
    m->window = CHUNK;
    m->window_skip = SKIP;
    m->qk_l2_norm = m->experts != NO_NORM;
}
