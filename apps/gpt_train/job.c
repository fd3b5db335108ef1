/* apps/gpt_train/job.c - the flags as the library's job; see the header. */
#include "apps/gpt_train/job.h"
#include "apps/options/options_table.h"
#include "core/dtype.h"
#include "parallel/plan/imbalance.h"
#include "parallel/program/recipe.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns how matrices that are frozen are stored, where modules compute with another type. */
static wf_dtype base_dtype_of(const app_options *o)
{
    wf_dtype dtype = wf_dtype_find(o->base_dtype);

    return dtype < WF_DTYPES ? dtype : WF_F32;
}

/* Returns the most chunks of a sum; 0: as many as there can be. */
static int exact_tp_of(const app_options *o)
{
    int most = (int)strtol(o->exact_tp, NULL, 10);

    return most < WF_MAX_CHUNKS ? most : 0;
}

/* Returns whether --offload names this. */
static bool offloads(const app_options *o, const char *what)
{
    return strcmp(o->offload, what) == 0 || strcmp(o->offload, "all") == 0;
}

static wf_par_dispatch dispatch_of(const app_options *o)
{
    return strcmp(o->moe_dispatch, "gather") == 0     ? WF_PAR_DISPATCH_GATHER
           : strcmp(o->moe_dispatch, "exchange") == 0 ? WF_PAR_DISPATCH_EXCHANGE
                                                      : WF_PAR_DISPATCH_AUTO;
}

static wf_par_options mesh_of(const app_options *o)
{
    return (wf_par_options){.pp = (int)o->pp,
                            .tp = (int)o->tp,
                            .dp = (int)o->dp,
                            .ep = (int)o->ep,
                            .etp = (int)o->etp,
                            .dispatch = dispatch_of(o),
                            .moe_overlap_off = !o->moe_shared_expert_overlap,
                            .cp = (int)o->cp,
                            .cp_form = o->cp_form,
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
                            .tp_comm_overlap = o->tp_comm_overlap,
                            .tp_comm_block = (size_t)o->tp_comm_block,
                            .device = strcmp(o->device, "cuda") == 0 ? "cuda" : "cpu",
                            .tf32 = o->tf32,
                            .cuda_graph = o->cuda_graph,
                            .offload_optimizer = offloads(o, "optimizer"),
                            .offload_dir = o->offload_dir,
                            .threads = (int)o->threads_per_rank,
                            .seed = (uint64_t)o->seed,
                            .exact_off = !o->exact,
                            .exact_tp = exact_tp_of(o),
                            .memory_limit = (size_t)o->device_memory};
}

/* Freezes what each of the patterns names, between which are commas. */
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
        (wf_par_lora_apply(model, &lora) == WF_OK && freeze(&model->base, o->freeze) == WF_OK &&
         wf_nn_tile_mlps(&model->base, o->tiled_mlp) == WF_OK &&
         wf_nn_buffer_experts(&model->base, (double)o->moe_buffer) == WF_OK))
        return model;
    wf_nn_free(&model->base);
    return NULL;
}

static wf_par_train_options training_of(const app_options *o)
{
    const wf_par_field documents[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(o->seq_len);
    const wf_recipe recipe = {
#define RECIPE(kind, field, flag, standard, domain, metavar, help) .field = o->field,
#include "parallel/program/recipe.def"
#undef RECIPE
    };
    wf_error read = {WF_OK, ""};
    wf_par_train_options t = {
        .global_batch = o->global_batch_size,
        .micro_batch = o->micro_batch_size,
        .field = WF_PAR_GPT_FIELDS(o->seq_len),
        .optimizer =
            {
                .method = (wf_nn_method)wf_plan_word_value(WF_SETTING_optimizer, o->optimizer),
            },
        .schedule = o->schedule,
        .redundancy = strcmp(o->redundancy, "buddy") == 0 ? WF_PAR_REDUNDANCY_BUDDY
                                                          : WF_PAR_REDUNDANCY_NONE,
        .evaluate_average = o->eval_ema,
        .check_replicas = o->check_replicas,
        .loss = wf_par_gpt_loss};

    wf_recipe_give(&recipe, &t, &read); /* its texts were read before */
    if (o->rampup_batch_size)           /* so was this */
        wf_par_rampup_read(o->rampup_batch_size, &t.rampup, &read);
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

/* Makes the model; the job says what it recomputes. A wf_par_model_function. */
static wf_nn_module *make_model(wf_par *par, void *job)
{
    const app_options *o = ((const app_job *)job)->options;
    const wf_nn_gpt_config config = app_options_model(o);

    return plan_model(par, model_of(o, &config, wf_par_context(par)));
}

static wf_nn_module *make_shortened(wf_par *par, void *job, int64_t blocks, int64_t vocabulary)
{
    const app_options *o = ((const app_job *)job)->options;
    wf_nn_gpt_config config = app_options_model(o);

    config.layers = blocks;
    config.vocabulary = vocabulary;
    return plan_model(par, model_of(o, &config, wf_par_context(par)));
}

/* Writes what a report says of the model, as JSON. */
static void write_facts(const app_options *o, char *text, size_t size)
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

/* Describes the job but for the settings that planners change (parallel/plan/settings.def). */
static wf_par_job describe(app_job *job)
{
    const app_options *o = job->options;
    const wf_nn_gpt_config config = app_options_model(o);
    wf_error unread = {WF_OK, ""};

    job->sizes = wf_par_gpt_sizes(&config, o->seq_len);
    job->sizes.buffer = (double)o->moe_buffer;
    job->sizes.taken = app_options_masks_documents(o) ? 0 : config.expert_capacity;
    wf_plan_imbalance(o->moe_imbalance, &job->sizes, &unread); /* it was read before */
    job->pipeline = (wf_par_pipeline_options){
        .split = o->pp_split,
        .depth = (int)o->pp_depth,
        .resident = (int)o->pp_resident,
        .split_messages = strcmp(o->pp_send, "split") == 0,
        .input = "tokens",
        .head_loss = wf_par_gpt_head_loss,
        .documents = app_options_masks_documents(o) ? wf_par_gpt_documents : NULL};
    snprintf(job->name, sizeof job->name, "%s of %" PRId64 " blocks", o->arch, o->n_layer);
    write_facts(o, job->facts, sizeof job->facts);
    return (wf_par_job){.mesh = mesh_of(o),
                        .model = make_model,
                        .arg = job,
                        .name = job->name,
                        .facts = job->facts,
                        .train = training_of(o),
                        .pipeline = &job->pipeline, /* used where the settings have one */
                        .steps = o->steps,
                        .offload_activations = offloads(o, "activations"),
                        .eval_interval = o->eval_interval,
                        .begin = app_hook_begin,
                        .after = o->sample || o->eval_requests ? app_hook_after : NULL,
                        .end = app_hook_end,
                        .sizes = &job->sizes,
                        .shortened = make_shortened};
}

static void take_words(const app_options *o, wf_plan_request *r)
{
#define TAKE_COUNT(field)  r->field = o->field
#define TAKE_SWITCH(field) r->field = o->field
#define TAKE_TEXT(field)   r->field = o->field
#define TAKE_WORD(field)   snprintf(r->field, sizeof r->field, "%s", o->field)
#define SETTING(kind, field, help)                                                             \
    TAKE_##kind(field);                                                                        \
    r->given[WF_SETTING_##field] = o->given[APP_OPTION_##field];
#include "parallel/plan/settings.def"
#undef SETTING
}

wf_plan_request *app_job_request(app_job *job)
{
    const app_options *o = job->options;
    wf_plan_request *r = &job->request;

    *r = (wf_plan_request){.job = describe(job),
                           .rank = o->rank,
                           .rank_given = o->given[APP_OPTION_rank],
                           .device_memory = o->device_memory,
                           .machine = o->machine,
                           .paced = o->paced,
                           .planned = o->plan,
                           .ranks = o->ranks,
                           .find_batch = o->find_batch,
                           .elastic = o->elastic ? o->min_dp : 0,
                           .whole_batches = o->whole_batches,
                           .no_pipeline = strcmp(o->transport, "nccl") == 0,
                           .notes = stderr,
                           .json = o->json,
                           .chakra = o->chakra,
                           .memory_timeline = o->memory_timeline};
    take_words(o, r);
    for (int i = APP_OPTION_pp_resident; i >= APP_OPTION_pp_schedule; i--)
        if (o->given[i] && !o->given[APP_OPTION_pp] && strcmp(o->search, "off") != 0)
            r->pipeline_field = app_option_rows[i].name;
    r->async_save = o->async_save && o->save;
    snprintf(r->search, sizeof r->search, "%s", o->search);
    return r;
}

void app_job_take_mesh(app_options *o, const wf_par_job *job)
{
    wf_plan_request r;

    wf_plan_request_of(job, &r);
    o->dp = r.dp;
    o->dp_replicate = r.dp_replicate;
    o->micro_batch_size = r.micro_batch_size;
    snprintf(o->accumulate, sizeof o->accumulate, "%s", r.accumulate);
    if (o->rank >= app_options_ranks(o))
        o->rank = app_options_ranks(o) - 1;
}

bool app_job_moves_nothing(const app_options *o)
{
    return o->plan || strcmp(o->transport, "fake") == 0;
}

/* A drill whose bit is never flipped would pass for one that nothing has found. */
static wf_status read_flip(const app_options *o, wf_flip *flip, wf_error *error)
{
    int64_t ranks = app_options_ranks(o);

    if (wf_flip_read(o->flip_bit, flip, error) != WF_OK)
        return error->code;
    if (flip->step < 1 || flip->step > o->steps || flip->rank < 0 || flip->rank >= ranks)
        return wf_error_set(error, WF_EINVAL,
                            "--flip-bit %s is of step %lld and rank %d, and the run has steps "
                            "1 to %lld and ranks 0 to %lld",
                            o->flip_bit, (long long)flip->step, flip->rank, (long long)o->steps,
                            (long long)ranks - 1);
    return WF_OK;
}

wf_status app_job_open_data(app_job *job, wf_error *error)
{
    const app_options *o = job->options;
    wf_error absent = {WF_OK, ""};

    if (job->data || app_data_open(o, &job->data, o->plan ? &absent : error) == WF_OK)
        return WF_OK;
    wf_dataset_close(job->data);
    job->data = NULL;
    return error->code;
}

/* Finds whether --data are text, where that decides the tokenizer. A plan takes data that are
   not here for text. */
static wf_status find_text(app_job *job, bool *is_text, wf_error *error)
{
    const app_options *o = job->options;

    *is_text = true;
    if (!o->tokenizer && o->data.count && app_job_open_data(job, error) == WF_OK && job->data)
        *is_text = wf_dataset_is_text(job->data);
    return error->code;
}

wf_status app_job_open_texts(app_job *job, wf_error *error)
{
    const app_options *o = job->options;
    bool is_text;

    if ((!o->sample && !o->eval_requests) || find_text(job, &is_text, error) != WF_OK ||
        app_sample_prompt_open(o, is_text, &job->prompt, error) != WF_OK)
        return error->code;
    return app_eval_requests_open(o, is_text, &job->eval_requests, error);
}

wf_status app_job_open(app_job *job, wf_error *error)
{
    const app_options *o = job->options;

    if (app_job_open_data(job, error) != WF_OK ||
        (o->flip_bit && read_flip(o, &job->flip, error) != WF_OK))
        return error->code;
    return WF_OK;
}

void app_job_close(app_job *job)
{
    wf_dataset_close(job->data);
    app_sample_prompt_close(&job->prompt);
    app_eval_requests_close(&job->eval_requests);
    wf_replay_close(job->replay);
}
