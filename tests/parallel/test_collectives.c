/*
 * tests/parallel/test_collectives.c - the collectives of a training step, counted: calls on
 * every rank and bytes over all ranks are those of a closed formula, for gpt2 and llama on all
 * of tp 1, 2, 4, 8 x dp 1, 2, 4 x micro-batch 1, 2, 4, with and without sequence parallelism.
 *
 * Calls over tp (none at tp 1), per micro-step of a model of L blocks:
 *
 *     forward   2 L + 1   all-reduces: attn.out and mlp.down of each block, embed
 *               2 C       all-reduces: the loss's maximum; its two sums together; C times where
 *                         head and loss run in C chunks of sequences (here 1, unless given)
 *     backward  2 L + 1   all-reduces: qkv and mlp.up (or gate_up) of each block, head
 *
 * which is Megatron's count, 2 all-reduces forward and 2 backward per block (Shoeybi et al.
 * 2019). With sequence parallelism each of the 2 (2 L + 1) is an all-gather and a
 * reduce-scatter, one of them forward and one backward, and the input of a linear is regathered
 * for the gradient of its weight (Korthikanti et al. 2022): 2 gathers in backward per block
 * more, but none for the head, whose gradients are made with the loss. New are the gather of
 * gpt2's position rows, and one all-reduce of all vectors' gradients together. Where the cuts
 * of heads and key-value heads miss each other, a block gathers k and v together and scatters
 * the sum of their gradients.
 *
 * Over replicate, per step: an all-reduce of the loss, one of each bucket of gradients (25 MiB:
 * here one). Over the world: one agreement on the gradient's norm and on what ranks do,
 * messages up a binary tree of ranks and a broadcast.
 *
 * Bytes are those received by all ranks together: of a tensor of n bytes over t ranks an
 * all-gather and a reduce-scatter take (t - 1) n, an all-reduce twice that. Whichever rank
 * holds which part of an uneven split, the sum is the same, and so it is for all micro-steps
 * and dp: each sequence travels once. The formulas are in tp_traffic and dp_traffic below.
 *
 * ctest: builds plain
 */
#include "core/numerics/exact_sum.h"
#include "tests/parallel/traffic.h"

enum { BATCH = 16 };

enum { TP, REPLICATE, WORLD, OTHERS, GROUPS };

static const char *const group_names[] = {"tp", "replicate", "world", "pp and shard"};

typedef struct counting {
    bool chunks; /* a sequence at a time */
    counted n;
} counting;

static wf_status count_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    counting *c = t->arg;
    wf_mesh *mesh = wf_par_mesh(par);
    wf_comm *group[] = {wf_mesh_comm(mesh, wf_mesh_axis(mesh, "tp")),
                        wf_mesh_comm(mesh, wf_mesh_axis(mesh, "replicate")),
                        wf_mesh_world(mesh), wf_mesh_comm(mesh, wf_mesh_axis(mesh, "pp")),
                        wf_mesh_comm(mesh, wf_mesh_axis(mesh, "shard"))};

    model->loss->chunk = c->chunks;
    for (int g = 0; g < 5; g++) {
        const wf_comm_counters *counters = wf_comm_counters_of(group[g]);
        wf_comm_counters *sum = &c->n.of[rank->index][g < OTHERS ? g : OTHERS];

        if (step == 0)
            wf_comm_counters_reset(group[g]);
        for (int k = 0; step == 1 && k < WF_COLLECTIVE_KINDS; k++) {
            sum->of[k].calls += counters->of[k].calls;
            sum->of[k].bytes += counters->of[k].bytes;
        }
    }
    return WF_OK;
}

static int64_t bytes_of(int64_t floats)
{
    return floats * (int64_t)sizeof(float);
}

/* Returns true where some rank's query heads use key-value heads that it does not hold. */
static bool groups_miss(const training *t)
{
    int64_t heads = t->model.heads, kv = t->model.kv_heads, tp = t->layout.tp;

    for (int64_t i = 1; i < tp; i++)
        if (heads * i / tp * kv != kv * i / tp * heads)
            return true;
    return false;
}

static traffic tp_traffic(const training *t)
{
    const wf_nn_gpt_config *m = &t->model;
    bool gpt2 = m->norm == WF_NN_LAYERNORM;
    int64_t tp = t->layout.tp, dp = t->layout.dp, others = tp - 1, regions = 2 * m->layers + 1;
    int64_t micros = BATCH / (dp * t->options.micro_batch);
    int64_t tokens = BATCH * TOKENS, x = bytes_of(tokens * m->width); /* one activation */
    int64_t kv = bytes_of(tokens * 2 * m->kv_heads * (m->width / m->heads));
    /* norms have them (layernorm: 2 vectors), and so do the biases of attn.out and mlp.down */
    int64_t vectors = gpt2 ? 2 * regions + 2 * m->layers : regions;
    int64_t chunks = ((const counting *)t->arg)->chunks ? t->options.micro_batch : 1;
    traffic n = {.calls = {0}};

    if (tp == 1)
        return n;
    n.calls[WF_ALL_REDUCE] = 2 * chunks;
    n.bytes[WF_ALL_REDUCE] = 2 * others * bytes_of(3 * tokens);
    if (t->layout.sequence_parallel) {
        n.calls[WF_ALL_REDUCE] += 1;
        n.bytes[WF_ALL_REDUCE] += 2 * others * bytes_of(BATCH * vectors * m->width);
        n.calls[WF_ALL_GATHER] = 3 * regions - 1 + gpt2;
        n.bytes[WF_ALL_GATHER] = others * (3 * regions - 1) * x;
        n.bytes[WF_ALL_GATHER] += gpt2 * others * micros * dp * bytes_of(TOKENS * m->width);
        n.calls[WF_REDUCE_SCATTER] = 2 * regions;
        n.bytes[WF_REDUCE_SCATTER] = others * 2 * regions * x;
    } else {
        n.calls[WF_ALL_REDUCE] += 2 * regions;
        n.bytes[WF_ALL_REDUCE] += 2 * others * 2 * regions * x;
    }
    if (groups_miss(t)) {
        n.calls[WF_ALL_GATHER] += m->layers;
        n.bytes[WF_ALL_GATHER] += others * m->layers * kv;
        n.calls[WF_REDUCE_SCATTER] += m->layers;
        n.bytes[WF_REDUCE_SCATTER] += others * m->layers * kv;
    }
    for (int k = 0; k < WF_COLLECTIVE_KINDS; k++)
        n.calls[k] *= micros;
    return n;
}

/* A tied table has two slots of gradients; what is whole over tp is reduced by each of its
 * ranks. */
static traffic dp_traffic(const training *t)
{
    const wf_nn_gpt_config *m = &t->model;
    bool gpt2 = m->norm == WF_NN_LAYERNORM;
    int64_t d = m->width, kv = m->kv_heads * (d / m->heads), norms = 2 * m->layers + 1;
    int64_t attention = d * d + 2 * kv * d + d * d + gpt2 * (d + 2 * kv);
    int64_t mlp = gpt2 ? 2 * d * m->ffn + m->ffn : 3 * d * m->ffn;
    int64_t split = 2 * m->vocabulary * d + m->layers * (attention + mlp);
    int64_t whole = gpt2 ? m->positions * d + 2 * norms * d + m->layers * 2 * d : norms * d;
    traffic n = {.calls = {0}};

    if (t->layout.dp == 1)
        return n;
    n.calls[WF_ALL_REDUCE] = 2;
    n.bytes[WF_ALL_REDUCE] =
        2 * (t->layout.dp - 1) * bytes_of(split + t->layout.tp * (whole + 1));
    return n;
}

static traffic world_traffic(const training *t)
{
    int64_t ranks = t->layout.tp * t->layout.dp;
    /* the norm's squares, a number beside them, and a rank that is not exact */
    int64_t bytes = (ranks - 1) * (int64_t)(sizeof(wf_exact_sum) + 2 * sizeof(uint64_t));
    traffic n = {.calls = {0}, .agreements = 1};

    n.bytes[WF_RECV] = bytes;
    n.calls[WF_BROADCAST] = 1;
    n.bytes[WF_BROADCAST] = bytes;
    return n;
}

static void count_layout(model_kind kind, int64_t layers, int tp, int dp, int micro,
                         bool sequence_parallel, bool chunks)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);
    static counting c;
    traffic expected[GROUPS] = {{.calls = {0}}};
    bool same = true;

    c = (counting){.chunks = chunks};
    t.model.layers = layers;
    t.layout.tp = tp;
    t.layout.dp = dp;
    t.layout.sequence_parallel = sequence_parallel;
    t.layout.strategy = "no_shard";
    t.options.micro_batch = micro;
    t.watch = count_step;
    t.arg = &c;
    if (!train(&t))
        return;
    expected[TP] = tp_traffic(&t);
    expected[REPLICATE] = dp_traffic(&t);
    expected[WORLD] = world_traffic(&t);
    for (int g = 0; g < GROUPS; g++)
        same = same_traffic(&t, &c.n, g, group_names[g], &expected[g]) && same;
    CU_ASSERT(same);
    if (!same)
        printf("\n    %s, %d blocks, tp %d dp %d micro-batch %d%s%s\n",
               kind == GPT2 ? "gpt2" : "llama", (int)layers, tp, dp, micro,
               sequence_parallel ? " sequence-parallel" : "", chunks ? " in chunks" : "");
}

/* Under a sanitizer, where a step is slow, only one micro-batch per layout. */
static void count_layouts(model_kind kind, int64_t layers)
{
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int dp = 1; dp <= 4; dp *= 2)
            for (int micro = UNDER_SANITIZER ? 4 : 1; micro <= 4; micro *= 2)
                for (int sequence_parallel = 0; sequence_parallel <= (tp > 1);
                     sequence_parallel++)
                    count_layout(kind, layers, tp, dp, micro, sequence_parallel, false);
}

static void gpt2(void)
{
    count_layouts(GPT2, 2);
}

/* 3 blocks, so that a count which does not grow with them is found. */
static void llama(void)
{
    count_layouts(LLAMA, 3);
}

/* As many bytes in more calls. */
static void in_chunks(void)
{
    for (int micro = 1; micro <= 4; micro *= 2)
        for (int dp = 1; dp <= 2; dp++)
            count_layout(GPT2, 1, 4, dp, micro, dp == 2, true);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2, 2 blocks: calls and bytes of every layout", gpt2},
        {"llama, 3 blocks: calls and bytes of every layout", llama},
        {"head and loss in chunks", in_chunks},
        {NULL, NULL},
    };

    return wf_test_main("collectives", tests);
}
