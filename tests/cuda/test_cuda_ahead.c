/*
 * tests/cuda/test_cuda_ahead.c - steps that are launched before the one before them is
 * finished, and judged by the device: rows, digest, errors and skipped steps of steps that run
 * op by op and are judged by the host; no wait after which the device is idle; a step that is
 * held changes nothing; batches that grow are captured anew.
 *
 * ctest: builds plain
 */
#include "parallel/models/gpt/gpt.h"
#include "parallel/train/ahead.h"
#include "parallel/train/measure_internal.h"
#include "tests/cuda/gpu_main.h"
#include "tests/parallel/checkpoint_harness.h"

enum { LENGTH = 4, MOST = 8 };

/* A run, and what its steps were said to be. */
typedef struct run {
    training t;
    bool ahead;           /* by graphs, a step launched before the one before it is finished */
    int64_t bad, missing; /* the step whose data are spoiled, and the one without data; 0 */
    wf_par_step row[MOST];
    int64_t syncs; /* waits after which the device was idle, of steps 3 and later */
    wf_error error;
} run;

static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    const run *r = self;

    if (r->missing && step == r->missing)
        return wf_error_set(error, WF_EDATA, "there are no data of step %d", (int)step);
    count_up((void *)(uintptr_t)&r->t.options.field[0].dim[0].size, step, first, count, field,
             error);
    if (r->bad && step == r->bad)
        *(int32_t *)field[1] = 1 << 20; /* no token: a GPU's loss is NaN then */
    return WF_OK;
}

static run make_run_of(model_kind kind, bool ahead)
{
    run r = {.t = new_training(kind, 4, 4), .ahead = ahead};

    r.t.model.heads = 4;
    r.t.model.layers = 1;
    r.t.model.width = 16;
    r.t.model.ffn = 32;
    r.t.model.dropout = kind == GPT2 ? 0.1f : 0;
    r.t.model.positions = LENGTH;
    for (int i = 0; i < 2; i++)
        r.t.options.field[i].dim[0].size = LENGTH;
    r.t.options.micro_batch = 4;
    r.t.options.clip = 0.1f;
    r.t.options.optimizer.ema = 0.9f;
    r.t.steps = 5;
    r.t.layout.device = "cuda";
    r.t.layout.cuda_graph = ahead;
    return r;
}

static run make_run(bool ahead)
{
    return make_run_of(GPT2, ahead);
}

static int64_t syncs_of(wf_par *par)
{
    return wf_context_device(wf_par_context(par))->counts().syncs;
}

/* Takes the steps; behind the second and later ones the next one is launched. One that fails
   there is launched again when its time has come. */
static void take_steps(run *r, wf_par *par, wf_par_trainer *trainer, const wf_par_data *data)
{
    wf_context *ctx = wf_par_context(par);
    int64_t begun = 0;
    bool launched = false;

    for (int step = 1; step <= r->t.steps && wf_context_status(ctx) == WF_OK; step++) {
        begun = step == 3 ? syncs_of(par) : begun;
        if (!launched)
            wf_par_train_launch(trainer, step, data);
        launched = r->ahead && step > 1 && step < r->t.steps && wf_context_status(ctx) == WF_OK;
        if (launched && wf_par_train_launch(trainer, step + 1, data) != WF_OK) {
            wf_context_clear(ctx);
            launched = false;
        }
        if (wf_par_train_finish(trainer, &r->row[step - 1]) == WF_OK)
            r->syncs = syncs_of(par) - begun;
    }
}

/* Returns the digest of what is kept, after an error too. */
static uint64_t digest_of(wf_par_trainer *trainer)
{
    const wf_par_train_state s = wf_par_trainer_state(trainer);
    uint64_t sum = 0;

    for (int64_t i = 0; i < s.count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_tensor *t = wf_par_kept(s.parameter[i], s.optimizer, i, kind);

            sum += t ? wf_par_digest_held(t, s.parameter[i]->path, (uint32_t)kind) : 0;
        }
    return sum;
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    run *r = arg;
    const wf_par_data data = {.read = read_data, .self = r};
    wf_par *par = wf_par_open(rank, &r->t.layout, &rank->error);
    wf_nn_gpt *model = par ? wf_nn_gpt_new(wf_par_context(par), &r->t.model) : NULL;
    wf_par_trainer *trainer;

    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(par, &model->base);
    trainer = wf_par_trainer_open(par, &model->base, &r->t.options);
    take_steps(r, par, trainer, &data);
    r->error = *wf_context_error(wf_par_context(par));
    wf_context_clear(wf_par_context(par));
    r->t.digest = digest_of(trainer);
    wf_par_trainer_close(trainer);
    wf_nn_free(&model->base);
    wf_par_close(par);
    return WF_OK;
}

/* Runs it both ways. Rows, digests and errors are the same. */
static void both(run *at_once, run *ahead, const char *what)
{
    run *const r[] = {at_once, ahead};
    bool same = true;
    char *after;

    for (int i = 0; i < 2; i++) {
        wf_error error = {WF_OK, ""};

        wf_launch(&(wf_launch_options){.ranks = 1}, rank_main, r[i], &error);
        CU_ASSERT_EQUAL(error.code, WF_OK);
        after = strstr(r[i]->error.text, ", after "); /* so many collectives */
        if (after)
            *after = '\0';
    }
    for (int k = 0; k < at_once->t.steps; k++)
        same = same && same_bits(at_once->row[k].loss, ahead->row[k].loss) &&
               at_once->row[k].grad_norm == ahead->row[k].grad_norm &&
               at_once->row[k].lr == ahead->row[k].lr &&
               at_once->row[k].skipped == ahead->row[k].skipped;
    CU_ASSERT(same);
    CU_ASSERT_EQUAL(at_once->t.digest, ahead->t.digest);
    CU_ASSERT_STRING_EQUAL(at_once->error.text, ahead->error.text);
    if (!same || at_once->t.digest != ahead->t.digest)
        printf("\n    %s: %s, digests %016llx and %016llx", what, same ? "rows are" : "rows",
               (unsigned long long)at_once->t.digest, (unsigned long long)ahead->t.digest);
}

/* Neither the loss nor the norm is waited for: with a step behind it the device is never
   idle. The last step has none behind it, but its update. */
static void nothing_waits(void)
{
    run at_once = make_run(false), ahead = make_run(true);

    both(&at_once, &ahead, "steps launched ahead");
    CU_ASSERT(ahead.row[4].loss > 0 && ahead.error.code == WF_OK);
    CU_ASSERT_EQUAL(ahead.syncs, 0);
    CU_ASSERT(at_once.syncs >= 6); /* loss and norm of three steps */
}

/* Optimizers whose numbers a graph finds by itself: no step is waited for. */
static void other_optimizers(void)
{
    static const struct {
        wf_nn_method method;
        const char *groups;
    } rows[] = {{WF_NN_LION, NULL},
                {WF_NN_MUON, "block:lr=0.5,wd=0.2"},
                {WF_NN_ADAMW8BIT, "embed:lr=2;block.*.norm1:lr=0"}};

    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        run at_once = make_run(false), ahead = make_run(true);

        at_once.t.options.optimizer.method = ahead.t.options.optimizer.method = rows[i].method;
        at_once.t.options.optimizer.groups = ahead.t.options.optimizer.groups = rows[i].groups;
        both(&at_once, &ahead, wf_nn_method_row_of(rows[i].method)->name);
        CU_ASSERT_EQUAL(ahead.error.code, WF_OK);
        CU_ASSERT_EQUAL(ahead.syncs, 0);
    }
}

/* Biases that balance experts are stepped by graphs, too, and a step that is held leaves
   them. */
static void balanced_experts(void)
{
    for (int bad = 0; bad < 2; bad++) {
        run r[2] = {make_run_of(LLAMA, false), make_run_of(LLAMA, true)};

        for (int i = 0; i < 2; i++) {
            r[i].t.model.experts = 4;
            r[i].t.model.top_k = 2;
            r[i].t.model.expert_ffn = 16;
            r[i].t.model.bias_step = 0.01;
            r[i].bad = bad ? 4 : 0;
        }
        both(&r[0], &r[1], "experts that are balanced");
        CU_ASSERT_EQUAL(r[1].error.code, bad ? WF_ENONFINITE : WF_OK);
        CU_ASSERT(bad || r[1].syncs == 0);
    }
}

/* The step behind it has run on the device, too, and nothing is as it would be after either. */
static void a_bad_step_changes_nothing(void)
{
    run at_once = make_run(false), ahead = make_run(true), good = make_run(false);
    wf_error error = {WF_OK, ""};

    at_once.bad = ahead.bad = 4;
    both(&at_once, &ahead, "a step that is not finite");
    CU_ASSERT_EQUAL(ahead.error.code, WF_ENONFINITE);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(ahead.error.text, "logit_loss in loss, forward of micro-step 1"));
    good.t.steps = 3;
    wf_launch(&(wf_launch_options){.ranks = 1}, rank_main, &good, &error);
    CU_ASSERT_EQUAL(ahead.t.digest, good.t.digest);
}

/* A skipped step counts for bias correction, and those behind it are made again. */
static void skipped_steps(void)
{
    run at_once = make_run(false), ahead = make_run(true);

    at_once.bad = ahead.bad = 3;
    at_once.t.options.skip = ahead.t.options.skip =
        (wf_par_skip){.nonfinite = true, .loss_above = 5.5652f};
    both(&at_once, &ahead, "skipped steps");
    CU_ASSERT(!ahead.row[0].skipped && !ahead.row[1].skipped && ahead.error.code == WF_OK);
    CU_ASSERT(ahead.row[2].skipped && ahead.row[4].skipped && ahead.row[4].loss > 5.5652f);
}

/* A second step that cannot be launched leaves the first one as it is. */
static void data_end(void)
{
    run at_once = make_run(false), ahead = make_run(true);

    at_once.missing = ahead.missing = 5;
    both(&at_once, &ahead, "data that end");
    CU_ASSERT_EQUAL(ahead.error.code, WF_EDATA);
    CU_ASSERT(ahead.row[3].loss > 0 && ahead.row[4].loss == 0);
}

/* Captures graphs of their own for each number of micro-steps. */
static void batches_that_grow(void)
{
    run at_once = make_run(false), ahead = make_run(true);

    at_once.t.options.micro_batch = ahead.t.options.micro_batch = 1;
    at_once.t.options.rampup = ahead.t.options.rampup =
        (wf_par_rampup){.start = 2, .increment = 2, .sequences = 6};
    both(&at_once, &ahead, "batches that grow");
    CU_ASSERT_EQUAL(ahead.error.code, WF_OK);
}

/* Parameters are read and changed when all that was launched is finished; an optimizer
   whose numbers are the host's has its steps judged there. */
static wf_status misusing_rank(wf_rank *rank, void *arg)
{
    run *r = arg;
    const wf_par_data data = {.read = read_data, .self = r};
    wf_par *par = wf_par_open(rank, &r->t.layout, &rank->error);
    wf_context *ctx = wf_par_context(par);
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, &r->t.model);
    wf_par_trainer *trainer;
    uint64_t digest;

    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(par, &model->base);
    trainer = wf_par_trainer_open(par, &model->base, &r->t.options);
    CU_ASSERT_PTR_NOT_NULL_FATAL(trainer);
    CU_ASSERT_PTR_NOT_NULL_FATAL(wf_par_train_at_once(trainer));
    CU_ASSERT_STRING_EQUAL(wf_par_train_at_once(trainer),
                           "an optimizer whose numbers are the host's");
    CU_ASSERT_EQUAL(wf_par_train_finish(trainer, NULL), WF_EINVAL);
    wf_context_clear(ctx);
    wf_par_train_launch(trainer, 1, &data);
    CU_ASSERT_EQUAL(wf_par_trainer_digest(trainer, &digest), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "wf_par_train_finish comes first"));
    wf_context_clear(ctx);
    CU_ASSERT_EQUAL(wf_par_train_step(trainer, 2, &data, NULL), WF_EINVAL);
    wf_context_clear(ctx);
    wf_par_train_launch(trainer, 2, &data);
    CU_ASSERT_EQUAL(wf_par_train_launch(trainer, 3, &data), WF_EINVAL);
    wf_context_clear(ctx);
    for (int k = 0; k < 2; k++)
        CU_ASSERT_EQUAL(wf_par_train_finish(trainer, &r->row[k]), WF_OK);
    CU_ASSERT_EQUAL(wf_par_trainer_digest(trainer, &digest), WF_OK);
    wf_par_trainer_close(trainer);
    wf_nn_free(&model->base);
    wf_par_close(par);
    return WF_OK;
}

static void misuse(void)
{
    run r = make_run(true);
    wf_error error = {WF_OK, ""};

    r.t.options.optimizer.method = WF_NN_ADAFACTOR;
    r.t.options.optimizer.ema = 0;
    wf_launch(&(wf_launch_options){.ranks = 1}, misusing_rank, &r, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT(r.row[0].loss > 0 && r.row[1].loss > 0 && r.row[1].loss != r.row[0].loss);
}

int main(void)
{
    static const wf_test tests[] = {{"no step is waited for", nothing_waits},
                                    {"other optimizers", other_optimizers},
                                    {"experts that are balanced", balanced_experts},
                                    {"a bad step changes nothing", a_bad_step_changes_nothing},
                                    {"skipped steps", skipped_steps},
                                    {"data that end", data_end},
                                    {"batches that grow", batches_that_grow},
                                    {"misuse, and who is judged at once", misuse},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_ahead", tests);
}
