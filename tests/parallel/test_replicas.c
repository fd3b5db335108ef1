/*
 * tests/parallel/test_replicas.c - replicas of parameters and moments that part are found, and
 * named with two ranks.
 *
 * ctest: builds address thread
 */
#include "tests/parallel/alike.h"

typedef struct drift {
    int kind; /* 0: the value, 1, 2: a moment */
    const char *path;
} drift;

static const drift *drifting;

/* After step 1 an element of the odd rank's is another one; where the trainer does not look by
   itself, this does. */
static wf_status drifting_steps(trial *t, part *p, wf_par_trainer *trainer)
{
    const wf_par_data usual = {.read = count_up};
    const wf_par_train_state state = wf_par_trainer_state(trainer);
    wf_par_step result;

    for (int step = 1; step <= STEPS; step++) {
        GOOD(wf_par_train_step(trainer, step, &usual, &result));
        t->made[p->rank->index]++;
        for (int64_t i = 0; step == 1 && is_odd(t, p) && i < state.count; i++) {
            wf_tensor *x = drifting->kind
                               ? wf_nn_optimizer_moment(state.optimizer, i, drifting->kind - 1)
                               : state.parameter[i]->tensor;

            if (strcmp(state.parameter[i]->path, drifting->path) == 0)
                ((float *)x->data)[0] += 1e-3f;
        }
        if (!t->t.options.check_replicas)
            GOOD(wf_par_trainer_check_replicas(trainer));
    }
    return WF_OK;
}

static void drifts(trial t, const drift *d, int odd, int first, const char *says_of)
{
    char a[64];

    drifting = d;
    t.odd = odd;
    t.steps = drifting_steps;
    snprintf(a, sizeof a, "rank %d (", first);
    refused(&t, odd, 1, says_of, a);
    names(&t.launch, "not the same bits after step 1");
}

static void replicas_that_part(void)
{
    static const drift norm = {0, "norm.gain"}, m = {1, "block.1.mlp.up.weight"},
                       v = {2, "block.0.mlp.down.weight"};
    trial dp = new_trial(1, 4, 0), tp = new_trial(4, 1, 0), both = new_trial(2, 2, 0),
          hidden = new_trial(1, 4, 3), pp = new_trial(2, 1, 0);
    static const drift table = {0, "embed.table"};

    dp.t.layout.strategy = both.t.layout.strategy = hidden.t.layout.strategy = "no_shard";
    drifts(dp, &norm, 3, 0, "hold norm.gain alike");
    drifts(dp, &m, 2, 0, "hold first moment of block.1.mlp.up.weight alike");
    drifts(tp, &norm, 1, 0, "hold norm.gain alike");
    drifts(both, &v, 3, 1, "hold second moment of block.0.mlp.down.weight alike");
    pp.t.layout.pp = 2;
    pp.t.options.micro_batch = 1;
    pp.t.pipeline = (wf_par_pipeline_options){.schedule = "1f1b"};
    drifts(pp, &table, 2, 0, "hold embed.table alike"); /* tied: both stages have it */
    drifting = &norm;
    hidden.steps = drifting_steps;
    hidden.t.options.check_replicas = 2;
    refused(&hidden, 3, 1, "not the same bits after step 2", "rank 3 (");
}

int main(void)
{
    static const wf_test tests[] = {{"replicas that part", replicas_that_part}, {NULL, NULL}};

    return wf_test_main("replicas", tests);
}
