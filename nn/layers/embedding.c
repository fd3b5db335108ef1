/* nn/layers/embedding.c - token and position tables. */
#include "nn/layers/embedding.h"
#include "kernels/ops.h"
#include "nn/cache.h"
#include "nn/documents.h"

static wf_tensor *token_forward(wf_nn_module *self, wf_tensor *tokens)
{
    wf_nn_embedding *m = (wf_nn_embedding *)self;

    return wf_nn_at(m, "sum", wf_embedding(wf_nn_use(m, m->table), tokens));
}

static wf_tensor *position_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_embedding *m = (wf_nn_embedding *)self;
    wf_nn_cache *cache = wf_nn_cache_now(self->ctx);
    wf_tensor *positions =
        cache ? wf_nn_cache_positions(cache) : wf_nn_documents_now(self->ctx).positions;
    wf_tensor *rows;

    if (positions) {
        rows = wf_embedding(wf_nn_use(m, m->table), positions);
        return wf_add(x, wf_nn_at(m, "positions", rows));
    }
    rows = wf_rows(wf_nn_use(m, m->table), x->dim[1].size);
    return wf_position_add(x, wf_nn_at(m, "rows", rows));
}

static const wf_nn_field fields[] = {
    {"table", WF_NN_PARAMETER, offsetof(wf_nn_embedding, table), 0}, {NULL, 0, 0, 0}};

static const wf_nn_type token_type = {
    "embedding", sizeof(wf_nn_embedding), fields, token_forward, NULL, "sum"};
static const wf_nn_type position_type = {
    "position", sizeof(wf_nn_embedding), fields, position_forward, NULL, "rows positions"};

static wf_nn_embedding *table(wf_context *ctx, const wf_nn_type *type, wf_dim rows,
                              wf_dim width, float deviation)
{
    wf_nn_embedding *m = wf_nn_new(ctx, type);
    wf_dim shape[] = {rows, width};

    if (!m)
        return NULL;
    m->table = wf_nn_parameter_new(ctx, 2, shape, true);
    wf_nn_init_normal(m->table, 0, deviation);
    return m;
}

wf_nn_embedding *wf_nn_embedding_new(wf_context *ctx, wf_dim vocabulary, wf_dim width,
                                     float deviation)
{
    return table(ctx, &token_type, vocabulary, width, deviation);
}

wf_nn_embedding *wf_nn_position_new(wf_context *ctx, int64_t positions, wf_dim width,
                                    float deviation)
{
    return table(ctx, &position_type, wf_dim_width(positions), width, deviation);
}
