/* parallel/plan/job.c - see the header. */
#include "parallel/plan/job.h"
#include "parallel/shard/materialize.h"

bool wf_par_job_evaluates(const wf_par_job *job, int64_t step)
{
    return job->eval_interval && (step % job->eval_interval == 0 || step == job->steps);
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
    how.model = job->model;
    how.arg = job->arg;
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
