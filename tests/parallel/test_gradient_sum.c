/*
 * tests/parallel/test_gradient_sum.c - sums over micro-steps have the bits of the midpoint
 * tree, in whatever order terms come and whichever are nothing; and a sum knows what it lacks.
 */
#include "parallel/shard/gradient_sum_internal.h"
#include "tests/parallel/terms.h"

enum { MOST = 40 };

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

static void orders(void)
{
    run_alone(any_order, false);
}

static void inexact(void)
{
    run_alone(as_they_come, true);
}

static void errors(void)
{
    run_alone(what_is_wrong, false);
}

int main(void)
{
    static const wf_test tests[] = {
        {"any order has the bits of the tree", orders},
        {"exact off adds as terms come", inexact},
        {"terms that are missing or come twice", errors},
        {NULL, NULL},
    };

    return wf_test_main("gradient_sum", tests);
}
