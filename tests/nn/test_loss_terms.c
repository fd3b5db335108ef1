/*
 * tests/nn/test_loss_terms.c - label smoothing and z-loss: the head fused with its loss has the
 * bits of the plain ops, and the losses those of the formulas; evaluation has neither.
 */
#include "tests/nn/loss_passes.h"
#include <math.h>

/* With label smoothing, with z-loss, and with both. */
static wf_status compare_terms(model_rank *r, void *arg)
{
    static const float terms[][2] = {{0.125f, 0}, {0, 0.01f}, {0.1f, 0.001f}};

    for (int i = 0; i < 3; i++) {
        r->model->loss->smoothing = terms[i][0];
        r->model->loss->z = terms[i][1];
        GOOD(compare(r, arg));
    }
    wf_context_storage(r->ctx, WF_BF16);
    r->model->loss->z = 0.01f;
    GOOD(compare(r, arg));
    wf_context_storage(r->ctx, WF_F32);
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

/* Losses are not rounded where other results are stored as bf16: those of the fused head are
   those of plain ops. */
static wf_status in_full(model_rank *r, void *arg)
{
    wf_par_gradients *g = wf_par_gradients_open(r->par, 0, r->count, r->parameter);
    wf_dtype stored = wf_context_storage(r->ctx, WF_BF16);
    wf_tensor *grad[64], *loss[2];
    wf_rank *rank = r->rank;

    (void)arg;
    NEED(g && r->count < 64);
    r->model->loss->z = 0.01f;
    wf_scope_open(r->ctx);
    for (int fused = 0; fused < 2; fused++) {
        int64_t n;

        loss[fused] = there_and_back(r, SEQUENCES, fused, false);
        GOOD(wf_context_status(r->ctx));
        NEED(loss[fused] && loss[fused]->dtype == WF_F32);
        n = take_gradients(r, g, grad);
        for (int64_t i = 0; i < n; i++)
            wf_tensor_release(grad[i]);
    }
    NEED(same_data(loss[1], loss[0]));
    wf_scope_close(r->ctx);
    wf_par_gradients_close(g);
    wf_context_storage(r->ctx, stored);
    return WF_OK;
}

static void terms_in_bf16(void)
{
    for (int tp = 1; tp <= 2; tp++)
        on_model_ranks(&(model_test){
            .options = {.tp = tp, .dp = 1}, .config = config_of("llama"), .body = in_full});
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

int main(void)
{
    static const wf_test tests[] = {{"the bits of plain ops", terms_of_training},
                                    {"of bf16", terms_in_bf16},
                                    {"the formulas", formulas},
                                    {NULL, NULL}};

    return wf_test_main("loss_terms", tests);
}
