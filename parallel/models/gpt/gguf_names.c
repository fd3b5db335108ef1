/* parallel/models/gpt/gguf_names.c - see the header. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include <stdio.h>
#include <string.h>

/* Words of families.def; the last four are of models alone. */
enum {
    NO_GGUF = 0,
    IN_GGUF = 1,
    TURNS_NEIGHBOURS = 1 << 1,
    ONE_QKV = 1 << 2,
    ONE_MLP = 1 << 3,
    MAY_BIAS = 1 << 4,
    HAS_SCALES = 1 << 5,
    HAS_LONG_ROPE = 1 << 6,
    IS_TIED = 1 << 7,
    QKV_BIAS = 1 << 8,
    OTHER_BIAS = 1 << 9,
    QK_NORM = 1 << 10,
    ROPE_SKIP = 1 << 11,
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

/* Returns llama.cpp's name of a family, which differs for these two. */
static const char *architecture_of(const family *f)
{
    static const char *const others[][2] = {{"mixtral", "llama"}, {"qwen3_moe", "qwen3moe"}};

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
static bool turns_as_phi3(const wf_nn_gpt_config *m)
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

const char *wf_gguf_rope_missing(const wf_nn_gpt_config *m)
{
    if (m->rope_scaling.kind == WF_ROPE_YARN)
        return "RoPE scaled by YaRN (\"rope_type\": \"yarn\")";
    if (m->rope_scaling.kind == WF_ROPE_DYNAMIC)
        return "RoPE scaled by the length of a text (\"rope_type\": \"dynamic\")";
    if (!turns_as_phi3(m) || may_be_phi3(m))
        return NULL;
    return m->rope_scaling.kind == WF_ROPE_LONG
               ? "RoPE scaled by \"short_factor\" and \"long_factor\" (\"rope_type\": "
                 "\"longrope\") beside what Phi-3 has not"
               : "heads of which a part is rotated (\"partial_rotary_factor\") beside what "
                 "Phi-3 lacks";
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
    if (wf_gguf_is_scaled(m))
        traits |= HAS_SCALES;
    if (turns_as_phi3(m))
        traits |= HAS_LONG_ROPE;
    return traits;
}

/* Returns the traits that a family's models have, all of them. */
static unsigned traits_needed(const family *f)
{
    return traits_of(&f->config) | (f->words & (HAS_SCALES | HAS_LONG_ROPE));
}

/* Returns true for a model without experts, or with such as llama.cpp makes of them: weights
   are a softmax that is normalised over the chosen ones, in all blocks and with nothing
   beside. */
static bool mixes_as_llama_cpp(const wf_nn_gpt_config *m)
{
    return !m->experts ||
           (m->router == WF_NN_SOFTMAX && m->router_normalised && !m->shared_ffn &&
            !(m->bias_step > 0) && !wf_nn_blocks_count(&m->dense_blocks) &&
            (m->router_factor == 0 || m->router_factor == 1));
}

/* Compares what architectures say by nothing but their names. */
static bool has_base_of(const wf_nn_gpt_config *m, const family *f)
{
    const wf_nn_gpt_config *c = &f->config;

    return m->norm == c->norm && m->position == c->position && m->mlp == c->mlp &&
           m->order == c->order && m->gain_offset == c->gain_offset &&
           m->qk_norm_wide == c->qk_norm_wide && m->parallel == c->parallel &&
           m->shared_norm == c->shared_norm && m->rope_neighbours == c->rope_neighbours &&
           m->head_bias == c->head_bias && m->gelu_erf == c->gelu_erf &&
           m->window_rope_base == c->window_rope_base && m->score_cap == c->score_cap &&
           m->logit_cap == c->logit_cap && !m->experts == !c->experts &&
           mixes_as_llama_cpp(m) && (!c->rope_skip || m->rope_skip == c->rope_skip) &&
           (m->tied || !(f->words & IS_TIED));
}

/* NULL: llama.cpp has no model of these properties. A family that has biases goes before one
   that may have them. */
static const family *family_of(const wf_nn_gpt_config *m)
{
    const unsigned traits = traits_of(m), biases = QKV_BIAS | OTHER_BIAS;
    const family *found = NULL;

    if (m->position == WF_NN_ROPE && wf_gguf_rope_missing(m))
        return NULL;
    for (int i = 0; i < FAMILIES; i++) {
        const family *f = &families[i];

        if (!f->words || !has_base_of(m, f))
            continue;
        if (traits == traits_needed(f))
            return f;
        if (f->words & MAY_BIAS && (traits & ~biases) == traits_needed(f) && !found)
            found = f;
    }
    return found;
}

bool wf_gguf_is_architecture(const char *name)
{
    return find(name, false) || find(name, true);
}

bool wf_gguf_has_long_rope(const char *architecture)
{
    const family *f = find(architecture, false);

    return f && f->words & HAS_LONG_ROPE;
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

/* Ours, with N for the number of a block, and theirs. */
static const struct {
    const char *ours, *theirs;
} names[] = {{"embed.table", "token_embd.weight"},
             {"position.table", "position_embd.weight"},
             {"block.N.norm1.gain", "blk.N.attn_norm.weight"},
             {"block.N.norm1.bias", "blk.N.attn_norm.bias"},
             {"block.N.attn.qkv.q.weight", "blk.N.attn_q.weight"},
             {"block.N.attn.qkv.k.weight", "blk.N.attn_k.weight"},
             {"block.N.attn.qkv.v.weight", "blk.N.attn_v.weight"},
             {"block.N.attn.qkv.q.bias", "blk.N.attn_q.bias"},
             {"block.N.attn.qkv.k.bias", "blk.N.attn_k.bias"},
             {"block.N.attn.qkv.v.bias", "blk.N.attn_v.bias"},
             {"block.N.attn.q_norm.gain", "blk.N.attn_q_norm.weight"},
             {"block.N.attn.k_norm.gain", "blk.N.attn_k_norm.weight"},
             {"block.N.attn.out.weight", "blk.N.attn_output.weight"},
             {"block.N.attn.out.bias", "blk.N.attn_output.bias"},
             {"block.N.norm2.gain", "blk.N.ffn_norm.weight"},
             {"block.N.norm2.bias", "blk.N.ffn_norm.bias"},
             {"block.N.mlp.gate_up.gate.weight", "blk.N.ffn_gate.weight"},
             {"block.N.mlp.gate_up.up.weight", "blk.N.ffn_up.weight"},
             {"block.N.mlp.gate_up.gate.bias", "blk.N.ffn_gate.bias"},
             {"block.N.mlp.gate_up.up.bias", "blk.N.ffn_up.bias"},
             {"block.N.mlp.up.weight", "blk.N.ffn_up.weight"},
             {"block.N.mlp.up.bias", "blk.N.ffn_up.bias"},
             {"block.N.mlp.down.weight", "blk.N.ffn_down.weight"},
             {"block.N.mlp.down.bias", "blk.N.ffn_down.bias"},
             {"block.N.moe.router", "blk.N.ffn_gate_inp.weight"},
             {"block.N.moe.gate", "blk.N.ffn_gate_exps.weight"},
             {"block.N.moe.up", "blk.N.ffn_up_exps.weight"},
             {"block.N.moe.down", "blk.N.ffn_down_exps.weight"},
             {"norm.gain", "output_norm.weight"},
             {"norm.bias", "output_norm.bias"},
             {"head.weight", "output.weight"}};

/* The letter of "blk.N.attn_q.weight" and the like; 0: another name. */
static char of_qkv(const char *theirs)
{
    const char *found = strstr(theirs, ".attn_");

    return found && found[7] == '.' ? found[6] : '\0';
}

/* Parameters of a model without traits may lie as those of a Phi-3 do. */
static const family *layout_of(const char *architecture, const wf_nn_gpt_config *model)
{
    const family *f = family_of(model), *other = find(architecture, false);
    const bool plain = f && !traits_needed(f) && f->config.position == WF_NN_ROPE;

    return plain && other && other->words & HAS_LONG_ROPE ? other : f;
}

bool wf_gguf_fits(const char *architecture, const wf_nn_gpt_config *model)
{
    const family *f = layout_of(architecture, model);

    return f && strcmp(architecture_of(f), architecture) == 0;
}

bool wf_gguf_place_of(const char *architecture, const wf_nn_gpt_config *model,
                      const wf_nn_parameter *parameter, wf_gguf_place *place)
{
    const family *f = layout_of(architecture, model);
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
    int64_t block = 0, rows = parameter->tensor->dim[0].size;
    char name[WF_HF_NAME], letter;
    size_t i = 0;

    while (f && i < sizeof names / sizeof *names &&
           !wf_hf_matches(names[i].ours, parameter->path, &block))
        i++;
    if (!f || i == sizeof names / sizeof *names)
        return false;
    *place = (wf_gguf_place){.rows = rows};
    wf_hf_write_name(name, names[i].theirs, block);
    letter = of_qkv(name);
    if (strstr(name, ".ffn_gate.") && f->words & ONE_MLP) { /* it comes before what it gates */
        place->rows = 2 * rows;
        snprintf(place->name, sizeof place->name, "blk.%lld.ffn_up%s", (long long)block,
                 strrchr(name, '.'));
        return true;
    }
    if (strstr(name, ".ffn_up.") && f->words & ONE_MLP) {
        place->row = rows;
        place->rows = 2 * rows;
    }
    if (letter && f->words & ONE_QKV) { /* they come in this order */
        place->row = letter == 'q' ? 0 : letter == 'k' ? queries : queries + keys;
        place->rows = queries + 2 * keys;
        snprintf(place->name, sizeof place->name, "blk.%lld.attn_qkv%s", (long long)block,
                 strrchr(name, '.'));
        return true;
    }
    if (f->words & TURNS_NEIGHBOURS && (letter == 'q' || letter == 'k'))
        place->heads = letter == 'q' ? model->heads : model->kv_heads;
    snprintf(place->name, sizeof place->name, "%.63s", name);
    return true;
}

int64_t wf_gguf_row(const wf_gguf_place *place, int64_t rows, int64_t row)
{
    int64_t head, i;

    if (!place->heads)
        return row;
    head = rows / place->heads;
    i = row % head;
    return row - i + i / 2 + i % 2 * (head / 2);
}

int64_t wf_gguf_file_row(const wf_gguf_place *place, int64_t rows, int64_t row)
{
    int64_t head, i;

    if (!place->heads)
        return row;
    head = rows / place->heads;
    i = row % head;
    return row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
}
