/* parallel/plan/job.c - see the header. */
#include "parallel/plan/job.h"
#include "nn/checkpointing.h"
#include "parallel/shard/materialize.h"
#include <string.h>

bool wf_par_job_evaluates(const wf_par_job *job, int64_t step)
{
    return job->eval_interval && (step % job->eval_interval == 0 || step == job->steps);
}

/* Has inputs of recomputed modules rest in host memory. */
static wf_status offload(wf_par *par, wf_nn_module *model, const wf_par_job *job)
{
    if (job->pipeline)
        return wf_fail(wf_par_context(par), WF_EUNSUPPORTED,
                       "activations of pipeline stages are not offloaded yet: use more "
                       "stages, or ranks of data parallelism");
    if (job->mesh.offload_dir)
        return wf_fail(wf_par_context(par), WF_EUNSUPPORTED,
                       ".offload_dir %s is for the optimizer's state, and activations rest in "
                       "host memory: use .offload optimizer, or leave the folder out",
                       job->mesh.offload_dir);
    return wf_nn_offload_inputs(model);
}

wf_nn_module *wf_par_job_model(wf_par *par, void *arg)
{
    const wf_par_job *job = arg;
    wf_nn_module *model = job->blocks
                              ? job->shortened(par, job->arg, job->blocks, job->vocabulary)
                              : job->model(par, job->arg);

    if (!model || (job->recompute && wf_nn_recompute(model, job->recompute) != WF_OK) ||
        (job->offload_activations && offload(par, model, job) != WF_OK)) {
        wf_nn_free(model);
        return NULL;
    }
    return model;
}

int64_t wf_par_job_tokens(const wf_par_job *job)
{
    const wf_par_field *field = job->train.field;

    for (int i = 0; i < WF_PAR_FIELDS && field[i].name; i++)
        if (strcmp(field[i].name, "tokens") == 0 && field[i].dim[0].size)
            return field[i].dim[0].size;
    return 1;
}

wf_status wf_par_job_pipeline(const wf_par_job *job, wf_par_pipeline **pipeline,
                              wf_error *error)
{
    wf_par_options plan = job->mesh;
    wf_par_pipeline_options how;

    *pipeline = NULL;
    if (!job->pipeline)
        return WF_OK;
    how = *job->pipeline;
    how.model = wf_par_job_model;
    how.arg = (void *)(uintptr_t)job; /* only read */
    plan.plan = true;
    plan.memory_limit = 0;
    return wf_par_pipeline_new(&plan, &job->train, &how, pipeline, error);
}

wf_status wf_par_job_materialize(const wf_par_pipeline *pipeline, wf_par *par,
                                 wf_nn_module *model)
{
    return pipeline ? wf_par_pipeline_materialize(pipeline, par, model)
                    : wf_par_materialize(par, model);
}
