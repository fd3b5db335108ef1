/*
 * tests/parallel/test_patterns.c - what a Llama 4 has beside others: chunks of tokens, norms of
 * heads after they rotate, blocks without positions whose queries have a temperature, and
 * experts whose weights multiply what they take. On every kind of layout a run has the bits of
 * one rank.
 *
 * ctest: builds plain address, cost 20
 */
#include "nn/layers/moe.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4 };

/* Rows without experts, then some with them. */
static const row rows[] = {
    {.tp = 1, .dp = 4, .micro = 1, .threads = 2},
    {.tp = 2, .dp = 2, .micro = 4, .sequence_parallel = true, .threads = 1},
    {"full_shard", .tp = 4, .dp = 2, .micro = 2, .recompute = "block"},
    {"no_shard", .tp = 8, .dp = 1, .micro = 16, .sequence_parallel = true},
    {"full_shard", .tp = 2, .dp = 4, .ep = 8, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 1,
     .sequence_parallel = true, .buffer = .3},
    {"no_shard", .tp = 1, .dp = 4, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE, .micro = 2,
     .waits = true},
    {"zero1", .tp = 2, .dp = 4, .ep = 4, .dispatch = WF_PAR_DISPATCH_GATHER, .micro = 1},
    {"full_shard", .tp = 4, .dp = 1, .ep = 1, .etp = 4, .buffer = .3},
    {"shard_grad_op", .tp = 2, .dp = 4, .ep = 2, .etp = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE,
     .micro = 1, .recompute = "block"},
    {"full_shard", .tp = 4, .dp = 2, .micro = 2, .sequence_parallel = true},
};

enum { ROWS = sizeof rows / sizeof *rows, WITHOUT_EXPERTS = 4 };

static training with_chunks(int64_t batch)
{
    training t = new_training(LLAMA, 3, batch);

    t.model.layers = t.model.rope_skip = t.model.window_skip = 2;
    t.model.window = 5;
    t.model.window_chunks = t.model.qk_l2_norm = t.model.rope_neighbours = true;
    t.model.temperature = 0.7;
    t.model.temperature_every = 3;
    t.steps = STEPS;
    return t;
}

static void have_experts(training *t)
{
    t->model.experts = 12;
    t->model.top_k = 1;
    t->model.expert_ffn = t->model.shared_ffn = 16;
    t->model.router = WF_NN_SIGMOID;
    t->model.weigh_input = true;
}

/* Each property counts. */
static void chunks(void)
{
    training one = with_chunks(BATCH);

    if (!train(&one))
        return;
    CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
    for (int i = 0; i < 3; i++) {
        training apart = one;

        apart.model.window_chunks = i != 0;
        apart.model.qk_l2_norm = i != 1;
        apart.model.temperature = i == 2 ? 0 : 0.7;
        if (train(&apart))
            CU_ASSERT_NOT_EQUAL(one.digest, apart.digest);
    }
    check_rows(&one, rows, WITHOUT_EXPERTS, UNDER_SANITIZER ? 3 : 1);
}

static void weighed_inputs(void)
{
    for (int bf16 = 0; bf16 <= !UNDER_SANITIZER; bf16++) {
        training one = with_chunks(BATCH), after;

        have_experts(&one);
        one.layout.dtype = one.layout.param_dtype = bf16 ? WF_BF16 : WF_F32;
        after = one;
        after.model.weigh_input = false;
        if (!train(&one) || !train(&after))
            return;
        CU_ASSERT_NOT_EQUAL(one.digest, after.digest);
        CU_ASSERT(one.loss[STEPS - 1] < one.loss[0]);
        check_rows(&one, rows + WITHOUT_EXPERTS, ROWS - WITHOUT_EXPERTS,
                   UNDER_SANITIZER ? 4 : 1);
    }
}

/* Chunks count from where a document begins, wherever ranks cut tokens. */
static void context_parallel(void)
{
    static const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(OF_DOCUMENTS);
    static const wf_par_data data = {.read = read_documents};
    training one = with_chunks(2), t;

    one.model.positions = OF_DOCUMENTS;
    one.model.window = 300;
    one.model.temperature_every = 100;
    memcpy(one.options.field, fields, sizeof fields);
    one.data = &data;
    one.options.micro_batch = one.steps = 1;
    if (!UNDER_SANITIZER)
        have_experts(&one);
    t = one;
    if (!train(&one))
        return;
    for (int gather = UNDER_SANITIZER; gather < 2; gather++) {
        t.layout = (wf_par_options){.tp = 2,
                                    .cp = 2,
                                    .dp = 1,
                                    .seed = one.layout.seed,
                                    .sequence_parallel = gather,
                                    .cp_form = gather ? "gather" : "heads"};
        if (train(&t))
            check_same(&t, &one);
    }
}

/* A run that a mixture refuses. */
static void refused(void)
{
    training t = with_chunks(2);
    wf_launch_options launch = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    have_experts(&t);
    t.model.top_k = 2;
    wf_launch(&launch, training_rank, &t, &error);
    CU_ASSERT_EQUAL(error.code, WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "a token chooses 2"));
}

int main(void)
{
    static const wf_test tests[] = {{"chunks, norms, temperatures", chunks},
                                    {"weights of what experts take", weighed_inputs},
                                    {"tokens that ranks split", context_parallel},
                                    {"two experts a token", refused},
                                    {NULL, NULL}};

    return wf_test_main("patterns", tests);
}
