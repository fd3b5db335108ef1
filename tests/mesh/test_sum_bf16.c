/*
 * tests/mesh/test_sum_bf16.c - sums over ranks of elements stored as bf16: the midpoint tree
 * (or the chain) over floats, rounded once, on both paths of collectives.
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
    return wf_barrier(c, &rank->error);
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
        {NULL, NULL},
    };

    return wf_test_main("sum_bf16", tests);
}
