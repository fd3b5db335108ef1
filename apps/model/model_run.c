/* apps/model/model_run.c - see the header. */
#include "apps/model/model_run.h"
#include "apps/program.h"
#include "core/files/content.h"

wf_status app_model_run_check(app_model_run *run, bool plan, wf_error *error)
{
    if (run->pp)
        return wf_error_set(error, WF_EINVAL,
                            "--pp %.20s: a model has no stages here, as it has in training: "
                            "--tp N splits it, --dp N makes copies",
                            run->pp);
    return wf_gen_model_run_check(&run->of, plan, error);
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

    wf_job_add(run->job, "device", "%s", run->of.device);
    if (source->checkpoint)
        wf_job_add(run->job, "step of the checkpoint", "%lld",
                   (long long)wf_par_checkpoint_step(source->checkpoint));
    wf_job_add_path(run->job, "content of MODEL", model);
    wf_job_add_path(run->job, "content of its base", source->base);
    wf_job_add_path(run->job, "content of --tokenizer", run->of.tokenizer);
    wf_job_add_path(run->job, name, file);
}
