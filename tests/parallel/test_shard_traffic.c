/*
 * tests/parallel/test_shard_traffic.c - the collectives of strategies over data-parallel ranks,
 * counted: calls on every rank and bytes over all ranks are those of a closed formula.
 *
 * A model of L blocks has U = L + 1 units. Calls over shard, with M micro-steps:
 *
 *                      all-gathers              reduce-scatters   all-reduces
 *     full_shard       M (2 U - 1)              M U               1, of the losses
 *       always         M 2 U
 *       never          M U
 *     shard_grad_op    M U
 *       local, any     as above                 1
 *     zero1            1                        0                 2: losses, gradients
 *     no_shard, reduced (over replicate)                          1 + M U
 *
 * Hybrid strategies do the same inside of their groups, and 2 all-reduces over replicate, of
 * losses and of gradients, once per step. Bytes are those received by all ranks together: of n
 * bytes over s ranks an all-gather and a reduce-scatter take (s - 1) n, an all-reduce twice
 * that.
 *
 * ctest: builds plain
 */
#include "tests/parallel/traffic.h"

enum { BATCH = 16 };

enum { SHARD, REPLICATE, AXES };

static const char *const axis_names[] = {"shard", "replicate"};

static wf_status count_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    counted *n = t->arg;
    wf_mesh *mesh = wf_par_mesh(par);

    (void)model;
    for (int a = 0; a < AXES; a++) {
        wf_comm *comm = wf_mesh_comm(mesh, wf_mesh_axis(mesh, axis_names[a]));

        if (step == 0)
            wf_comm_counters_reset(comm);
        else
            n->of[rank->index][a] = *wf_comm_counters_of(comm);
    }
    return WF_OK;
}

typedef struct row {
    const char *strategy;
    int tp, shard, replicate, micro;
    wf_par_reshard reshard;
    wf_par_accumulate accumulate;
    int prefetch;
} row;

static const row rows[] = {
    {"full_shard", 1, 4, 1, 4, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 0},
    {"full_shard", 1, 4, 1, 1, WF_PAR_RESHARD_ALWAYS, WF_PAR_AUTO, 1},
    {"full_shard", 2, 2, 1, 2, WF_PAR_RESHARD_NEVER, WF_PAR_AUTO, 2},
    {"full_shard", 2, 4, 1, 1, WF_PAR_RESHARD_DEFAULT, WF_PAR_LOCAL, 5},
    {"shard_grad_op", 1, 8, 1, 1, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 1},
    {"shard_grad_op", 4, 2, 1, 4, WF_PAR_RESHARD_DEFAULT, WF_PAR_LOCAL, 0},
    {"no_shard", 1, 1, 4, 2, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 0},
    {"no_shard", 2, 1, 4, 2, WF_PAR_RESHARD_DEFAULT, WF_PAR_REDUCED, 0},
    {"zero1", 2, 4, 1, 2, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 0},
    {"zero1", 1, 4, 1, 1, WF_PAR_RESHARD_DEFAULT, WF_PAR_REDUCED, 0},
    {"hybrid_shard", 1, 2, 4, 1, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 1},
    {"hybrid_shard", 2, 2, 2, 2, WF_PAR_RESHARD_DEFAULT, WF_PAR_LOCAL, 1},
    {"hybrid_shard_zero2", 1, 4, 2, 1, WF_PAR_RESHARD_DEFAULT, WF_PAR_AUTO, 1},
    {"mics", 2, 4, 2, 1, WF_PAR_RESHARD_ALWAYS, WF_PAR_AUTO, 1},
};

static bool is(const row *r, const char *word)
{
    return strstr(r->strategy, word) != NULL;
}

/* Floats of a block, or of the root, on all ranks of tp together: what is whole over tp is
   there on each. `uses` counts what is used twice twice. */
static int64_t floats_of(const training *t, bool root, bool uses)
{
    const wf_nn_gpt_config *m = &t->model;
    bool gpt2 = m->norm == WF_NN_LAYERNORM;
    int64_t d = m->width, kv = m->kv_heads * (d / m->heads), norm = gpt2 ? 2 * d : d;
    int64_t attention = 2 * d * d + 2 * kv * d + gpt2 * (d + 2 * kv);
    int64_t mlp = gpt2 ? 2 * d * m->ffn + m->ffn : 3 * d * m->ffn;
    int64_t tables = m->vocabulary * d * (gpt2 && !uses ? 1 : 2);

    return root ? tables + t->layout.tp * (gpt2 * m->positions * d + norm)
                : attention + mlp + t->layout.tp * (2 * norm + gpt2 * 2 * d);
}

static void add(traffic *n, wf_collective_kind kind, int64_t calls, int64_t times,
                int64_t floats)
{
    n->calls[kind] += calls;
    n->bytes[kind] += times * floats * (int64_t)sizeof(float);
}

static void expect(const training *t, const row *r, traffic n[AXES])
{
    int64_t root = floats_of(t, true, false), block = floats_of(t, false, false);
    int64_t root_uses = floats_of(t, true, true), blocks = t->model.layers, units = blocks + 1;
    int64_t dp = r->shard * r->replicate, micros = BATCH / (dp * r->micro);
    int64_t shard = (r->shard - 1) * r->replicate, replicate = r->replicate - 1;
    bool split = !is(r, "no_shard") && !is(r, "zero1");
    bool keeps = r->reshard == WF_PAR_RESHARD_NEVER || is(r, "shard_grad_op") || is(r, "zero2");
    bool reduced = r->accumulate == WF_PAR_REDUCED || (r->accumulate == WF_PAR_AUTO && split);
    int64_t gathers_root = r->reshard == WF_PAR_RESHARD_ALWAYS ? 2 : 1;
    int64_t gathers_block = keeps && gathers_root == 1 ? 1 : 2, times = reduced ? micros : 1;
    int64_t sums = reduced ? micros * units : 1, uses = root_uses + blocks * block;

    memset(n, 0, AXES * sizeof *n);
    if (r->shard > 1)
        add(&n[SHARD], WF_ALL_REDUCE, 1, 2 * shard * r->tp, reduced ? micros : 1);
    if (r->replicate > 1)
        add(&n[REPLICATE], WF_ALL_REDUCE, 1, 2 * replicate * r->shard * r->tp,
            reduced && is(r, "no_shard") ? micros : 1);
    if (split) {
        add(&n[SHARD], WF_ALL_GATHER, micros * (gathers_root + blocks * gathers_block),
            shard * micros, gathers_root * root + blocks * gathers_block * block);
        add(&n[SHARD], WF_REDUCE_SCATTER, sums, shard * times, uses);
        if (r->replicate > 1) /* each of a group's ranks sums its part */
            add(&n[REPLICATE], WF_ALL_REDUCE, 1, 2 * replicate, uses);
    } else if (is(r, "zero1")) {
        add(&n[SHARD], WF_ALL_REDUCE, sums, 2 * shard * times, uses);
        add(&n[SHARD], WF_ALL_GATHER, 1, shard, root + blocks * block);
    } else {
        add(&n[REPLICATE], WF_ALL_REDUCE, sums, 2 * replicate * times, uses);
    }
}

static void count_rows(model_kind kind, int64_t layers)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);
        static counted n;
        traffic expected[AXES];
        bool same = true;

        n = (counted){0};
        t.model.layers = layers;
        t.layout.strategy = r->strategy;
        t.layout.tp = r->tp;
        t.layout.dp = r->shard * r->replicate;
        t.layout.dp_replicate = is(r, "hybrid") || is(r, "mics") ? r->replicate : 0;
        t.layout.reshard = r->reshard;
        t.layout.accumulate = r->accumulate;
        t.layout.prefetch = r->prefetch;
        t.options.micro_batch = r->micro;
        t.watch = count_step;
        t.arg = &n;
        if (!train(&t))
            continue;
        expect(&t, r, expected);
        for (int a = 0; a < AXES; a++)
            same = same_traffic(&t, &n, a, axis_names[a], &expected[a]) && same;
        CU_ASSERT(same);
        if (!same)
            printf("\n    row %zu, %s, %s\n", i, r->strategy, kind == GPT2 ? "gpt2" : "llama");
    }
}

static void gpt2(void)
{
    count_rows(GPT2, 2);
}

/* 3 blocks, so that a count which does not grow with them is found. */
static void llama(void)
{
    count_rows(LLAMA, 3);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, 2 blocks: calls and bytes of every strategy", gpt2},
        {"llama, 3 blocks: calls and bytes of every strategy", llama},
        {NULL, NULL},
    };

    return wf_test_main("shard_traffic", tests);
}
