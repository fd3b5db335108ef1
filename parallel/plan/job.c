/* parallel/plan/job.c - see the header. */
#include "parallel/plan/job.h"
#include "nn/checkpointing.h"
#include "parallel/parallel_internal.h"
#include "parallel/shard/materialize.h"
#include <inttypes.h>
#include <string.h>

bool wf_par_job_evaluates(const wf_par_job *job, int64_t step)
{
    return job->eval_interval && (step % job->eval_interval == 0 || step == job->steps);
}

/* Refuses copies of shards where no data-parallel rank has one alone: they would be of nothing.
   A run that continues on fewer ranks makes none by itself. */
static wf_status check_redundancy(const wf_par_job *job, wf_error *error)
{
    const wf_par_options *o = &job->mesh;

    if (job->train.redundancy != WF_PAR_REDUNDANCY_BUDDY || o->axes || wf_par_holds_alone(o))
        return WF_OK;
    if (o->dp < 2)
        return wf_error_set(error, WF_EINVAL,
                            ".redundancy buddy is held by other data-parallel ranks, and .dp "
                            "is 1: use .dp 2 or more, or no redundancy");
    return wf_error_set(error, WF_EINVAL,
                        ".redundancy buddy copies what one data-parallel rank alone holds, and "
                        "with .strategy %s others hold it, too: leave it out, or use .strategy "
                        "full_shard",
                        o->strategy);
}

wf_status wf_par_job_check(const wf_par_job *job, wf_error *error)
{
    if (wf_par_options_check(&job->mesh, error) != WF_OK)
        return error->code;
    return check_redundancy(job, error);
}

wf_status wf_par_job_check_elastic(const wf_par_job *job, int dp, int64_t min_dp,
                                   wf_error *error)
{
    bool alone =
        job->train.redundancy == WF_PAR_REDUNDANCY_NONE && wf_par_holds_alone(&job->mesh);

    if (min_dp > dp)
        return wf_error_set(error, WF_EINVAL, ".min_dp %" PRId64 " is more than .dp %d", min_dp,
                            dp);
    if (dp > 1 && !alone)
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        ".elastic on continues with what other data parallel ranks hold, and %s",
        dp == 1 ? ".dp is 1: use .dp 2 or more"
                : "here each holds its own shard, or its own experts: use .redundancy "
                  "buddy, or .strategy no_shard or hybrid_shard, which keep copies, of "
                  "experts where .ep splits them over a part of these ranks");
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
