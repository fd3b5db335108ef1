/*
 * tests/parallel/test_recompute.c - activation checkpointing: modules that are recomputed in
 * backward: the bits of a run that keeps all, under every strategy and with units inside of
 * what is recomputed; less memory; and the collectives that are repeated, counted.
 *
 * ctest: builds plain
 */
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 5, MAX_RANKS = 8 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 1, .micro = 16, .prefetch = 1, .recompute = "block"},
    {"no_shard", .tp = 1, .dp = 1, .micro = 4, .prefetch = 1, .recompute = "attention"},
    {"full_shard", .tp = 2, .dp = 4, .micro = 2, .prefetch = 1, .sequence_parallel = true,
     .recompute = "block"},
    {"full_shard", .tp = 1, .dp = 4, .micro = 1, .reshard = WF_PAR_RESHARD_ALWAYS,
     .prefetch = 2, .wrap_type = "mlp", .recompute = "block"},
    {"full_shard", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_LOCAL,
     .reshard = WF_PAR_RESHARD_NEVER, .wrap_min_params = 1, .recompute = "block"},
    {"full_shard", .tp = 4, .dp = 2, .micro = 4, .prefetch = 3, .wrap_type = "attention",
     .sequence_parallel = true, .recompute = "attention"},
    {"shard_grad_op", .tp = 1, .dp = 8, .micro = 1, .prefetch = 1, .wrap_type = "mlp",
     .recompute = "block"},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .sequence_parallel = true,
     .recompute = "attention"},
    {"zero1", .tp = 2, .dp = 2, .micro = 1, .accumulate = WF_PAR_REDUCED, .prefetch = 1,
     .recompute = "block"},
    {"no_shard", .tp = 8, .dp = 1, .micro = 8, .prefetch = 1, .sequence_parallel = true,
     .recompute = "block"},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 2, .prefetch = 1,
     .wrap_min_params = 500, .recompute = "block"},
    {"mics", .tp = 2, .dp = 4, .group = 2, .micro = 1, .reshard = WF_PAR_RESHARD_ALWAYS,
     .recompute = "attention"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = 0.1f;
    t.options.clip = 0.1f;
    t.frozen = "embed.table"; /* so that gradients flow to no input of block 0 */
    return t;
}

static void same_bits_as_kept(model_kind kind)
{
    training kept = make_training(kind);

    if (train(&kept))
        check_rows(&kept, rows, ROWS, 1);
}

static void gpt2(void)
{
    same_bits_as_kept(GPT2);
}

static void llama(void)
{
    same_bits_as_kept(LLAMA);
}

/* All blocks share attention's output weight and the gain before it. */
static void share_weights(wf_nn_gpt *model)
{
    wf_nn_block *first = (wf_nn_block *)model->block[0];

    for (int64_t i = 1; i < model->layers; i++) {
        wf_nn_block *b = (wf_nn_block *)model->block[i];

        wf_nn_parameter_free(b->attn->out->weight);
        wf_nn_parameter_free(b->norm1->gain);
        b->attn->out->weight = wf_nn_tie(first->attn->out->weight);
        b->norm1->gain = wf_nn_tie(first->norm1->gain);
    }
}

/* Parameters of three and six uses: gradients are added in the order of forward. */
static void many_uses(void)
{
    static const row shared[] = {
        {.tp = 1, .dp = 1, .micro = 8, .recompute = "block"},
        {.tp = 1, .dp = 1, .micro = 8, .recompute = "attention"},
        {"no_shard", .tp = 2, .dp = 1, .micro = 4, .recompute = "block"},
        {"full_shard", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1, .sequence_parallel = true,
         .recompute = "block"},
        {"shard_grad_op", .tp = 1, .dp = 4, .micro = 1, .recompute = "attention"},
        {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1, .recompute = "block"},
    };

    for (int64_t layers = 3; layers <= 6; layers += 3) {
        training kept = new_training(LLAMA, 3, BATCH);

        kept.steps = 2;
        kept.model.layers = layers;
        kept.change = share_weights;
        if (train(&kept))
            check_rows(&kept, shared, sizeof shared / sizeof *shared, layers == 6 ? 2 : 1);
    }
}

/* A rank's peak of activations, and its calls over shard and tp. */
typedef struct cost {
    size_t activations;
    int64_t gathers, scatters, reductions;
} cost;

static wf_status count_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_mesh *mesh = wf_par_mesh(par);
    wf_comm *shard = wf_mesh_comm(mesh, wf_mesh_axis(mesh, "shard"));
    wf_comm *tp = wf_mesh_comm(mesh, wf_mesh_axis(mesh, "tp"));
    const wf_comm_counters *s = wf_comm_counters_of(shard), *p = wf_comm_counters_of(tp);
    cost *c = t->arg;
    wf_memory_report m;

    (void)model;
    wf_pool_report(wf_context_pool(wf_par_context(par)), &m);
    if (step == 1) {
        wf_comm_counters_reset(shard);
        wf_comm_counters_reset(tp);
    }
    if (step == 2)
        c[rank->index] = (cost){m.most[WF_MEMORY_ACTIVATION], s->of[WF_ALL_GATHER].calls,
                                s->of[WF_REDUCE_SCATTER].calls, p->of[WF_ALL_REDUCE].calls};
    return WF_OK;
}

static cost cost_of(const char *recompute, const char *wrap_type, wf_par_reshard reshard)
{
    training t = new_training(GPT2, HEADS, BATCH);
    static cost c[MAX_RANKS];

    t.recompute = recompute;
    t.layout.tp = t.layout.dp = 2;
    t.layout.wrap_type = wrap_type;
    t.layout.reshard = reshard;
    t.model.layers = 6;
    t.options.micro_batch = 4;
    t.steps = 2;
    t.watch = count_step;
    t.arg = c;
    CU_ASSERT(train(&t));
    for (int r = 1; r < 4; r++)
        CU_ASSERT_EQUAL(c[r].gathers, c[0].gathers);
    return c[0];
}

/* A block gathers twice anyway, so running it again gathers no more; its two sums over tp come
   again, or attention's one: in each of 6 blocks and 2 micro-steps. */
static void costs(void)
{
    cost kept = cost_of(NULL, NULL, WF_PAR_RESHARD_DEFAULT);
    cost block = cost_of("block", NULL, WF_PAR_RESHARD_DEFAULT);
    cost attention = cost_of("attention", NULL, WF_PAR_RESHARD_DEFAULT);

    CU_ASSERT(3 * block.activations < 2 * kept.activations);
    CU_ASSERT(attention.activations < kept.activations);
    CU_ASSERT(block.activations < attention.activations);
    CU_ASSERT_EQUAL(kept.gathers, 2 * (2 * 7 - 1));
    CU_ASSERT_EQUAL(block.gathers, kept.gathers);
    CU_ASSERT_EQUAL(attention.gathers, kept.gathers);
    CU_ASSERT_EQUAL(block.scatters, kept.scatters);
    CU_ASSERT_EQUAL(block.reductions, kept.reductions + 2 * 2 * 6);
    CU_ASSERT_EQUAL(attention.reductions, kept.reductions + 2 * 6);
}

/* Units inside of a block that is recomputed are gathered twice too, or once where they are
   kept. */
static void inner_units(void)
{
    cost twice = cost_of("block", "mlp", WF_PAR_RESHARD_ALWAYS);
    cost once = cost_of("block", "mlp", WF_PAR_RESHARD_NEVER);

    CU_ASSERT_EQUAL(twice.gathers, 2 * 2 * 7);
    CU_ASSERT_EQUAL(once.gathers, 2 * 7);
}

static wf_status refuse(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);

    (void)t;
    if (step)
        return WF_OK;
    NEED(wf_nn_recompute(&model->base, "linear_group") == WF_EINVAL);
    NEED(strstr(wf_context_error(ctx)->text, "no module of the model is of type linear_group"));
    wf_context_clear(ctx);
    NEED(wf_nn_recompute(&model->base, NULL) == WF_OK);
    return WF_OK;
}

static void unknown_types(void)
{
    training t = new_training(GPT2, HEADS, BATCH);

    t.watch = refuse;
    CU_ASSERT(train(&t));
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, a frozen table, dropout: the bits of a run that keeps all", gpt2},
        {"llama, 3 key-value heads", llama},
        {"weights that three or four blocks share", many_uses},
        {"memory and collectives", costs},
        {"units inside of what is recomputed", inner_units},
        {"types that no module has", unknown_types},
        {NULL, NULL},
    };

    return wf_test_main("recompute", tests);
}
