/*
 * parallel/shard/gradient_buckets.c - the sums over micro-steps, summed over data-parallel
 * ranks where they are partial over them, a bucket at a time.
 */
#include "parallel/shard/gradient_slots_internal.h"

wf_status wf_par_gradients_complete(const wf_par_gradients *g)
{
    wf_context *ctx = g->par->ctx;
    char text[256];

    for (int64_t i = 0; i < g->count && wf_context_status(ctx) == WF_OK; i++)
        if (*wf_par_sum_missing(&g->slots[i].ended, g->micros, text, sizeof text))
            wf_fail(ctx, WF_EINVAL,
                    "the gradient of parameter %s lacks micro-steps %s of %lld: run the whole "
                    "backward pass of each, that of weights too, before they are summed",
                    g->parameter[i]->path, text, (long long)g->micros);
    return wf_context_status(ctx);
}

void wf_par_gradients_list(wf_par_gradients *g)
{
    g->nodes = g->next_node = 0;
    for (int64_t i = 0; i < g->count; i++)
        for (int u = 0; u < g->slots[i].count; u++) {
            wf_par_sum *s = &g->slots[i].slot[u];

            if (!s->open || !s->node[0].sum)
                continue;
            g->slot[g->nodes] = &s->node[0].sum;
            g->list[g->nodes] = s->node[0].sum;
            g->to[g->nodes++] = wf_par_state_of(g->parameter[i])->gradient;
        }
}

/* The next nodes that go together: a bucket; returns how many. */
static int64_t bucket_size(const wf_par_gradients *g)
{
    int64_t end = g->next_node;
    size_t bytes = 0;

    while (end < g->nodes && bytes < WF_PAR_BUCKET_BYTES) {
        const wf_tensor *t = g->list[end++];

        bytes += (size_t)wf_tensor_local_count(t) * wf_dtype_size(t->dtype);
    }
    return end - g->next_node;
}

/* Replaces the n nodes of a bucket that has been summed by the results. */
static void put_bucket(wf_par_gradients *g, int64_t n)
{
    for (int64_t i = g->next_node; i < g->next_node + n; i++) {
        wf_tensor_retain(g->list[i]);
        wf_tensor_release(*g->slot[i]);
        *g->slot[i] = g->list[i];
    }
    g->next_node += n;
}

static wf_status begin_bucket(wf_par_gradients *g)
{
    int64_t at = g->next_node, n = bucket_size(g);

    if (n > 0 && wf_context_status(g->par->ctx) == WF_OK)
        g->bucket = wf_par_move_begin(g->par, WF_MEMORY_GRADIENT, n, g->list + at, g->to + at);
    return wf_context_status(g->par->ctx);
}

/* The bucket that is on its way, or else the next one from begin to end. */
static wf_status end_bucket(wf_par_gradients *g)
{
    wf_context *ctx = g->par->ctx;
    int64_t at = g->next_node, n = bucket_size(g);
    wf_status status;

    wf_scope_open(ctx);
    status = g->bucket ? wf_par_move_end(g->par, WF_MEMORY_GRADIENT, g->bucket, g->list + at)
                       : wf_par_move_run(g->par, WF_MEMORY_GRADIENT, n, g->list + at,
                                         g->to + at, g->list + at);
    g->bucket = NULL;
    if (status == WF_OK)
        put_bucket(g, n);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

wf_status wf_par_gradients_sum_begin(wf_par_gradients *g)
{
    if (wf_par_gradients_complete(g) != WF_OK)
        return wf_context_status(g->par->ctx);
    wf_par_gradients_list(g);
    g->summed = true;
    return begin_bucket(g);
}

wf_status wf_par_gradients_sum_next(wf_par_gradients *g)
{
    wf_status status = wf_context_status(g->par->ctx);

    if (!g->bucket || status != WF_OK)
        return status;
    status = end_bucket(g);
    return status == WF_OK ? begin_bucket(g) : status;
}

wf_status wf_par_gradients_sum_end(wf_par_gradients *g)
{
    wf_context *ctx = g->par->ctx;

    while (g->next_node < g->nodes && wf_context_status(ctx) == WF_OK)
        end_bucket(g);
    return wf_context_status(ctx);
}
