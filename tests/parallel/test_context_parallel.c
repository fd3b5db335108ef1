/*
 * tests/parallel/test_context_parallel.c - ranks that split the tokens of each sequence (cp):
 * what they train is what one rank trains, bit for bit, of lengths and heads that they do not
 * divide; and what would be another sum, or is not there, is refused with its reason.
 *
 * The faults that ranks of other trainers have had, the tests that find each, and the file
 * where tests/mutants.txt puts it in:
 *
 *     gradients of queries, keys and values
 *         heads that ranks share: sharding_borders.c
 *         keys that are gathered: attention_gather.c
 *     a length that ranks do not divide
 *         all but short sequences, 2,049 and 4,099 tokens: read_batch.c, move.c
 *     ranks that get no head, of 12 on 8
 *         heads of their own, refusals, keys that are gathered: sharding_borders.c
 *     the last token, left out
 *         heads of their own, micro-steps: read_batch.c
 *     a loss that is scaled by the ranks
 *         all, whose losses are compared by their bits: batch.c
 *     a gather without a gradient
 *         heads that ranks share: sharding_borders.c
 *         keys that are gathered: attention_gather.c
 *     bf16 that is only near
 *         bf16: dispatch.c (sums over ranks), attention_part.c (gathered logarithms)
 *
 * ctest: builds plain address, timeout 600
 */
#include "tests/parallel/parallel_harness.h"

enum { LONG = OF_DOCUMENTS, LONGER = 4099 };

/* A run of long sequences: one layer, but for pipelines. */
static training of_length(model_kind kind, int64_t kv_heads, int64_t length, int64_t batch)
{
    const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_FIELDS(length);
    training t = new_training(kind, kv_heads, batch);

    t.model.positions = length;
    t.model.layers = 1;
    memcpy(t.options.field, fields, sizeof fields);
    t.options.micro_batch = 1;
    t.steps = 2;
    return t;
}

typedef struct mesh_row {
    int cp, tp, dp;
    const char *strategy;
} mesh_row;

static void check_meshes(const training *one, const mesh_row *rows, int n)
{
    training reference = *one;

    reference.layout.cp_form = NULL; /* it has no ranks of cp, nor of tp */
    reference.layout.sequence_parallel = false;
    if (!train(&reference))
        return;
    CU_ASSERT_STRING_EQUAL(reference.inexact, "");
    for (int i = UNDER_SANITIZER ? n - 1 : 0; i < n; i++) {
        training t = *one;
        bool same = true;

        t.layout.cp = rows[i].cp;
        t.layout.tp = rows[i].tp;
        t.layout.dp = rows[i].dp;
        t.layout.strategy = rows[i].strategy;
        if (!train(&t))
            continue;
        for (int step = 0; step < t.steps; step++)
            same = same && memcmp(&t.loss[step], &reference.loss[step], sizeof(float)) == 0;
        CU_ASSERT_TRUE(same);
        CU_ASSERT_EQUAL(t.digest, reference.digest);
        CU_ASSERT_STRING_EQUAL(t.inexact, "");
        if (!same || t.digest != reference.digest || *t.inexact)
            printf("\n    cp %d tp %d dp %d: %s\n", rows[i].cp, rows[i].tp, rows[i].dp,
                   t.inexact);
    }
}

#define CHECK(one, ...)                                                                        \
    check_meshes(&(one), (const mesh_row[]){__VA_ARGS__},                                      \
                 sizeof((const mesh_row[]){__VA_ARGS__}) / sizeof(mesh_row))

/* A head of its own for each query head; 12 heads on 8 ranks; learned positions. */
static void plain_heads(void)
{
    training t = of_length(GPT2, HEADS, LONG, 2);

    t.model.dropout = 0.1f;
    CHECK(t, {2, 1, 1, NULL}, {2, 2, 2, "zero1"}, {2, 4, 1, NULL});
    if (UNDER_SANITIZER)
        return;
    t = of_length(GPT2, HEADS, LONGER, 1);
    CHECK(t, {4, 1, 1, NULL}, {4, 2, 1, NULL});
}

/* Key-value heads that ranks share: dK and dV are sums over ranks. */
static void grouped_heads(void)
{
    for (int64_t kv = 1; kv <= 6; kv += 5) {
        training t = of_length(LLAMA, kv, UNDER_SANITIZER ? LONG : LONGER, 2);

        t.model.qk_norm = true;
        if (UNDER_SANITIZER) {
            CHECK(t, {2, 2, 1, NULL});
            return;
        }
        CHECK(t, {2, 2, 1, NULL}, {4, 1, 2, "full_shard"}, {4, 2, 1, NULL});
    }
}

static void bf16(void)
{
    training t = of_length(LLAMA, 3, LONG, 2);

    if (UNDER_SANITIZER)
        return;
    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    CHECK(t, {2, 1, 1, NULL}, {2, 2, 2, "full_shard"});
    t.layout.cp_form = "gather";
    CHECK(t, {2, 2, 1, NULL});
}

/* Micro-steps whose gradients are added on each rank, and once a step over ranks; several
   sequences in each, of which ranks add the tokens first. */
static void micro_steps(void)
{
    training t = of_length(LLAMA, 3, LONG, 4);

    if (UNDER_SANITIZER)
        return;
    t.options.micro_batch = 2;
    CHECK(t, {2, 1, 1, "no_shard"}, {2, 1, 2, "no_shard"});
}

static void pipeline(void)
{
    training one = of_length(LLAMA, 3, LONG, 2), t;

    one.model.layers = 2;
    t = one;
    t.layout.pp = 2;
    t.layout.cp = 2;
    t.pipeline.schedule = "zb-h1"; /* it may join weight gradients of micro-steps */
    if (!train(&one) || !train(&t))
        return;
    CU_ASSERT_EQUAL(t.digest, one.digest);
    CU_ASSERT_STRING_EQUAL(t.inexact, "");
    if (UNDER_SANITIZER)
        return;
    t.layout.tp = 2;
    t.pipeline.split_messages = true;
    if (train(&t))
        CU_ASSERT_EQUAL(t.digest, one.digest);
}

static training of_packed(model_kind kind)
{
    static const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(LONG);
    static const wf_par_data data = {.read = read_documents};
    training t = of_length(kind, kind == GPT2 ? HEADS : 3, LONG, 2);

    memcpy(t.options.field, fields, sizeof fields);
    t.data = &data;
    return t;
}

static void documents(void)
{
    for (model_kind kind = GPT2; kind <= (UNDER_SANITIZER ? GPT2 : LLAMA); kind++) {
        training t = of_packed(kind);

        t.layout.cp_form = kind == GPT2 ? "heads" : "gather";
        CHECK(t, {2, 1, 1, NULL}, {2, 2, 1, NULL});
    }
}

/* Keys and values are gathered: more ranks than heads, windows, norms of heads; and beside
   sequence parallelism, where tp cuts tokens further than cp has. */
static void gathered_keys(void)
{
    training t = of_length(LLAMA, 1, LONG, 2);

    t.model.qk_norm = true;
    t.model.window = 700;
    t.model.dropout = 0.1f;
    t.model.score_cap = 0.5;
    if (UNDER_SANITIZER) {
        t.layout.sequence_parallel = true;
        CHECK(t, {2, 2, 1, NULL});
        return;
    }
    CHECK(t, {2, 8, 1, NULL});
    t.layout.sequence_parallel = true;
    t.options.micro_batch = 2;
    t.steps = 1;
    CHECK(t, {2, 2, 1, "full_shard"});
}

/* Sinks of heads that ranks of cp split; and of tokens that they split, where keys and values
   are gathered. */
static void sinks(void)
{
    training t = of_length(LLAMA, 3, LONG, 2);

    t.model.sinks = true;
    t.model.window = 700;
    for (int gather = 0; gather <= !UNDER_SANITIZER; gather++) {
        t.layout.cp_form = gather ? "gather" : "heads";
        CHECK(t, {2, 1, 2, "full_shard"}, {2, 2, 1, NULL});
    }
}

/* The same of documents: of heads; of gathered keys, beside tp and where tp cuts tokens
   further. */
static void sinks_read_documents(void)
{
    training t = of_packed(LLAMA), apart = t;

    t.model.sinks = true;
    if (!UNDER_SANITIZER) {
        t.layout.cp_form = "heads";
        CHECK(t, {2, 1, 2, "full_shard"}, {2, 2, 1, NULL});
        t.layout.cp_form = NULL;
        if (train(&apart) && train(&t))
            CU_ASSERT_NOT_EQUAL(apart.digest, t.digest);
        t.layout.cp_form = "gather";
        CHECK(t, {2, 2, 1, NULL});
    }
    t.layout.cp_form = "gather";
    t.layout.sequence_parallel = true;
    CHECK(t, {2, 2, 1, NULL});
}

/* Experts are split over tp and cp, and tokens of all of these meet at them; losses of balance
   are those of whole sequences, and counts of each are of all its ranks. */
static void mixture(void)
{
    training t = of_length(LLAMA, 3, LONG, 2);

    if (UNDER_SANITIZER)
        return;
    t.model.experts = 4;
    t.model.top_k = 2;
    t.model.sequence_weight = t.model.z_weight = 0.1;
    CHECK(t, {2, 2, 1, NULL});
    t.model.sequence_weight = 0;
    t.model.global_weight = 0.1;
    t.model.expert_capacity = LONG / 3; /* equal loads are LONG / 2 */
    CHECK(t, {2, 2, 1, NULL});
}

static wf_status takes_one(part *p, wf_par_trainer *trainer)
{
    wf_rank *rank = p->rank;

    NEED(wf_par_micro_steps(trainer) == *(const int64_t *)p->arg);
    return WF_OK;
}

static wf_status count_micro_steps(wf_rank *rank, void *arg)
{
    training *t = arg;

    return on_trainer(rank, t, takes_one, &t->options.global_batch);
}

/* Without a micro-batch that is asked for, ranks that split sequences take one at a time. */
static void default_micro_batch(void)
{
    const wf_launch_options launch = {.ranks = 2};
    training t = of_length(LLAMA, 3, LONG, 2);
    wf_error error = {WF_OK, ""};

    t.layout.cp = 2;
    t.options.micro_batch = 0;
    CU_ASSERT_EQUAL(wf_launch(&launch, count_micro_steps, &t, &error), WF_OK);
}

/* An axis of one's own, named cp. */
static void own_axes(void)
{
    training one = of_length(LLAMA, 3, LONG, 2), t = one;

    if (UNDER_SANITIZER)
        return;
    t.layout.tp = t.layout.dp = 0;
    t.layout.axes = WF_AXES({"dp", 1}, {"tp", 2}, {"cp", 2});
    if (!train(&one) || !train(&t))
        return;
    CU_ASSERT_EQUAL(t.digest, one.digest);
}

/* Sequences of one chunk are not exact over ranks, and say so. */
static void short_sequences(void)
{
    training t = of_length(LLAMA, 3, 256, 2);

    t.layout.cp = 2;
    if (train(&t))
        CU_ASSERT_PTR_NOT_NULL(strstr(t.inexact, "not layout-exact"));
}

static void is_refused(training t, const char *words)
{
    const wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t.layout)};
    wf_error error = {WF_OK, ""};

    wf_launch(&launch, training_rank, &t, &error);
    CU_ASSERT_NOT_EQUAL(error.code, WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    if (!strstr(error.text, words))
        printf("\n    %s\n", error.text);
}

static void refusals(void)
{
    training t = of_length(LLAMA, 3, LONG, 4);

    t.layout.cp = 2;
    t.layout.tp = 2;
    t.layout.sequence_parallel = true;
    t.layout.cp_form = "heads";
    is_refused(t, "or leave .sequence_parallel off");
    t.layout.sequence_parallel = false;
    t.model.heads = 3;
    is_refused(t, "split 3 query heads");
    t.layout.cp_form = "ring";
    is_refused(t, "cp_form ring is none of auto, heads and gather");
    t = of_length(LLAMA, 3, LONG, 4);
    t.layout.tp = t.layout.dp = 0;
    t.layout.axes = WF_AXES({"cp", 2}, {"dp", 2});
    is_refused(t, "list cp last");
    t.layout.sequence_parallel = true;
    t.layout.axes = WF_AXES({"tp", 2}, {"cp", 2});
    is_refused(t, "list cp before tp");
    t.layout.sequence_parallel = false;
    t.layout.axes = NULL;
    t.layout.cp = 2;
    t.options.cut = "tokens2,targets2";
    is_refused(t, "name those that have tokens in wf_par_train_options.cut");
    t.options.cut = NULL;
    t.options.field[0].dim[0] = wf_dim_width(LONG);
    is_refused(t, "field tokens of a batch is cut by tokens (.cut), and its first dim is none");
}

int main(void)
{
    static const wf_test tests[] = {
        {"heads of their own", plain_heads},
        {"heads that ranks share", grouped_heads},
        {"bf16", bf16},
        {"micro-steps", micro_steps},
        {"pipelines", pipeline},
        {"documents", documents},
        {"keys that are gathered", gathered_keys},
        {"sinks", sinks},
        {"sinks of documents", sinks_read_documents},
        {"mixtures", mixture},
        {"micro-batches of one sequence", default_micro_batch},
        {"an axis of one's own", own_axes},
        {"short sequences", short_sequences},
        {"refusals", refusals},
        {NULL, NULL},
    };

    return wf_test_main("context parallelism", tests);
}
