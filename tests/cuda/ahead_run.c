/* tests/cuda/ahead_run.c - see the header. */
#include "tests/cuda/ahead_run.h"
#include "parallel/train/measure_internal.h"
#include <time.h>

enum { LENGTH = 4, NO_TOKEN = 1 << 20 };

wf_status ahead_read(void *self, int64_t step, int64_t first, int64_t count, void *const *field,
                     wf_error *error)
{
    const ahead_run *r = self;
    const bool here = r->sequence < 0 || (first <= r->sequence && r->sequence < first + count);

    count_up((void *)(uintptr_t)&r->t.options.field[0].dim[0].size, step, first, count, field,
             error);
    if (here && r->missing && step == r->missing) /* numbers that could be trained on */
        return wf_error_set(error, WF_EDATA, "there are no data of step %d", (int)step);
    if (here && r->bad && step == r->bad)
        *(int32_t *)field[1] = NO_TOKEN; /* a GPU's loss is NaN then */
    return WF_OK;
}

ahead_run ahead_run_of(model_kind kind, bool ahead)
{
    ahead_run r = {.t = new_training(kind, 4, 4), .ahead = ahead, .sequence = -1};

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

/* A rank's view of a run. */
typedef struct ahead_view {
    ahead_run *run;
    const wf_rank *rank;
    wf_par *par;
    bool evaluating;
} ahead_view;

/* The data of a rank: those of the run, later than others', or others than its neighbours'. */
static wf_status read_of_rank(void *self, int64_t step, int64_t first, int64_t count,
                              void *const *field, wf_error *error)
{
    const ahead_view *v = self;
    const bool last = v->rank->index == v->rank->size - 1;
    wf_status status;

    if (last && v->run->late)
        nanosleep(&(struct timespec){.tv_nsec = v->run->late * 1000000L}, NULL);
    status = ahead_read(v->run, step, first, count, field, error);
    if (last && (step == v->run->differs || v->evaluating) && status == WF_OK)
        *(int32_t *)field[0] ^= 1;
    return status;
}

static wf_device_counts counts_of(wf_par *par)
{
    return wf_context_device(wf_par_context(par))->counts();
}

static void evaluate(ahead_view *v, wf_par_trainer *trainer, const wf_par_data *data)
{
    float loss;

    v->evaluating = true;
    wf_par_evaluate(trainer, 1, data, NULL, &loss);
    v->evaluating = false;
}

/* Takes the steps; behind the second and later ones the next one is launched. Where a rank that
   is alone fails there the step is launched again when its time has come. */
static void take_steps(ahead_view *v, wf_par_trainer *trainer, const wf_par_data *data)
{
    ahead_run *r = v->run;
    wf_context *ctx = wf_par_context(v->par);
    wf_device_counts begun = {.launches = 0}, now;
    wf_par_step unread;
    bool launched = false;

    for (int step = 1; step <= r->t.steps && wf_context_status(ctx) == WF_OK; step++) {
        begun = step == 3 ? counts_of(v->par) : begun;
        if (!launched)
            wf_par_train_launch(trainer, step, data);
        launched = r->ahead && step > 1 && step < r->t.steps && !(r->evaluates && step == 2) &&
                   wf_context_status(ctx) == WF_OK;
        if (launched && wf_par_train_launch(trainer, step + 1, data) != WF_OK) {
            launched = false;
            if (v->rank->size > 1)
                return;
            wf_context_clear(ctx);
        }
        if (wf_par_train_finish(trainer, v->rank->index ? &unread : &r->row[step - 1]) ==
                WF_OK &&
            v->rank->index == 0) {
            now = counts_of(v->par);
            r->syncs = now.syncs - begun.syncs;
            r->waits = now.waits - begun.waits;
        }
        if (r->evaluates && step == 2)
            evaluate(v, trainer, data);
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

static wf_status take_digest(const ahead_view *v, wf_par_trainer *trainer)
{
    wf_context *ctx = wf_par_context(v->par);
    uint64_t digest = 0;
    wf_status status = wf_context_status(ctx);

    if (v->rank->size == 1) {
        v->run->error = *wf_context_error(ctx);
        wf_context_clear(ctx);
        v->run->t.digest = digest_of(trainer);
        return WF_OK;
    }
    if (status == WF_OK)
        status = wf_par_trainer_digest(trainer, &digest);
    if (v->rank->index == 0)
        v->run->t.digest = digest;
    return status;
}

wf_status ahead_rank(wf_rank *rank, void *arg)
{
    ahead_view v = {.run = arg, .rank = rank};
    const wf_par_data data = {.read = read_of_rank, .self = &v};
    wf_par_trainer *trainer;
    wf_nn_gpt *model;
    wf_status status;

    v.par = wf_par_open(rank, &v.run->t.layout, &rank->error);
    if (!v.par)
        return rank->error.code;
    model = wf_nn_gpt_new(wf_par_context(v.par), &v.run->t.model);
    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    wf_par_plan(v.par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(v.par, &model->base);
    trainer = wf_par_trainer_open(v.par, &model->base, &v.run->t.options);
    take_steps(&v, trainer, &data);
    status = take_digest(&v, trainer);
    status = came_to(rank, wf_par_context(v.par), status);
    wf_par_trainer_close(trainer);
    wf_nn_free(&model->base);
    wf_par_close(v.par);
    return status;
}

/* Leaves out of the words of an error which rank said them, where it was and after how many
   collectives: of ranks that fail alike any may be the first. */
static void leave_rank(char *text)
{
    static const char *const rest[] = {"; it was on ", ", after "};
    int begin = 0;

    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        char *end = strstr(text, rest[i]);

        if (end)
            *end = '\0';
    }
    sscanf(text, "rank %*d: %n", &begin);
    memmove(text, text + begin, strlen(text + begin) + 1);
}

void ahead_go(ahead_run *r)
{
    const wf_launch_options how = {.ranks = (int)wf_par_ranks(&r->t.layout),
                                   .transport = r->transport,
                                   .stall_timeout = 60};
    wf_error error = {WF_OK, ""};

    wf_launch(&how, ahead_rank, r, &error);
    if (how.ranks > 1)
        r->error = error;
    else
        CU_ASSERT_EQUAL(error.code, WF_OK);
    leave_rank(r->error.text);
}

void ahead_check(const ahead_run *one, const ahead_run *other, const char *what)
{
    bool same = true;

    for (int k = 0; k < one->t.steps; k++)
        same = same && same_bits(one->row[k].loss, other->row[k].loss) &&
               one->row[k].grad_norm == other->row[k].grad_norm &&
               one->row[k].lr == other->row[k].lr &&
               one->row[k].skipped == other->row[k].skipped;
    CU_ASSERT(same);
    CU_ASSERT_EQUAL(one->t.digest, other->t.digest);
    CU_ASSERT_STRING_EQUAL(one->error.text, other->error.text);
    if (!same || one->t.digest != other->t.digest ||
        strcmp(one->error.text, other->error.text) != 0)
        printf("\n    %s: %s, digests %016llx and %016llx\n    %s\n    %s\n", what,
               same ? "rows are" : "rows", (unsigned long long)one->t.digest,
               (unsigned long long)other->t.digest, one->error.text, other->error.text);
}

void ahead_same(ahead_run *one, ahead_run *other, const char *what)
{
    ahead_go(one);
    ahead_go(other);
    ahead_check(one, other, what);
}
