/* parallel/models/gpt/hf_fits.c - whether a folder's weights are those of a model. */
#include "mesh/comm/collective.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include <stdio.h>
#include <stdlib.h>

/* Compares a folder's config with a model's, but for what its weights do not depend on. */
static wf_status compare(const char *folder, const wf_nn_gpt_config *model, wf_error *error)
{
    wf_nn_gpt_config theirs;
    const char *first;
    char more[48] = "";
    int count;

    if (wf_par_pretrained_config(folder, &theirs, error) != WF_OK)
        return error->code;
    if (model->position == WF_NN_ROPE)
        theirs.positions = model->positions;
    if (!model->tied) /* its head begins as the embedding */
        theirs.tied = false;
    first = wf_nn_gpt_difference(&theirs, model, &count);
    if (!first)
        return WF_OK;
    if (count > 1)
        snprintf(more, sizeof more, ", and so are %d properties more", count - 1);
    return wf_error_set(error, WF_EINVAL,
                        "%.900s has weights of another model, whose %s is another one%s: build "
                        "the model from its config.json",
                        folder, first, more);
}

static wf_status find(void *unused, wf_hf_weights *w, const wf_nn_gpt_config *model,
                      wf_nn_parameter *p, wf_error *error)
{
    (void)unused;
    return wf_hf_weights_find_parameter(w, model, p, error);
}

static wf_status find_all(wf_nn_gpt *model, const char *folder, wf_error *error)
{
    wf_hf_weights w;
    wf_status status = wf_hf_weights_open(&w, &wf_system_files, folder, &model->config, error);

    if (status == WF_OK)
        status = wf_hf_weights_each(&w, model, find, NULL, error);
    wf_hf_weights_close(&w);
    return status;
}

wf_status wf_par_pretrained_fits(wf_par *par, wf_nn_gpt *model, const char *folder,
                                 wf_error *error)
{
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    wf_status status;

    wf_comm_at_files(world, true);
    status = compare(folder, &model->config, error);
    if (status == WF_OK)
        status = find_all(model, folder, error);
    wf_comm_at_files(world, false);
    return status;
}
