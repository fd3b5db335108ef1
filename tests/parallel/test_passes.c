/*
 * tests/parallel/test_passes.c - gradients of micro-steps whose backward passes come in any
 * order, or whose forward passes are all in flight at once, have the bits of one after the
 * other; and a step that lacks one says which.
 */
#include "tests/parallel/terms.h"

/* A module that uses its bias as often as the micro-step says. */
typedef struct adder {
    wf_nn_module base;
    wf_nn_parameter *bias;
} adder;

static const wf_nn_field fields[] = {{"bias", WF_NN_PARAMETER, offsetof(adder, bias), 0},
                                     {NULL, 0, 0, 0}};
static const wf_nn_type adder_type = {"adder", sizeof(adder), fields, NULL, NULL, NULL};

enum { MICROS = 6 };

static const int uses[MICROS] = {1, 3, 0, 2, 1, 2};

static wf_status run_micro(part *p, adder *m, wf_par_gradients *g, int64_t micro)
{
    wf_tape *tape;
    wf_tensor *y;

    wf_scope_open(p->ctx);
    tape = wf_tape_open(p->ctx);
    y = term(p->ctx, micro);
    for (int u = 0; u < uses[micro]; u++)
        y = wf_mul(wf_nn_use(m, m->bias), y);
    wf_par_gradients_micro(g, NULL, micro, MICROS, 0);
    if (uses[micro])
        GOOD(wf_backward(y, term(p->ctx, micro + 1), false));
    wf_tape_close(tape);
    GOOD(wf_par_gradients_micro_end(g));
    wf_scope_close(p->ctx);
    return WF_OK;
}

static wf_status of_order(part *p, adder *m, wf_par_gradients *g, const int64_t *order,
                          float result[FEATURES])
{
    wf_rank *rank = p->rank;
    wf_tensor *grad = NULL;

    for (int k = 0; k < MICROS; k++)
        GOOD(run_micro(p, m, g, order[k]));
    GOOD(wf_par_gradients_finish(g, &grad));
    NEED(grad);
    memcpy(result, grad->data, FEATURES * sizeof(float));
    wf_tensor_release(grad);
    return WF_OK;
}

static wf_status lacks_some(part *p, adder *m, wf_par_gradients *g)
{
    wf_rank *rank = p->rank;
    wf_tensor *grad = NULL;

    for (int64_t micro = 1; micro < MICROS; micro += 2)
        GOOD(run_micro(p, m, g, micro));
    NEED(wf_par_gradients_finish(g, &grad) == WF_EINVAL && !grad);
    NEED(strstr(wf_context_error(p->ctx)->text,
                "parameter bias lacks micro-steps 1, 3, 5 of 6: run the whole backward pass"));
    wf_context_clear(p->ctx);
    return WF_OK;
}

/* A parameter whose uses differ between micro-steps: new orders, and the same memory once
   more. */
static wf_status of_parameters(part *p)
{
    const wf_dim dim = wf_dim_chunked(FEATURES);
    wf_rank *rank = p->rank;
    adder *m = wf_nn_new(p->ctx, &adder_type);
    wf_par_gradients *g = NULL;
    int64_t order[MICROS] = {0, 1, 2, 3, 4, 5};
    float first[FEATURES], other[FEATURES];

    NEED(m);
    m->bias = wf_nn_parameter_new(p->ctx, 1, &dim, false);
    wf_nn_init_uniform(m->bias, -1, 1);
    wf_par_plan(p->par, &m->base, NULL);
    wf_par_materialize(p->par, &m->base);
    for (int k = 0; k < ORDERS; k++) {
        if (k % 10 == 0) { /* slots that come late, and slots that are there */
            wf_par_gradients_close(g);
            g = wf_par_gradients_open(p->par, 0, 1, &m->bias);
            NEED(g);
        }
        GOOD(of_order(p, m, g, order, k ? other : first));
        NEED(k == 0 || memcmp(first, other, sizeof first) == 0);
        shuffle(order, MICROS);
    }
    GOOD(lacks_some(p, m, g));
    wf_par_gradients_close(g);
    wf_nn_free(&m->base);
    return WF_OK;
}

/* All forward passes, then all walks for inputs, then all for weights, each in an order of its
   own; a module that is recomputed is so in the pass that it ran in. */
static wf_status in_flight(part *p, wf_nn_module *m, wf_par_gradients *g, float *result)
{
    wf_rank *rank = p->rank;
    wf_nn_pass *pass[MICROS];
    wf_tape *tape[MICROS];
    wf_tensor *y[MICROS], *grad = NULL;
    int64_t order[MICROS] = {0, 1, 2, 3, 4, 5};

    wf_scope_open(p->ctx);
    for (int k = 0; k < MICROS; k++) {
        pass[k] = wf_nn_pass_open(p->ctx);
        NEED(wf_nn_pass_switch(p->ctx, pass[k]) == (k ? pass[k - 1] : NULL));
        tape[k] = wf_tape_open(p->ctx);
        y[k] = wf_nn_call(m, wf_source(term(p->ctx, k)));
    }
    wf_nn_pass_switch(p->ctx, NULL);
    shuffle(order, MICROS);
    for (int k = 0; k < MICROS; k++) {
        wf_tape_switch(p->ctx, tape[order[k]]);
        GOOD(wf_backward(y[order[k]], term(p->ctx, order[k] + 1), true));
    }
    shuffle(order, MICROS);
    for (int k = 0; k < MICROS; k++) {
        wf_par_gradients_micro(g, pass[order[k]], order[k], MICROS, 0);
        GOOD(wf_backward_weights(tape[order[k]]));
        GOOD(wf_par_gradients_micro_end(g));
        wf_tape_close(tape[order[k]]);
    }
    for (int k = 0; k < MICROS; k++)
        wf_nn_pass_close(pass[k]);
    GOOD(wf_par_gradients_finish(g, &grad));
    memcpy(result, grad->data, FEATURES * sizeof(float));
    wf_tensor_release(grad);
    wf_scope_close(p->ctx);
    return WF_OK;
}

/* Uses its bias three times. */
static wf_tensor *add_three(wf_nn_module *self, wf_tensor *x)
{
    adder *m = (adder *)self;

    for (int u = 0; u < 3; u++)
        x = wf_mul(wf_nn_use(m, m->bias), x);
    return x;
}

static const wf_nn_type three_type = {"three", sizeof(adder), fields, add_three, NULL, NULL};

/* One pass after the other, each in the one without a name. */
static wf_status by_turns(part *p, wf_nn_module *m, wf_par_gradients *g, float *result)
{
    wf_tensor *grad = NULL;

    for (int64_t k = 0; k < MICROS; k++) {
        wf_tape *tape;

        wf_scope_open(p->ctx);
        tape = wf_tape_open(p->ctx);
        wf_par_gradients_micro(g, NULL, k, MICROS, 0);
        GOOD(
            wf_backward(wf_nn_call(m, wf_source(term(p->ctx, k))), term(p->ctx, k + 1), false));
        wf_tape_close(tape);
        GOOD(wf_par_gradients_micro_end(g));
        wf_scope_close(p->ctx);
    }
    GOOD(wf_par_gradients_finish(g, &grad));
    memcpy(result, grad->data, FEATURES * sizeof(float));
    wf_tensor_release(grad);
    return WF_OK;
}

static wf_status of_passes(part *p)
{
    const wf_dim dim = wf_dim_chunked(FEATURES);
    wf_rank *rank = p->rank;
    adder *m = wf_nn_new(p->ctx, &three_type);
    wf_par_gradients *g;
    float first[FEATURES], other[FEATURES];

    NEED(m);
    m->bias = wf_nn_parameter_new(p->ctx, 1, &dim, false);
    wf_nn_init_uniform(m->bias, -1, 1);
    wf_par_plan(p->par, &m->base, NULL);
    wf_par_materialize(p->par, &m->base);
    g = wf_par_gradients_open(p->par, 0, 1, &m->bias);
    NEED(g);
    GOOD(by_turns(p, &m->base, g, first));
    for (int k = 0; k < ORDERS; k++) {
        GOOD(wf_nn_recompute(&m->base, k % 2 ? "three" : NULL));
        GOOD(in_flight(p, &m->base, g, other));
        NEED(memcmp(first, other, sizeof first) == 0);
    }
    wf_par_gradients_close(g);
    wf_nn_free(&m->base);
    return WF_OK;
}

static void parameters(void)
{
    run_alone(of_parameters, false);
}

static void passes(void)
{
    run_alone(of_passes, false);
}

int main(void)
{
    static const wf_test tests[] = {
        {"uses of a parameter, micro-steps in any order", parameters},
        {"passes in flight", passes},
        {NULL, NULL},
    };

    return wf_test_main("passes", tests);
}
