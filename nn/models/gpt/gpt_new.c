/* nn/models/gpt/gpt_new.c - building models on the fake device, from their properties. */
#include "nn/models/gpt/gpt_internal.h"
#include "nn/numbers_internal.h"
#include <math.h>
#include <stdlib.h>

static const float deviation = 0.02f;

enum { MOST_LAYERS = 65536 }; /* more would be made for minutes before there is no memory */

static bool has_known_kinds(const wf_nn_gpt_config *c)
{
    return (unsigned)c->norm <= WF_NN_LAYERNORM_UNBIASED &&
           (unsigned)c->order <= WF_NN_BOTH_NORMS &&
           (unsigned)c->position <= WF_NN_LEARNED_POSITIONS &&
           (unsigned)c->mlp <= WF_NN_GEGLU && (unsigned)c->router <= WF_NN_SIGMOID;
}

static wf_status check_numbers(wf_context *ctx, const wf_nn_gpt_config *c)
{
    bool root = c->embedding_scale == WF_NN_SQRT_WIDTH;

    return wf_nn_numbers_check(
        ctx, "a model",
        WF_NN_NUMBERS(
            {"eps", c->eps}, {"rope_base", c->rope_base},
            {"window_rope_base", c->window_rope_base},
            {"embedding_scale", root ? 0 : c->embedding_scale},
            {"residual_scale", c->residual_scale}, {"attention_scale", c->attention_scale},
            {"logit_divisor", c->logit_divisor}, {"router_factor", c->router_factor},
            {"bias_step", c->bias_step}, {"sequence_weight", c->sequence_weight},
            {"global_weight", c->global_weight}, {"z_weight", c->z_weight},
            {"score_cap", c->score_cap}, {"temperature", c->temperature},
            {"temperature_every", c->temperature_every}, {"logit_cap", c->logit_cap}));
}

static wf_status check_given(wf_context *ctx, const wf_nn_gpt_config *c)
{
    if (!c)
        return wf_context_status(ctx) != WF_OK
                   ? wf_context_status(ctx)
                   : wf_fail(ctx, WF_EINVAL, "a model without a config (NULL)");
    if (!has_known_kinds(c))
        return wf_fail(ctx, WF_EINVAL,
                       "a model with norm %d, order %d, position %d, mlp %d and router %d: one "
                       "of them is no value of its enum (nn/models/gpt/gpt.h)",
                       (int)c->norm, (int)c->order, (int)c->position, (int)c->mlp,
                       (int)c->router);
    if (check_numbers(ctx, c) != WF_OK)
        return wf_context_status(ctx);
    if (!(c->rotary >= 0) || c->rope_skip < 0 || c->head_dim < 0)
        return wf_fail(ctx, WF_EINVAL,
                       "a model with RoPE of %g of each head's features, no positions in every "
                       "%lld-th block, heads of %lld features: none is negative",
                       c->rotary, (long long)c->rope_skip, (long long)c->head_dim);
    return WF_OK;
}

/* Checks the config beyond the checks of each layer, which checks its own sizes. */
static wf_status check(wf_context *ctx, const wf_nn_gpt_config *c)
{
    if (c->vocabulary < 1 || c->positions < 1 || c->layers < 0 || c->layers > MOST_LAYERS ||
        c->heads < 1 || c->kv_heads < 1 || c->width < 1 || c->ffn < 1)
        return wf_fail(ctx, WF_EINVAL,
                       "a model with vocabulary %lld, positions %lld, layers %lld, heads %lld, "
                       "kv_heads %lld, width %lld and ffn %lld: each must be at least 1 "
                       "(layers: 0, and at most %d)",
                       (long long)c->vocabulary, (long long)c->positions, (long long)c->layers,
                       (long long)c->heads, (long long)c->kv_heads, (long long)c->width,
                       (long long)c->ffn, MOST_LAYERS);
    if (c->window < 0 || c->window_first < 0 || c->window_skip < 0)
        return wf_fail(
            ctx, WF_EINVAL,
            "a window of %lld tokens from block %lld on, but in every %lld-th: none may "
            "be below 0",
            (long long)c->window, (long long)c->window_first, (long long)c->window_skip);
    if (c->experts < 0 || c->expert_ffn < 0 || c->shared_ffn < 0 ||
        (c->experts && (c->mlp != WF_NN_SWIGLU || c->mlp_bias)))
        return wf_fail(
            ctx, WF_EINVAL,
            "a model with %lld experts of %lld features and %lld shared ones: none is "
            "below 0, and experts are SwiGLU MLPs without biases, as .mlp and "
            ".mlp_bias have to say",
            (long long)c->experts, (long long)c->expert_ffn, (long long)c->shared_ffn);
    if (c->order == WF_NN_POST_NORM && wf_context_fp32_residual(ctx))
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "a residual stream in fp32 needs norms before attention and MLP, which round "
            "what these multiply; this model has its norms after them: leave the "
            "residual stream as results are stored");
    if (c->parallel && c->order != WF_NN_PRE_NORM)
        return wf_fail(ctx, WF_EINVAL,
                       "a block whose branches are parallel has norms before them alone: leave "
                       ".order WF_NN_PRE_NORM");
    if (c->gelu_erf && c->mlp != WF_NN_GELU)
        return wf_fail(ctx, WF_EINVAL,
                       "gelu by erf is an MLP's without a gate, as .mlp has to say "
                       "(WF_NN_GELU)");
    if (!(c->rotary <= 1) || wf_nn_gpt_rope_wrong(c))
        return wf_fail(ctx, WF_EINVAL, "RoPE of %g of each head's %lld features: %s", c->rotary,
                       (long long)c->head_dim,
                       c->rotary <= 1 ? wf_nn_gpt_rope_wrong(c) : "it is at most 1, all");
    if (!(c->dropout >= 0 && c->dropout < 1))
        return wf_fail(ctx, WF_EINVAL, "dropout %g must be at least 0 and below 1",
                       (double)c->dropout);
    return WF_OK;
}

static wf_nn_norm *make_norm(wf_context *ctx, const wf_nn_gpt_config *c)
{
    wf_dim width = wf_dim_width(c->width);

    return c->norm == WF_NN_LAYERNORM ? wf_nn_layernorm_new(ctx, width, c->eps)
           : c->norm == WF_NN_LAYERNORM_UNBIASED
               ? wf_nn_layernorm_unbiased_new(ctx, width, c->eps)
           : c->gain_offset ? wf_nn_rmsnorm_offset_new(ctx, width, c->eps)
                            : wf_nn_rmsnorm_new(ctx, width, c->eps);
}

/* Returns the deviation of weights that write to the residual stream: the more of them, the
   smaller. */
static float residual_deviation(const wf_nn_gpt_config *c)
{
    return deviation / sqrtf(2.0f * (float)(c->layers > 0 ? c->layers : 1));
}

static wf_nn_attention *make_attention(wf_context *ctx, const wf_nn_gpt_config *c,
                                       int64_t number, int site)
{
    bool turns = !c->rope_skip || (number + 1) % c->rope_skip;
    bool local = c->window_rope_base > 0 && wf_nn_gpt_window(c, number);

    return wf_nn_attention_new(
        ctx, &(wf_nn_attention_options){
                 .width = c->width,
                 .heads = c->heads,
                 .kv_heads = c->kv_heads,
                 .causal = true,
                 .window = wf_nn_gpt_window(c, number),
                 .window_chunks = c->window_chunks,
                 .head_dim = c->head_dim,
                 .qkv_bias = c->qkv_bias,
                 .out_bias = c->out_bias,
                 .rope_base = !turns  ? 0
                              : local ? c->window_rope_base
                                      : c->rope_base,
                 .rope_scaling =
                     local ? (wf_rope_scaling){.kind = WF_ROPE_UNSCALED} : c->rope_scaling,
                 .rope_neighbours = c->rope_neighbours,
                 .rope_factors = c->rope_factors,
                 .rope_features = c->rotary < 1 ? wf_nn_gpt_rotary(c) : 0,
                 .qk_norm = c->qk_norm ? c->eps : 0,
                 .qk_norm_wide = c->qk_norm_wide,
                 .qk_norm_offset = c->gain_offset,
                 .qk_l2_norm = c->qk_l2_norm && turns ? c->eps : 0,
                 .temperature = turns ? 0 : c->temperature,
                 .temperature_every = c->temperature_every,
                 .scale = c->attention_scale,
                 .score_cap = (float)c->score_cap,
                 .sinks = c->sinks,
                 .dropout = c->dropout,
                 .site = site,
                 .deviation = deviation,
                 .out_deviation = residual_deviation(c)});
}

static wf_nn_mlp *make_mlp(wf_context *ctx, const wf_nn_gpt_config *c)
{
    wf_nn_mlp_options o = {.width = c->width,
                           .hidden = c->ffn,
                           .bias = c->mlp_bias,
                           .erf = c->gelu_erf,
                           .deviation = deviation,
                           .out_deviation = residual_deviation(c)};

    return c->mlp == WF_NN_GELU    ? wf_nn_gelu_mlp_new(ctx, &o)
           : c->mlp == WF_NN_GEGLU ? wf_nn_geglu_mlp_new(ctx, &o)
                                   : wf_nn_swiglu_mlp_new(ctx, &o);
}

static wf_nn_moe *make_moe(wf_context *ctx, const wf_nn_gpt_config *c)
{
    return wf_nn_moe_new(
        ctx, &(wf_nn_moe_options){.width = c->width,
                                  .experts = c->experts,
                                  .hidden = c->expert_ffn,
                                  .shared = c->shared_ffn,
                                  .shared_gate = c->shared_gate,
                                  .route = {.k = c->top_k,
                                            .sigmoid = c->router == WF_NN_SIGMOID,
                                            .after = c->router == WF_NN_SOFTMAX_CHOSEN,
                                            .normalise = c->router_normalised,
                                            .factor = (float)c->router_factor,
                                            .sequence_weight = (float)c->sequence_weight,
                                            .global_weight = (float)c->global_weight,
                                            .z_weight = (float)c->z_weight},
                                  .weigh_input = c->weigh_input,
                                  .bias_step = (float)c->bias_step,
                                  .capacity = c->expert_capacity,
                                  .deviation = deviation,
                                  .out_deviation = residual_deviation(c)});
}

/* Makes a block of a config that is complete. */
static wf_nn_block *make_block(wf_context *ctx, const wf_nn_gpt_config *c, int64_t number)
{
    wf_nn_block *m = wf_nn_new(ctx, &wf_nn_block_type);
    int site = WF_NN_EMBEDDING_SITE + 1 + WF_NN_BLOCK_SITES * (int)number;

    if (!m)
        return NULL;
    m->norm1 = make_norm(ctx, c);
    m->attn = make_attention(ctx, c, number, site + 2);
    if (!c->parallel || !c->shared_norm)
        m->norm2 = make_norm(ctx, c);
    if (c->order == WF_NN_BOTH_NORMS) {
        m->post1 = make_norm(ctx, c);
        m->post2 = make_norm(ctx, c);
    }
    if (wf_nn_gpt_is_mixture(c, number))
        m->moe = make_moe(ctx, c);
    else
        m->mlp = make_mlp(ctx, c);
    m->order = c->order;
    m->parallel = c->parallel;
    m->dropout = c->dropout;
    m->scale = (float)c->residual_scale;
    m->site = site;
    return m;
}

wf_nn_block *wf_nn_block_new(wf_context *ctx, const wf_nn_gpt_config *config, int64_t number)
{
    wf_nn_gpt_config c;

    if (check_given(ctx, config) != WF_OK)
        return NULL;
    c = wf_nn_gpt_complete(config);
    return check(ctx, &c) == WF_OK ? make_block(ctx, &c, number) : NULL;
}

static wf_nn_linear *make_head(wf_context *ctx, const wf_nn_gpt *m)
{
    wf_nn_linear_options o = {.in = wf_dim_width(m->config.width),
                              .out = wf_dim_chunked(m->config.vocabulary),
                              .bias = m->config.head_bias,
                              .cap = (float)m->config.logit_cap,
                              .deviation = deviation};
    wf_nn_linear *head = wf_nn_linear_new(ctx, &o);

    if (head && head->weight)
        head->weight->matrix = false;
    if (head && m->config.tied) {
        wf_nn_parameter_free(head->weight);
        head->weight = wf_nn_tie(m->embed ? m->embed->table : NULL);
    }
    return head;
}

int wf_nn_gpt_sites(const wf_nn_gpt *m)
{
    return WF_NN_EMBEDDING_SITE + 1 + WF_NN_BLOCK_SITES * (int)m->layers;
}

wf_nn_gpt *wf_nn_gpt_new(wf_context *ctx, const wf_nn_gpt_config *config)
{
    wf_nn_gpt_config complete, *c = &complete;
    wf_dim width;
    wf_nn_gpt *m;

    if (check_given(ctx, config) != WF_OK)
        return NULL;
    complete = wf_nn_gpt_complete(config);
    if (check(ctx, c) != WF_OK)
        return NULL;
    width = wf_dim_width(c->width);
    m = wf_nn_new(ctx, &wf_nn_gpt_type);
    if (!m)
        return NULL;
    m->base.chain = &wf_nn_gpt_chain;
    m->config = *c;
    m->embed = wf_nn_embedding_new(ctx, wf_dim_chunked(c->vocabulary), width, deviation);
    if (c->position == WF_NN_LEARNED_POSITIONS)
        m->position = wf_nn_position_new(ctx, c->positions, width, deviation);
    m->block = calloc((size_t)c->layers + 1, sizeof *m->block);
    if (!m->block)
        wf_fail(ctx, WF_ENOMEM, "no memory for %lld blocks", (long long)c->layers);
    for (; m->block && m->layers < c->layers; m->layers++) {
        wf_nn_block *block = make_block(ctx, c, m->layers);

        if (!block)
            break;
        m->block[m->layers] = &block->base;
    }
    m->norm = make_norm(ctx, c);
    m->head = make_head(ctx, m);
    m->loss = wf_nn_loss_new(ctx);
    if (wf_context_status(ctx) != WF_OK) {
        wf_nn_free(&m->base);
        return NULL;
    }
    wf_nn_name_tree(&m->base);
    return m;
}
