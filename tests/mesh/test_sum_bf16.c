/*
 * tests/mesh/test_sum_bf16.c - sums over ranks that are stored as bf16: the midpoint tree (or
 * the chain) over floats or bf16, rounded once, on both paths of collectives.
 *
 * ctest: builds plain address thread
 */
#include "core/numerics/bf16.h"
#include "core/numerics/bits.h"
#include "tests/mesh/ranks.h"

enum { COUNT = 20011, SIZE = 9 };

typedef struct sum_case {
    const wf_transport *transport; /* NULL: as launched */
    bool chain;
} sum_case;

/* Every other one of large numbers that cancel each other, where small ones survive or not:
   rounding to bf16 would hide most differences between two orders of a sum of floats. */
static uint16_t element(int member, int64_t i)
{
    static const float cancelling[] = {0x1p30f, -0x1p30f, 1, 3};
    float x = number(member, 3, i);

    return wf_bf16_of(i % 2 ? cancelling[wf_mix64((uint64_t)i * 64 + (uint64_t)member) % 4]
                            : x);
}

/* The node over members [first, first + n) of numbers that were rounded before. */
static float node_of(int first, int n, int64_t i)
{
    if (n == 1)
        return wf_bf16_value(element(first, i));
    return node_of(first, n / 2, i) + node_of(first + n / 2, n - n / 2, i);
}

static uint16_t right(const wf_comm *c, bool chain, int64_t i)
{
    float sum = wf_bf16_value(element(0, i));

    if (!chain)
        return wf_bf16_of(node_of(0, wf_comm_size(c), i));
    for (int m = 1; m < wf_comm_size(c); m++)
        sum += wf_bf16_value(element(m, i));
    return wf_bf16_of(sum);
}

/* Narrows as the fallback does, and counts. */
static _Atomic int64_t narrowed;

static void narrow(const float *from, uint16_t *to, int64_t n)
{
    narrowed += n;
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_of(from[i]);
}

/* A sum of floats that is stored as bf16, beside one that is not: of parts that lie in `rows`
   rows. */
static wf_status rounded(wf_rank *rank, const sum_case *w, int64_t rows)
{
    wf_comm *c = rank->world;
    const int me = wf_comm_rank(c), size = wf_comm_size(c);
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    float *other = malloc(COUNT * sizeof *other);
    uint16_t *half = malloc(COUNT * sizeof *half);
    int64_t cuts[SIZE + 1] = {0};
    wf_comm_buffer buffer[] = {
        {.in = in, .out = out, .cuts = cuts, .rows = rows},
        {.in = other, .out = half, .cuts = cuts, .rows = rows, .rounds = true}};
    wf_collective what = {.kind = WF_REDUCE_SCATTER, .n_buffers = 2, .buffers = buffer};

    for (int i = 1; i <= size; i++)
        cuts[i] = i == size ? COUNT / rows * rows
                            : cuts[i - 1] + (i % 3) * COUNT / (2 * size) / rows * rows;
    for (int64_t i = 0; i < COUNT; i++)
        in[i] = number(me, 0, i), other[i] = number(me, 1, i);
    for (int first = 0; first < 2; first++) { /* both, and the rounded one by itself */
        what.buffers = buffer + first;
        what.n_buffers = 2 - first;
        memset(half, 0xff, COUNT * sizeof *half);
        GOOD(wf_collective_run(c, &what, &rank->error));
        for (int64_t e = 0; e < cuts[me + 1] - cuts[me]; e++) {
            const int64_t width = (cuts[me + 1] - cuts[me]) / rows, whole = cuts[size] / rows;
            const int64_t i = e / width * whole + cuts[me] / rows + e % width;

            NEED(same_bits(out[e], w->chain ? chain_of(size, 0, i) : tree_of(0, size, 0, i)));
            NEED(half[e] ==
                 wf_bf16_of(w->chain ? chain_of(size, 1, i) : tree_of(0, size, 1, i)));
        }
        for (int64_t e = cuts[me + 1] - cuts[me]; e < COUNT; e++)
            NEED(half[e] == 0xffff);
    }
    free(in);
    free(out);
    free(other);
    free(half);
    return WF_OK;
}

/* Refuses to round what is no scattered sum of floats with memory of its own. */
static wf_status refused(wf_rank *rank)
{
    static const struct {
        wf_collective_kind kind;
        wf_reduction reduction;
        size_t element;
        bool in_place;
    } wrong[] = {{WF_ALL_REDUCE, WF_REDUCE_SUM, 4, false},
                 {WF_REDUCE_SCATTER, WF_REDUCE_MAX, 4, false},
                 {WF_REDUCE_SCATTER, WF_REDUCE_SUM, 2, false},
                 {WF_REDUCE_SCATTER, WF_REDUCE_SUM, 4, true}};
    int64_t cuts[SIZE + 1] = {0};
    float in[SIZE] = {0}, out[SIZE];
    const int size = wf_comm_size(rank->world);

    for (int i = 0; i <= size; i++)
        cuts[i] = i;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wf_comm_buffer buffer = {.in = in,
                                 .out = wrong[i].in_place ? in : out,
                                 .count = size,
                                 .cuts = cuts,
                                 .rounds = true};
        wf_collective what = {.kind = wrong[i].kind,
                              .reduction = wrong[i].reduction,
                              .element = wrong[i].element,
                              .n_buffers = 1,
                              .buffers = &buffer};

        NEED(wf_collective_run(rank->world, &what, &rank->error) == WF_EINVAL);
        NEED(strstr(rank->error.text, "rounded to bf16"));
        rank->error = (wf_error){WF_OK, ""};
    }
    return WF_OK;
}

static wf_status sums(wf_rank *rank, void *arg)
{
    const sum_case *w = arg;
    wf_reduce_ops ops = test_ops;
    wf_comm *c = rank->world;
    uint16_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    int64_t cuts[SIZE + 1] = {0};
    wf_comm_buffer buffer = {.in = in, .out = out, .count = COUNT, .cuts = cuts};
    wf_collective what = {
        .kind = WF_ALL_REDUCE, .element = sizeof *in, .n_buffers = 1, .buffers = &buffer};
    int me = wf_comm_rank(c), size = wf_comm_size(c);

    ops.chain = w->chain;
    wf_comm_set_reduce(c, &ops);
    if (w->transport)
        c->transport = w->transport;
    for (int64_t i = 0; i < COUNT; i++)
        in[i] = element(me, i);
    for (int i = 1; i <= size; i++)
        cuts[i] = i == size ? COUNT : cuts[i - 1] + (i % 3) * COUNT / (2 * size);
    GOOD(wf_collective_run(c, &what, &rank->error));
    for (int64_t i = 0; i < COUNT; i++)
        NEED(out[i] == right(c, w->chain, i));
    what.kind = WF_REDUCE_SCATTER;
    GOOD(wf_collective_run(c, &what, &rank->error));
    for (int64_t i = cuts[me]; i < cuts[me + 1]; i++)
        NEED(out[i - cuts[me]] == right(c, w->chain, i));
    what.reduction = WF_REDUCE_MAX;
    NEED(wf_collective_run(c, &what, &rank->error) == WF_EINVAL);
    rank->error = (wf_error){WF_OK, ""};
    free(in);
    free(out);
    ops.narrow = narrow;
    wf_comm_set_reduce(c, &ops);
    for (int64_t rows = 1; rows < 8; rows += 6)
        GOOD(rounded(rank, w, rows));
    GOOD(refused(rank));
    return wf_barrier(c, &rank->error);
}

/* One member rounds and the other does not: all are told. */
static wf_status differ(wf_rank *rank, void *arg)
{
    const int64_t cuts[] = {0, 1, 2};
    float in[2] = {1, 2}, out[1];
    wf_comm_buffer buffer = {
        .in = in, .out = out, .cuts = cuts, .rounds = wf_comm_rank(rank->world) == 1};
    wf_collective what = {.kind = WF_REDUCE_SCATTER, .n_buffers = 1, .buffers = &buffer};

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    NEED(wf_collective_run(rank->world, &what, &rank->error) == WF_EMISMATCH);
    return WF_OK;
}

static void members_differ(void)
{
    wf_error error = {WF_OK, ""};

    wf_launch(&(wf_launch_options){.ranks = 2, .transport = test_transport()}, differ, NULL,
              &error);
    CU_ASSERT_EQUAL(error.code, WF_EMISMATCH);
    CU_ASSERT(narrowed > 0);
}

static void all_sizes(const wf_transport *transport)
{
    static const int size[] = {1, 2, 3, 5, 8, SIZE};

    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        run_ranks(size[i], sums, &(sum_case){.transport = transport});
    run_ranks(7, sums, &(sum_case){.transport = transport, .chain = true});
}

static void exposed_path(void)
{
    all_sizes(NULL);
}

static void packed_path(void)
{
    all_sizes(staged_threads());
}

int main(void)
{
    static const wf_test tests[] = {
        {"where members reach each other's memory", exposed_path},
        {"where transports move bytes", packed_path},
        {"members that differ in what is rounded", members_differ},
        {NULL, NULL},
    };

    return wf_test_main("sum_bf16", tests);
}
