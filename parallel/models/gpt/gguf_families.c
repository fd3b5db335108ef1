/* parallel/models/gpt/gguf_families.c - which architecture of llama.cpp a model is of; see
   gguf_names_internal.h. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Words of families.def; the last four are of models alone. */
enum {
    NO_GGUF = 0,
    IN_GGUF = 1,
    ROTATES_NEIGHBOURS = 1 << 1,
    ONE_QKV = 1 << 2,
    ONE_MLP = 1 << 3,
    MAY_BIAS = 1 << 4,
    HAS_SCALES = 1 << 5,
    HAS_LONG_ROPE = 1 << 6,
    IS_TIED = 1 << 7,
    PART_ROTATES = 1 << 8,
    IS_UNTIED = 1 << 9,
    FULL_HEADS = 1 << 10,
    MAY_QKV_BIAS = 1 << 11,
    MAY_PARALLEL = 1 << 12,
    HAS_CAPS = 1 << 13,
    LOGIT_FACTOR = 1 << 14,
    HAS_WINDOWS = 1 << 15,
    QKV_BIAS = 1 << 16,
    OTHER_BIAS = 1 << 17,
    QK_NORM = 1 << 18,
    ROPE_SKIP = 1 << 19,
};

typedef struct family {
    const char *name;
    unsigned words;
    wf_nn_gpt_config config;
} family;

static const family families[] = {
#define FAMILY(name, class, parent, base, gguf, ...) {#name, gguf, {__VA_ARGS__}},
#include "nn/models/gpt/families.def"
#undef FAMILY
};

enum { FAMILIES = sizeof families / sizeof *families };

/* Returns llama.cpp's name of a family, which differs for these. */
static const char *architecture_of(const family *f)
{
    static const char *const others[][2] = {
        {"mixtral", "llama"},    {"qwen3_moe", "qwen3moe"}, {"gemma3_text", "gemma3"},
        {"cohere", "command-r"}, {"phi", "phi2"},           {"gpt_neox", "gptneox"}};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i][0], f->name) == 0)
            return others[i][1];
    return f->name;
}

/* Returns the first family of an architecture, with experts or without. */
static const family *find(const char *architecture, bool experts)
{
    for (int i = 0; architecture && i < FAMILIES; i++)
        if (families[i].words && experts == (families[i].config.experts > 0) &&
            strcmp(architecture_of(&families[i]), architecture) == 0)
            return &families[i];
    return NULL;
}

const wf_nn_gpt_config *wf_gguf_family(const char *architecture, bool experts)
{
    const family *f = find(architecture, experts);

    return f ? &f->config : NULL;
}

bool wf_gguf_is_scaled(const wf_nn_gpt_config *m)
{
    const wf_nn_gpt_config c = wf_nn_gpt_complete(m);

    return c.embedding_scale != 1 || c.residual_scale != 1 || c.logit_divisor != 1 ||
           c.attention_scale > 0;
}

/* Returns true for a rotation that llama.cpp's Phi-3 alone has: a part of a head rotates, or
   factors are two lists. */
static bool rotates_as_phi3(const wf_nn_gpt_config *m)
{
    return m->position == WF_NN_ROPE &&
           (m->rope_scaling.kind == WF_ROPE_LONG || (m->rotary > 0 && m->rotary < 1));
}

/* Returns true where all other properties are those of its Phi-3. */
static bool may_be_phi3(const wf_nn_gpt_config *m)
{
    const wf_nn_gpt_config c = wf_nn_gpt_complete(m);
    const wf_rope_scaling_kind kind = c.rope_scaling.kind;

    return (kind == WF_ROPE_UNSCALED || kind == WF_ROPE_LINEAR || kind == WF_ROPE_LONG) &&
           c.norm == WF_NN_RMSNORM && c.mlp == WF_NN_SWIGLU && c.order == WF_NN_PRE_NORM &&
           !c.gain_offset && !c.qk_norm && !c.qk_norm_wide && !c.rope_skip &&
           !wf_gguf_is_scaled(m) && !c.qkv_bias && !c.out_bias && !c.mlp_bias &&
           c.heads * c.head_dim == c.width;
}

/* Returns what a model has that not all have: what a file of an architecture has or cannot
   say. */
static unsigned traits_of(const wf_nn_gpt_config *m)
{
    unsigned traits = 0;

    if (m->qkv_bias)
        traits |= QKV_BIAS;
    if (m->out_bias || m->mlp_bias)
        traits |= OTHER_BIAS;
    if (m->qk_norm)
        traits |= QK_NORM;
    if (m->position == WF_NN_ROPE && m->rope_skip)
        traits |= ROPE_SKIP;
    return traits;
}

/* Returns true for YaRN that a family's files can say. llama.cpp reads beta_fast and beta_slow
   of none of these families, and its Gemma 3 multiplies cosines and sines by a factor of the
   model's own in blocks with a window, too. */
static bool says_yarn(const wf_nn_gpt_config *m, const family *f)
{
    const wf_rope_scaling *s = &m->rope_scaling;

    return s->original_positions == floor(s->original_positions) &&
           s->original_positions <= INT32_MAX && (s->beta_fast == 0 || s->beta_fast == 32) &&
           (s->beta_slow == 0 || s->beta_slow == 1) &&
           (!f->config.gain_offset || (float)wf_gguf_yarn_factor(m) == 1);
}

/* Returns true where a family's files say all of a model's rotation. */
static bool rotates_as(const wf_nn_gpt_config *m, const family *f)
{
    const wf_rope_scaling_kind kind = m->rope_scaling.kind;
    const bool no_factors = f->words & (PART_ROTATES | FULL_HEADS | HAS_WINDOWS);

    if (m->position != WF_NN_ROPE)
        return true;
    if (f->words & HAS_LONG_ROPE)
        return rotates_as_phi3(m) && may_be_phi3(m);
    if (rotates_as_phi3(m) && !(f->words & PART_ROTATES))
        return false;
    if (kind == WF_ROPE_LLAMA3)
        return !no_factors && !f->config.gain_offset;
    return kind == WF_ROPE_UNSCALED || kind == WF_ROPE_LINEAR ||
           (kind == WF_ROPE_YARN && says_yarn(m, f));
}

double wf_gguf_scale_by_depth(const wf_nn_gpt_config *m)
{
    const bool largest = m->layers == (m->qk_norm ? 62 : 46); /* 27B of Gemma 3, and of 2 */
    const int64_t divisor = m->heads > 0 && largest ? m->width / m->heads : m->head_dim;

    return divisor > 0 ? 1 / sqrt((double)divisor) : 0;
}

/* Returns true where a family's files, or its name, say all factors of a model. */
static bool scales_as(const wf_nn_gpt_config *m, const family *f)
{
    const bool gemma = f->config.embedding_scale == WF_NN_SQRT_WIDTH;
    wf_nn_gpt_config c = wf_nn_gpt_complete(m);

    if (f->words & HAS_SCALES)
        return wf_gguf_is_scaled(m);
    if (f->words & LOGIT_FACTOR)
        c.logit_divisor = 1;
    if (gemma && c.embedding_scale == sqrt((double)c.width))
        c.embedding_scale = 1;
    if (gemma && f->words & HAS_WINDOWS && c.attention_scale > 0 &&
        (float)c.attention_scale == (float)wf_gguf_scale_by_depth(&c))
        c.attention_scale = 0;
    else if (gemma && f->words & HAS_WINDOWS && !(c.attention_scale > 0) &&
             wf_gguf_scale_by_depth(&c) != 1 / sqrt((double)c.head_dim))
        return false;
    return !wf_gguf_is_scaled(&c) && (!gemma || m->embedding_scale != 1);
}

/* Returns true for a model without experts, or with such as llama.cpp makes of them: weights
   are a softmax that is normalised over the chosen ones, in all blocks and with nothing
   beside. */
static bool mixes_as_llama_cpp(const wf_nn_gpt_config *m)
{
    return !m->experts || (m->router == WF_NN_SOFTMAX && m->router_normalised &&
                           !m->shared_ffn && !m->weigh_input && !m->expert_capacity &&
                           !(m->bias_step > 0) && !wf_nn_blocks_count(&m->dense_blocks) &&
                           (m->router_factor == 0 || m->router_factor == 1));
}

/* Compares what architectures say by nothing but their names. */
static bool has_base_of(const wf_nn_gpt_config *m, const family *f)
{
    const wf_nn_gpt_config *c = &f->config;

    return m->norm == c->norm && m->position == c->position && m->mlp == c->mlp &&
           m->order == c->order && m->gain_offset == c->gain_offset &&
           m->qk_norm_wide == c->qk_norm_wide && m->rope_neighbours == c->rope_neighbours &&
           (m->parallel == c->parallel || f->words & MAY_PARALLEL) &&
           m->shared_norm == (m->parallel && c->shared_norm) && m->head_bias == c->head_bias &&
           m->gelu_erf == c->gelu_erf && m->sinks == c->sinks &&
           m->window_chunks == c->window_chunks && m->qk_l2_norm == c->qk_l2_norm &&
           !(m->temperature > 0) && !m->experts == !c->experts && mixes_as_llama_cpp(m) &&
           (!c->rope_skip || m->rope_skip == c->rope_skip) &&
           (m->tied || !(f->words & IS_TIED)) && !(m->tied && f->words & IS_UNTIED);
}

/* Returns what files of a family can't say of a model that is one else, in words; NULL:
   nothing. */
static const char *lacks(const wf_nn_gpt_config *m, const family *f)
{
    const bool scores = m->score_cap > 0, logits = m->logit_cap > 0;
    const int64_t heads = m->head_dim > 0 ? m->heads * m->head_dim : m->width;
    /* a Gemma 2 has both, a Gemma 3 one or none */
    const bool capped = !(f->words & HAS_CAPS) ? !scores && !logits
                        : f->config.qk_norm    ? !scores
                                               : scores && logits;

    if (!capped)
        return "soft caps, or one of two (\"attn_logit_softcapping\", "
               "\"final_logit_softcapping\")";
    if (!(f->words & HAS_WINDOWS) && m->window_rope_base > 0)
        return "a base of RoPE for blocks with a window";
    if (f->words & HAS_WINDOWS && wf_gguf_windows_missing(architecture_of(f), m))
        return wf_gguf_windows_missing(architecture_of(f), m);
    if (heads != m->width && f->words & FULL_HEADS)
        return "heads of another width than the model's (\"head_dim\")";
    if (m->layers >= 64 && f->words & LOGIT_FACTOR)
        return "64 blocks, which have norms of heads there (\"num_hidden_layers\")";
    if (!rotates_as(m, f))
        return m->rope_scaling.kind != WF_ROPE_YARN
                   ? "a rotation of its own"
                   : "YaRN with a \"beta_fast\" that is not 32, a \"beta_slow\" that is not 1, "
                     "an original length that is no whole number, or, in a Gemma, an "
                     "\"attention_factor\" of its own";
    return scales_as(m, f)
               ? NULL
               : "factors that llama.cpp takes for granted (\"query_pre_attn_scalar\")";
}

/* NULL: llama.cpp has no model of these properties. A family that has biases goes before one
   that may have them. */
static const family *family_of(const wf_nn_gpt_config *m)
{
    const unsigned traits = traits_of(m), biases = QKV_BIAS | OTHER_BIAS;
    const family *found = NULL;

    for (int i = 0; i < FAMILIES; i++) {
        const family *f = &families[i];
        const unsigned needed = traits_of(&f->config), others = traits ^ needed;

        if (!f->words || !has_base_of(m, f) || lacks(m, f))
            continue;
        if (!others || (f->words & MAY_QKV_BIAS && others == QKV_BIAS))
            return f;
        if (f->words & MAY_BIAS && (traits & ~biases) == needed && !found)
            found = f;
    }
    return found;
}

const char *wf_gguf_rope_missing(const wf_nn_gpt_config *m)
{
    if (m->position != WF_NN_ROPE || family_of(m))
        return NULL;
    if (m->rope_scaling.kind == WF_ROPE_DYNAMIC)
        return "RoPE scaled by the length of a text (\"rope_type\": \"dynamic\")";
    if (!rotates_as_phi3(m) || may_be_phi3(m))
        return NULL;
    return m->rope_scaling.kind == WF_ROPE_LONG
               ? "RoPE scaled by \"short_factor\" and \"long_factor\" (\"rope_type\": "
                 "\"longrope\") beside what Phi-3 has not"
               : "heads of which a part is rotated (\"partial_rotary_factor\") beside what "
                 "Phi-3 lacks";
}

const char *wf_gguf_missing(const wf_nn_gpt_config *m)
{
    const bool found = family_of(m) != NULL;

    for (int i = 0; i < FAMILIES && !found; i++) {
        const family *f = &families[i];
        const char *missing = f->words && has_base_of(m, f) ? lacks(m, f) : NULL;

        if (missing && traits_of(m) == traits_of(&f->config))
            return missing;
    }
    return "something else";
}

bool wf_gguf_is_architecture(const char *name)
{
    return find(name, false) || find(name, true);
}

/* Returns the words of an architecture without experts. */
static unsigned words_of(const char *architecture)
{
    const family *f = find(architecture, false);

    return f ? f->words : 0;
}

bool wf_gguf_reads(const char *architecture, const char *key)
{
    static const struct {
        const char *key;
        unsigned words;
    } own[] = {{"attention.sliding_window", HAS_LONG_ROPE | HAS_WINDOWS},
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
        const char *name = architecture_of(&families[i]);
        const bool twice = families[i].config.experts && find(name, false);

        if (families[i].words && !twice && (size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, "%s%s", used ? ", " : "", name);
    }
}

const char *wf_gguf_architecture(const wf_nn_gpt_config *model)
{
    const family *f = family_of(model);

    return f ? architecture_of(f) : NULL;
}

bool wf_gguf_has(const wf_nn_gpt_config *model)
{
    return family_of(model) != NULL;
}

/* Parameters of a model without traits may lie as those of a Phi-3 do. */
static const family *layout_of(const char *architecture, const wf_nn_gpt_config *model)
{
    const family *f = family_of(model), *other = find(architecture, false);
    const bool plain = f && !traits_of(&f->config) &&
                       !(f->words & (HAS_SCALES | HAS_LONG_ROPE)) &&
                       f->config.position == WF_NN_ROPE && may_be_phi3(model);

    return plain && other && other->words & HAS_LONG_ROPE ? other : f;
}

bool wf_gguf_fits(const char *architecture, const wf_nn_gpt_config *model)
{
    const family *f = layout_of(architecture, model);

    return f && strcmp(architecture_of(f), architecture) == 0;
}

wf_gguf_layout wf_gguf_layout_of(const char *architecture, const wf_nn_gpt_config *model)
{
    const family *f = layout_of(architecture, model);
    const unsigned words = f ? f->words : 0;

    return (wf_gguf_layout){.found = f,
                            .one_qkv = words & ONE_QKV,
                            .one_mlp = words & ONE_MLP,
                            .rotates_neighbours = words & ROTATES_NEIGHBOURS};
}
