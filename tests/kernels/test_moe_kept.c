/*
 * tests/kernels/test_moe_kept.c - what experts keep for their gradient: a tape's gradients are
 * those that make gate and up again, bit for bit, and cost two products less; nothing is kept
 * where it would be rounded, or where a rank has a part of the experts.
 *
 * ctest: builds plain address
 */
#include "core/numerics/random.h"
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/moe_internal.h"
#include "tests/harness.h"
#include <string.h>

enum { EXPERTS = 6, K = 2, F = 24, D = 17, SEQUENCES = 3, TOKENS = 11, OPERANDS = WF_MOE_DY };

static wf_context *ctx;

static void open_context(wf_dtype storage)
{
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(2, &error), &(wf_context_options){.seed = 7}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_storage(ctx, storage);
    wf_scope_open(ctx);
}

static void close_context(void)
{
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static wf_tensor *stored(int ndim, const wf_dim *dims, wf_dtype dtype)
{
    static uint64_t stream;
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, stream++, 0);
    return dtype == WF_BF16 ? wf_cast(t, dtype) : t;
}

/* Operands of a call of experts, and dy. */
static void operands(wf_dtype dtype, wf_tensor **in)
{
    const wf_dim up[] = {wf_dim_experts(EXPERTS), wf_dim_chunked(F), wf_dim_width(D)};
    const wf_dim down[] = {up[0], up[2], up[1]};
    const wf_dim rows[] = {wf_dim_batch(SEQUENCES), wf_dim_chunked(TOKENS), wf_dim_width(D)};
    const wf_dim logits[] = {rows[0], rows[1], wf_dim_width(EXPERTS)};
    wf_tensor *scores = stored(3, logits, WF_F32);

    for (int64_t t = 0; t < SEQUENCES * TOKENS; t++) /* one has all tokens, one has none */
        for (int e = 0; e < 2; e++)
            ((float *)scores->data)[t * EXPERTS + e] += e ? -99.0f : 99.0f;
    wf_route(scores, NULL, &(wf_route_options){.k = K}, &in[WF_MOE_WEIGHTS], &in[WF_MOE_INDEX]);
    in[WF_MOE_GATE] = stored(3, up, dtype);
    in[WF_MOE_UP] = stored(3, up, dtype);
    in[WF_MOE_DOWN] = stored(3, down, dtype);
    in[WF_MOE_X] = stored(3, rows, dtype);
    in[WF_MOE_DY] = stored(3, rows, dtype);
}

/* Runs forward and backward on a tape; returns the products of an expert's matrix for each
   choice. */
static double products(wf_tensor *const *in, int first_leaf, wf_tensor **leaf)
{
    const double begun = wf_context_flops(ctx), one = 2.0 * SEQUENCES * TOKENS * K * D * F;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *y;

    for (int i = 0; i < OPERANDS; i++)
        leaf[i] = i < first_leaf || i == WF_MOE_INDEX ? in[i] : wf_leaf(in[i]);
    y = wf_experts(leaf[WF_MOE_GATE], leaf[WF_MOE_UP], leaf[WF_MOE_DOWN], leaf[WF_MOE_X],
                   leaf[WF_MOE_WEIGHTS], leaf[WF_MOE_INDEX]);
    CU_ASSERT_EQUAL_FATAL(wf_backward(y, in[WF_MOE_DY], false), WF_OK);
    wf_tape_close(tape);
    return (wf_context_flops(ctx) - begun) / one;
}

/* The same gradients by an op that has nothing of forward. */
static void again(wf_tensor *const *in, int first_leaf, wf_tensor *const *leaf)
{
    wf_call call = {.op = first_leaf ? &wf_op_experts_dx : &wf_op_experts_grad,
                    .n_in = OPERANDS + 1,
                    .n_out = first_leaf ? 2 : 5};

    for (int i = 0; i <= OPERANDS; i++)
        call.in[i] = in[i];
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    for (int o = 0; o < call.n_out; o++) {
        const wf_tensor *grad = leaf[first_leaf + o]->grad;

        CU_ASSERT_PTR_NOT_NULL_FATAL(grad);
        CU_ASSERT_FATAL(grad->dtype == call.out[o]->dtype);
        CU_ASSERT_EQUAL(memcmp(grad->data, call.out[o]->data, wf_tensor_bytes(grad)), 0);
    }
}

/* Experts that are trained, and frozen ones. */
static void kept(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int first = 0; first <= WF_MOE_X; first += WF_MOE_X) {
            wf_tensor *in[OPERANDS + 1], *leaf[OPERANDS];

            open_context(bf16 ? WF_BF16 : WF_F32);
            operands(bf16 ? WF_BF16 : WF_F32, in);
            CU_ASSERT_DOUBLE_EQUAL(products(in, first, leaf), first ? 3 + 3 : 3 + 6, 1e-9);
            again(in, first, leaf);
            close_context();
        }
}

/* Floats whose results are stored as bf16; a rank's half of the experts. */
static void not_kept(void)
{
    for (int part = 0; part < 2; part++) {
        wf_tensor *in[OPERANDS + 1], *leaf[OPERANDS];

        open_context(part ? WF_F32 : WF_BF16);
        operands(WF_F32, in);
        for (int i = 0; i < WF_MOE_X && part; i++)
            in[i]->local[0] = EXPERTS / 2;
        CU_ASSERT_DOUBLE_EQUAL(products(in, WF_MOE_X, leaf), part ? (3 + 5) / 2. : 3 + 5, 1e-9);
        close_context();
    }
}

int main(void)
{
    static const wf_test tests[] = {{"kept", kept}, {"not kept", not_kept}, {NULL, NULL}};

    return wf_test_main("what experts keep", tests);
}
