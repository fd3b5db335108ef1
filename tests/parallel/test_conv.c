/*
 * tests/parallel/test_conv.c - convolution layers in a model: over the tokens, the first one
 * column-parallel, the last one row-parallel, a norm of groups before them. On every layout the
 * bits of one rank.
 */
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "nn/children.h"
#include "nn/layers/conv.h"
#include "nn/layers/groupnorm.h"
#include "tests/parallel/rows.h"

enum { GROUPS = 8, NORM_GROUPS = 4, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const float norm_eps = 1e-3f;

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
    wf_tensor *y = wf_gelu(wf_nn_run(self, "first", wf_nn_run(self, "norm", x)));

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

    return wf_nn_module_new(
        ctx, "stem", stem_forward,
        WF_CHILD("norm", wf_nn_groupnorm_new(ctx, first.in, NORM_GROUPS, norm_eps)),
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

/* Checks on one rank that a norm that was trained has the values of its op, and its state the
   names of PyTorch's places. */
static wf_status check_norm(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(5), wf_dim_width(WIDTH)};
    wf_nn_module *stem = &((wf_nn_block *)model->block[1])->mlp->base;
    const wf_nn_groupnorm *norm = (wf_nn_groupnorm *)wf_nn_child(stem, "norm");
    const float *bias = norm->bias->tensor->data;
    wf_context *ctx = wf_par_context(par);
    wf_tensor *x, *y, *want;

    if (rank->size > 1 || step < t->steps)
        return WF_OK;
    CU_ASSERT_STRING_EQUAL(norm->gain->path, "block.1.mlp.norm.gain");
    CU_ASSERT_STRING_EQUAL(norm->bias->path, "block.1.mlp.norm.bias");
    wf_scope_open(ctx);
    x = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    for (int64_t i = 0; x && i < wf_tensor_count(x); i++)
        ((float *)x->data)[i] = (float)(i * i % 11) - 3;
    y = wf_nn_run(stem, "norm", x);
    want = wf_group_norm(x, NORM_GROUPS, norm->gain->tensor, norm->bias->tensor, norm_eps);
    CU_ASSERT_FATAL(y && want);
    CU_ASSERT(bias[0] != 0);
    CU_ASSERT_EQUAL(memcmp(y->data, want->data, (size_t)wf_tensor_count(y) * sizeof(float)), 0);
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Groups that do not divide the channels are refused. */
static void bad_groups(void)
{
    const wf_context_options options = {.seed = 1};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_reference_device(&error), &options, &error);

    CU_ASSERT_PTR_NULL(wf_nn_groupnorm_new(ctx, wf_dim_width(10), 4, norm_eps));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "a norm of 4 groups of 10 channels"));
    wf_context_close(ctx);
}

static void on_layouts(void)
{
    training one = new_training(LLAMA, 3, 16);

    one.steps = STEPS;
    one.change = make_stems;
    one.plan = plan;
    one.watch = check_norm;
    if (train(&one))
        check_rows(&one, rows, sizeof rows / sizeof *rows, 1);
}

int main(void)
{
    static const wf_test tests[] = {{"convolutions on every layout", on_layouts},
                                    {"groups that do not divide", bad_groups},
                                    {NULL, NULL}};

    return wf_test_main("convolutions", tests);
}
