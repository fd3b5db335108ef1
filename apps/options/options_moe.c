/* apps/options/options_moe.c - rules of the flags of mixtures of experts. */
#include "apps/options/options_table.h"
#include "parallel/plan/imbalance.h"
#include <math.h>
#include <string.h>

const char *const app_routers[] = {"softmax", "softmax-chosen", "sigmoid"};

/* Returns how many tokens of a sequence an expert takes; 0: all. A factor such as 1.1 is no
   float, and what is beside a whole number by that alone is that number. */
static int64_t capacity_of(const app_options *o, const wf_nn_gpt_config *c)
{
    const double each = (double)o->moe_expert_capacity_factor * (double)o->seq_len *
                        (double)c->top_k / (double)c->experts;
    const double whole = round(each);

    return (int64_t)(fabs(each - whole) <= each * 1e-7 ? whole : ceil(each));
}

void app_options_experts(const app_options *o, wf_nn_gpt_config *c)
{
    if (o->n_expert)
        c->experts = o->n_expert;
    if (!c->experts)
        return;
    c->top_k = o->moe_top_k ? o->moe_top_k : c->top_k ? c->top_k : c->experts > 1 ? 2 : 1;
    c->expert_ffn = o->moe_ffn ? o->moe_ffn : o->ffn;
    if (o->moe_shared || o->given[APP_OPTION_moe_shared])
        c->shared_ffn = o->moe_shared;
    app_blocks_parse(o->moe_dense, "none", o->n_layer, &c->dense_blocks); /* checked */
    c->bias_step = strcmp(o->moe_balance, "bias") == 0 ? (double)o->moe_bias_step : 0;
    c->sequence_weight =
        strcmp(o->moe_balance, "sequence") == 0 ? (double)o->moe_sequence_weight : 0;
    c->global_weight = strcmp(o->moe_balance, "global") == 0 ? (double)o->moe_global_weight : 0;
    c->z_weight = (double)o->moe_z_weight;
    c->expert_capacity = capacity_of(o, c);
    for (int i = 0; i <= WF_NN_SIGMOID; i++)
        if (strcmp(o->moe_router, app_routers[i]) == 0)
            c->router = (wf_nn_router_kind)i;
    if (strcmp(o->moe_normalise, "auto") != 0)
        c->router_normalised = strcmp(o->moe_normalise, "on") == 0;
    else if (!wf_nn_gpt_family(o->arch)->experts) /* as Mixtral, where the family has none */
        c->router_normalised = c->router != WF_NN_SOFTMAX_CHOSEN;
}

/* Checks that what a kind of balance reads is given with it. */
static wf_status check_balance(const app_options *o, wf_error *error)
{
    static const struct {
        app_option_id id;
        const char *of;
    } rows[] = {{APP_OPTION_moe_bias_step, "bias"},
                {APP_OPTION_moe_sequence_weight, "sequence"},
                {APP_OPTION_moe_global_weight, "global"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (o->given[rows[i].id] && !o->from_config[rows[i].id] &&
            strcmp(o->moe_balance, rows[i].of) != 0)
            return wf_error_set(error, WF_EINVAL,
                                "%s is read with --moe-balance %s alone; use both, or leave it "
                                "out",
                                app_option_flag(&app_option_rows[rows[i].id]).text, rows[i].of);
    return WF_OK;
}

/* Checks the list of blocks without experts. */
static wf_status check_dense(const app_options *o, wf_error *error)
{
    wf_nn_blocks list = {{0}};

    if (!app_blocks_parse(o->moe_dense, "none", o->n_layer, &list))
        return wf_error_set(error, WF_EINVAL,
                            "--moe-dense %.200s is neither none nor a list of blocks below "
                            "%lld, such as 0,2,5-7 (512 at most)",
                            o->moe_dense, (long long)o->n_layer);
    if (o->n_layer > 0 && wf_nn_blocks_count(&list) == o->n_layer)
        return wf_error_set(error, WF_EINVAL,
                            "--moe-dense %.200s leaves no block its experts; leave out "
                            "--n-expert, or a block",
                            o->moe_dense);
    return WF_OK;
}

/* Checks what weighs a token's experts. */
static wf_status check_weights(const app_options *o, const wf_nn_gpt_config *c, wf_error *error)
{
    if (c->weigh_input && c->top_k != 1)
        return wf_error_set(error, WF_EINVAL,
                            "--moe-weigh-input on weighs what the one expert of a token takes, "
                            "and --moe-top-k %lld chooses more: use --moe-top-k 1",
                            (long long)c->top_k);
    if (c->router == WF_NN_SOFTMAX_CHOSEN && strcmp(o->moe_normalise, "on") == 0 &&
        o->given[APP_OPTION_moe_normalise])
        return wf_error_set(
            error, WF_EINVAL,
            "--moe-normalise on: weights of --moe-router softmax-chosen add up to 1 "
            "as they are; leave it out");
    return WF_OK;
}

/* Returns how many data-parallel ranks split experts. */
static int ep_part(const app_options *o)
{
    return wf_par_ep_part(
        &(wf_par_options){.tp = (int)o->tp, .ep = (int)o->ep, .etp = (int)o->etp});
}

/* Checks that a run that makes texts has its experts on ranks that make the same ones. */
static wf_status check_texts(const app_options *o, wf_error *error)
{
    if (ep_part(o) == 1 || (o->sample == 0 && !o->eval_requests))
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        "%s makes texts, data-parallel ranks their own ones, and --ep %lld "
                        "splits experts over such: use --ep %lld, or leave it out",
                        o->sample ? "--sample" : "--eval-requests", (long long)o->ep,
                        (long long)(o->etp > 1 ? 1 : o->tp));
}

/* Checks that there are ranks to exchange tokens with; a search lays these out. */
static wf_status check_dispatch(const app_options *o, wf_error *error)
{
    if (strcmp(o->moe_dispatch, "exchange") == 0 && o->cp > 1)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "--moe-dispatch exchange moves tokens of whole sequences, and --cp "
                            "%lld splits these: use --moe-dispatch gather, or --cp 1",
                            (long long)o->cp);
    if (strcmp(o->moe_dispatch, "exchange") != 0 || ep_part(o) > 1 ||
        (!o->given[APP_OPTION_ep] && strcmp(o->search, "off") != 0))
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        "--moe-dispatch exchange moves tokens between data-parallel ranks that split experts, "
        "and with --ep %lld and --tp %lld none do: use a larger --ep, or leave it out",
        (long long)(o->ep ? o->ep : o->tp), (long long)o->tp);
}

/* Checks that times are asked for, and that loads of experts can be read. */
static wf_status check_imbalance(const app_options *o, const wf_nn_gpt_config *c,
                                 wf_error *error)
{
    wf_sim_model sizes = {.experts = c->experts};

    if (!o->given[APP_OPTION_moe_imbalance])
        return WF_OK;
    if (!o->machine || !o->plan)
        return wf_error_set(error, WF_EINVAL,
                            "--moe-imbalance is for times of a plan; use it with --plan "
                            "--machine FILE");
    return wf_plan_imbalance(o->moe_imbalance, &sizes, error);
}

wf_status app_options_check_experts(app_options *o, wf_error *error)
{
    static const app_option_id flags[] = {APP_OPTION_moe_top_k,
                                          APP_OPTION_moe_ffn,
                                          APP_OPTION_moe_shared,
                                          APP_OPTION_moe_dense,
                                          APP_OPTION_moe_router,
                                          APP_OPTION_moe_normalise,
                                          APP_OPTION_moe_scale,
                                          APP_OPTION_moe_expert_capacity_factor,
                                          APP_OPTION_ep,
                                          APP_OPTION_etp,
                                          APP_OPTION_moe_balance,
                                          APP_OPTION_moe_bias_step,
                                          APP_OPTION_moe_z_weight,
                                          APP_OPTION_moe_sequence_weight,
                                          APP_OPTION_moe_global_weight,
                                          APP_OPTION_moe_report,
                                          APP_OPTION_moe_imbalance,
                                          APP_OPTION_moe_dispatch,
                                          APP_OPTION_moe_buffer,
                                          APP_OPTION_moe_shared_expert_overlap};
    wf_nn_gpt_config c = app_options_model(o);

    for (size_t i = 0; i < sizeof flags / sizeof *flags && !c.experts; i++)
        if (o->given[flags[i]] && !o->from_config[flags[i]])
            return wf_error_set(error, WF_EINVAL,
                                "%s is for a mixture of experts, and --arch %s has none; add "
                                "--n-expert N, or leave it out",
                                app_option_flag(&app_option_rows[flags[i]]).text, o->arch);
    if (!c.experts)
        return WF_OK;
    if (check_imbalance(o, &c, error) != WF_OK)
        return error->code;
    if (c.mlp != WF_NN_SWIGLU || c.mlp_bias)
        return wf_error_set(
            error, WF_EINVAL,
            "--n-expert %lld: experts are SwiGLU MLPs without biases, and those of "
            "--arch %s%s are not; use --arch llama",
            (long long)c.experts, o->arch, c.mlp_bias ? " with --mlp-bias" : "");
    if (check_dispatch(o, error) != WF_OK || check_dense(o, error) != WF_OK ||
        check_balance(o, error) != WF_OK || check_texts(o, error) != WF_OK ||
        check_weights(o, &c, error) != WF_OK)
        return error->code;
    if (c.top_k > c.experts)
        return wf_error_set(
            error, WF_EINVAL,
            "--moe-top-k %lld is more than the %lld experts of --n-expert; use at "
            "most %lld",
            (long long)c.top_k, (long long)c.experts, (long long)c.experts);
    o->n_expert = c.experts;
    o->moe_top_k = c.top_k;
    o->moe_ffn = c.expert_ffn;
    snprintf(o->moe_router, sizeof o->moe_router, "%s", app_routers[c.router]);
    snprintf(o->moe_normalise, sizeof o->moe_normalise, "%s",
             c.router_normalised ? "on" : "off");
    return WF_OK;
}
