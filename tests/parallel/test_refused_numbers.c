/*
 * tests/parallel/test_refused_numbers.c - steps, rates, bounds and schedules that would destroy
 * a model or train nothing are refused, and leave it as it was.
 */
#include "nn/chain.h"
#include "nn/layers/attention.h"
#include "nn/layers/cross_attention.h"
#include "nn/layers/mlp.h"
#include "nn/layers/moe.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 16 };

/* Checks the error that a call leaves in the context. */
#define SAYS(call, words)                                                                      \
    do {                                                                                       \
        (void)(call);                                                                          \
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, words));                                   \
    } while (0)

/* Steps, rates and bounds that destroy a model or mean nothing: each is refused, and nothing
   has changed. */
static wf_status numbers_refused(part *p, wf_par_trainer *t)
{
    static const float none[] = {NAN, -1, INFINITY};
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;
    wf_par_step result;
    uint64_t before, after;

    GOOD(wf_par_trainer_digest(t, &before));
    after = 0;
    NEED(wf_par_train_step(t, 0, &data, &result) == WF_EINVAL);
    NEED(wf_par_trainer_digest(t, &after) == WF_EINVAL && after == 0); /* there was no step */
    GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, "steps of training are counted"));
    for (int64_t step = 0; step > -3; step--) {
        SAYS(wf_par_step_begin(t, step), "steps of training are counted from 1");
        SAYS(wf_par_train_step(t, step, &data, &result), "steps of training are counted");
    }
    for (int i = 0; i < 3; i++) {
        GOOD(wf_par_step_begin(t, 1));
        GOOD(wf_par_forward_backward(t, &data));
        GOOD(wf_par_reduce(t, NULL));
        SAYS(wf_par_clip(t, none[i], NULL), "the bound of the gradients' norm is finite and");
        SAYS(wf_par_optimizer_step(t, none[i]), "it is finite and at least 0");
    }
    GOOD(wf_par_zero_grad(t));
    GOOD(wf_par_trainer_digest(t, &after));
    NEED(before == after);
    GOOD(wf_par_train_step(t, 1, &data, &result));
    GOOD(wf_par_trainer_digest(t, &after));
    NEED(before != after && result.loss > 1);
    return WF_OK;
}

typedef struct heard {
    int n;
    char text[2][512];
} heard;

static void hear(void *self, const char *text)
{
    heard *h = self;

    if (h->n < 2)
        snprintf(h->text[h->n], sizeof h->text[0], "%s", text);
    h->n++;
}

/* The loss of a model without its second block. */
static wf_tensor *loss_without_a_block(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *x = wf_par_batch_tensor(batch, "tokens");

    if (wf_nn_chain_run(model, 0, 2, 1, &x) > 0)
        wf_nn_chain_run(model, 3, 4, 1, &x);
    return wf_par_gpt_head_loss(model, x, batch);
}

/* Legal settings that are seldom meant, a rate of 0 and parameters that the loss does not use,
   are reported once each. */
static wf_status warned_once(part *p, wf_par_trainer *t)
{
    const wf_par_data data = {.read = count_up};
    heard h = {.n = 0};
    wf_rank *rank = p->rank;
    wf_par_step result;

    wf_context_on_warning(p->ctx, hear, &h);
    for (int64_t step = 1; step <= 3; step++)
        GOOD(wf_par_train_step(t, step, &data, &result));
    NEED(h.n == 2);
    NEED(strstr(h.text[0], "the schedule's learning rate is 0"));
    NEED(strstr(h.text[1], "parameters get no gradient in step 1, the first of them block.1."));
    wf_context_on_warning(p->ctx, NULL, NULL);
    return WF_OK;
}

static wf_status warned_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, warned_once, NULL);
}

static void what_is_seldom_meant(void)
{
    training t = new_training(LLAMA, 3, BATCH);

    t.options.schedule = (wf_nn_schedule){.lr = 0, .steps = 4};
    t.options.loss = loss_without_a_block;
    run_ranks(1, warned_rank, &t);
}

static wf_status opened_in_vain(part *p)
{
    const training usual = new_training(LLAMA, 3, BATCH);
    const wf_nn_schedule wrong[] = {
        {NAN, 0, 1, .steps = 2},
        {1, NAN, 1, .steps = 2},
        {-1, 0, 1, .steps = 2},
        {1e300, 0, 1, .steps = 2},
        {1, 0, 3, .steps = 2},
        {1, 0, -1, .steps = 2},
        {1, 0, -2, .steps = -1},
        {1e-60, 0, 1, .steps = 2},
        {1, 0, 1, 2, .kind = WF_NN_WSD, .decay = 2},
        {1, 0, 1, 9, .decay = 2},
        {1, 0, 1, 9, .kind = WF_NN_WSD, .decay = -1},
        {1, 0, 1, 9, .kind = WF_NN_POINTS + 1},
        {1, 0, 1, 9, .kind = WF_NN_POINTS},
        {.kind = WF_NN_POINTS, .points = 2, .point = (wf_nn_schedule_point[]){{4, 1}, {4, 2}}},
        {.kind = WF_NN_POINTS, .points = 1, .point = (wf_nn_schedule_point[]){{4, -1}}},
    };
    wf_rank *rank = p->rank;

    wf_par_plan(p->par, p->model, wf_par_gpt_plan);
    GOOD(wf_par_materialize(p->par, p->model));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wf_par_train_options o = usual.options;

        o.schedule = wrong[i];
        NEED(!wf_par_trainer_open(p->par, p->model, &o));
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, "a schedule "));
    }
    for (int i = 0; i < 5; i++) {
        static const char *const texts[] = {"nothing:lr=2", "embed", "embed:lr=-1",
                                            "embed:lr=1,lr=2", "embed:lr=2; :wd=1"};
        wf_par_train_options o = usual.options;

        o.optimizer.groups = texts[i];
        NEED(!wf_par_trainer_open(p->par, p->model, &o));
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL,
                     i ? "a group of parameters '" : "the group of parameters nothing"));
    }
    for (int i = 0; i < 3; i++) {
        wf_par_train_options o = usual.options;

        o.clip = i ? i > 1 ? INFINITY : -1 : NAN;
        NEED(!wf_par_trainer_open(p->par, p->model, &o));
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, "the bound of the gradients' norm"));
        o = usual.options;
        *(i ? &o.optimizer.eps : &o.optimizer.weight_decay) = INFINITY;
        NEED(!wf_par_trainer_open(p->par, p->model, &o));
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, "both are finite"));
    }
    return WF_OK;
}

static void schedules_that_are_none(void)
{
    const training t = new_training(LLAMA, 3, BATCH);
    part_test in = {.options = t.layout, .config = &t.model, .body = opened_in_vain};

    run_ranks(1, part_rank, &in);
}

/* Numbers of layers that were taken for the default, or made all results zeros. */
static wf_status layers_refused(part *p)
{
    static const double none[] = {NAN, -1, INFINITY, 1e-60};
    const wf_nn_attention_options attention = {.width = 8, .heads = 2};
    const wf_nn_cross_attention_options cross = {.width = 8, .heads = 2};
    const wf_nn_linear_options linear = {.in = wf_dim_width(4), .out = wf_dim_width(4)};
    const wf_nn_mlp_options mlp = {.width = 8};
    const wf_nn_moe_options moe = {.width = 8, .experts = 4, .hidden = 8, .route.k = 2};
    wf_nn_gpt_config deep = p->gpt->config;
    wf_rank *rank = p->rank;

    for (int i = 0; i < 4; i++) {
        wf_nn_attention_options a[] = {attention, attention, attention, attention};
        wf_nn_cross_attention_options c = cross;
        wf_nn_linear_options l = linear;
        wf_nn_mlp_options m = mlp;
        wf_nn_moe_options e[] = {moe, moe};
        float small = i < 3 ? (float)none[i] : -1; /* a float is 0 where none is too small */

        a[0].rope_base = a[1].scale = none[i];
        a[2].qk_norm = a[3].out_deviation = small;
        c.deviation = l.cap = m.deviation = small;
        e[0].route.factor = e[1].bias_step = small;
        for (int k = 0; k < 4; k++)
            SAYS(wf_nn_attention_new(p->ctx, &a[k]), "it is positive and finite, in float too");
        SAYS(wf_nn_cross_attention_new(p->ctx, &c), "cross attention with deviation");
        SAYS(wf_nn_linear_new(p->ctx, &l), "a linear with cap");
        SAYS(wf_nn_gelu_mlp_new(p->ctx, &m), "an MLP with deviation");
        for (int k = 0; k < 2; k++)
            SAYS(wf_nn_moe_new(p->ctx, &e[k]), "a mixture with ");
        deep.residual_scale = none[i];
        SAYS(wf_nn_gpt_new(p->ctx, &deep), "a model with residual_scale");
    }
    deep = p->gpt->config;
    deep.layers = 1 << 30;
    SAYS(wf_nn_gpt_new(p->ctx, &deep), "(layers: 0, and at most 65536)");
    return WF_OK;
}

static void layers(void)
{
    const training t = new_training(LLAMA, 3, BATCH);

    run_parts((part_test){.options = t.layout, .config = &t.model, .body = layers_refused});
}

static wf_status numbers_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, numbers_refused, NULL);
}

static void numbers_that_train_nothing(void)
{
    training t = new_training(LLAMA, 3, BATCH);

    run_ranks(1, numbers_rank, &t);
}

int main(void)
{
    static const wf_test tests[] = {
        {"steps, rates and bounds that train nothing", numbers_that_train_nothing},
        {"numbers of layers", layers},
        {"schedules that are none", schedules_that_are_none},
        {"what is legal and seldom meant", what_is_seldom_meant},
        {NULL, NULL},
    };

    return wf_test_main("refused_numbers", tests);
}
