/*
 * tests/mesh/test_comm_rows.c - collectives over tensors cut along an inner dim, whose parts
 * lie in rows: on both paths, with uneven and empty parts, to the bit; and what is refused.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/ranks.h"

enum { N_BUFFERS = 3, ROWS = 6, OUT_ROWS = 4 };

static const int64_t widths[N_BUFFERS] = {1, 7,
                                          2000}; /* a part's row is so wide, times 0, 1 or 2 */

/* Elements of a row of member m's part. */
static int64_t width(int m, int64_t b)
{
    return widths[b] * ((m + b) % 3);
}

static int64_t all_cuts(int64_t *cuts, int size, int64_t b)
{
    cuts[0] = 0;
    for (int m = 0; m < size; m++)
        cuts[m + 1] = cuts[m] + ROWS * width(m, b);
    return cuts[size];
}

/* Returns the index in `total` elements of element k of a part of n elements, after `first`. */
static int64_t element_of(int64_t rows, int64_t first, int64_t n, int64_t total, int64_t k)
{
    int64_t row = n / rows;

    return k / row * (total / rows) + first / rows + k % row;
}

typedef struct side {
    float *in[N_BUFFERS], *out[N_BUFFERS];
    int64_t *cuts[N_BUFFERS], *out_cuts[N_BUFFERS];
    wf_comm_buffer buffer[N_BUFFERS];
} side;

static void open_side(side *s, int64_t most, int size)
{
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        s->in[b] = calloc((size_t)most + 1, sizeof(float));
        s->out[b] = calloc((size_t)most + 1, sizeof(float));
        s->cuts[b] = calloc((size_t)size + 1, sizeof(int64_t));
        s->out_cuts[b] = calloc((size_t)size + 1, sizeof(int64_t));
        s->buffer[b] = (wf_comm_buffer){.in = s->in[b],
                                        .out = s->out[b],
                                        .cuts = s->cuts[b],
                                        .out_cuts = s->out_cuts[b],
                                        .rows = ROWS,
                                        .out_rows = OUT_ROWS};
    }
}

static void close_side(side *s)
{
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        free(s->in[b]);
        free(s->out[b]);
        free(s->cuts[b]);
        free(s->out_cuts[b]);
    }
}

static int64_t most_of(int size)
{
    return 2 * ROWS * OUT_ROWS * widths[N_BUFFERS - 1] * size;
}

static wf_status scatter(wf_rank *rank, wf_comm *c)
{
    wf_collective what = {.kind = WF_REDUCE_SCATTER, .n_buffers = N_BUFFERS};
    side s;

    open_side(&s, most_of(c->size), c->size);
    what.buffers = s.buffer;
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        int64_t total = all_cuts(s.cuts[b], c->size, b);

        for (int64_t i = 0; i < total; i++)
            s.in[b][i] = number(c->rank, b, i);
    }
    GOOD(wf_collective_run(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        int64_t first = s.cuts[b][c->rank], n = s.cuts[b][c->rank + 1] - first;

        for (int64_t k = 0; k < n; k++)
            NEED(same_bits(
                s.out[b][k],
                tree_of(0, c->size, b, element_of(ROWS, first, n, s.cuts[b][c->size], k))));
    }
    close_side(&s);
    return WF_OK;
}

static wf_status gather(wf_rank *rank, wf_comm *c)
{
    wf_collective what = {.kind = WF_ALL_GATHER, .n_buffers = N_BUFFERS};
    side s;

    open_side(&s, most_of(c->size), c->size);
    what.buffers = s.buffer;
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        all_cuts(s.cuts[b], c->size, b);
        for (int64_t k = 0; k < ROWS * width(c->rank, b); k++)
            s.in[b][k] = number(c->rank, b, k);
    }
    GOOD(wf_collective_run(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int m = 0; m < c->size; m++) {
            int64_t first = s.cuts[b][m], n = s.cuts[b][m + 1] - first;

            for (int64_t k = 0; k < n; k++)
                NEED(same_bits(s.out[b][element_of(ROWS, first, n, s.cuts[b][c->size], k)],
                               number(m, b, k)));
        }
    close_side(&s);
    return WF_OK;
}

/* Returns how much `from` sends to `to`: rows of both sides divide it. */
static int64_t block(int from, int to, int64_t b)
{
    return ROWS * OUT_ROWS * (widths[b] / 8 + 1) * ((from + 2 * to + b) % 3);
}

static wf_status exchange(wf_rank *rank, wf_comm *c)
{
    wf_collective what = {.kind = WF_ALL_TO_ALL, .n_buffers = N_BUFFERS};
    side s;

    open_side(&s, most_of(c->size), c->size);
    what.buffers = s.buffer;
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        for (int m = 0; m < c->size; m++) {
            s.cuts[b][m + 1] = s.cuts[b][m] + block(c->rank, m, b);
            s.out_cuts[b][m + 1] = s.out_cuts[b][m] + block(m, c->rank, b);
        }
        for (int m = 0; m < c->size; m++)
            for (int64_t k = 0, n = block(c->rank, m, b); k < n; k++)
                s.in[b][element_of(ROWS, s.cuts[b][m], n, s.cuts[b][c->size], k)] =
                    number(c->rank * 64 + m, b, k);
    }
    GOOD(wf_collective_run(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int m = 0; m < c->size; m++)
            for (int64_t k = 0, n = block(m, c->rank, b); k < n; k++)
                NEED(same_bits(s.out[b][element_of(OUT_ROWS, s.out_cuts[b][m], n,
                                                   s.out_cuts[b][c->size], k)],
                               number(m * 64 + c->rank, b, k)));
    close_side(&s);
    return WF_OK;
}

static wf_status everything(wf_rank *rank, void *transport)
{
    wf_comm *c = rank->world;

    wf_comm_set_reduce(c, &test_ops);
    if (transport)
        c->transport = transport;
    GOOD(scatter(rank, c));
    GOOD(gather(rank, c));
    GOOD(exchange(rank, c));
    return wf_barrier(c, &rank->error);
}

static void both_paths(void)
{
    static const int sizes[] = {1, 2, 3, 5, 8};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_ranks(sizes[i], everything, NULL);
        run_ranks(sizes[i], everything, (void *)(uintptr_t)staged_threads());
    }
}

static wf_status refuse(wf_rank *rank, void *arg)
{
    float memory[12] = {0};
    int64_t cuts[] = {0, 6, 12};
    wf_comm_buffer buffer = {.in = memory, .out = memory + 6, .cuts = cuts, .rows = 3};
    wf_collective what = {.kind = WF_REDUCE_SCATTER, .n_buffers = 1, .buffers = &buffer};
    wf_error error = {WF_OK, ""};

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    NEED(wf_collective_run(rank->world, &what, &error) == WF_EINVAL);
    NEED(strstr(error.text, "overlap") != NULL);
    buffer.rows = 4;
    error = (wf_error){WF_OK, ""};
    NEED(wf_collective_run(rank->world, &what, &error) == WF_EINVAL);
    NEED(strstr(error.text, "no multiple of 4 rows") != NULL);
    return WF_OK;
}

static void refused(void)
{
    run_ranks(2, refuse, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"parts in rows, in place and packed", both_paths},
        {"rows that do not fit", refused},
        {NULL, NULL},
    };

    return wf_test_main("comm_rows", tests);
}
