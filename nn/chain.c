/* nn/chain.c - running a model's chain. The chains of modules of named children are in
   nn/children.c. */
#include "nn/chain.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the chain of a model, or NULL with the reason. */
static const wf_nn_chain *chain_of(const wf_nn_module *model)
{
    if (!model)
        return NULL; /* the reason is in the context */
    if (!model->chain)
        wf_fail(model->ctx, WF_EINVAL,
                "model %s has no chain of steps, so it cannot be cut into stages: name its "
                "children in order with WF_NN_CHAIN, or set its wf_nn_module.chain",
                model->type->name);
    return model->chain;
}

int64_t wf_nn_chain_steps(const wf_nn_module *model)
{
    const wf_nn_chain *chain = chain_of(model);

    return chain ? chain->steps(model) : 0;
}

wf_nn_module *wf_nn_chain_module(const wf_nn_module *model, int64_t i, int k)
{
    const wf_nn_chain *chain = chain_of(model);

    if (!chain)
        return NULL;
    if (i >= 0 && i <= chain->steps(model) && k >= 0)
        return chain->module(model, i, k);
    wf_fail(model->ctx, WF_EINVAL,
            "model %s has steps 0 to %" PRId64 " and its head as %" PRId64
            ", and no module %d of step %" PRId64,
            model->type->name, chain->steps(model) - 1, chain->steps(model), k, i);
    return NULL;
}

int wf_nn_chain_run(wf_nn_module *model, int64_t first, int64_t last, int n, wf_tensor **x)
{
    const wf_nn_chain *chain = chain_of(model);
    bool fits = chain && first >= 0 && first <= last && last <= chain->steps(model) && n > 0 &&
                n <= WF_NN_CARRIED;
    int carried = n;

    if (chain && !fits)
        wf_fail(model->ctx, WF_EINVAL,
                "model %s was to run steps %" PRId64 " to %" PRId64 " of its %" PRId64
                " on %d tensors: take steps that it has, and 1 to %d tensors",
                model->type->name, first, last - 1, chain->steps(model), n, WF_NN_CARRIED);
    if (!fits)
        carried = 0;
    for (int64_t i = first; i < last && carried > 0; i++) {
        carried = x[0] ? chain->run(model, i, carried, x) : 0;
        for (int k = 0; k < carried; k++)
            if (!x[k])
                carried = 0;
    }
    if (carried == 0)
        x[0] = NULL;
    return carried;
}

/* A search for the parameters that steps hold, which are marked in a list of all. */
typedef struct search {
    int64_t count;
    wf_nn_parameter **all;
    bool *found;
} search;

static void mark(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    search *s = arg;

    (void)m;
    (void)name;
    for (int64_t i = 0; i < s->count; i++)
        if (s->all[i] == p)
            s->found[i] = true;
}

wf_status wf_nn_chain_check(wf_nn_module *model)
{
    int64_t steps = wf_nn_chain_steps(model);
    search s = {.count = 0};

    if (!model || !model->chain)
        return WF_EINVAL;
    s.all = wf_nn_parameters(model, &s.count);
    s.found = calloc((size_t)s.count + 1, sizeof *s.found);
    if (!s.all || !s.found)
        wf_fail(model->ctx, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; s.all && s.found && i <= steps; i++)
        for (int k = 0; model->chain->module(model, i, k); k++)
            wf_nn_visit(model->chain->module(model, i, k), NULL, mark, &s);
    for (int64_t i = 0; s.all && s.found && i < s.count; i++)
        if (!s.found[i]) {
            wf_fail(model->ctx, WF_EINVAL,
                    "parameter %s of model %s lies in none of the %" PRId64
                    " steps of its chain, nor in its head, so no stage would make it real: put "
                    "it into a module that one of them runs",
                    s.all[i]->path, model->type->name, steps);
            break;
        }
    free(s.all);
    free(s.found);
    return wf_context_status(model->ctx);
}
