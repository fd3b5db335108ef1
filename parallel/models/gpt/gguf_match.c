/* parallel/models/gpt/gguf_match.c - the family of llama.cpp that has a model's properties, or
   what of them none has; see the headers. */
#include "parallel/models/gpt/gguf_families_internal.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

typedef wf_gguf_family_row family_row;

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
bool wf_gguf_may_be_phi3(const wf_nn_gpt_config *m)
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
unsigned wf_gguf_traits_of(const wf_nn_gpt_config *m)
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
static bool says_yarn(const wf_nn_gpt_config *m, const family_row *f)
{
    const wf_rope_scaling *s = &m->rope_scaling;

    return s->original_positions == floor(s->original_positions) &&
           s->original_positions <= INT32_MAX && (s->beta_fast == 0 || s->beta_fast == 32) &&
           (s->beta_slow == 0 || s->beta_slow == 1) &&
           (!f->config.gain_offset || (float)wf_gguf_yarn_factor(m) == 1);
}

/* Returns true where a family's files say all of a model's rotation. */
static bool rotates_as(const wf_nn_gpt_config *m, const family_row *f)
{
    const wf_rope_scaling_kind kind = m->rope_scaling.kind;
    const bool no_factors = f->words & (PART_ROTATES | FULL_HEADS | HAS_WINDOWS);

    if (m->position != WF_NN_ROPE)
        return true;
    if (f->words & HAS_LONG_ROPE)
        return rotates_as_phi3(m) && wf_gguf_may_be_phi3(m);
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
static bool scales_as(const wf_nn_gpt_config *m, const family_row *f)
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

/* A property that architectures say by nothing but their names, unless a family has one of
   these words. */
typedef struct property {
    size_t offset, size;
    unsigned unless;
} property;

#define SAME(field, words)                                                                     \
    {                                                                                          \
        offsetof(wf_nn_gpt_config, field), sizeof(((wf_nn_gpt_config *)0)->field), words       \
    }

static const property of_all[] = {
    SAME(norm, 0),
    SAME(position, 0),
    SAME(mlp, 0),
    SAME(order, 0),
    SAME(gain_offset, 0),
    SAME(qk_norm_wide, 0),
    SAME(sinks, 0),
    SAME(rope_neighbours, 0),
    SAME(head_bias, 0),
    SAME(gelu_erf, 0),
    SAME(parallel, MAY_PARALLEL),
    SAME(window_chunks, AS_LLAMA4),
    SAME(qk_l2_norm, AS_LLAMA4),
};

/* Those of mixtures: a shared expert and blocks without experts are Llama 4's alone. */
static const property of_mixtures[] = {
    SAME(router, 0),          SAME(weigh_input, 0),        SAME(shared_gate, 0),
    SAME(expert_capacity, 0), SAME(shared_ffn, AS_LLAMA4), SAME(dense_blocks, AS_LLAMA4),
};

static bool are_same(const wf_nn_gpt_config *m, const family_row *f, const property *p,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(f->words & p[i].unless) &&
            memcmp((const char *)m + p[i].offset, (const char *)&f->config + p[i].offset,
                   p[i].size) != 0)
            return false;
    return true;
}

/* Returns true for a model without experts, or with such as llama.cpp makes of them: weights of
   a softmax are normalised over the chosen ones. */
static bool mixes_as(const wf_nn_gpt_config *m, const family_row *f)
{
    return !m->experts ||
           (are_same(m, f, of_mixtures, sizeof of_mixtures / sizeof *of_mixtures) &&
            m->router_normalised == (m->router == WF_NN_SOFTMAX) && !(m->bias_step > 0) &&
            (m->router_factor == 0 || m->router_factor == 1));
}

/* Compares what architectures say by nothing but their names. */
static bool has_base_of(const wf_nn_gpt_config *m, const family_row *f)
{
    const wf_nn_gpt_config *c = &f->config;

    return are_same(m, f, of_all, sizeof of_all / sizeof *of_all) &&
           m->shared_norm == (m->parallel && c->shared_norm) &&
           (!(m->temperature > 0) || f->words & AS_LLAMA4) && !m->experts == !c->experts &&
           mixes_as(m, f) && (!c->rope_skip || m->rope_skip == c->rope_skip) &&
           (m->tied || !(f->words & IS_TIED)) && !(m->tied && f->words & IS_UNTIED);
}

/* Returns what files of a family can't say of a model that is one else, in words; NULL:
   nothing. */
static const char *lacks(const wf_nn_gpt_config *m, const family_row *f)
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
    if (f->words & AS_LLAMA4 && wf_gguf_llama4_missing(m))
        return wf_gguf_llama4_missing(m);
    if (!(f->words & HAS_WINDOWS) && m->window_rope_base > 0)
        return "a base of RoPE for blocks with a window";
    if (f->words & HAS_WINDOWS && wf_gguf_windows_missing(wf_gguf_architecture_of(f), m))
        return wf_gguf_windows_missing(wf_gguf_architecture_of(f), m);
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
const family_row *wf_gguf_family_of(const wf_nn_gpt_config *m)
{
    const unsigned traits = wf_gguf_traits_of(m), biases = QKV_BIAS | OTHER_BIAS;
    const family_row *found = NULL, *f;

    for (int i = 0; (f = wf_gguf_family_at(i)); i++) {
        const unsigned needed = wf_gguf_traits_of(&f->config), others = traits ^ needed;

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
    if (m->position != WF_NN_ROPE || wf_gguf_family_of(m))
        return NULL;
    if (m->rope_scaling.kind == WF_ROPE_DYNAMIC)
        return "RoPE scaled by the length of a text (\"rope_type\": \"dynamic\")";
    if (!rotates_as_phi3(m) || wf_gguf_may_be_phi3(m))
        return NULL;
    return m->rope_scaling.kind == WF_ROPE_LONG
               ? "RoPE scaled by \"short_factor\" and \"long_factor\" (\"rope_type\": "
                 "\"longrope\") beside what Phi-3 has not"
               : "heads of which a part is rotated (\"partial_rotary_factor\") beside what "
                 "Phi-3 lacks";
}

const char *wf_gguf_missing(const wf_nn_gpt_config *m)
{
    const bool found = wf_gguf_family_of(m) != NULL;
    const family_row *f;

    for (int i = 0; !found && (f = wf_gguf_family_at(i)); i++) {
        const char *missing = f->words && has_base_of(m, f) ? lacks(m, f) : NULL;

        if (missing && wf_gguf_traits_of(m) == wf_gguf_traits_of(&f->config))
            return missing;
    }
    return "something else";
}
