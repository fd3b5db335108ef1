/*
 * tests/nn/test_muon.c - Newton-Schulz against the same steps in double, what it is for
 * (singular values near 1), and Muon's update against its formula.
 */
#include "nn/optim/muon.h"
#include "kernels/ops.h"
#include "nn/optim/optimizer.h"
#include "tests/nn/model_ranks.h"
#include <math.h>

enum { MOST = 40 };

typedef struct matrix {
    int rows, columns;
    double x[MOST][MOST];
} matrix;

static matrix product(const matrix *a, const matrix *b)
{
    matrix c = {.rows = a->rows, .columns = b->columns};

    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < b->columns; j++)
            for (int k = 0; k < a->columns; k++)
                c.x[i][j] += a->x[i][k] * b->x[k][j];
    return c;
}

static matrix transposed(const matrix *a)
{
    matrix t = {.rows = a->columns, .columns = a->rows};

    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < a->columns; j++)
            t.x[j][i] = a->x[i][j];
    return t;
}

/* As the paper has it: x x^T on the left, whichever side is smaller. */
static matrix newton_schulz(matrix x)
{
    double norm = 0;

    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < x.columns; j++)
            norm += x.x[i][j] * x.x[i][j];
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < x.columns; j++)
            x.x[i][j] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        matrix t = transposed(&x), a = product(&x, &t), aa = product(&a, &a), mix = a, y;

        for (int i = 0; i < a.rows; i++)
            for (int j = 0; j < a.columns; j++)
                mix.x[i][j] = -4.7750 * a.x[i][j] + 2.0315 * aa.x[i][j];
        y = product(&mix, &x);
        for (int i = 0; i < x.rows; i++)
            for (int j = 0; j < x.columns; j++)
                x.x[i][j] = 3.4445 * x.x[i][j] + y.x[i][j];
    }
    return x;
}

static wf_tensor *tensor_of(wf_context *ctx, const matrix *m)
{
    wf_dim dims[] = {wf_dim_chunked(m->rows), wf_dim_width(m->columns)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int i = 0; t && i < m->rows; i++)
        for (int j = 0; j < m->columns; j++)
            ((float *)t->data)[i * m->columns + j] = (float)m->x[i][j];
    return t;
}

static matrix matrix_like(int rows, int columns)
{
    matrix m = {.rows = rows, .columns = columns};

    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            m.x[i][j] = (double)(float)sin(1 + i * 12.9898 + j * 78.233 + i * j);
    return m;
}

static double difference(const wf_tensor *t, const matrix *m)
{
    double most = 0;

    for (int i = 0; i < m->rows; i++)
        for (int j = 0; j < m->columns; j++) {
            double d = fabs((double)((float *)t->data)[i * m->columns + j] - m->x[i][j]);

            most = d > most ? d : most;
        }
    return most;
}

static void has_the_values_of_the_paper(void)
{
    static const int sizes[][2] = {{1, 1},   {5, 5},   {4, 9},  {9, 4},
                                   {40, 17}, {17, 40}, {40, 40}};
    wf_context *ctx = lone_context(1);

    for (size_t i = 0; ctx && i < sizeof sizes / sizeof *sizes; i++) {
        matrix m = matrix_like(sizes[i][0], sizes[i][1]), right = newton_schulz(m), t, gram;
        wf_tensor *x = tensor_of(ctx, &m);
        double trace = 0;
        int small = m.rows < m.columns ? m.rows : m.columns;

        CU_ASSERT_EQUAL(wf_nn_orthogonalize(x), WF_OK);
        CU_ASSERT(difference(x, &right) < 2e-4);
        t = transposed(&right);
        gram = product(&right, &t);
        for (int k = 0; k < m.rows; k++)
            trace += gram.x[k][k];
        CU_ASSERT(trace < 1.3 * small); /* squares of singular values, 0.7 to 1.2 each */
        if (m.rows != m.columns)
            CU_ASSERT(trace > 0.45 * small);
    }
    close_lone(ctx, WF_OK);
}

static void zeros_and_vectors(void)
{
    wf_context *ctx = lone_context(1);
    matrix zero = {.rows = 3, .columns = 5};
    wf_tensor *x = tensor_of(ctx, &zero), *vector;

    CU_ASSERT_EQUAL(wf_nn_orthogonalize(x), WF_OK);
    CU_ASSERT_EQUAL(difference(x, &zero), 0);
    vector = wf_tensor_new(ctx, WF_F32, 1, x->dim, NULL, WF_MEMORY_ACTIVATION);
    CU_ASSERT_EQUAL(wf_nn_orthogonalize(vector), WF_ESHAPE);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "is not a whole matrix on this rank"));
    wf_context_clear(ctx);
    close_lone(ctx, WF_OK);
}

/* Two steps with momentum, Nesterov, decay and a scaled gradient. */
static void update_is_the_formula(void)
{
    enum { ROWS = 6, COLUMNS = 10 };
    const double lr = 0.02, beta = 0.9, decay = 0.1, scale = 0.5;
    const wf_nn_optimizer_options options = {WF_NN_MUON, .beta1 = 0.9f, .beta2 = 0.95f,
                                             .eps = 1e-8f, .weight_decay = 0.1f};
    wf_context *ctx = lone_context(1);
    matrix p = matrix_like(ROWS, COLUMNS), m = {.rows = ROWS, .columns = COLUMNS};
    wf_dim dims[] = {wf_dim_chunked(ROWS), wf_dim_width(COLUMNS)};
    wf_nn_parameter *w = wf_nn_parameter_new(ctx, 2, dims, true);
    wf_nn_optimizer *o;

    wf_tensor_release(w->tensor);
    w->tensor = wf_tensor_retain(tensor_of(ctx, &p));
    w->matrix = true;
    o = wf_nn_optimizer_new(ctx, &options, 1, &w, NULL, NULL);
    CU_ASSERT_FATAL(o && wf_nn_optimizer_is_matrix(o, 0));
    CU_ASSERT_PTR_NOT_NULL(wf_nn_optimizer_moment(o, 0, 0));
    CU_ASSERT_PTR_NULL(wf_nn_optimizer_moment(o, 0, 1));
    for (int step = 1; step <= 2; step++) {
        matrix g = matrix_like(ROWS, COLUMNS), u = g;
        wf_tensor *grad;

        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                g.x[i][j] = (double)(float)cos(step * 3.0 + i + 7 * j);
        grad = tensor_of(ctx, &g);
        CU_ASSERT_EQUAL(wf_nn_optimizer_step(o, &grad, (float)lr, (float)scale), WF_OK);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                m.x[i][j] = beta * m.x[i][j] + scale * g.x[i][j];
                u.x[i][j] = scale * g.x[i][j] + beta * m.x[i][j];
            }
        u = newton_schulz(u);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                p.x[i][j] -= lr * (0.2 * sqrt(COLUMNS) * u.x[i][j] + decay * p.x[i][j]);
        CU_ASSERT(difference(w->tensor, &p) < 2e-5);
        CU_ASSERT(difference(wf_nn_optimizer_moment(o, 0, 0), &m) < 1e-6);
    }
    wf_nn_optimizer_free(o);
    wf_nn_parameter_free(w);
    close_lone(ctx, WF_OK);
}

/* Matrices of experts are updated as matrices by themselves. */
static void experts_are_matrices(void)
{
    enum { EXPERTS = 3, ROWS = 6, COLUMNS = 10, EACH = ROWS * COLUMNS };
    const wf_nn_optimizer_options options = {WF_NN_MUON, .beta1 = 0.9f, .beta2 = 0.95f,
                                             .eps = 1e-8f, .weight_decay = 0.1f};
    const wf_dim dims[] = {wf_dim_experts(EXPERTS), wf_dim_chunked(ROWS),
                           wf_dim_width(COLUMNS)};
    wf_context *ctx = lone_context(1);
    wf_nn_parameter *w[1 + EXPERTS] = {wf_nn_parameter_new(ctx, 3, dims, true)};
    wf_tensor *grad[1 + EXPERTS];
    wf_nn_optimizer *o;

    for (int e = 1; e <= EXPERTS; e++)
        w[e] = wf_nn_parameter_new(ctx, 2, dims + 1, true);
    for (int e = 0; e <= EXPERTS; e++) {
        const int n = e ? 2 : 3;
        const wf_dim *of = e ? dims + 1 : dims;

        wf_tensor_release(w[e]->tensor);
        w[e]->tensor =
            wf_tensor_retain(wf_tensor_new(ctx, WF_F32, n, of, NULL, WF_MEMORY_PARAMETER));
        grad[e] = wf_tensor_new(ctx, WF_F32, n, of, NULL, WF_MEMORY_GRADIENT);
        w[e]->matrix = true;
        for (int64_t i = 0; i < wf_tensor_count(grad[e]); i++) {
            const double at = (double)(i + (e ? (e - 1) * EACH : 0));

            ((float *)w[e]->tensor->data)[i] = (float)sin(at);
            ((float *)grad[e]->data)[i] = (float)cos(3 * at);
        }
    }
    o = wf_nn_optimizer_new(ctx, &options, 1 + EXPERTS, w, NULL, NULL);
    CU_ASSERT_FATAL(o && wf_nn_optimizer_is_matrix(o, 0));
    for (int step = 0; step < 2; step++)
        CU_ASSERT_EQUAL(wf_nn_optimizer_step(o, grad, 0.02f, 1), WF_OK);
    for (int e = 1; e <= EXPERTS; e++)
        CU_ASSERT_EQUAL(memcmp((float *)w[0]->tensor->data + (e - 1) * EACH, w[e]->tensor->data,
                               EACH * sizeof(float)),
                        0);
    wf_nn_optimizer_free(o);
    for (int e = 0; e <= EXPERTS; e++)
        wf_nn_parameter_free(w[e]);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"Newton-Schulz of the paper, in double", has_the_values_of_the_paper},
        {"zeros stay zeros, vectors are refused", zeros_and_vectors},
        {"an update is its formula", update_is_the_formula},
        {"experts are matrices", experts_are_matrices},
        {NULL, NULL},
    };

    return wf_test_main("muon", tests);
}
