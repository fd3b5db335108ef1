/*
 * tests/parallel/test_materialize_steps.c - some steps of a chain made real: they take their
 * parameters' bytes, all else stays fake, and the digests of the stages are those of the whole
 * model.
 */
#include "parallel/shard/materialize.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/train/measure.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/part.h"

enum { LAYERS = 3, STEPS = LAYERS + 2, STAGES = 4, PARAMETERS = 64 };

static const wf_nn_gpt_config configs[] = {{WF_NN_GPT2, .vocabulary = 37, .positions = 8,
                                            .layers = LAYERS, .heads = 5, .kv_heads = 5,
                                            .width = 40, .ffn = 96},
                                           {.vocabulary = 37,
                                            .positions = 8,
                                            .layers = LAYERS,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .width = 16,
                                            .ffn = 48}};

/* Uneven, and one stage is empty; the last one has the norm and the head. */
static const int64_t first[STAGES + 1] = {0, 3, 3, 4, STEPS + 1};

static size_t taken(part *p)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(p->ctx), &report);
    return report.in_use;
}

/* Returns true where a parameter lies in the steps [from, to). */
static bool lies_in(part *p, const wf_nn_parameter *parameter, int64_t from, int64_t to)
{
    bool found = false;

    for (int64_t i = from; i < to; i++)
        for (int k = 0; wf_nn_chain_module(p->model, i, k); k++) {
            int64_t count;
            wf_nn_parameter **all =
                wf_nn_parameters(wf_nn_chain_module(p->model, i, k), &count);

            for (int64_t n = 0; n < count; n++)
                found |= all[n] == parameter;
            free(all);
        }
    return found;
}

/* The bytes of this rank's shards, as the pool counts them; -1 where one is real that should
   not be, or the other way round. */
static int64_t bytes_of(part *p, int64_t from, int64_t to)
{
    int64_t count, bytes = 0;
    wf_nn_parameter **all = wf_nn_parameters(p->model, &count);

    for (int64_t i = 0; i < count && bytes >= 0; i++) {
        int64_t local = wf_tensor_local_count(all[i]->tensor) * 4;

        if (wf_tensor_is_fake(all[i]->tensor) == lies_in(p, all[i], from, to))
            bytes = -1;
        else if (!wf_tensor_is_fake(all[i]->tensor))
            bytes += local ? (local + 63) / 64 * 64 : 64;
    }
    free(all);
    return bytes;
}

/* Digests of all parameters, of what is real now. */
static wf_status digests_of(part *p, uint64_t digest[PARAMETERS], int64_t *n)
{
    wf_rank *rank = p->rank;
    wf_par_tensor_digest *list;
    int64_t count;
    wf_nn_parameter **all = wf_nn_parameters(p->model, &count);
    wf_status status = wf_par_digests(p->par, count, all, NULL, &list, n);
    uint64_t sum = 0, whole = 0;

    for (int64_t i = 0; i < *n && i < PARAMETERS; i++)
        sum += digest[i] = list[i].digest;
    if (status == WF_OK)
        status = wf_par_digest(p->par, count, all, NULL, &whole);
    free(list);
    free(all);
    NEED(status == WF_OK && *n == count && *n <= PARAMETERS && sum == whole);
    return WF_OK;
}

static wf_status stage_by_stage(part *p)
{
    wf_rank *rank = p->rank;
    uint64_t whole[PARAMETERS], sum[PARAMETERS] = {0}, here[PARAMETERS];
    bool tied = p->gpt->head->weight == p->gpt->embed->table;
    int64_t n;

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    GOOD(digests_of(p, whole, &n));
    for (int s = 0; s < STAGES; s++) {
        GOOD(wf_par_dematerialize(p->par, p->model));
        NEED(taken(p) == 0);
        GOOD(wf_par_materialize_steps(p->par, p->model, first[s], first[s + 1]));
        NEED((int64_t)taken(p) == bytes_of(p, first[s], first[s + 1]));
        NEED((taken(p) == 0) == (first[s] == first[s + 1]));
        GOOD(digests_of(p, here, &n));
        for (int64_t i = 0; i < n; i++) {
            NEED(here[i] == 0 || here[i] == whole[i]);
            /* the table, parameter 0, is at two stages where it is tied: the first one counts
               it */
            if (!tied || i > 0 || s == 0)
                sum[i] += here[i];
            else if (s == STAGES - 1)
                NEED(here[i] == whole[i]);
        }
    }
    NEED(memcmp(sum, whole, (size_t)n * sizeof *sum) == 0);
    return WF_OK;
}

static wf_status no_such_steps(part *p)
{
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    wf_par_materialize_steps(p->par, p->model, STEPS, STEPS + 2);
    return refused(p->rank, p->ctx, NULL, WF_EINVAL,
                   "model gpt has steps 0 to 4 and its head as 5, and no module 0 of step 6");
}

static void stages(void)
{
    static const int layout[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}};

    for (size_t i = 0; i < 2 * sizeof layout / sizeof *layout; i++)
        run_parts(
            (part_test){.options = {.tp = layout[i / 2][0], .dp = layout[i / 2][1], .seed = 3},
                        .config = &configs[i % 2],
                        .body = stage_by_stage});
}

static void refusals(void)
{
    run_parts((part_test){.options = {.tp = 1, .dp = 1, .seed = 3},
                          .config = &configs[0],
                          .body = no_such_steps});
}

int main(void)
{
    static const wf_test tests[] = {{"a stage alone is real, and counts alone", stages},
                                    {"steps that are none", refusals},
                                    {NULL, NULL}};

    return wf_test_main("materialize_steps", tests);
}
