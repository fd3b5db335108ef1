/*
 * tests/parallel/test_gradient_sum.c - sums over micro-steps have the bits of the midpoint tree, in whatever
 * order terms come and whichever are nothing; and a sum that lacks some is found out.
 */
#include "kernels/ops.h"
#include "parallel/shard/gradient_reduce_internal.h"
#include "parallel/shard/gradient_sum_internal.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

enum { MOST = 40, FEATURES = 3, ORDERS = 30 };

/* Numbers whose sums are rounded, so that their order shows. */
static float term_of(int64_t i, int feature)
{
    return 1.0F / (float)(3 + 7 * i + feature) + (float)((i * 13) % 5);
}

static wf_tensor *term(wf_context *ctx, int64_t i)
{
    const wf_dim dim = wf_dim_chunked(FEATURES);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_GRADIENT);

    for (int f = 0; t && f < FEATURES; f++)
        ((float *)t->data)[f] = term_of(i, f);
    return t;
}

static uint64_t state = 1;

static int64_t random_below(int64_t n)
{
    state = wf_mix64(state + 1);
    return (int64_t)(state % (uint64_t)n);
}

static void shuffle(int64_t *order, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_below(i + 1), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
}

/* The sum of terms first .. first + n - 1 that are there, by the tree's definition. */
static bool by_definition(const bool *there, int64_t first, int64_t n, int f, float *sum)
{
    float older = 0, newer = 0;
    bool a, b;

    if (n == 1) {
        *sum = term_of(first, f);
        return there[first];
    }
    a = by_definition(there, first, n / 2, f, &older);
    b = by_definition(there, first + n / 2, n - n / 2, f, &newer);
    *sum = a && b ? older + newer : a ? older : newer;
    return a || b;
}

/* Add terms in this order; returns how many nodes were open at most after one, -1 on errors. */
static int add_all(wf_context *ctx, wf_par_sum *s, const int64_t *order, const bool *there,
                   int64_t n)
{
    int most = 0;

    for (int64_t k = 0; k < n; k++) {
        int64_t i = order[k];
        bool had = wf_par_sum_has(s, i);

        wf_scope_open(ctx);
        if (wf_par_sum_add(ctx, s, there[i] ? term(ctx, i) : NULL, i, n) != WF_OK)
            most = -1;
        wf_scope_close(ctx);
        if (most < 0 || had || !wf_par_sum_has(s, i))
            return -1;
        most = s->open > most ? s->open : most;
    }
    return most;
}

static bool has_the_bits(const wf_par_sum *s, const bool *there, int64_t n)
{
    const wf_tensor *sum = s->open == 1 ? s->node[0].sum : NULL;

    for (int f = 0; f < FEATURES; f++) {
        float right;

        if (by_definition(there, 0, n, f, &right) != (sum != NULL) ||
            (sum && !same_bits(right, ((const float *)sum->data)[f])))
            return false;
    }
    return s->open == 1;
}

static int log_of(int64_t n)
{
    int log = 0;

    while ((INT64_C(1) << log) < n)
        log++;
    return log;
}

static wf_status any_order(part *p)
{
    wf_rank *rank = p->rank;
    wf_par_sum s = {.node = NULL};
    int64_t order[MOST];
    bool there[MOST];
    char text[64];

    for (int64_t n = 1; n <= MOST; n++)
        for (int k = 0; k < ORDERS; k++) {
            int most;

            for (int64_t i = 0; i < n; i++) {
                order[i] = i;
                there[i] = k % 3 != 2 || random_below(3) > 0;
            }
            if (k > 0)
                shuffle(order, n);
            most = add_all(p->ctx, &s, order, there, n);
            NEED(most > 0 && (k > 0 || most <= log_of(n) + 1));
            NEED(has_the_bits(&s, there, n));
            NEED(!*wf_par_sum_missing(&s, n, text, sizeof text));
            wf_par_sum_clear(&s);
        }
    wf_par_sum_free(&s);
    return WF_OK;
}

/* Without exactness terms are added as they come, in one place. */
static wf_status as_they_come(part *p)
{
    wf_rank *rank = p->rank;
    const int64_t order[4] = {2, 0, 3, 1};
    wf_par_sum s = {.node = NULL};
    float right = term_of(2, 0);

    for (int k = 0; k < 4; k++) {
        wf_scope_open(p->ctx);
        GOOD(wf_par_sum_add(p->ctx, &s, term(p->ctx, order[k]), order[k], 4));
        wf_scope_close(p->ctx);
        NEED(s.open == 1);
        right += k ? term_of(order[k], 0) : 0;
    }
    NEED(same_bits(right, ((const float *)s.node[0].sum->data)[0]));
    wf_par_sum_free(&s);
    return WF_OK;
}

static wf_status what_is_wrong(part *p)
{
    wf_rank *rank = p->rank;
    wf_par_sum s = {.node = NULL};
    char text[64];

    NEED(strcmp(wf_par_sum_missing(&s, 3, text, sizeof text), "1 to 3") == 0);
    for (int64_t i = 1; i <= 5; i += 4)
        GOOD(wf_par_sum_add(p->ctx, &s, NULL, i, 8));
    NEED(strcmp(wf_par_sum_missing(&s, 8, text, sizeof text), "1, 3 to 5, 7 to 8") == 0);
    NEED(wf_par_sum_add(p->ctx, &s, term(p->ctx, 5), 5, 8) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text, "micro-step 6 of 8 came twice"));
    wf_context_clear(p->ctx);
    wf_par_sum_free(&s);
    return WF_OK;
}

/* A module that uses its bias as often as the micro-step says. */
typedef struct adder {
    wf_nn_module base;
    wf_nn_parameter *bias;
} adder;

static const wf_nn_field fields[] = {{"bias", WF_NN_PARAMETER, offsetof(adder, bias), 0},
                                     {NULL, 0, 0, 0}};
static const wf_nn_type adder_type = {"adder", sizeof(adder), fields, NULL, NULL};

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
    wf_par_gradients_micro(g, micro, MICROS);
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

/* A parameter whose uses differ between micro-steps: new orders, and the same memory once more. */
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
            g = wf_par_gradients_open(p->par, 1, &m->bias);
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

static void run(wf_status (*body)(part *), bool exact_off)
{
    const training t = new_training(WF_NN_LLAMA, 3, 1);

    run_parts((part_test){.options = {.tp = 1, .dp = 1, .seed = 3, .exact_off = exact_off},
                          .config = &t.model,
                          .body = body});
}

static void orders(void)
{
    run(any_order, false);
}

static void inexact(void)
{
    run(as_they_come, true);
}

static void errors(void)
{
    run(what_is_wrong, false);
}

static void parameters(void)
{
    run(of_parameters, false);
}

int main(void)
{
    static const wf_test tests[] = {
        {"any order has the bits of the tree", orders},
        {"exact off adds as terms come", inexact},
        {"terms that are missing or come twice", errors},
        {"uses of a parameter, micro-steps in any order", parameters},
        {NULL, NULL},
    };

    return wf_test_main("gradient_sum", tests);
}
