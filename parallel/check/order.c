/* parallel/check/order.c - a gradient whose rows or columns are the right ones in another
   order. */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HALVES = 1, ROTATION, BLOCKS, SOME };

typedef struct side {
    const float *from;
    int64_t count, length, step, between;
} side;

typedef struct key {
    double at; /* a line's product with a fixed vector */
    int64_t line;
} key;

/* A fixed vector of numbers between -1 and 1. */
static double probe(int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + 12345u;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)x / 2147483648.0 - 1;
}

static double line_norm(const side *s, int64_t line)
{
    double sum = 0;

    for (int64_t i = 0; i < s->length; i++) {
        const double x = (double)s->from[line * s->step + i * s->between];

        sum += x * x;
    }
    return sqrt(sum);
}

static double line_distance(const side *a, int64_t i, const side *b, int64_t k)
{
    double sum = 0;

    for (int64_t e = 0; e < a->length; e++) {
        const double d = (double)a->from[i * a->step + e * a->between] -
                         (double)b->from[k * b->step + e * b->between];

        sum += d * d;
    }
    return sqrt(sum);
}

static int by_key(const void *a, const void *b)
{
    const double x = ((const key *)a)->at, y = ((const key *)b)->at;

    return x < y ? -1 : x > y;
}

static void fill_keys(const side *s, key *k)
{
    for (int64_t line = 0; line < s->count; line++) {
        k[line] = (key){0, line};
        for (int64_t i = 0; i < s->length; i++)
            k[line].at += probe(i) * (double)s->from[line * s->step + i * s->between];
    }
    qsort(k, (size_t)s->count, sizeof *k, by_key);
}

/* Returns the nearest unmatched line of g for line `i` of x, if it is near enough; -1: none. */
static int64_t match(const side *x, int64_t i, double at, const side *g, const key *keys,
                     const bool *used, double near)
{
    int64_t low = 0, high = g->count, best = -1;
    const double room = near * sqrt((double)x->length);
    double least = near;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (keys[middle].at < at - room)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < g->count && keys[low].at <= at + room; low++) {
        const double d =
            used[keys[low].line] ? INFINITY : line_distance(x, i, g, keys[low].line);

        if (d <= least) {
            least = d;
            best = keys[low].line;
        }
    }
    return best;
}

/* from[i]: the line of g that line i of x is. false: some is none of them. */
static bool find_order(const side *x, const side *g, double tolerance, double floor, key *keys,
                       bool *used, int64_t *from)
{
    int64_t moved = 0;

    fill_keys(g, keys);
    for (int64_t i = 0; i < x->count; i++) { /* lines that are where they belong */
        const double near = 4 * tolerance * (line_norm(x, i) + floor);

        from[i] = line_distance(x, i, g, i) <= near ? i : -1;
        if (from[i] == i)
            used[i] = true;
    }
    for (int64_t i = 0; i < x->count; i++) {
        double at = 0;

        if (from[i] >= 0)
            continue;
        for (int64_t e = 0; e < x->length; e++)
            at += probe(e) * (double)x->from[i * x->step + e * x->between];
        from[i] = match(x, i, at, g, keys, used, 4 * tolerance * (line_norm(x, i) + floor));
        if (from[i] < 0)
            return false;
        used[from[i]] = true;
        moved++;
    }
    return moved > 1;
}

static bool is_halves(const int64_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (from[i] != (i + n / 2) % n)
            return false;
    return n % 2 == 0;
}

/* The rotation's pairs: neighbours there, i and i + half a head here, or the other way
   round. */
static bool is_rotation(const int64_t *from, int64_t n, int64_t head)
{
    bool neighbours = head > 2 && head % 2 == 0 && n % head == 0, halves = neighbours;
    bool some = false;

    for (int64_t i = 0; i < n && (neighbours || halves); i++) {
        const int64_t begin = i - i % head, j = i % head;
        const int64_t a = begin + (j % 2 ? head / 2 + j / 2 : j / 2);
        const int64_t b = begin + (j < head / 2 ? 2 * j : 2 * (j - head / 2) + 1);

        neighbours = neighbours && (from[i] == a || from[i] == i);
        halves = halves && (from[i] == b || from[i] == i);
        some = some || from[i] != i;
    }
    return some && (neighbours || halves);
}

/* The longest block that moves as one everywhere. */
static int64_t block_of(const int64_t *from, int64_t n)
{
    for (int64_t b = n / 2; b > 1; b--) {
        bool whole = n % b == 0;

        for (int64_t i = 0; whole && i < n; i++)
            whole = i % b == 0 ? from[i] % b == 0 : from[i] == from[i - 1] + 1;
        if (whole)
            return b;
    }
    return 1;
}

static void name_order(wf_check_fit *fit, const int64_t *from, int64_t n, int64_t head,
                       const char *what)
{
    const int64_t block = block_of(from, n);
    int64_t first = 0;

    while (from[first] == first)
        first++;
    fit->second = is_halves(from, n)           ? HALVES
                  : is_rotation(from, n, head) ? ROTATION
                  : block > 1                  ? BLOCKS
                                               : SOME;
    if (fit->second == HALVES)
        snprintf(fit->text, sizeof fit->text, "the two halves of its %s are swapped", what);
    else if (fit->second == ROTATION)
        snprintf(fit->text, sizeof fit->text,
                 "%s of heads of %lld in the other order of rotation", what, (long long)head);
    else if (fit->second == BLOCKS)
        snprintf(fit->text, sizeof fit->text,
                 "blocks of %lld %s in another order: block %lld is where %lld belongs",
                 (long long)block, what, (long long)(from[first] / block),
                 (long long)(first / block));
    else
        snprintf(fit->text, sizeof fit->text, "%s in another order: %lld is where %lld belongs",
                 what, (long long)from[first], (long long)first);
}

static bool fit_direction(wf_check_tensor *t, bool columns, double tolerance)
{
    const int64_t n = columns ? t->columns : t->rows, m = columns ? t->rows : t->columns;
    const int64_t step = columns ? 1 : t->columns, between = columns ? t->columns : 1;
    const side x = {t->theirs, n, m, step, between}, g = {t->reference, n, m, step, between};
    key *keys = malloc((size_t)n * sizeof *keys);
    int64_t *from = malloc((size_t)n * sizeof *from);
    bool *used = calloc((size_t)n, sizeof *used), found;

    found = keys && from && used && n > 1 && (m > 1 || (tolerance <= 1e-3 && n >= 8)) &&
            find_order(&x, &g, tolerance, t->floor / sqrt((double)n), keys, used, from);
    if (found) {
        t->fit = (wf_check_fit){.kind = columns ? WF_CHECK_COLUMNS_MOVED : WF_CHECK_ROWS_MOVED};
        name_order(&t->fit, from, n, t->head_dim,
                   columns        ? "columns"
                   : t->ndim == 1 ? "elements"
                                  : "rows");
    }
    free(keys);
    free(from);
    free(used);
    return found;
}

bool wf_check_fit_order(wf_check_tensor *t, double tolerance)
{
    return fit_direction(t, false, tolerance) ||
           (t->ndim == 2 && fit_direction(t, true, tolerance));
}
