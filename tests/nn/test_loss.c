/*
 * tests/nn/test_loss.c - the head fused with its loss has the bits of the plain ops, in losses
 * and in every gradient, for any layout and any size of chunks; it holds no logits of all
 * sequences; and what it cannot do it refuses.
 */
#include "kernels/ops.h"
#include "parallel/shard/gradient_reduce_internal.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

enum { SEQUENCES = 6, TOKENS = 8, VOCABULARY = 257 };

static const float weight = 1.0f / (SEQUENCES * TOKENS);

static wf_nn_gpt_config config_of(const char *family)
{
    wf_nn_gpt_config config = *wf_nn_gpt_family(family);

    config.vocabulary = VOCABULARY;
    config.positions = TOKENS;
    config.layers = 1, config.heads = 6;
    config.kv_heads = 3;
    config.width = config.ffn = 24;
    config.dropout = 0.2f;
    return config;
}

/* Tokens, or targets, of `batch` sequences: any, but the same on all layouts. */
static wf_tensor *any_tokens(model_rank *r, int64_t batch, int64_t vocabulary, uint64_t which)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(TOKENS)};
    wf_tensor *t = wf_tensor_new(r->ctx, WF_I32, 2, dims, wf_par_batch_layout(r->par),
                                 WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((int32_t *)t->data)[e] =
            (int32_t)(wf_mix64(which + (uint64_t)whole_index(t, e)) % (uint64_t)vocabulary);
    return t;
}

static wf_tensor *filled(const wf_tensor *like, float value)
{
    wf_tensor *t = like ? wf_tensor_new(like->ctx, WF_F32, like->ndim, like->dim, like->layout,
                                        WF_MEMORY_ACTIVATION)
                        : NULL;

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = value;
    return t;
}

static wf_tensor *plain_loss(model_rank *r, wf_tensor *tokens, wf_tensor *targets)
{
    return wf_nn_cross_entropy(r->model->loss, wf_nn_gpt_logits(r->model, tokens), targets);
}

static bool same_data(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->layout == b->layout && a->ndim == b->ndim &&
           wf_tensor_local_count(a) == wf_tensor_local_count(b) &&
           memcmp(a->data, b->data,
                  (size_t)wf_tensor_local_count(a) * wf_dtype_size(a->dtype)) == 0;
}

/* One pass there and back, every fourth token without a target; uses keep their gradients. */
static wf_tensor *there_and_back(model_rank *r, int64_t batch, bool fused, bool deferred)
{
    wf_tensor *tokens = any_tokens(r, batch, VOCABULARY, 1);
    wf_tensor *targets = any_tokens(r, batch, VOCABULARY, 1 << 20), *loss;
    wf_tape *tape;

    for (int64_t e = 0; targets && e < wf_tensor_local_count(targets); e += 4)
        ((int32_t *)targets->data)[e] = -1;
    wf_context_position(r->ctx, 3, (wf_sequences){.first = 0});
    tape = wf_tape_open(r->ctx);
    loss = fused ? wf_nn_gpt_loss(r->model, tokens, targets, weight)
                 : plain_loss(r, tokens, targets);
    if (loss && wf_backward(loss, filled(loss, weight), deferred) == WF_OK && deferred)
        wf_backward_weights(tape);
    wf_tape_close(tape);
    return loss;
}

/* The gradients of all uses, in order, taken out of the parameters. */
static int64_t take_gradients(model_rank *r, wf_par_gradients *g, wf_tensor **grad)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->count; i++)
        for (int u = 0; u < wf_nn_leaves_of(r->parameter[i], NULL)->uses; u++)
            grad[n++] = wf_tensor_retain(wf_nn_leaves_of(r->parameter[i], NULL)->use[u]->grad);
    wf_par_gradients_reset(g);
    return n;
}

static wf_status compare(model_rank *r, void *arg)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 100};
    const int64_t batch = *(const int64_t *)arg;
    wf_rank *rank = r->rank;
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_tensor *plain[64], *fused[64], *loss, *again;
    int64_t n;

    NEED(g && r->count * 2 < 64);
    wf_scope_open(r->ctx);
    loss = there_and_back(r, batch, false, false);
    n = take_gradients(r, g, plain);
    NEED(loss && n > 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        r->model->loss->chunk = sizes[s];
        again = there_and_back(r, batch, true, s % 2);
        NEED(same_data(again, loss));
        NEED(take_gradients(r, g, fused) == n);
        for (int64_t i = 0; i < n; i++) {
            NEED(same_data(fused[i], plain[i]));
            wf_tensor_release(fused[i]);
        }
    }
    for (int64_t i = 0; i < n; i++)
        wf_tensor_release(plain[i]);
    wf_scope_close(r->ctx);
    wf_par_gradients_close(g);
    return wf_context_status(r->ctx);
}

/* With label smoothing, with z-loss, and with both. */
static wf_status compare_terms(model_rank *r, void *arg)
{
    static const float terms[][2] = {{0.125f, 0}, {0, 0.01f}, {0.1f, 0.001f}};

    for (int i = 0; i < 3; i++) {
        r->model->loss->smoothing = terms[i][0];
        r->model->loss->z = terms[i][1];
        GOOD(compare(r, arg));
    }
    return WF_OK;
}

static void terms_of_training(void)
{
    static const wf_par_options layout[] = {
        {.tp = 1, .dp = 1}, {.tp = 4, .dp = 1}, {.tp = 2, .dp = 2, .sequence_parallel = true}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        on_model_ranks(&(model_test){.options = layout[i],
                                     .config = config_of("llama"),
                                     .body = compare_terms,
                                     .arg = &(int64_t){SEQUENCES}});
}

/* The formula of torch's cross_entropy with label_smoothing, and of z-loss, over the logits; in
   evaluation there is neither. */
static wf_status has_the_formula(model_rank *r, void *arg)
{
    const double e = 0.2, z = 0.05;
    wf_rank *rank = r->rank;
    wf_tensor *tokens, *targets, *logits, *loss, *plain;

    (void)arg;
    wf_scope_open(r->ctx);
    tokens = any_tokens(r, 2, VOCABULARY, 1);
    targets = any_tokens(r, 2, VOCABULARY, 2);
    logits = wf_scale(wf_nn_gpt_logits(r->model, tokens), 30);
    plain = wf_nn_cross_entropy(r->model->loss, logits, targets);
    r->model->loss->smoothing = (float)e;
    r->model->loss->z = (float)z;
    loss = wf_nn_cross_entropy(r->model->loss, logits, targets);
    NEED(plain && loss);
    for (int64_t t = 0; t < wf_tensor_local_count(loss); t++) {
        const float *x = (const float *)logits->data + t * VOCABULARY;
        double sum = 0, all = 0, log_sum, target = x[((int32_t *)targets->data)[t]], want;

        for (int v = 0; v < VOCABULARY; v++) {
            sum += exp((double)x[v]);
            all += x[v];
        }
        log_sum = log(sum);
        want = (1 - e) * (log_sum - target) + e / VOCABULARY * (VOCABULARY * log_sum - all) +
               z * log_sum * log_sum;
        NEED(fabs(((float *)plain->data)[t] - (log_sum - target)) < 1e-5);
        NEED(fabs(((float *)loss->data)[t] - want) < 1e-5);
    }
    wf_context_training(r->ctx, false);
    NEED(same_data(wf_nn_cross_entropy(r->model->loss, logits, targets), plain));
    wf_context_training(r->ctx, true);
    r->model->loss->smoothing = 1;
    GOOD(refused(rank, r->ctx, wf_nn_cross_entropy(r->model->loss, logits, targets), WF_EINVAL,
                 "label smoothing 1 is 0 to below 1"));
    r->model->loss->smoothing = 0;
    r->model->loss->z = -1;
    GOOD(refused(rank, r->ctx, wf_nn_gpt_loss(r->model, tokens, targets, weight), WF_EINVAL,
                 "z-loss -1 is 0 or more"));
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void formulas(void)
{
    on_model_ranks(&(model_test){.config = config_of("llama"), .body = has_the_formula});
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
                                         .config = config_of(llama ? "llama" : "gpt2"),
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
    for (r->model->loss->chunk = 0; r->model->loss->chunk < 4; r->model->loss->chunk++)
        NEED(same_data(wf_nn_gpt_loss(r->model, any_tokens(r, 4, VOCABULARY, 1),
                                      any_tokens(r, 4, VOCABULARY, 2), weight),
                       loss));
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
    const wf_dim vocabulary = wf_dim_chunked(VOCABULARY);
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
    head->bias = wf_nn_parameter_new(r->ctx, 1, &vocabulary, false);
    GOOD(refused(rank, r->ctx, wf_nn_gpt_loss(r->model, tokens, tokens, weight),
                 WF_EUNSUPPORTED, "the head has a bias"));
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
                                    {"the same with smoothing and z-loss", terms_of_training},
                                    {"their formulas", formulas},
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
