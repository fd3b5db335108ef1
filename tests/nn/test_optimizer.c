/*
 * tests/nn/test_optimizer.c - AdamW, SGD and rows of others, groups of parameters and moving
 * averages, against plain double arithmetic written from the papers' formulas.
 *
 * ctest: builds plain address
 */
#include "kernels/ops.h"
#include "tests/nn/optimizer_trial.h"
#include <string.h>

/* One element in double. */
typedef struct element {
    double p, m, v;
} element;

static void plain_step(element *e, double g, const trial *t, bool decays, int step)
{
    double beta1 = (double)t->options.beta1, beta2 = (double)t->options.beta2;
    double decay = decays ? (double)t->options.weight_decay : 0;

    g *= t->scale;
    if (t->options.method != WF_NN_SGD && t->options.method != WF_NN_ADAMW) {
        double c = beta1 * e->m + (1 - beta1) * g;

        e->p -= t->lr * ((c > 0) - (c < 0) + decay * e->p);
        e->m = beta2 * e->m + (1 - beta2) * g;
        return;
    }
    if (t->options.method == WF_NN_SGD) {
        g += decay * e->p;
        e->m = beta1 * e->m + g;
        e->p -= t->lr * e->m;
        return;
    }
    e->m = beta1 * e->m + (1 - beta1) * g;
    e->v = beta2 * e->v + (1 - beta2) * g * g;
    e->p -= t->lr * decay * e->p;
    e->p -= t->lr * (e->m / (1 - pow(beta1, step))) /
            (sqrt(e->v / (1 - pow(beta2, step))) + (double)t->options.eps);
}

/* Every element of parameter i and its moments after all steps, next to the plain ones. */
static wf_status compare(model_rank *r, const trial *t, const wf_nn_optimizer *o, int64_t i)
{
    const wf_nn_parameter *p = r->parameter[i];
    const wf_tensor *m = wf_nn_optimizer_moment(o, i, 0), *v = wf_nn_optimizer_moment(o, i, 1);
    bool adamw = t->options.method == WF_NN_ADAMW;
    wf_rank *rank = r->rank;

    NEED((v != NULL) == adamw);
    NEED((m != NULL) == (t->options.method != WF_NN_SGD || t->options.beta1 > 0));
    for (int64_t k = 0; k < wf_tensor_local_count(p->tensor); k++) {
        int64_t index = whole_index(p->tensor, k);
        element e = {(double)arbitrary(i, 0, index), 0, 0};

        for (int step = 1; i != IDLE && step <= t->steps; step++)
            plain_step(&e, (double)arbitrary(i, step, index), t, p->tensor->ndim > 1, step);
        NEED(close_to(p->tensor, k, e.p));
        NEED(!m || close_to(m, k, e.m));
        NEED(!v || close_to(v, k, e.v));
    }
    return WF_OK;
}

static wf_status run_trial(model_rank *r, void *arg)
{
    const trial *t = arg;
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_nn_optimizer *o;
    wf_status status = WF_OK;
    wf_rank *rank = r->rank;

    NEED(grad);
    for (int64_t i = 0; i < r->count; i++)
        fill(r->parameter[i]->tensor, i, 0);
    o = wf_nn_optimizer_new(r->ctx, &t->options, r->count, r->parameter, NULL, NULL);
    NEED(o);
    for (int step = 1; step <= t->steps; step++) {
        wf_scope_open(r->ctx);
        make_gradients(r, step, grad);
        GOOD(wf_nn_optimizer_step(o, grad, (float)t->lr, (float)t->scale));
        wf_scope_close(r->ctx);
    }
    for (int64_t i = 0; i < r->count && status == WF_OK; i++)
        status = compare(r, t, o, i);
    wf_nn_optimizer_free(o);
    free(grad);
    return status;
}

/* Large rates and decays, so that no term of a formula could be left out or moved unseen. */
static void by_the_formula(void)
{
    static const trial list[] = {
        {{WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
         40,
         0.01,
         1},
        {{WF_NN_ADAMW, .beta1 = 0.8f, .beta2 = 0.999f, .eps = 0.1f, .weight_decay = 0.5f},
         40,
         0.02,
         0.25},
        {{WF_NN_ADAMW, .beta2 = 0.9f, .eps = 1e-3f}, 10, 0.01, 2},
        {{.method = WF_NN_SGD}, 20, 0.05, 1},
        {{WF_NN_SGD, .weight_decay = 0.3f}, 20, 0.05, 0.5},
        {{WF_NN_SGD, .beta1 = 0.9f, .weight_decay = 0.3f}, 20, 0.02, 0.5}};
    static const int tp[] = {1, 3};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int k = 0; k < 2; k++)
            on_model_ranks(&(model_test){.options = {.tp = tp[k]},
                                         .config = tiny,
                                         .body = run_trial,
                                         .arg = (void *)&list[i]});
}

/* Lion once more, as a program registers an optimizer. */
static void own_lion(const wf_update *u, int64_t n, float *p, const float *g, float *const *s)
{
    for (int64_t i = 0; i < n; i++) {
        const float c = u->beta1 * s[0][i] + (1 - u->beta1) * g[i];

        p[i] -= u->lr * ((float)((c > 0) - (c < 0)) + u->weight_decay * p[i]);
        s[0][i] = u->own[2] * s[0][i] + (1 - u->own[2]) * g[i];
    }
}

static const wf_nn_method_row own_row = {"own-lion", .states = 1, .elements = own_lion};

static void by_rows(void)
{
    static const wf_nn_method_row taken = {"lion", .states = 1, .elements = own_lion};
    static const wf_nn_method_row unnamed = {NULL, .states = 1, .elements = own_lion};
    const wf_nn_method own = wf_nn_method_of(&own_row);
    trial list[] = {
        {{WF_NN_LION, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f}, 40, 0.01, 0.5},
        {{WF_NN_LION, .beta1 = 0.5f, .beta2 = 0.6f}, 20, 0.01, 1},
        {{own, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f, .own = {0, 0, 0.99f}},
         40,
         0.01,
         0.5}};
    char text[256];

    CU_ASSERT(own >= WF_NN_METHODS && own == wf_nn_method_of(&own_row));
    CU_ASSERT_EQUAL(wf_nn_method_find("own-lion"), own);
    CU_ASSERT_EQUAL(wf_nn_method_find("lion"), WF_NN_LION);
    CU_ASSERT_EQUAL(wf_nn_method_find("nothing"), WF_NN_NO_METHOD);
    CU_ASSERT_EQUAL(wf_nn_method_of(&taken), WF_NN_NO_METHOD);
    CU_ASSERT_EQUAL(wf_nn_method_of(&unnamed), WF_NN_NO_METHOD);
    CU_ASSERT_STRING_EQUAL(
        wf_nn_method_names(text, sizeof text),
        "adamw, sgd, muon, adamw8bit, lion, lion8bit, adafactor or own-lion");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int tp = 1; tp <= 3; tp += 2)
            on_model_ranks(&(model_test){
                .options = {.tp = tp}, .config = tiny, .body = run_trial, .arg = &list[i]});
}

/* The average of the weights of all steps, the first of which is a copy, whether steps before
   it were skipped or not. */
static wf_status follow(model_rank *r, void *arg)
{
    const bool *skips = arg;
    const wf_nn_optimizer_options options = {WF_NN_SGD, .weight_decay = 0, .ema = 0.75f};
    wf_nn_optimizer *o =
        wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL, NULL);
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_rank *rank = r->rank;
    double want = 0;

    NEED(o && grad && !wf_nn_optimizer_moment(o, 0, 0));
    if (*skips)
        wf_nn_optimizer_skip(o);
    for (int step = 1; step <= 5; step++) {
        wf_scope_open(r->ctx);
        make_gradients(r, step, grad);
        GOOD(wf_nn_optimizer_step(o, grad, 0.3f, 1));
        wf_scope_close(r->ctx);
        want +=
            (step == 1 ? 1 : 0.25) * ((double)*(float *)r->parameter[0]->tensor->data - want);
    }
    NEED(fabs((double)*(float *)wf_nn_optimizer_moment(o, 0, WF_NN_STATES)->data - want) <
         1e-6);
    wf_nn_optimizer_free(o);
    free(grad);
    return WF_OK;
}

/* Rates and decays by path: of two groups that meet a parameter the last counts. */
static wf_status group(model_rank *r, void *arg)
{
    const wf_nn_optimizer_options options = {.method = WF_NN_SGD,
                                             .weight_decay = 0.5f,
                                             .groups = "embed:wd=0.5; block:lr=0.5,wd=0; "
                                                       "block.*.norm1:lr=2,wd=0.25"};
    wf_nn_optimizer *o =
        wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL, NULL);
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_rank *rank = r->rank;
    int64_t n, elements;

    (void)arg;
    NEED(o && grad);
    NEED(wf_nn_optimizer_group(o, 2, &n, &elements) && n == 2 && elements == 12);
    NEED(wf_nn_optimizer_group(o, 0, &n, &elements)->lr == 1 && n == 1); /* as reported */
    NEED(!wf_nn_optimizer_group(o, 3, &n, &elements) && !wf_nn_optimizer_uncaptured(o));
    wf_scope_open(r->ctx);
    for (int64_t i = 0; i < r->count; i++) {
        grad[i] = wf_scale(r->parameter[i]->tensor, 0);
        fill(r->parameter[i]->tensor, i, 0);
        wf_init_fill(grad[i], 1);
    }
    GOOD(wf_nn_optimizer_step(o, grad, 0.125f, 1));
    wf_scope_close(r->ctx);
    for (int64_t i = 0; i < r->count; i++) {
        const wf_nn_parameter *p = r->parameter[i];
        bool norm = strstr(p->path, ".norm1.") != NULL, block = !strncmp(p->path, "block", 5);
        double before = (double)arbitrary(i, 0, whole_index(p->tensor, 0));
        double decay = norm                 ? 0.25
                       : p->decay && !block ? 0.5
                                            : 0,
               lr = norm    ? 0.25
                    : block ? 0.0625
                            : 0.125;

        NEED(fabs((double)*(float *)p->tensor->data - (before - lr * (1 + decay * before))) <
             1e-6);
    }
    wf_nn_optimizer_free(o);
    free(grad);
    return WF_OK;
}

/* Numbers that a float cannot hold would be 0, which freezes, or infinite. */
static void numbers_of_groups(void)
{
    static const char *const wrong[] = {"a:lr=1e-50", "a:wd=1e-46", "a:lr=1e39", "a:lr=-1",
                                        "a:lr=nan"};
    wf_error error = {WF_OK, ""};
    wf_nn_group *group;
    int n;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT_EQUAL(wf_nn_groups_parse(wrong[i], &group, &n, &error), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "each 0 or a float from 1.2e-38 on"));
    }
    CU_ASSERT_EQUAL(wf_nn_groups_parse("a:lr=0,wd=1e-30", &group, &n, &error), WF_OK);
    CU_ASSERT_EQUAL(n, 1);
    free(group);
}

static void groups(void)
{
    numbers_of_groups();
    on_model_ranks(&(model_test){.config = tiny, .body = group});
}

static void moving_average(void)
{
    wf_nn_optimizer_options o = {WF_NN_ADAMW, .beta1 = 0.9f, .ema = 0.75f};

    CU_ASSERT_EQUAL(wf_nn_optimizer_least_bytes(&o), 12);
    o.ema = 0;
    CU_ASSERT_EQUAL(wf_nn_optimizer_least_bytes(&o), 8);
    for (int i = 0; i < 2; i++) {
        bool skips = i;

        on_model_ranks(&(model_test){.config = tiny, .body = follow, .arg = &skips});
    }
}

/* A frozen parameter has no state. */
static wf_status freeze_one(model_rank *r, void *arg)
{
    const wf_nn_optimizer_options options = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                                             .eps = 1e-8f, .weight_decay = 0.1f};
    size_t all, less, table = (size_t)wf_tensor_count(r->parameter[0]->tensor) * sizeof(float);
    wf_nn_optimizer *o;
    wf_rank *rank = r->rank;

    (void)arg;
    all = in_use(r->ctx);
    o = wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL, NULL);
    NEED(o);
    all = in_use(r->ctx) - all;
    wf_nn_optimizer_free(o);
    less = in_use(r->ctx);
    r->parameter[0]->frozen = true;
    o = wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL, NULL);
    NEED(o && !wf_nn_optimizer_moment(o, 0, 0) && !wf_nn_optimizer_moment(o, 0, 1));
    NEED(wf_nn_optimizer_moment(o, 1, 0));
    less = in_use(r->ctx) - less;
    NEED(all - less >= 2 * table && all - less < 2 * (table + 64));
    wf_nn_optimizer_free(o);
    return WF_OK;
}

static void frozen_has_no_state(void)
{
    on_model_ranks(&(model_test){.config = tiny, .body = freeze_one});
}

/* A parameter whose first gradient comes in a later step is corrected by the number of steps of
   the run, as of apex's FusedAdam and optax, and not by its own count, as of torch. */
static wf_status first_used_late(model_rank *r, void *arg)
{
    const wf_nn_optimizer_options options = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                                             .eps = 1e-8f};
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_nn_optimizer *o =
        wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL, NULL);
    wf_tensor *t = r->parameter[0]->tensor, *g = wf_scale(t, 0);
    wf_rank *rank = r->rank;
    double before, want;

    (void)arg;
    NEED(grad && o && g && wf_init_fill(g, 0.5f) == WF_OK);
    before = (double)((float *)t->data)[0];
    for (int step = 1; step <= 6; step++) {
        grad[0] = step < 6 ? NULL : g;
        GOOD(wf_nn_optimizer_step(o, grad, 0.01f, 1));
    }
    want = 0.01 * (0.1 / (1 - pow(0.9, 6))) / sqrt(0.05 / (1 - pow(0.95, 6)));
    NEED(fabs(before - want - (double)((float *)t->data)[0]) < 1e-6);
    wf_nn_optimizer_free(o);
    free(grad);
    return WF_OK;
}

static void bias_of_the_first_use(void)
{
    on_model_ranks(&(model_test){.config = tiny, .body = first_used_late});
}

int main(void)
{
    static const wf_test tests[] = {{"AdamW and SGD by the formula", by_the_formula},
                                    {"rows: Lion, and one that is registered", by_rows},
                                    {"moving average of the weights", moving_average},
                                    {"groups of parameters", groups},
                                    {"bias of a first use in step 6", bias_of_the_first_use},
                                    {"what is frozen has no state", frozen_has_no_state},
                                    {NULL, NULL}};

    return wf_test_main("optimizer", tests);
}
