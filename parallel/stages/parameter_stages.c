/* parallel/stages/parameter_stages.c - which stages the parameters of a model lie in. */
#include "parallel/stages/pipeline_internal.h"
#include <inttypes.h>
#include <stdlib.h>

/* The parameters of a stage's modules are marked. */
typedef struct marking {
    int64_t count;
    wf_nn_parameter *const *parameter;
    bool *in_stage;
    int stages, stage;
} marking;

static void mark(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    marking *k = arg;

    (void)m;
    (void)name;
    for (int64_t i = 0; i < k->count; i++)
        if (k->parameter[i] == p)
            k->in_stage[i * k->stages + k->stage] = true;
}

bool *wf_par_pipeline_stages_of(const wf_par_pipeline *p, wf_nn_module *model, int64_t count,
                                wf_nn_parameter *const *parameter)
{
    marking k = {.count = count, .parameter = parameter, .stages = p->stages};
    wf_nn_module *m;

    k.in_stage = calloc((size_t)(count * p->stages) + 1, sizeof *k.in_stage);
    if (!k.in_stage) {
        wf_fail(model->ctx, WF_ENOMEM, "no memory for the stages of %" PRId64 " parameters",
                count);
        return NULL;
    }
    for (k.stage = 0; k.stage < p->stages; k.stage++)
        for (int64_t i = p->first[k.stage]; i < wf_par_pipeline_end(p, k.stage); i++)
            for (int n = 0; (m = wf_nn_chain_module(model, i, n)); n++)
                wf_nn_visit(m, NULL, mark, &k);
    return k.in_stage;
}

int wf_par_pipeline_next_stage(const wf_par_pipeline *p, const bool *in_stage, int s)
{
    for (s++; s < p->stages; s++)
        if (in_stage[s])
            return s;
    return -1;
}
