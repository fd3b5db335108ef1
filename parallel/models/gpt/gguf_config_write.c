/* parallel/models/gpt/gguf_config_write.c - a model's config as keys of a GGUF file; see
   gguf_names_internal.h. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include <stdio.h>
#include <string.h>

static void put(wf_gguf_header *h, const wf_nn_gpt_config *m, const char *key,
                wf_par_gguf_kind kind, const void *value)
{
    char text[128];

    snprintf(text, sizeof text, "%s.%s", wf_gguf_architecture(m), key);
    wf_gguf_put(h, &(wf_par_gguf_key){.key = text, .kind = kind, .values = value});
}

static void put_size(wf_gguf_header *h, const wf_nn_gpt_config *m, const char *key, int64_t n)
{
    put(h, m, key, WF_PAR_GGUF_U32, &(uint32_t){(uint32_t)n});
}

static void put_number(wf_gguf_header *h, const wf_nn_gpt_config *m, const char *key, double x)
{
    put(h, m, key, WF_PAR_GGUF_F32, &(float){(float)x});
}

static void put_text(wf_gguf_header *h, const char *key, const char *text)
{
    const wf_par_gguf_text value = {text, (int64_t)strlen(text)};

    wf_gguf_put(h, &(wf_par_gguf_key){.key = key, .kind = WF_PAR_GGUF_TEXT, .values = &value});
}

/* Writes YaRN. beta_fast and beta_slow are 32 and 1, given or not (gguf_match.c). */
static void put_yarn(wf_gguf_header *h, const wf_nn_gpt_config *m)
{
    const wf_rope_scaling *s = &m->rope_scaling;
    const double by = wf_gguf_yarn_factor(m);

    put_size(h, m, "rope.scaling.original_context_length", (int64_t)s->original_positions);
    if (s->beta_fast > 0)
        put_number(h, m, "rope.scaling.yarn_beta_fast", s->beta_fast);
    if (s->beta_slow > 0)
        put_number(h, m, "rope.scaling.yarn_beta_slow", s->beta_slow);
    if ((float)by != 1)
        put_number(h, m, "rope.scaling.attn_factor", by);
}

static void put_rope(wf_gguf_header *h, const wf_nn_gpt_config *m)
{
    const wf_par_gguf_text linear = {"linear", 6}, yarn = {"yarn", 4};
    const bool is_yarn = m->rope_scaling.kind == WF_ROPE_YARN;

    put_number(h, m, "rope.freq_base", m->rope_base);
    put_size(h, m, "rope.dimension_count", wf_nn_gpt_rotary(m));
    if (m->rope_scaling.kind == WF_ROPE_LINEAR || is_yarn) {
        put(h, m, "rope.scaling.type", WF_PAR_GGUF_TEXT, is_yarn ? &yarn : &linear);
        put_number(h, m, "rope.scaling.factor", m->rope_scaling.factor);
    }
    if (is_yarn)
        put_yarn(h, m);
    if (m->rope_scaling.kind == WF_ROPE_LONG) {
        put_size(h, m, "rope.scaling.original_context_length",
                 (int64_t)m->rope_scaling.original_positions);
        put_number(h, m, "rope.scaling.attn_factor", wf_gguf_attention_factor(m));
    }
    wf_gguf_put_windows(h, wf_gguf_architecture(m), m);
    if (wf_gguf_has_long_rope(wf_gguf_architecture(m))) /* without the key llama.cpp warns */
        put_size(h, m, "attention.sliding_window", 0);
}

/* Writes what some architectures alone have. */
static void put_own(wf_gguf_header *h, const wf_nn_gpt_config *m, const char *architecture)
{
    if (m->score_cap > 0)
        put_number(h, m, "attn_logit_softcapping", m->score_cap);
    if (m->logit_cap > 0)
        put_number(h, m, "final_logit_softcapping", m->logit_cap);
    if (wf_gguf_reads(architecture, "use_parallel_residual"))
        put(h, m, "use_parallel_residual", WF_PAR_GGUF_BOOL, &m->parallel);
    if (wf_gguf_is_llama4(architecture))
        put_size(h, m, "interleave_moe_layer_step", wf_gguf_llama4_step(m));
    if (wf_gguf_multiplies_logits(architecture))
        put_number(h, m, "logit_scale", 1 / m->logit_divisor);
}

/* Writes the scale of scores; without one llama.cpp multiplies them with 1 / sqrt(head
   size). */
static void put_scales(wf_gguf_header *h, const wf_nn_gpt_config *m)
{
    if (m->attention_scale > 0)
        put_number(h, m, "attention.scale", m->attention_scale);
    put_number(h, m, "embedding_scale", m->embedding_scale);
    put_number(h, m, "residual_scale", m->residual_scale);
    put_number(h, m, "logit_scale", m->logit_divisor);
}

void wf_gguf_put_config(wf_gguf_header *h, const wf_nn_gpt_config *model)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const bool rms = m.norm == WF_NN_RMSNORM;
    /* one length there, of experts */
    const bool is_mixtral = m.experts && strcmp(wf_gguf_architecture(&m), "llama") == 0;

    put_text(h, "general.architecture", wf_gguf_architecture(&m));
    put_size(h, &m, "block_count", m.layers);
    /* llama.cpp has no windows for some: in texts that one holds whole it has no effect */
    put_size(h, &m, "context_length",
             m.window && !wf_gguf_reads(wf_gguf_architecture(&m), "rope.freq_base_swa") &&
                     !wf_gguf_is_llama4(wf_gguf_architecture(&m))
                 ? m.window
                 : m.positions);
    put_size(h, &m, "embedding_length", m.width);
    put_size(h, &m, "feed_forward_length", is_mixtral ? m.expert_ffn : m.ffn);
    if (m.experts) {
        put_size(h, &m, "expert_count", m.experts);
        put_size(h, &m, "expert_used_count", m.top_k);
    }
    if (m.experts && !is_mixtral)
        put_size(h, &m, "expert_feed_forward_length", m.expert_ffn);
    put_size(h, &m, "attention.head_count", m.heads);
    put_size(h, &m, "attention.head_count_kv", m.kv_heads);
    put_size(h, &m, "attention.key_length", m.head_dim);
    put_size(h, &m, "attention.value_length", m.head_dim);
    put_number(h, &m, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
               m.eps);
    put_size(h, &m, "vocab_size", m.vocabulary);
    if (m.position == WF_NN_ROPE)
        put_rope(h, &m);
    if (wf_gguf_reads_scales(wf_gguf_architecture(&m)))
        put_scales(h, &m);
    put_own(h, &m, wf_gguf_architecture(&m));
}
