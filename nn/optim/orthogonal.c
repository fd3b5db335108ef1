/*
 * nn/optim/orthogonal.c - orthogonal initialisation, an example of a recipe that needs the
 * whole tensor. Copy this file to add one.
 *
 * The QR decomposition of a matrix of normal numbers, by Gram and Schmidt with every vector
 * projected twice ("twice is enough": Giraud, Langou, Rozloznik & van den Eshof 2005). Their R
 * has a positive diagonal by construction, so that Q is uniform among the orthogonal matrices
 * and no signs are to be set right (Mezzadri 2007, "How to generate random matrices").
 *
 * Vectors are rounded to fp32 when they are done; the one that is worked on, and all sums, are
 * in double, in 8 lanes: lane l takes the elements l, l + 8, .. in order, and the lanes are
 * added 4, 2, 1 apart. That is the same expression in every layout and on every machine.
 */
#include "core/host_data.h"
#include "core/numerics/random.h"
#include "nn/module.h"

enum { LANES = 8 };

static double dot(const float *a, const double *v, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)a[i + l] * v[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)a[i] * v[i];
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

static void add_multiple(double *v, double factor, const float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] += factor * (double)a[i];
}

/* A matrix of which the first `done` vectors, rows or columns, are orthonormal. */
typedef struct matrix {
    float *x;
    int64_t rows, columns;
    double *v, *share; /* the vector that is worked on; its product with each that is done */
} matrix;

/* v = v - Q^T (Q v), the vectors being rows 0 .. done - 1 */
static void project_rows(const matrix *m, int64_t done)
{
    for (int64_t i = 0; i < done; i++)
        m->share[i] = dot(m->x + i * m->columns, m->v, m->columns);
    for (int64_t i = 0; i < done; i++)
        add_multiple(m->v, -m->share[i], m->x + i * m->columns, m->columns);
}

/* Projects where the vectors are columns, a row of all at a time. */
static void project_columns(const matrix *m, int64_t done)
{
    for (int64_t i = 0; i < done; i++)
        m->share[i] = 0;
    for (int64_t r = 0; r < m->rows; r++)
        add_multiple(m->share, m->v[r], m->x + r * m->columns, done);
    for (int64_t r = 0; r < m->rows; r++)
        m->v[r] -= dot(m->x + r * m->columns, m->share, done);
}

static double length_of(const double *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return __builtin_sqrt(sum);
}

static void orthonormalise(const matrix *m)
{
    bool by_rows = m->rows <= m->columns;
    int64_t count = by_rows ? m->rows : m->columns, n = by_rows ? m->columns : m->rows;
    int64_t next = by_rows ? m->columns : 1, step = by_rows ? 1 : m->columns;

    for (int64_t k = 0; k < count; k++) {
        float *vector = m->x + k * next;
        double length;

        for (int64_t i = 0; i < n; i++)
            m->v[i] = (double)vector[i * step];
        for (int twice = 0; twice < 2; twice++) {
            if (by_rows)
                project_rows(m, k);
            else
                project_columns(m, k);
        }
        length = length_of(m->v, n);
        for (int64_t i = 0; i < n; i++)
            vector[i * step] = (float)(m->v[i] / length);
    }
}

static wf_status make(float *x, const wf_tensor *like, const wf_init_site *site)
{
    int64_t count = wf_tensor_count(like), rows = like->ndim ? like->dim[0].size : 1, columns;
    size_t bytes;
    double *room;

    if (count == 0)
        return WF_OK;
    columns = count / rows;
    bytes = (size_t)(rows + columns) * sizeof *room;
    room = wf_data_take(like->ctx, bytes, WF_MEMORY_WORKSPACE);
    if (!room)
        return wf_context_status(like->ctx);
    wf_random_fill_normal(x, count, site->key, site->stream, 0);
    /* the vector is the longer one, the products are as many as vectors */
    orthonormalise(&(matrix){.x = x,
                             .rows = rows,
                             .columns = columns,
                             .v = room,
                             .share = room + (rows > columns ? rows : columns)});
    for (int64_t i = 0; i < count; i++)
        x[i] *= site->arg[0];
    wf_data_give(like->ctx, room, bytes, WF_MEMORY_WORKSPACE);
    return WF_OK;
}

static const wf_nn_init_op orthogonal = {"orthogonal", 1, .whole = make};

void wf_nn_init_orthogonal(wf_nn_parameter *parameter, float gain)
{
    wf_nn_init_apply(parameter, &orthogonal, &gain);
}
