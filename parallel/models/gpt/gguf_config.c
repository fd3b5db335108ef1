/* parallel/models/gpt/gguf_config.c - what model a GGUF file holds: its keys as a config; see
   the headers. */
#include "parallel/models/gpt/gguf_source_internal.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number between bounds, of which 0 is none: in a config it is a default. */
static double number_in(wf_gguf_source *s, const char *key, double standard, double low,
                        double high)
{
    double value = wf_gguf_number_or(s, key, standard);

    if (s->error->code == WF_OK && (value < low || value > high))
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: key \"%s.%s\" is %g, and it has to lie in [%g, %g]", s->path,
                     s->arch, key, value, low, high);
    return value;
}

static bool has_tensor(const wf_gguf_source *s, const char *name)
{
    return wf_gguf_tensor_find(s->g, name) != NULL;
}

static void read_sizes(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    const wf_gguf_tensor *table = wf_gguf_tensor_find(s->g, "token_embd.weight");
    int64_t values;

    m->layers = wf_gguf_size_or(s, "block_count", 0);
    m->positions = wf_gguf_size_or(s, "context_length", 0);
    m->width = wf_gguf_size_or(s, "embedding_length", 0);
    m->ffn = wf_gguf_size_or(s, "feed_forward_length", 0);
    if (m->experts) {
        m->experts = wf_gguf_size_or(s, "expert_count", 0);
        m->top_k = wf_gguf_size_or(s, "expert_used_count", 0);
        m->expert_ffn = wf_gguf_size_or(s, "expert_feed_forward_length", m->ffn);
        m->router_normalised = m->router == WF_NN_SOFTMAX; /* llama.cpp's are */
    }
    m->heads = wf_gguf_size_or(s, "attention.head_count", 0);
    m->kv_heads = wf_gguf_size_or(s, "attention.head_count_kv", m->heads);
    if (s->error->code != WF_OK)
        return;
    m->head_dim = wf_gguf_size_or(s, "attention.key_length", m->width / m->heads);
    values = wf_gguf_size_or(s, "attention.value_length", m->head_dim);
    m->vocabulary = wf_gguf_size_or(s, "vocab_size", table ? table->shape[0] : 0);
    if (s->error->code == WF_OK && (values != m->head_dim || m->heads % m->kv_heads))
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: values of %lld elements beside keys of %lld, and %lld heads for "
                     "%lld of keys: the ones have to be equal, the others multiples",
                     s->path, (long long)values, (long long)m->head_dim, (long long)m->heads,
                     (long long)m->kv_heads);
    /* each layer is built before anything can be compared with the tensors that there are */
    if (s->error->code == WF_OK && m->layers > s->g->tensors)
        wf_error_set(s->error, WF_EDATA, "%.900s: it has %lld layers of %lld tensors in all",
                     s->path, (long long)m->layers, (long long)s->g->tensors);
}

static void read_properties(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    m->qkv_bias = has_tensor(s, "blk.0.attn_q.bias") || has_tensor(s, "blk.0.attn_qkv.bias");
    m->out_bias = has_tensor(s, "blk.0.attn_output.bias");
    m->mlp_bias = has_tensor(s, "blk.0.ffn_down.bias");
    m->tied = !has_tensor(s, "output.weight");
    m->eps = (float)number_in(s,
                              m->norm == WF_NN_RMSNORM ? "attention.layer_norm_rms_epsilon"
                                                       : "attention.layer_norm_epsilon",
                              NAN, FLT_MIN, 1);
    if (m->position == WF_NN_ROPE)
        m->rope_base = number_in(s, "rope.freq_base", 10000, 1, 1e12);
    m->attention_scale = wf_gguf_number_or(s, "attention.scale", 0);
    if (m->embedding_scale == WF_NN_SQRT_WIDTH)
        wf_gguf_number_or(s, "embedding_scale", 0);
    else
        m->embedding_scale = wf_gguf_number_or(s, "embedding_scale", 0);
    m->residual_scale = wf_gguf_number_or(s, "residual_scale", 0);
    m->logit_divisor = wf_gguf_number_or(s, "logit_scale", 0);
    if (wf_gguf_multiplies_logits(s->arch) && m->logit_divisor > 0) {
        char text[32]; /* in as many digits as a config.json's inverse has (wf_hf_derived) */

        snprintf(text, sizeof text, "%.9g", 1 / m->logit_divisor);
        m->logit_divisor = strtod(text, NULL);
    }
}

/* Reads what some architectures alone have. */
static void read_own(wf_gguf_source *s, wf_nn_gpt_config *m)
{
    const bool gemma2 = wf_gguf_reads(s->arch, "attn_logit_softcapping") && !m->qk_norm;
    char text[WF_GGUF_KEY];
    const wf_par_gguf_key *k;

    if (wf_gguf_reads(s->arch, "attn_logit_softcapping")) {
        m->score_cap = wf_gguf_number_or(s, "attn_logit_softcapping", gemma2 ? 50 : 0);
        m->logit_cap = wf_gguf_number_or(s, "final_logit_softcapping", gemma2 ? 30 : 0);
        m->attention_scale = wf_gguf_scale_by_depth(m);
    }
    if (wf_gguf_reads(s->arch, "use_parallel_residual") && m->shared_norm)
        m->parallel = !has_tensor(s, "blk.0.ffn_norm.weight"); /* as llama.cpp's StableLM */
    else if (wf_gguf_reads(s->arch, "use_parallel_residual")) {
        k = wf_par_gguf_find(s->g, wf_gguf_full_key(s, "use_parallel_residual", text),
                             WF_PAR_GGUF_BOOL, false, s->error);
        m->parallel = k && *(const bool *)k->values;
        if (!k && s->error->code == WF_OK)
            wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is missing", s->path, text);
    }
    m->shared_norm = m->shared_norm && m->parallel;
}

/* Returns true where a file has a mixture of experts. */
static bool has_experts(wf_gguf_source *s)
{
    char text[WF_GGUF_KEY];
    const wf_par_gguf_key *k = wf_par_gguf_find(s->g, wf_gguf_full_key(s, "expert_count", text),
                                                WF_PAR_GGUF_I64, false, s->error);

    return k && *(const int64_t *)k->values > 0;
}

static wf_status find_architecture(wf_gguf_source *s, char arch[32], wf_nn_gpt_config *m)
{
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, "general.architecture", WF_PAR_GGUF_TEXT, false, s->error);
    const wf_par_gguf_text *text = k ? k->values : NULL;
    const wf_nn_gpt_config *family;
    char known[512];

    if (s->error->code != WF_OK)
        return s->error->code;
    if (!text)
        return wf_error_set(s->error, WF_EDATA,
                            "%.900s: key \"general.architecture\" is missing", s->path);
    snprintf(arch, 32, "%.*s", (int)(text->bytes < 31 ? text->bytes : 31), text->text);
    family = wf_gguf_family(s->arch, has_experts(s));
    if (s->error->code != WF_OK)
        return s->error->code;
    if (!family && wf_gguf_is_architecture(s->arch))
        return wf_error_set(s->error, WF_EUNSUPPORTED,
                            "%.900s: it is a %s %s experts (\"%s.expert_count\"), which is not "
                            "read",
                            s->path, s->arch, has_experts(s) ? "with" : "without", s->arch);
    if (!family) {
        wf_gguf_architectures(known, sizeof known);
        return wf_error_set(
            s->error, WF_EUNSUPPORTED,
            "%.900s: key \"general.architecture\" is %s, and what is read are %s", s->path,
            wf_text_visible(arch), known);
    }
    *m = *family;
    return WF_OK;
}

wf_status wf_gguf_config(wf_gguf_weights *w, wf_error *error)
{
    wf_gguf_source s = {.g = &w->header,
                        .path = w->file.path,
                        .arch = w->architecture,
                        .used = w->used,
                        .error = error};
    wf_nn_gpt_config *m = &w->model;

    if (find_architecture(&s, w->architecture, m) != WF_OK ||
        wf_gguf_keys_check(&w->header, s.path, s.arch, error) != WF_OK)
        return error->code;
    read_sizes(&s, m);
    if (error->code == WF_OK)
        read_properties(&s, m);
    if (error->code == WF_OK)
        read_own(&s, m);
    if (error->code == WF_OK && m->position == WF_NN_ROPE)
        wf_gguf_read_windows(s.g, s.path, s.arch, m, error);
    if (error->code == WF_OK && wf_gguf_is_llama4(s.arch))
        wf_gguf_read_llama4(&s, m);
    if (error->code == WF_OK)
        wf_gguf_read_rotation(&s, &w->file, m);
    if (error->code == WF_OK && !wf_gguf_fits(s.arch, m))
        wf_error_set(
            error, WF_EUNSUPPORTED,
            "%.900s: it has biases, norms, scales or experts that a %s of llama.cpp has in no "
            "file that is read here",
            s.path, s.arch);
    return error->code;
}
