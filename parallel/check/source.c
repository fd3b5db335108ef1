/* parallel/check/source.c - the model of a check on one rank: fp32, untied, with its parameters
   by Hugging Face's names. */
#include "parallel/check/source_internal.h"
#include "core/host_data.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "parallel/shard/materialize.h"
#include <stdlib.h>
#include <string.h>

typedef struct task {
    const wf_check_options *options;
    wf_status (*work)(wf_check_source *source, void *arg);
    void *arg;
} task;

static bool has(const char *path, const char *part)
{
    return strstr(path, part) != NULL;
}

unsigned wf_check_roles(const char *path)
{
    const bool bias = has(path, ".bias");
    const bool row = has(path, "attn.out.") || has(path, "mlp.down.");

    if (has(path, "norm"))
        return WF_CHECK_NORM;
    return (bias ? WF_CHECK_BIAS : 0u) | (row ? bias ? WF_CHECK_ROW_BIAS : WF_CHECK_ROW : 0u) |
           (has(path, ".qkv.") || has(path, "mlp.up.") || has(path, "gate_up.")
                ? WF_CHECK_COLUMN
                : 0u) |
           (has(path, "embed") || has(path, "head.") ? WF_CHECK_VOCABULARY : 0u) |
           (has(path, "position") ? WF_CHECK_POSITION : 0u) |
           (has(path, "qkv.k.") || has(path, "qkv.v.") ? WF_CHECK_KV : 0u);
}

/* Loads the model with a head of its own, so that the two uses of a tied table have separate
   gradients. */
static wf_nn_gpt *load(wf_check_source *s)
{
    wf_nn_gpt_config untied = s->config;
    wf_context *ctx = wf_par_context(s->par);
    wf_nn_gpt *model;

    untied.tied = false;
    model = wf_nn_gpt_new(ctx, &untied);
    if (model && wf_par_plan(s->par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(s->par, &model->base) == WF_OK &&
        wf_par_pretrained_load(s->par, model, s->options->model) == WF_OK)
        return model;
    if (model)
        wf_nn_free(&model->base);
    return NULL;
}

static wf_status run_rank(wf_rank *rank, void *arg)
{
    const task *t = arg;
    wf_check_source s = {.options = t->options, .error = &rank->error};
    const wf_par_options options = {.strategy = "no_shard", .threads = t->options->threads};
    const char *like;

    if (wf_par_pretrained_config(t->options->model, &s.config, &rank->error) != WF_OK)
        return rank->error.code;
    like = wf_par_gguf_there(t->options->model) ? NULL : t->options->model;
    if (wf_hf_config_family(&s.config, like, &s.family, &rank->error) != WF_OK)
        return rank->error.code;
    s.par = wf_par_open(rank, &options, &rank->error);
    if (!s.par)
        return rank->error.code;
    s.model = load(&s);
    s.parameter = s.model ? wf_nn_parameters(&s.model->base, &s.count) : NULL;
    if (s.parameter)
        t->work(&s, t->arg);
    if (rank->error.code == WF_OK && wf_context_status(wf_par_context(s.par)) != WF_OK)
        rank->error = *wf_context_error(wf_par_context(s.par));
    if (rank->error.code == WF_OK && !s.parameter)
        wf_error_set(&rank->error, WF_ENOMEM, "no memory for a list of parameters");
    free(s.parameter);
    if (s.model)
        wf_nn_free(&s.model->base);
    wf_par_close(s.par);
    return rank->error.code;
}

wf_status wf_check_with_model(const wf_check_options *options,
                              wf_status (*work)(wf_check_source *source, void *arg), void *arg,
                              wf_error *error)
{
    task t = {options, work, arg};

    return wf_launch(&(wf_launch_options){.ranks = 1}, run_rank, &t, error);
}

void wf_check_source_sizes(const wf_check_source *source, int64_t *vocabulary,
                           int64_t *positions)
{
    *vocabulary = source->config.vocabulary;
    *positions = source->config.positions;
}

void wf_check_scatter(const wf_hf_place *place, const wf_tensor *t, const float *from,
                      double weight, float *to)
{
    const int64_t rows = t->dim[0].size, columns = wf_tensor_count(t) / (rows ? rows : 1);
    const int64_t wide = place->ndim == 2 ? place->shape[1] : 1;

    for (int64_t o = 0; o < rows; o++)
        for (int64_t i = 0; i < columns; i++)
            to[place->transposed ? i * wide + place->offset + o
                                 : (place->offset + o) * columns + i] +=
                (float)(weight * (double)from[o * columns + i]);
}

/* The tensor that a parameter lies in: that of its name, or of a tied head the table. */
static wf_check_tensor *tensor_of(wf_check_source *s, wf_check_reference *r,
                                  const wf_nn_parameter *p, wf_hf_place *place)
{
    if (!wf_hf_place_of(s->family, &s->config, p, place)) {
        wf_error_set(s->error, WF_EUNSUPPORTED,
                     "parameter %s has no name in a %s of transformers", p->path,
                     s->family->type);
        return NULL;
    }
    if (s->config.tied && strcmp(p->path, "head.weight") == 0)
        return &r->tensor[0];
    for (int64_t i = 0; i < r->count; i++)
        if (strcmp(r->tensor[i].name, place->name) == 0)
            return &r->tensor[i];
    return NULL;
}

static wf_status new_tensor(wf_check_source *s, wf_check_reference *r, const wf_nn_parameter *p,
                            const wf_hf_place *place)
{
    wf_check_tensor *t = &r->tensor[r->count++];

    *t = (wf_check_tensor){.ndim = place->ndim, .count = 1, .transposed = place->transposed};
    memcpy(t->name, place->name, sizeof t->name);
    t->name[sizeof t->name - 1] = 0;
    memcpy(t->shape, place->shape, sizeof t->shape);
    for (int d = 0; d < t->ndim; d++)
        t->count *= t->shape[d];
    t->rows = t->ndim ? t->shape[0] : 1;
    t->columns = t->count / (t->rows ? t->rows : 1);
    t->roles = wf_check_roles(p->path);
    if (has(p->path, ".qkv."))
        t->head_dim = wf_nn_gpt_complete(&s->config).head_dim;
    t->reference = calloc((size_t)t->count + 1, sizeof *t->reference);
    t->weight = calloc((size_t)t->count + 1, sizeof *t->weight);
    if (!t->reference || !t->weight)
        return wf_error_set(s->error, WF_ENOMEM, "no memory for the gradient of %s", t->name);
    if (t->ndim == 1) {
        t->vector = r->vectors;
        r->vectors += t->count;
    }
    return WF_OK;
}

wf_status wf_check_reference_open(wf_check_source *s, wf_check_reference *r, wf_error *error)
{
    s->error = error;
    *r = (wf_check_reference){.tied = s->config.tied};
    r->tensor = calloc((size_t)s->count + 1, sizeof *r->tensor);
    s->place = calloc((size_t)s->count + 1, sizeof *s->place);
    s->tensor = calloc((size_t)s->count + 1, sizeof *s->tensor);
    if (!r->tensor || !s->place || !s->tensor)
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; i < s->count && error->code == WF_OK; i++) {
        wf_host_data view;
        wf_check_tensor *t = tensor_of(s, r, s->parameter[i], &s->place[i]);
        const float *data;

        if (t && i != 0 && t == &r->tensor[0]) {
            s->tensor[i] = 0; /* the head of a tied table */
            t->head = calloc((size_t)t->count + 1, sizeof *t->head);
            if (!t->head)
                return wf_error_set(error, WF_ENOMEM, "no memory for the gradient of %s",
                                    t->name);
            continue;
        }
        if (error->code == WF_OK && !t &&
            new_tensor(s, r, s->parameter[i], &s->place[i]) == WF_OK)
            t = &r->tensor[r->count - 1];
        else if (t)
            t->roles |= wf_check_roles(s->parameter[i]->path) | WF_CHECK_MIXED;
        if (!t || error->code != WF_OK)
            return error->code;
        s->tensor[i] = t - r->tensor;
        data = wf_data_read_f32(s->parameter[i]->tensor, &view);
        if (data)
            wf_check_scatter(&s->place[i], s->parameter[i]->tensor, data, 1, t->weight);
        wf_data_close(&view);
    }
    return error->code;
}

void wf_check_source_close(wf_check_source *s)
{
    free(s->place);
    free(s->tensor);
    s->place = NULL;
    s->tensor = NULL;
}
