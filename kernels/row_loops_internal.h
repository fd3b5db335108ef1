/*
 * kernels/row_loops_internal.h - one row of each op of kernels/row_ops.c, over numbers of the
 * type T. A file defines T and ROW_LOOP (how functions are declared) and includes this once.
 */
#define ROW_ARGUMENTS const wf_row_job *j, int64_t row, const T *const *in, T *const *out

/* Returns whether a comes before b: a greater number (a lesser one, `least`), a NaN before all,
   the lesser index of equal ones. */
ROW_LOOP bool comes_before(bool least, T a, T i, T b, T k)
{
    if (a != a || b != b)
        return a != a && (b == b || i < k);
    return a == b ? i < k : least ? a < b : a > b;
}

/* Heap of n entries, the last one to come on top: entry at `at` moves down. */
ROW_LOOP void sink(bool least, T *x, T *index, int64_t n, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        T a, i;

        if (child >= n)
            return;
        if (child + 1 < n &&
            comes_before(least, x[child], index[child], x[child + 1], index[child + 1]))
            child++;
        if (comes_before(least, x[child], index[child], x[at], index[at]))
            return;
        a = x[at];
        i = index[at];
        x[at] = x[child];
        index[at] = index[child];
        x[child] = a;
        index[child] = i;
        at = child;
    }
}

/* Finds the first k in order, by a heap of those that are kept; the order is one of all, so no
   other algorithm gives other bits. */
ROW_LOOP void topk_row(ROW_ARGUMENTS)
{
    int64_t n = j->width_in[0], k = j->width_out[0];
    bool least = j->attr.reverse;
    T *x = out[0], *index = out[1];

    (void)row;
    for (int64_t i = 0; i < k; i++) {
        x[i] = in[0][i];
        index[i] = (T)i;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sink(least, x, index, k, i);
    for (int64_t i = k; i < n && k > 0; i++)
        if (comes_before(least, in[0][i], (T)i, x[0], index[0])) {
            x[0] = in[0][i];
            index[0] = (T)i;
            sink(least, x, index, k, 0);
        }
    for (int64_t i = k - 1; i > 0; i--) {
        T a = x[i], at = index[i];

        x[i] = x[0];
        index[i] = index[0];
        x[0] = a;
        index[0] = at;
        sink(least, x, index, i, 0);
    }
}

/* y[i] = x[index[i]] */
ROW_LOOP void gather_row(ROW_ARGUMENTS)
{
    (void)row;
    for (int64_t i = 0; i < j->width_in[1]; i++)
        out[0][i] =
            in[1][i] >= 0 && in[1][i] < (T)j->width_in[0] ? in[0][(int64_t)in[1][i]] : (T)NAN;
}

/* y[index[i]] += values[i], in this order, from zeros */
ROW_LOOP void scatter_row(ROW_ARGUMENTS)
{
    (void)row;
    for (int64_t i = 0; i < j->width_out[0]; i++)
        out[0][i] = 0;
    for (int64_t i = 0; i < j->width_in[1]; i++)
        if (in[1][i] >= 0 && in[1][i] < (T)j->width_out[0])
            out[0][(int64_t)in[1][i]] += in[2][i];
}

ROW_LOOP void one_hot_row(ROW_ARGUMENTS)
{
    (void)row;
    for (int64_t i = 0; i < j->width_out[0]; i++)
        out[0][i] = in[0][0] == (T)i ? 1 : 0;
}

/* y[i] = x[0] + .. + x[i], one chain; from the end, x[i] + .. + x[n - 1] */
ROW_LOOP void cumsum_row(ROW_ARGUMENTS)
{
    int64_t n = j->width_in[0];
    T sum = 0;

    (void)row;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = j->attr.reverse ? n - 1 - k : k;

        sum += in[0][i];
        out[0][i] = sum;
    }
}

/* Copies elements of a matrix whose column - row, in the whole, is at most (at least) the
   diagonal. */
ROW_LOOP void triangle_row(ROW_ARGUMENTS)
{
    int64_t m = j->first_row + (j->m ? row % j->m : 0);

    for (int64_t i = 0; i < j->width_out[0]; i++) {
        int64_t diagonal = j->first_column + i - m;
        bool kept = j->attr.reverse ? diagonal >= j->attr.first : diagonal <= j->attr.first;

        out[0][i] = kept ? in[0][i] : 0;
    }
}

ROW_LOOP void concat_row(ROW_ARGUMENTS)
{
    (void)row;
    for (int64_t i = 0; i < j->width_in[0]; i++)
        out[0][i] = in[0][i];
    for (int64_t i = 0; i < j->width_in[1]; i++)
        out[0][j->width_in[0] + i] = in[1][i];
}

ROW_LOOP void pad_row(ROW_ARGUMENTS)
{
    (void)row;
    for (int64_t i = 0; i < j->width_out[0]; i++) {
        int64_t from = i - j->first;

        out[0][i] = from >= 0 && from < j->width_in[0] ? in[0][from] : (T)j->attr.value;
    }
}

/* ROW_OP(topk) and so on. */
#define ROW_OPS                                                                                \
    ROW_OP(topk)                                                                               \
    ROW_OP(gather)                                                                             \
    ROW_OP(scatter)                                                                            \
    ROW_OP(one_hot)                                                                            \
    ROW_OP(cumsum)                                                                             \
    ROW_OP(triangle)                                                                           \
    ROW_OP(concat)                                                                             \
    ROW_OP(pad)
