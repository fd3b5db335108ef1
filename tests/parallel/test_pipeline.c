/*
 * tests/parallel/test_pipeline.c - no schedule, cut or number of pipeline ranks changes a bit of a training run:
 * losses, norms and digest are those of one rank.
 */
#include "tests/parallel/parallel_harness.h"

enum { STEPS = 3, BATCH = 8 };

static training run_of(wf_nn_arch arch, int layers)
{
    training t = new_training(arch, HEADS, BATCH);

    t.model.layers = layers;
    t.options.micro_batch = 1;
    t.steps = STEPS;
    return t;
}

/* The same run without a pipeline, on one rank. */
static training reference_of(training t)
{
    t.layout.pp = t.layout.tp = t.layout.dp = 1;
    t.layout.strategy = NULL;
    t.layout.sequence_parallel = false;
    t.options.micro_batch = 1;
    t.pipeline.schedule = NULL;
    train(&t);
    return t;
}

static bool same(const training *a, const training *b)
{
    return a->digest == b->digest && a->digest != 0 &&
           memcmp(a->loss, b->loss, STEPS * sizeof(float)) == 0 &&
           memcmp(a->grad_norm, b->grad_norm, STEPS * sizeof(double)) == 0;
}

static void check(training t, const training *reference, const char *what)
{
    bool good = train(&t) && same(&t, reference);

    CU_ASSERT(good);
    if (!good)
        printf("\n    %s: %s, pp %d x tp %d x dp %d, split %s: loss %.9g %.9g, not %.9g %.9g\n",
               what, t.pipeline.schedule, t.layout.pp, t.layout.tp, t.layout.dp,
               t.pipeline.split ? t.pipeline.split : "auto", (double)t.loss[0],
               (double)t.loss[2], (double)reference->loss[0], (double)reference->loss[2]);
}

static void every_schedule(void)
{
    wf_pipe_schedule schedule;

    for (int arch = 0; arch < 2; arch++) {
        training t = run_of(arch ? WF_NN_LLAMA : WF_NN_GPT2, 4);
        const training reference = reference_of(t);

        for (int i = 0; (schedule = wf_pipe_schedule_at(i)).name; i++)
            for (int pp = 1; pp <= 4; pp *= 2) {
                t.layout.pp = pp;
                t.pipeline = (wf_par_pipeline_options){.schedule = schedule.name};
                if (pp * schedule.per_rank <= 6)
                    check(t, &reference, "schedule");
            }
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"every schedule", every_schedule},
        {NULL, NULL},
    };

    return wf_test_main("pipeline", tests);
}
