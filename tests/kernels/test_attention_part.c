/*
 * tests/kernels/test_attention_part.c - attention of some tokens of each sequence has the bits
 * of attention of all: rows of results, and gradients of queries, keys and values, of any cut,
 * of documents, windows, caps, grouped heads and dropout, in fp32 and bf16.
 *
 * ctest: builds plain address
 */
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "kernels/attention_part.h"
#include "kernels/attention_internal.h"
#include "tests/kernels/op_parts.h"

enum { BATCH = 2, TOKENS = 331, HEADS = 4, DIM = 20 };

/* A kind of attention. */
typedef struct kind {
    const char *name;
    int64_t groups, window, chunk;
    float dropout, cap;
    bool documents, bidirectional, bf16, sinks;
} kind;

static const kind kinds[] = {
    {.name = "causal", .groups = HEADS},
    {.name = "causal, groups, bf16", .groups = 2, .bf16 = true},
    {.name = "a window, dropout", .groups = 1, .window = 70, .dropout = 0.3F},
    {.name = "documents, a cap", .groups = 2, .cap = 0.4F, .documents = true},
    {.name = "documents, a window, bf16",
     .groups = 2,
     .window = 90,
     .documents = true,
     .bf16 = true},
    {.name = "sinks, a window", .groups = 2, .window = 70, .sinks = true},
    {.name = "sinks, documents, a cap, bf16",
     .groups = 1,
     .cap = 0.4F,
     .documents = true,
     .bf16 = true,
     .sinks = true},
    {.name = "chunks", .groups = 2, .chunk = 70},
    {.name = "chunks of documents, sinks, dropout, bf16",
     .groups = 1,
     .chunk = 90,
     .dropout = 0.3F,
     .documents = true,
     .bf16 = true,
     .sinks = true},
    {.name = "bidirectional, dropout", .groups = 2, .dropout = 0.2F, .bidirectional = true},
};

static wf_tensor *heads_of(const kind *k, int64_t heads)
{
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS), wf_dim_chunked(heads),
                           wf_dim_width(DIM)};
    wf_tensor *t = random_tensor(4, dims), *half;

    if (!k->bf16)
        return t;
    half = wf_tensor_new(ctx, WF_BF16, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((uint16_t *)half->data)[i] = wf_bf16_of(((const float *)t->data)[i]);
    return half;
}

/* Documents begin at tokens that are no multiple of a block. */
static wf_tensor *documents_of(void)
{
    static const int32_t starts[] = {0, 37, 205};
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int32_t i = 0; i < BATCH * TOKENS; i++)
        ((int32_t *)t->data)[i] = starts[(i % TOKENS >= starts[1]) + (i % TOKENS >= starts[2])];
    return t;
}

/* Checks one kind: of all tokens against wf_attention, and of parts against that. */
static void check_kind(const kind *k)
{
    const split forward = {k->name, {1, WHOLE, WHOLE, WHOLE, WHOLE}, {1, 1}, ANY};
    const split back = {
        k->name, {WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 1, WHOLE}, {1, 1, 1}, ANY};
    wf_tensor *q = heads_of(k, HEADS), *dy = heads_of(k, HEADS), *grad[3], *y, *lse;
    wf_tensor *kv[] = {heads_of(k, k->groups), heads_of(k, k->groups)};
    wf_tensor *sinks = k->sinks ? random_tensor(1, &(wf_dim){HEADS, 1, WF_CHUNKS_8}) : NULL;
    wf_attention_options o = {.causal = !k->bidirectional,
                              .dropout = k->dropout,
                              .site = 3,
                              .window = k->window,
                              .chunk = k->chunk,
                              .cap = k->cap,
                              .sinks = sinks,
                              .first = k->documents ? documents_of() : NULL};
    const wf_attention_time now = wf_attention_time_now(ctx);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf[] = {wf_leaf(q), wf_leaf(kv[0]), wf_leaf(kv[1])};
    wf_tensor *whole = wf_attention(leaf[0], leaf[1], leaf[2], &o);
    wf_attention_attr a = {.part = true,
                           .bidirectional = k->bidirectional,
                           .step = now.step,
                           .sequences = now.sequences,
                           .window = (int32_t)(k->chunk ? -k->chunk : k->window),
                           .cap = k->cap,
                           .dropout = k->dropout};
    wf_call call = {.op = sinks ? &wf_op_attention_part_sinks : &wf_op_attention_part,
                    .n_in = 3,
                    .n_out = 2,
                    .in = {q, kv[0], kv[1]},
                    .attr = &a,
                    .attr_size = sizeof a};

    if (sinks)
        call.in[call.n_in++] = sinks;
    if (o.first)
        call.in[call.n_in++] = o.first;
    wf_backward(whole, dy, false);
    wf_tape_close(tape);
    y = wf_attention_part(q, kv[0], kv[1], &o, &now, &lse);
    CU_ASSERT_TRUE(alike(whole, y));
    wf_attention_part_grad(&(wf_attention_operands){q, kv[0], kv[1], y, lse, dy}, q, &o, &now,
                           grad);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_TRUE(alike(leaf[i]->grad, grad[i]));
    if (k->dropout > 0)
        a.key = 77, a.site = 3;
    check(call, &forward);
    call.op = &wf_op_attention_part_grad;
    call.n_in = o.first ? 8 : 7;
    call.n_out = 3;
    memcpy(call.in, (wf_tensor *[]){q, kv[0], kv[1], y, lse, dy, q, o.first},
           8 * sizeof *call.in);
    check(call, &back);
}

static void parts(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        open_context(1 + (int)i % 2);
        wf_context_storage(ctx, kinds[i].bf16 ? WF_BF16 : WF_F32);
        check_kind(&kinds[i]);
        close_context();
    }
}

static void refusals(void)
{
    wf_tensor *q, *lse;

    open_context(1);
    q = heads_of(&kinds[0], HEADS);
    wf_attention_part(q, q, q, &(wf_attention_options){.mask = q}, &(wf_attention_time){false},
                      &lse);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EUNSUPPORTED);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"parts have the bits of the whole", parts},
        {"refusals", refusals},
        {NULL, NULL},
    };

    return wf_test_main("attention of some tokens", tests);
}
