/*
 * tests/parallel/test_plan_run.c - a plan and the run that it plans agree to the byte: memory
 * of every kind at the peak, the moment of the peak, the most of each kind, collectives by axis
 * and kind, and work, on every rank.
 *
 * ctest: builds plain
 */
#include "parallel/train/measure.h"
#include "tests/parallel/plan_harness.h"

/* One line per configuration: what differs from a gpt2 on one rank. */
typedef struct row {
    const char *name;
    int tp, dp, micro, layers, kv_heads, threads, prefetch;
    int group, batch; /* batch 0: 16 */
    int cp;           /* ranks that split tokens; 0: 1 */
    int ep;           /* ranks that split the 8 experts of a mixture; 0: there is an MLP */
    int etp;          /* ranks that split their features; 0: 1 */
    bool llama, sequence_parallel, sgd, muon, adafactor, eight, lion, buddy, exact_off, bf16,
        rounded, activations, exchange, shared, chunks;
    bool adapted; /* adapters of experts, above a base of 4 bits where weights are bf16 */
    float dropout;
    const char *recompute;
    double buffer;
    int64_t tile; /* tokens of an MLP's tile; 0: all at once */
    int64_t rank; /* rank of adapters of all linears; 0: none */
    size_t block; /* bytes of blocks of rows beside products; 0: rows move at once */
} row;

static const row rows[] = {
    {"gpt2", .tp = 1, .dp = 1},
    {"llama", .tp = 1, .dp = 1, .llama = true},
    {"two threads", .tp = 1, .dp = 1, .threads = 2},
    {"micro-batches of 1", .tp = 1, .dp = 1, .micro = 1},
    {"micro-batches of 2, llama", .tp = 1, .dp = 1, .micro = 2, .llama = true},
    {"dropout", .tp = 1, .dp = 1, .dropout = 0.1f},
    {"momentum", .tp = 1, .dp = 1, .sgd = true},
    {"exact off", .tp = 1, .dp = 1, .exact_off = true},
    {"exact off, micro-batches", .tp = 1, .dp = 2, .micro = 1, .exact_off = true},
    {"exact off, micro-batches, sequence parallel", .tp = 2, .dp = 2, .micro = 2,
     .exact_off = true, .llama = true, .sequence_parallel = true},
    {"tp 2", .tp = 2, .dp = 1},
    {"tp 4, llama", .tp = 4, .dp = 1, .llama = true},
    {"tp 8: 12 heads don't divide", .tp = 8, .dp = 1},
    {"tp 2, sequence parallel", .tp = 2, .dp = 1, .sequence_parallel = true},
    {"tp 4, sequence parallel, micro-batches", .tp = 4, .dp = 1, .micro = 2,
     .sequence_parallel = true},
    {"tp 8, 3 key-value heads that miss", .tp = 8, .dp = 1, .llama = true, .kv_heads = 3},
    {"the same, sequence parallel", .tp = 8, .dp = 1, .llama = true, .kv_heads = 3,
     .sequence_parallel = true},
    {"tp 3", .tp = 3, .dp = 1},
    {"cp 2, micro-batches of 2", .tp = 1, .dp = 1, .cp = 2, .micro = 2},
    {"cp 4, tp 2, 3 key-value heads that miss", .tp = 2, .dp = 1, .cp = 4, .micro = 1,
     .llama = true, .kv_heads = 3},
    {"cp 2, 2 x 2, recompute, bf16", .tp = 2, .dp = 2, .cp = 2, .micro = 1, .llama = true,
     .bf16 = true, .activations = true, .recompute = "block"},
    {"cp 2, tp 2, sequence parallel: keys are gathered", .tp = 2, .dp = 1, .cp = 2, .micro = 2,
     .llama = true, .sequence_parallel = true},
    {"a mixture, cp 2, tp 2", .tp = 2, .dp = 1, .cp = 2, .ep = 2, .micro = 1, .llama = true,
     .buffer = .5},
    {"tp 5, sequence parallel", .tp = 5, .dp = 1, .sequence_parallel = true},
    {"dp 2", .tp = 1, .dp = 2},
    {"dp 4, micro-batches", .tp = 1, .dp = 4, .micro = 1},
    {"dp 8, llama", .tp = 1, .dp = 8, .llama = true},
    {"2 x 2", .tp = 2, .dp = 2},
    {"2 x 2, dropout, micro-batches", .tp = 2, .dp = 2, .micro = 2, .dropout = 0.2f},
    {"4 x 4, sequence parallel", .tp = 4, .dp = 4, .sequence_parallel = true},
    {"2 x 4, llama, threads, momentum", .tp = 2, .dp = 4, .llama = true, .threads = 2,
     .sgd = true},
    {"2 x 2, exact off, sequence parallel", .tp = 2, .dp = 2, .exact_off = true,
     .sequence_parallel = true},
    {"a buddy, dp 4", .tp = 1, .dp = 4, .buddy = true},
    {"a buddy, 2 x 4, llama, micro-batches", .tp = 2, .dp = 4, .micro = 1, .buddy = true,
     .llama = true},
    {"a buddy, bf16, gradients too, 8 bits", .tp = 1, .dp = 2, .buddy = true, .bf16 = true,
     .rounded = true, .eight = true},
    {"bf16", .tp = 1, .dp = 1, .bf16 = true},
    {"bf16, 2 x 4, micro-batches", .tp = 2, .dp = 4, .micro = 1, .bf16 = true,
     .sequence_parallel = true},
    {"bf16, 2 x 2, gradients too", .tp = 2, .dp = 2, .bf16 = true, .rounded = true,
     .llama = true},
    {"bf16 activations", .tp = 1, .dp = 1, .micro = 2, .bf16 = true, .activations = true},
    {"bf16 activations, 4 x 2, blocks again", .tp = 4, .dp = 2, .llama = true, .bf16 = true,
     .activations = true, .sequence_parallel = true, .recompute = "block"},
    {"bf16 activations alone, 2 x 1, dropout", .tp = 2, .dp = 1, .dropout = 0.1f,
     .activations = true},
    {"blocks again", .tp = 2, .dp = 2, .micro = 1, .dropout = 0.1f, .recompute = "block"},
    {"attention again, bf16", .tp = 4, .dp = 2, .llama = true, .bf16 = true,
     .sequence_parallel = true, .recompute = "attention"},
    {"Muon", .tp = 1, .dp = 1, .muon = true},
    {"Muon, 4 x 2", .tp = 4, .dp = 2, .muon = true, .sequence_parallel = true},
    {"Adafactor, 2 x 4", .tp = 2, .dp = 4, .adafactor = true},
    {"Muon, dp 4, bf16", .tp = 1, .dp = 4, .muon = true, .bf16 = true, .llama = true},
    {"AdamW in 8 bits", .tp = 1, .dp = 1, .eight = true},
    {"AdamW in 8 bits, 4 x 2", .tp = 4, .dp = 2, .eight = true, .sequence_parallel = true},
    {"Lion in 8 bits, moving average, 2 x 4", .tp = 2, .dp = 4, .lion = true},
    {"Lion in 8 bits, moving average, dp 4, bf16", .tp = 1, .dp = 4, .lion = true,
     .bf16 = true},
    {"AdamW in 8 bits, dp 4, bf16", .tp = 1, .dp = 4, .eight = true, .bf16 = true,
     .llama = true},
    {"gradients in bf16, dp 4, micro-batches", .tp = 1, .dp = 4, .micro = 2, .rounded = true},
    {"groups of 2 micro-steps, dp 2", .tp = 1, .dp = 2, .micro = 2, .group = 2},
    {"groups of 4 micro-steps, 2 x 4, bf16", .tp = 2, .dp = 4, .micro = 1, .group = 4,
     .bf16 = true},
    {"16 blocks ahead", .tp = 1, .dp = 2, .layers = 20, .prefetch = 16},
    {"all of 36 blocks ahead", .tp = 1, .dp = 2, .layers = 36, .prefetch = 100, .bf16 = true},
    {"dp 3, micro-batches", .tp = 1, .dp = 3, .micro = 1, .batch = 12},
    {"2 x 6, micro-batches, sequence parallel", .tp = 2, .dp = 6, .micro = 1, .batch = 24,
     .llama = true, .sequence_parallel = true},
    {"3 x 2, 5 blocks, llama", .tp = 3, .dp = 2, .llama = true, .layers = 5},
    {"a mixture, 2 x 2, micro-batches", .tp = 2, .dp = 2, .ep = 2, .micro = 2, .llama = true,
     .buffer = 1},
    {"a mixture, dp 4, ep 2", .tp = 1, .dp = 4, .ep = 2, .llama = true},
    {"a mixture, 2 x 4, ep 4, micro-batches, sequence parallel", .tp = 2, .dp = 4, .ep = 4,
     .micro = 2, .llama = true, .bf16 = true, .activations = true, .sequence_parallel = true,
     .exchange = true, .shared = true, .buffer = 1.25},
    {"a mixture, dp 4, ep 2, blocks again", .tp = 1, .dp = 4, .ep = 2, .micro = 1,
     .llama = true, .recompute = "block", .exchange = true, .shared = true, .buffer = 1e-3},
    {"features of a mixture, tp 2, micro-batches", .tp = 2, .dp = 2, .ep = 1, .etp = 2,
     .micro = 2, .llama = true, .buffer = 1},
    {"features of a mixture, 2 x 4, ep 2, sequence parallel", .tp = 2, .dp = 4, .ep = 2,
     .etp = 2, .micro = 2, .llama = true, .bf16 = true, .activations = true,
     .sequence_parallel = true, .shared = true, .recompute = "block"},
    {"features of a mixture, 2 x 4, ep 2, exchanged", .tp = 2, .dp = 4, .ep = 2, .etp = 2,
     .micro = 1, .llama = true, .exchange = true, .shared = true, .buffer = 1.25},
    {"features of a mixture, cp 2, tp 2", .tp = 2, .dp = 1, .cp = 2, .ep = 1, .etp = 2,
     .micro = 1, .llama = true},
    {"chunks, weights of what experts take, 2 x 4, ep 4", .tp = 2, .dp = 4, .ep = 4, .micro = 2,
     .llama = true, .sequence_parallel = true, .exchange = true, .shared = true,
     .chunks = true},
    {"the same, cp 2, bf16", .tp = 2, .dp = 1, .cp = 2, .ep = 2, .micro = 1, .llama = true,
     .bf16 = true, .activations = true, .chunks = true},
    {"tiles", .tp = 1, .dp = 1, .tile = TOKENS},
    {"tiles and adapters", .tp = 1, .dp = 1, .tile = TOKENS, .rank = 3},
    {"tiles and adapters, 2 x 2, sequence parallel, blocks again", .tp = 2, .dp = 2,
     .llama = true, .sequence_parallel = true, .tile = 2 * TOKENS, .rank = 3,
     .recompute = "block"},
    {"tiles and adapters, cp 2, micro-batches of 2, bf16", .tp = 1, .dp = 1, .cp = 2,
     .micro = 2, .llama = true, .bf16 = true, .activations = true, .tile = TOKENS, .rank = 2},
    {"tiles and adapters of a mixture, dp 4, ep 2", .tp = 1, .dp = 4, .ep = 2, .micro = 2,
     .llama = true, .exchange = true, .shared = true, .tile = TOKENS, .rank = 2},
    {"features of an adapted mixture, tp 2, micro-batches", .tp = 2, .dp = 2, .ep = 1, .etp = 2,
     .micro = 2, .llama = true, .buffer = 1, .adapted = true},
    {"an adapted mixture, 2 x 4, ep 4, exchanged in waves", .tp = 2, .dp = 4, .ep = 4,
     .micro = 2, .llama = true, .buffer = .5, .exchange = true, .adapted = true},
    {"features of an adapted mixture in 4 bits, 2 x 4, ep 2, exchanged", .tp = 2, .dp = 4,
     .ep = 2, .etp = 2, .micro = 1, .llama = true, .bf16 = true, .activations = true,
     .exchange = true, .shared = true, .adapted = true},
    {"rows beside products, tp 4, sequence parallel", .tp = 4, .dp = 1, .llama = true,
     .sequence_parallel = true, .block = 1},
    {"the same of one sequence, 2 x 2, bf16, blocks again", .tp = 2, .dp = 2, .micro = 1,
     .llama = true, .bf16 = true, .activations = true, .sequence_parallel = true,
     .recompute = "block", .block = 1},
    {"the same, tp 2, whole activations, adapters", .tp = 2, .dp = 1, .micro = 1, .rank = 3,
     .block = 1},
};

static int64_t tile; /* tokens of a tile, in the run that comes next */

static void in_tiles(wf_nn_gpt *model)
{
    wf_nn_tile_mlps(&model->base, tile);
}

/* Sets what a row says of a mixture. */
static void add_experts(const row *r, training *t)
{
    t->layout.ep = r->ep;
    t->layout.etp = r->etp;
    t->buffer = r->buffer;
    t->layout.dispatch = r->exchange ? WF_PAR_DISPATCH_EXCHANGE : WF_PAR_DISPATCH_GATHER;
    t->model.experts = r->ep ? 8 : 0;
    t->model.top_k = r->ep ? 3 : 0;
    t->model.expert_ffn = r->ep ? 20 : 0;
    t->model.shared_ffn = r->shared ? 24 : 0;
    if (r->chunks) {
        t->model.window = 5;
        t->model.rope_skip = t->model.window_skip = 2;
        t->model.window_chunks = t->model.qk_l2_norm = t->model.weigh_input = true;
        t->model.temperature = t->model.temperature_every = 1;
        t->model.top_k = 1;
    }
    if (r->adapted)
        t->lora =
            (wf_nn_lora_options){.rank = 3, .alpha = 8, .targets = "q,experts", .site = 1000};
    t->layout.base_dtype = r->adapted && r->bf16 ? WF_NF4 : WF_F32;
}

static training training_of(const row *r, const char *strategy)
{
    training t = new_training(r->llama ? LLAMA : GPT2, r->kv_heads ? r->kv_heads : HEADS,
                              r->batch ? r->batch : 16);
    int replicate, shard;

    t.layout.tp = r->tp;
    t.layout.dp = r->dp;
    t.layout.cp = r->cp;
    t.layout.strategy = strategy;
    if (wf_par_axes(&t.layout, &replicate, &shard, NULL) != WF_OK)
        t.layout.shard_group_size = r->dp % 3 ? 2 : 3;
    t.layout.threads = r->threads;
    t.layout.prefetch = r->prefetch;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.tp_comm_overlap = r->block > 0;
    t.layout.tp_comm_block = r->block;
    t.layout.exact_off = r->exact_off;
    t.layout.dtype = r->activations ? WF_BF16 : WF_F32;
    t.layout.param_dtype = r->bf16 ? WF_BF16 : WF_F32;
    t.layout.reduce_dtype = r->rounded ? WF_BF16 : WF_F32;
    t.model.dropout = r->dropout;
    t.recompute = r->recompute;
    t.layout.accumulate = r->group ? WF_PAR_GROUP : WF_PAR_AUTO;
    t.layout.accumulate_group = r->group;
    t.options.micro_batch = r->micro;
    if (r->buddy && strcmp(strategy, "zero1") != 0) /* zero1 has none */
        t.options.redundancy = WF_PAR_REDUNDANCY_BUDDY;
    if (r->layers)
        t.model.layers = r->layers;
    t.change = r->tile ? in_tiles : NULL;
    tile = r->tile;
    if (r->rank)
        t.lora = (wf_nn_lora_options){.rank = r->rank, .alpha = 1, .targets = "all-linear"};
    add_experts(r, &t);
    if (r->muon)
        t.options.optimizer.method = WF_NN_MUON;
    if (r->adafactor)
        t.options.optimizer.method = WF_NN_ADAFACTOR;
    if (r->eight)
        t.options.optimizer.method = WF_NN_ADAMW8BIT;
    if (r->lion) {
        t.options.optimizer.method = WF_NN_LION8BIT;
        t.options.optimizer.ema = 0.9f;
    }
    if (r->sgd)
        t.options.optimizer.method = WF_NN_SGD;
    return t;
}

/* Every layout under every strategy that is built; where there is no data parallelism they are
   one and the same. CI takes every third strategy of a layout, in turns. */
static void plan_is_run(void)
{
    int apart = wf_test_one_in(3);

    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        const char *strategy;

        for (int s = 0; (strategy = wf_par_strategy_name(s)); s++)
            if (rows[i].dp > 1 ? (s + i) % apart == 0 : s == 0)
                compare(rows[i].name, training_of(&rows[i], strategy));
    }
}

/* A whole model is planned in no memory: what it would take is far more than there is. */
static void nothing_is_taken(void)
{
    static reports planned;
    training t = new_training(LLAMA, 8, 2048);
    const wf_memory_report *m = &planned.of[0].memory;

    t.model.heads = 128;
    t.model.width = 16384;
    t.model.ffn = 53248;
    t.model.layers = 20;
    t.steps = 2;
    t.layout.dp = 2;
    t.layout.strategy = "no_shard";
    t.watch = report_step;
    t.arg = &planned;
    CU_ASSERT(plan(&t));
    CU_ASSERT(m->peak > (size_t)1 << 39);
    CU_ASSERT_EQUAL(m->now[WF_MEMORY_OPTIMIZER], 2 * m->now[WF_MEMORY_PARAMETER]);
}

/* Bytes of gradients for a parameter of this rank, at most, in so many micro-steps. */
static double gradient_bytes(training t, int64_t micros)
{
    static reports planned;
    const wf_par_report *r = &planned.of[0];

    t.options.global_batch = micros * t.layout.dp;
    t.options.micro_batch = 1;
    t.steps = 2;
    t.watch = report_step;
    t.arg = &planned;
    return plan(&t) ? (double)r->memory.most[WF_MEMORY_GRADIENT] / (double)r->share : 0;
}

/* In the tree over micro-steps there is one more open sum with every doubling of them; without
   it there is one, to which each micro-step adds unit by unit. A tied table counts once. */
static void off_accumulates_in_one_buffer(void)
{
    for (int llama = 0; llama < 2; llama++)
        for (int dp = 1; dp <= 2; dp++) {
            training t = new_training(llama ? LLAMA : GPT2, HEADS, 1);

            t.model.layers = 16;
            t.model.vocabulary = 40;
            t.layout.dp = dp;
            t.layout.strategy = "no_shard";
            CU_ASSERT(gradient_bytes(t, 16) > 2 * gradient_bytes(t, 1));
            t.layout.exact_off = true;
            CU_ASSERT(dp > 1 || gradient_bytes(t, 16) < 5.5); /* beside a bucket of the sum */
            CU_ASSERT_EQUAL(gradient_bytes(t, 16), gradient_bytes(t, 2));
        }
}

static wf_status ask_values(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);
    uint64_t digest = 0;
    int64_t count;
    wf_nn_parameter **p = wf_nn_parameters((wf_nn_module *)model, &count);
    bool *refused = t->arg;

    (void)rank;
    if (step == 1)
        *refused = wf_par_digest(par, count, p, NULL, &digest) == WF_EINVAL &&
                   strstr(wf_context_error(ctx)->text, "a plan has no values");
    free(p);
    wf_context_clear(ctx);
    return WF_OK;
}

static void values_are_refused(void)
{
    training t = new_training(GPT2, HEADS, 2);
    bool refused = false;

    t.watch = ask_values;
    t.arg = &refused;
    CU_ASSERT(plan(&t));
    CU_ASSERT(refused);
}

/* Threads would wait for values that nobody has. */
static void only_on_the_fake_transport(void)
{
    training t = new_training(GPT2, HEADS, 2);
    wf_error error = {WF_OK, ""};

    t.layout.plan = true;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error),
                    WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "transport fake"));
}

/* A pool that is as large as the plan says does, and one that is a byte smaller does not. */
static void the_peak_is_enough(void)
{
    training t = new_training(GPT2, HEADS, 16);

    t.layout.tp = t.layout.dp = 2;
    peak_is_enough(t);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the plan of every layout is its run, to the byte", plan_is_run},
        {"a plan takes no memory", nothing_is_taken},
        {"without the tree over micro-steps there is one sum", off_accumulates_in_one_buffer},
        {"a plan has no values to show", values_are_refused},
        {"a plan needs the fake transport", only_on_the_fake_transport},
        {"the peak is enough, and a byte less is not", the_peak_is_enough},
        {NULL, NULL},
    };

    return wf_test_main("plan and run", tests);
}
