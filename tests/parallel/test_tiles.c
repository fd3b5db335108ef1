/*
 * tests/parallel/test_tiles.c - MLPs and losses in tiles of tokens train what whole ones do,
 * bit for bit: of sequences and of their pieces, with every kind of MLP, with and without
 * biases, beside every way of splitting a model; and they hold no more than a tile of features.
 *
 * ctest: builds plain address
 */
#include "tests/parallel/parallel_harness.h"

enum { LONG = 4096, CUT = LONG / 4 };

static int64_t tokens; /* tokens of a tile, in the run that comes next */

static void in_tiles(wf_nn_gpt *model)
{
    wf_nn_tile_mlps(&model->base, tokens);
    model->loss->chunk = tokens;
}

/* The same run whole, and in tiles of this many tokens. */
static void same_run(const training *like, int64_t tile, const wf_par_options *layout)
{
    training whole = *like, t = *like;

    t.change = in_tiles;
    tokens = tile;
    if (layout)
        t.layout = *layout;
    t.layout.seed = whole.layout.seed;
    if (!train(&whole) || !train(&t))
        return;
    CU_ASSERT_EQUAL(t.digest, whole.digest);
    CU_ASSERT(memcmp(t.loss, whole.loss, (size_t)t.steps * sizeof *t.loss) == 0);
    CU_ASSERT_STRING_EQUAL(t.inexact, "");
    if (t.digest != whole.digest)
        printf("\n    tiles of %d, tp %d dp %d cp %d\n", (int)tile, t.layout.tp, t.layout.dp,
               t.layout.cp);
}

/* Seven sequences, so that nodes of the tree are of unequal size, in tiles of 1, 2 and 4. */
static void kinds_of_mlps(void)
{
    for (int kind = WF_NN_SWIGLU; kind <= WF_NN_GEGLU; kind++)
        for (int bias = 0; bias < 2; bias++) {
            training t = new_training(LLAMA, 3, 7);

            t.model.mlp = (wf_nn_mlp_kind)kind;
            t.model.mlp_bias = t.model.head_bias = bias;
            t.model.gelu_erf = bias && kind == WF_NN_GELU;
            same_run(&t, TOKENS << (kind + bias) % 3, NULL);
        }
}

static void layouts(void)
{
    static const wf_par_options layout[] = {
        {.tp = 4, .dp = 2, .sequence_parallel = true},
        {.tp = 2, .dp = 2, .strategy = "full_shard", .wrap_type = "mlp"},
        {.tp = 1, .dp = 4, .strategy = "zero1"}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        training t = new_training(GPT2, HEADS, 8);

        t.model.head_bias = true;
        t.recompute = i == 1 ? "block" : NULL;
        same_run(&t, TOKENS, &layout[i]);
    }
}

static void bf16(void)
{
    training t = new_training(GPT2, HEADS, 4);

    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    same_run(&t, 2 * TOKENS, NULL);
    t.model = new_training(LLAMA, 3, 4).model;
    same_run(&t, TOKENS, NULL);
}

/* A zero-bubble schedule: weights' gradients come in a walk of their own. */
static void deferred(void)
{
    training t = new_training(LLAMA, 3, 4);

    t.options.micro_batch = 1;
    t.pipeline.schedule = "zb-h1";
    same_run(&t, TOKENS, &(wf_par_options){.tp = 1, .dp = 1, .pp = 2});
}

static training of_length(model_kind kind, int64_t length)
{
    const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_FIELDS(length);
    training t = new_training(kind, 1, 2);

    t.model.positions = length;
    t.model.layers = 1;
    t.model.heads = 2;
    t.model.kv_heads = 1;
    t.model.width = 8;
    t.model.ffn = 24;
    t.model.head_bias = kind == GPT2;
    if (kind == GPT2)
        t.model.kv_heads = 2;
    memcpy(t.options.field, fields, sizeof fields);
    return t;
}

/* Sequences of four chunks of tokens, of which a vector's sum has two in each. */
static void pieces(void)
{
    training t = of_length(GPT2, LONG);

    t.options.global_batch = 3; /* nodes of two sequences and of one */
    same_run(&t, CUT, NULL);
    t = of_length(LLAMA, LONG);
    t.options.micro_batch = 1;
    same_run(&t, UNDER_SANITIZER ? CUT : 2 * CUT, &(wf_par_options){.cp = 2, .dp = 1});
    t.options.micro_batch = 2; /* a row of gradients for each sequence, which tiles cut */
    same_run(&t, CUT, &(wf_par_options){.cp = 2, .dp = 1});
    same_run(&t, LONG, &(wf_par_options){.cp = 2, .dp = 1});
}

/* Adapters of the MLP's linears, of some of them or all, with a scale or dropped out. */
static const wf_nn_lora_options adapters[] = {
    {.rank = 3, .alpha = 6, .targets = "all-linear"},
    {.rank = 5, .alpha = 5, .targets = "gate,up", .dropout = 0.2f},
    {.rank = 1, .alpha = 3, .targets = "down"},
    {.rank = 8, .alpha = 4, .targets = "q,up"},
};

enum { ADAPTERS = sizeof adapters / sizeof *adapters };

static void adapted_kinds(void)
{
    for (int kind = WF_NN_SWIGLU; kind <= WF_NN_GEGLU; kind++)
        for (int i = 0; i < ADAPTERS; i++) {
            training t = new_training(LLAMA, 3, 7);

            if (kind == WF_NN_GELU && i == 1)
                continue; /* it has no gate */
            t.model.mlp = (wf_nn_mlp_kind)kind;
            t.model.mlp_bias = i % 2;
            t.model.gelu_erf = i == 3 && kind == WF_NN_GELU;
            t.lora = adapters[i];
            t.steps = 2; /* B is zeros before the second one */
            same_run(&t, TOKENS << (kind + i) % 3, NULL);
        }
}

static void adapted_layouts(void)
{
    static const wf_par_options layout[] = {
        {.tp = 4, .dp = 2, .sequence_parallel = true},
        {.tp = 2, .dp = 2, .strategy = "full_shard", .wrap_type = "mlp"},
        {.tp = 2, .dp = 1, .pp = 2},
        {.tp = 8, .dp = 1}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        training t = new_training(i % 2 ? GPT2 : LLAMA, i % 2 ? HEADS : 3, 8);

        t.recompute = i == 1 ? "block" : NULL;
        t.lora = adapters[i % 2 ? 0 : i];
        t.steps = 2;
        if (layout[i].pp) {
            t.options.micro_batch = 1;
            t.pipeline.schedule = "zb-h1";
        }
        same_run(&t, TOKENS, &layout[i]);
    }
}

static void adapted_bf16(void)
{
    training t = new_training(LLAMA, 3, 4);

    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    t.lora = adapters[0];
    t.steps = 2;
    same_run(&t, TOKENS, NULL);
    t.lora = adapters[1];
    t.layout.fp32_residual = true;
    same_run(
        &t, 2 * TOKENS,
        &(wf_par_options){
            .tp = 2, .dp = 2, .dtype = WF_BF16, .param_dtype = WF_BF16, .fp32_residual = true});
}

/* Pieces of long sequences, and a row of gradients for each sequence. */
static void adapted_pieces(void)
{
    training t = of_length(LLAMA, LONG);

    t.steps = 2;
    t.lora = adapters[0];
    t.options.micro_batch = 2;
    same_run(&t, CUT, &(wf_par_options){.cp = 2, .dp = 1});
    if (UNDER_SANITIZER)
        return;
    same_run(&t, CUT, NULL);
    same_run(&t, LONG, &(wf_par_options){.cp = 2, .tp = 2, .dp = 1});
}

/* Beside experts, whose tokens are exchanged, or gathered where cp splits these: the expert
   that all tokens take is in tiles, with adapters and without. */
static void mixtures(void)
{
    for (int i = 0; i < 2; i++) {
        training t = new_training(LLAMA, 3, 8);

        t.model.experts = 8;
        t.model.top_k = 2;
        t.model.expert_ffn = 20;
        t.model.shared_ffn = 24;
        t.steps = 2;
        if (i)
            t.lora = adapters[0];
        same_run(&t, TOKENS, NULL);
        same_run(
            &t, TOKENS,
            &(wf_par_options){.dp = 4, .tp = 1, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE});
        if (UNDER_SANITIZER)
            continue;
        t.model = of_length(LLAMA, LONG).model;
        memcpy(t.options.field, of_length(LLAMA, LONG).options.field, sizeof t.options.field);
        t.model.experts = 4;
        t.model.top_k = 2;
        t.model.shared_ffn = 24;
        t.options.global_batch = 2;
        t.options.micro_batch = 1;
        same_run(&t, CUT, &(wf_par_options){.cp = 2, .tp = 2, .dp = 1});
    }
}

/* The most bytes of activations in a step, and its FLOPs that count as the model's. */
typedef struct taken {
    size_t peak;
    double flops;
} taken;

static wf_status note_taken(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_context *ctx = wf_par_context(par);
    wf_memory_report report;

    (void)model;
    wf_pool_report(wf_context_pool(ctx), &report);
    if (rank->index == 0 && step == 1)
        *(taken *)t->arg =
            (taken){report.most[WF_MEMORY_ACTIVATION], wf_context_model_flops(ctx)};
    return WF_OK;
}

/* Gate, up and what comes back to them, 16 x 16 x 768 floats each, are a tile in size. Features
   that are computed a second time count once. */
static void features_are_whole_once(const wf_nn_lora_options *lora)
{
    enum { FFN = 768, BATCH = 16 };
    const size_t all = (size_t)BATCH * TOKENS * FFN * sizeof(float);
    taken of[2] = {{0, 0}, {0, 0}};

    for (int tiled = 0; tiled < 2; tiled++) {
        training t = new_training(LLAMA, 3, BATCH);

        t.model.ffn = FFN;
        t.lora = *lora;
        t.watch = note_taken;
        t.arg = &of[tiled];
        t.change = tiled ? in_tiles : NULL;
        tokens = TOKENS;
        train(&t);
    }
    CU_ASSERT(of[0].peak > 4 * all);
    CU_ASSERT(of[1].peak < of[0].peak - 4 * all);
    CU_ASSERT(of[1].peak < (lora->rank ? 2 : 1) * all);
    CU_ASSERT(of[0].flops > 0);
    CU_ASSERT_EQUAL(of[1].flops, of[0].flops);
}

static void features_are_never_whole(void)
{
    features_are_whole_once(&(wf_nn_lora_options){.rank = 0});
    features_are_whole_once(&adapters[0]);
}

/* Runs in tiles, and expects these words in the error. */
static void refused(training t, int64_t tile, wf_status status, const char *words)
{
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t.layout)};
    wf_error error = {WF_OK, ""};

    t.change = in_tiles;
    tokens = tile;
    wf_launch(&launch, training_rank, &t, &error);
    CU_ASSERT_EQUAL(error.code, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
}

/* Sequences that cannot be cut so small are refused, chunks of a vector's sum among them, and
   so is dropout of features. */
static void what_it_cannot_do(void)
{
    enum { ODD = 4 * (CUT + 1) };
    training t = new_training(LLAMA, 3, 2);

    refused(t, TOKENS - 1, WF_EINVAL, "tiles of 15 tokens are less than");
    t.lora = (wf_nn_lora_options){.rank = 2, .alpha = 1, .targets = "down", .dropout = 0.1f};
    refused(t, TOKENS, WF_EUNSUPPORTED, "leave dropout of its last linear's adapter out");
    t = of_length(GPT2, ODD);
    refused(t, ODD / 4, WF_EINVAL, "than this sequence is cut in, 4100 tokens");
}

int main(void)
{
    static const wf_test tests[] = {{"kinds of MLPs", kinds_of_mlps},
                                    {"layouts", layouts},
                                    {"bf16", bf16},
                                    {"gradients of weights that are deferred", deferred},
                                    {"pieces of long sequences", pieces},
                                    {"adapters", adapted_kinds},
                                    {"adapters on layouts", adapted_layouts},
                                    {"adapters in bf16", adapted_bf16},
                                    {"adapters and pieces", adapted_pieces},
                                    {"mixtures", mixtures},
                                    {"features are never whole", features_are_never_whole},
                                    {"what it cannot do", what_it_cannot_do},
                                    {NULL, NULL}};

    return wf_test_main("tiles", tests);
}
