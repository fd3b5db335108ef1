/*
 * tests/nn/test_fan_in.c - three gradients and more that meet at one value are added in the
 * order of its uses, whether modules in between are recomputed or not, and whether gradients of
 * leaves wait.
 *
 * ctest: builds address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/checkpointing.h"
#include "tests/nn/model_ranks.h"

enum { ROWS = 3, WIDTH = 41, N = ROWS * WIDTH };

/* Modules inside of one another, each of which reads its input twice or more. */
typedef struct outer {
    wf_nn_module base;
    wf_nn_module *inner;
    wf_tensor *leaf; /* another operand that the program around it reads too, or NULL */
} outer;

static wf_tensor *twice(wf_nn_module *self, wf_tensor *x)
{
    (void)self;
    return wf_add(wf_scale(wf_silu(x), 0.3f), wf_scale(wf_gelu(x), 0.7f));
}

static wf_tensor *twice_and_inside(wf_nn_module *self, wf_tensor *x)
{
    outer *m = (outer *)self;
    wf_tensor *y = wf_add(wf_silu(x), wf_nn_call(m->inner, x));

    y = wf_add(wf_scale(x, 0.9f), y);
    return m->leaf ? wf_mul(y, m->leaf) : y;
}

static const wf_nn_field fields[] = {{"inner", WF_NN_CHILD, offsetof(outer, inner), 0},
                                     {NULL, 0, 0, 0}};
static const wf_nn_type inner_type = {
    .name = "inner", .size = sizeof(wf_nn_module), .forward = twice};
static const wf_nn_type outer_type = {
    .name = "outer", .size = sizeof(outer), .fields = fields, .forward = twice_and_inside};

/* The ways of a pass: none of them may show. */
typedef struct way {
    const char *recompute;
    bool both, deferred;
    bool sourced; /* the input is a source, as that of a pipeline's stage */
} way;

/* Gradients of the input and of a leaf that module and program share. */
static void walk(wf_context *ctx, const way *w, bool is_leaf, bool shared, float grad[2][N])
{
    const wf_dim dims[] = {wf_dim_batch(ROWS), wf_dim_width(WIDTH)};
    outer *m = wf_nn_new(ctx, &outer_type);
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *t[3], *x, *y;

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->inner = wf_nn_new(ctx, &inner_type);
    wf_nn_name_tree(&m->base);
    if (w->recompute)
        CU_ASSERT_EQUAL(wf_nn_recompute(&m->base, w->recompute), WF_OK);
    m->base.recompute |= w->both;
    wf_scope_open(ctx);
    for (int i = 0; i < 3; i++) {
        t[i] = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        wf_init_uniform(t[i], -2, 2, (uint64_t)i + 1);
    }
    t[0] = wf_leaf(t[0]);
    t[1] = wf_leaf(t[1]);
    m->leaf = shared ? t[1] : NULL;
    x = is_leaf ? t[0] : wf_scale(t[0], 1.1f);
    if (w->sourced && is_leaf)
        t[0] = x = wf_source(t[0]);
    y = wf_mul(wf_scale(x, 0.37f), t[1]);
    y = wf_add(y, wf_nn_call(m, x));
    y = wf_add(x, wf_mul(y, t[1]));
    y = wf_add(y, wf_mul(t[1], wf_mul(t[1], x)));
    CU_ASSERT_EQUAL(wf_backward(y, t[2], w->deferred), WF_OK);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(t[i]->grad);
        memcpy(grad[i], t[i]->grad->data, sizeof grad[i]);
    }
    wf_scope_close(ctx);
    wf_tape_close(tape);
    wf_nn_free(&m->base);
}

static void any_way_has_one_sum(void)
{
    static const way ways[] = {{"inner", false, false, false}, {"outer", false, false, false},
                               {"inner", true, false, false},  {NULL, false, true, false},
                               {"inner", false, true, false},  {"outer", false, true, false},
                               {"inner", true, true, false},   {NULL, false, false, true},
                               {"inner", false, false, true},  {"outer", false, false, true},
                               {"inner", true, true, true}};
    static const way plain = {NULL, false, false, false};
    wf_context *ctx = lone_context(1);

    for (int kind = 0; kind < 4; kind++) {
        float grad[2][N], other[2][N];

        walk(ctx, &plain, kind & 1, kind & 2, grad);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            walk(ctx, &ways[i], kind & 1, kind & 2, other);
            CU_ASSERT_EQUAL(memcmp(grad, other, sizeof grad), 0);
        }
    }
    close_lone(ctx, WF_OK);
}

static wf_tensor *inside_alone(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_call(((outer *)self)->inner, x);
}

static const wf_nn_type wrap_type = {
    .name = "wrap", .size = sizeof(outer), .fields = fields, .forward = inside_alone};

/* Gradients of a value with three uses: one of the program, and two of a module that may be
   recomputed. */
static void three_uses_once(wf_context *ctx, const way *w, bool is_leaf, bool before,
                            float grad[N])
{
    wf_nn_module m = {.type = &inner_type, .ctx = ctx, .recompute = w->recompute};
    outer around = {{.type = &wrap_type, .ctx = ctx, .recompute = w->both}, &m, NULL};
    const wf_dim dims[] = {wf_dim_batch(ROWS), wf_dim_width(WIDTH)};
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf, *x, *y = NULL, *z;

    wf_scope_open(ctx);
    leaf = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_init_uniform(leaf, -1, 1, 1);
    leaf = wf_leaf(leaf);
    x = is_leaf ? leaf : wf_scale(leaf, 1.1f);
    if (w->sourced && is_leaf)
        leaf = x = wf_source(leaf);
    if (before)
        y = wf_mul(x, wf_detach(leaf));
    z = wf_nn_call(&around.base, x);
    if (!before)
        y = wf_mul(x, wf_detach(leaf));
    CU_ASSERT_EQUAL(wf_backward(wf_add(y, z), wf_detach(leaf), w->deferred), WF_OK);
    CU_ASSERT_EQUAL(wf_backward_weights(tape), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(leaf->grad);
    memcpy(grad, leaf->grad->data, N * sizeof *grad);
    wf_scope_close(ctx);
    wf_tape_close(tape);
}

static void three_uses(void)
{
    wf_context *ctx = lone_context(1);

    for (int kind = 0; kind < 4; kind++) {
        float plain[N], other[N] = {0};

        three_uses_once(ctx, &(way){NULL, false, false, false}, kind & 1, kind & 2, plain);
        for (int w = 1; w < 16; w++) {
            three_uses_once(ctx, &(way){w & 1 ? "inner" : NULL, w & 2, w & 4, w & 8}, kind & 1,
                            kind & 2, other);
            CU_ASSERT_EQUAL(memcmp(plain, other, sizeof plain), 0);
        }
    }
    close_lone(ctx, WF_OK);
}

/* A module that only hands its input on is not recomputed, and its result's uses are the
   input's. */
static wf_tensor *handed_on(wf_nn_module *self, wf_tensor *x)
{
    (void)self;
    return wf_source(x);
}

static void what_is_handed_on(void)
{
    static const wf_nn_type type = {
        .name = "handed on", .size = sizeof(wf_nn_module), .forward = handed_on};
    const wf_dim dims[] = {wf_dim_width(N)};
    wf_context *ctx = lone_context(1);
    float grad[2][N];

    for (int again = 0; again < 2; again++) {
        wf_nn_module m = {.type = &type, .ctx = ctx, .recompute = again};
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x, *y, *z;

        wf_scope_open(ctx);
        x = wf_tensor_new(ctx, WF_F32, 1, dims, NULL, WF_MEMORY_ACTIVATION);
        wf_init_uniform(x, -1, 1, 1);
        x = wf_leaf(x);
        y = wf_silu(x);
        z = wf_nn_call(&m, y);
        z = wf_add(wf_gelu(z),
                   wf_add(wf_scale(y, 0.7f), wf_add(wf_silu(z), wf_scale(z, 0.1f))));
        CU_ASSERT_EQUAL(wf_backward(z, wf_detach(x), false), WF_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(x->grad);
        memcpy(grad[again], x->grad->data, sizeof grad[again]);
        wf_scope_close(ctx);
        wf_tape_close(tape);
    }
    CU_ASSERT_EQUAL(memcmp(grad[0], grad[1], sizeof grad[0]), 0);
    close_lone(ctx, WF_OK);
}

/* Gradients of a value that a border passes on to one of its users, and that a module reads
   twice: with `border` false, both read the value itself, which is the same sum. */
static void passed_on_once(wf_context *ctx, bool border, int kind, const char *recompute,
                           float grad[N])
{
    bool is_leaf = kind & 1, module_after = kind & 2, before = kind & 4;
    wf_nn_module m = {.type = &inner_type, .ctx = ctx, .recompute = recompute};
    const wf_dim dims[] = {wf_dim_batch(ROWS), wf_dim_width(WIDTH)};
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf, *x, *after, *y = NULL, *z;

    wf_scope_open(ctx);
    leaf = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_init_uniform(leaf, -1, 1, 1);
    leaf = wf_leaf(leaf);
    x = is_leaf ? leaf : wf_scale(leaf, 1.1f);
    after = border ? wf_redistribute(x, NULL) : x;
    if (before)
        y = wf_mul(module_after ? x : after, wf_detach(leaf));
    z = wf_nn_call(&m, module_after ? after : x);
    if (!before)
        y = wf_mul(module_after ? x : after, wf_detach(leaf));
    CU_ASSERT_EQUAL(wf_backward(wf_add(y, z), wf_detach(leaf), false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(leaf->grad);
    memcpy(grad, leaf->grad->data, N * sizeof *grad);
    wf_scope_close(ctx);
    wf_tape_close(tape);
}

static void after_borders(void)
{
    wf_context *ctx = lone_context(1);

    for (int kind = 0; kind < 8; kind++) {
        float plain[N], other[N];

        passed_on_once(ctx, false, kind, NULL, plain);
        for (int w = 1; w < 4; w++) {
            passed_on_once(ctx, w & 1, kind, w & 2 ? "inner" : NULL, other);
            CU_ASSERT_EQUAL(memcmp(plain, other, sizeof plain), 0);
        }
    }
    close_lone(ctx, WF_OK);
}

static int moves;

static void count_moves(wf_gradient *g)
{
    moves++;
    g->din[0] = g->dout[0];
}

static const wf_op counted_border = {
    .name = "counted", .signature = "...->...", .flags = WF_OP_PASS, .backward = count_moves};

/* The moves of gradients to a value through a border with two uses, where the value has other
   uses beside it. */
static int moves_of(wf_context *ctx, bool is_leaf, int others)
{
    const wf_dim dims[] = {wf_dim_width(N)};
    wf_tape *tape = wf_tape_open(ctx);
    wf_call call = {.op = &counted_border, .ctx = ctx, .n_in = 1, .n_out = 1};
    wf_tensor *x, *y;

    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 1, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_init_uniform(x, -1, 1, 1);
    x = wf_leaf(x);
    x = is_leaf ? x : wf_scale(x, 1.1f);
    call.in[0] = x;
    call.out[0] = wf_tensor_alias(x);
    CU_ASSERT_EQUAL(wf_tape_record(&call), WF_OK);
    y = wf_add(wf_silu(call.out[0]), wf_gelu(call.out[0]));
    for (int i = 0; i < others; i++)
        y = wf_add(y, wf_silu(x));
    moves = 0;
    CU_ASSERT_EQUAL(wf_backward(y, wf_detach(x), false), WF_OK);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    return moves;
}

/* A border that all uses of a value are behind moves their sum once; beside others, in whose
   order they come, it moves each. */
static void moves_once(void)
{
    wf_context *ctx = lone_context(1);

    for (int is_leaf = 0; is_leaf < 2; is_leaf++)
        for (int others = 0; others < 3; others++)
            CU_ASSERT_EQUAL(moves_of(ctx, is_leaf, others), others ? 2 : 1);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"recomputed, deferred, inside of one another", any_way_has_one_sum},
        {"three uses", three_uses},
        {"what a module hands on", what_is_handed_on},
        {"after borders", after_borders},
        {"a sum that moves once", moves_once},
        {NULL, NULL}};

    return wf_test_main("fan_in", tests);
}
