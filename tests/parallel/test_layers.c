/*
 * tests/parallel/test_layers.c - layers that take sizes, in a model that is no GPT's config:
 * bidirectional attention with a head size of its own, cross attention, a group of five
 * linears; a plan made of the layers' rules; hooks that look at every module. On every layout
 * the bits of one rank without hooks.
 */
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "nn/children.h"
#include "nn/layers/cross_attention.h"
#include "tests/parallel/rows.h"

enum { FAN = 5, FEATURES = 36, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 4, .micro = 1, .prefetch = 1},
    {"no_shard", .tp = 4, .dp = 1, .micro = 4, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .sequence_parallel = true},
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .recompute = "block"},
    {"shard_grad_op", .tp = 8, .dp = 1, .micro = 8, .sequence_parallel = true,
     .recompute = "attention"},
};

static const wf_par_rule plan[] = WF_RULES(
    {"embed", WF_VOCAB}, WF_ATTENTION_RULES("block.*.attn"), {"block.0.mlp.fan", WF_COLUMN},
    {"block.0.mlp.out", WF_ROW}, WF_CROSS_ATTENTION_RULES("block.1.mlp.cross"),
    WF_GELU_MLP_RULES("block.1.mlp.mlp"), {"head", WF_COLUMN}, {"loss", WF_LOSS});

/* out(gelu(the sum of five linears of x)) */
static wf_tensor *fan_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_tensor *y[FAN];

    wf_nn_call_group((wf_nn_linear_group *)wf_nn_child(self, "fan"), x, y);
    for (int i = 1; i < FAN; i++)
        y[0] = wf_add(y[0], y[i]);
    return wf_nn_run(self, "out", wf_gelu(y[0]));
}

static wf_nn_module *fan_new(wf_context *ctx)
{
    static const char *const name[] = {"a", "b", "c", "d", "e"};
    wf_nn_linear_options o = {.in = wf_dim_width(WIDTH),
                              .out = wf_dim_chunked(FEATURES),
                              .bias = true,
                              .deviation = 0.1f},
                         out = {.in = o.out, .out = o.in, .deviation = 0.1f};

    return wf_nn_module_new(
        ctx, "fan", fan_forward,
        WF_CHILD("fan", wf_nn_linear_group_new(ctx, FAN, name,
                                               (wf_nn_linear_options[]){o, o, o, o, o})),
        WF_CHILD("out", wf_nn_linear_new(ctx, &out)));
}

enum { MEMORY = 20 };

/* mlp(x + cross(x, memory)), the memory some features of x */
static wf_tensor *cross_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_cross_attention *cross = (wf_nn_cross_attention *)wf_nn_child(self, "cross");
    wf_tensor *memory = wf_slice(wf_nn_run(self, "norm", x), 2, 3, MEMORY);

    return wf_nn_run(self, "mlp", wf_add(x, wf_nn_call_cross(cross, x, memory, NULL)));
}

static wf_nn_module *cross_new(wf_context *ctx)
{
    const wf_nn_cross_attention_options cross = {.width = WIDTH,
                                                 .memory_width = MEMORY,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 6,
                                                 .qkv_bias = true,
                                                 .dropout = 0.1f,
                                                 .site = 60};

    return wf_nn_module_new(
        ctx, "with_memory", cross_forward,
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, wf_dim_width(WIDTH), 1e-5f)),
        WF_CHILD("cross", wf_nn_cross_attention_new(ctx, &cross)),
        WF_CHILD("mlp",
                 wf_nn_gelu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH, .bias = true})));
}

static void make_layers(wf_nn_gpt *model)
{
    wf_context *ctx = model->base.ctx;

    for (int i = 0; i < 2; i++) {
        wf_nn_block *b = (wf_nn_block *)model->block[i];

        wf_nn_free(&b->attn->base);
        wf_nn_free(&b->mlp->base);
        b->attn = wf_nn_attention_new(ctx, &(wf_nn_attention_options){.width = WIDTH,
                                                                      .heads = 6,
                                                                      .kv_heads = 3,
                                                                      .head_dim = 10,
                                                                      .qkv_bias = true,
                                                                      .out_bias = true});
        b->mlp = (wf_nn_mlp *)(i == 0 ? fan_new(ctx) : cross_new(ctx));
    }
}

/* Passes that all ranks' hooks have counted. */
static _Atomic int64_t forwards, backwards;

static wf_tensor *see_output(void *self, wf_nn_module *m, wf_tensor *x, wf_tensor *y)
{
    (void)self, (void)x;
    forwards += !wf_nn_is_recomputing(m);
    return y;
}

static wf_tensor *see_gradient(void *self, wf_nn_module *m, wf_tensor *gradient)
{
    (void)self, (void)m;
    backwards++;
    return gradient;
}

static void add_looking(void *arg, wf_nn_module *m)
{
    static const wf_nn_hooks hooks = {.post_forward = see_output,
                                      .pre_backward = see_gradient,
                                      .post_backward = see_gradient};

    (void)arg;
    wf_nn_hook_add(m, &hooks);
}

static void make_layers_with_hooks(wf_nn_gpt *model)
{
    make_layers(model);
    wf_nn_visit(&model->base, add_looking, NULL, NULL);
}

static void on_layouts(void)
{
    training one = new_training(LLAMA, 3, 16);

    one.steps = STEPS;
    one.change = make_layers;
    one.plan = plan;
    if (!train(&one))
        return;
    one.change = make_layers_with_hooks;
    check_rows(&one, rows, sizeof rows / sizeof *rows, 1);
    CU_ASSERT(forwards > 0 && backwards > forwards);
}

static void refused_sizes(void)
{
    static const struct {
        wf_nn_attention_options options;
        const char *words;
    } wrong[] = {{{.width = 0, .heads = 2}, "attention of width 0 with 2 heads"},
                 {{.width = 8, .heads = 3}, "width 8 is not a multiple of 3 heads"},
                 {{.width = 8, .heads = 4, .kv_heads = 3}, "4 heads cannot share 3"},
                 {{.width = 6, .heads = 2, .rope_base = 10000}, "head size 3 must be even"},
                 {{.width = 8, .heads = 4, .dropout = 1}, "dropout 1 must be at least 0"}};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT_PTR_NULL(wf_nn_attention_new(ctx, &wrong[i].options));
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, wrong[i].words));
        wf_context_clear(ctx);
    }
    CU_ASSERT_PTR_NULL(wf_nn_gelu_mlp_new(ctx, &(wf_nn_mlp_options){.width = 0}));
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "an MLP of width 0"));
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(
        wf_nn_cross_attention_new(ctx, &(wf_nn_cross_attention_options){.width = 8}));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "attention of width 8 with 0 heads"));
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){8, .hidden = -1}));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a model of layers, with hooks, on every layout", on_layouts},
        {"sizes that are refused", refused_sizes},
        {NULL, NULL}};

    return wf_test_main("layers", tests);
}
