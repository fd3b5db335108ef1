/*
 * tests/parallel/test_failures.c - one rank of a training run does something else than the
 * others, or all of them do something wrong: the run ends soon, on every rank, with a text that
 * says who, where and what.
 *
 * ctest: builds address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/parallel/failing_run.h"
#include <math.h>

/* Every rank but the victim knows that it is lost, and of what. */
static bool others_lost(const trial *t, const char *victim, const char *words)
{
    bool all = true;

    for (int r = 0; r < t->tp * t->dp; r++)
        if (r != t->victim)
            all &= says(&t->of[r], WF_ELOST, victim, words);
    return all;
}

/* A rank that comes too late to see an error itself hears of it from the one that did. */
static bool knows(const wf_error *error, wf_status code, const char *a, const char *b)
{
    return says(error, error->code == WF_ELOST ? WF_ELOST : code, a, b);
}

/* A longer sequence on one rank: its trainer is another one. */
static void longer_sequences_on_one_rank(void)
{
    for (int sp = 0; sp < 2; sp++) {
        trial t = {.tp = 2,
                   .dp = 2,
                   .steps = 1,
                   .victim = 2,
                   .victim_seq_len = 10,
                   .sequence_parallel = sp};

        CU_ASSERT_EQUAL(run_trial(&t), WF_EMISMATCH);
        CU_ASSERT(says(&t.launch, WF_EMISMATCH, "field[0] is tokens, i32 [batch,",
                       ",8] in rank 0 ("));
        CU_ASSERT(says(&t.launch, WF_EMISMATCH, ",10] in rank 2 (", "field[1]: targets"));
        for (int r = 0; r < 4; r++)
            CU_ASSERT(knows(&t.of[r], WF_EMISMATCH, "field[0]", "rank 2"));
        CU_ASSERT(t.seconds < 5);
    }
}

/* The same loss, but rank 1 has summed another tensor over its group on the way. */
static wf_tensor *sum_on_the_way(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_context *ctx = model->ctx;
    wf_mesh *mesh = wf_mesh_of(ctx);
    const wf_layout *partial =
        wf_layout_partial(mesh, NULL, wf_mesh_axis(mesh, "tp"), WF_REDUCE_SUM);
    wf_dim dims[] = {wf_dim_width(wf_context_rank(ctx) == 1 ? 20 : 10)};
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 1, dims, partial, WF_MEMORY_ACTIVATION);

    if (x)
        memset(x->data, 0, (size_t)wf_tensor_local_count(x) * sizeof(float));
    if (!wf_redistribute(x, NULL))
        return NULL;
    return wf_par_gpt_loss(model, batch);
}

static void another_tensor_on_one_rank(void)
{
    trial t = {.tp = 4, .dp = 1, .steps = 1, .victim = 1, .loss = sum_on_the_way};

    CU_ASSERT_EQUAL(run_trial(&t), WF_EMISMATCH);
    CU_ASSERT(says(&t.launch, WF_EMISMATCH, "all_reduce(sum) of 40 bytes",
                   "all_reduce(sum) of 80 bytes"));
    for (int r = 0; r < 4; r++)
        CU_ASSERT(knows(&t.of[r], WF_EMISMATCH, "over tp", "rank 1 is all_reduce"));
    CU_ASSERT(t.seconds < 5);
}

static void rank_leaves_early(void)
{
    trial t = {.tp = 2, .dp = 2, .steps = 1, .victim = 3, .victim_leaves = true};

    CU_ASSERT_EQUAL(run_trial(&t), WF_ELOST);
    CU_ASSERT(says(&t.launch, WF_ELOST, "rank 3 has finished", "over"));
    CU_ASSERT_EQUAL(t.of[3].code, WF_OK);
    CU_ASSERT(others_lost(&t, "rank 3 has finished", "over"));
    CU_ASSERT(t.seconds < 5);
}

/* Sequence 3 is the second micro-step of data-parallel rank 1. */
static wf_tensor *fail_in_micro_step(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_context *ctx = model->ctx;

    if (wf_context_rank(ctx) == 2 && first_sequence(batch->tensor[0]) == 3)
        wf_fail(ctx, WF_EINVAL, "the cat sat on sequence 3");
    return wf_par_gpt_loss(model, batch);
}

static void rank_fails_in_a_micro_step(void)
{
    trial t = {.tp = 2, .dp = 2, .steps = 1, .victim = 2, .loss = fail_in_micro_step};

    CU_ASSERT_EQUAL(run_trial(&t), WF_EINVAL);
    CU_ASSERT(says(&t.launch, WF_EINVAL,
                   "rank 2, in the loss function: the cat sat on sequence 3", ""));
    CU_ASSERT(others_lost(&t, "rank 2 failed, in the loss function: the cat sat", " was in "));
    CU_ASSERT(t.seconds < 5);
}

static wf_status broken_disk(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    if (this_rank == 1 && step == 2)
        return wf_error_set(error, WF_EIO, "cannot read data file cat.txt: Input/output error");
    return count_up(self, step, first, count, field, error);
}

static void data_fail_on_one_rank(void)
{
    trial t = {.tp = 2, .dp = 2, .steps = 3, .victim = 1, .read = broken_disk};

    CU_ASSERT_EQUAL(run_trial(&t), WF_EIO);
    CU_ASSERT(says(&t.launch, WF_EIO, "rank 1: cannot read data file cat.txt", ""));
    CU_ASSERT(others_lost(&t, "rank 1 failed: cannot read", " was in "));
    for (int r = 0; r < 4; r++)
        CU_ASSERT(t.last_loss[r] > 0); /* the loss of step 1 */
    CU_ASSERT(t.seconds < 5);
}

/* The plan of GPTs with the rule of attn.out replaced. */
static void with_attention_output(wf_par_rule plan[32], const wf_par_style *style)
{
    const wf_par_rule *from = wf_par_gpt_plan;

    for (; from->pattern; from++, plan++) {
        *plan = *from;
        if (strcmp(from->pattern, "?block.*.attn.out") == 0)
            plan->style = style;
    }
    *plan = (wf_par_rule){NULL, NULL};
}

/* A wrong plan is the same error on every rank that comes so far. */
static void check_wrong_plan(const wf_par_style *style, const char *a, const char *b)
{
    wf_par_rule plan[32];
    trial t = {.tp = 2, .dp = 2, .steps = 1, .victim = NOBODY, .plan = plan};

    with_attention_output(plan, style);
    CU_ASSERT_EQUAL(run_trial(&t), WF_ELAYOUT);
    CU_ASSERT(says(&t.launch, WF_ELAYOUT, a, b));
    CU_ASSERT(says(&t.launch, WF_ELAYOUT, "in block.0.attn.out: ", "redistribute"));
    for (int r = 0; r < 4; r++)
        CU_ASSERT(knows(&t.of[r], WF_ELAYOUT, a, b));
    CU_ASSERT(t.seconds < 5);
}

static void forgotten_borders(void)
{
    static const wf_par_split inputs[] = {{"weight", 1}, {NULL, 0}};
    static const wf_par_style no_sum = {.name = "no_sum", .splits = inputs};
    static const wf_par_style nothing = {.name = "nothing"}; /* whole weights, split inputs */

    check_wrong_plan(&no_sum, "partial(tp)", "border");
    check_wrong_plan(&nothing, "f32 [2,8,12] [shard, *, tp]", "f32 [12,12] whole");
}

/* Step 2: inside of block 0, while block 1 is being gathered. */
static wf_tensor *break_block(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_nn_block *block = (wf_nn_block *)((wf_nn_gpt *)model)->block[0];

    if (wf_context_rank(model->ctx) == 2 && wf_context_step(model->ctx) == 2)
        block->attn->head_dim = 5;
    return wf_par_gpt_loss(model, batch);
}

static void rank_fails_while_units_are_gathered(void)
{
    for (int sp = 0; sp < 2; sp++) {
        trial t = {.tp = 2,
                   .dp = 2,
                   .strategy = "full_shard",
                   .prefetch = 1 + sp,
                   .layers = 3,
                   .steps = 2,
                   .victim = 2,
                   .loss = break_block,
                   .sequence_parallel = sp};

        CU_ASSERT_EQUAL(run_trial(&t), WF_ESHAPE);
        CU_ASSERT(says(&t.launch, WF_ESHAPE, "rank 2, in block.0.attn", "head size 5"));
        CU_ASSERT(others_lost(&t, "rank 2 failed, in block.0.attn", " was in "));
        CU_ASSERT(t.last_loss[0] > 0);
        CU_ASSERT(t.seconds < 5);
    }
}

static wf_tensor *break_all(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_nn_block *block = (wf_nn_block *)((wf_nn_gpt *)model)->block[0];

    block->attn->head_dim = wf_context_step(model->ctx) == 2 ? 5 : 4;
    return wf_par_gpt_loss(model, batch);
}

/* Every rank meets the same error with gathers under way, and forgets it: what is under way
   ends in the next step, and nothing of it shows. */
static void all_fail_and_go_on(void)
{
    trial without = {.tp = 2,
                     .dp = 2,
                     .strategy = "full_shard",
                     .prefetch = 2,
                     .layers = 3,
                     .steps = 3,
                     .victim = NOBODY,
                     .skipped_step = 2,
                     .after = digest_after};
    trial with = without;

    with.skipped_step = 0;
    with.loss = break_all;
    CU_ASSERT_EQUAL(run_trial(&without), WF_OK);
    CU_ASSERT_EQUAL(run_trial(&with), WF_OK);
    for (int r = 0; r < 4; r++) {
        CU_ASSERT_EQUAL(with.before[r].code, WF_ESHAPE);
        CU_ASSERT_EQUAL(with.digest[r], without.digest[0]);
    }
}

/* A hook of block 0 on the rank that fails: it puts one on the tape, which fails. */
static wf_status stumble(void *arg)
{
    return wf_fail(arg, WF_EINVAL, "the cat sat on the tape");
}

static void add_tape_hook(void *self, wf_nn_module *m)
{
    (void)self;
    wf_tape_hook(m->ctx, WF_WALK_INPUTS, stumble, m->ctx);
}

/* In backward, when the gradients of block 1 are being summed and block 0 is through. */
static wf_tensor *break_backward(wf_nn_module *model, const wf_par_batch *batch)
{
    static const wf_nn_hooks hooks = {.enter = add_tape_hook};

    if (wf_context_rank(model->ctx) == 1)
        wf_nn_hook_add(((wf_nn_gpt *)model)->block[0], &hooks);
    return wf_par_gpt_loss(model, batch);
}

static void rank_fails_while_gradients_are_summed(void)
{
    trial t = {.tp = 1,
               .dp = 4,
               .strategy = "full_shard",
               .prefetch = 1,
               .layers = 3,
               .steps = 1,
               .victim = 1,
               .loss = break_backward};

    CU_ASSERT_EQUAL(run_trial(&t), WF_EINVAL);
    CU_ASSERT(says(&t.launch, WF_EINVAL, "rank 1: the cat sat on the tape", ""));
    CU_ASSERT(others_lost(&t, "rank 1 failed: the cat sat", " was in "));
    CU_ASSERT(t.seconds < 5);
}

int main(void)
{
    static const wf_test tests[] = {
        {"longer sequences on one rank", longer_sequences_on_one_rank},
        {"another tensor on one rank", another_tensor_on_one_rank},
        {"a rank leaves early", rank_leaves_early},
        {"a rank fails in a micro-step", rank_fails_in_a_micro_step},
        {"data fail on one rank", data_fail_on_one_rank},
        {"forgotten borders", forgotten_borders},
        {"a rank fails while units are gathered", rank_fails_while_units_are_gathered},
        {"all fail while units are gathered, and go on", all_fail_and_go_on},
        {"a rank fails while gradients are summed", rank_fails_while_gradients_are_summed},
        {NULL, NULL},
    };

    return wf_test_main("failures", tests);
}
