/* nn/models/gpt/gpt_config.c - the properties of models: families by name, defaults of zeros,
   comparison. */
#include "nn/models/gpt/gpt.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

const wf_nn_gpt_config *wf_nn_gpt_family(const char *name)
{
    static const struct {
        const char *name;
        wf_nn_gpt_config config;
    } families[] = {
#define FAMILY(name, class, parent, base, gguf, ...) {#name, {__VA_ARGS__}},
#include "nn/models/gpt/families.def"
#undef FAMILY
    };

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (name && strcmp(families[i].name, name) == 0)
            return &families[i].config;
    return NULL;
}

bool wf_nn_block_listed(const wf_nn_blocks *list, int64_t number)
{
    return number < WF_NN_LISTED_BLOCKS &&
           list->bits[number / 64] >> (uint64_t)(number % 64) & 1;
}

void wf_nn_block_list(wf_nn_blocks *list, int64_t number)
{
    if (number < WF_NN_LISTED_BLOCKS)
        list->bits[number / 64] |= (uint64_t)1 << number % 64;
}

int64_t wf_nn_blocks_count(const wf_nn_blocks *list)
{
    int64_t count = 0;

    for (int64_t i = 0; i < WF_NN_LISTED_BLOCKS; i++)
        count += wf_nn_block_listed(list, i);
    return count;
}

/* Takes blocks that a model does not have off a list. */
static void trim(wf_nn_blocks *list, int64_t layers)
{
    for (int64_t i = layers > 0 ? layers : 0; i < WF_NN_LISTED_BLOCKS; i++)
        list->bits[i / 64] &= ~((uint64_t)1 << i % 64);
}

bool wf_nn_gpt_is_mixture(const wf_nn_gpt_config *c, int64_t number)
{
    return c->experts > 0 && !wf_nn_block_listed(&c->dense_blocks, number);
}

static bool has_list(const wf_nn_gpt_config *c)
{
    return wf_nn_blocks_count(&c->window_blocks) > 0;
}

int64_t wf_nn_gpt_window(const wf_nn_gpt_config *c, int64_t number)
{
    bool skipped = c->window_skip && (number + 1) % c->window_skip == 0;
    bool has = has_list(c) ? wf_nn_block_listed(&c->window_blocks, number)
                           : number >= c->window_first && !skipped;

    return has ? c->window : 0;
}

/* Returns true where the listed blocks are all from the first on, but for every `skip`-th. */
static bool is_pattern(const wf_nn_gpt_config *c, int64_t first, int64_t skip)
{
    for (int64_t i = 0; i < c->layers; i++)
        if (wf_nn_block_listed(&c->window_blocks, i) != (i >= first && (i + 1) % skip != 0))
            return false;
    return true;
}

/* Shortens a list to two numbers where these say the same; false: it has no block. */
static bool shorten_list(wf_nn_gpt_config *c)
{
    int64_t first = 0, next, skip = 2;

    while (first < c->layers && !wf_nn_block_listed(&c->window_blocks, first))
        first++;
    for (next = first; next < c->layers && wf_nn_block_listed(&c->window_blocks, next);)
        next++;
    c->window_first = c->window_skip = 0;
    for (; skip <= next + 1 && next < c->layers; skip++)
        if ((next + 1) % skip == 0 && is_pattern(c, first, skip))
            break;
    if (next == c->layers || skip <= next + 1) {
        c->window_first = first;
        c->window_skip = next < c->layers ? skip : 0;
        c->window_blocks = (wf_nn_blocks){{0}};
    }
    trim(&c->window_blocks, c->layers);
    return first < c->layers;
}

/* Completes the windows, so that one form says which blocks have them. */
static void complete_windows(wf_nn_gpt_config *c)
{
    if (has_list(c) && !shorten_list(c))
        c->window = 0;
    if (c->window_first >= c->layers || c->window_skip == 1 ||
        (c->window >= c->positions && !(c->window_rope_base > 0)))
        c->window = 0;
    if (!c->window) {
        c->window_first = c->window_skip = 0;
        c->window_blocks = (wf_nn_blocks){{0}};
    }
    if (c->window_skip > c->layers)
        c->window_skip = 0;
}

static void complete_experts(wf_nn_gpt_config *c)
{
    trim(&c->dense_blocks, c->layers);
    if (c->layers > 0 && wf_nn_blocks_count(&c->dense_blocks) == c->layers)
        c->experts = 0;
    if (!c->experts)
        c->top_k = c->expert_ffn = c->shared_ffn = 0, c->router = WF_NN_SOFTMAX,
        c->router_normalised = c->weigh_input = false,
        c->bias_step = c->sequence_weight = c->global_weight = c->z_weight = 0,
        c->expert_capacity = 0, c->dense_blocks = (wf_nn_blocks){{0}};
    if (!c->experts || !c->shared_ffn)
        c->shared_gate = false;
    if (c->experts && !c->expert_ffn)
        c->expert_ffn = c->ffn;
    if (c->router == WF_NN_SOFTMAX_CHOSEN)
        c->router_normalised = false; /* they add up to 1 as they are */
    if (!c->experts || !(c->router_factor > 0))
        c->router_factor = 1;
}

wf_nn_gpt_config wf_nn_gpt_complete(const wf_nn_gpt_config *config)
{
    wf_nn_gpt_config c = *config;

    if (!c.head_dim && c.heads > 0 && c.width % c.heads == 0)
        c.head_dim = c.width / c.heads;
    if (!(c.eps > 0))
        c.eps = 1e-5f;
    if (!(c.rope_base > 0))
        c.rope_base = 10000;
    if (!(c.rotary > 0))
        c.rotary = 1;
    if (c.position != WF_NN_ROPE)
        c.rope_base = 0, c.rope_skip = 0, c.rotary = 1, c.rope_neighbours = false;
    if (c.rope_skip > c.layers)
        c.rope_skip = 0;
    if (c.position != WF_NN_ROPE ||
        (c.window_rope_base == c.rope_base && c.rope_scaling.kind == WF_ROPE_UNSCALED))
        c.window_rope_base = 0;
    complete_windows(&c);
    if (!c.window)
        c.window_rope_base = 0, c.window_chunks = false;
    if (c.position != WF_NN_ROPE)
        c.qk_l2_norm = false;
    if (!c.rope_skip || !(c.temperature > 0))
        c.temperature = c.temperature_every = 0;
    c.shared_norm = c.parallel && c.shared_norm;
    if (c.embedding_scale == WF_NN_SQRT_WIDTH)
        c.embedding_scale = sqrt((double)c.width);
    if (!(c.embedding_scale > 0))
        c.embedding_scale = 1;
    complete_experts(&c);
    if ((float)c.attention_scale == (float)(1 / sqrt((double)c.head_dim)))
        c.attention_scale = 0; /* the usual one */
    if (!(c.residual_scale > 0))
        c.residual_scale = 1;
    if (!(c.logit_divisor > 0))
        c.logit_divisor = 1;
    if (c.position != WF_NN_ROPE || c.rope_scaling.kind == WF_ROPE_UNSCALED)
        c.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_UNSCALED};
    if (c.rope_scaling.kind != WF_ROPE_LONG)
        memset(&c.rope_factors, 0, sizeof c.rope_factors);
    else if (!(c.rope_scaling.factor > 0) && c.rope_scaling.original_positions > 0)
        c.rope_scaling.factor = (double)c.positions / c.rope_scaling.original_positions;
    return c;
}

int64_t wf_nn_gpt_rotary(const wf_nn_gpt_config *config)
{
    const wf_nn_gpt_config c = wf_nn_gpt_complete(config);

    return (int64_t)((double)c.head_dim * c.rotary);
}

const char *wf_nn_gpt_rope_wrong(const wf_nn_gpt_config *m)
{
    const int64_t features = wf_nn_gpt_rotary(m);
    const char *wrong = wf_rope_features_wrong(&m->rope_scaling, &m->rope_factors, features);

    if (!wrong && m->position == WF_NN_ROPE && m->rotary > 0 && m->rotary < 1 &&
        (features < 2 || features % 2))
        wrong = "the share of a head that is rotated has to be an even number of features, two "
                "or more";
    return wrong;
}

/* Names ways of comparing a field of two configs. */
typedef enum compared {
    OF_SIZE,     /* by value; families leave it open */
    OF_FAMILY,   /* by value, which a family has */
    OF_PRESENCE, /* by value; a family has it, or has it not (0) */
    OF_TRAINING  /* by whether it is there (0: not) */
} compared;

typedef struct property {
    const char *name;
    size_t offset, bytes;
    compared how;
} property;

#define PROPERTY(words, field, how)                                                            \
    {                                                                                          \
        words " (." #field ")", offsetof(wf_nn_gpt_config, field),                             \
            sizeof((wf_nn_gpt_config *)NULL)->field, how                                       \
    }

/* Fields whose bytes are their value. */
static const property properties[] = {
    PROPERTY("norm", norm, OF_FAMILY),
    PROPERTY("order of norms", order, OF_FAMILY),
    PROPERTY("gain offset of norms", gain_offset, OF_FAMILY),
    PROPERTY("kind of positions", position, OF_FAMILY),
    PROPERTY("kind of MLP", mlp, OF_FAMILY),
    PROPERTY("gelu of erf", gelu_erf, OF_FAMILY),
    PROPERTY("branches of a block", parallel, OF_FAMILY),
    PROPERTY("norm of both branches", shared_norm, OF_FAMILY),
    PROPERTY("bias of the head", head_bias, OF_FAMILY),
    PROPERTY("pairs of RoPE", rope_neighbours, OF_FAMILY),
    PROPERTY("bias of q, k and v", qkv_bias, OF_FAMILY),
    PROPERTY("bias of attention's output", out_bias, OF_FAMILY),
    PROPERTY("bias of the MLP", mlp_bias, OF_FAMILY),
    PROPERTY("norm of q and k of a head", qk_norm, OF_FAMILY),
    PROPERTY("norm of q and k of all heads", qk_norm_wide, OF_FAMILY),
    PROPERTY("norm of q and k without gains", qk_l2_norm, OF_FAMILY),
    PROPERTY("head tied to the embedding", tied, OF_FAMILY),
    PROPERTY("number of key-value heads", kv_heads, OF_SIZE),
    PROPERTY("width of a head", head_dim, OF_SIZE),
    PROPERTY("width of the MLP", ffn, OF_SIZE),
    PROPERTY("number of experts", experts, OF_PRESENCE),
    PROPERTY("number of experts of a token", top_k, OF_SIZE),
    PROPERTY("width of experts", expert_ffn, OF_SIZE),
    PROPERTY("width of the shared expert", shared_ffn, OF_PRESENCE),
    PROPERTY("scores of experts", router, OF_FAMILY),
    PROPERTY("weights of experts that add up to 1", router_normalised, OF_FAMILY),
    PROPERTY("weights of what experts take", weigh_input, OF_FAMILY),
    PROPERTY("factor of weights of experts", router_factor, OF_SIZE),
    PROPERTY("blocks without experts", dense_blocks, OF_SIZE),
    PROPERTY("gate of the shared expert", shared_gate, OF_FAMILY),
    PROPERTY("bias of experts", bias_step, OF_TRAINING),
    PROPERTY("capacity of experts", expert_capacity, OF_SIZE),
    PROPERTY("vocabulary", vocabulary, OF_SIZE),
    PROPERTY("number of positions", positions, OF_SIZE),
    PROPERTY("number of layers", layers, OF_SIZE),
    PROPERTY("number of heads", heads, OF_SIZE),
    PROPERTY("width", width, OF_SIZE),
    PROPERTY("epsilon of norms", eps, OF_SIZE),
    PROPERTY("base of RoPE", rope_base, OF_SIZE),
    PROPERTY("base of RoPE in windows", window_rope_base, OF_SIZE),
    PROPERTY("blocks without RoPE", rope_skip, OF_SIZE),
    PROPERTY("sliding window", window, OF_SIZE),
    PROPERTY("chunks as windows", window_chunks, OF_FAMILY),
    PROPERTY("first block with a window", window_first, OF_SIZE),
    PROPERTY("blocks without a window", window_skip, OF_SIZE),
    PROPERTY("blocks with a window", window_blocks, OF_SIZE),
    PROPERTY("share of a head that is rotated", rotary, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.kind, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.factor, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.low_freq_factor, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.high_freq_factor, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.original_positions, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.beta_fast, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.beta_slow, OF_SIZE),
    PROPERTY("scaling of RoPE", rope_scaling.attention_factor, OF_SIZE),
    PROPERTY("cap of scores", score_cap, OF_SIZE),
    PROPERTY("cap of logits", logit_cap, OF_SIZE),
    PROPERTY("sinks of attention", sinks, OF_FAMILY),
    PROPERTY("scale of the embedding", embedding_scale, OF_SIZE),
    PROPERTY("scale of residuals", residual_scale, OF_SIZE),
    PROPERTY("scale of attention", attention_scale, OF_SIZE),
    PROPERTY("divisor of logits", logit_divisor, OF_SIZE),
    PROPERTY("temperature of queries", temperature, OF_SIZE),
    PROPERTY("temperature of queries", temperature_every, OF_SIZE),
};

enum { PROPERTIES = sizeof properties / sizeof *properties };

/* Returns true where a field is not 0. */
static bool is_there(const wf_nn_gpt_config *c, const property *p)
{
    static const char none[sizeof(wf_nn_gpt_config)];

    return memcmp((const char *)c + p->offset, none, p->bytes) != 0;
}

static bool same_value(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b, const property *p)
{
    return memcmp((const char *)a + p->offset, (const char *)b + p->offset, p->bytes) == 0;
}

static bool same_factors(const wf_rope_factors *a, const wf_rope_factors *b)
{
    const size_t bytes = (size_t)a->count * sizeof *a->short_factor;

    return a->count == b->count && memcmp(a->short_factor, b->short_factor, bytes) == 0 &&
           memcmp(a->long_factor, b->long_factor, bytes) == 0;
}

bool wf_nn_gpt_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    for (int i = 0; i < PROPERTIES; i++) {
        const property *p = &properties[i];

        if ((p->how == OF_FAMILY && !same_value(a, b, p)) ||
            (p->how == OF_PRESENCE && is_there(a, p) != is_there(b, p)))
            return false;
    }
    return true;
}

const char *wf_nn_gpt_difference(const wf_nn_gpt_config *one, const wf_nn_gpt_config *other,
                                 int *count)
{
    const wf_nn_gpt_config a = wf_nn_gpt_complete(one), b = wf_nn_gpt_complete(other);
    const char *first = NULL;

    *count = 0;
    for (int i = 0; i < PROPERTIES; i++) {
        const property *p = &properties[i];
        const bool same =
            p->how == OF_TRAINING ? is_there(&a, p) == is_there(&b, p) : same_value(&a, &b, p);

        if (!same && (*count)++ == 0)
            first = p->name;
    }
    if (!same_factors(&a.rope_factors, &b.rope_factors) && (*count)++ == 0)
        first = "scaling of RoPE (.rope_factors)";
    return first;
}

bool wf_nn_gpt_same(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    int count;

    return !wf_nn_gpt_difference(a, b, &count);
}
