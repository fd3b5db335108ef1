/* apps/model/model_run.c - see the header. */
#include "apps/model/model_run.h"
#include "apps/device.h"
#include "core/files/content.h"
#include "apps/program.h"
#include <string.h>

static bool is_dtype(const char *name)
{
    return strcmp(name, "fp32") == 0 || strcmp(name, "bf16") == 0;
}

wf_status app_model_run_check(app_model_run *run, bool plan, wf_error *error)
{
    wf_topology machine;

    if (run->pp)
        return wf_error_set(error, WF_EINVAL,
                            "--pp %.20s: a model has no stages here, as it has in training: "
                            "--tp N splits it, --dp N makes copies",
                            run->pp);
    if (!is_dtype(run->dtype))
        return wf_error_set(error, WF_EINVAL, "--dtype %s is none of fp32 and bf16",
                            run->dtype);
    if (!run->compute)
        run->compute = run->dtype;
    if (!is_dtype(run->compute))
        return wf_error_set(error, WF_EINVAL, "--compute %s is none of fp32 and bf16",
                            run->compute);
    if (strcmp(run->compute, "bf16") == 0 && strcmp(run->dtype, "bf16") != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--compute bf16 multiplies results as they are stored, and they are "
            "stored as %s: use it with --dtype bf16",
            run->dtype);
    if (run->fp32_residual && strcmp(run->dtype, "bf16") != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--fp32-residual-connection is for results that are stored as bf16, "
            "and they are stored as %s: use it with --dtype bf16",
            run->dtype);
    if (run->base_dtype && strcmp(run->base_dtype, "same") != 0 &&
        strcmp(run->base_dtype, "nf4") != 0)
        return wf_error_set(error, WF_EINVAL, "--base-dtype %s is none of same and nf4",
                            run->base_dtype);
    run->device = app_device_choose(run->device, plan, false, error);
    if (!run->device || run->threads)
        return error->code;
    if (wf_topology_read(NULL, &machine, error) != WF_OK)
        return error->code;
    run->threads = machine.cores > run->tp * run->dp ? machine.cores / (run->tp * run->dp) : 1;
    return WF_OK;
}

void app_model_run_job(app_model_run *run, const wf_flag *flags)
{
    static const char *const own[] = {"threads-per-rank", "tokenizer", "data",
                                      "requests",         "prompts",   NULL};

    run->job = wf_launcher_detected().processes > 1 ? wf_job_new() : NULL;
    if (!run->job)
        return;
    app_program_job(run->job);
    wf_flags_job(flags, own, run->job);
}

void app_model_run_content(const app_model_run *run, const wf_gen_model *source,
                           const char *name, const char *file)
{
    const char *model =
        source->checkpoint ? wf_par_checkpoint_path(source->checkpoint) : source->path;

    wf_job_add(run->job, "device", "%s", run->device);
    if (source->checkpoint)
        wf_job_add(run->job, "step of the checkpoint", "%lld",
                   (long long)wf_par_checkpoint_step(source->checkpoint));
    wf_job_add_path(run->job, "content of MODEL", model);
    wf_job_add_path(run->job, "content of its base", source->base);
    wf_job_add_path(run->job, "content of --tokenizer", run->tokenizer);
    wf_job_add_path(run->job, name, file);
}

/* Returns the options of a rank: the model whole, or split over tp; dp copies of it. */
static wf_par_options options_of(const app_model_run *run, const wf_gen_model *source,
                                 bool plan)
{
    bool nf4 = run->base_dtype ? strcmp(run->base_dtype, "nf4") == 0 : source->nf4;
    wf_dtype dtype = strcmp(run->dtype, "bf16") == 0 ? WF_BF16 : WF_F32;

    return (wf_par_options){.tp = (int)run->tp,
                            .dp = (int)run->dp,
                            .strategy = "no_shard",
                            .device = run->device,
                            .threads = (int)run->threads,
                            .seed = source->seed,
                            .dtype = dtype,
                            .compute_fp32 = strcmp(run->compute, "fp32") == 0,
                            .fp32_residual = run->fp32_residual,
                            .param_dtype = dtype,
                            .base_dtype = nf4 ? WF_NF4 : WF_F32,
                            .plan = plan};
}

/* Ranks tell each other the scales of what they read of a folder, and not of a checkpoint. */
static wf_status check_base(const app_model_run *run, const wf_gen_model *source,
                            wf_error *error)
{
    if (!run->base_dtype || strcmp(run->base_dtype, "nf4") != 0 || !source->checkpoint ||
        source->lora.rank)
        return WF_OK;
    return wf_error_set(
        error, WF_EUNSUPPORTED,
        "--base-dtype nf4: %s is a checkpoint of a whole model, and folders are "
        "what becomes nf4: gpt_export it to one",
        run->model);
}

wf_status app_model_run_rank(const app_model_run *run, const wf_gen_model *source, bool plan,
                             wf_rank *rank, app_model_work *work, void *arg)
{
    const wf_par_options options = options_of(run, source, plan);
    wf_par *par = check_base(run, source, &rank->error) == WF_OK
                      ? wf_par_open(rank, &options, &rank->error)
                      : NULL;
    wf_nn_gpt *model;

    if (!par)
        return rank->error.code;
    model = wf_gen_model_load(source, par, plan);
    if (model) {
        work(arg, rank, par, model);
        wf_nn_free(&model->base);
    }
    rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    return rank->error.code;
}

wf_status app_model_run_tokenizer(const app_model_run *run, const wf_gen_model *source,
                                  wf_tok **tokenizer, const char **path, wf_error *error)
{
    const char *from = run->tokenizer                     ? run->tokenizer
                       : *source->like                    ? source->like
                       : source->config.vocabulary == 256 ? "bytes"
                                                          : NULL;

    if (!from && source->is_gguf)
        return wf_error_set(error, WF_EINVAL,
                            "%s is a GGUF file: make it a folder with its tokenizer by "
                            "gpt_export %s FOLDER, or give --tokenizer PATH",
                            run->model, run->model);
    if (!from)
        return wf_error_set(error, WF_EINVAL,
                            "%s has no tokenizer beside it: give --tokenizer PATH", run->model);
    *path = from;
    if (wf_tok_open(from, tokenizer, error) != WF_OK)
        return error->code;
    if (wf_tok_size(*tokenizer) > source->config.vocabulary)
        return wf_error_set(error, WF_EINVAL,
                            "the tokenizer %s has %d ids, and the model %lld: it is another "
                            "model's; give --tokenizer PATH",
                            from, wf_tok_size(*tokenizer),
                            (long long)source->config.vocabulary);
    return WF_OK;
}
