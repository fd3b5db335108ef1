/*
 * tests/nn/test_loss.c - the head fused with its loss has the bits of the plain ops, in losses
 * and in every gradient, for any layout and any size of chunks; it holds no logits of all
 * sequences; and what it cannot do it refuses.
 *
 * ctest: builds plain address
 */
#include "tests/nn/loss_passes.h"

static wf_nn_gpt_config with_bias(const char *family, bool bias)
{
    wf_nn_gpt_config config = config_of(family);

    config.head_bias = bias;
    return config;
}

static void has_the_bits_of_plain_ops(void)
{
    static const wf_par_options layout[] = {
        {.tp = 1, .dp = 1}, {.tp = 1, .dp = 1, .threads = 2},
        {.tp = 2, .dp = 1}, {.tp = 4, .dp = 1, .sequence_parallel = true},
        {.tp = 1, .dp = 2}, {.tp = 2, .dp = 2, .sequence_parallel = true},
        {.tp = 8, .dp = 1}, {.tp = 8, .dp = 2, .sequence_parallel = true}};

    for (int llama = 0; llama < 2; llama++)
        for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
            on_model_ranks(&(model_test){.options = layout[i],
                                         .config = with_bias(llama ? "llama" : "gpt2", llama),
                                         .body = compare,
                                         .arg = &(int64_t){SEQUENCES * layout[i].dp}});
}

/* 7 sequences on 2 and 4 ranks, and 1 on 2: as many chunks as a rank has sequences for, of
   which one rank may have none. */
static void batches_need_not_divide(void)
{
    static const int64_t batch[] = {7, 1};

    for (int i = 0; i < 2; i++)
        for (int dp = 2; dp <= 4; dp *= 2)
            on_model_ranks(&(model_test){.options = {.tp = 2, .dp = dp},
                                         .config = config_of("llama"),
                                         .body = compare,
                                         .arg = (void *)&batch[i]});
}

/* Without a tape there are losses and nothing else. */
static wf_status evaluate(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    wf_tensor *loss;

    (void)arg;
    wf_scope_open(r->ctx);
    wf_context_training(r->ctx, false);
    loss = plain_loss(r, any_tokens(r, 4, VOCABULARY, 1), any_tokens(r, 4, VOCABULARY, 2));
    for (int64_t n = 0; n < 4; n++) {
        r->model->loss->chunk = n * TOKENS;
        NEED(same_data(wf_nn_gpt_loss(r->model, any_tokens(r, 4, VOCABULARY, 1),
                                      any_tokens(r, 4, VOCABULARY, 2), weight),
                       loss));
    }
    NEED(!loss->requires_grad);
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void without_a_tape(void)
{
    on_model_ranks(&(model_test){
        .options = {.tp = 2, .dp = 2}, .config = config_of("gpt2"), .body = evaluate});
}

/* Frozen parameters get no gradient, others the same: all but the head's, then that alone. */
static wf_status freeze(model_rank *r, void *arg)
{
    wf_nn_parameter *head = r->model->head->weight;

    for (int64_t i = 0; i < r->count; i++)
        r->parameter[i]->frozen = r->parameter[i] == head;
    GOOD(compare(r, arg));
    for (int64_t i = 0; i < r->count; i++)
        r->parameter[i]->frozen = r->parameter[i] != head;
    return compare(r, arg);
}

static void frozen_parts(void)
{
    on_model_ranks(&(model_test){.options = {.tp = 2},
                                 .config = config_of("llama"),
                                 .body = freeze,
                                 .arg = &(int64_t){5}});
}

/* The weight is that of the losses themselves, whatever they go through afterwards. */
static wf_status weigh(model_rank *r, void *arg)
{
    static const float through[] = {1, 2, 1};
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_rank *rank = r->rank;

    (void)arg;
    NEED(g);
    for (int i = 0; i < 3; i++) {
        wf_tensor *tokens, *loss;
        wf_tape *tape;

        wf_scope_open(r->ctx);
        tokens = any_tokens(r, 3, VOCABULARY, 1);
        tape = wf_tape_open(r->ctx);
        loss = wf_nn_gpt_loss(r->model, tokens, tokens, 2 * weight);
        loss = wf_scale(loss, through[i]);
        NEED(loss);
        if (i == 2)
            ((float *)loss->data)[0] = 5; /* values do not matter, gradients do */
        wf_backward(loss, filled(loss, i == 2 ? 2 * weight : weight), false);
        if (i == 0)
            GOOD(refused(rank, r->ctx, NULL, WF_EINVAL, "all weighted with 0.0416666679"));
        wf_tape_close(tape);
        wf_par_gradients_reset(g);
        wf_scope_close(r->ctx);
        GOOD(wf_context_status(r->ctx));
    }
    wf_par_gradients_close(g);
    return WF_OK;
}

static void another_weight_is_refused(void)
{
    on_model_ranks(&(model_test){.config = config_of("gpt2"), .body = weigh});
}

static void twice_at_sum(void *self, wf_nn_module *m, const char *point, int n, wf_tensor **x)
{
    (void)self, (void)m, (void)n;
    if (strcmp(point, "sum") == 0)
        x[0] = wf_scale(x[0], 2);
}

static wf_status misuse(model_rank *r, void *arg)
{
    const wf_dim dims[] = {wf_dim_chunked(4), wf_dim_chunked(TOKENS), wf_dim_width(24)};
    const wf_nn_hooks hooks = {.at = twice_at_sum};
    wf_nn_linear *head = r->model->head;
    wf_rank *rank = r->rank;
    wf_tensor *tokens, *x;

    (void)arg;
    wf_scope_open(r->ctx);
    tokens = any_tokens(r, 4, VOCABULARY, 1);
    x = wf_tensor_new(r->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    GOOD(refused(rank, r->ctx,
                 wf_nn_linear_cross_entropy(head, r->model->loss, x, tokens, weight), WF_ESHAPE,
                 "must be a batch"));
    GOOD(wf_nn_hook_add(head, &hooks));
    GOOD(refused(rank, r->ctx, wf_nn_gpt_loss(r->model, tokens, tokens, weight),
                 WF_EUNSUPPORTED, "in head: linear_cross_entropy: the plan moves logits"));
    NEED(wf_nn_hook_remove(head, &hooks));
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void what_it_cannot_do(void)
{
    on_model_ranks(&(model_test){.config = config_of("gpt2"), .body = misuse});
}

/* The sequence that a wrong target is in, whichever chunk it comes in. */
static wf_status wrong_target(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    wf_tensor *tokens, *targets;

    (void)arg;
    wf_scope_open(r->ctx);
    tokens = any_tokens(r, 4, VOCABULARY, 1);
    targets = any_tokens(r, 4, VOCABULARY, 2);
    NEED(tokens && targets);
    ((int32_t *)targets->data)[3 * TOKENS + 5] = VOCABULARY;
    r->model->loss->chunk = 1;
    GOOD(refused(rank, r->ctx, wf_nn_gpt_loss(r->model, tokens, targets, weight), WF_EINVAL,
                 "in loss: logit_sum: token 257 of sequence 3, position 5"));
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void wrong_targets_are_named(void)
{
    on_model_ranks(&(model_test){.config = config_of("llama"), .body = wrong_target});
}

enum { MANY = 64, WIDE_VOCABULARY = 20000 };

/* Bytes beyond those of parameters and tokens, there and back. */
static size_t peak_of(model_rank *r, bool fused)
{
    wf_memory_report before, after;
    wf_tensor *tokens, *loss;
    wf_tape *tape;

    wf_scope_open(r->ctx);
    tokens = any_tokens(r, MANY, WIDE_VOCABULARY, 1);
    wf_pool_reset_peak(wf_context_pool(r->ctx));
    wf_pool_report(wf_context_pool(r->ctx), &before);
    tape = wf_tape_open(r->ctx);
    loss = fused ? wf_nn_gpt_loss(r->model, tokens, tokens, weight)
                 : plain_loss(r, tokens, tokens);
    wf_backward(loss, filled(loss, weight), false);
    wf_pool_report(wf_context_pool(r->ctx), &after);
    wf_tape_close(tape);
    wf_scope_close(r->ctx);
    return after.peak - before.in_use;
}

/* All logits are 64 x 8 x 20000 floats, 41 MB; a quarter of them is below 16 MiB. In the tree
   over four chunks two nodes are open at once. */
static wf_status measure(model_rank *r, void *arg)
{
    const size_t tp = r->rank->size == 2 ? 2 : 1;
    const size_t logits = (size_t)MANY * TOKENS * WIDE_VOCABULARY * sizeof(float) / tp;
    const size_t dw = (size_t)WIDE_VOCABULARY * 24 * sizeof(float) / tp;
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_rank *rank = r->rank;
    size_t fused = peak_of(r, true), plain;

    (void)arg;
    NEED(g);
    wf_par_gradients_reset(g);
    plain = peak_of(r, false);
    wf_par_gradients_close(g);
    NEED(plain > 2 * logits);
    NEED(fused > logits / 4 && fused < logits / 4 + 2 * dw + logits / 50);
    return WF_OK;
}

static void logits_are_never_whole(void)
{
    for (int tp = 1; tp <= 2; tp++) {
        wf_nn_gpt_config config = config_of("llama");

        config.vocabulary = WIDE_VOCABULARY;
        config.layers = 0;
        on_model_ranks(&(model_test){.options = {.tp = tp}, .config = config, .body = measure});
    }
}

/* A model that is fake has fake losses, and a way back that reads nothing. */
static void on_nothing(void)
{
    const wf_dim dims[] = {wf_dim_batch(512), wf_dim_chunked(TOKENS)};
    wf_nn_gpt_config config = config_of("gpt2");
    wf_context *ctx = lone_context(1);
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, &config);
    wf_tensor *tokens, *loss;
    wf_tape *tape;

    wf_scope_open(ctx);
    tokens = wf_tensor_fake(ctx, WF_I32, 2, dims, NULL);
    tape = wf_tape_open(ctx);
    loss = wf_nn_gpt_loss(model, tokens, tokens, weight);
    CU_ASSERT_PTR_NOT_NULL_FATAL(loss);
    CU_ASSERT(wf_tensor_is_fake(loss));
    CU_ASSERT_EQUAL(
        wf_backward(loss, wf_tensor_fake(ctx, WF_F32, 2, loss->dim, loss->layout), false),
        WF_OK);
    CU_ASSERT_EQUAL(wf_nn_leaves_of(model->head->weight, NULL)->uses, 2);
    CU_ASSERT_PTR_NOT_NULL(wf_nn_leaves_of(model->head->weight, NULL)->use[1]->grad);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    wf_tape_close(tape);
    wf_scope_close(ctx);
    wf_nn_free(&model->base);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {{"the bits of plain ops", has_the_bits_of_plain_ops},
                                    {"batches need not divide", batches_need_not_divide},
                                    {"without a tape", without_a_tape},
                                    {"frozen parts", frozen_parts},
                                    {"another weight is refused", another_weight_is_refused},
                                    {"what it cannot do", what_it_cannot_do},
                                    {"wrong targets are named", wrong_targets_are_named},
                                    {"logits are never whole", logits_are_never_whole},
                                    {"a fake model", on_nothing},
                                    {NULL, NULL}};

    return wf_test_main("loss", tests);
}
