/* parallel/generate/model_run.c - see the header. */
#include "parallel/generate/model_run.h"
#include "mesh/cluster/topology.h"
#include "parallel/device.h"
#include <string.h>

static bool is_dtype(const char *name)
{
    return strcmp(name, "fp32") == 0 || strcmp(name, "bf16") == 0;
}

wf_status wf_gen_model_run_check(wf_gen_model_run *run, bool plan, wf_error *error)
{
    wf_topology machine;

    if (!is_dtype(run->dtype))
        return wf_error_set(error, WF_EINVAL, ".dtype %s is none of fp32 and bf16", run->dtype);
    if (!run->compute)
        run->compute = run->dtype;
    if (!is_dtype(run->compute))
        return wf_error_set(error, WF_EINVAL, ".compute %s is none of fp32 and bf16",
                            run->compute);
    if (strcmp(run->compute, "bf16") == 0 && strcmp(run->dtype, "bf16") != 0)
        return wf_error_set(error, WF_EINVAL,
                            ".compute bf16 multiplies results as they are stored, and they are "
                            "stored as %s: use it with .dtype bf16",
                            run->dtype);
    if (run->fp32_residual && strcmp(run->dtype, "bf16") != 0)
        return wf_error_set(error, WF_EINVAL,
                            ".fp32_residual is for results that are stored as bf16, "
                            "and they are stored as %s: use it with .dtype bf16",
                            run->dtype);
    if (run->base_dtype && strcmp(run->base_dtype, "same") != 0 &&
        strcmp(run->base_dtype, "nf4") != 0)
        return wf_error_set(error, WF_EINVAL, ".base_dtype %s is none of same and nf4",
                            run->base_dtype);
    run->device = wf_par_device_choose(run->device, plan, NULL, error);
    if (!run->device || run->threads)
        return error->code;
    if (wf_topology_read(NULL, &machine, error) != WF_OK)
        return error->code;
    run->threads = machine.cores > run->tp * run->dp ? machine.cores / (run->tp * run->dp) : 1;
    return WF_OK;
}

/* Returns the options of a rank: the model whole, or split over tp; dp copies of it. */
static wf_par_options options_of(const wf_gen_model_run *run, const wf_gen_model *source,
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
                            .exact_tp = (int)run->exact_tp,
                            .plan = plan};
}

/* Refuses to quantize a checkpoint: ranks exchange the scales of what they read of a folder
   alone. */
static wf_status check_base(const wf_gen_model_run *run, const wf_gen_model *source,
                            wf_error *error)
{
    if (!run->base_dtype || strcmp(run->base_dtype, "nf4") != 0 || !source->checkpoint ||
        source->lora.rank)
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        ".base_dtype nf4: %s is a checkpoint of a whole model, and folders are "
                        "what becomes nf4: gpt_export it to one",
                        run->model);
}

wf_status wf_gen_model_run_rank(const wf_gen_model_run *run, const wf_gen_model *source,
                                bool plan, wf_rank *rank, wf_gen_work *work, void *arg)
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

wf_status wf_gen_model_run_tokenizer(const wf_gen_model_run *run, const wf_gen_model *source,
                                     wf_tok **tokenizer, const char **path, wf_error *error)
{
    const char *from = run->tokenizer                     ? run->tokenizer
                       : *source->like                    ? source->like
                       : source->config.vocabulary == 256 ? "bytes"
                                                          : NULL;

    if (!from && source->is_gguf)
        return wf_error_set(error, WF_EINVAL,
                            "%s is a GGUF file: make it a folder with its tokenizer by "
                            "gpt_export %s FOLDER, or give .tokenizer PATH",
                            run->model, run->model);
    if (!from)
        return wf_error_set(error, WF_EINVAL,
                            "%s has no tokenizer beside it: give .tokenizer PATH", run->model);
    *path = from;
    if (wf_tok_open(from, tokenizer, error) != WF_OK)
        return error->code;
    if (wf_tok_size(*tokenizer) > source->config.vocabulary)
        return wf_error_set(error, WF_EINVAL,
                            "the tokenizer %s has %d ids, and the model %lld: it is another "
                            "model's; give .tokenizer PATH",
                            from, wf_tok_size(*tokenizer),
                            (long long)source->config.vocabulary);
    return WF_OK;
}
