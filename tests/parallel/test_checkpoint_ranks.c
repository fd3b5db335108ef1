/*
 * tests/parallel/test_checkpoint_ranks.c - what a rank has to know and to send in order to save
 * does not grow with the number of ranks: planned on the fake transport for 1 to 4096 of them.
 *
 * ctest: builds address thread
 */
#include "mesh/comm/transport_internal.h"
#include "parallel/checkpoint/saver_internal.h"
#include "tests/parallel/checkpoint_harness.h"

enum { WIDTH_HERE = 768, LONGEST_ROW = 4 * WIDTH_HERE * (int)sizeof(float) };

/* The work of one rank's save. */
typedef struct work {
    int64_t pieces;       /* it writes so many */
    int64_t header, data; /* bytes of its file */
    int64_t index;        /* bytes of the index, which one rank writes */
    int64_t calls, moved; /* collectives, and bytes that they bring */
} work;

typedef struct planned {
    training t;
    work work;
} planned;

static wf_status measure(part *p, wf_par_saver *saver)
{
    wf_rank *rank = p->rank;
    work *w = p->arg;
    wf_comm_counters before = *wf_comm_counters_of(rank->world);
    const wf_comm_counters *after = wf_comm_counters_of(rank->world);
    char *text;
    size_t n;

    GOOD(wf_par_saver_save(saver, 1, &rank->error));
    GOOD(wf_par_saver_finish(saver, &rank->error));
    NEED(wf_context_status(p->ctx) == WF_OK);
    for (int k = 0; k < WF_COLLECTIVE_KINDS; k++) {
        w->calls += after->of[k].calls - before.of[k].calls;
        w->moved += after->of[k].bytes - before.of[k].bytes;
    }
    w->pieces = saver->pieces.count;
    w->data = saver->pieces.bytes;
    GOOD(wf_header_format(&saver->header, &text, &n, &rank->error));
    w->header = (int64_t)n;
    free(text);
    GOOD(wf_index_format(&saver->state.index, &text, &n, &rank->error));
    w->index = (int64_t)n;
    free(text);
    return WF_OK;
}

static wf_status save_once(part *p, wf_par_trainer *trainer)
{
    const wf_par_save_options how = {.dir = "/nowhere", .kind = WF_PAR_SAVE_SHARDED};
    wf_par_saver *saver = wf_par_saver_open(trainer, &how);
    wf_status status = saver ? measure(p, saver) : WF_EINTERNAL;

    wf_par_saver_close(saver);
    return status;
}

static wf_status plan_rank(wf_rank *rank, void *arg)
{
    planned *n = arg;

    return on_trainer(rank, &n->t, save_once, &n->work);
}

static work plan(const char *strategy, int tp, int dp)
{
    planned p = {.t = new_training(GPT2, HEADS, 4096)};
    wf_error error = {WF_OK, ""};

    p.t.layout.plan = true;
    p.t.layout.strategy = strategy;
    p.t.layout.tp = tp;
    p.t.layout.dp = dp;
    p.t.model.width = WIDTH_HERE;
    p.t.model.ffn = 4 * WIDTH_HERE;
    p.t.options.micro_batch = 1;
    wf_launch(&(wf_launch_options){.ranks = tp * dp, .transport = "fake", .rank = tp * dp / 3},
              plan_rank, &p, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    return p.work;
}

/* A rank of the middle has most to do: the last one has no children. */
static void grows_with_nothing(const char *strategy, int tp)
{
    work one = plan(strategy, 1, 1);

    for (int ranks = 8; ranks <= 4096; ranks *= 8) {
        work w = plan(strategy, tp, ranks / tp);

        printf(
            "\n    %-10s tp %d, %4d ranks: %3d pieces, header %5d, index %5d, %d collectives, "
            "%4d bytes moved; data %9d",
            strategy, tp, ranks, (int)w.pieces, (int)w.header, (int)w.index, (int)w.calls,
            (int)w.moved, (int)w.data);
        CU_ASSERT(w.pieces <= one.pieces);
        CU_ASSERT(w.header <= one.header);
        CU_ASSERT(w.index <= one.index + one.index / 2); /* layouts are named in it */
        CU_ASSERT(w.calls <= 18); /* three agreements with two children and a parent */
        CU_ASSERT(w.moved <= 6 * (WF_SUMS + WF_BEGUN + 3) * (int64_t)sizeof(uint64_t));
        if (strcmp(strategy, "no_shard") != 0) /* its turns are whole tensors */
            CU_ASSERT(w.data <= 2 * one.data / ranks + w.pieces * LONGEST_ROW);
    }
}

static void full_shard(void)
{
    grows_with_nothing("full_shard", 1);
    grows_with_nothing("full_shard", 8);
}

static void copies(void)
{
    grows_with_nothing("no_shard", 1);
    grows_with_nothing("zero1", 2);
}

int main(void)
{
    static const wf_test tests[] = {
        {"full_shard on 8 to 4096 ranks", full_shard},
        {"copies are written once, in turns", copies},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_ranks", tests);
}
