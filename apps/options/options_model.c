/* apps/options/options_model.c - rules of the model's flags, and those that follow from others. */
#include "apps/options/options_table.h"
#include "kernels/rope_scaling.h"
#include <string.h>

static bool is_llama(const app_options *o)
{
    return !strcmp(o->arch, "llama");
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
    if (is_llama(o) && dim % 2)
        return wf_error_set(
            error, WF_EINVAL,
            "--head-dim %lld is odd, and --arch llama rotates pairs (RoPE); use "
            "--head-dim %lld",
            dim, dim + 1);
    if (is_llama(o) && !dim && embd / heads % 2)
        return wf_error_set(error, WF_EINVAL,
                            "--n-embd %lld / --n-head %lld gives an odd head size %lld, and "
                            "--arch llama rotates "
                            "pairs (RoPE); use --n-embd %s",
                            embd, heads, embd / heads,
                            app_multiples_near(embd, 2 * heads).text);
    return WF_OK;
}

/* What only one of the families has. */
static wf_status check_family(app_options *o, wf_error *error)
{
    wf_rope_scaling scaling;

    if (!wf_rope_scaling_parse(o->rope_scaling, &scaling))
        return wf_error_set(error, WF_EINVAL,
                            "--rope-scaling %s is none of none, linear:FACTOR and "
                            "llama3:FACTOR,LOW,HIGH,POSITIONS with numbers above 0, HIGH above "
                            "LOW; Llama 3.1 has llama3:8,1,4,8192",
                            o->rope_scaling);
    if (!is_llama(o) && scaling.kind != WF_ROPE_UNSCALED)
        return wf_error_set(
            error, WF_EINVAL,
            "--rope-scaling %s scales RoPE, and --arch %s learns its positions; "
            "leave it out, or use --arch llama",
            o->rope_scaling, o->arch);
    if (!is_llama(o) && strcmp(o->qkv_bias, "off") == 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--qkv-bias off is for llama: --arch %s always has biases; leave it "
            "out",
            o->arch);
    if (!is_llama(o) && strcmp(o->qk_norm, "on") == 0)
        return wf_error_set(error, WF_EINVAL,
                            "--qk-norm on is for llama: --arch %s has no norm of queries and "
                            "keys; leave it out",
                            o->arch);
    if (strcmp(o->qk_norm, "auto") == 0)
        snprintf(o->qk_norm, sizeof o->qk_norm, "off");
    if (strcmp(o->qkv_bias, "auto") == 0)
        snprintf(o->qkv_bias, sizeof o->qkv_bias, is_llama(o) ? "off" : "on");
    return WF_OK;
}

static wf_status check_kv_heads(app_options *o, wf_error *error)
{
    long long heads = o->n_head, kv = o->n_kv_head ? o->n_kv_head : heads, fit = kv;

    if (!is_llama(o) && kv != heads)
        return wf_error_set(
            error, WF_EINVAL,
            "--n-kv-head %lld differs from --n-head %lld, and --arch %s has no grouped-query "
            "attention; drop the flag or use --arch llama",
            kv, heads, o->arch);
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

static wf_status derive_ffn(app_options *o, wf_error *error)
{
    (void)error;
    if (!o->ffn)
        o->ffn = is_llama(o) ? ((8 * o->n_embd + 2) / 3 + 31) / 32 * 32 : 4 * o->n_embd;
    return WF_OK;
}

static wf_status derive_tie(app_options *o, wf_error *error)
{
    if (!is_llama(o) && !strcmp(o->tie_embeddings, "off"))
        return wf_error_set(
            error, WF_EINVAL,
            "--tie-embeddings off is for llama: the head of --arch %s is always "
            "tied to the embedding",
            o->arch);
    if (!strcmp(o->tie_embeddings, "auto"))
        snprintf(o->tie_embeddings, sizeof o->tie_embeddings, is_llama(o) ? "off" : "on");
    return WF_OK;
}

wf_status app_options_check_model(app_options *o, wf_error *error)
{
    static wf_status (*const rules[])(app_options *, wf_error *) = {
        check_heads, check_kv_heads, check_family, derive_ffn, check_positions, derive_tie};
    wf_status status = WF_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && status == WF_OK; i++)
        status = rules[i](o, error);
    return status;
}
