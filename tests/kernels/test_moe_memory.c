/*
 * tests/kernels/test_moe_memory.c - what experts keep for their gradient, and waves in less
 * room. A tape's gradients are those that make gate and up again, bit for bit, and cost two
 * products less; nothing is kept where it would be rounded, or where a rank has a part of the
 * experts. And a buffer of any size changes no bit of results and gradients, whatever tokens
 * choose: all one expert, one sequence another one, any; with adapters and without. A bound by
 * what experts take of a sequence changes none either, and is refused where indices pass it.
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
static double products(wf_tensor *const *in, int first_leaf, float buffer, wf_tensor **leaf)
{
    const double begun = wf_context_flops(ctx), one = 2.0 * SEQUENCES * TOKENS * K * D * F;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *y;

    for (int i = 0; i < OPERANDS; i++)
        leaf[i] = i < first_leaf || i == WF_MOE_INDEX ? in[i] : wf_leaf(in[i]);
    y = wf_experts(leaf[WF_MOE_GATE], leaf[WF_MOE_UP], leaf[WF_MOE_DOWN], leaf[WF_MOE_X],
                   leaf[WF_MOE_WEIGHTS], leaf[WF_MOE_INDEX],
                   &(wf_experts_bound){.buffer = buffer});
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
            CU_ASSERT_DOUBLE_EQUAL(products(in, first, 0, leaf), first ? 3 + 3 : 3 + 6, 1e-9);
            again(in, first, leaf);
            close_context();
        }
}

/* Floats whose results are stored as bf16; a buffer; a rank's half of the experts. */
static void not_kept(void)
{
    enum { ROUNDED, BUFFER, HALF, CASES };

    for (int k = 0; k < CASES; k++) {
        wf_tensor *in[OPERANDS + 1], *leaf[OPERANDS];
        double found;

        open_context(k == ROUNDED ? WF_BF16 : WF_F32);
        operands(WF_F32, in);
        for (int i = 0; i < WF_MOE_X && k == HALF; i++)
            in[i]->local[0] = EXPERTS / 2;
        found = products(in, WF_MOE_X, k == BUFFER ? 1.0F : 0.0F, leaf);
        CU_ASSERT_DOUBLE_EQUAL(found, k == HALF ? (3 + 5) / 2. : 3 + 5, 1e-9);
        close_context();
    }
}

/* ---- waves ---- */

enum { RANK = 3, ALL = OPERANDS + WF_MOE_FACTORS, CHOICES = 3 };

/* Operands of experts, with adapters or without. */
typedef struct mixture {
    wf_tensor *in[ALL + 1]; /* operands, factors and dy */
    bool adapted;
} mixture;

static void like_operands(mixture *m, wf_dtype dtype, int64_t sequences, int64_t tokens,
                          int choice)
{
    const wf_dim e = wf_dim_experts(EXPERTS), f = wf_dim_chunked(F), d = wf_dim_width(D);
    const wf_dim rows[] = {wf_dim_batch(sequences), wf_dim_chunked(tokens), d};
    const wf_dim logits[] = {rows[0], rows[1], wf_dim_width(EXPERTS)};
    const wf_dim factor[][3] = {{e, wf_dim_width(RANK), d},
                                {e, f, wf_dim_width(RANK)},
                                {e, f, wf_dim_width(RANK)},
                                {e, wf_dim_width(RANK), f},
                                {e, d, wf_dim_width(RANK)}};
    wf_tensor *scores = stored(3, logits, WF_F32);

    for (int64_t t = 0; t < sequences * tokens; t++) {
        float *row = (float *)scores->data + t * EXPERTS;

        if (choice > 0) /* the same one for all, or another one for each sequence */
            row[choice == 1 ? 0 : t / tokens % EXPERTS] += 99;
    }
    wf_route(scores, NULL, &(wf_route_options){.k = K}, &m->in[WF_MOE_WEIGHTS],
             &m->in[WF_MOE_INDEX]);
    m->in[WF_MOE_GATE] = stored(3, (const wf_dim[]){e, f, d}, dtype);
    m->in[WF_MOE_UP] = stored(3, (const wf_dim[]){e, f, d}, dtype);
    m->in[WF_MOE_DOWN] = stored(3, (const wf_dim[]){e, d, f}, dtype);
    m->in[WF_MOE_X] = stored(3, rows, dtype);
    for (int i = 0; i < WF_MOE_FACTORS; i++)
        m->in[OPERANDS + i] = stored(3, factor[i], dtype);
    m->in[ALL] = stored(3, rows, dtype);
}

/* Runs forward and backward in a buffer; fills leaf[i]->grad of all that are trained. Returns
   y. */
static wf_tensor *run(const mixture *m, wf_experts_bound bound, wf_tensor **leaf)
{
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *y;

    for (int i = 0; i < ALL; i++) {
        bool frozen = i == WF_MOE_INDEX || (m->adapted ? i < WF_MOE_X : i >= OPERANDS);

        leaf[i] = frozen ? m->in[i] : wf_leaf(m->in[i]);
    }
    if (m->adapted) {
        const wf_experts_adapters a = {.gate_up_a = leaf[OPERANDS + WF_MOE_GATE_UP_A],
                                       .gate_b = leaf[OPERANDS + WF_MOE_GATE_B],
                                       .up_b = leaf[OPERANDS + WF_MOE_UP_B],
                                       .down_a = leaf[OPERANDS + WF_MOE_DOWN_A],
                                       .down_b = leaf[OPERANDS + WF_MOE_DOWN_B],
                                       .scale = 0.5F};

        y = wf_experts_adapted(leaf[0], leaf[1], leaf[2], leaf[3], leaf[4], leaf[5], &a,
                               &bound);
    } else {
        y = wf_experts(leaf[0], leaf[1], leaf[2], leaf[3], leaf[4], leaf[5], &bound);
    }
    CU_ASSERT_EQUAL_FATAL(wf_backward(y, m->in[ALL], false), WF_OK);
    wf_tape_close(tape);
    return y;
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return !a == !b && (!a || memcmp(a->data, b->data, wf_tensor_bytes(a)) == 0);
}

/* Room that a call of experts, or of their gradients, asks for. */
static size_t room_of(const wf_op *op, const mixture *m, float buffer, int64_t taken)
{
    const wf_moe_attr attr = {.buffer = buffer, .taken = taken};
    wf_call call = {.op = op,
                    .ctx = ctx,
                    .n_in = OPERANDS + 1,
                    .n_out = op == &wf_op_experts ? 1 : 5,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    for (int i = 0; i < OPERANDS; i++)
        call.in[i] = m->in[i];
    call.in[WF_MOE_DY] = m->in[ALL];
    call.out[0] = op == &wf_op_experts ? m->in[WF_MOE_X] : m->in[WF_MOE_GATE];
    for (int o = 1; o < call.n_out; o++)
        call.out[o] = m->in[o];
    return wf_context_device(ctx)->kernel(wf_context_device(ctx), op)->workspace(&call);
}

static void compare(const mixture *m, int64_t taken)
{
    static const float buffers[] = {0, 1e-6F, 0.3F, 0.6F, 1, 1.25F, 100};
    wf_tensor *all[ALL], *some[ALL], *y = run(m, (wf_experts_bound){0}, all);

    for (size_t b = 0; b < sizeof buffers / sizeof *buffers; b++) {
        CU_ASSERT(alike(run(m, (wf_experts_bound){buffers[b], taken}, some), y));
        for (int i = 0; i < ALL; i++)
            CU_ASSERT(alike(some[i]->grad, all[i]->grad));
    }
}

/* Has experts take a few tokens of each sequence. */
static void take_few(mixture *m, int64_t taken)
{
    m->in[WF_MOE_INDEX] = wf_route_capacity(
        m->in[WF_MOE_INDEX], &(wf_route_limit){.experts = EXPERTS, .most = taken});
}

static void waves(void)
{
    static const int64_t sizes[][2] = {{1, 9}, {5, 7}, {8, 6}, {3, 2050}};

    for (int i = 0; i < 4 * CHOICES * 2 * 2; i++) {
        const int64_t *size = sizes[i % 4];
        mixture m = {.adapted = i / 4 % 2};
        const int bf16 = i / 8 % 2, choice = i / 16;

        if (size[1] > 1024 && (m.adapted || bf16)) /* pieces of a sequence: once is enough */
            continue;
        open_context(bf16 ? WF_BF16 : WF_F32);
        like_operands(&m, bf16 ? WF_BF16 : WF_F32, size[0], size[1], choice);
        compare(&m, 0);
        take_few(&m, (size[1] + 2) / 3);
        compare(&m, (size[1] + 2) / 3);
        close_context();
    }
}

/* Room becomes less with the buffer, and is not much more than that of one sequence in the
   end. */
static void room(void)
{
    static const float buffers[] = {1, .75F, .5F, .25F, 1e-6F};
    const wf_op *const ops[] = {&wf_op_experts, &wf_op_experts_grad};

    for (int o = 0; o < 2; o++) {
        mixture m = {.adapted = false};
        size_t whole, last;

        open_context(WF_F32);
        like_operands(&m, WF_F32, 64, 32, 0);
        whole = last = room_of(ops[o], &m, 0, 0);
        CU_ASSERT(room_of(ops[o], &m, 0, 16) < whole); /* an expert has half of the tokens */
        CU_ASSERT(room_of(ops[o], &m, 0, 1) < whole / 4);
        CU_ASSERT_EQUAL(room_of(ops[o], &m, 0, 32), whole);
        for (size_t b = 0; b < sizeof buffers / sizeof *buffers; b++) {
            size_t bytes = room_of(ops[o], &m, buffers[b], 0);

            CU_ASSERT(bytes < last);
            last = bytes;
        }
        CU_ASSERT(last < whole / 4);
        close_context();
    }
}

/* A rank that has the second half of a long sequence has none of its first chunk, and needs
   the room of the rank that has the first half. */
static void room_of_parts(void)
{
    enum { HALF = 1024 };
    const wf_op *const ops[] = {&wf_op_experts, &wf_op_experts_grad};
    const int split[] = {WF_MOE_X, WF_MOE_WEIGHTS, WF_MOE_INDEX, ALL};
    mixture m = {.adapted = false};
    size_t bytes[2][2];

    open_context(WF_F32);
    like_operands(&m, WF_F32, 1, 2 * HALF, 0);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 4; i++) {
            m.in[split[i]]->start[1] = half * HALF;
            m.in[split[i]]->local[1] = HALF;
        }
        for (int o = 0; o < 2; o++)
            bytes[o][half] = room_of(ops[o], &m, 1e-6F, 0);
    }
    CU_ASSERT_EQUAL(bytes[0][1], bytes[0][0]);
    CU_ASSERT_EQUAL(bytes[1][1], bytes[1][0]);
    close_context();
}

static void refuses(const mixture *m, wf_experts_bound bound, const char *why)
{
    CU_ASSERT_PTR_NULL(
        wf_experts(m->in[0], m->in[1], m->in[2], m->in[3], m->in[4], m->in[5], &bound));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
    CU_ASSERT(strstr(wf_context_error(ctx)->text, why) != NULL);
    wf_context_clear(ctx);
}

static void refused(void)
{
    mixture m = {.adapted = false};

    open_context(WF_F32);
    like_operands(&m, WF_F32, 1, 4, 0);
    refuses(&m, (wf_experts_bound){.buffer = -1}, "room for -1 times");
    refuses(&m, (wf_experts_bound){.taken = -1}, "have -1 tokens of a sequence");
    close_context();
    for (int b = 0; b < 2; b++) { /* all tokens choose one expert */
        open_context(WF_F32);
        like_operands(&m, WF_F32, 2, 9, 1);
        refuses(&m, (wf_experts_bound){.buffer = b ? 0.1F : 0, .taken = 8},
                "an expert takes 8 tokens of a sequence at most");
        close_context();
    }
}

int main(void)
{
    static const wf_test tests[] = {{"kept", kept},
                                    {"not kept", not_kept},
                                    {"waves", waves},
                                    {"room of a buffer", room},
                                    {"room of a part of a sequence", room_of_parts},
                                    {"refused", refused},
                                    {NULL, NULL}};

    return wf_test_main("memory of experts", tests);
}
