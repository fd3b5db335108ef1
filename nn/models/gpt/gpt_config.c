/* nn/models/gpt/gpt_config.c - the properties of models: families by name, defaults of zeros,
   comparison. */
#include "nn/models/gpt/gpt.h"
#include <math.h>
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

static bool same_scaling(const wf_rope_scaling *a, const wf_rope_scaling *b)
{
    return a->kind == b->kind && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor &&
           a->original_positions == b->original_positions && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor;
}

static bool same_factors(const wf_rope_factors *a, const wf_rope_factors *b)
{
    const size_t bytes = (size_t)a->count * sizeof *a->short_factor;

    return a->count == b->count && memcmp(a->short_factor, b->short_factor, bytes) == 0 &&
           memcmp(a->long_factor, b->long_factor, bytes) == 0;
}

static bool same_blocks(const wf_nn_blocks *a, const wf_nn_blocks *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool have_windows_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->window_first == b->window_first && a->window_skip == b->window_skip &&
           same_blocks(&a->window_blocks, &b->window_blocks);
}

static bool same_scales(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->embedding_scale == b->embedding_scale && a->residual_scale == b->residual_scale &&
           a->attention_scale == b->attention_scale && a->logit_divisor == b->logit_divisor &&
           a->temperature == b->temperature && a->temperature_every == b->temperature_every;
}

static bool same_limits(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return !(a->bias_step > 0) == !(b->bias_step > 0) &&
           a->expert_capacity == b->expert_capacity;
}

bool wf_nn_gpt_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->norm == b->norm && a->gain_offset == b->gain_offset &&
           a->position == b->position && a->mlp == b->mlp && a->qkv_bias == b->qkv_bias &&
           a->out_bias == b->out_bias && a->mlp_bias == b->mlp_bias &&
           a->qk_norm == b->qk_norm && a->qk_norm_wide == b->qk_norm_wide &&
           a->order == b->order && a->tied == b->tied && a->parallel == b->parallel &&
           a->shared_norm == b->shared_norm && a->head_bias == b->head_bias &&
           a->gelu_erf == b->gelu_erf && a->sinks == b->sinks &&
           a->window_chunks == b->window_chunks && a->qk_l2_norm == b->qk_l2_norm &&
           a->rope_neighbours == b->rope_neighbours && !a->experts == !b->experts &&
           !a->shared_ffn == !b->shared_ffn && a->shared_gate == b->shared_gate &&
           a->router == b->router && a->router_normalised == b->router_normalised &&
           a->weigh_input == b->weigh_input;
}

const char *wf_nn_gpt_difference(const wf_nn_gpt_config *one, const wf_nn_gpt_config *other,
                                 int *count)
{
    const wf_nn_gpt_config a = wf_nn_gpt_complete(one), b = wf_nn_gpt_complete(other);
    const struct {
        const char *name;
        bool same;
    } property[] = {
        {"norm", a.norm == b.norm},
        {"order of norms", a.order == b.order},
        {"gain offset of norms", a.gain_offset == b.gain_offset},
        {"kind of positions", a.position == b.position},
        {"kind of MLP (.mlp, .gelu_erf)", a.mlp == b.mlp && a.gelu_erf == b.gelu_erf},
        {"branches of a block (.parallel, .shared_norm)",
         a.parallel == b.parallel && a.shared_norm == b.shared_norm},
        {"bias of the head, or pairs of RoPE (.head_bias, .rope_neighbours)",
         a.head_bias == b.head_bias && a.rope_neighbours == b.rope_neighbours},
        {"bias of q, k and v (.qkv_bias)", a.qkv_bias == b.qkv_bias},
        {"bias of attention's output (.out_bias)", a.out_bias == b.out_bias},
        {"bias of the MLP (.mlp_bias)", a.mlp_bias == b.mlp_bias},
        {"norm of q and k (.qk_norm, .qk_l2_norm)", a.qk_norm == b.qk_norm &&
                                                        a.qk_norm_wide == b.qk_norm_wide &&
                                                        a.qk_l2_norm == b.qk_l2_norm},
        {"head tied to the embedding (.tied)", a.tied == b.tied},
        {"number of key-value heads (.kv_heads)", a.kv_heads == b.kv_heads},
        {"width of a head (.head_dim)", a.head_dim == b.head_dim},
        {"width of the MLP (.ffn)", a.ffn == b.ffn},
        {"number of experts, or of those of a token (.experts, .top_k)",
         a.experts == b.experts && a.top_k == b.top_k},
        {"width of experts (.expert_ffn, .shared_ffn)",
         a.expert_ffn == b.expert_ffn && a.shared_ffn == b.shared_ffn},
        {"weights of experts (.router, .router_normalised, .weigh_input, .router_factor)",
         a.router == b.router && a.router_normalised == b.router_normalised &&
             a.weigh_input == b.weigh_input && a.router_factor == b.router_factor},
        {"blocks without experts (.dense_blocks)",
         same_blocks(&a.dense_blocks, &b.dense_blocks)},
        {"gate of the shared expert (.shared_gate)", a.shared_gate == b.shared_gate},
        {"bias or capacity of experts (.bias_step, .expert_capacity)", same_limits(&a, &b)},
        {"vocabulary", a.vocabulary == b.vocabulary},
        {"number of positions", a.positions == b.positions},
        {"number of layers, of heads or width",
         a.layers == b.layers && a.heads == b.heads && a.width == b.width},
        {"epsilon of norms (.eps)", a.eps == b.eps},
        {"base of RoPE (.rope_base, .window_rope_base)",
         a.rope_base == b.rope_base && a.window_rope_base == b.window_rope_base},
        {"blocks without RoPE (.rope_skip)", a.rope_skip == b.rope_skip},
        {"sliding window (.window, .window_chunks)",
         a.window == b.window && a.window_chunks == b.window_chunks},
        {"blocks with a window (.window_first, .window_skip, .window_blocks)",
         have_windows_alike(&a, &b)},
        {"share of a head that is rotated (.rotary)", a.rotary == b.rotary},
        {"scaling of RoPE (.rope_scaling)", same_scaling(&a.rope_scaling, &b.rope_scaling) &&
                                                same_factors(&a.rope_factors, &b.rope_factors)},
        {"caps of scores or logits, or sinks (.score_cap, .logit_cap, .sinks)",
         a.score_cap == b.score_cap && a.logit_cap == b.logit_cap && a.sinks == b.sinks},
        {"scales of embedding, residuals, queries, attention or logits", same_scales(&a, &b)}};
    const char *first = NULL;

    *count = 0;
    for (size_t i = 0; i < sizeof property / sizeof *property; i++)
        if (!property[i].same && (*count)++ == 0)
            first = property[i].name;
    return first;
}

bool wf_nn_gpt_same(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    int count;

    return !wf_nn_gpt_difference(a, b, &count);
}
