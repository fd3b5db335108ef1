/* parallel/models/gpt/gguf_config.c - what model a GGUF file holds: its keys as a config; see the headers. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/gguf_weights_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 128 };

typedef struct source {
    const wf_par_gguf *g;
    const char *path;
    char arch[32];
    wf_error *error;
} source;

/* "ARCHITECTURE.key" */
static const char *full(const source *s, const char *key, char text[KEY])
{
    snprintf(text, KEY, "%s.%s", s->arch, key);
    return text;
}

static bool has(const source *s, const char *key, wf_par_gguf_kind kind)
{
    char text[KEY];

    return wf_par_gguf_find(s->g, full(s, key, text), kind, false) != NULL;
}

/* A size of at least 1; what is there where the key is not, or, with 0 there, an error. */
static int64_t size_or(source *s, const char *key, int64_t standard)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, key, text), WF_PAR_GGUF_I64, false);
    int64_t value = k ? *(const int64_t *)k->values : standard;

    if (value < 1 || value > INT32_MAX)
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: key \"%s\" is %s, and has to be a number from 1 on", s->path,
                     text, k ? "out of its bounds" : "missing");
    return value;
}

/* The shortest decimal of what was rounded to a float: 3.7 where the file has 3.70000005. Configs say decimals. */
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

static double number_or(source *s, const char *key, double standard)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, key, text), WF_PAR_GGUF_F64, false);
    double value = k ? as_decimal(*(const double *)k->values) : standard;

    if (!isfinite(value) || value < 0)
        wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is no number from 0 on", s->path,
                     text);
    return value;
}

static bool has_tensor(const source *s, const char *name)
{
    return wf_gguf_tensor_find(s->g, name) != NULL;
}

/* Keys of an architecture that are read here, or by tokenizers, or say nothing of the computation. */
static const char *const known[] = {"block_count",
                                    "context_length",
                                    "embedding_length",
                                    "feed_forward_length",
                                    "attention.head_count",
                                    "attention.head_count_kv",
                                    "attention.key_length",
                                    "attention.value_length",
                                    "attention.layer_norm_rms_epsilon",
                                    "attention.layer_norm_epsilon",
                                    "attention.scale",
                                    "embedding_scale",
                                    "residual_scale",
                                    "logit_scale",
                                    "vocab_size",
                                    "rope.freq_base",
                                    "rope.dimension_count",
                                    "rope.scaling.type",
                                    "rope.scaling.factor",
                                    "rope.scaling.finetuned",
                                    "rope.scaling.original_context_length",
                                    "tensor_data_layout"};

/* Keys that change the computation, and may be there as long as they are 0. */
static const char *const refused[] = {"expert_count",
                                      "attention.sliding_window",
                                      "attn_logit_softcapping",
                                      "final_logit_softcapping",
                                      "attention.max_alibi_bias",
                                      "attention.clamp_kqv",
                                      "attention.relative_buckets_count"};

static wf_status check_refused(source *s)
{
    char text[KEY];

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        bool some = (has(s, refused[i], WF_PAR_GGUF_I64) &&
                     *(const int64_t *)wf_par_gguf_find(s->g, full(s, refused[i], text),
                                                        WF_PAR_GGUF_I64, false)
                          ->values) ||
                    (has(s, refused[i], WF_PAR_GGUF_F64) && number_or(s, refused[i], 0) > 0);

        if (some)
            return wf_error_set(s->error, WF_EUNSUPPORTED,
                                "%.900s: key \"%s\" says of the model what no model here has",
                                s->path, full(s, refused[i], text));
    }
    return s->error->code;
}

static bool is_listed(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

static void find_unknown(const source *s, char *text, size_t size)
{
    size_t n = strlen(s->arch), used = 0;

    for (int64_t i = 0; i < s->g->keys; i++) {
        const char *key = s->g->key[i].key;

        if (strncmp(key, s->arch, n) != 0 || key[n] != '.' || used + 80 > size ||
            is_listed(key + n + 1, known, sizeof known / sizeof *known) ||
            is_listed(key + n + 1, refused, sizeof refused / sizeof *refused))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%.60s", used ? ", " : "", key);
    }
    wf_text_visible(text);
}

static void read_sizes(source *s, wf_nn_gpt_config *m)
{
    const wf_gguf_tensor *table = wf_gguf_tensor_find(s->g, "token_embd.weight");
    int64_t values;

    m->layers = size_or(s, "block_count", 0);
    m->positions = size_or(s, "context_length", 0);
    m->width = size_or(s, "embedding_length", 0);
    m->ffn = size_or(s, "feed_forward_length", 0);
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

static void read_scaling(source *s, wf_nn_gpt_config *m)
{
    char text[KEY];
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, full(s, "rope.scaling.type", text), WF_PAR_GGUF_TEXT, false);
    const wf_par_gguf_text *type = k ? k->values : NULL;

    if (!type || (type->bytes == 4 && memcmp(type->text, "none", 4) == 0))
        return;
    if (type->bytes != 6 || memcmp(type->text, "linear", 6) != 0) {
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: key \"%s\" is neither none nor linear, which are what is read",
                     s->path, text);
        return;
    }
    m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LINEAR,
                                        .factor = number_or(s, "rope.scaling.factor", 1)};
}

/* Llama 3.1's scaling is in a file as what each frequency is divided by. The four numbers that it is made of are
   those of the published models, but for the factor, which is the largest of what is there. */
static void read_factors(source *s, const wf_file *file, wf_nn_gpt_config *m)
{
    enum { MOST = 1024 };
    const wf_gguf_tensor *t = wf_gguf_tensor_find(s->g, "rope_freqs.weight");
    int64_t pairs = m->head_dim / 2;
    float theirs[MOST], ours[MOST], most = 0;
    bool same = true;

    if (!t || s->error->code != WF_OK)
        return;
    if (t->ndim != 1 || t->type != WF_GGUF_F32 || t->shape[0] != pairs || pairs > MOST) {
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: tensor \"%s\" is not one F32 for each pair of a head", s->path,
                     t->name);
        return;
    }
    if (wf_file_read(file, theirs, (size_t)t->bytes, s->g->data + t->begin, s->error) != WF_OK)
        return;
    for (int64_t i = 0; i < pairs; i++)
        most = theirs[i] > most ? theirs[i] : most;
    m->rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_LLAMA3,
                                        .factor = (double)most,
                                        .low_freq_factor = 1,
                                        .high_freq_factor = 4,
                                        .original_positions = 8192};
    wf_gguf_rope_factors(m, ours);
    for (int64_t i = 0; i < pairs; i++)
        same = same && fabsf(ours[i] - theirs[i]) <= 1e-5f * ours[i];
    if (!same)
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "%.900s: the factors in \"%s\" are not those of Llama 3.1's scaling with "
                     "the frequency factors 1 and 4 and 8192 positions, which are what is read",
                     s->path, t->name);
}

static void read_properties(source *s, wf_nn_gpt_config *m)
{
    m->qkv_bias = has_tensor(s, "blk.0.attn_q.bias") || has_tensor(s, "blk.0.attn_qkv.bias");
    m->out_bias = has_tensor(s, "blk.0.attn_output.bias");
    m->mlp_bias = has_tensor(s, "blk.0.ffn_down.bias");
    m->tied = !has_tensor(s, "output.weight");
    m->eps = (float)number_or(s,
                              m->norm == WF_NN_RMSNORM ? "attention.layer_norm_rms_epsilon"
                                                       : "attention.layer_norm_epsilon",
                              1e-5);
    if (m->position == WF_NN_ROPE)
        m->rope_base = number_or(s, "rope.freq_base", 10000);
    m->attention_scale = number_or(s, "attention.scale", 0);
    m->embedding_scale = number_or(s, "embedding_scale", 0);
    m->residual_scale = number_or(s, "residual_scale", 0);
    m->logit_divisor = number_or(s, "logit_scale", 0);
}

static wf_status find_architecture(source *s, wf_nn_gpt_config *m)
{
    const wf_par_gguf_key *k =
        wf_par_gguf_find(s->g, "general.architecture", WF_PAR_GGUF_TEXT, false);
    const wf_par_gguf_text *text = k ? k->values : NULL;
    const wf_nn_gpt_config *family;

    if (!text)
        return wf_error_set(s->error, WF_EDATA,
                            "%.900s: key \"general.architecture\" is missing", s->path);
    snprintf(s->arch, sizeof s->arch, "%.*s", (int)(text->bytes < 31 ? text->bytes : 31),
             text->text);
    family = wf_nn_gpt_family(s->arch);
    if (!family || !wf_gguf_is_architecture(s->arch))
        return wf_error_set(s->error, WF_EUNSUPPORTED,
                            "%.900s: key \"general.architecture\" is %s, and what is read are "
                            "gpt2, llama, qwen2, qwen3, smollm3 and granite",
                            s->path, wf_text_visible(s->arch));
    *m = *family;
    return WF_OK;
}

wf_status wf_gguf_config(wf_gguf_weights *w, wf_error *error)
{
    source s = {.g = &w->header, .path = w->file.path, .error = error};
    wf_nn_gpt_config *m = &w->model;
    const char *made;

    if (find_architecture(&s, m) != WF_OK || check_refused(&s) != WF_OK)
        return error->code;
    read_sizes(&s, m);
    if (error->code == WF_OK)
        read_properties(&s, m);
    if (error->code == WF_OK && size_or(&s, "rope.dimension_count", m->head_dim) != m->head_dim)
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%.900s: key \"%s.rope.dimension_count\" says that a part of a head turns",
                     s.path, s.arch);
    if (error->code == WF_OK)
        read_scaling(&s, m);
    read_factors(&s, &w->file, m);
    find_unknown(&s, w->unknown, sizeof w->unknown);
    made = wf_gguf_architecture(m);
    if (error->code == WF_OK && (!made || strcmp(made, s.arch) != 0))
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%.900s: it has biases, norms or scales that a %s of llama.cpp has in no "
                     "file that is read here",
                     s.path, s.arch);
    return error->code;
}
