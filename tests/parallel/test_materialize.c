/*
 * tests/parallel/test_materialize.c - making models real and fake again: the same numbers
 * however it is done, ties and frozen parameters, the memory that it takes, and a model of a
 * trillion parameters that takes next to none while it is fake.
 *
 * ctest: builds address thread
 */
#include "parallel/shard/materialize.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/train/measure.h"
#include "parallel/train/train.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/part.h"
#include <time.h>

static const wf_nn_gpt_config config = {WF_NN_GPT2,  .vocabulary = 37, .positions = 8,
                                        .layers = 3, .heads = 5,       .kv_heads = 5,
                                        .width = 40, .ffn = 96};

static void on_layouts(wf_status (*body)(part *))
{
    static const int layout[][2] = {{1, 1}, {2, 1}, {3, 1}, {7, 1}, {2, 2}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        run_parts((part_test){.options = {.tp = layout[i][0], .dp = layout[i][1], .seed = 3},
                              .config = &config,
                              .body = body});
}

static uint64_t mixed(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = wf_mix64(hash ^ ((const unsigned char *)data)[i]);
    return hash;
}

typedef struct total {
    uint64_t hash;      /* the hash of all local bits */
    size_t local;       /* bytes of the shards, as the pool counts them */
    size_t whole, most; /* bytes of the whole parameters, and of the largest */
    int64_t count, fakes;
} total;

static void add_up(total *sum, const wf_tensor *t)
{
    size_t whole = (size_t)wf_tensor_count(t) * sizeof(float);
    size_t local = (size_t)wf_tensor_local_count(t) * sizeof(float);

    sum->count++;
    sum->whole += whole;
    sum->most = whole > sum->most ? whole : sum->most;
    if (wf_tensor_is_fake(t)) {
        sum->fakes++;
        return;
    }
    sum->local += local ? (local + 63) / 64 * 64 : 64;
    sum->hash = mixed(sum->hash, t->data, local);
}

static total total_of(wf_nn_module *module)
{
    total sum = {0};
    int64_t count;
    wf_nn_parameter **p = wf_nn_parameters(module, &count);

    for (int64_t i = 0; p && i < count; i++)
        add_up(&sum, p[i]->tensor);
    free(p);
    return sum;
}

static wf_memory_report memory(part *p)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(p->ctx), &report);
    return report;
}

static wf_nn_linear *out_of(const part *p, int block)
{
    return ((wf_nn_block *)p->gpt->block[block])->attn->out;
}

static wf_nn_linear *down_of(const part *p, int block)
{
    return ((wf_nn_block *)p->gpt->block[block])->mlp->down;
}

/* At once, module by module in another order, and again after all was given back. */
static wf_status however_it_is_done(part *p)
{
    wf_rank *rank = p->rank;
    total sum;
    uint64_t hash;

    wf_nn_init_orthogonal(out_of(p, 1)->weight, 1);
    wf_nn_init_copy(out_of(p, 2)->weight, out_of(p, 1)->weight);
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    sum = total_of(p->model);
    hash = sum.hash;
    NEED(sum.fakes == 0 && memory(p).in_use == sum.local);
    NEED(memcmp(out_of(p, 1)->weight->tensor->data, out_of(p, 2)->weight->tensor->data,
                (size_t)wf_tensor_local_count(out_of(p, 1)->weight->tensor) * 4) == 0);
    NEED(out_of(p, 1)->weight->tensor->data != out_of(p, 2)->weight->tensor->data);

    GOOD(wf_par_dematerialize(p->par, p->model));
    NEED(total_of(p->model).fakes == sum.count && memory(p).in_use == 0);
    GOOD(wf_par_dematerialize(p->par, p->model)); /* nothing is left to do */
    for (int64_t i = p->gpt->layers - 1; i >= 0; i--)
        GOOD(wf_par_materialize(p->par, p->gpt->block[i]));
    NEED(total_of(p->model).fakes == 4); /* embed, position, norm; the head is tied */
    GOOD(wf_par_materialize(p->par, p->model));
    NEED(total_of(p->model).hash == hash);

    GOOD(wf_par_dematerialize(p->par, p->gpt->block[0])); /* a part alone */
    NEED(total_of(p->gpt->block[0]).fakes == total_of(p->gpt->block[0]).count);
    NEED(total_of(p->gpt->block[1]).fakes == 0);
    GOOD(wf_par_materialize(p->par, p->model));
    NEED(total_of(p->model).hash == hash);
    return WF_OK;
}

/* A fake model may be planned anew: without rules, only data parallelism splits it. */
static wf_status planned_anew(part *p)
{
    wf_rank *rank = p->rank;
    total sum;

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    NEED(wf_par_plan(p->par, p->model, NULL) == WF_EINVAL);
    wf_context_clear(p->ctx);
    GOOD(wf_par_dematerialize(p->par, p->model));
    GOOD(wf_par_plan(p->par, p->model, NULL));
    GOOD(wf_par_materialize(p->par, p->model));
    sum = total_of(p->model);
    NEED(wf_par_dp(p->par) > 1 || sum.local >= sum.whole);
    return WF_OK;
}

/* One storage for a tie, whatever becomes of it, and frozen ones are made like others. */
static wf_status ties_stay(part *p)
{
    wf_rank *rank = p->rank;

    p->gpt->embed->table->frozen = true;
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, &p->gpt->head->base)); /* its table, so embed's too */
    NEED(p->gpt->head->weight == p->gpt->embed->table);
    NEED(!wf_tensor_is_fake(p->gpt->embed->table->tensor));
    NEED(strcmp(p->gpt->head->weight->path, "embed.table") == 0);
    GOOD(wf_par_materialize(p->par, p->model));
    NEED(memory(p).in_use == total_of(p->model).local);
    GOOD(wf_par_dematerialize(p->par, &p->gpt->embed->base));
    NEED(wf_tensor_is_fake(p->gpt->head->weight->tensor));
    NEED(p->gpt->head->weight->frozen);
    return WF_OK;
}

/* Nothing but the shards, and one whole parameter where a recipe needs it. */
static wf_status memory_is_bounded(part *p)
{
    wf_rank *rank = p->rank;
    total all, unit;
    size_t room = (size_t)(96 + 40) * sizeof(double) + 64; /* orthogonal needs it */

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    all = total_of(p->model);
    NEED(memory(p).peak == all.local);

    GOOD(wf_par_dematerialize(p->par, p->model));
    for (int i = 0; i < 3; i++) {
        wf_nn_init_orthogonal(out_of(p, i)->weight, 1);
        wf_nn_init_orthogonal(down_of(p, i)->weight, 1);
    }
    unit = total_of(p->gpt->block[0]);
    wf_pool_reset_peak(wf_context_pool(p->ctx));
    GOOD(wf_par_materialize(p->par, p->model));
    NEED(memory(p).peak <= all.local + unit.most + room);
    NEED(memory(p).peak <= all.local + unit.whole);
    return WF_OK;
}

static wf_status held(part *p)
{
    static const wf_par_train_options options = {.global_batch = 4,
                                                 .field = WF_PAR_GPT_FIELDS(8),
                                                 .optimizer = {.method = WF_NN_SGD},
                                                 .schedule = {.lr = 1, .steps = 9},
                                                 .loss = wf_par_gpt_loss};
    wf_rank *rank = p->rank;
    wf_par_trainer *trainer;
    uint64_t hash;

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    hash = total_of(p->model).hash;
    trainer = wf_par_trainer_open(p->par, p->model, &options);
    NEED(trainer);
    NEED(wf_par_dematerialize(p->par, p->model) == WF_EINVAL);
    GOOD(refused(p->rank, p->ctx, NULL, WF_EINVAL,
                 "parameter embed.table is in use and cannot be made fake: close the trainer"));
    NEED(total_of(p->model).hash == hash && total_of(p->model).fakes == 0);
    wf_par_trainer_close(trainer);
    wf_nn_init_fill(p->gpt->embed->table, 1);
    GOOD(refused(p->rank, p->ctx, NULL, WF_EINVAL, "parameter embed.table is real already"));
    GOOD(wf_par_dematerialize(p->par, p->model));
    NEED(memory(p).in_use == 0);
    return WF_OK;
}

static void any_way(void)
{
    on_layouts(however_it_is_done);
}

static void anew(void)
{
    on_layouts(planned_anew);
}

static void ties(void)
{
    on_layouts(ties_stay);
}

static void bounded(void)
{
    on_layouts(memory_is_bounded);
}

static void held_by_a_trainer(void)
{
    run_parts(
        (part_test){.options = {.tp = 2, .dp = 2, .seed = 3}, .config = &config, .body = held});
}

/* The most memory that this process has had, in bytes; 0 where the system does not say. */
static size_t most_memory(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    size_t kb = 0;

    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %zu kB", &kb);
    if (f)
        fclose(f);
    return kb * 1024;
}

/* About 1.01e12 parameters: built and planned within 0.1 s of processor time and 50 MB. */
static wf_status trillion(wf_rank *rank, void *arg)
{
    static const wf_nn_gpt_config huge = {
        WF_NN_GPT2,   .vocabulary = 51200, .positions = 2048, .layers = 128,
        .heads = 160, .kv_heads = 160,     .width = 25600,    .ffn = 102400};
    wf_par *par = wf_par_open(rank, &(wf_par_options){.seed = 1}, &rank->error);
    clock_t start = clock();
    wf_nn_gpt *gpt;
    double seconds, elements;

    (void)arg;
    NEED(par);
    gpt = wf_nn_gpt_new(wf_par_context(par), &huge);
    NEED(gpt);
    GOOD(wf_par_plan(par, &gpt->base, wf_par_gpt_plan));
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    elements = (double)total_of(&gpt->base).whole / sizeof(float);
    NEED(elements > 1e12 && elements < 1.02e12);
    printf("built and planned in %.1f ms, %.1f MB at most\n    ", seconds * 1e3,
           (double)most_memory() / 1e6);
    NEED(UNDER_SANITIZER || seconds < 0.1);
    NEED(UNDER_SANITIZER || most_memory() < 50 * 1000 * 1000);
    wf_nn_free(&gpt->base);
    wf_par_close(par);
    return WF_OK;
}

static void huge_model(void)
{
    run_ranks(1, trillion, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a trillion parameters", huge_model}, /* before others' memory */
        {"however it is done", any_way},
        {"planned anew", anew},
        {"ties stay ties", ties},
        {"memory is bounded", bounded},
        {"held by a trainer", held_by_a_trainer},
        {NULL, NULL}};

    return wf_test_main("materialize", tests);
}
