/* parallel/models/gpt/gguf_families.c - the architectures of llama.cpp that families are of;
   see the headers. */
#include "parallel/models/gpt/gguf_families_internal.h"
#include <stdio.h>
#include <string.h>

typedef wf_gguf_family_row family_row;

static const family_row families[] = {
#define FAMILY(name, class, parent, base, gguf, ...) {#name, gguf, {__VA_ARGS__}},
#include "nn/models/gpt/families.def"
#undef FAMILY
};

enum { FAMILIES = sizeof families / sizeof *families };

const family_row *wf_gguf_family_at(int i)
{
    return i < FAMILIES ? &families[i] : NULL;
}

const char *wf_gguf_architecture_of(const family_row *f)
{
    static const char *const others[][2] = {
        {"mixtral", "llama"},     {"qwen3_moe", "qwen3moe"}, {"gemma3_text", "gemma3"},
        {"cohere", "command-r"},  {"phi", "phi2"},           {"gpt_neox", "gptneox"},
        {"llama4_text", "llama4"}};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i][0], f->name) == 0)
            return others[i][1];
    return f->name;
}

/* Returns the first family of an architecture, with experts or without. */
static const family_row *find(const char *architecture, bool experts)
{
    for (int i = 0; architecture && i < FAMILIES; i++)
        if (families[i].words && experts == (families[i].config.experts > 0) &&
            strcmp(wf_gguf_architecture_of(&families[i]), architecture) == 0)
            return &families[i];
    return NULL;
}

const wf_nn_gpt_config *wf_gguf_family(const char *architecture, bool experts)
{
    const family_row *f = find(architecture, experts);

    return f ? &f->config : NULL;
}

bool wf_gguf_is_architecture(const char *name)
{
    return find(name, false) || find(name, true);
}

/* Returns the words of an architecture: of its family without experts, where it has one. */
static unsigned words_of(const char *architecture)
{
    const family_row *f = find(architecture, false);

    if (!f)
        f = find(architecture, true);
    return f ? f->words : 0;
}

bool wf_gguf_is_llama4(const char *architecture)
{
    return words_of(architecture) & AS_LLAMA4;
}

bool wf_gguf_reads(const char *architecture, const char *key)
{
    static const struct {
        const char *key;
        unsigned words;
    } own[] = {{"attention.sliding_window", HAS_LONG_ROPE | HAS_WINDOWS | AS_LLAMA4},
               {"interleave_moe_layer_step", AS_LLAMA4},
               {"attention.sliding_window_pattern", HAS_WINDOWS},
               {"rope.freq_base_swa", HAS_WINDOWS},
               {"attn_logit_softcapping", HAS_CAPS},
               {"final_logit_softcapping", HAS_CAPS},
               {"use_parallel_residual", MAY_PARALLEL}};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].key, key) == 0)
            return words_of(architecture) & own[i].words;
    return false;
}

bool wf_gguf_part_rotates(const char *architecture)
{
    return words_of(architecture) & (PART_ROTATES | HAS_LONG_ROPE);
}

bool wf_gguf_multiplies_logits(const char *architecture)
{
    return words_of(architecture) & LOGIT_FACTOR;
}

bool wf_gguf_reads_scales(const char *architecture)
{
    return words_of(architecture) & HAS_SCALES;
}

bool wf_gguf_has_long_rope(const char *architecture)
{
    return words_of(architecture) & HAS_LONG_ROPE;
}

void wf_gguf_architectures(char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0, used = 0; i < FAMILIES; i++) {
        const char *name = wf_gguf_architecture_of(&families[i]);
        const bool twice = families[i].config.experts && find(name, false);

        if (families[i].words && !twice && (size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, "%s%s", used ? ", " : "", name);
    }
}

const char *wf_gguf_architecture(const wf_nn_gpt_config *model)
{
    const family_row *f = wf_gguf_family_of(model);

    return f ? wf_gguf_architecture_of(f) : NULL;
}

bool wf_gguf_has(const wf_nn_gpt_config *model)
{
    return wf_gguf_family_of(model) != NULL;
}

/* Parameters of a model without traits may lie as those of a Phi-3 do. */
static const family_row *layout_of(const char *architecture, const wf_nn_gpt_config *model)
{
    const family_row *f = wf_gguf_family_of(model), *other = find(architecture, false);
    const bool plain = f && !wf_gguf_traits_of(&f->config) &&
                       !(f->words & (HAS_SCALES | HAS_LONG_ROPE)) &&
                       f->config.position == WF_NN_ROPE && wf_gguf_may_be_phi3(model);

    return plain && other && other->words & HAS_LONG_ROPE ? other : f;
}

bool wf_gguf_fits(const char *architecture, const wf_nn_gpt_config *model)
{
    const family_row *f = layout_of(architecture, model);

    return f && strcmp(wf_gguf_architecture_of(f), architecture) == 0;
}

wf_gguf_layout wf_gguf_layout_of(const char *architecture, const wf_nn_gpt_config *model)
{
    const family_row *f = layout_of(architecture, model);
    const unsigned words = f ? f->words : 0;

    return (wf_gguf_layout){.found = f,
                            .one_qkv = words & ONE_QKV,
                            .one_mlp = words & ONE_MLP,
                            .rotates_neighbours = words & ROTATES_NEIGHBOURS};
}
