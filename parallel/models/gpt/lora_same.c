/* parallel/models/gpt/lora_same.c - names of what adapters are for, compared by what they
   mean. */
#include "kernels/devices.h"
#include "parallel/models/gpt/lora.h"
#include <stdlib.h>
#include <string.h>

/* A model on the fake device, adapted by the names of a list. */
typedef struct adapted {
    wf_context *ctx;
    wf_nn_gpt *model;
    wf_nn_parameter **parameter;
    int64_t count;
} adapted;

static void release(adapted *a)
{
    free(a->parameter);
    if (a->model)
        wf_nn_free(&a->model->base);
    wf_context_close(a->ctx);
}

/* Builds it; false where the names cannot be applied. */
static bool build(const wf_nn_gpt_config *config, const wf_par_lora *names, adapted *a)
{
    const wf_context_options options = {.plan = true};
    wf_error error = {WF_OK, ""};
    wf_par_lora lora = *names;

    lora.rank = 1;
    lora.alpha = 1;
    lora.dropout = 0;
    *a = (adapted){.ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error)};
    a->model = a->ctx ? wf_nn_gpt_new(a->ctx, config) : NULL;
    if (!a->model || wf_par_lora_apply(a->model, &lora) != WF_OK)
        return false;
    a->parameter = wf_nn_parameters(&a->model->base, &a->count);
    return a->parameter != NULL;
}

bool wf_par_lora_same(const wf_nn_gpt_config *config, const wf_par_lora *a,
                      const wf_par_lora *b)
{
    adapted one, other;
    const bool there[] = {build(config, a, &one), build(config, b, &other)};
    bool same = there[0] && there[1] && one.count == other.count;

    for (int64_t i = 0; same && i < one.count; i++)
        same = strcmp(one.parameter[i]->path, other.parameter[i]->path) == 0 &&
               one.parameter[i]->frozen == other.parameter[i]->frozen;
    release(&one);
    release(&other);
    return same;
}
