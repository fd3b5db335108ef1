/* parallel/models/gpt/gguf_keys.c - what is known of the keys of a GGUF file; see
   gguf_weights_internal.h. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/gguf_weights_internal.h"
#include <stdio.h>
#include <string.h>

enum { LIST = 400 };

/* A key of an architecture, and why its value changes nothing; NULL: gguf_config.c reads it. */
static const struct {
    const char *key, *reason;
} known[] = {
    {"block_count", NULL},
    {"context_length", NULL},
    {"embedding_length", NULL},
    {"feed_forward_length", NULL},
    {"expert_count", NULL},
    {"expert_used_count", NULL},
    {"expert_feed_forward_length", NULL},
    {"attention.head_count", NULL},
    {"attention.head_count_kv", NULL},
    {"attention.key_length", NULL},
    {"attention.value_length", NULL},
    {"attention.layer_norm_rms_epsilon", NULL},
    {"attention.layer_norm_epsilon", NULL},
    {"attention.scale", NULL},
    {"embedding_scale", NULL},
    {"residual_scale", NULL},
    {"logit_scale", NULL},
    {"vocab_size", NULL},
    {"rope.freq_base", NULL},
    {"rope.dimension_count", NULL},
    {"rope.scaling.type", NULL},
    {"rope.scaling.factor", NULL},
    {"rope.scale_linear", NULL},
    {"rope.scaling.original_context_length", NULL},
    {"rope.scaling.attn_factor", NULL},
    {"rope.scaling.yarn_ext_factor", NULL},
    {"rope.scaling.yarn_attn_factor", NULL},
    {"rope.scaling.yarn_beta_fast", NULL},
    {"rope.scaling.yarn_beta_slow", NULL},
    {"rope.scaling.finetuned", "whether weights were trained with the scaling"},
    {"tensor_data_layout", "llama.cpp's reader has one layout of each architecture"},
    {"attention.causal", "checked below: anything but true is refused"},
};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].key, key) == 0)
            return true;
    return false;
}

/* Returns true where a value is the neutral one: 0, false, or an array of such. */
static bool is_off(const wf_par_gguf_key *k)
{
    const int64_t n = k->array ? k->count : 1;

    for (int64_t i = 0; i < n; i++)
        if ((k->kind == WF_PAR_GGUF_BOOL && ((const bool *)k->values)[i]) ||
            (k->kind == WF_PAR_GGUF_I64 && ((const int64_t *)k->values)[i]) ||
            (k->kind == WF_PAR_GGUF_F64 && ((const double *)k->values)[i] != 0) ||
            k->kind == WF_PAR_GGUF_TEXT)
            return false;
    return true;
}

static bool is_causal(const wf_par_gguf *g, const char *arch, wf_error *error)
{
    char text[128];
    const wf_par_gguf_key *k;

    snprintf(text, sizeof text, "%s.attention.causal", arch);
    k = wf_par_gguf_find(g, text, WF_PAR_GGUF_BOOL, false, error);
    return !k || *(const bool *)k->values;
}

/* Returns true where a file has a mixture of experts, whose other keys are read then. */
static bool is_mixture(const wf_par_gguf *g, const char *arch, wf_error *error)
{
    char text[128];
    const wf_par_gguf_key *k;

    snprintf(text, sizeof text, "%s.expert_count", arch);
    k = wf_par_gguf_find(g, text, WF_PAR_GGUF_I64, false, error);
    return k && *(const int64_t *)k->values > 0;
}

/* Refuses a part of a model in several files, and what is no model: an adapter, an image
   encoder. */
static wf_status check_whole(const wf_par_gguf *g, const char *path, wf_error *error)
{
    const wf_par_gguf_key *count =
        wf_par_gguf_find(g, "split.count", WF_PAR_GGUF_I64, false, error);
    const wf_par_gguf_key *type =
        wf_par_gguf_find(g, "general.type", WF_PAR_GGUF_TEXT, false, error);
    const wf_par_gguf_text *text = type ? type->values : NULL;
    char word[64] = "model";

    if (error->code != WF_OK)
        return error->code;
    if (count && *(const int64_t *)count->values > 1)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%.600s: it is a part of a model in %lld files (\"split.count\"): "
                            "join them first (llama-gguf-split)",
                            path, (long long)*(const int64_t *)count->values);
    if (text)
        snprintf(word, sizeof word, "%.*s", (int)(text->bytes < 63 ? text->bytes : 63),
                 text->text);
    return strcmp(word, "model") == 0
               ? WF_OK
               : wf_error_set(error, WF_EUNSUPPORTED,
                              "%.600s: key \"general.type\" is %s, and what is read is a model",
                              path, wf_text_visible(word));
}

wf_status wf_gguf_keys_check(const wf_par_gguf *g, const char *path, const char *arch,
                             wf_error *error)
{
    const size_t n = strlen(arch);
    const bool mixture = is_mixture(g, arch, error);
    char list[LIST] = "";
    size_t used = 0;

    if (check_whole(g, path, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < g->keys && used + 80 < sizeof list; i++) {
        const char *key = g->key[i].key;
        bool read = strncmp(key, arch, n) != 0 || key[n] != '.' ||
                    (is_known(key + n + 1) &&
                     (mixture || strncmp(key + n + 1, "expert_", strlen("expert_")) != 0));

        if (!read && !wf_gguf_reads(arch, key + n + 1) && !is_off(&g->key[i]))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%.60s\"",
                                     used ? ", " : "", key);
    }
    if (!is_causal(g, arch, error) && error->code == WF_OK)
        snprintf(list, sizeof list, "\"%s.attention.causal\"", arch);
    if (*list && error->code == WF_OK)
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%.600s: key %s says of the model what no model here has, or what is not "
                     "known",
                     path, wf_text_visible(list));
    return error->code;
}
