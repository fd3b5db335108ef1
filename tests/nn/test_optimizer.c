/*
 * tests/nn/test_optimizer.c - learning-rate schedules, AdamW and SGD, against plain double
 * arithmetic written from the papers' formulas.
 */
#include "nn/optim/optimizer.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

static double cosine_schedule(const wf_nn_schedule *s, int64_t step)
{
    double warm = (double)s->warmup, done = ((double)step - warm) / ((double)s->steps - warm);

    if (step <= s->warmup)
        return s->lr * (double)step / warm;
    return s->min_lr + (s->lr - s->min_lr) * (1 + cos(acos(-1) * fmin(done, 1))) / 2;
}

static void schedules(void)
{
    static const wf_nn_schedule list[] = {
        {6e-4, 6e-5, 10, 100}, {1, 0, 0, 7}, {1e-3, 1e-3, 3, 20}, {0.5, 0.1, 20, 21}};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const wf_nn_schedule *s = &list[i];

        for (int64_t step = 1; step <= s->steps + 3; step++) {
            double want = cosine_schedule(s, step), got = (double)wf_nn_schedule_at(s, step);

            CU_ASSERT(fabs(got - want) <= 1e-7 * s->lr);
        }
        CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->steps), (float)s->min_lr);
        CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->steps + 1000), (float)s->min_lr);
        if (s->warmup)
            CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->warmup), (float)s->lr);
    }
}

/* A warm-up as long as the run, or longer, never comes down. */
static void only_warming_up(void)
{
    const wf_nn_schedule full = {2, 1, 8, 8}, longer = {2, 1, 16, 8};

    for (int64_t step = 1; step <= 8; step++) {
        CU_ASSERT_EQUAL(wf_nn_schedule_at(&full, step), 0.25f * (float)step);
        CU_ASSERT_EQUAL(wf_nn_schedule_at(&longer, step), 0.125f * (float)step);
    }
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&full, 9), 1);
}

typedef struct trial {
    wf_nn_optimizer_options options;
    int steps;
    double lr, scale;
} trial;

/* One element in double. */
typedef struct element {
    double p, m, v;
} element;

static void plain_step(element *e, double g, const trial *t, bool decays, int step)
{
    double beta1 = (double)t->options.beta1, beta2 = (double)t->options.beta2;
    double decay = decays ? (double)t->options.weight_decay : 0;

    g *= t->scale;
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

/* Between -1 and 1, another one for every parameter, step and element of the whole. */
static float arbitrary(int64_t parameter, int64_t step, int64_t index)
{
    return (float)sin(1.3 * (double)parameter + 0.7 * (double)step + 2.9 * (double)index);
}

static void fill(wf_tensor *t, int64_t parameter, int64_t step)
{
    for (int64_t i = 0; t && i < wf_tensor_local_count(t); i++)
        ((float *)t->data)[i] = arbitrary(parameter, step, whole_index(t, i));
}

enum { IDLE = 1 }; /* the number of a parameter that never has a gradient */

/* Gradients of a step; released by the scope. */
static void make_gradients(model_rank *r, int64_t step, wf_tensor **grad)
{
    for (int64_t i = 0; i < r->count; i++) {
        const wf_tensor *p = r->parameter[i]->tensor;

        grad[i] = i == IDLE ? NULL
                            : wf_tensor_new(r->ctx, WF_F32, p->ndim, p->dim, p->layout,
                                            WF_MEMORY_GRADIENT);
        fill(grad[i], i, step);
    }
}

static bool close_to(const wf_tensor *t, int64_t i, double want)
{
    return fabs((double)((const float *)t->data)[i] - want) < 1e-5 * fmax(1, fabs(want));
}

/* Every element of parameter i and its moments after all steps, next to the plain ones. */
static wf_status compare(model_rank *r, const trial *t, const wf_nn_optimizer *o, int64_t i)
{
    const wf_nn_parameter *p = r->parameter[i];
    const wf_tensor *m = wf_nn_optimizer_moment(o, i, 0), *v = wf_nn_optimizer_moment(o, i, 1);
    bool adamw = t->options.method == WF_NN_ADAMW;
    wf_rank *rank = r->rank;

    NEED((v != NULL) == adamw);
    NEED((m != NULL) == (adamw || t->options.beta1 > 0));
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
    o = wf_nn_optimizer_new(r->ctx, &t->options, r->count, r->parameter, NULL);
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

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 11, .positions = 5, .layers = 1,
                                      .heads = 3, .kv_heads = 3,    .width = 6,     .ffn = 7};

/* Large rates and decays, so that no term of a formula could be left out or moved unseen. */
static void by_the_formula(void)
{
    static const trial list[] = {{{WF_NN_ADAMW, 0.9f, 0.95f, 1e-8f, 0.1f}, 40, 0.01, 1},
                                 {{WF_NN_ADAMW, 0.8f, 0.999f, 0.1f, 0.5f}, 40, 0.02, 0.25},
                                 {{WF_NN_ADAMW, 0, 0.9f, 1e-3f, 0}, 10, 0.01, 2},
                                 {{WF_NN_SGD, 0, 0, 0, 0}, 20, 0.05, 1},
                                 {{WF_NN_SGD, 0, 0, 0, 0.3f}, 20, 0.05, 0.5},
                                 {{WF_NN_SGD, 0.9f, 0, 0, 0.3f}, 20, 0.02, 0.5}};
    static const int tp[] = {1, 3};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int k = 0; k < 2; k++)
            on_model_ranks(&(model_test){.options = {.tp = tp[k]},
                                         .config = tiny,
                                         .body = run_trial,
                                         .arg = (void *)&list[i]});
}

/* A frozen parameter has no state. */
static wf_status freeze_one(model_rank *r, void *arg)
{
    const wf_nn_optimizer_options options = {WF_NN_ADAMW, 0.9f, 0.95f, 1e-8f, 0.1f};
    size_t all, less, table = (size_t)wf_tensor_count(r->parameter[0]->tensor) * sizeof(float);
    wf_nn_optimizer *o;
    wf_rank *rank = r->rank;

    (void)arg;
    all = in_use(r->ctx);
    o = wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL);
    NEED(o);
    all = in_use(r->ctx) - all;
    wf_nn_optimizer_free(o);
    less = in_use(r->ctx);
    r->parameter[0]->frozen = true;
    o = wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL);
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
    const wf_nn_optimizer_options options = {WF_NN_ADAMW, 0.9f, 0.95f, 1e-8f, 0};
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_nn_optimizer *o = wf_nn_optimizer_new(r->ctx, &options, r->count, r->parameter, NULL);
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
    static const wf_test tests[] = {{"schedules", schedules},
                                    {"only warming up", only_warming_up},
                                    {"AdamW and SGD by the formula", by_the_formula},
                                    {"bias of a first use in step 6", bias_of_the_first_use},
                                    {"what is frozen has no state", frozen_has_no_state},
                                    {NULL, NULL}};

    return wf_test_main("optimizer", tests);
}
