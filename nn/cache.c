/* nn/cache.c - keys and values of earlier tokens, an entry for each attention of a model. */
#include "nn/cache.h"
#include "core/device.h"
#include "core/host_data.h"
#include "kernels/attention_cached.h"
#include "nn/uses_internal.h"
#include <stdlib.h>
#include <string.h>

/* The cache of one module: [slots, positions, groups, head size] each; or choices of experts,
   [slots, positions, 1, k], and no v. */
typedef struct entry {
    const wf_nn_module *module;
    wf_tensor *k, *v;
} entry;

struct wf_nn_cache {
    wf_context *ctx;
    int64_t slots, positions;
    entry *entries;
    int n, room, next; /* next: modules run in the same order each time */
    wf_nn_cache_tokens at;
};

wf_nn_cache *wf_nn_cache_open(wf_context *ctx, int64_t slots, int64_t positions)
{
    wf_nn_cache *c = NULL;

    if (slots < 1 || positions < 1 || positions > INT32_MAX || slots > INT32_MAX) {
        wf_fail(ctx, WF_EINVAL,
                "a cache of %lld slots for %lld tokens each: both must be at least 1 and "
                "below 2^31",
                (long long)slots, (long long)positions);
        return NULL;
    }
    c = calloc(1, sizeof *c);
    if (c)
        *c = (wf_nn_cache){.ctx = ctx, .slots = slots, .positions = positions};
    else
        wf_fail(ctx, WF_ENOMEM, "no memory for a key-value cache");
    return c;
}

void wf_nn_cache_tokens_free(wf_nn_cache_tokens *t)
{
    wf_tensor_release(t->position);
    wf_tensor_release(t->first);
    wf_tensor_release(t->slot);
    *t = (wf_nn_cache_tokens){.length = 0};
}

void wf_nn_cache_swap(wf_nn_cache *c, wf_nn_cache_tokens *other)
{
    const wf_nn_cache_tokens ours = c->at;

    c->at = *other;
    *other = ours;
}

void wf_nn_cache_close(wf_nn_cache *c)
{
    if (!c)
        return;
    if (wf_nn_cache_now(c->ctx) == c)
        wf_nn_cache_switch(c->ctx, NULL);
    wf_nn_cache_tokens_free(&c->at);
    for (int i = 0; i < c->n; i++) {
        wf_tensor_release(c->entries[i].k);
        wf_tensor_release(c->entries[i].v);
    }
    free(c->entries);
    free(c);
}

wf_nn_cache *wf_nn_cache_switch(wf_context *ctx, wf_nn_cache *cache)
{
    wf_nn_uses *uses = wf_nn_uses_of(ctx);
    wf_nn_cache *last = uses->cache;

    uses->cache = cache;
    return last;
}

wf_nn_cache *wf_nn_cache_now(wf_context *ctx)
{
    return wf_nn_uses_of(ctx)->cache;
}

wf_tensor *wf_nn_cache_positions(const wf_nn_cache *c)
{
    return c->at.position;
}

int64_t wf_nn_cache_length(const wf_nn_cache *c)
{
    return c->at.length;
}

static wf_status check_positions(const wf_nn_cache *c, int64_t batch, int64_t tokens,
                                 const wf_nn_cache_position *sequence)
{
    for (int64_t b = 0; b < batch; b++) {
        if (sequence[b].length != sequence[0].length)
            return wf_fail(c->ctx, WF_EINVAL,
                           "texts of %lld and of %lld tokens in one pass: RoPE that is scaled "
                           "by length takes one length at a time",
                           (long long)sequence[0].length, (long long)sequence[b].length);
        if (sequence[b].slot < 0 || sequence[b].slot >= c->slots || sequence[b].first < 0 ||
            sequence[b].first + tokens > c->positions)
            return wf_fail(c->ctx, WF_EINVAL,
                           "tokens [%lld, %lld) of slot %lld: the cache has %lld slots, each "
                           "with room for %lld tokens",
                           (long long)sequence[b].first,
                           (long long)(sequence[b].first + tokens), (long long)sequence[b].slot,
                           (long long)c->slots, (long long)c->positions);
    }
    return WF_OK;
}

/* Returns an i32 tensor that outlives the scope; in a plan it has no numbers. */
static wf_tensor *numbers(wf_context *ctx, int ndim, const wf_dim *dims)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    return t ? wf_tensor_retain(t) : NULL;
}

/* Makes tensors for `batch` sequences of `tokens` where there are none. */
static wf_status fit(wf_nn_cache *c, int64_t batch, int64_t tokens)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens)};
    wf_nn_cache_tokens *t = &c->at;

    if (t->slot && t->position->dim[0].size == batch && t->position->dim[1].size == tokens)
        return WF_OK;
    wf_nn_cache_tokens_free(t);
    wf_scope_open(c->ctx);
    t->position = numbers(c->ctx, 2, dims);
    t->first = numbers(c->ctx, 1, dims);
    t->slot = numbers(c->ctx, 1, dims);
    wf_scope_close(c->ctx);
    if (t->position && t->first && t->slot)
        return WF_OK;
    wf_nn_cache_tokens_free(t);
    return wf_context_status(c->ctx);
}

wf_status wf_nn_cache_at(wf_nn_cache *c, int64_t batch, int64_t tokens,
                         const wf_nn_cache_position *sequence)
{
    wf_host_data at[3];
    int32_t *position, *first, *slot;

    if (check_positions(c, batch, tokens, sequence) != WF_OK ||
        fit(c, batch, tokens) != WF_OK) {
        wf_nn_cache_tokens_free(&c->at);
        return wf_context_status(c->ctx);
    }
    c->next = 0;
    c->at.length = batch > 0 ? sequence[0].length : 0;
    if (wf_context_dry_run(c->ctx))
        return wf_context_status(c->ctx);
    position = wf_data_write(c->at.position, false, &at[0]);
    first = wf_data_write(c->at.first, false, &at[1]);
    slot = wf_data_write(c->at.slot, false, &at[2]);
    for (int64_t b = 0; position && first && slot && b < batch; b++) {
        first[b] = (int32_t)sequence[b].first;
        slot[b] = (int32_t)sequence[b].slot;
        for (int64_t t = 0; t < tokens; t++)
            position[b * tokens + t] =
                (int32_t)(sequence[b].is_long ? -1 - sequence[b].first - t
                                              : sequence[b].first + t);
    }
    for (int i = 0; i < 3; i++)
        wf_data_close(&at[i]);
    return wf_context_status(c->ctx);
}

/* Returns room for keys or values; of three dims, for choices. */
static wf_tensor *room_for(const wf_nn_cache *c, const wf_tensor *k)
{
    const bool choices = k->ndim == 3;
    const wf_dim dims[] = {wf_dim_width(c->slots), wf_dim_width(c->positions),
                           choices ? wf_dim_width(1) : k->dim[2], k->dim[choices ? 2 : 3]};
    wf_tensor *t = wf_tensor_new(c->ctx, choices ? k->dtype : wf_cache_dtype(k), 4, dims,
                                 choices ? NULL : k->layout, WF_MEMORY_CACHE);

    return t ? wf_tensor_retain(t) : NULL;
}

static entry *grow(wf_nn_cache *c)
{
    int room = c->room ? 2 * c->room : 32;
    entry *more;

    if (c->n < c->room)
        return &c->entries[c->n];
    more = realloc(c->entries, (size_t)room * sizeof *more);
    if (!more) {
        wf_fail(c->ctx, WF_ENOMEM, "no memory for a key-value cache");
        return NULL;
    }
    c->entries = more;
    c->room = room;
    return &c->entries[c->n];
}

/* Returns the module's entry, made where it has none; NULL on errors. */
static entry *entry_of(wf_nn_cache *c, const wf_nn_module *module, const wf_tensor *k)
{
    entry *e;

    for (int i = 0; i < c->n; i++) {
        int at = (c->next + i) % c->n;

        if (c->entries[at].module == module) {
            c->next = at + 1;
            return &c->entries[at];
        }
    }
    e = grow(c);
    if (!e)
        return NULL;
    *e = (entry){
        .module = module, .k = room_for(c, k), .v = k->ndim == 3 ? NULL : room_for(c, k)};
    if (e->k && (e->v || k->ndim == 3)) {
        c->next = ++c->n;
        return e;
    }
    wf_tensor_release(e->k);
    wf_tensor_release(e->v);
    return NULL;
}

/* Keys and values as an entry keeps them */
static wf_tensor *as_kept(wf_tensor *t, const wf_tensor *kept)
{
    return t->dtype == kept->dtype ? t : wf_cast(t, kept->dtype);
}

wf_tensor *wf_nn_cache_attention(wf_nn_cache *c, const wf_nn_module *module, wf_tensor *q,
                                 wf_tensor *k, wf_tensor *v,
                                 const wf_attention_options *options)
{
    entry *e = q && k && v ? entry_of(c, module, k) : NULL;

    if (!e || !c->at.slot ||
        wf_cache_write(e->k, e->v, as_kept(k, e->k), as_kept(v, e->v), c->at.first,
                       c->at.slot) != WF_OK)
        return NULL;
    return wf_attention_cached(q, e->k, e->v, c->at.first, c->at.slot, options);
}

/* Counts the kept choices of sequence b's earlier tokens, and keeps those of its new ones. */
static void count_choices(const wf_nn_cache *c, const float *index, float *kept, int64_t b,
                          int64_t tokens, int64_t k, int32_t *count)
{
    const int64_t slot = ((const int32_t *)c->at.slot->data)[b];
    const int64_t first = ((const int32_t *)c->at.first->data)[b];
    float *at = kept + slot * c->positions * k;

    for (int64_t i = 0; i < first * k; i++)
        count[(int64_t)at[i]]++;
    memcpy(at + first * k, index + b * tokens * k, (size_t)(tokens * k) * sizeof *at);
}

wf_tensor *wf_nn_cache_choices(wf_nn_cache *c, const wf_nn_module *module, wf_tensor *index,
                               int64_t experts)
{
    const wf_dim dims[] = {index ? index->dim[0] : wf_dim_batch(1), wf_dim_width(experts)};
    entry *e = index ? entry_of(c, module, index) : NULL;
    wf_tensor *before =
        e ? wf_tensor_new(c->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_WORKSPACE) : NULL;

    if (!before)
        return NULL;
    if (wf_context_device(c->ctx)->memory) {
        wf_fail(c->ctx, WF_EUNSUPPORTED,
                "experts with a capacity do not continue texts on a GPU: generate on the CPU");
        return NULL;
    }
    if (wf_tensor_local_count(index) != wf_tensor_count(index) || !c->at.slot ||
        c->at.slot->dim[0].size != index->dim[0].size) {
        wf_fail(c->ctx, WF_ELAYOUT,
                "experts with a capacity count a text's choices on each rank that continues "
                "it, of all its tokens");
        return NULL;
    }
    if (wf_context_dry_run(c->ctx))
        return before;
    memset(before->data, 0, (size_t)wf_tensor_count(before) * sizeof(int32_t));
    for (int64_t b = 0; b < index->dim[0].size; b++)
        count_choices(c, index->data, e->k->data, b, index->dim[1].size, index->dim[2].size,
                      (int32_t *)before->data + b * experts);
    return before;
}
