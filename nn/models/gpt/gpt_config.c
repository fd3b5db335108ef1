/* nn/models/gpt/gpt_config.c - the properties of models: families by name, what zeros stand for, comparison. */
#include "nn/models/gpt/gpt.h"
#include <math.h>
#include <string.h>

const wf_nn_gpt_config *wf_nn_gpt_family(const char *name)
{
    static const struct {
        const char *name;
        wf_nn_gpt_config config;
    } families[] = {
#define FAMILY(name, ...) {#name, {__VA_ARGS__}},
#include "nn/models/gpt/families.def"
#undef FAMILY
    };

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i].config;
    return NULL;
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
    if (c.position != WF_NN_ROPE)
        c.rope_base = 0, c.rope_skip = 0;
    if (c.rope_skip > c.layers)
        c.rope_skip = 0;
    if (c.window_first >= c.layers || c.window_skip == 1 || c.window >= c.positions)
        c.window = 0;
    if (!c.window)
        c.window_first = 0, c.window_skip = 0;
    if (c.window_skip > c.layers)
        c.window_skip = 0;
    if (c.embedding_scale == WF_NN_SQRT_WIDTH)
        c.embedding_scale = sqrt((double)c.width);
    if (!(c.embedding_scale > 0))
        c.embedding_scale = 1;
    if (!(c.residual_scale > 0))
        c.residual_scale = 1;
    if (!(c.logit_divisor > 0))
        c.logit_divisor = 1;
    if (c.position != WF_NN_ROPE || c.rope_scaling.kind == WF_ROPE_UNSCALED)
        c.rope_scaling = (wf_rope_scaling){.kind = WF_ROPE_UNSCALED};
    return c;
}

static bool same_scaling(const wf_rope_scaling *a, const wf_rope_scaling *b)
{
    return a->kind == b->kind && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor &&
           a->original_positions == b->original_positions && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor;
}

static bool same_scales(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->embedding_scale == b->embedding_scale && a->residual_scale == b->residual_scale &&
           a->attention_scale == b->attention_scale && a->logit_divisor == b->logit_divisor;
}

static bool same_sizes(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->vocabulary == b->vocabulary && a->positions == b->positions &&
           a->layers == b->layers && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->width == b->width && a->ffn == b->ffn && a->head_dim == b->head_dim;
}

bool wf_nn_gpt_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return a->norm == b->norm && a->gain_offset == b->gain_offset &&
           a->position == b->position && a->mlp == b->mlp && a->qkv_bias == b->qkv_bias &&
           a->out_bias == b->out_bias && a->mlp_bias == b->mlp_bias &&
           a->qk_norm == b->qk_norm && a->qk_norm_wide == b->qk_norm_wide &&
           a->order == b->order && a->tied == b->tied;
}

bool wf_nn_gpt_same(const wf_nn_gpt_config *one, const wf_nn_gpt_config *other)
{
    const wf_nn_gpt_config a = wf_nn_gpt_complete(one), b = wf_nn_gpt_complete(other);

    return wf_nn_gpt_alike(&a, &b) && same_sizes(&a, &b) && a.eps == b.eps &&
           a.rope_base == b.rope_base && a.rope_skip == b.rope_skip && a.window == b.window &&
           a.window_first == b.window_first && a.window_skip == b.window_skip &&
           same_scaling(&a.rope_scaling, &b.rope_scaling) && same_scales(&a, &b);
}
