/*
 * tests/parallel/test_overlap.c - the timeline of a training step: what is in it, and that
 * prefetch hides the gathers of full_shard behind compute.
 *
 * The speeds of the link between ranks and of the ranks' own matrix products are both limited,
 * and what they take longer is slept: so it matters little what else the machine does. Kernels
 * take 8 ms for a block forward; the link is set so that all gathers of a step take at most a
 * quarter of the time that its kernels were measured to take.
 *
 * ctest: builds address thread
 */
#include "mesh/transport/threads/world_internal.h"
#include "tests/parallel/parallel_harness.h"
#include <string.h>
#include <time.h>

enum { RANKS = 2, EVENTS = 1 << 14, LAYERS = 12, TRIES = 3 };

/* FLOPs of a block forward: its matrices and a causal square of attention; and per second. */
static const double block_flops = 2.0 * 12 * WIDTH * WIDTH * 4 * TOKENS,
                    flops_per_s = block_flops / 8e-3;

typedef struct timelines {
    wf_trace *rank[RANKS];
    bool slow; /* limit the link after the second step, and keep the third one's timeline */
} timelines;

static int64_t total(const wf_trace *trace, wf_trace_kind kind, const char *name, bool bytes)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind == kind && (!name || strcmp(e->name, name) == 0))
            sum += bytes ? e->bytes : e->end - e->start;
    }
    return sum;
}

/* Returns the share of the time of all ranks' transfers of this name that passed behind
   kernels. */
static double hidden_share(const timelines *all, const char *name)
{
    int64_t hidden = 0, sum = 0;

    for (int r = 0; r < RANKS; r++) {
        const wf_trace *trace = all->rank[r];

        sum += total(trace, WF_TRACE_TRANSFER, name, false);
        for (int64_t i = 0; i < wf_trace_count(trace); i++) {
            const wf_trace_event *e = wf_trace_at(trace, i);

            if (e->kind == WF_TRACE_TRANSFER && strcmp(e->name, name) == 0)
                hidden += wf_trace_hidden(trace, i);
        }
        CU_ASSERT_EQUAL(wf_trace_lost(trace), 0);
    }
    return (double)hidden / (double)sum;
}

/* A link over which this step's gathers take a quarter of what its kernels did. Their bytes are
   those that the rank received, of RANKS parts one less than there are. */
static uint64_t link_speed(const wf_trace *trace)
{
    double bytes =
        (double)total(trace, WF_TRACE_TRANSFER, "all_gather", true) * RANKS / (RANKS - 1);

    return (uint64_t)(bytes / (0.25e-9 * (double)total(trace, WF_TRACE_OP, NULL, false)));
}

/* The device of this rank as it was. */
static _Thread_local const wf_kernel *(*fast)(const wf_device *device, const wf_op *op);

static wf_status run_slowly(const wf_call *call, void *workspace)
{
    wf_device *device = wf_context_device(call->ctx);
    wf_status status = fast(device, call->op)->run(call, workspace);
    double seconds = call->op->flops(call) / flops_per_s;

    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
    return status;
}

static const wf_kernel *slow_kernel(const wf_device *device, const wf_op *op)
{
    static _Thread_local wf_kernel slow; /* it is run before the next one is asked for */
    const wf_kernel *kernel = fast(device, op);

    if (!kernel || !op->flops)
        return kernel;
    slow = *kernel;
    slow.run = run_slowly;
    return &slow;
}

/* Before the second step a trace is begun; the link is slow for the third, which has the trace
   for itself. */
static wf_status watch(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    timelines *all = t->arg;
    wf_trace **mine = &all->rank[rank->index];
    bool again = all->slow && step == 2;

    (void)model;
    if (step == 0 && all->slow) {
        fast = wf_context_device(wf_par_context(par))->kernel;
        wf_context_device(wf_par_context(par))->kernel = slow_kernel;
    }
    if (step < 1 || step > 3)
        return WF_OK;
    wf_mesh_trace(wf_par_mesh(par), NULL);
    GOOD(wf_barrier(rank->world, &rank->error));
    if (again && rank->index == 0)
        wf_threads_limit(rank->world, link_speed(*mine));
    GOOD(wf_barrier(rank->world, &rank->error));
    if (again)
        wf_trace_close(*mine);
    if (again || step == 1) {
        *mine = wf_trace_open(EVENTS, &rank->error);
        NEED(*mine != NULL);
        wf_mesh_trace(wf_par_mesh(par), *mine);
    }
    return WF_OK;
}

static training deep_training(timelines *all, int prefetch)
{
    training t = new_training(GPT2, HEADS, 8);

    t.model.layers = LAYERS;
    t.layout.dp = RANKS;
    t.layout.strategy = "full_shard";
    t.layout.prefetch = prefetch;
    t.steps = all->slow ? 3 : 2;
    t.watch = watch;
    t.arg = all;
    return t;
}

static void close_all(timelines *all)
{
    for (int r = 0; r < RANKS; r++)
        wf_trace_close(all->rank[r]);
}

/* -1 where it fails. */
static double gathers_hidden(int prefetch)
{
    timelines all = {.slow = true};
    training t = deep_training(&all, prefetch);
    double share = train(&t) ? hidden_share(&all, "all_gather") : -1;

    close_all(&all);
    return share;
}

static void prefetch_hides_gathers(void)
{
    double best = -1, without;

    for (int i = 0; i < TRIES && best < 0.7; i++) {
        double share = gathers_hidden(1);

        best = share > best ? share : best;
    }
    without = gathers_hidden(0);
    printf("(%.0f %% of the time of gathers, %.0f %% without prefetch) ", 100 * best,
           100 * without);
    CU_ASSERT(best >= 0.7);
    CU_ASSERT(without >= 0 && without < 0.1);
}

/* Events of a kind and name; 0 <= start <= end, those of one thread one after the other. */
static int64_t count(const wf_trace *trace, wf_trace_kind kind, const char *name)
{
    int64_t n = 0, through = 0;

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind != kind)
            continue;
        CU_ASSERT(e->start > 0 && e->start <= e->end);
        if (kind != WF_TRACE_TRANSFER) {
            CU_ASSERT(e->start >= through);
            through = e->end;
        }
        n += strcmp(e->name, name) == 0;
    }
    return n;
}

/* Each block is gathered for forward and again for backward, the root once; all are reduced. */
static void what_is_in_it(void)
{
    timelines all = {.slow = false};
    training t = deep_training(&all, 1);

    if (train(&t))
        for (int r = 0; r < RANKS; r++) {
            const wf_trace *trace = all.rank[r];

            CU_ASSERT_EQUAL(count(trace, WF_TRACE_TRANSFER, "all_gather"), 2 * LAYERS + 1);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_WAIT, "all_gather"), 2 * LAYERS + 1);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_TRANSFER, "reduce_scatter"), LAYERS + 1);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_PHASE, "forward"), 1);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_PHASE, "backward"), 1);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_OP, "embedding"), 1);
            CU_ASSERT(count(trace, WF_TRACE_OP, "attention") == LAYERS);
            CU_ASSERT(total(trace, WF_TRACE_TRANSFER, "all_gather", true) > 0);
            CU_ASSERT(total(trace, WF_TRACE_OP, NULL, false) <=
                      total(trace, WF_TRACE_PHASE, NULL, false));
        }
    close_all(&all);
}

/* The same bits, traced or not. */
static void changes_nothing(void)
{
    timelines all = {.slow = false};
    training traced = deep_training(&all, 1), plain = traced;

    plain.watch = NULL;
    if (train(&traced) && train(&plain))
        CU_ASSERT_EQUAL(traced.digest, plain.digest);
    close_all(&all);
}

int main(void)
{
    static const wf_test tests[] = {{"what is in it", what_is_in_it},
                                    {"changes nothing", changes_nothing},
                                    {"prefetch hides gathers", prefetch_hides_gathers},
                                    {NULL, NULL}};

    return wf_test_main("overlap", tests);
}
