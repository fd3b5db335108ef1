/* tests/nn/model_ranks.c - a model on a mesh of ranks; see the header. */
#include "tests/nn/model_ranks.h"

static wf_status run(model_rank *r, const model_test *test)
{
    r->ctx = wf_par_context(r->par);
    r->model = wf_nn_gpt_new(r->ctx, &test->config);
    if (!r->model)
        return wf_context_status(r->ctx);
    wf_par_plan(r->par, &r->model->base, wf_par_gpt_plan);
    if (wf_par_materialize(r->par, &r->model->base) != WF_OK)
        return wf_context_status(r->ctx);
    r->parameter = wf_nn_parameters(&r->model->base, &r->count);
    if (!r->parameter)
        return wf_fail(r->ctx, WF_ENOMEM, "no memory for a list of parameters");
    return test->body(r, test->arg);
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    const model_test *test = arg;
    wf_par_options options = test->options;
    model_rank r = {.rank = rank};
    wf_status status;

    if (!options.strategy)
        options.strategy = "no_shard"; /* gradients of uses stay with their leaves */
    r.par = wf_par_open(rank, &options, &rank->error);
    if (!r.par)
        return rank->error.code;
    status = run(&r, test);
    if (status == WF_OK)
        status = wf_context_status(r.ctx);
    if (status != WF_OK && rank->error.code == WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(r.ctx)->text);
    free(r.parameter);
    if (r.model)
        wf_nn_free(&r.model->base);
    wf_par_close(r.par);
    return status;
}

void on_model_ranks(const model_test *test)
{
    const wf_par_options *o = &test->options;

    run_ranks((o->tp ? o->tp : 1) * (o->dp ? o->dp : 1), rank_main, (void *)test);
}

wf_context *lone_context(uint64_t seed)
{
    const wf_context_options options = {.seed = seed};
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cpu_device(1, &error);
    wf_context *ctx = device ? wf_context_open(device, &options, &error) : NULL;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

void close_lone(wf_context *ctx, wf_status status)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), status);
    if (wf_context_status(ctx) != status)
        printf("\n    %s\n", wf_context_error(ctx)->text);
    wf_context_close(ctx);
}
