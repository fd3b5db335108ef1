/*
 * tests/parallel/test_conv.c - convolution layers in a model: over the tokens, the first one
 * column-parallel, the last one row-parallel. On every layout the bits of one rank.
 */
#include "kernels/ops.h"
#include "nn/children.h"
#include "nn/layers/conv.h"
#include "tests/parallel/rows.h"

enum { GROUPS = 8, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 4, .micro = 1, .prefetch = 1},
    {"no_shard", .tp = 4, .dp = 1, .micro = 4, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .recompute = "block"},
    {"shard_grad_op", .tp = 8, .dp = 1, .micro = 8},
};

static const wf_par_rule plan[] = WF_RULES(
    {"embed", WF_VOCAB}, WF_ATTENTION_RULES("block.*.attn"), {"block.*.mlp.first", WF_COLUMN},
    {"block.*.mlp.last", WF_ROW}, {"head", WF_COLUMN}, {"loss", WF_LOSS});

static wf_tensor *stem_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_tensor *y = wf_gelu(wf_nn_run(self, "first", x));

    return wf_nn_run(self, "last", y);
}

static wf_nn_module *stem_new(wf_context *ctx)
{
    const wf_nn_conv_options first = {.in = wf_dim_width(WIDTH),
                                      .out = wf_dim_heads(GROUPS, 3),
                                      .kernel = {3},
                                      .how = {.padding = {1}},
                                      .bias = true,
                                      .deviation = 0.1f},
                             last = {.in = first.out,
                                     .out = first.in,
                                     .kernel = {5},
                                     .how = {.padding = {4}, .dilation = {2}},
                                     .bias = true,
                                     .deviation = 0.1f};

    return wf_nn_module_new(ctx, "stem", stem_forward,
                            WF_CHILD("first", wf_nn_conv1d_new(ctx, &first)),
                            WF_CHILD("last", wf_nn_conv1d_new(ctx, &last)));
}

static void make_stems(wf_nn_gpt *model)
{
    wf_context *ctx = model->base.ctx;

    for (int i = 0; i < 2; i++) {
        wf_nn_block *b = (wf_nn_block *)model->block[i];

        wf_nn_free(&b->mlp->base);
        b->mlp = (wf_nn_mlp *)stem_new(ctx);
    }
}

static void on_layouts(void)
{
    training one = new_training(LLAMA, 3, 16);

    one.steps = STEPS;
    one.change = make_stems;
    one.plan = plan;
    if (train(&one))
        check_rows(&one, rows, sizeof rows / sizeof *rows, 1);
}

int main(void)
{
    static const wf_test tests[] = {{"convolutions on every layout", on_layouts}, {NULL, NULL}};

    return wf_test_main("convolutions", tests);
}
