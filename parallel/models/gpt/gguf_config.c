/* parallel/models/gpt/gguf_config.c - what model a GGUF file holds: its keys as a config; see
   the headers. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/gguf_weights_internal.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 128 };

typedef struct source {
    const wf_par_gguf *g;
    const char *path, *arch;
    bool *used; /* the file's: what the config is read from counts as read */
    wf_error *error;
} source;

/* "ARCHITECTURE.key" */
static const char *full(const source *s, const char *key, char text[KEY])
{
    snprintf(text, KEY, "%s.%s", s->arch, key);
    return text;
}

/* Reads a size of at least 1; the default where the key is missing, or, with default 0, an
   error. */
static int64_t size_or(source *s, const char *key, int64_t standard)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, key, text), WF_PAR_GGUF_I64, false, s->error);
    int64_t value = k ? *(const int64_t *)k->values : standard;

    if (s->error->code == WF_OK && (value < 1 || value > INT32_MAX))
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: key \"%s\" is %s, and has to be a number from 1 on", s->path,
                     text, k ? "out of its bounds" : "missing");
    return value;
}

/* The shortest decimal of what was rounded to a float: 3.7 where the file has 3.70000005.
   Configs say decimals. */
static double as_decimal(double x)
{
    char text[32] = "";
    const float rounded = (float)x;

    if (!isfinite(x) || (double)rounded != x)
        return x;
    for (int digits = 6; digits <= 9 && (digits == 6 || strtof(text, NULL) != rounded);
         digits++)
        snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/* Reads a number from 0 on; the default where the key is missing, or, with default NAN, an
   error. */
static double number_or(source *s, const char *key, double standard)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, key, text), WF_PAR_GGUF_F64, false, s->error);
    double value = k ? as_decimal(*(const double *)k->values) : standard;

    if (s->error->code == WF_OK && !k && isnan(value))
        wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is missing", s->path, text);
    if (s->error->code == WF_OK && (!isfinite(value) || value < 0))
        wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is no number from 0 on", s->path,
                     text);
    return value;
}

/* Reads a number between bounds, of which 0 is none: in a config it is a default. */
static double number_in(source *s, const char *key, double standard, double low, double high)
{
    double value = number_or(s, key, standard);

    if (s->error->code == WF_OK && (value < low || value > high))
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: key \"%s.%s\" is %g, and it has to lie in [%g, %g]", s->path,
                     s->arch, key, value, low, high);
    return value;
}

static bool has_tensor(const source *s, const char *name)
{
    return wf_gguf_tensor_find(s->g, name) != NULL;
}

static bool has_long_rope(const source *s)
{
    return wf_gguf_has_long_rope(s->arch);
}

static void read_sizes(source *s, wf_nn_gpt_config *m)
{
    const wf_gguf_tensor *table = wf_gguf_tensor_find(s->g, "token_embd.weight");
    int64_t values;

    m->layers = size_or(s, "block_count", 0);
    m->positions = size_or(s, "context_length", 0);
    m->width = size_or(s, "embedding_length", 0);
    m->ffn = size_or(s, "feed_forward_length", 0);
    if (m->experts) {
        m->experts = size_or(s, "expert_count", 0);
        m->top_k = size_or(s, "expert_used_count", 0);
        m->expert_ffn = size_or(s, "expert_feed_forward_length", m->ffn);
        m->router_normalised = true; /* llama.cpp's are */
    }
    m->heads = size_or(s, "attention.head_count", 0);
    m->kv_heads = size_or(s, "attention.head_count_kv", m->heads);
    if (s->error->code != WF_OK)
        return;
    m->head_dim = size_or(s, "attention.key_length", m->width / m->heads);
    values = size_or(s, "attention.value_length", m->head_dim);
    m->vocabulary = size_or(s, "vocab_size", table ? table->shape[0] : 0);
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

/* llama.cpp's reader: without a type a factor is linear, and an older key stands in for it; 0
   is none. */
static void read_scaling(source *s, wf_nn_gpt_config *m)
{
    char text[KEY];
    const wf_par_gguf_key *k = wf_par_gguf_find(s->g, full(s, "rope.scaling.type", text),
                                                WF_PAR_GGUF_TEXT, false, s->error);
    const wf_par_gguf_text *type = k ? k->values : NULL;
    double factor;

    if (type && type->bytes == 4 && memcmp(type->text, "none", 4) == 0)
        return;
    if (type && (type->bytes != 6 || memcmp(type->text, "linear", 6) != 0)) {
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: key \"%s\" is neither none nor linear, which are what is read",
                     s->path, text);
        return;
    }
    factor = number_or(s, "rope.scaling.factor", number_or(s, "rope.scale_linear", 0));
    if (factor != 0 && factor != 1)
        m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LINEAR, .factor = factor};
}

/* Refuses a factor of cosines and sines where nothing here multiplies with one. */
static void check_attention_factor(source *s, const wf_nn_gpt_config *m)
{
    if (m->rope_scaling.kind != WF_ROPE_LONG && s->error->code == WF_OK &&
        number_or(s, "rope.scaling.attn_factor", 1) != 1 && s->error->code == WF_OK)
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: key \"%s.rope.scaling.attn_factor\" is read beside two lists of "
                     "factors alone",
                     s->path, s->arch);
}

/* A vector of one F32 for each of some pairs of a head; false: it is not there, or an error. */
static bool read_pairs(source *s, const wf_file *file, const char *name, int64_t pairs,
                       int64_t most, float *to)
{
    const wf_gguf_tensor *t = wf_gguf_tensor_find(s->g, name);

    if (!t || s->error->code != WF_OK)
        return false;
    s->used[t - s->g->tensor] = true;
    if (t->ndim != 1 || t->type != WF_GGUF_F32 || t->shape[0] != pairs || pairs > most)
        wf_error_set(
            s->error, WF_EDATA,
            "%.900s: tensor \"%s\" is not one F32 for each pair of a head that is rotated",
            s->path, t->name);
    else
        wf_file_read(file, to, (size_t)t->bytes, s->g->data + t->begin, s->error);
    return s->error->code == WF_OK;
}

/* Llama 3.1's scaling is in a file as what each frequency is divided by. */
static void read_factors(source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    enum { MOST = 1024 };
    static const char name[] = "rope_freqs.weight";
    float factors[MOST];

    if (!read_pairs(s, file, name, m->head_dim / 2, MOST, factors))
        return;
    if (m->rope_scaling.kind != WF_ROPE_UNSCALED || m->position != WF_NN_ROPE)
        wf_error_set(
            s->error, WF_EDATA,
            "%.900s: tensor \"%s\" scales what keys scale already, or what is not rotated",
            s->path, name);
    else if (!wf_gguf_find_scaling(m, factors))
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: the factors in \"%s\" are of no scaling as Llama 3.1 has it",
                     s->path, name);
}

/* Two lists of factors; without the key llama.cpp multiplies with 1. */
static void read_long_factors(source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    wf_rope_factors f = {.count = wf_nn_gpt_rotary(m) / 2};
    double factor;

    if (!read_pairs(s, file, WF_GGUF_LONG_FACTORS, f.count, WF_ROPE_PAIRS, f.long_factor) ||
        !read_pairs(s, file, WF_GGUF_SHORT_FACTORS, f.count, WF_ROPE_PAIRS, f.short_factor))
        return;
    m->rope_factors = f;
    m->rope_scaling = (wf_rope_scaling){
        .kind = WF_ROPE_LONG,
        .original_positions = (double)size_or(s, "rope.scaling.original_context_length", 0)};
    factor = number_or(s, "rope.scaling.attn_factor", 1);
    if (s->error->code == WF_OK && (float)wf_gguf_attention_factor(m) != (float)factor)
        m->rope_scaling.attention_factor = factor;
}

/* Reads the features of a head that rotate, and the keys that Phi-3 alone has. */
static void read_rotation(source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    int64_t turns = size_or(s, "rope.dimension_count", m->head_dim);
    const char *wrong;
    char text[KEY];

    if (s->error->code != WF_OK)
        return;
    if (turns != m->head_dim && (!wf_gguf_part_rotates(s->arch) || turns > m->head_dim)) {
        wf_error_set(
            s->error, WF_EUNSUPPORTED,
            "%.900s: key \"%s.rope.dimension_count\" says that a part of a head is rotated",
            s->path, s->arch);
        return;
    }
    m->rotary = (double)turns / (double)m->head_dim;
    if (has_long_rope(s)) {
        const wf_par_gguf_key *k = wf_par_gguf_find(
            s->g, full(s, "attention.sliding_window", text), WF_PAR_GGUF_I64, false, s->error);

        m->window =
            k && *(const int64_t *)k->values < m->positions ? *(const int64_t *)k->values : 0;
        if (m->window < 0)
            wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is less than 0", s->path,
                         text);
    }
    read_scaling(s, m);
    if (has_long_rope(s))
        read_long_factors(s, file, m);
    check_attention_factor(s, m);
    wrong = s->error->code == WF_OK ? wf_nn_gpt_rope_wrong(m) : NULL;
    if (wrong)
        wf_error_set(s->error, WF_EDATA, "%.900s: its keys of RoPE: %s", s->path, wrong);
    else
        read_factors(s, file, m);
}

static void read_properties(source *s, wf_nn_gpt_config *m)
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
    m->attention_scale = number_or(s, "attention.scale", 0);
    if (m->embedding_scale == WF_NN_SQRT_WIDTH)
        number_or(s, "embedding_scale", 0);
    else
        m->embedding_scale = number_or(s, "embedding_scale", 0);
    m->residual_scale = number_or(s, "residual_scale", 0);
    m->logit_divisor = number_or(s, "logit_scale", 0);
    if (wf_gguf_multiplies_logits(s->arch) && m->logit_divisor > 0) {
        char text[32]; /* in as many digits as a config.json's inverse has (wf_hf_derived) */

        snprintf(text, sizeof text, "%.9g", 1 / m->logit_divisor);
        m->logit_divisor = strtod(text, NULL);
    }
}

/* Reads what some architectures alone have. */
static void read_own(source *s, wf_nn_gpt_config *m)
{
    const bool gemma2 = wf_gguf_reads(s->arch, "attn_logit_softcapping") && !m->qk_norm;
    char text[KEY];
    const wf_par_gguf_key *k;

    if (wf_gguf_reads(s->arch, "attn_logit_softcapping")) {
        m->score_cap = number_or(s, "attn_logit_softcapping", gemma2 ? 50 : 0);
        m->logit_cap = number_or(s, "final_logit_softcapping", gemma2 ? 30 : 0);
        m->attention_scale = wf_gguf_scale_by_depth(m);
    }
    if (wf_gguf_reads(s->arch, "use_parallel_residual") && m->shared_norm)
        m->parallel = !has_tensor(s, "blk.0.ffn_norm.weight"); /* as llama.cpp's StableLM */
    else if (wf_gguf_reads(s->arch, "use_parallel_residual")) {
        k = wf_par_gguf_find(s->g, full(s, "use_parallel_residual", text), WF_PAR_GGUF_BOOL,
                             false, s->error);
        m->parallel = k && *(const bool *)k->values;
        if (!k && s->error->code == WF_OK)
            wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is missing", s->path, text);
    }
    m->shared_norm = m->shared_norm && m->parallel;
}

/* Returns true where a file has a mixture of experts. */
static bool has_experts(source *s)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, "expert_count", text), WF_PAR_GGUF_I64, false, s->error);

    return k && *(const int64_t *)k->values > 0;
}

static wf_status find_architecture(source *s, char arch[32], wf_nn_gpt_config *m)
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
    source s = {.g = &w->header,
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
    if (error->code == WF_OK)
        read_rotation(&s, &w->file, m);
    if (error->code == WF_OK && !wf_gguf_fits(s.arch, m))
        wf_error_set(
            error, WF_EUNSUPPORTED,
            "%.900s: it has biases, norms, scales or experts that a %s of llama.cpp has in no "
            "file that is read here",
            s.path, s.arch);
    return error->code;
}
