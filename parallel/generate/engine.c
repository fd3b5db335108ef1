/* parallel/generate/engine.c - tokens through a model and its cache; see the header. */
#include "parallel/generate/engine_internal.h"
#include "core/host_data.h"
#include "parallel/parallel_internal.h"
#include "parallel/stages/pipeline.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };

static void find_split(void *any, wf_nn_module *module, const char *name, wf_nn_parameter *p)
{
    const wf_par_parameter_state *state = wf_par_state_of(p);

    (void)module;
    (void)name;
    *(bool *)any |= state && state->policy && state->policy->strategy->split_parameters;
}

const char *wf_gen_engine_uncaptured(const wf_gen_engine_options *o)
{
    bool split = false;

    if (!wf_context_device(wf_par_context(o->par))->graphs)
        return "a device without graphs of captured work";
    if (o->pipelined)
        return "a model in stages";
    if (wf_par_dp(o->par) > 1)
        wf_nn_visit(&o->model->base, NULL, find_split, &split);
    return split ? "copies that split their parameters, and have texts of their own" : NULL;
}

wf_status wf_gen_engine_open(wf_gen_engine *e, const wf_gen_engine_options *options)
{
    const wf_mesh *mesh = wf_par_mesh(options->par);
    const int ep = wf_mesh_axis(mesh, "ep");

    *e = (wf_gen_engine){.o = *options,
                         .ctx = wf_par_context(options->par),
                         .vocabulary = options->model->config.vocabulary};
    if (ep >= 0 && wf_mesh_size(mesh, ep) > 1)
        return wf_fail(e->ctx, WF_EUNSUPPORTED,
                       "texts are generated with experts split over .tp alone, since copies "
                       "along .dp have texts of their own: set .ep to .tp");
    if (options->cuda_graph && wf_gen_engine_uncaptured(options))
        return wf_fail(e->ctx, WF_EUNSUPPORTED,
                       "cuda_graph: tokens are not captured with %s; leave cuda_graph off",
                       wf_gen_engine_uncaptured(options));
    if (e->o.chunk == 0)
        e->o.chunk = CHUNK;
    e->scaled_for = calloc((size_t)e->o.slots, sizeof *e->scaled_for);
    if (!e->scaled_for)
        return wf_fail(e->ctx, WF_ENOMEM, "no memory for %lld slots", (long long)e->o.slots);
    e->cache = wf_nn_cache_open(e->ctx, e->o.slots, e->o.positions);
    return wf_context_status(e->ctx);
}

void wf_gen_engine_close(wf_gen_engine *e)
{
    wf_gen_decode_forget(e);
    wf_nn_cache_close(e->cache);
    e->cache = NULL;
    free(e->scaled_for);
    e->scaled_for = NULL;
}

/* Returns what RoPE sees of a text of `length` tokens, as .scaled_for has it. */
static int64_t scaled_for(const wf_gen_engine *e, int64_t length)
{
    const wf_rope_scaling *s = &e->o.model->config.rope_scaling;
    const bool is_long = (double)length > s->original_positions;

    return s->kind == WF_ROPE_LONG                 ? is_long
           : s->kind == WF_ROPE_DYNAMIC && is_long ? length
                                                   : 0;
}

/* Returns the slot and position of tokens from `first` on. */
static wf_nn_cache_position position_of(const wf_gen_engine *e, int64_t slot, int64_t first)
{
    const bool dynamic = e->o.model->config.rope_scaling.kind == WF_ROPE_DYNAMIC;
    const int64_t scaled = e->scaled_for[slot];

    return (wf_nn_cache_position){.slot = slot,
                                  .first = first,
                                  .is_long = !dynamic && scaled,
                                  .length = dynamic && scaled > 0 ? scaled : 0};
}

bool wf_gen_engine_keeps(const wf_gen_engine *e, int64_t slot, int64_t length)
{
    return e->scaled_for[slot] == scaled_for(e, length);
}

int64_t wf_gen_engine_together(const wf_gen_engine *e, int64_t prompt)
{
    const wf_rope_scaling *s = &e->o.model->config.rope_scaling;
    const bool renewed =
        s->kind == WF_ROPE_LONG && !scaled_for(e, prompt + 1) && scaled_for(e, e->o.positions);

    return renewed ? (int64_t)s->original_positions : prompt;
}

/* A wf_par_head_function. */
static wf_tensor *head(wf_nn_module *model, wf_tensor *x)
{
    return wf_nn_call(((wf_nn_gpt *)model)->head, x);
}

wf_tensor *wf_gen_engine_tokens(wf_gen_engine *e, int64_t batch, int64_t count)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(count)};

    return wf_tensor_new(e->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
}

void wf_gen_engine_write(wf_tensor *t, const int32_t *ids)
{
    wf_host_data view;
    int32_t *to;

    if (!t || !ids || wf_context_dry_run(t->ctx))
        return;
    to = wf_data_write(t, false, &view);
    if (to)
        memcpy(to, ids, (size_t)wf_tensor_local_count(t) * sizeof *to);
    wf_data_close(&view);
}

void wf_gen_engine_share(wf_gen_engine *e, wf_tensor *t, int64_t count, float *to)
{
    wf_host_data view;
    const float *numbers;

    t = wf_whole(t);
    if (t && to && !wf_context_dry_run(e->ctx)) {
        numbers = wf_data_read_f32(t, &view);
        if (numbers)
            memcpy(to, numbers, (size_t)count * sizeof *to);
        wf_data_close(&view);
    }
    if (to && e->o.pipelined)
        wf_par_pipeline_share(e->o.pipelined, to, (size_t)count * sizeof *to);
}

wf_tensor *wf_gen_engine_forward(wf_gen_engine *e, wf_tensor *t, bool wanted, wf_tensor **sums)
{
    wf_nn_gpt *m = e->o.model;
    wf_tensor *y;

    wf_nn_cache_switch(e->ctx, e->cache);
    if (e->o.pipelined)
        y = wf_par_pipeline_forward(e->o.pipelined, t, wanted ? head : NULL);
    else
        y = wanted ? wf_nn_gpt_logits(m, t) : wf_nn_gpt_features(m, t);
    wf_nn_cache_switch(e->ctx, NULL);
    if (sums)
        *sums = y ? wf_nn_logsumexp(m->loss, y) : NULL;
    return y;
}

wf_status wf_gen_engine_run(wf_gen_engine *e, int64_t batch, int64_t count, const int32_t *ids,
                            const wf_nn_cache_position *sequence, bool wanted, float *logits,
                            float *logsumexp)
{
    wf_dtype storage;
    wf_tensor *t, *y, *sums = NULL;

    if (wf_nn_cache_at(e->cache, batch, count, sequence) != WF_OK)
        return wf_context_status(e->ctx);
    storage = wf_context_storage(e->ctx, wf_par_dtype(e->o.par));
    wf_scope_open(e->ctx);
    t = wf_gen_engine_tokens(e, batch, count);
    wf_gen_engine_write(t, ids);
    y = wf_gen_engine_forward(e, t, wanted, wanted && logsumexp ? &sums : NULL);
    if (wanted && logsumexp)
        wf_gen_engine_share(e, sums, batch * count, logsumexp);
    if (wanted)
        wf_gen_engine_share(e, y, batch * count * e->vocabulary, logits);
    wf_scope_close(e->ctx);
    wf_context_storage(e->ctx, storage);
    return wf_context_status(e->ctx);
}

wf_status wf_gen_engine_prefill(wf_gen_engine *e, int64_t slot, int64_t length, int64_t first,
                                const int32_t *ids, int64_t count, float *logits,
                                float *logsumexp)
{
    wf_status status = wf_context_status(e->ctx);

    e->scaled_for[slot] = scaled_for(e, length);
    for (int64_t at = 0; at < count && status == WF_OK; at += e->o.chunk) {
        int64_t n = count - at < e->o.chunk ? count - at : e->o.chunk;
        const wf_nn_cache_position sequence = position_of(e, slot, first + at);

        status = wf_gen_engine_run(e, 1, n, ids ? ids + at : NULL, &sequence, logits != NULL,
                                   logits ? logits + at * e->vocabulary : NULL,
                                   logsumexp ? logsumexp + at : NULL);
    }
    return status;
}

/* Runs texts together, or where RoPE is scaled by lengths that differ, one by one. */
static wf_status run_parts(wf_gen_engine *e, int64_t parts, int64_t count, const int32_t *ids,
                           const wf_nn_cache_position *sequence, bool wanted, float *logits,
                           float *logsumexp)
{
    wf_status status = wf_context_status(e->ctx);
    bool alike = true;

    for (int64_t i = 1; i < parts; i++)
        alike = alike && sequence[i].length == sequence[0].length;
    if (alike)
        return status == WF_OK ? wf_gen_engine_run(e, parts, count, ids, sequence, wanted,
                                                   logits, logsumexp)
                               : status;
    for (int64_t i = 0; i < parts && status == WF_OK; i++)
        status = wf_gen_engine_run(e, 1, count, ids + i * count, &sequence[i], wanted,
                                   logits ? logits + i * count * e->vocabulary : NULL,
                                   logsumexp ? logsumexp + i * count : NULL);
    return status;
}

wf_status wf_gen_engine_prefill_together(wf_gen_engine *e, int64_t parts,
                                         const wf_gen_engine_part *part, int64_t count,
                                         bool wanted, float *logits, float *logsumexp)
{
    wf_nn_cache_position *sequence = calloc((size_t)parts + 1, sizeof *sequence);
    int32_t *ids = calloc((size_t)(parts * count) + 1, sizeof *ids);
    wf_status status = wf_context_status(e->ctx);

    if (sequence && ids) {
        for (int64_t i = 0; i < parts; i++) {
            e->scaled_for[part[i].slot] = scaled_for(e, part[i].length);
            sequence[i] = position_of(e, part[i].slot, part[i].first);
            if (part[i].ids)
                memcpy(ids + i * count, part[i].ids, (size_t)count * sizeof *ids);
        }
        status = run_parts(e, parts, count, ids, sequence, wanted, logits, logsumexp);
    } else {
        status = wf_fail(e->ctx, WF_ENOMEM, "no memory for %lld texts", (long long)parts);
    }
    free(sequence);
    free(ids);
    return status;
}

/* Recomputes a text that becomes a long one of WF_ROPE_LONG, but for its last token. */
static wf_status renew(wf_gen_engine *e, const wf_gen_engine_row *row)
{
    if (wf_gen_engine_keeps(e, row->slot, row->position + 1))
        return WF_OK;
    if (e->o.model->config.rope_scaling.kind == WF_ROPE_DYNAMIC) {
        e->scaled_for[row->slot] = -1; /* its tokens before keep their frequencies */
        return WF_OK;
    }
    if (!row->before && row->position && !wf_context_dry_run(e->ctx))
        return wf_fail(
            e->ctx, WF_EINVAL,
            "a text of %lld tokens is recomputed as a long one, and its ids are not there",
            (long long)row->position + 1);
    return wf_gen_engine_prefill(e, row->slot, row->position + 1, 0, row->before, row->position,
                                 NULL, NULL);
}

wf_status wf_gen_engine_next(wf_gen_engine *e, int64_t rows, const wf_gen_engine_row *row,
                             float *logits, float *logsumexp)
{
    wf_nn_cache_position *sequence = calloc((size_t)rows + 1, sizeof *sequence);
    int32_t *ids = calloc((size_t)rows + 1, sizeof *ids);
    wf_status status = wf_context_status(e->ctx);

    if (sequence && ids) {
        for (int64_t i = 0; i < rows && status == WF_OK; i++) {
            status = renew(e, &row[i]);
            sequence[i] = position_of(e, row[i].slot, row[i].position);
            sequence[i].length = 0; /* up to each token */
            ids[i] = row[i].id;
        }
        if (status == WF_OK)
            status = e->o.cuda_graph ? wf_gen_decode(e, rows, ids, sequence, logits, logsumexp)
                                     : wf_gen_engine_run(e, rows, 1, ids, sequence, true,
                                                         logits, logsumexp);
    } else {
        status = wf_fail(e->ctx, WF_ENOMEM, "no memory for %lld tokens", (long long)rows);
    }
    free(sequence);
    free(ids);
    return status;
}
