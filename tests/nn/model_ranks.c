/* tests/nn/model_ranks.c - a model on a mesh of ranks; see the header. */
#include "parallel/models/gpt/gpt.h"
#include "tests/nn/model_ranks.h"
#include "tests/parallel/part.h"

static wf_status run(part *p)
{
    const model_test *test = p->arg;
    model_rank r = {.rank = p->rank, .par = p->par, .ctx = p->ctx, .model = p->gpt};
    wf_status status;

    GOOD(wf_par_materialize(r.par, p->model));
    r.parameter = wf_nn_parameters(p->model, &r.count);
    if (!r.parameter)
        return wf_fail(r.ctx, WF_ENOMEM, "no memory for a list of parameters");
    status = test->body(&r, test->arg);
    free(r.parameter);
    return status;
}

void on_model_ranks(const model_test *test)
{
    part_test parts = {.options = test->options,
                       .config = &test->config,
                       .plan = wf_par_gpt_plan,
                       .body = run,
                       .arg = (void *)test};

    if (!parts.options.strategy)
        parts.options.strategy = "no_shard"; /* gradients of uses stay with their leaves */
    run_parts(parts);
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

wf_nn_parameter *gain_of(wf_context *ctx, float value)
{
    const wf_dim dim = wf_dim_width(3);
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, 1, &dim, false);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    wf_tensor_release(p->tensor);
    p->tensor = wf_tensor_retain(three_of(ctx, value));
    return p;
}

void close_lone(wf_context *ctx, wf_status status)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), status);
    if (wf_context_status(ctx) != status)
        printf("\n    %s\n", wf_context_error(ctx)->text);
    wf_context_close(ctx);
}

wf_tensor *three_of(wf_context *ctx, float value)
{
    const wf_dim dim = wf_dim_width(3);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_PARAMETER);

    for (int i = 0; t && i < 3; i++)
        ((float *)t->data)[i] = value;
    return t;
}

float first_of(const wf_tensor *t)
{
    return t ? *(const float *)t->data : -1;
}
