/*
 * tests/nn/test_joined.c - ops that layers join: an MLP's last product is added to the residual
 * stream where it is made, gate and up are multiplied where they are made, and queries and keys
 * are rotated there, unless something happens to what they return; the bits are the same.
 */
#include "core/op.h"
#include "kernels/ops.h"
#include "nn/checkpointing.h"
#include "nn/hooks.h"
#include "nn/layers/attention.h"
#include "nn/layers/lora.h"
#include "nn/layers/mlp.h"
#include "tests/nn/model_ranks.h"

enum { WIDTH = 24, TOKENS = 5, MOST = 400 };

/* The ops that have run. */
typedef struct counts {
    int joined, added, gated, swiglu, rotated, rope;
} counts;

static void count(void *arg, const wf_call *call)
{
    counts *c = arg;
    const char *name = call->op->name;

    c->joined += strcmp(name, "linear1_add") == 0 || strcmp(name, "linear1_bias_add") == 0;
    c->added += strcmp(name, "add") == 0;
    c->gated += strcmp(name, "linear2_swiglu") == 0;
    c->swiglu += strcmp(name, "swiglu") == 0;
    c->rotated += strcmp(name, "linear3_rope") == 0;
    c->rope += strcmp(name, "rope_pair") == 0;
}

static wf_tensor *random_of(wf_context *ctx, int ndim, const wf_dim *dims, uint64_t stream)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_EQUAL_FATAL(wf_init_normal(t, 0, 0.3f, stream), WF_OK);
    return t;
}

static wf_nn_mlp *mlp_of(wf_context *ctx, bool gated, bool bias)
{
    const wf_nn_mlp_options o = {.width = WIDTH, .hidden = 40, .bias = bias};
    wf_nn_mlp *m = gated ? wf_nn_swiglu_mlp_new(ctx, &o) : wf_nn_gelu_mlp_new(ctx, &o);

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    wf_nn_name_tree(&m->base);
    return m;
}

static void make_real(void *module)
{
    wf_nn_module *m = module;
    int64_t n;
    wf_nn_parameter **p = wf_nn_parameters(m, &n);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int64_t i = 0; i < n; i++) {
        wf_tensor *t =
            random_of(m->ctx, p[i]->tensor->ndim, p[i]->tensor->dim, 10 + (uint64_t)i);

        wf_tensor_release(p[i]->tensor);
        p[i]->tensor = wf_tensor_retain(t);
    }
    free(p);
}

/* Returns the result and the gradients of x and the residual; `joined`: by wf_nn_mlp_add. */
static counts run(wf_nn_mlp *m, bool joined, float got[3][MOST])
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS), wf_dim_width(WIDTH)};
    wf_context *ctx = m->base.ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x = wf_leaf(random_of(ctx, 3, dims, 1)), *y;
    wf_tensor *residual = wf_leaf(random_of(ctx, 3, dims, 2));
    counts c = {0};

    wf_context_observe(ctx, count, &c);
    y = joined ? wf_nn_mlp_add(m, residual, x) : wf_add(residual, wf_nn_call(m, x));
    wf_context_observe(ctx, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_EQUAL(wf_backward(y, random_of(ctx, 3, dims, 3), false), WF_OK);
    for (int i = 0; i < 3; i++) {
        const wf_tensor *t = i == 0 ? y : i == 1 ? x->grad : residual->grad;

        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        memcpy(got[i], t->data, (size_t)wf_tensor_count(t) * sizeof(float));
    }
    wf_tape_close(tape);
    return c;
}

static counts compare(wf_nn_mlp *m)
{
    static float want[3][MOST], got[3][MOST];
    counts c;

    wf_scope_open(m->base.ctx);
    run(m, false, want);
    c = run(m, true, got);
    CU_ASSERT(memcmp(want, got, sizeof got) == 0);
    wf_scope_close(m->base.ctx);
    return c;
}

static void added_where_made(void)
{
    for (int way = 0; way < 4; way++) {
        wf_context *ctx = lone_context(1);
        wf_nn_mlp *m = mlp_of(ctx, way & 1, way & 2);
        counts c;

        wf_scope_open(ctx);
        make_real(m);
        c = compare(m);
        CU_ASSERT_EQUAL(c.joined, 1);
        CU_ASSERT_EQUAL(c.added, 0);
        CU_ASSERT_EQUAL(c.gated, way == 1); /* biases come before silu */
        CU_ASSERT_EQUAL(c.swiglu, way == 3);
        wf_scope_close(ctx);
        wf_nn_free(&m->base);
        close_lone(ctx, WF_OK);
    }
}

static wf_tensor *doubled(void *self, wf_nn_module *m, wf_tensor *x, wf_tensor *y)
{
    (void)self;
    (void)m;
    (void)x;
    return wf_scale(y, 2);
}

static wf_tensor *doubled_back(void *self, wf_nn_module *m, wf_tensor *gradient)
{
    (void)self;
    (void)m;
    return wf_scale(gradient, 2);
}

static void at_sum(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    (void)self;
    (void)m;
    for (int i = 0; i < n && strcmp(point, "sum") == 0; i++)
        x[i] = wf_scale(x[i], 2);
}

/* A hook gets what its module returns, and the gradient of that. */
static void hooks_see_results(void)
{
    const wf_nn_hooks hooks[] = {
        {.post_forward = doubled}, {.pre_backward = doubled_back}, {.at = at_sum}};

    for (int h = 0; h < 3; h++)
        for (int on = h == 2; on < 3; on++) {
            wf_context *ctx = lone_context(1);
            wf_nn_mlp *m = mlp_of(ctx, true, false);
            void *module = on == 0   ? (void *)m
                           : on == 1 ? (void *)m->down
                                     : m->gate_up->member[1];
            counts c;

            wf_scope_open(ctx);
            make_real(m);
            if (on == 2 && h < 2) { /* members of a group have a call of their own */
                module = m->down;
                wf_nn_hook_add(m, &hooks[1 - h]);
            }
            wf_nn_hook_add(module, &hooks[h]);
            c = compare(m);
            CU_ASSERT_EQUAL(c.joined, h == 2 && on == 2);
            CU_ASSERT_EQUAL(c.gated, !(h == 2 && on == 2));
            wf_scope_close(ctx);
            wf_nn_free(&m->base);
            close_lone(ctx, WF_OK);
        }
}

/* Adapters, and modules that are recomputed: a run of theirs is one op on the tape, of one
   input. */
static void not_joined(void)
{
    for (int way = 0; way < 3; way++) {
        wf_context *ctx = lone_context(1);
        wf_nn_mlp *m = mlp_of(ctx, false, true);
        counts c;

        if (way == 0) {
            CU_ASSERT_EQUAL(wf_nn_linear_adapt(m->down, 2, &(wf_nn_adapter){.scale = 0.5f}),
                            WF_OK);
            wf_nn_name_tree(&m->base);
        }
        wf_scope_open(ctx);
        make_real(m);
        if (way)
            CU_ASSERT_EQUAL(wf_nn_recompute(&m->base, way == 1 ? "mlp" : "linear"), WF_OK);
        c = compare(m);
        CU_ASSERT_EQUAL(c.joined, 0);
        CU_ASSERT(c.added >= 1);
        wf_scope_close(ctx);
        wf_nn_free(&m->base);
        close_lone(ctx, WF_OK);
    }
}

static const wf_nn_type *original; /* the type of a module that was replaced */

static wf_tensor *twice(wf_nn_module *self, wf_tensor *x)
{
    return wf_scale(original->forward(self, x), 2);
}

/* A module of a program's own, in the place of an MLP or of its last linear, is called. */
static void replaced(void)
{
    for (int last = 0; last < 2; last++) {
        wf_context *ctx = lone_context(1);
        wf_nn_mlp *m = mlp_of(ctx, false, true);
        wf_nn_module *of = last ? &m->down->base : &m->base;
        wf_nn_type own = *of->type;

        wf_scope_open(ctx);
        make_real(m);
        original = of->type;
        own.forward = twice;
        of->type = &own;
        CU_ASSERT_EQUAL(compare(m).joined, 0);
        of->type = original;
        wf_scope_close(ctx);
        wf_nn_free(&m->base);
        close_lone(ctx, WF_OK);
    }
}

/* ---- queries and keys ---- */

/* Returns the result of attention and the gradient of x. */
static counts attend(wf_nn_attention *m, float got[2][MOST])
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS), wf_dim_width(WIDTH)};
    wf_context *ctx = m->base.ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x = wf_leaf(random_of(ctx, 3, dims, 1)), *y;
    counts c = {0};

    wf_context_observe(ctx, count, &c);
    y = wf_nn_call(m, x);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_EQUAL(wf_backward(y, random_of(ctx, 3, dims, 3), false), WF_OK);
    wf_context_observe(ctx, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        const wf_tensor *t = i == 0 ? y : x->grad;

        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        memcpy(got[i], t->data, (size_t)wf_tensor_count(t) * sizeof(float));
    }
    wf_tape_close(tape);
    return c;
}

static void nothing(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    (void)self;
    (void)m;
    (void)point;
    (void)n;
    (void)x;
}

/* Runs an attention with and without a hook that sees heads before they rotate; `joins`: one op
   makes and rotates them without it. */
static void rotate(wf_nn_attention_options o, bool adapted, bool joins)
{
    static const wf_nn_hooks hook = {.at = nothing};
    static float want[2][MOST], got[2][MOST];
    wf_context *ctx = lone_context(1);
    wf_nn_attention *m;
    counts c;

    o.width = WIDTH;
    o.heads = 4;
    o.kv_heads = 2;
    o.head_dim = 6;
    o.causal = true;
    m = wf_nn_attention_new(ctx, &o);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    if (adapted)
        CU_ASSERT_EQUAL(wf_nn_linear_adapt((wf_nn_linear *)m->qkv->member[1], 2,
                                           &(wf_nn_adapter){.scale = 0.5f}),
                        WF_OK);
    wf_nn_name_tree(&m->base);
    wf_scope_open(ctx);
    make_real(m);
    c = attend(m, got);
    CU_ASSERT_EQUAL(c.rotated, joins);
    CU_ASSERT_EQUAL(c.rope, (o.rope_base > 0) * (joins ? 1 : 2)); /* backward has one */
    wf_nn_hook_add(m, &hook);
    c = attend(m, want);
    CU_ASSERT_EQUAL(c.rotated, 0);
    CU_ASSERT(memcmp(want, got, sizeof got) == 0);
    wf_scope_close(ctx);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

static void rotated_where_made(void)
{
    const wf_nn_attention_options plain = {.rope_base = 500};
    const wf_nn_attention_options some = {.rope_base = 500, .rope_features = 4};
    const wf_nn_attention_options normed = {.rope_base = 500, .qk_norm = 1e-5f};
    const wf_nn_attention_options biased = {.rope_base = 500, .qkv_bias = true};
    const wf_nn_attention_options still = {.rope_base = 0};

    rotate(plain, false, true);
    rotate(some, false, true);
    rotate(normed, false, false);
    rotate(biased, false, false);
    rotate(still, false, false);
    rotate(plain, true, false);
}

int main(void)
{
    static const wf_test tests[] = {{"added where it is made", added_where_made},
                                    {"hooks see results", hooks_see_results},
                                    {"what is not joined", not_joined},
                                    {"modules in its place", replaced},
                                    {"rotated where it is made", rotated_where_made},
                                    {NULL, NULL}};

    return wf_test_main("joined", tests);
}
