/* apps/options/options_model.c - rules of the model's flags, and those that follow from
   others. */
#include "apps/options/options_table.h"
#include "kernels/rope_scaling.h"
#include <stdlib.h>
#include <string.h>

const app_property app_properties[] = {
    {APP_OPTION_qkv_bias, offsetof(wf_nn_gpt_config, qkv_bias)},
    {APP_OPTION_out_bias, offsetof(wf_nn_gpt_config, out_bias)},
    {APP_OPTION_mlp_bias, offsetof(wf_nn_gpt_config, mlp_bias)},
    {APP_OPTION_qk_norm, offsetof(wf_nn_gpt_config, qk_norm)},
    {APP_OPTION_moe_weigh_input, offsetof(wf_nn_gpt_config, weigh_input)},
    {APP_OPTION_qk_l2_norm, offsetof(wf_nn_gpt_config, qk_l2_norm)},
    {APP_OPTION_window_chunks, offsetof(wf_nn_gpt_config, window_chunks)},
    {APP_OPTION_attention_sinks, offsetof(wf_nn_gpt_config, sinks)},
    {APP_OPTION_tie_embeddings, offsetof(wf_nn_gpt_config, tied)},
    {APP_OPTION_head_bias, offsetof(wf_nn_gpt_config, head_bias)},
    {APP_OPTION_parallel_blocks, offsetof(wf_nn_gpt_config, parallel)},
    {APP_OPTION_gelu_erf, offsetof(wf_nn_gpt_config, gelu_erf)},
};

const int app_property_count = sizeof app_properties / sizeof *app_properties;

const app_property app_scales[] = {
    {APP_OPTION_embedding_scale, offsetof(wf_nn_gpt_config, embedding_scale)},
    {APP_OPTION_residual_scale, offsetof(wf_nn_gpt_config, residual_scale)},
    {APP_OPTION_attention_scale, offsetof(wf_nn_gpt_config, attention_scale)},
    {APP_OPTION_query_temperature, offsetof(wf_nn_gpt_config, temperature)},
    {APP_OPTION_query_temperature_every, offsetof(wf_nn_gpt_config, temperature_every)},
    {APP_OPTION_logit_divisor, offsetof(wf_nn_gpt_config, logit_divisor)},
    {APP_OPTION_score_cap, offsetof(wf_nn_gpt_config, score_cap)},
    {APP_OPTION_logit_cap, offsetof(wf_nn_gpt_config, logit_cap)},
    {APP_OPTION_moe_scale, offsetof(wf_nn_gpt_config, router_factor)},
};

const int app_scale_count = sizeof app_scales / sizeof *app_scales;

/* Returns whether a family has a property, or a number that is not the usual one. */
static bool family_has(const char *name, const app_option_row *row)
{
    const char *family = (const char *)wf_nn_gpt_family(name);

    for (int i = 0; i < app_property_count; i++)
        if (row == &app_option_rows[app_properties[i].id])
            return *(const bool *)(family + app_properties[i].offset);
    for (int i = 0; i < app_scale_count; i++)
        if (row == &app_option_rows[app_scales[i].id])
            return *(const double *)(family + app_scales[i].offset) != 0;
    return false;
}

app_family_list app_families_with(const app_option_row *row)
{
    const char *cursor = app_family_names;
    app_family_list list = {""};
    app_choice family;
    size_t used = 0;

    while (app_choice_next(&cursor, &family))
        if (family_has(family.name, row) && used < sizeof list.text)
            used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s%s",
                                     used ? ", " : " (", family.name);
    if (used && used + 1 < sizeof list.text)
        snprintf(list.text + used, sizeof list.text - used, ")");
    return list;
}

/* The word of a flag of a property: auto, on or off. */
static char *word_of(app_options *o, const app_property *property)
{
    return (char *)o + app_option_rows[property->id].offset;
}

bool app_blocks_parse(const char *text, const char *empty, int64_t blocks, wf_nn_blocks *list)
{
    bool more = strcmp(text, empty) != 0;

    while (more) {
        char *end;
        int64_t first = strtoll(text, &end, 10), last = first;

        if (end == text || *text < '0' || *text > '9')
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtoll(text, &end, 10);
            if (end == text || *text < '0' || *text > '9')
                return false;
        }
        if (last < first || last >= blocks || last >= WF_NN_LISTED_BLOCKS)
            return false;
        for (int64_t i = first; i <= last; i++)
            wf_nn_block_list(list, i);
        more = *end == ',';
        text = end + more;
        if (!more && *end)
            return false;
    }
    return true;
}

char *app_blocks_print(const wf_nn_blocks *list, const char *empty)
{
    enum { ROOM = 8 * WF_NN_LISTED_BLOCKS };
    char *text = malloc(ROOM);
    size_t used = 0;

    for (int64_t i = 0, last; text && i < WF_NN_LISTED_BLOCKS; i = last + 1) {
        last = i;
        if (!wf_nn_block_listed(list, i))
            continue;
        while (wf_nn_block_listed(list, last + 1))
            last++;
        used += (size_t)snprintf(text + used, ROOM - used, last > i ? "%s%lld-%lld" : "%s%lld",
                                 used ? "," : "", (long long)i, (long long)last);
    }
    if (text && !used)
        snprintf(text, ROOM, "%s", empty);
    return text;
}

static bool turns(const app_options *o)
{
    return wf_nn_gpt_family(o->arch)->position == WF_NN_ROPE;
}

wf_nn_gpt_config app_options_model(const app_options *o)
{
    wf_nn_gpt_config c = *wf_nn_gpt_family(o->arch);

    c.vocabulary = o->vocab_size;
    c.positions = o->positions;
    c.layers = o->n_layer;
    c.heads = o->n_head;
    c.kv_heads = o->n_kv_head;
    c.width = o->n_embd;
    c.ffn = o->ffn;
    c.head_dim = o->head_dim;
    c.dropout = (float)o->dropout;
    c.eps = (float)o->norm_eps;
    c.rope_base = o->rope_base;
    c.window_rope_base = o->window_rope_base;
    c.rope_skip = o->rope_skip ? o->rope_skip : c.rope_skip;
    c.window = o->sliding_window;
    c.window_first = o->window_first;
    c.window_skip = o->window_skip;
    c.rotary = o->rotary_percent;
    app_options_experts(o, &c);
    app_blocks_parse(o->window_blocks, "all", o->n_layer, &c.window_blocks); /* checked */
    wf_rope_scaling_parse(o->rope_scaling, &c.rope_scaling, &c.rope_factors);
    for (int i = 0; i < app_property_count; i++) {
        const char *word = (const char *)o + app_option_rows[app_properties[i].id].offset;

        if (strcmp(word, "auto") != 0)
            *(bool *)((char *)&c + app_properties[i].offset) = strcmp(word, "on") == 0;
    }
    for (int i = 0; i < app_scale_count; i++) {
        double given =
            *(const double *)((const char *)o + app_option_rows[app_scales[i].id].offset);

        if (given != 0)
            *(double *)((char *)&c + app_scales[i].offset) = given > 0 ? given : 0;
    }
    return c;
}

/* Checks the rotated part of a head: it is the part that is cut into pairs. */
static wf_status check_rotary(app_options *o, wf_error *error)
{
    const wf_nn_gpt_config c = app_options_model(o);
    const long long features = wf_nn_gpt_rotary(&c);
    const long long dim = o->head_dim ? o->head_dim : o->n_embd / o->n_head;

    if (features < 2 || features % 2)
        return wf_error_set(error, WF_EINVAL,
                            "--rotary-percent %g rotates %lld of a head's %lld features, and "
                            "RoPE rotates pairs; use --rotary-percent %g",
                            o->rotary_percent, features, dim,
                            (double)(features / 2 * 2 + 2 * (features < 2)) / (double)dim);
    return WF_OK;
}

static wf_status check_heads(app_options *o, wf_error *error)
{
    long long embd = o->n_embd, heads = o->n_head, dim = o->head_dim;

    if (!dim && embd % heads)
        return wf_error_set(
            error, WF_EINVAL,
            "--n-embd %lld is not a multiple of --n-head %lld; use --n-embd %s, "
            "or give --head-dim",
            embd, heads, app_multiples_near(embd, heads).text);
    if (turns(o) && o->rotary_percent < 1)
        return check_rotary(o, error);
    if (turns(o) && dim % 2)
        return wf_error_set(
            error, WF_EINVAL,
            "--head-dim %lld is odd, and --arch %s rotates pairs (RoPE); use --head-dim %lld",
            dim, o->arch, dim + 1);
    if (turns(o) && !dim && embd / heads % 2)
        return wf_error_set(error, WF_EINVAL,
                            "--n-embd %lld / --n-head %lld gives an odd head size %lld, and "
                            "--arch %s rotates pairs (RoPE); use --n-embd %s",
                            embd, heads, embd / heads, o->arch,
                            app_multiples_near(embd, 2 * heads).text);
    return WF_OK;
}

static wf_status check_scaling(app_options *o, wf_error *error)
{
    wf_rope_scaling scaling;
    wf_rope_factors factors;
    wf_nn_gpt_config c;

    if (!wf_rope_scaling_parse(o->rope_scaling, &scaling, &factors))
        return wf_error_set(
            error, WF_EINVAL,
            "--rope-scaling %.200s is none of none, linear:FACTOR, "
            "llama3:FACTOR,LOW,HIGH,POSITIONS, dynamic:FACTOR,POSITIONS, "
            "yarn:FACTOR,POSITIONS and longrope:POSITIONS:SHORT,..:LONG,.. with numbers from "
            "1e-6 to 1e12, HIGH above LOW; Llama 3.1 has llama3:8,1,4,8192",
            o->rope_scaling);
    if (!turns(o) &&
        (scaling.kind != WF_ROPE_UNSCALED || o->rope_skip || o->rotary_percent < 1 ||
         (o->given[APP_OPTION_rope_base] && !o->from_config[APP_OPTION_rope_base])))
        return wf_error_set(
            error, WF_EINVAL,
            "%s is for RoPE, and --arch %s learns its positions; leave it out, or use --arch "
            "llama",
            o->rope_skip                       ? "--rope-skip"
            : scaling.kind != WF_ROPE_UNSCALED ? "--rope-scaling"
            : o->rotary_percent < 1            ? "--rotary-percent"
                                               : "--rope-base",
            o->arch);
    c = app_options_model(o);
    if (scaling.kind == WF_ROPE_LONG &&
        wf_rope_factors_wrong(&factors, wf_nn_gpt_rotary(&c) / 2))
        return wf_error_set(
            error, WF_EINVAL,
            "--rope-scaling longrope has %lld short and long factors, and %lld "
            "pairs of features of a head are rotated: give one for each, 128 at most",
            (long long)factors.count, (long long)wf_nn_gpt_rotary(&c) / 2);
    return WF_OK;
}

static wf_status check_window(app_options *o, wf_error *error)
{
    long long first = o->window_first, skip = o->window_skip;
    wf_nn_blocks list = {{0}};

    if (!app_blocks_parse(o->window_blocks, "all", o->n_layer, &list))
        return wf_error_set(error, WF_EINVAL,
                            "--window-blocks %.200s is neither all nor a list of blocks below "
                            "%lld, such as 0,2,5-7 (512 at most)",
                            o->window_blocks, (long long)o->n_layer);
    if (strcmp(o->window_blocks, "all") != 0 && (!o->sliding_window || first || skip))
        return wf_error_set(
            error, WF_EINVAL, "--window-blocks %.200s says which blocks have a window%s",
            o->window_blocks,
            o->sliding_window ? ", and so do --window-first and --window-skip; drop one or "
                                "the other"
                              : ", and there is none; add --sliding-window N, or leave it out");
    if (!o->sliding_window && (first || skip))
        return wf_error_set(error, WF_EINVAL,
                            "%s %lld says which blocks have no window, and there is none; add "
                            "--sliding-window N, or leave it out",
                            first ? "--window-first" : "--window-skip", first ? first : skip);
    if (o->sliding_window && (first >= o->n_layer || skip == 1))
        return wf_error_set(
            error, WF_EINVAL, "%s %lld leaves no block of %lld its --sliding-window; use %s",
            skip == 1 ? "--window-skip" : "--window-first", skip == 1 ? skip : first,
            (long long)o->n_layer, skip == 1 ? "2 or more" : "a smaller one");
    return WF_OK;
}

static wf_status check_kv_heads(app_options *o, wf_error *error)
{
    long long heads = o->n_head, kv = o->n_kv_head ? o->n_kv_head : heads, fit = kv;

    if (kv > heads || heads % kv) {
        if (fit > heads)
            fit = heads;
        while (heads % fit)
            fit--;
        return wf_error_set(
            error, WF_EINVAL,
            "--n-kv-head %lld does not divide --n-head %lld; use --n-kv-head %lld", kv, heads,
            fit);
    }
    o->n_kv_head = kv;
    return WF_OK;
}

static wf_status check_positions(app_options *o, wf_error *error)
{
    if (!o->positions)
        o->positions = o->seq_len;
    if (o->seq_len > o->positions)
        return wf_error_set(error, WF_EINVAL,
                            "--seq-len %lld is more than the model's --positions %lld; use "
                            "--seq-len %lld",
                            (long long)o->seq_len, (long long)o->positions,
                            (long long)o->positions);
    return WF_OK;
}

/* A gate has a third matrix, so that two thirds of the features have as many parameters. */
static wf_status derive_ffn(app_options *o, wf_error *error)
{
    bool gate = wf_nn_gpt_family(o->arch)->mlp != WF_NN_GELU;

    (void)error;
    if (!o->ffn)
        o->ffn = gate ? ((8 * o->n_embd + 2) / 3 + 31) / 32 * 32 : 4 * o->n_embd;
    return WF_OK;
}

static wf_status derive_properties(app_options *o, wf_error *error)
{
    const wf_nn_gpt_config *family = wf_nn_gpt_family(o->arch);

    (void)error;
    for (int i = 0; i < app_property_count; i++) {
        char *word = word_of(o, &app_properties[i]);
        bool on = *(const bool *)((const char *)family + app_properties[i].offset);

        if (strcmp(word, "auto") == 0)
            snprintf(word, APP_CHOICE_LENGTH, on ? "on" : "off");
    }
    return WF_OK;
}

/* Refuses what blocks of an arch cannot have, by its flags. */
static wf_status check_blocks(app_options *o, wf_error *error)
{
    const wf_nn_gpt_config c = app_options_model(o);

    if (c.parallel && c.order != WF_NN_PRE_NORM)
        return wf_error_set(error, WF_EINVAL,
                            "--parallel-blocks on: blocks of --arch %s have norms after "
                            "attention and MLP; use --arch llama, or leave it out",
                            o->arch);
    if (c.gelu_erf && c.mlp != WF_NN_GELU)
        return wf_error_set(error, WF_EINVAL,
                            "--gelu-erf on: MLPs of --arch %s have a gate; use --arch gpt2, or "
                            "leave it out",
                            o->arch);
    return WF_OK;
}

wf_status app_options_check_model(app_options *o, wf_error *error)
{
    static wf_status (*const rules[])(app_options *, wf_error *) = {
        check_heads,       check_kv_heads, check_scaling,
        check_window,      derive_ffn,     check_positions,
        derive_properties, check_blocks,   app_options_check_experts};
    wf_status status = WF_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && status == WF_OK; i++)
        status = rules[i](o, error);
    return status;
}
