/*
 * tests/parallel/test_pipeline_errors.c - what goes wrong in a pipeline of several ranks: each
 * of them has an error that says where.
 *
 * ctest: builds address thread
 */
#include "tests/parallel/parallel_harness.h"
#include <stdatomic.h>

enum { RANKS = 4 };

/* A run in which a rank was given another pipeline than the others. */
typedef struct differing {
    training t;
    int odd;
    wf_par_pipeline *usual, *other;
    wf_error error[RANKS];
    _Atomic int begun; /* steps, of all ranks */
} differing;

static wf_status count_steps(part *p, wf_par_trainer *trainer)
{
    differing *d = p->arg;
    const wf_par_data data = {.read = count_up, .self = NULL};
    wf_par_step result;

    atomic_fetch_add(&d->begun, 1);
    return wf_par_train_step(trainer, 1, &data, &result);
}

static wf_status differing_rank(wf_rank *rank, void *arg)
{
    differing *d = arg;
    training mine = d->t;
    wf_status status;

    mine.options.pipeline = rank->index == d->odd ? d->other : d->usual;
    status = on_trainer(rank, &mine, count_steps, d);
    d->error[rank->index] = rank->error;
    return status;
}

static void refused(const wf_error *error, const char *words)
{
    CU_ASSERT_EQUAL(error->code, WF_EMISMATCH);
    if (!strstr(error->text, words))
        printf("\n    not said: %s\n    %s\n", words, error->text);
    CU_ASSERT(strstr(error->text, words) != NULL);
}

static void check_differing(wf_par_pipeline_options usual, wf_par_pipeline_options other,
                            int odd, const char *words)
{
    differing d = {.t = new_training(GPT2, HEADS, 8), .odd = odd};
    wf_error error = {WF_OK, ""};

    d.t.model.layers = 4;
    d.t.layout.pp = 2;
    d.t.layout.dp = 2;
    d.t.options.micro_batch = 1;
    d.t.pipeline = usual;
    d.usual = pipeline_of(&d.t, &error);
    d.t.pipeline = other;
    d.other = pipeline_of(&d.t, &error);
    CU_ASSERT_FATAL(d.usual && d.other);
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = RANKS}, differing_rank, &d, &error),
                    WF_EMISMATCH);
    refused(&error, words);
    for (int r = 0; r < RANKS; r++)
        refused(&d.error[r], words);
    CU_ASSERT_EQUAL(d.begun, 0);
    wf_par_pipeline_free(d.usual);
    wf_par_pipeline_free(d.other);
}

static void different_tables(void)
{
    const wf_par_pipeline_options one = {.schedule = "1f1b"}, all = {.schedule = "gpipe"},
                                  deep = {.schedule = "gpipe", .depth = 4},
                                  cut = {.schedule = "1f1b", .split = "1,5"};

    check_differing(one, all, 3,
                    "pipeline is schedule 1f1b: 2 ranks, 2 stages, 4 micro-batches, ");
    check_differing(one, all, 3, " in rank 0 (");
    check_differing(one, all, 3, " and schedule gpipe: 2 ranks, 2 stages, ");
    check_differing(one, all, 3, " in rank 3 (");
    check_differing(all, one, 0, "pipeline is schedule 1f1b: 2 ranks, ");
    check_differing(all, one, 0, "also have ranks 2, 3");
    check_differing(all, deep, 2, " and schedule gpipe: 2 ranks, ");
    check_differing(one, cut, 1, "cut before steps 3 in rank 0");
    check_differing(one, cut, 1, "cut before steps 1 in rank 1");
}

/* The whole model is made real on every rank, where each trains its stages alone. */
static wf_status make_all_real(part *p)
{
    const training *t = p->arg;
    wf_par_trainer *trainer;
    wf_rank *rank = p->rank;

    GOOD(prepare(t, p->par, p->gpt));
    GOOD(wf_par_materialize(p->par, p->model));
    trainer = wf_par_trainer_open(p->par, p->model, &t->options);
    wf_par_trainer_close(trainer);
    NEED(!trainer && wf_context_status(p->ctx) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text, "call wf_par_pipeline_materialize instead of"));
    wf_context_clear(p->ctx);
    return WF_OK;
}

static wf_status all_real_rank(wf_rank *rank, void *arg)
{
    training *t = arg;
    part_test in = {.options = t->layout, .config = &t->model, .body = make_all_real, .arg = t};

    return part_rank(rank, &in);
}

static void stages_of_others_are_real(void)
{
    training t = new_training(GPT2, HEADS, 4);
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *made;

    t.layout.pp = 2;
    t.layout.dp = 2;
    t.options.micro_batch = 1;
    t.pipeline.schedule = "1f1b";
    made = pipeline_of(&t, &error);
    CU_ASSERT_FATAL(made != NULL);
    t.options.pipeline = made;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = RANKS}, all_real_rank, &t, &error),
                    WF_OK);
    wf_par_pipeline_free(made);
}

/* The fault in the forward of stage 0 and micro-batch 1, on its rank. */
typedef enum trouble { READ_ERROR, ALONE_IN_BARRIER } trouble;

typedef struct troubled {
    training t;
    trouble what;
} troubled;

static _Thread_local wf_comm *pipeline; /* the rank's group of it */

static wf_status read_badly(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    const troubled *d = self;

    if (step == 2 && first == 1 && wf_comm_rank(pipeline) == 0) {
        if (d->what == READ_ERROR)
            return wf_error_set(error, WF_EIO, "cannot read the text");
        return wf_barrier(pipeline, error);
    }
    return count_up(NULL, step, first, count, field, error);
}

static wf_status two_steps(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = read_badly, .self = p->arg};
    wf_mesh *mesh = wf_par_mesh(p->par);
    wf_par_step result;

    pipeline = wf_mesh_comm(mesh, wf_mesh_axis(mesh, "pp"));
    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    return wf_par_train_step(trainer, 2, &data, &result);
}

static wf_status troubled_rank(wf_rank *rank, void *arg)
{
    troubled *d = arg;

    return on_trainer(rank, &d->t, two_steps, d);
}

static void check_trouble(trouble what, wf_status code, const char *words)
{
    troubled d = {.t = new_training(GPT2, HEADS, 4), .what = what};
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *made;

    d.t.layout.pp = 2;
    d.t.layout.tp = 2;
    d.t.options.micro_batch = 1;
    d.t.pipeline.schedule = "1f1b";
    made = pipeline_of(&d.t, &error);
    CU_ASSERT_FATAL(made != NULL);
    d.t.options.pipeline = made;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = RANKS}, troubled_rank, &d, &error),
                    code);
    if (!strstr(error.text, words))
        printf("\n    not said: %s\n    %s\n", words, error.text);
    CU_ASSERT(strstr(error.text, words) != NULL);
    wf_par_pipeline_free(made);
}

/* Whatever it is, the error says at which coordinates, in which step and in which action. */
static void actions_are_reported(void)
{
    check_trouble(READ_ERROR, WF_EIO, ": cannot read the text; it was on ");
    check_trouble(READ_ERROR, WF_EIO, ", in step 2, in F0.1 (action 4 of 27), having begun ");
    check_trouble(ALONE_IN_BARRIER, WF_ETIMEOUT, ", in step 2, in ");
    check_trouble(ALONE_IN_BARRIER, WF_ETIMEOUT, ": deadlock, every rank waits");
    check_trouble(ALONE_IN_BARRIER, WF_ETIMEOUT, " (action ");
}

int main(void)
{
    static const wf_test tests[] = {
        {"ranks with different tables", different_tables},
        {"stages of other ranks are real", stages_of_others_are_real},
        {"actions are reported", actions_are_reported},
        {NULL, NULL},
    };

    return wf_test_main("pipeline_errors", tests);
}
