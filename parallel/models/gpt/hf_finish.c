/* parallel/models/gpt/hf_finish.c - what keys of a config.json make together; see
   hf_config_internal.h. */
#include "parallel/models/gpt/hf_config_internal.h"

/* Texts of dynamic scaling are scaled beyond max_position_embeddings, and here up to the factor
   times as long. */
static wf_status find_dynamic(const wf_json_source *s, wf_nn_gpt_config *m)
{
    wf_rope_scaling *r = &m->rope_scaling;
    const double original = (double)m->positions, longest = r->factor * original;

    if (r->kind != WF_ROPE_DYNAMIC)
        return WF_OK;
    if (r->original_positions > 0 && r->original_positions != original)
        return wf_error_set(
            s->error, WF_EUNSUPPORTED,
            "%s: \"original_max_position_embeddings\" is %g beside \"max_position_embeddings\" "
            "%g: RoPE of type dynamic is scaled beyond the second, as transformers do; leave "
            "the "
            "first out",
            s->name, r->original_positions, original);
    r->original_positions = original;
    if (r->factor >= 1 && longest <= 1 << 24)
        m->positions = (int64_t)longest;
    return WF_OK;
}

/* Completes a model. Without a list of layers those have chunks that rotate. */
static wf_nn_gpt_config completed(wf_nn_gpt_config *m)
{
    if (m->window_chunks && !wf_nn_blocks_count(&m->window_blocks))
        m->window_skip = m->rope_skip;
    return wf_nn_gpt_complete(m);
}

wf_status wf_hf_config_finish(const wf_json_source *s, wf_nn_gpt_config *m)
{
    const wf_status status = find_dynamic(s, m);
    const char *wrong = wf_nn_gpt_rope_wrong(m);
    const wf_nn_gpt_config whole = completed(m); /* a window that holds all is none */

    if (status != WF_OK)
        return status;
    m->window = whole.window;
    m->window_first = whole.window_first;
    m->window_skip = whole.window_skip;
    m->window_blocks = whole.window_blocks;
    m->dense_blocks = whole.dense_blocks;
    m->experts = whole.experts;
    m->rope_factors = whole.rope_factors;
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->ffn)
        m->ffn = 4 * m->width;
    if (m->head_dim == m->width / m->heads && m->width % m->heads == 0)
        m->head_dim = 0;
    if (m->rope_scaling.kind == WF_ROPE_UNSCALED)
        m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_UNSCALED};
    if (wrong)
        return wf_error_set(
            s->error, WF_EDATA,
            "%s: RoPE is scaled with \"factor\" %g, \"low_freq_factor\" %g, "
            "\"high_freq_factor\" %g, \"original_max_position_embeddings\" %g: %s",
            s->name, m->rope_scaling.factor, m->rope_scaling.low_freq_factor,
            m->rope_scaling.high_freq_factor, m->rope_scaling.original_positions, wrong);
    if ((m->head_dim || m->width % m->heads == 0) && m->heads % m->kv_heads == 0)
        return WF_OK;
    return wf_error_set(s->error, WF_EDATA,
                        "%s: %lld heads do not divide a width of %lld, or %lld key-value heads "
                        "do not divide those",
                        s->name, (long long)m->heads, (long long)m->width,
                        (long long)m->kv_heads);
}
