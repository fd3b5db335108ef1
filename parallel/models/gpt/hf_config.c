/* parallel/models/gpt/hf_config.c - config.json of GPT-2 and Llama; see the header. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/formats/json_internal.h"
#include "parallel/models/gpt/hf_identity_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 20, CONFIG_DEPTH = 16, WORD = 64 };

static const int64_t most_layers = 65536, most_width = 1 << 20, most_ffn = 1 << 24;

static wf_status other(const wf_json_source *s, const char *key, const char *value,
                       const char *way)
{
    return wf_error_set(s->error, WF_EUNSUPPORTED, "%s: \"%s\" is %s, and Weft's model has %s",
                        s->name, key, value, way);
}

/* A key that has to say what Weft does, where it is there at all. */
static wf_status need_bool(const wf_json_source *s, const char *key, bool want, const char *way)
{
    bool value;
    wf_status status = wf_json_bool(s, key, &want, &value);

    if (status == WF_OK && value != want)
        status = other(s, key, value ? "true" : "false", way);
    return status;
}

static wf_status need_word(const wf_json_source *s, const char *key, const char *standard,
                           const char *want, const char *or_want)
{
    const char *value;
    wf_status status = wf_json_text(s, key, WORD, standard, &value);

    if (status == WF_OK && strcmp(value, want) != 0 && strcmp(value, or_want) != 0)
        status = other(s, key, value, want);
    return status;
}

static wf_status need_nothing(const wf_json_source *s, const char *key, const char *way)
{
    const json_t *value = json_object_get(s->object, key);

    return !value || json_is_null(value) ? WF_OK : other(s, key, "given", way);
}

static wf_status take_int(const wf_json_source *s, const char *key, int64_t most,
                          const int64_t *standard, int64_t *value)
{
    return wf_json_int(s, key, 1, most, standard, value);
}

static wf_status take_eps(const wf_json_source *s, const char *key, double standard, float *eps)
{
    double value = standard;
    wf_status status = wf_json_real(s, key, 1e-12, 1, &standard, &value);

    *eps = (float)value;
    return status;
}

static wf_status check_heads(const wf_json_source *s, const wf_nn_gpt_config *m)
{
    if ((m->head_dim || m->width % m->heads == 0) && m->heads % m->kv_heads == 0)
        return WF_OK;
    return wf_error_set(s->error, WF_EDATA,
                        "%s: %lld heads do not divide a width of %lld, or %lld key-value heads "
                        "do not divide those",
                        s->name, (long long)m->heads, (long long)m->width,
                        (long long)m->kv_heads);
}

static wf_status parse_gpt2(const wf_json_source *s, wf_hf_config *c)
{
    const bool yes = true;
    wf_nn_gpt_config *m = &c->model;
    wf_status status = take_int(s, "n_layer", most_layers, NULL, &m->layers);
    int64_t ffn;

    m->arch = WF_NN_GPT2;
    if (status == WF_OK)
        status = take_int(s, "n_head", most_width, NULL, &m->heads);
    if (status == WF_OK)
        status = take_int(s, "n_embd", most_width, NULL, &m->width);
    ffn = 4 * m->width;
    if (status == WF_OK)
        status = take_int(s, "n_inner", most_ffn, &ffn, &m->ffn);
    if (status == WF_OK)
        status = take_int(s, "n_positions", most_ffn, NULL, &m->positions);
    if (status == WF_OK)
        status = take_eps(s, "layer_norm_epsilon", 1e-5, &m->eps);
    if (status == WF_OK)
        status =
            need_word(s, "activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh");
    if (status == WF_OK)
        status = need_bool(s, "scale_attn_weights", true, "scaled attention");
    if (status == WF_OK)
        status = need_bool(s, "scale_attn_by_inverse_layer_idx", false,
                           "the same scale in every layer");
    if (status == WF_OK)
        status = need_bool(s, "add_cross_attention", false, "no cross-attention");
    if (status == WF_OK)
        status = wf_json_bool(s, "tie_word_embeddings", &yes, &c->tied);
    if (status == WF_OK && !c->tied)
        status = other(s, "tie_word_embeddings", "false", "a tied head with gpt2");
    m->kv_heads = m->heads;
    return status;
}

/* A scaling of the rotation; its numbers have no defaults. */
static wf_status parse_scaling(const wf_json_source *rope, const char *type,
                               wf_rope_scaling *scaling)
{
    const double least = 1e-6, most = 1e9;
    wf_status status = wf_json_real(rope, "factor", least, most, NULL, &scaling->factor);

    if (strcmp(type, "linear") == 0) {
        scaling->kind = WF_ROPE_LINEAR;
        return status;
    }
    scaling->kind = WF_ROPE_LLAMA3;
    if (status == WF_OK)
        status =
            wf_json_real(rope, "low_freq_factor", least, most, NULL, &scaling->low_freq_factor);
    if (status == WF_OK)
        status = wf_json_real(rope, "high_freq_factor", least, most, NULL,
                              &scaling->high_freq_factor);
    if (status == WF_OK)
        status = wf_json_real(rope, "original_max_position_embeddings", 1, most, NULL,
                              &scaling->original_positions);
    if (status == WF_OK && scaling->high_freq_factor <= scaling->low_freq_factor)
        status = wf_error_set(rope->error, WF_EDATA,
                              "%s: \"high_freq_factor\" is %g, which is not more than the "
                              "\"low_freq_factor\" %g",
                              rope->name, scaling->high_freq_factor, scaling->low_freq_factor);
    return status;
}

/* What "rope_parameters", or in older configs "rope_scaling", says. */
static wf_status parse_rope_object(const wf_json_source *rope, wf_nn_gpt_config *m)
{
    const double above = m->rope_base, whole = 1;
    const char *older, *type = NULL;
    double rotated;
    wf_status status = wf_json_text(rope, "type", WORD, "default", &older);

    if (status == WF_OK)
        status = wf_json_text(rope, "rope_type", WORD, older, &type);
    if (status == WF_OK)
        status = wf_json_real(rope, "rope_theta", 1, 1e12, &above, &m->rope_base);
    if (status == WF_OK)
        status = wf_json_real(rope, "partial_rotary_factor", 1, 1, &whole, &rotated);
    if (status != WF_OK || strcmp(type, "default") == 0)
        return status;
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0)
        return other(rope, "rope_type", type, "default, linear and llama3");
    return parse_scaling(rope, type, &m->rope_scaling);
}

/* The base of the rotation, in newer configs below "rope_parameters", and how it is scaled. */
static wf_status parse_rope(const wf_json_source *s, wf_nn_gpt_config *m)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    const double standard = 10000;
    wf_status status = wf_json_real(s, "rope_theta", 1, 1e12, &standard, &m->rope_base);

    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == WF_OK; i++) {
        wf_json_source rope = {s->name, json_object_get(s->object, keys[i]), s->error};

        if (!rope.object || json_is_null(rope.object))
            continue;
        if (!json_is_object(rope.object))
            return wf_error_set(s->error, WF_EDATA, "%s: \"%s\" is no object", s->name,
                                keys[i]);
        status = parse_rope_object(&rope, m);
    }
    return status;
}

/* A window has no effect on sequences that it holds whole: the model takes those. */
static wf_status parse_window(const wf_json_source *s, wf_nn_gpt_config *m)
{
    int64_t window = m->positions;
    wf_status status = take_int(s, "sliding_window", most_ffn, &window, &window);

    if (status == WF_OK && window < m->positions)
        m->positions = window;
    return status;
}

static wf_status no_windows(const wf_json_source *s, wf_nn_gpt_config *m)
{
    (void)m;
    return need_bool(s, "use_sliding_window", false, "no sliding windows");
}

/* What a model has beside a Llama's, or says in other words. */
static const struct {
    const char *type, *name;
    bool qkv_bias, qk_norm;
    wf_status (*parse)(const wf_json_source *s, wf_nn_gpt_config *m);
} like_llama[] = {{"llama", "LlamaForCausalLM", false, false, NULL},
                  {"mistral", "MistralForCausalLM", false, false, parse_window},
                  {"qwen2", "Qwen2ForCausalLM", true, false, no_windows},
                  {"qwen3", "Qwen3ForCausalLM", false, true, no_windows}};

enum { LIKE_LLAMA = sizeof like_llama / sizeof *like_llama };

static wf_status parse_llama(const wf_json_source *s, int kind, wf_hf_config *c)
{
    const bool no = false;
    wf_nn_gpt_config *m = &c->model;
    wf_status status = take_int(s, "num_hidden_layers", most_layers, NULL, &m->layers);
    int64_t head_dim;

    m->arch = WF_NN_LLAMA;
    if (status == WF_OK)
        status = take_int(s, "num_attention_heads", most_width, NULL, &m->heads);
    if (status == WF_OK)
        status = take_int(s, "num_key_value_heads", most_width, &m->heads, &m->kv_heads);
    if (status == WF_OK)
        status = take_int(s, "hidden_size", most_width, NULL, &m->width);
    if (status == WF_OK)
        status = take_int(s, "intermediate_size", most_ffn, NULL, &m->ffn);
    if (status == WF_OK)
        status = take_int(s, "max_position_embeddings", most_ffn, NULL, &m->positions);
    if (status == WF_OK)
        status = take_eps(s, "rms_norm_eps", 1e-6, &m->eps);
    if (status == WF_OK)
        status = parse_rope(s, m);
    if (status == WF_OK)
        status = need_word(s, "hidden_act", "silu", "silu", "swish");
    if (status == WF_OK)
        status = need_bool(s, "attention_bias", false, "no biases with llama");
    if (status == WF_OK)
        status = need_bool(s, "mlp_bias", false, "no biases with llama");
    if (status == WF_OK)
        status = wf_json_bool(s, "tie_word_embeddings", &no, &c->tied);
    m->tied = c->tied;
    if (status != WF_OK)
        return status;
    head_dim = m->width / m->heads;
    if (!json_is_null(json_object_get(s->object, "head_dim")))
        status = take_int(s, "head_dim", most_width, &head_dim, &m->head_dim);
    if (m->head_dim == head_dim && m->width % m->heads == 0)
        m->head_dim = 0;
    m->qkv_bias = like_llama[kind].qkv_bias;
    m->qk_norm = like_llama[kind].qk_norm;
    if (status == WF_OK && like_llama[kind].parse)
        status = like_llama[kind].parse(s, m);
    return status;
}

static wf_status parse_like_llama(const wf_json_source *s, const char *type, wf_hf_config *c)
{
    for (int k = 0; k < LIKE_LLAMA; k++)
        if (strcmp(type, like_llama[k].type) == 0)
            return parse_llama(s, k, c);
    return wf_error_set(
        s->error, WF_EUNSUPPORTED,
        "%s: \"model_type\" is %s, and Weft reads gpt2, llama, mistral, qwen2 and qwen3",
        s->name, type);
}

wf_status wf_hf_config_parse(wf_hf_config *config, const char *name, const char *text,
                             size_t bytes, wf_error *error)
{
    wf_json_source s = {.name = name, .error = error};
    const char *type = "";
    json_t *object;
    wf_status status = wf_json_parse(&object, name, text, bytes, CONFIG_DEPTH, error);

    memset(config, 0, sizeof *config);
    if (status != WF_OK)
        return status;
    s.object = object;
    status = wf_json_text(&s, "model_type", WORD, NULL, &type);
    if (status == WF_OK)
        status = need_nothing(&s, "quantization_config", "weights of fp32, bf16 or fp16");
    if (status == WF_OK && strcmp(type, "gpt2") == 0)
        status = parse_gpt2(&s, config);
    else if (status == WF_OK)
        status = parse_like_llama(&s, type, config);
    if (status == WF_OK)
        status = take_int(&s, "vocab_size", most_ffn, NULL, &config->model.vocabulary);
    if (status == WF_OK)
        status = check_heads(&s, &config->model);
    json_decref(object);
    return status;
}

wf_status wf_hf_config_read(wf_hf_config *config, const wf_file_calls *calls, const char *path,
                            wf_error *error)
{
    char *text;
    size_t bytes;
    wf_status status = wf_files_read(calls, path, CONFIG_BYTES, &text, &bytes, error);

    memset(config, 0, sizeof *config);
    if (status == WF_OK)
        status = wf_hf_config_parse(config, path, text, bytes, error);
    free(text);
    return status;
}

/* A number as people write it: 1e-5f is 1e-05, not 9.99999975e-06. */
static double plain(float x)
{
    char text[32];
    double value = (double)x;

    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        value = strtod(text, NULL);
        if ((float)value == x)
            break;
    }
    return value;
}

static json_t *describe_gpt2(const wf_nn_gpt_config *m)
{
    double dropout = plain(m->dropout);

    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b}", "architectures",
        "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "n_layer",
        (json_int_t)m->layers, "n_head", (json_int_t)m->heads, "n_embd", (json_int_t)m->width,
        "n_inner", (json_int_t)m->ffn, "n_positions", (json_int_t)m->positions,
        "layer_norm_epsilon", plain(m->eps > 0 ? m->eps : 1e-5f), "resid_pdrop", dropout,
        "embd_pdrop", dropout, "attn_pdrop", dropout, "tie_word_embeddings", 1);
}

static json_t *describe_scaling(const wf_nn_gpt_config *m)
{
    const wf_rope_scaling *s = &m->rope_scaling;

    if (s->kind == WF_ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->factor);
    if (s->kind == WF_ROPE_LLAMA3)
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                         s->factor, "low_freq_factor", s->low_freq_factor, "high_freq_factor",
                         s->high_freq_factor, "original_max_position_embeddings",
                         (json_int_t)s->original_positions);
    return json_null();
}

/* A Llama whose queries have biases is a Qwen 2: a Llama of transformers has them in its output too. */
static json_t *describe_llama(const wf_nn_gpt_config *m)
{
    const int kind = m->qk_norm ? 3 : m->qkv_bias ? 2 : 0;
    int64_t head_dim = m->head_dim ? m->head_dim : m->width / m->heads;
    json_t *object = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:b}",
        "architectures", like_llama[kind].name, "model_type", like_llama[kind].type,
        "hidden_act", "silu", "num_hidden_layers", (json_int_t)m->layers, "num_attention_heads",
        (json_int_t)m->heads, "num_key_value_heads", (json_int_t)m->kv_heads, "head_dim",
        (json_int_t)head_dim, "hidden_size", (json_int_t)m->width, "intermediate_size",
        (json_int_t)m->ffn, "max_position_embeddings", (json_int_t)m->positions, "rms_norm_eps",
        plain(m->eps > 0 ? m->eps : 1e-5f), "rope_theta",
        m->rope_base > 0 ? m->rope_base : 10000.0, "attention_dropout", plain(m->dropout),
        "rope_scaling", describe_scaling(m), "tie_word_embeddings", (int)m->tied);
    int bad = !object;

    if (!bad && (m->qkv_bias || m->qk_norm))
        bad = json_object_set_new(object, "use_sliding_window", json_false());
    else if (!bad)
        bad = json_object_set_new(object, "attention_bias", json_false()) ||
              json_object_set_new(object, "mlp_bias", json_false());
    if (bad)
        json_decref(object);
    return bad ? NULL : object;
}

wf_status wf_hf_config_format(const wf_nn_gpt_config *model, wf_safetensors_dtype dtype,
                              const char *like, char **text, wf_error *error)
{
    const char *type = dtype == WF_ST_F32    ? "float32"
                       : dtype == WF_ST_BF16 ? "bfloat16"
                                             : "float16";
    json_t *object = model->arch == WF_NN_LLAMA ? describe_llama(model) : describe_gpt2(model);
    int bad = !object;

    *text = NULL;
    /* tokens are numbers here, and none of them begins or ends a text, unless somebody says so */
    bad = bad || json_object_set_new(object, "vocab_size", json_integer(model->vocabulary)) ||
          json_object_set_new(object, "torch_dtype", json_string(type)) ||
          json_object_set_new(object, "bos_token_id", json_null()) ||
          json_object_set_new(object, "eos_token_id", json_null());
    if (!bad && like && wf_hf_identity_ids(like, object, error) != WF_OK) {
        json_decref(object);
        return error->code;
    }
    *text = bad ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    return *text ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for a config.json");
}
