/* tests/nn/test_adafactor.c - Adafactor against plain double arithmetic written from the
   paper's algorithms. */
#include "nn/optim/optimizer.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"
#include <math.h>
#include <string.h>

typedef struct trial {
    wf_nn_optimizer_options options;
    int steps;
    double lr, scale;
} trial;

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

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 11, .positions = 5, .layers = 1,
                                      .heads = 3, .kv_heads = 3,    .width = 6,     .ffn = 7};

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
