/* tests/nn/test_adafactor.c - Adafactor against plain double arithmetic written from the
   paper's algorithms. */
#include "kernels/ops.h"
#include "tests/nn/optimizer_trial.h"
#include <string.h>

/* Returns the root of the mean square of n numbers. */
static double rms_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

enum { LARGEST = 80 }; /* elements of a parameter of the tiny model */

/* A parameter of Adafactor in double: r and c of a matrix, r of each element of a vector. */
typedef struct factors {
    double p[LARGEST], m[LARGEST], r[LARGEST], c[LARGEST], u[LARGEST];
} factors;

/* Sets u to the direction of a matrix. */
static void factored_direction(factors *f, const double *g, int64_t rows, int64_t columns,
                               double b)
{
    double mean = 0;

    for (int64_t i = 0; i < rows + columns; i++) {
        bool row = i < rows;
        double *at = row ? &f->r[i] : &f->c[i - rows], sum = 0;
        int64_t n = row ? columns : rows;

        for (int64_t k = 0; k < n; k++) {
            double x = row ? g[i * columns + k] : g[k * columns + i - rows];

            sum += x * x + 1e-30;
        }
        *at = b * *at + (1 - b) * sum / (double)n;
        mean += row ? *at / (double)rows : 0;
    }
    for (int64_t i = 0; i < rows * columns; i++)
        f->u[i] = g[i] / sqrt(f->r[i / columns] / mean) / sqrt(f->c[i % columns]);
}

/* Makes one step of Shazeer and Stern's algorithms 4 and 5, with a first moment. */
static void factored_step(factors *f, const double *g, const wf_tensor *t, const trial *a,
                          bool decays, int step)
{
    int64_t n = wf_tensor_count(t), columns = t->ndim > 1 ? t->dim[1].size : n;
    double b = 1 - pow(step, -0.8), beta1 = (double)a->options.beta1;
    double rate = a->lr * fmax(1e-3, rms_of(f->p, n));

    if (t->ndim > 1)
        factored_direction(f, g, n / columns, columns, b);
    for (int64_t i = 0; t->ndim < 2 && i < n; i++) {
        f->r[i] = b * f->r[i] + (1 - b) * (g[i] * g[i] + 1e-30);
        f->u[i] = g[i] / sqrt(f->r[i]);
    }
    b = fmax(1, rms_of(f->u, n) / (double)a->options.own[0]);
    for (int64_t i = 0; i < n; i++) {
        f->m[i] = beta1 * f->m[i] + (1 - beta1) * rate * f->u[i] / b;
        f->p[i] -= rate * (decays ? (double)a->options.weight_decay : 0) * f->p[i];
        f->p[i] -= beta1 > 0 ? f->m[i] : rate * f->u[i] / b;
    }
}

static wf_status factored(model_rank *r, void *arg)
{
    const trial *a = arg;
    wf_nn_optimizer *o;
    wf_tensor **grad = calloc((size_t)r->count, sizeof *grad);
    wf_rank *rank = r->rank;

    NEED(grad);
    for (int64_t i = 0; i < r->count; i++)
        fill(r->parameter[i]->tensor, i, 0);
    o = wf_nn_optimizer_new(r->ctx, &a->options, r->count, r->parameter, NULL, NULL);
    NEED(o);
    for (int step = 1; step <= a->steps; step++) {
        wf_scope_open(r->ctx);
        make_gradients(r, step, grad);
        GOOD(wf_nn_optimizer_step(o, grad, (float)a->lr, (float)a->scale));
        wf_scope_close(r->ctx);
    }
    for (int64_t i = 0; i < r->count; i++) {
        const wf_nn_parameter *p = r->parameter[i];
        const wf_tensor *c = wf_nn_optimizer_moment(o, i, 2);
        int64_t n = wf_tensor_count(p->tensor);
        factors f = {.p = {0}};
        double g[LARGEST];

        NEED(n <= LARGEST && (c != NULL) == (p->tensor->ndim > 1));
        NEED(!c || wf_tensor_count(c) == p->tensor->dim[1].size);
        NEED((wf_nn_optimizer_moment(o, i, 0) != NULL) == (a->options.beta1 > 0));
        for (int64_t k = 0; k < n; k++)
            f.p[k] = (double)arbitrary(i, 0, k);
        for (int step = 1; i != IDLE && step <= a->steps; step++) {
            for (int64_t k = 0; k < n; k++)
                g[k] = a->scale * (double)arbitrary(i, step, k);
            factored_step(&f, g, p->tensor, a, p->tensor->ndim > 1, step);
        }
        for (int64_t k = 0; k < n; k++)
            NEED(close_to(p->tensor, k, f.p[k]));
    }
    wf_nn_optimizer_free(o);
    free(grad);
    return WF_OK;
}

static void adafactor(void)
{
    static const trial list[] = {
        {{WF_NN_ADAFACTOR, .beta1 = 0.8f, .weight_decay = 0.3f, .own = {0.25f}}, 4, 0.3, 0.5},
        {{WF_NN_ADAFACTOR, .weight_decay = 0.3f, .own = {2}}, 4, 0.3, 1},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        on_model_ranks(
            &(model_test){.config = tiny, .body = factored, .arg = (void *)&list[i]});
}

int main(void)
{
    static const wf_test tests[] = {{"Adafactor by the formula", adafactor}, {NULL, NULL}};

    return wf_test_main("adafactor", tests);
}
