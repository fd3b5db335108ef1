/*
 * parallel/models/gpt/hf_upcycle.c - a dense model as a mixture (Komatsuzaki et al. 2022,
 * "Sparse upcycling"): every expert begins as the MLP of its block, the router as its recipe
 * draws it.
 */
#include "parallel/models/gpt/hf_upcycle_internal.h"
#include "core/host_data.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_par_pretrained_upcycled(const wf_nn_gpt_config *dense, int64_t experts,
                                     int64_t top_k, wf_nn_gpt_config *mixture, wf_error *error)
{
    static const wf_nn_router_kind routers[] = {WF_NN_SOFTMAX, WF_NN_SOFTMAX_CHOSEN};
    const wf_hf_family *family;

    *mixture = wf_nn_gpt_complete(dense);
    if (mixture->experts)
        return wf_error_set(error, WF_EINVAL,
                            "the model has %" PRId64 " experts in a block already, and a dense "
                            "one is made a mixture",
                            mixture->experts);
    if (mixture->mlp != WF_NN_SWIGLU || mixture->mlp_bias)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "experts are SwiGLU MLPs without biases, and those of the model "
                            "are not");
    if (experts < 1 || top_k < 1 || top_k > experts || top_k > WF_ROUTE_MOST)
        return wf_error_set(error, WF_EINVAL,
                            "%" PRId64 " of %" PRId64
                            " experts for each token: choose 1 to all "
                            "of them, and at most %d",
                            top_k, experts, WF_ROUTE_MOST);
    mixture->experts = experts;
    mixture->top_k = top_k;
    mixture->expert_ffn = mixture->ffn;
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
        *error = (wf_error){WF_OK, ""};
        mixture->router = routers[i]; /* weights of equal experts add up to 1 either way */
        mixture->router_normalised = routers[i] == WF_NN_SOFTMAX;
        if (wf_hf_config_family(mixture, NULL, &family, error) != WF_EUNSUPPORTED)
            break;
    }
    return error->code;
}

/* Returns the parameter of the dense model that all experts of p begin as; NULL: none. */
static const wf_nn_parameter *original_of(const wf_hf_upcycling *u, const wf_nn_parameter *p)
{
    static const char *const names[][2] = {{".moe.gate", ".mlp.gate_up.gate.weight"},
                                           {".moe.up", ".mlp.gate_up.up.weight"},
                                           {".moe.down", ".mlp.down.weight"}};
    const size_t n = strlen(p->path);
    char path[WF_NN_PATH + 32];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t end = strlen(names[i][0]);

        if (n <= end || strcmp(p->path + n - end, names[i][0]) != 0)
            continue;
        snprintf(path, sizeof path, "%.*s%s", (int)(n - end), p->path, names[i][1]);
        for (int64_t k = 0; k < u->count; k++)
            if (strcmp(u->parameter[k]->path, path) == 0)
                return u->parameter[k];
    }
    return NULL;
}

/* Writes what a parameter starts from. */
static wf_status draw(const wf_nn_parameter *p, float *to, wf_error *error)
{
    const wf_tensor *like = p->tensor;
    wf_context *ctx = like->ctx;
    wf_tensor *t;

    wf_scope_open(ctx);
    t = wf_tensor_new(ctx, WF_F32, like->ndim, like->dim, NULL, WF_MEMORY_WORKSPACE);
    if (t && wf_nn_replay(p, t) == WF_OK)
        wf_data_get(t, 0, wf_tensor_count(t), to);
    wf_scope_close(ctx);
    return wf_context_status(ctx) == WF_OK
               ? WF_OK
               : wf_error_set(error, wf_context_status(ctx), "%s: %s", p->path,
                              wf_context_error(ctx)->text);
}

wf_status wf_hf_upcycling_open(wf_hf_upcycling *u, const wf_nn_gpt *model,
                               const wf_hf_weights *from, wf_error *error)
{
    const wf_nn_gpt_config *dense = from->is_gguf ? &from->gguf.model : &from->config.model;
    wf_context *ctx = model->base.ctx;

    *u = (wf_hf_upcycling){.model = NULL};
    if (!model->config.experts || dense->experts)
        return WF_OK;
    u->model = wf_nn_gpt_new(ctx, dense);
    u->parameter = u->model ? wf_nn_parameters(&u->model->base, &u->count) : NULL;
    return u->parameter ? WF_OK
                        : wf_error_set(error, WF_ENOMEM, "no memory for the dense model");
}

void wf_hf_upcycling_close(wf_hf_upcycling *u)
{
    free(u->parameter);
    if (u->model)
        wf_nn_free(&u->model->base);
}

wf_status wf_hf_upcycling_read(const wf_hf_upcycling *u, wf_hf_weights *from,
                               const wf_nn_gpt_config *model, const wf_nn_parameter *p,
                               float *to, wf_error *error)
{
    const wf_nn_parameter *original = u->model ? original_of(u, p) : NULL;
    const size_t n = strlen(p->path), end = strlen(".moe.router");
    int64_t count;

    if (u->model && n > end && strcmp(p->path + n - end, ".moe.router") == 0)
        return draw(p, to, error);
    if (!original)
        return wf_hf_weights_read(from, model, p, to, error);
    count = wf_tensor_count(original->tensor);
    if (wf_hf_weights_read(from, &u->model->config, original, to, error) == WF_OK)
        for (int64_t e = 1; e < p->tensor->dim[0].size; e++)
            memcpy(to + e * count, to, (size_t)count * sizeof *to);
    return error->code;
}
