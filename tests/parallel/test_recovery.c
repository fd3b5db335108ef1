/*
 * tests/parallel/test_recovery.c - a run that loses a rank continues with what the others hold
 * (parallel/recovery/snapshot.h): on another mesh, wherever in a step the rank was lost, with
 * the digest of a run that lost none. Without a buddy, what only that rank had is missed, and
 * named.
 *
 * ctest: cost 50, builds address thread
 */
#include "mesh/comm/collective.h"
#include "parallel/recovery/snapshot.h"
#include <fcntl.h>
#include "tests/parallel/parallel_harness.h"
#include <stdlib.h>

enum { STEPS = 4, FAILS = 3 };

/* The moment in step FAILS at which the rank is lost. */
typedef enum moment {
    BEFORE,  /* others find out in their forward or backward pass */
    REDUCED, /* in the global norm */
    HALF,    /* some have made their update, and others not */
    AFTER,   /* all have */
    MOMENTS
} moment;

typedef struct drill {
    training t;
    wf_par_snapshot *snapshot,
        *next; /* taken up by the ranks, or NULL; what they put, or NULL */
    moment when;
    int lost;
    int64_t step; /* the one after which the second run went on */
} drill;

static wf_status lose(part *p)
{
    wf_error error = {WF_EDEVICE, "a drill"};

    wf_comm_abort(wf_mesh_world(wf_par_mesh(p->par)), &error);
    return wf_fail(p->ctx, error.code, "%s", error.text);
}

static wf_status meet(part *p)
{
    wf_error error = {WF_OK, ""};
    wf_collective barrier = {.kind = WF_BARRIER};

    if (wf_collective_run(wf_mesh_world(wf_par_mesh(p->par)), &barrier, &error) != WF_OK)
        return wf_fail(p->ctx, error.code, "%s", error.text);
    return WF_OK;
}

/* The step in which a rank is lost; all others come to its end, or an error. */
static wf_status failing_step(part *p, wf_par_trainer *trainer, const wf_par_data *data)
{
    const drill *d = p->arg;
    bool mine = p->rank->index == d->lost;
    double norm;

    GOOD(wf_par_step_begin(trainer, FAILS));
    if (mine && d->when == BEFORE)
        return lose(p);
    GOOD(wf_par_forward_backward(trainer, data));
    GOOD(wf_par_reduce(trainer, NULL));
    if (mine && d->when == REDUCED)
        return lose(p);
    GOOD(wf_par_clip(trainer, d->t.options.clip, &norm));
    if (d->when == AFTER || (d->when == HALF && p->rank->index % 2))
        GOOD(d->t.options.skip.loss_above > 0
                 ? wf_par_skip_step(trainer, "the drill's loss")
                 : wf_par_optimizer_step(trainer,
                                         wf_nn_schedule_at(&d->t.options.schedule, FAILS)));
    GOOD(meet(p)); /* nobody is lost while another is still in its norm */
    if (mine)
        return lose(p);
    return meet(p);
}

static wf_status first_run(part *p, wf_par_trainer *trainer)
{
    const drill *d = p->arg;
    const wf_par_data data = {.read = count_up};
    wf_error error = {WF_OK, ""};
    wf_par_step result;

    GOOD(wf_par_snapshot_serves(trainer));
    for (int64_t step = 1; step < FAILS; step++)
        GOOD(wf_par_train_step(trainer, step, &data, &result));
    failing_step(p, trainer, &data);
    CU_ASSERT_NOT_EQUAL(wf_context_status(p->ctx), WF_OK);
    CU_ASSERT_EQUAL(wf_par_snapshot_put(d->next, trainer, &error),
                    p->rank->index == d->lost ? WF_EINVAL : WF_OK);
    return wf_context_status(p->ctx);
}

static wf_status nothing(part *p, wf_par_trainer *trainer)
{
    (void)trainer;
    return wf_context_status(p->ctx);
}

static wf_status open_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((drill *)arg)->t, nothing, arg);
}

static wf_status second_run(part *p, wf_par_trainer *trainer)
{
    drill *d = p->arg;
    const wf_par_data data = {.read = count_up};
    wf_par_step result;
    wf_error missing;
    int64_t step = 0;

    if (wf_par_snapshot_restore(d->snapshot, trainer, &step, &missing) == WF_EDATA) {
        CU_ASSERT_EQUAL(wf_context_status(p->ctx), WF_OK);
        CU_ASSERT_EQUAL(step, -1);
        return wf_fail(p->ctx, missing.code, "%s", missing.text);
    }
    GOOD(wf_context_status(p->ctx));
    if (p->rank->index == 0)
        d->step = step;
    for (step++; step <= STEPS; step++)
        GOOD(wf_par_train_step(trainer, step, &data, &result));
    keep_digest(&d->t, p, trainer);
    return WF_OK;
}

static wf_status first_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((drill *)arg)->t, first_run, arg);
}

static wf_status second_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((drill *)arg)->t, second_run, arg);
}

static wf_status launch(drill *d, const wf_par_options *layout,
                        wf_status (*rank)(wf_rank *, void *), wf_error *error)
{
    wf_launch_options options = {.ranks = (int)wf_par_ranks(layout)};
    wf_par_pipeline *pipeline;

    d->t.layout = *layout;
    d->t.layout.seed = 7;
    d->t.pipeline.schedule = layout->pp > 1 ? "1f1b" : NULL;
    pipeline = pipeline_of(&d->t, error);
    d->t.options.pipeline = pipeline;
    if (error->code == WF_OK)
        wf_launch(&options, rank, d, error);
    d->t.options.pipeline = NULL;
    wf_par_pipeline_free(pipeline);
    return error->code;
}

static wf_status see_text(void *arg, const char *key, const char *value, wf_error *error)
{
    (void)error;
    if (strcmp(key, "said") == 0 && strcmp(value, "with it") == 0)
        ++*(int *)arg;
    return WF_OK;
}

/* A snapshot that was written to a file and read, in place of one. */
static wf_par_snapshot *through_a_file(wf_par_snapshot *snapshot)
{
    const char *texts[] = {"said", "with it"};
    wf_error error = {WF_OK, ""};
    wf_par_snapshot *read = wf_par_snapshot_open(&error);
    int seen = 0;

    CU_ASSERT_EQUAL(
        wf_par_snapshot_save(snapshot, AT_FDCWD, "recovery.safetensors", texts, 1, &error),
        WF_OK);
    CU_ASSERT_EQUAL(
        wf_par_snapshot_load(read, AT_FDCWD, "recovery.safetensors", see_text, &seen, &error),
        WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    remove("recovery.safetensors");
    CU_ASSERT_EQUAL(seen, 1);
    CU_ASSERT_EQUAL(wf_par_snapshot_seal(read), wf_par_snapshot_seal(snapshot));
    CU_ASSERT_EQUAL(wf_par_snapshot_bytes(read), wf_par_snapshot_bytes(snapshot));
    wf_par_snapshot_close(snapshot);
    return read;
}

/* A run on `first` that loses a rank, and goes on as `second`; its digest, or 0. */
static uint64_t run(const training *t, const wf_par_options *first,
                    const wf_par_options *second, moment when, int lost, wf_error *error)
{
    drill d = {.t = *t, .when = when, .lost = lost};
    wf_error start = {WF_OK, ""};

    d.next = wf_par_snapshot_open(&start);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d.next);
    launch(&d, first, first_rank, &start);
    CU_ASSERT_EQUAL(start.code, WF_EDEVICE);
    if (start.code != WF_EDEVICE)
        printf("\n    %s\n", start.text);
    CU_ASSERT_EQUAL(wf_par_snapshot_seal(d.next),
                    when == HALF || when == AFTER ? FAILS : FAILS - 1);
    CU_ASSERT_EQUAL(wf_par_snapshot_ranks(d.next), (int)wf_par_ranks(first) - 1);
    d.snapshot = when == HALF ? through_a_file(d.next) : d.next;
    if (launch(&d, second, second_rank, error) == WF_OK)
        CU_ASSERT_EQUAL(d.step, when == HALF || when == AFTER ? FAILS : FAILS - 1);
    wf_par_snapshot_close(d.snapshot);
    return error->code == WF_OK ? d.t.digest : 0;
}

static uint64_t uninterrupted(training t)
{
    t.steps = STEPS;
    t.options.redundancy = WF_PAR_REDUNDANCY_NONE;
    CU_ASSERT(train(&t));
    return t.digest;
}

/* Every moment, and every rank or the first and last (for ThreadSanitizer one of them in turn);
   from one mesh to another. */
static void survives(const training *t, const wf_par_options *first,
                     const wf_par_options *second)
{
    uint64_t expected = uninterrupted(*t);
    int ranks = (int)wf_par_ranks(first);

    for (int when = 0; when < MOMENTS; when++)
        for (int lost = 0; lost<ranks; lost += ranks> 4 ? 3 : 1) {
            wf_error error = {WF_OK, ""};

            if (UNDER_SANITIZER &&
                lost != when % ranks / (ranks > 4 ? 3 : 1) * (ranks > 4 ? 3 : 1))
                continue;
            CU_ASSERT_EQUAL(run(t, first, second, (moment)when, lost, &error), expected);
            if (error.code != WF_OK)
                printf("\n    moment %d, rank %d lost: %s\n", when, lost, error.text);
        }
}

static const wf_par_options one = {.tp = 1, .dp = 1},
                            shards = {.tp = 1, .dp = 4, .strategy = "full_shard"},
                            two_shards = {.tp = 1, .dp = 2, .strategy = "full_shard"},
                            kept = {.tp = 2, .dp = 4, .strategy = "shard_grad_op"},
                            copies = {.tp = 2, .dp = 2, .strategy = "no_shard"},
                            groups = {.dp = 4, .dp_replicate = 2, .strategy = "hybrid_shard"},
                            stages = {.pp = 2, .dp = 2, .strategy = "full_shard"},
                            whole_stages = {.pp = 2, .strategy = "no_shard"};

static training new_drill(wf_par_redundancy redundancy)
{
    training t = new_training(GPT2, HEADS, 8);

    t.options.redundancy = redundancy;
    return t;
}

static void shards_have_buddies(void)
{
    training t = new_drill(WF_PAR_REDUNDANCY_BUDDY);

    survives(&t, &shards, &two_shards);
    survives(&t, &kept, &copies);
    survives(&t, &shards, &one);
}

static void copies_need_none(void)
{
    training t = new_drill(WF_PAR_REDUNDANCY_NONE);

    survives(&t, &copies, &one);
    survives(&t, &groups, &two_shards);
}

static void stages_go_on(void)
{
    training t = new_drill(WF_PAR_REDUNDANCY_BUDDY);

    t.options.micro_batch = 2;
    survives(&t, &stages, &whole_stages);
    survives(&t, &stages, &one);
}

static void other_updates(void)
{
    training t = new_drill(WF_PAR_REDUNDANCY_BUDDY);

    t.options.optimizer.method = WF_NN_SGD;
    survives(&t, &shards, &two_shards);
    t.options.optimizer.method = WF_NN_ADAMW8BIT;
    survives(&t, &shards, &two_shards);
    t.options.optimizer.method = WF_NN_LION8BIT;
    t.options.optimizer.ema = 0.9f;
    survives(&t, &shards, &two_shards);
    t.options.skip.loss_above = 1; /* each step */
    survives(&t, &shards, &two_shards);
    t = new_drill(WF_PAR_REDUNDANCY_BUDDY);
    t.frozen = "block.0.mlp";
    survives(&t, &shards, &two_shards);
    t.frozen = NULL;
    t.lora = (wf_nn_lora_options){.rank = 2, .alpha = 4, .targets = "q,v"};
    survives(&t, &shards, &one);
}

static void alone_is_missed(void)
{
    training t = new_drill(WF_PAR_REDUNDANCY_NONE);
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(run(&t, &shards, &two_shards, BEFORE, 1, &error), 0);
    CU_ASSERT_EQUAL(error.code, WF_EDATA);
    CU_ASSERT(strstr(error.text, ".redundancy buddy") != NULL);
}

static void refuses(training *t, const wf_par_options *layout, const char *word)
{
    wf_error error = {WF_OK, ""};
    drill d = {.t = *t};

    launch(&d, layout, t->options.redundancy == WF_PAR_REDUNDANCY_NONE ? first_rank : open_rank,
           &error);
    CU_ASSERT_EQUAL(error.code, WF_EUNSUPPORTED);
    CU_ASSERT(strstr(error.text, word) != NULL);
}

static void updates_of_all(void)
{
    static const wf_par_options parts = {.dp = 2, .strategy = "zero1"};
    training t = new_drill(WF_PAR_REDUNDANCY_NONE);

    refuses(&t, &parts, "zero1");
    t.options.redundancy = WF_PAR_REDUNDANCY_BUDDY;
    refuses(&t, &parts, "zero1");
    t.options.optimizer.method = WF_NN_MUON;
    refuses(&t, &two_shards, "as a whole matrix");
    t.options.optimizer.method = WF_NN_ADAFACTOR;
    refuses(&t, &two_shards, "from whole rows");
    t.options.redundancy = WF_PAR_REDUNDANCY_NONE;
    refuses(&t, &two_shards, "adafactor");
    t.options.optimizer.method = WF_NN_MUON;
    refuses(&t, &two_shards, "muon");
}

int main(void)
{
    static const wf_test tests[] = {
        {"shards with buddies, on other meshes", shards_have_buddies},
        {"copies need no buddies", copies_need_none},
        {"stages of a pipeline", stages_go_on},
        {"other optimizers, frozen parameters, adapters", other_updates},
        {"without a buddy a shard is missed", alone_is_missed},
        {"updates that ranks make together", updates_of_all},
        {NULL, NULL}};

    return wf_test_main("recovery", tests);
}
