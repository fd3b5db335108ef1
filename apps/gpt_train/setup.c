/* apps/gpt_train/setup.c - the flags as the library's options, for a run and for its plan. */
#include "apps/gpt_train/setup.h"
#include "core/dtype.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What matrices that are frozen rest as, where that is not what modules compute with. */
static wf_dtype base_dtype_of(const app_options *o)
{
    wf_dtype dtype = wf_dtype_find(o->base_dtype);

    return dtype < WF_DTYPES ? dtype : WF_F32;
}

wf_par_options app_setup_rank(const app_options *o, bool plan)
{
    return (wf_par_options){.pp = (int)o->pp,
                            .tp = (int)o->tp,
                            .dp = (int)o->dp,
                            .ep = (int)o->ep,
                            .strategy = o->strategy,
                            .dp_replicate = (int)o->dp_replicate,
                            .shard_group_size = (int)o->shard_group_size,
                            /* its default gives way to a number of parameters */
                            .wrap_type = o->wrap_min_params ? NULL : o->wrap_type,
                            .wrap_min_params = o->wrap_min_params,
                            .prefetch = (int)o->prefetch,
                            .reshard = (wf_par_reshard)wf_plan_word_value(
                                WF_SETTING_reshard_after_forward, o->reshard_after_forward),
                            .accumulate = (wf_par_accumulate)wf_plan_word_value(
                                WF_SETTING_accumulate, o->accumulate),
                            .accumulate_group = wf_plan_group(o->accumulate),
                            .dtype = wf_dtype_find(o->dtype),
                            .compute_fp32 = strcmp(o->compute, "fp32") == 0,
                            .fp32_residual = o->fp32_residual_connection,
                            .param_dtype = wf_dtype_find(o->param_dtype),
                            .base_dtype = base_dtype_of(o),
                            .reduce_dtype = wf_dtype_find(o->reduce_dtype),
                            .sequence_parallel = o->sequence_parallel,
                            .device = strcmp(o->device, "cuda") == 0 ? "cuda" : "cpu",
                            .tf32 = o->tf32,
                            .cuda_graph = o->cuda_graph,
                            .threads = (int)o->threads_per_rank,
                            .seed = (uint64_t)o->seed,
                            .exact_off = !o->exact,
                            .plan = plan,
                            /* a plan goes on, to say how much would be enough */
                            .memory_limit = plan ? 0 : (size_t)o->device_memory};
}

/* Each of the patterns, which commas separate. */
static wf_status freeze(wf_nn_module *model, const char *patterns)
{
    wf_status status = WF_OK;

    for (const char *at = patterns; at && *at && status == WF_OK;) {
        size_t n = strcspn(at, ",");
        char pattern[WF_NN_PATH];

        snprintf(pattern, sizeof pattern, "%.*s", (int)n, at);
        status = wf_nn_freeze(model, pattern);
        at += n + (at[n] == ',');
    }
    return status;
}

/* Makes a model of a configuration, with adapters, and frozen as the flags say. */
static wf_nn_gpt *model_of(const app_options *o, const wf_nn_gpt_config *config,
                           wf_context *ctx)
{
    const wf_par_lora lora = app_options_lora(o);
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, config);

    if (model) {
        model->loss->smoothing = (float)o->label_smoothing;
        model->loss->z = (float)o->z_loss;
    }
    if (!model ||
        (wf_par_lora_apply(model, &lora) == WF_OK && freeze(&model->base, o->freeze) == WF_OK))
        return model;
    wf_nn_free(&model->base);
    return NULL;
}

/* Returns the type of modules that are recomputed, or NULL. */
static const char *recomputed(const app_options *o)
{
    return strcmp(o->recompute, "none") != 0 && strcmp(o->recompute, "stage") != 0
               ? o->recompute
               : NULL;
}

wf_nn_gpt *app_setup_model(const app_options *o, wf_context *ctx)
{
    const wf_nn_gpt_config config = app_options_model(o);
    wf_nn_gpt *model = model_of(o, &config, ctx);

    if (!model || wf_nn_recompute(&model->base, recomputed(o)) == WF_OK)
        return model;
    wf_nn_free(&model->base);
    return NULL;
}

wf_par_train_options app_setup_training(const app_options *o)
{
    const wf_par_field documents[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(o->seq_len);
    wf_error read = {WF_OK, ""};
    wf_par_train_options t = {
        .global_batch = o->global_batch_size,
        .micro_batch = o->micro_batch_size,
        .field = WF_PAR_GPT_FIELDS(o->seq_len),
        .clip = (float)o->clip_grad,
        .optimizer = {.method =
                          (wf_nn_method)wf_plan_word_value(WF_SETTING_optimizer, o->optimizer),
                      .beta1 = (float)o->beta1,
                      .beta2 = (float)o->beta2,
                      .eps = (float)o->eps,
                      .weight_decay = (float)o->weight_decay,
                      .groups = o->param_groups,
                      .ema = (float)o->ema},
        .schedule = o->schedule,
        .redundancy = strcmp(o->redundancy, "buddy") == 0 ? WF_PAR_REDUNDANCY_BUDDY
                                                          : WF_PAR_REDUNDANCY_NONE,
        .check_replicas = o->check_replicas,
        .loss = wf_par_gpt_loss};

    if (o->skip_steps) /* it was read before */
        wf_par_skip_read(o->skip_steps, &t.skip, &read);
    if (app_options_masks_documents(o))
        memcpy(t.field, documents, sizeof t.field);
    return t;
}

static wf_nn_module *plan_model(wf_par *par, wf_nn_gpt *model)
{
    if (model)
        wf_par_plan(par, &model->base, wf_par_gpt_plan);
    return (wf_nn_module *)model;
}

/* Makes the model of a job, which recomputes what the job says. A wf_par_model_function. */
static wf_nn_module *planned(wf_par *par, void *arg)
{
    const wf_nn_gpt_config config = app_options_model(arg);

    return plan_model(par, model_of(arg, &config, wf_par_context(par)));
}

static wf_nn_module *shortened(wf_par *par, void *arg, int64_t blocks, int64_t vocabulary)
{
    wf_nn_gpt_config config = app_options_model(arg);

    config.layers = blocks;
    config.vocabulary = vocabulary;
    return plan_model(par, model_of(arg, &config, wf_par_context(par)));
}

void app_model_facts(const app_options *o, char *text, size_t size)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "arch", o->arch, "layers",
                             (json_int_t)o->n_layer, "heads", (json_int_t)o->n_head, "kv_heads",
                             (json_int_t)o->n_kv_head, "width", (json_int_t)o->n_embd, "ffn",
                             (json_int_t)o->ffn, "vocabulary", (json_int_t)o->vocab_size);
    char *facts = json ? json_dumps(json, 0) : NULL;

    snprintf(text, size, "%s", facts ? facts : "");
    free(facts);
    json_decref(json);
}

app_setup_job app_setup_job_of(const app_options *o)
{
    const wf_nn_gpt_config config = app_options_model(o);

    return (app_setup_job){.sizes = wf_par_gpt_sizes(&config, o->seq_len),
                           .job = {.mesh = app_setup_rank(o, false),
                                   .model = planned,
                                   .arg = (void *)(uintptr_t)o, /* only read */
                                   .shortened = shortened,
                                   .train = app_setup_training(o),
                                   .steps = o->steps,
                                   .eval_interval = o->eval_interval},
                           .pipeline = {.split = o->pp_split,
                                        .depth = (int)o->pp_depth,
                                        .resident = (int)o->pp_resident,
                                        .split_messages = strcmp(o->pp_send, "split") == 0,
                                        .input = "tokens",
                                        .head_loss = wf_par_gpt_head_loss,
                                        .documents = app_options_masks_documents(o)
                                                         ? wf_par_gpt_documents
                                                         : NULL}};
}

bool app_setup_evaluates(const app_options *o, int64_t step)
{
    return o->eval_interval && (step % o->eval_interval == 0 || step == o->steps);
}

wf_status app_setup_peak(const app_options *o, double *peak, wf_error *error)
{
    const char *file = o->machine ? o->machine : o->paced;
    wf_dtype compute = wf_dtype_find(o->compute);
    wf_sim_machine machine;

    *peak = 0;
    if (!file || wf_sim_machine_read(file, &machine, error) != WF_OK)
        return error->code;
    if (machine.rate[compute] <= 0)
        return wf_error_set(error, WF_EINVAL, "%s has no device.%s: take --dtype bf16", file,
                            o->compute);
    *peak = machine.rate[compute] * (double)app_options_ranks(o);
    if (!o->machine) /* steps take so many times as long */
        *peak /= o->paced_scale;
    return WF_OK;
}

wf_status app_setup_pace(const app_options *o, wf_sim_paced *paced, wf_error *error)
{
    wf_sim_machine machine = {.memory = 0};

    if (!o->paced || o->steps == 0)
        return WF_OK;
    if (wf_sim_machine_read(o->paced, &machine, error) != WF_OK)
        return error->code;
    if (machine.rate[wf_dtype_find(o->compute)] <= 0)
        return wf_error_set(error, WF_EINVAL, "%s has no device.%s: take --dtype bf16",
                            o->paced, o->compute);
    if (machine.cores > 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--paced %s: its ranks share %d cores of a host, and a paced one has "
            "a device of its own: leave out host.cores",
            o->paced, machine.cores);
    wf_sim_pace(&machine, o->paced_scale, paced);
    return WF_OK;
}

wf_rank_order app_setup_rank_order(const app_options *o)
{
    if (o->recovery_dir && !o->given[APP_OPTION_rank_order])
        return WF_ORDER_STARTED; /* dp ranks, of which one is another's buddy, over hosts */
    return strcmp(o->rank_order, "near") == 0      ? WF_ORDER_NEAR
           : strcmp(o->rank_order, "started") == 0 ? WF_ORDER_STARTED
                                                   : WF_ORDER_TRANSPOSED;
}
