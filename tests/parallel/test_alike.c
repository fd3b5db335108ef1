/*
 * tests/parallel/test_alike.c - ranks that do not do the same: other options, another model,
 * other data where it has to be the same, steps, rates and updates of their own. Each is an
 * error on every rank, which names what differs, both values and the ranks.
 *
 * ctest: builds address thread
 */
#include "parallel/agree.h"
#include "tests/parallel/alike.h"
#include <stddef.h>

static void nothing_differs(void)
{
    static const int dp[] = {1, 2, 4};

    for (int i = 0; i < 3; i++) {
        trial t = new_trial(RANKS / dp[i], dp[i], -1);

        t.t.options.check_replicas = 1;
        run(&t);
        CU_ASSERT_EQUAL(t.launch.code, WF_OK);
        CU_ASSERT_EQUAL(t.made[0], STEPS);
    }
}

/* ---- at the start ---- */

#define CHANGE(name, what)                                                                     \
    static void name(training *t)                                                              \
    {                                                                                          \
        what;                                                                                  \
    }
CHANGE(other_lr, t->options.schedule.lr = 0.02)
CHANGE(other_min_lr, t->options.schedule.min_lr = 0.002)
CHANGE(other_warmup, t->options.schedule.warmup = 2)
CHANGE(other_steps, t->options.schedule.steps = 7)
CHANGE(other_clip, t->options.clip = 2)
CHANGE(other_decay, t->options.optimizer.weight_decay = 0.2f)
CHANGE(other_beta1, t->options.optimizer.beta1 = 0.8f)
CHANGE(other_beta2, t->options.optimizer.beta2 = 0.9f)
CHANGE(other_eps, t->options.optimizer.eps = 1e-6f)
CHANGE(other_groups, t->options.optimizer.groups = "embed:lr=0.5")
CHANGE(other_schedule, t->options.schedule.kind = WF_NN_WSD)
CHANGE(other_average, t->options.optimizer.ema = 0.5f)
CHANGE(other_method, t->options.optimizer.method = WF_NN_SGD)
CHANGE(other_batch, t->options.global_batch = 16)
CHANGE(other_micro, t->options.micro_batch = 1)
CHANGE(other_check, t->options.check_replicas = 2)
CHANGE(other_seed, t->layout.seed = 8)
CHANGE(other_strategy, t->layout.strategy = "shard_grad_op")
CHANGE(other_dtype, t->layout.dtype = WF_BF16)
CHANGE(other_params, t->layout.param_dtype = WF_BF16)
CHANGE(other_reduce, t->layout.reduce_dtype = WF_BF16)
CHANGE(other_sp, t->layout.sequence_parallel = true)
CHANGE(other_exact, t->layout.exact_off = true)
CHANGE(other_prefetch, t->layout.prefetch = 3)
CHANGE(other_wrap, t->layout.wrap_type = "mlp")
CHANGE(other_reshard, t->layout.reshard = WF_PAR_RESHARD_NEVER)
CHANGE(other_accumulate, t->layout.accumulate = WF_PAR_LOCAL)
CHANGE(deeper, t->model.layers = 3)
CHANGE(wider, t->model.ffn = 5 * WIDTH)
CHANGE(other_frozen, t->frozen = "block.0")
CHANGE(adapted, t->lora = ((wf_nn_lora_options){.rank = 2, .alpha = 4, .targets = "q"}))

static void other_options(void)
{
    static const struct {
        void (*change)(training *t);
        const char *says;
    } cases[] = {
        {other_lr, "schedule.lr is 0.01 in rank 0 ("},
        {other_min_lr, "schedule.min_lr is 0.001 in rank 0 ("},
        {other_warmup, "schedule.warmup is 3 in rank 0 ("},
        {other_steps, "schedule.steps is 30 in rank 0 ("},
        {other_clip, "clip is 1 in rank 0 ("},
        {other_decay, "optimizer.weight_decay is 0.1"},
        {other_beta1, "optimizer.beta1 is 0.89999"},
        {other_beta2, "optimizer.beta2 is 0.949999"},
        {other_eps, "optimizer.eps is "},
        {other_groups, "optimizer.groups is none in rank 0 ("},
        {other_schedule, "schedule is cosine in rank 0 ("},
        {other_average, "optimizer.ema is 0 in rank 0 ("},
        {other_method, "optimizer.method is adamw in rank 0 ("},
        {other_batch, "global_batch is 8 in rank 0 ("},
        {other_micro, "micro_batch is 0 in rank 0 ("},
        {other_check, "check_replicas is 0 in rank 0 ("},
        {other_seed, "seed is 7 in rank 0 ("},
        {other_strategy, "strategy is full_shard in rank 0 ("},
        {other_dtype, "dtype is f32 in rank 0 ("},
        {other_params, "param_dtype is f32 in rank 0 ("},
        {other_reduce, "reduce_dtype is f32 in rank 0 ("},
        {other_sp, "sequence_parallel is 0 in rank 0 ("},
        {other_exact, "exact_off is 0 in rank 0 ("},
        {other_prefetch, "prefetch is 0 in rank 0 ("},
        {other_wrap, "wrap_type is default in rank 0 ("},
        {other_reshard, "reshard is 0 in rank 0 ("},
        {other_accumulate, "accumulate is 0 in rank 0 ("},
        {deeper, "number of parameters is 36 in rank 0 ("},
        {wider, "block.0.mlp.up.weight is [96,24]"},
        {other_frozen, "block.0."},
        {adapted, "number of parameters is 36 in rank 0 ("},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trial t = new_trial(2, 2, 2);

        t.change = cases[i].change;
        refused(&t, 2, 0, cases[i].says, " in rank 2 (");
    }
}

static wf_status compare_rank(wf_rank *rank, void *arg)
{
    wf_par *par = wf_par_open(rank, &(wf_par_options){.dp = RANKS}, &rank->error);
    wf_job *job = wf_job_new();
    trial *t = arg;

    if (!par)
        return rank->error.code;
    wf_job_add(job, "alpha", "%g", 0.5);
    wf_job_add(job, "beta", "%d", rank->index == t->odd ? 2 : 1);
    wf_par_compare_job(par, job);
    rank->error = t->of[rank->index] = *wf_context_error(wf_par_context(par));
    wf_job_free(job);
    wf_par_close(par);
    return rank->error.code;
}

static void entries_of_a_program(void)
{
    trial alike = {.odd = -1}, other = {.odd = 3}, zero = {.odd = 0};
    const wf_launch_options launch = {.ranks = RANKS};

    CU_ASSERT_EQUAL(wf_launch(&launch, compare_rank, &alike, &alike.launch), WF_OK);
    CU_ASSERT_EQUAL(wf_launch(&launch, compare_rank, &other, &other.launch), WF_EMISMATCH);
    names(&other.launch, "rank 3: ranks were given different jobs: beta is 1 in rank 0 (");
    names(&other.launch, " and 2 in rank 3 (");
    CU_ASSERT_EQUAL(wf_launch(&launch, compare_rank, &zero, &zero.launch), WF_EMISMATCH);
    names(&zero.launch, "beta is 2 in rank 0 (");
    names(&zero.launch, "others than rank 0 also have ranks 2, 3");
    for (int r = 0; r < RANKS; r++)
        CU_ASSERT(other.of[r].code == WF_EMISMATCH && zero.of[r].code == WF_EMISMATCH);
}

/* ---- in a step ---- */

/* A loop of the parts, in which the odd rank differs as the test says. */
static wf_status parts(part *p, wf_par_trainer *trainer, int64_t step, float max_norm, float lr,
                       bool norm, bool update)
{
    const wf_par_data data = {.read = count_up};

    wf_par_step_begin(trainer, step);
    wf_par_forward_backward(trainer, &data);
    wf_par_reduce(trainer, NULL);
    if (norm)
        wf_par_clip(trainer, max_norm, NULL);
    if (update)
        wf_par_optimizer_step(trainer, lr);
    else
        wf_par_zero_grad(trainer);
    return wf_context_status(p->ctx);
}

static wf_status another_step(trial *t, part *p, wf_par_trainer *trainer)
{
    for (int step = 1; step <= STEPS; step++) {
        GOOD(parts(p, trainer, step + (step == 2 && is_odd(t, p)), 1, 0.01f, true, true));
        t->made[p->rank->index]++;
    }
    return WF_OK;
}

static wf_status another_rate(trial *t, part *p, wf_par_trainer *trainer)
{
    for (int step = 1; step <= STEPS; step++) {
        GOOD(parts(p, trainer, step, 1, is_odd(t, p) ? 0.02f : 0.01f, true, true));
        t->made[p->rank->index]++;
    }
    return WF_OK;
}

static wf_status another_rate_without_norm(trial *t, part *p, wf_par_trainer *trainer)
{
    for (int step = 1; step <= STEPS; step++) {
        GOOD(parts(p, trainer, step, 1, is_odd(t, p) ? 0.02f : 0.01f, false, true));
        t->made[p->rank->index]++;
    }
    return WF_OK;
}

static wf_status another_bound(trial *t, part *p, wf_par_trainer *trainer)
{
    return parts(p, trainer, 1, is_odd(t, p) ? 2.0f : 1.0f, 0.01f, true, true);
}

static wf_status skips_an_update(trial *t, part *p, wf_par_trainer *trainer)
{
    for (int step = 1; step <= STEPS; step++) {
        GOOD(parts(p, trainer, step, 1, 0.01f, true, !(step == 2 && is_odd(t, p))));
        t->made[p->rank->index]++;
    }
    return WF_OK;
}

static void steps_of_their_own(void)
{
    static const struct {
        wf_status (*steps)(trial *trial, part *p, wf_par_trainer *trainer);
        int made;
        const char *a, *b;
    } cases[] = {
        {another_step, 1, "rank 0 (", ") in step 3"},
        {another_rate, 1,
         "the learning rate of the update before was 0.00999999978 on rank 0 (",
         " and 0.0199999996 on rank 3 ("},
        {another_rate_without_norm, 0, "the learning rate is 0.00999999978 on rank 0 (",
         " and 0.0199999996 on rank 3 ("},
        {another_bound, 0, "gradients are clipped by 1 on rank 0 (", " and by 2 on rank 3 ("},
        {skips_an_update, 2, "was that of step 2 and that of rank 3 (", ") of step 1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int tp = 1; tp <= 4; tp *= 2) {
            trial t = new_trial(tp, RANKS / tp, 3);

            t.t.layout.strategy = "no_shard";
            t.steps = cases[i].steps;
            refused(&t, 3, cases[i].made, cases[i].a, cases[i].b);
        }
}

/* Sequences of step 2, or of batch 1 of an evaluation, with another token. */
static wf_status misread(void *self, int64_t step, int64_t first, int64_t count,
                         void *const *field, wf_error *error)
{
    wf_status status = count_up(NULL, step, first, count, field, error);

    (void)self;
    if (step == 2)
        ((int32_t *)field[0])[3] ^= 1;
    return status;
}

/* The same in the first micro-batch alone. */
static wf_status misread_first(void *self, int64_t step, int64_t first, int64_t count,
                               void *const *field, wf_error *error)
{
    return first == 0 ? misread(self, step, first, count, field, error)
                      : count_up(NULL, step, first, count, field, error);
}

/* The micro-batches of an evaluation, of 2 sequences of 4 each, exchanged. */
static wf_status exchanged(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    (void)self;
    return count_up(NULL, step, first ^ 2, count, field, error);
}

static wf_status evaluated_steps(trial *t, part *p, wf_par_trainer *trainer)
{
    const wf_par_data usual = {.read = count_up}, other = {.read = misread},
                      swapped = {.read = exchanged};
    wf_par_step result;
    float mean;

    for (int step = 1; step <= STEPS; step++) {
        GOOD(wf_par_train_step(trainer, step, &usual, &result));
        t->made[p->rank->index]++;
        if (step == 1)
            GOOD(wf_par_evaluate(
                trainer, 3,
                is_odd(t, p) ? t->t.options.micro_batch == 2 ? &swapped : &other : &usual, NULL,
                &mean));
    }
    return WF_OK;
}

static void data_of_their_own(void)
{
    static const wf_par_data other = {.read = misread}, other_first = {.read = misread_first};
    trial tp = new_trial(2, 2, 3), first = new_trial(4, 1, 1), all = new_trial(4, 1, 1),
          dp = new_trial(1, 4, 3), evaluates = new_trial(2, 2, 3), swaps = new_trial(4, 1, 1);

    tp.data = all.data = dp.data = &other;
    refused(&tp, 3, 1, "rank 2 (", "have to read the same sequences and read different ones");
    refused(&all, 1, 1, "rank 0 (", "have to read the same sequences and read different ones");
    first.data = &other_first;
    first.t.options.micro_batch = 2;
    refused(&first, 1, 1, "rank 0 (",
            "have to read the same sequences and read different ones");
    evaluates.steps = evaluated_steps;
    refused(&evaluates, 3, 1, "read different ones in an evaluation", "rank 3 (");
    swaps.steps = evaluated_steps;
    swaps.t.options.micro_batch = 2;
    refused(&swaps, 1, 1, "read different ones in an evaluation", "rank 0 (");
    run(&dp); /* nobody else reads what this rank does */
    CU_ASSERT_EQUAL(dp.launch.code, WF_OK);
}

static void data_of_stages(void)
{
    static const wf_par_data other = {.read = misread};

    for (int odd = 0; odd < RANKS; odd++) {
        trial t = new_trial(1, 2, odd);

        t.t.layout.pp = 2;
        t.t.options.micro_batch = 1;
        t.t.pipeline = (wf_par_pipeline_options){.schedule = "1f1b"};
        t.data = &other;
        refused(&t, odd < 2 ? odd + 2 : odd, 1, "have to read the same sequences",
                odd % 2 ? "rank 3 (" : "rank 2 (");
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"nothing differs", nothing_differs},
        {"other options", other_options},
        {"entries of a program", entries_of_a_program},
        {"steps of their own", steps_of_their_own},
        {"data of their own", data_of_their_own},
        {"data of stages", data_of_stages},
        {NULL, NULL},
    };

    return wf_test_main("alike", tests);
}
