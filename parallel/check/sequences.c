/*
 * parallel/check/sequences.c - the weights that sequences had in a gradient: the vectors'
 * gradients are a sum over sequences, and least squares finds how often each has counted. A
 * rank's share that is missing, and a mean of means, show as such weights.
 */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Solves a x = b of n unknowns in place by elimination; false: singular. */
static bool solve(double *a, double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t pivot = i;

        for (int64_t k = i + 1; k < n; k++)
            pivot = fabs(a[k * n + i]) > fabs(a[pivot * n + i]) ? k : pivot;
        if (!(fabs(a[pivot * n + i]) > 1e-300))
            return false;
        for (int64_t c = 0; pivot != i && c < n; c++) {
            const double swap = a[i * n + c];

            a[i * n + c] = a[pivot * n + c];
            a[pivot * n + c] = swap;
        }
        if (pivot != i) {
            const double swap = b[i];

            b[i] = b[pivot];
            b[pivot] = swap;
        }
        for (int64_t k = i + 1; k < n; k++) {
            const double f = a[k * n + i] / a[i * n + i];

            for (int64_t c = i; c < n; c++)
                a[k * n + c] -= f * a[i * n + c];
            b[k] -= f * b[i];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t c = i + 1; c < n; c++)
            b[i] -= a[i * n + c] * b[c];
        b[i] /= a[i * n + i];
    }
    return true;
}

/* Their gradients of all vectors, as a row of by_sequence. */
static float *their_vectors(const wf_check_reference *r)
{
    float *x = calloc((size_t)r->vectors + 1, sizeof *x);

    for (int64_t i = 0; x && i < r->count; i++)
        if (r->tensor[i].ndim == 1 && r->tensor[i].theirs)
            memcpy(x + r->tensor[i].vector, r->tensor[i].theirs,
                   (size_t)r->tensor[i].count * sizeof *x);
    return x;
}

static double residual(const wf_check_reference *r, const float *x, const double *weight,
                       int64_t n)
{
    double sum = 0;

    for (int64_t v = 0; v < r->vectors; v++) {
        double d = (double)x[v];

        for (int64_t s = 0; s < n; s++)
            d -= weight[s] * (double)r->by_sequence[s * r->vectors + v];
        sum += d * d;
    }
    return sqrt(sum);
}

bool wf_check_fit_sequences(const wf_check_reference *r, const wf_check_batch *batch,
                            double tolerance, double *weight)
{
    const int64_t n = batch->sequences;
    double *a = calloc((size_t)(n * n), sizeof *a);
    float *x = their_vectors(r);
    bool found = a && x && n > 1 && n <= 512 && r->vectors >= 2 * n, differs = false;

    for (int64_t i = 0; found && i < n; i++) {
        const float *row = r->by_sequence + i * r->vectors;

        weight[i] = wf_check_sum(x, row, r->vectors).xg;
        for (int64_t k = 0; k <= i; k++)
            a[i * n + k] = a[k * n + i] =
                wf_check_sum(row, r->by_sequence + k * r->vectors, r->vectors).xg;
    }
    found = found && solve(a, weight, n) &&
            residual(r, x, weight, n) <= 4 * tolerance * wf_check_norm(x, r->vectors);
    for (int64_t i = 1; found && i < n; i++)
        differs = differs || fabs(weight[i] - weight[0]) > 10 * tolerance;
    free(a);
    free(x);
    return found && differs;
}

/* Returns true where each of `groups` runs of sequences has the weight that a mean of its own
   gives it. */
static bool is_mean_of_means(const wf_check_reference *r, int64_t n, int64_t groups,
                             bool strided, const double *weight, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t counted = 0;
        double wanted;

        for (int64_t k = 0; k < n; k++)
            if (strided ? k % groups == i % groups : k / (n / groups) == i / (n / groups))
                counted += r->sequence_counted[k];
        wanted = counted ? (double)r->counted / (double)groups / (double)counted : 0;
        if (fabs(weight[i] - wanted) > 20 * tolerance * (wanted + 1) && r->sequence_counted[i])
            return false;
    }
    return true;
}

static void name_weights(const double *weight, int64_t n, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "sequences weigh");

    for (int64_t i = 0; i < n && used < size - 24; i++) {
        if (i == 8) {
            snprintf(text + used, size - used, ", ..");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s %.4g", i ? "," : "",
                                 fabs(weight[i]) < 1e-4 ? 0 : weight[i]);
    }
}

void wf_check_name_sequences(const wf_check_reference *r, const wf_check_batch *batch,
                             const double *weight, double tolerance, wf_check_finding *f)
{
    const int64_t n = batch->sequences;
    int64_t absent = 0;

    name_weights(weight, n, f->what, sizeof f->what);
    for (int64_t i = 0; i < n; i++)
        absent += fabs(weight[i]) <= 20 * tolerance && r->sequence_counted[i] > 0;
    if (absent) {
        snprintf(f->id, sizeof f->id, "sequences-missing");
        snprintf(
            f->cause, sizeof f->cause,
            "%lld of %lld sequences do not count: the gradients of a data-parallel rank, or "
            "of a micro-batch, are not summed (no all-reduce, or overwritten)",
            (long long)absent, (long long)n);
        return;
    }
    snprintf(f->id, sizeof f->id, "sequences-weighted");
    for (int64_t groups = 2; groups <= n; groups++)
        for (int strided = 0; n % groups == 0 && strided < 2; strided++)
            if (is_mean_of_means(r, n, groups, strided, weight, tolerance)) {
                snprintf(f->id, sizeof f->id, "mean-of-means");
                snprintf(f->cause, sizeof f->cause,
                         "a mean of %lld means, each over the tokens of a rank's or "
                         "micro-batch's own %lld sequences: the loss has to be divided by the "
                         "tokens of the whole batch (%lld)",
                         (long long)groups, (long long)(n / groups), (long long)r->counted);
                return;
            }
    snprintf(f->cause, sizeof f->cause,
             "sequences do not count by their tokens: ranks or micro-batches have scales of "
             "their own");
}
