/*
 * tests/parallel/test_tp_overlap.c - rows that move over tp in blocks beside products
 * (wf_par_options.tp_comm_overlap) have the bits of rows that move at once, forward and
 * backward: blocks of sequences and of tokens, with and without sequence parallelism, beside
 * every other way of splitting a model. Products are done in blocks, and what a rank waits for
 * is a part of what moves.
 *
 * ctest: builds plain address thread
 */
#include "core/host_data.h"
#include "nn/children.h"
#include "nn/hooks.h"
#include "nn/layers/mlp.h"
#include "parallel/train/report.h"
#include "tests/parallel/parallel_harness.h"

enum { MOST_RANKS = 8 };

/* The same run with rows at once, and in blocks of at least this many bytes. */
static void same_run(const training *like, size_t block)
{
    training at_once = *like, t = *like;

    t.layout.tp_comm_overlap = true;
    t.layout.tp_comm_block = block;
    if (!train(&at_once) || !train(&t))
        return;
    CU_ASSERT_EQUAL(t.digest, at_once.digest);
    CU_ASSERT(memcmp(t.loss, at_once.loss, (size_t)t.steps * sizeof *t.loss) == 0);
    CU_ASSERT_STRING_EQUAL(t.inexact, at_once.inexact);
    if (t.digest != at_once.digest)
        printf("\n    tp %d dp %d cp %d pp %d, micro-batches of %d, blocks of %zu\n",
               t.layout.tp, t.layout.dp, t.layout.cp, t.layout.pp, (int)t.options.micro_batch,
               block);
}

static training on(model_kind kind, int64_t batch, int64_t micro, wf_par_options layout)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, batch);

    layout.seed = t.layout.seed;
    t.layout = layout;
    t.options.micro_batch = micro;
    return t;
}

/* One sequence at a time: tokens are cut, where blocks of all ranks are of one size. */
static void tokens(void)
{
    for (int kind = GPT2; kind <= LLAMA; kind++) {
        training t =
            on((model_kind)kind, 4, 1, (wf_par_options){.tp = 2, .sequence_parallel = true});

        same_run(&t, 1);
        same_run(&t, TOKENS * WIDTH * sizeof(float) / 2); /* in two */
        t.layout.tp = 4;
        same_run(&t, 1);
        t.layout.sequence_parallel = false;
        t.layout.dp = 2;
        same_run(&t, 1);
    }
}

/* 3 and 5 sequences at a time, of which no rank has as many in each block, and sequences that
   ranks do not split evenly. */
static void sequences(void)
{
    training t = on(LLAMA, 5, 0, (wf_par_options){.tp = 2, .sequence_parallel = true});

    same_run(&t, 1);
    same_run(&t, 5 * TOKENS * WIDTH * sizeof(float) / 3);
    t = on(GPT2, 6, 3, (wf_par_options){.tp = 8, .sequence_parallel = true});
    t.options.field[0].dim[0].size = t.options.field[1].dim[0].size = TOKENS - 3;
    same_run(&t, 1);
}

static void layouts(void)
{
    static const wf_par_options layout[] = {
        {.tp = 2, .dp = 2, .strategy = "full_shard", .sequence_parallel = true, .prefetch = 1},
        {.tp = 2, .cp = 2, .sequence_parallel = true},
        {.tp = 2, .dp = 2, .strategy = "zero1", .threads = 2}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        training t = on(i % 2 ? GPT2 : LLAMA, 4, 0, layout[i]);

        t.recompute = i == 0 ? "block" : i == 1 ? "attention" : NULL;
        t.model.dropout = i == 2 ? 0.1f : 0;
        same_run(&t, 1);
    }
}

static void bf16(void)
{
    training t = on(LLAMA, 4, 1, (wf_par_options){.tp = 4, .sequence_parallel = true});

    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    same_run(&t, 1);
    t.options.micro_batch = 2;
    t.layout.sequence_parallel = false;
    same_run(&t, 1);
    t.layout.fp32_residual = t.layout.sequence_parallel = true;
    same_run(&t, 1);
}

/* Adapters are a second use of what is gathered, and a second term of what is summed. */
static void adapters(void)
{
    training t = on(LLAMA, 4, 2, (wf_par_options){.tp = 2, .sequence_parallel = true});

    t.lora = (wf_nn_lora_options){.rank = 3, .alpha = 8, .targets = "all-linear"};
    same_run(&t, 1);
    t.layout.tp = 4;
    t.options.micro_batch = 1;
    same_run(&t, 1);
}

/* Gradients of weights that wait are gathered for when they are made. */
static void deferred(void)
{
    training t = on(LLAMA, 4, 1, (wf_par_options){.tp = 2, .pp = 2, .sequence_parallel = true});

    t.pipeline.schedule = "zb-h1";
    same_run(&t, 1);
    t.pipeline.schedule = "1f1b";
    same_run(&t, 1);
}

/* A mixture's own borders are not beside products, but those of its shared expert are. */
static void mixture(void)
{
    training t =
        on(LLAMA, 4, 2, (wf_par_options){.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true});

    t.model.experts = 8;
    t.model.top_k = 2;
    t.model.expert_ffn = 20;
    t.model.shared_ffn = 24;
    same_run(&t, 1);
}

/* Counts of what a step moves over tp. */
typedef struct moved {
    int64_t calls[MOST_RANKS], bytes[MOST_RANKS], exposed[MOST_RANKS];
    double flops[MOST_RANKS];
} moved;

static wf_status count_moves(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                             int step)
{
    moved *all = t->arg;
    static wf_par_report reports[MOST_RANKS];
    wf_par_report *r = &reports[rank->index];

    if (step == 1)
        wf_par_report_begin(par, r);
    if (step != 2)
        return WF_OK;
    wf_par_report_end(par, (wf_nn_module *)model, r);
    all->flops[rank->index] = r->flops;
    for (int i = 0; i < r->n_traffic; i++)
        for (int k = 0; k < WF_COLLECTIVE_KINDS && strcmp(r->traffic[i].axis, "tp") == 0; k++) {
            all->calls[rank->index] += r->traffic[i].counters.of[k].calls;
            all->bytes[rank->index] += r->traffic[i].counters.of[k].bytes;
            all->exposed[rank->index] += r->traffic[i].counters.of[k].exposed;
        }
    return WF_OK;
}

/* As many bytes move, in more calls, and most of them beside products. What is left are a block
   of each, and what no product takes or makes: the embedding's sum, the head, norms. */
static void most_is_hidden(void)
{
    moved of[2];

    for (int on_ = 0; on_ < 2; on_++) {
        training t = on(LLAMA, 2, 1, (wf_par_options){.tp = 2, .sequence_parallel = true});

        memset(&of[on_], 0, sizeof of[on_]);
        t.model.layers = 8;
        t.layout.tp_comm_overlap = on_;
        t.layout.tp_comm_block = on_ ? 1 : 0;
        t.steps = 2;
        t.watch = count_moves;
        t.arg = &of[on_];
        if (!train(&t))
            return;
    }
    for (int r = 0; r < 2; r++) {
        CU_ASSERT_EQUAL(of[1].bytes[r], of[0].bytes[r]);
        CU_ASSERT(of[1].calls[r] > 4 * of[0].calls[r]);
        CU_ASSERT_EQUAL(of[1].flops[r], of[0].flops[r]);
        CU_ASSERT_EQUAL(of[0].exposed[r], of[0].bytes[r]);
        CU_ASSERT(of[1].exposed[r] < of[0].exposed[r] / 4);
    }
}

/* The names of the ops that rank 0 ran, and the collectives that were under way meanwhile. */
typedef struct ops {
    int n, moves;
    const char *name[1 << 12];
    int beside[1 << 12];
} ops;

static void note_op(void *self, const wf_call *call)
{
    ops *all = self;

    if (all->n == (int)(sizeof all->name / sizeof *all->name))
        return;
    all->beside[all->n] = all->moves;
    all->name[all->n++] = call->op->name;
}

static uint64_t begin_move(void *self, const wf_oplog_move *what)
{
    ops *all = self;

    (void)what;
    all->moves++;
    return 1;
}

static void end_move(void *self, uint64_t number)
{
    ops *all = self;

    (void)number;
    all->moves--;
}

static wf_status note_ops(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    static wf_oplog log;

    (void)model;
    if (rank->index > 0)
        return WF_OK;
    log = (wf_oplog){note_op, begin_move, end_move, t->arg};
    wf_mesh_oplog(wf_par_mesh(par), step == 0 ? &log : NULL);
    return WF_OK;
}

/* Notes the ops of a step whose tokens, of one sequence, are in 8 blocks. */
static bool run_noted(ops *all)
{
    training t = on(LLAMA, 1, 0, (wf_par_options){.tp = 2, .sequence_parallel = true});

    t.layout.tp_comm_overlap = true;
    t.layout.tp_comm_block = 1;
    t.watch = note_ops;
    t.arg = all;
    return train(&t);
}

/* A product that is joined with what follows it takes its rows in blocks, too: of 8, all but
   the last are computed while another one moves. */
static void joined_products_take_blocks(void)
{
    static ops all;
    int blocks = 0, beside = 0;

    if (!run_noted(&all))
        return;
    for (int i = 0; i < all.n; i++)
        if (strcmp(all.name[i], "linear2_swiglu") == 0) {
            blocks++;
            beside += all.beside[i] > 0;
        }
    CU_ASSERT_EQUAL(blocks, 2 * 8);
    CU_ASSERT_EQUAL(beside, 2 * 7);
}

/* The gradient of gate and up's input is made in blocks, before those of their weights, whose
   operand is gathered meanwhile. */
static void weights_come_after(void)
{
    static ops all;
    int blocks = 0, first = -1;

    if (!run_noted(&all))
        return;
    for (int i = 0; i < all.n; i++)
        if (strcmp(all.name[i], "linear2_dx") == 0) {
            first = blocks++ ? first : i;
            CU_ASSERT(strcmp(all.name[i - 1], "linear_dw") != 0);
        }
    CU_ASSERT_EQUAL(blocks, 2 * 8);
    CU_ASSERT(first > 0 && strcmp(all.name[first + 8], "linear_dw") == 0);
}

/* Keeps how often a hook has read the input of gate and up in rank 0, and its sum. */
typedef struct look {
    int reads;
    double sum;
} look;

static void read_input(void *self, wf_nn_module *module, const char *point, int n,
                       wf_tensor **x)
{
    look *l = self;
    wf_host_data view;
    const float *data = wf_data_read(x[0], &view);

    (void)module;
    (void)point;
    (void)n;
    for (int64_t i = 0; data && i < wf_tensor_count(x[0]); i++)
        l->sum += (double)data[i] * (double)(i % 7 + 1);
    l->reads += data != NULL;
    wf_data_close(&view);
}

static wf_status add_look(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    static wf_nn_hooks hooks = {.at = read_input};
    int64_t blocks;
    wf_nn_module **block = wf_nn_children((wf_nn_module *)model, "block", &blocks);

    (void)par;
    if (step > 0 || rank->index > 0)
        return WF_OK;
    hooks.self = t->arg;
    return wf_nn_hook_add(((wf_nn_mlp *)wf_nn_child(block[0], "mlp"))->gate_up, &hooks);
}

/* A user's hook, added behind the plan's, reads rows that would come later. */
static void hooks_read(void)
{
    look of[2] = {{0}};

    for (int on_ = 0; on_ < 2; on_++) {
        training t = on(LLAMA, 4, 2, (wf_par_options){.tp = 2, .sequence_parallel = true});

        t.layout.tp_comm_overlap = on_;
        t.layout.tp_comm_block = on_ ? 1 : 0;
        t.steps = 1;
        t.watch = add_look;
        t.arg = &of[on_];
        if (!train(&t))
            return;
    }
    CU_ASSERT_EQUAL(of[0].reads, 2);
    CU_ASSERT_EQUAL(of[1].reads, 2);
    CU_ASSERT_EQUAL(of[1].sum, of[0].sum);
}

int main(void)
{
    static const wf_test tests[] = {
        {"tokens of one sequence", tokens},
        {"whole sequences", sequences},
        {"layouts", layouts},
        {"bf16", bf16},
        {"adapters", adapters},
        {"gradients of weights that wait", deferred},
        {"a mixture", mixture},
        {"most moves are beside products", most_is_hidden},
        {"joined products take blocks", joined_products_take_blocks},
        {"gradients of weights come after what is summed", weights_come_after},
        {"hooks read what comes later", hooks_read},
        {NULL, NULL},
    };

    return wf_test_main("rows beside products", tests);
}
