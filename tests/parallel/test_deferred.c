/*
 * tests/parallel/test_deferred.c - gradients of weights that are deferred to a walk of their
 * own have the bits of a whole backward pass: under every strategy, whose units are gathered
 * and released in the first walk and give their gradients in the second, and where modules are
 * recomputed.
 *
 * The trainer's wf_backward is this test's, which makes two walks of it.
 *
 * ctest: wraps wf_backward, cost 50, builds plain
 */
#include "tests/parallel/rows.h"
#include <stdatomic.h>

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 1, .micro = 4, .prefetch = 1},
    {"no_shard", .tp = 1, .dp = 1, .micro = 8, .recompute = "block"},
    {"full_shard", .tp = 1, .dp = 2, .micro = 4, .prefetch = 1},
    {"full_shard", .tp = 1, .dp = 4, .micro = 2, .prefetch = 2, .recompute = "block"},
    {"full_shard", .tp = 2, .dp = 2, .micro = 4, .prefetch = 1, .sequence_parallel = true,
     .recompute = "attention"},
    {"full_shard", .tp = 1, .dp = 4, .micro = 1, .reshard = WF_PAR_RESHARD_ALWAYS,
     .prefetch = 2, .wrap_type = "mlp", .recompute = "block"},
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_LOCAL,
     .reshard = WF_PAR_RESHARD_NEVER, .wrap_min_params = 1, .recompute = "block"},
    {"full_shard", .tp = 4, .dp = 2, .micro = 4, .prefetch = 3, .wrap_type = "attention",
     .sequence_parallel = true},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .sequence_parallel = true},
    {"shard_grad_op", .tp = 1, .dp = 4, .micro = 1, .wrap_type = "mlp", .recompute = "block"},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED, .prefetch = 1,
     .recompute = "attention"},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 2, .wrap_min_params = 500,
     .recompute = "block"},
    {"mics", .tp = 2, .dp = 4, .group = 2, .micro = 1, .reshard = WF_PAR_RESHARD_ALWAYS},
    {"full_shard", .tp = 1, .dp = 2, .micro = 1, .prefetch = 1, .accumulate = WF_PAR_GROUP,
     .accumulate_group = 4},
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool deferring;
static atomic_llong all_flops, weights_flops; /* the FLOPs of backward passes */
static _Thread_local bool walking;

wf_status __real_wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights);
wf_status __wrap_wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights);

/* Two walks in place of one; those of recomputed modules are a part of the first. */
wf_status __wrap_wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights)
{
    wf_context *ctx = root ? root->ctx : NULL;
    double before = ctx ? wf_context_flops(ctx) : 0, between;
    wf_tape *tape;
    wf_status status;

    if (!deferring || walking || !ctx)
        return __real_wf_backward(root, seed, defer_weights);
    tape = wf_tape_switch(ctx, NULL);
    wf_tape_switch(ctx, tape);
    walking = true;
    status = __real_wf_backward(root, seed, true);
    walking = false;
    between = wf_context_flops(ctx);
    if (status == WF_OK)
        status = wf_backward_weights(tape);
    all_flops += (long long)(wf_context_flops(ctx) - before);
    weights_flops += (long long)(wf_context_flops(ctx) - between);
    return status;
}

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.layers = 3;
    t.model.dropout = 0.1f;
    return t;
}

/* The fused head makes its gradients in forward, and attention has no weights: so a third of
   the work waits, and less where forward runs again. */
static void same_bits_as_whole(training whole)
{
    deferring = false;
    if (!train(&whole))
        return;
    deferring = true;
    all_flops = weights_flops = 0;
    check_rows(&whole, rows, ROWS, 1);
    printf("(%.0f %% of the work waits) ", 100 * (double)weights_flops / (double)all_flops);
    CU_ASSERT(3 * weights_flops > all_flops);
}

static void gpt2(void)
{
    same_bits_as_whole(make_training(GPT2));
}

static void llama(void)
{
    same_bits_as_whole(make_training(LLAMA));
}

/* Gradients flow to no input of block 0, which is recomputed all the same. */
static void frozen_table(void)
{
    training t = make_training(LLAMA);

    t.frozen = "embed.table";
    same_bits_as_whole(t);
}

static void share_weights(wf_nn_gpt *model)
{
    wf_nn_block *first = (wf_nn_block *)model->block[0];

    for (int64_t i = 1; i < model->layers; i++) {
        wf_nn_block *b = (wf_nn_block *)model->block[i];

        wf_nn_parameter_free(b->attn->out->weight);
        b->attn->out->weight = wf_nn_tie(first->attn->out->weight);
    }
}

static void shared_weights(void)
{
    training t = make_training(GPT2);

    t.change = share_weights;
    same_bits_as_whole(t);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2", gpt2},
        {"llama", llama},
        {"a frozen table", frozen_table},
        {"weights that blocks share", shared_weights},
        {NULL, NULL},
    };

    return wf_test_main("deferred", tests);
}
