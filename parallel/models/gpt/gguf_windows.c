/* parallel/models/gpt/gguf_windows.c - sliding windows as llama.cpp's files have them; see
   gguf_names_internal.h. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Holds what llama.cpp takes for granted of an architecture: which blocks have no window (each
   skip-th), tokens of a window that no key gives, the base of RoPE where there is a window (0:
   that of others), and whether its scaling leaves these blocks out. */
typedef struct kind {
    const char *architecture;
    int64_t skip, window;
    double base;
    bool unscaled;
} kind;

static const kind kinds[] = {
    {"gemma2", 2, 4096, 0, false}, {"gemma3", 6, 0, 10000, true}, {"olmo2", 4, 0, 0, true}};

static const kind *kind_of(const char *architecture)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].architecture, architecture) == 0)
            return &kinds[i];
    return NULL;
}

const char *wf_gguf_windows_missing(const char *architecture, const wf_nn_gpt_config *model)
{
    const kind *k = kind_of(architecture);
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const bool scaled = m.rope_scaling.kind != WF_ROPE_UNSCALED;

    if (m.window && m.layers > WF_NN_LISTED_BLOCKS)
        return "windows of more than 512 blocks";
    if (k && m.window && scaled && k->unscaled != (m.window_rope_base > 0))
        return k->unscaled ? "RoPE that is scaled in blocks with a window, too"
                           : "RoPE that is scaled in blocks without a window alone";
    return NULL;
}

static void put(wf_gguf_header *h, const char *architecture, const char *key,
                const wf_par_gguf_key *value)
{
    wf_par_gguf_key named = *value;
    char text[128];

    snprintf(text, sizeof text, "%s.%s", architecture, key);
    named.key = text;
    wf_gguf_put(h, &named);
}

void wf_gguf_put_windows(wf_gguf_header *h, const char *architecture,
                         const wf_nn_gpt_config *model)
{
    const kind *k = kind_of(architecture);
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    /* a window that holds the longest text is none */
    const uint32_t window = (uint32_t)(m.window ? m.window : m.positions);
    const float base = (float)(m.window_rope_base > 0 ? m.window_rope_base : m.rope_base);
    bool pattern[WF_NN_LISTED_BLOCKS];

    if (!k || (!m.window && !k->window))
        return;
    for (int64_t i = 0; i < m.layers && i < WF_NN_LISTED_BLOCKS; i++)
        pattern[i] = wf_nn_gpt_window(&m, i) > 0;
    put(h, architecture, "attention.sliding_window",
        &(wf_par_gguf_key){.kind = WF_PAR_GGUF_U32, .values = &window});
    if (m.window)
        put(h, architecture, "attention.sliding_window_pattern",
            &(wf_par_gguf_key){
                .kind = WF_PAR_GGUF_BOOL, .array = true, .count = m.layers, .values = pattern});
    if (m.window)
        put(h, architecture, "rope.freq_base_swa",
            &(wf_par_gguf_key){.kind = WF_PAR_GGUF_F32, .values = &base});
}

static const wf_par_gguf_key *key_of(const wf_par_gguf *g, const char *architecture,
                                     const char *key)
{
    char text[128];

    snprintf(text, sizeof text, "%s.%s", architecture, key);
    for (int64_t i = 0; i < g->keys; i++)
        if (strcmp(g->key[i].key, text) == 0)
            return &g->key[i];
    return NULL;
}

static wf_status wrong(const char *path, const char *architecture, const char *key,
                       const char *what, wf_error *error)
{
    return wf_error_set(error, WF_EDATA, "%.900s: key \"%s.%s\" is %s", path, architecture, key,
                        what);
}

/* Reads which blocks have the window: one for each, or a number n of which each n-th has
   none. */
static wf_status read_pattern(const wf_par_gguf_key *p, const char *path,
                              const char *architecture, wf_nn_gpt_config *m, wf_error *error)
{
    static const char key[] = "attention.sliding_window_pattern";

    if (p && p->array && p->kind == WF_PAR_GGUF_BOOL && p->count == m->layers &&
        m->layers <= WF_NN_LISTED_BLOCKS) {
        int64_t listed = 0;

        for (int64_t i = 0; i < m->layers; i++)
            if (((const bool *)p->values)[i])
                wf_nn_block_list(&m->window_blocks, i), listed++;
        m->window = listed ? m->window : 0;
        return WF_OK;
    }
    if (!p)
        return WF_OK;
    if (p->array || p->kind != WF_PAR_GGUF_I64 || *(const int64_t *)p->values < 1)
        return wrong(
            path, architecture, key,
            "neither true or false for each block, of 512 at most, nor a number from 1 "
            "on",
            error);
    m->window_skip = *(const int64_t *)p->values;
    return WF_OK;
}

wf_status wf_gguf_read_windows(const wf_par_gguf *g, const char *path, const char *architecture,
                               wf_nn_gpt_config *m, wf_error *error)
{
    const kind *k = kind_of(architecture);
    const wf_par_gguf_key *window, *base;
    double standard;

    m->window_skip = 0;
    if (!k || error->code != WF_OK)
        return error->code;
    window = key_of(g, architecture, "attention.sliding_window");
    base = key_of(g, architecture, "rope.freq_base_swa");
    standard = k->base > 0 ? k->base : m->rope_base;
    if (window && (window->array || window->kind != WF_PAR_GGUF_I64 ||
                   *(const int64_t *)window->values < 0))
        return wrong(path, architecture, "attention.sliding_window", "no number from 0 on",
                     error);
    if (base &&
        (base->array || base->kind != WF_PAR_GGUF_F64 ||
         !(*(const double *)base->values >= 1 && *(const double *)base->values <= 1e12)))
        return wrong(path, architecture, "rope.freq_base_swa", "no number in [1, 1e12]", error);
    m->window = window ? *(const int64_t *)window->values : k->window;
    m->window_skip = m->window ? k->skip : 0;
    if (base)
        standard = *(const double *)base->values;
    if (m->window && (k->unscaled || standard != m->rope_base))
        m->window_rope_base = standard;
    return m->window ? read_pattern(key_of(g, architecture, "attention.sliding_window_pattern"),
                                    path, architecture, m, error)
                     : WF_OK;
}
