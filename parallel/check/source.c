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
    const bool experts =
        has(path, ".moe.gate") || has(path, ".moe.up") || has(path, ".moe.down");
    const bool row = has(path, "attn.out.") || has(path, "mlp.down.");

    if (has(path, "norm"))
        return WF_CHECK_NORM;
    return (bias ? WF_CHECK_BIAS : 0u) | (row ? bias ? WF_CHECK_ROW_BIAS : WF_CHECK_ROW : 0u) |
           (has(path, ".qkv.") || has(path, "mlp.up.") || has(path, "gate_up.")
                ? WF_CHECK_COLUMN
                : 0u) |
           (has(path, "embed") || has(path, "head.") ? WF_CHECK_VOCABULARY : 0u) |
           (experts ? WF_CHECK_EXPERT : 0u) |
           (has(path, ".moe.router") ? WF_CHECK_ROUTER : 0u) |
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

wf_check_sizes wf_check_source_sizes(const wf_check_source *source)
{
    const wf_nn_gpt_config *c = &source->config;

    return (wf_check_sizes){
        .vocabulary = c->vocabulary,
        .positions = c->positions,
        .mixtures = c->experts ? c->layers - wf_nn_blocks_count(&c->dense_blocks) : 0,
        .experts = c->experts,
        .chosen = c->top_k};
}

int64_t wf_check_pieces(const wf_hf_location *location)
{
    return location->pieces ? location->pieces : 1;
}

void wf_check_scatter(const wf_hf_location *location, int64_t piece, const wf_tensor *t,
                      const float *from, double weight, float *to)
{
    const int64_t experts = t->ndim == 3 ? t->dim[0].size : 1;
    const int64_t each = t->ndim == 3 ? t->dim[1].size : t->dim[0].size;
    const int64_t elements = wf_tensor_count(t), columns = elements / (experts * each);
    const int64_t rows = experts * each / wf_check_pieces(location);
    const int64_t wide = location->ndim > 1 ? location->shape[location->ndim - 1] : 1;
    const wf_part whole = {.ndim = 1, .start = {location->run ? 0 : location->offset}};

    from += piece * rows * columns;
    for (int64_t o = 0; o < rows; o++) {
        int64_t together, at = wf_hf_row(location, &whole, o % each, &together);

        if (!location->transposed) /* stacked: experts in front */
            at += o / each * location->shape[1];
        for (int64_t i = 0; i < columns; i++)
            to[location->transposed ? (o / each * columns + i) * wide + at
                                    : at * columns + i] +=
                (float)(weight * (double)from[o * columns + i]);
    }
}

/* Returns the tensor that a parameter lies in with others, which is there already: that of its
   name, or of a tied head the table; NULL: it has one of its own. */
static wf_check_tensor *tensor_of(const wf_check_source *s, const wf_check_reference *r,
                                  const wf_nn_parameter *p, const wf_hf_location *location)
{
    if (s->config.tied && strcmp(p->path, "head.weight") == 0)
        return &r->tensor[0];
    for (int64_t i = 0; i < r->count; i++)
        if (strcmp(r->tensor[i].name, location->name) == 0)
            return &r->tensor[i];
    return NULL;
}

static wf_status new_tensor(wf_check_source *s, wf_check_reference *r, const wf_nn_parameter *p,
                            const wf_hf_location *location)
{
    wf_check_tensor *t = &r->tensor[r->count++];

    *t = (wf_check_tensor){
        .ndim = location->ndim, .count = 1, .transposed = location->transposed};
    memcpy(t->name, location->name, sizeof t->name);
    t->name[sizeof t->name - 1] = 0;
    memcpy(t->shape, location->shape, sizeof t->shape);
    for (int d = 0; d < t->ndim; d++)
        t->count *= t->shape[d];
    t->rows = t->ndim == 3 ? t->shape[0] * t->shape[1] : t->ndim ? t->shape[0] : 1;
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

/* Finds where each parameter lies, and makes room for their tensors. */
static wf_status find_locations(wf_check_source *s, wf_check_reference *r)
{
    int64_t total = 0;

    s->location = calloc((size_t)s->count + 1, sizeof *s->location);
    s->tensor = calloc((size_t)s->count + 1, sizeof *s->tensor);
    for (int64_t i = 0; s->location && i < s->count; i++) {
        if (!wf_hf_location_of(s->family, &s->config, s->parameter[i], &s->location[i]))
            return wf_error_set(s->error, WF_EUNSUPPORTED,
                                "parameter %s has no name in a %s of transformers",
                                s->parameter[i]->path, s->family->type);
        total += wf_check_pieces(&s->location[i]);
    }
    r->tensor = calloc((size_t)total + 1, sizeof *r->tensor);
    return r->tensor && s->location && s->tensor
               ? WF_OK
               : wf_error_set(s->error, WF_ENOMEM, "no memory for a list of parameters");
}

static void read_weights(const wf_check_source *s, wf_check_reference *r, int64_t i)
{
    const wf_tensor *t = s->parameter[i]->tensor;
    wf_host_data view;
    const float *data = wf_data_read_f32(t, &view);

    for (int64_t e = 0; data && e < wf_check_pieces(&s->location[i]); e++)
        wf_check_scatter(&s->location[i], e, t, data, 1, r->tensor[s->tensor[i] + e].weight);
    wf_data_close(&view);
}

/* Opens the tensors of parameter i: that which it lies in with others, or its own. */
static wf_status open_tensors(wf_check_source *s, wf_check_reference *r, int64_t i)
{
    const wf_nn_parameter *p = s->parameter[i];
    wf_check_tensor *t;
    wf_hf_location one;

    wf_hf_location_piece(&s->location[i], 0, &one);
    t = tensor_of(s, r, p, &one);
    s->tensor[i] = t ? t - r->tensor : r->count;
    if (t && i != 0 && t == &r->tensor[0]) { /* the head of a tied table */
        t->head = calloc((size_t)t->count + 1, sizeof *t->head);
        return t->head ? WF_OK
                       : wf_error_set(s->error, WF_ENOMEM, "no memory for the gradient of %s",
                                      t->name);
    }
    if (t)
        t->roles |= wf_check_roles(p->path) | WF_CHECK_MIXED;
    for (int64_t e = 0; !t && e < wf_check_pieces(&s->location[i]); e++) {
        wf_hf_location_piece(&s->location[i], e, &one);
        if (new_tensor(s, r, p, &one) != WF_OK)
            return s->error->code;
    }
    read_weights(s, r, i);
    return WF_OK;
}

wf_status wf_check_reference_open(wf_check_source *s, wf_check_reference *r, wf_error *error)
{
    s->error = error;
    *r = (wf_check_reference){.tied = s->config.tied};
    if (find_locations(s, r) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < s->count; i++)
        if (open_tensors(s, r, i) != WF_OK)
            break;
    return error->code;
}

void wf_check_source_close(wf_check_source *s)
{
    free(s->location);
    free(s->tensor);
    s->location = NULL;
    s->tensor = NULL;
}
