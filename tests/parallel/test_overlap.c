/*
 * tests/parallel/test_overlap.c - the timeline of a training step: what is in it, and that prefetch
 * hides the gathers of full_shard behind compute.
 *
 * The link between ranks is made slow, and sleeps, so that there is something to hide on any
 * machine: all gathers of a step would take a quarter of the time that its kernels take, which is
 * measured first. Whatever else the machine does, the best of a few tries counts.
 */
#include "mesh/threads_world.h"
#include "tests/parallel/parallel_harness.h"
#include <string.h>

enum { RANKS = 2, EVENTS = 1 << 14, LAYERS = 12, TRIES = 3, LONG = 96 };

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

static double hidden_share(const wf_trace *trace, const char *name)
{
    int64_t hidden = 0;

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind == WF_TRACE_TRANSFER && strcmp(e->name, name) == 0)
            hidden += wf_trace_hidden(trace, i);
    }
    return (double)hidden / (double)total(trace, WF_TRACE_TRANSFER, name, false);
}

/* A link over which this step's gathers take a quarter of what its kernels did. Their bytes are
   those that the rank received, of RANKS parts one less than there are. */
static uint64_t link_speed(const wf_trace *trace)
{
    double bytes =
        (double)total(trace, WF_TRACE_TRANSFER, "all_gather", true) * RANKS / (RANKS - 1);

    return (uint64_t)(bytes / (0.25e-9 * (double)total(trace, WF_TRACE_OP, NULL, false)));
}

/* Before the second step a trace is begun; the link is slow for the third, which has the trace for
   itself. */
static wf_status watch(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    timelines *all = t->arg;
    wf_trace **mine = &all->rank[rank->index];
    bool again = all->slow && step == 2;

    (void)model;
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

static training long_training(timelines *all, int prefetch)
{
    training t = new_training(WF_NN_GPT2, 4, 16);

    t.model.heads = 4;
    t.model.layers = LAYERS;
    t.model.width = 96;
    t.model.ffn = 4 * 96;
    t.model.positions = t.options.seq_len = LONG;
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

/* The least that any rank hides of its gathers; -1 where it fails. */
static double gathers_hidden(int prefetch)
{
    timelines all = {.slow = true};
    training t = long_training(&all, prefetch);
    double least = -1;

    if (train(&t)) {
        least = 1;
        for (int r = 0; r < RANKS; r++) {
            double share = hidden_share(all.rank[r], "all_gather");

            least = share < least ? share : least;
            CU_ASSERT_EQUAL(wf_trace_lost(all.rank[r]), 0);
        }
    }
    close_all(&all);
    return least;
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
    training t = long_training(&all, 1);

    if (train(&t))
        for (int r = 0; r < RANKS; r++) {
            const wf_trace *trace = all.rank[r];

            CU_ASSERT_EQUAL(count(trace, WF_TRACE_TRANSFER, "all_gather"), 2 * LAYERS + 2);
            CU_ASSERT_EQUAL(count(trace, WF_TRACE_WAIT, "all_gather"), 2 * LAYERS + 2);
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
    training traced = long_training(&all, 1), plain = traced;

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
