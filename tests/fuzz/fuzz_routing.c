/*
 * tests/fuzz/fuzz_routing.c - 5 bytes: experts, choices of a token, tokens, a rank's first
 * expert, room; then the table of choices, as floats, from strangers. Experts of a whole and of
 * a part take what ascends and are experts, or none's, and refuse all else; so do capacities
 * and losses of balance. The same numbers as logits are routed, but for a NaN.
 */
#include "kernels/devices.h"
#include "kernels/moe_internal.h"
#include "kernels/ops.h"
#include "core/tape.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

typedef struct table {
    int64_t experts, k, tokens;
    wf_tensor *index; /* [1, tokens, k], or [1, tokens, experts] of logits */
} table;

static wf_tensor *filled(wf_context *ctx, int ndim, const wf_dim *dims, float value)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    PROMISE(t);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((float *)t->data)[i] = value;
    return t;
}

static wf_tensor *rows_of(wf_context *ctx, const table *t, int64_t width, float value)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(t->tokens), wf_dim_width(width)};

    return filled(ctx, 3, dims, value);
}

/* Returns whether choices ascend in each token and are experts; none: those of no expert are
   passed over. */
static bool is_good(const table *t, const float *index, bool none, bool ascends)
{
    for (int64_t i = 0; i < t->tokens * t->k; i++) {
        double e = (double)index[i], before = -1;

        if (none && e == (double)t->experts)
            continue;
        for (int64_t j = i / t->k * t->k; j < i; j++)
            if ((double)index[j] != (double)t->experts)
                before = (double)index[j];
        if (!(e >= 0 && e < (double)t->experts && e == floor(e)) || (ascends && e <= before))
            return false;
    }
    return true;
}

/* Notes what came of an op: a result, or WF_EINVAL. */
static bool answered(wf_context *ctx, const wf_tensor *y)
{
    wf_status status = wf_context_status(ctx);

    PROMISE(y ? status == WF_OK : status == WF_EINVAL && wf_context_error(ctx)->text[0]);
    wf_context_clear(ctx);
    return y != NULL;
}

static void try_experts(wf_context *ctx, const table *t, int64_t first, float buffer)
{
    const wf_dim e = wf_dim_experts(t->experts), f = wf_dim_chunked(3), d = wf_dim_width(2);
    wf_tensor *gate = filled(ctx, 3, (const wf_dim[]){e, f, d}, 1), *up, *down, *y, *x;
    wf_tape *tape = wf_tape_open(ctx);

    up = filled(ctx, 3, gate->dim, 1);
    down = filled(ctx, 3, (const wf_dim[]){e, d, f}, 1);
    gate->start[0] = up->start[0] = down->start[0] = first;
    gate->local[0] = up->local[0] = down->local[0] = t->experts - first;
    x = rows_of(ctx, t, 2, 1);
    y = wf_experts(first ? gate : wf_leaf(gate), up, down, wf_leaf(x),
                   rows_of(ctx, t, t->k, 0.5F), t->index,
                   &(wf_experts_bound){.buffer = buffer});
    PROMISE(answered(ctx, y) == is_good(t, t->index->data, true, true));
    for (int64_t i = 0; y && i < wf_tensor_count(y); i++)
        PROMISE(isfinite(((const float *)y->data)[i]));
    PROMISE(!y || wf_backward(y, x, false) == WF_OK);
    wf_tape_close(tape);
}

static void try_capacity(wf_context *ctx, const table *t, int64_t most)
{
    wf_tensor *taken =
        wf_route_capacity(t->index, &(wf_route_limit){.experts = t->experts, .most = most});
    int64_t count[16] = {0};

    PROMISE(answered(ctx, taken) == is_good(t, t->index->data, false, false));
    for (int64_t i = 0; taken && i < t->tokens * t->k; i++) {
        int64_t e = (int64_t)((const float *)taken->data)[i];

        PROMISE(e == t->experts || ++count[e] <= most);
    }
}

static void try_logits(wf_context *ctx, const table *t, const uint8_t *data, size_t size)
{
    wf_tensor *logits = rows_of(ctx, t, t->experts, 0), *weights, *index;
    size_t bytes = wf_tensor_bytes(logits);
    const table chosen = {t->experts, t->k, t->tokens, NULL};
    bool nan = false;

    memcpy(logits->data, data, size < bytes ? size : bytes);
    for (int64_t i = 0; i < wf_tensor_count(logits); i++)
        nan |= isnan(((const float *)logits->data)[i]);
    wf_route(logits, NULL, &(wf_route_options){.k = t->k, .sigmoid = true}, &weights, &index);
    PROMISE(answered(ctx, index) == !nan);
    PROMISE(!index || is_good(&chosen, index->data, false, true));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx;
    table t;

    if (size < 5)
        return 0;
    ctx = wf_context_open(wf_cpu_device(1, &error), &(wf_context_options){.seed = 1}, &error);
    PROMISE(ctx);
    wf_scope_open(ctx);
    t.experts = 1 + data[0] % 12;
    t.k = 1 + data[1] % t.experts;
    t.tokens = 1 + data[2] % 24;
    t.index = rows_of(ctx, &t, t.k, 0);
    memcpy(t.index->data, data + 5,
           size - 5 < wf_tensor_bytes(t.index) ? size - 5 : wf_tensor_bytes(t.index));
    try_experts(ctx, &t, data[3] % t.experts, data[4] % 4 ? 0.25F * (data[4] % 4) : 0);
    try_capacity(ctx, &t, 1 + data[4] % 5);
    try_logits(ctx, &t, data + 5, size - 5);
    wf_scope_close(ctx);
    wf_context_close(ctx);
    return 0;
}
