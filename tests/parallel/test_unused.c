/*
 * tests/parallel/test_unused.c - modules that a model has and a pass does not run: a head that
 * is there for another task, layers that are dropped for a step or for some micro-steps. What
 * was gathered for them in vain is given back, and every strategy has the bits of one rank.
 *
 * ctest: builds plain
 */
#include "tests/parallel/rows.h"

enum { LAYERS = 20, BATCH = 8, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"full_shard", .tp = 1, .dp = 2, .micro = 2, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 4, .prefetch = 3, .sequence_parallel = true},
    {"full_shard", .tp = 1, .dp = 4, .micro = 1, .prefetch = 1, .accumulate = WF_PAR_LOCAL},
    {"full_shard", .tp = 1, .dp = 2, .micro = 4, .prefetch = 40,
     .reshard = WF_PAR_RESHARD_NEVER},
    {"full_shard", .tp = 1, .dp = 2, .micro = 2, .prefetch = 2, .recompute = "block"},
    {"full_shard", .tp = 1, .dp = 2, .micro = 4, .prefetch = 2, .wrap_type = "mlp",
     .recompute = "block"},
    {"shard_grad_op", .tp = 1, .dp = 2, .micro = 2, .prefetch = 1},
    {"no_shard", .tp = 1, .dp = 2, .micro = 4, .prefetch = 1},
    {"zero1", .tp = 2, .dp = 2, .micro = 2, .prefetch = 1},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 2, .prefetch = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 1, .prefetch = 2},
    {"mics", .tp = 1, .dp = 4, .group = 2, .micro = 2, .prefetch = 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

typedef bool runs(const wf_tensor *tokens, int64_t layer);

/* The loss of a GPT of which only some layers run. */
static wf_tensor *loss_of(wf_nn_module *model, const wf_par_batch *batch, runs *run)
{
    wf_tensor *tokens = wf_par_batch_tensor(batch, "tokens");
    wf_tensor *targets = wf_par_batch_tensor(batch, "targets");
    wf_nn_gpt *m = (wf_nn_gpt *)model;
    const char *outside = wf_nn_enter(m);
    wf_tensor *x = wf_nn_call(m->embed, tokens), *loss;

    if (m->position)
        x = wf_nn_call(m->position, x);
    for (int64_t i = 0; i < m->layers; i++)
        if (run(tokens, i))
            x = wf_nn_call(m->block[i], x);
    loss = wf_nn_linear_cross_entropy(m->head, m->loss, wf_nn_call(m->norm, x), targets,
                                      wf_par_batch_weight(batch, targets));
    wf_nn_leave(m, outside, 1, &loss);
    return loss;
}

static bool but_the_last(const wf_tensor *tokens, int64_t layer)
{
    (void)tokens;
    return layer != LAYERS - 1 && layer != LAYERS / 2;
}

static wf_tensor *unused(wf_nn_module *m, const wf_par_batch *batch)
{
    return loss_of(m, batch, but_the_last);
}

static bool by_step(const wf_tensor *tokens, int64_t layer)
{
    return (layer + wf_context_step(tokens->ctx)) % 3 != 0;
}

static wf_tensor *dropped(wf_nn_module *m, const wf_par_batch *batch)
{
    return loss_of(m, batch, by_step);
}

/* Returns true where a layer is used: the second half of every batch goes without the odd
   layers, and the first without every third. */
static bool by_half(const wf_tensor *tokens, int64_t layer)
{
    wf_sequences sequences = wf_context_sequences(tokens->ctx);

    return wf_sequence_of(&sequences, tokens->start[0]) < BATCH / 2 ? layer % 3
                                                                    : layer % 2 == 0;
}

static wf_tensor *halved(wf_nn_module *m, const wf_par_batch *batch)
{
    return loss_of(m, batch, by_half);
}

static training make_training(model_kind kind, wf_par_loss_function *loss, int micro)
{
    training t = new_training(kind, 3, BATCH);

    t.model.layers = LAYERS;
    t.model.width = 12;
    t.model.heads = 3;
    t.model.ffn = 16;
    t.steps = STEPS;
    t.options.micro_batch = micro;
    t.options.loss = loss;
    return t;
}

/* Returns the gathered bytes of parameters whose paths begin so; each tensor is rounded to 64
   bytes. */
static size_t gathered_bytes(wf_nn_gpt *model, const char *path)
{
    int64_t n = 0;
    wf_nn_parameter **all = wf_nn_parameters((wf_nn_module *)model, &n);
    size_t bytes = 0;

    for (int64_t i = 0; all && i < n; i++)
        if (strncmp(all[i]->path, path, strlen(path)) == 0)
            bytes += ((size_t)wf_tensor_count(all[i]->tensor) * sizeof(float) + 63) / 64 * 64;
    free(all);
    return bytes;
}

/* No more is gathered at once than where all layers run: the root, and two blocks of which one
   is on its way. */
static wf_status bound(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    size_t block = gathered_bytes(model, "block.1."), blocks = gathered_bytes(model, "block.");
    size_t root = gathered_bytes(model, "") - blocks;
    wf_pool *pool = wf_context_pool(wf_par_context(par));
    wf_memory_report memory;

    (void)t;
    wf_pool_report(pool, &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    NEED(step == 0 || memory.most[WF_MEMORY_GATHERED] == root + 2 * block);
    wf_pool_reset_peak(pool);
    return WF_OK;
}

static void given_back(void)
{
    static wf_par_loss_function *const losses[] = {unused, dropped, halved};

    for (int i = 0; i < 3; i++) {
        training t = on_row(make_training(LLAMA, losses[i], 2), &rows[0]);

        t.watch = bound;
        train(&t);
    }
}

static void an_unused_head(void)
{
    training one = make_training(GPT2, unused, BATCH);

    if (train(&one))
        check_rows(&one, rows, ROWS, 1);
}

static void layers_dropped_in_a_step(void)
{
    training one = make_training(LLAMA, dropped, BATCH);

    if (train(&one))
        check_rows(&one, rows, ROWS, 1);
}

/* By halves of the batch: where micro-steps are those of all ranks. A gradient that only some
   of them have is the sum of those, whichever they are. */
static void layers_dropped_in_micro_steps(void)
{
    static const row halves[] = {
        {"full_shard", .tp = 1, .dp = 1, .micro = 4, .prefetch = 1},
        {"full_shard", .tp = 1, .dp = 1, .micro = 1},
        {"full_shard", .tp = 1, .dp = 2, .micro = 2, .prefetch = 1},
        {"full_shard", .tp = 2, .dp = 2, .micro = 1, .prefetch = 2},
        {"full_shard", .tp = 1, .dp = 4, .micro = 1, .prefetch = 1},
        {"zero1", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED},
        {"shard_grad_op", .tp = 1, .dp = 2, .micro = 1, .prefetch = 1},
        {"full_shard", .tp = 1, .dp = 2, .micro = 1, .prefetch = 1, .accumulate = WF_PAR_GROUP,
         .accumulate_group = 2},
    };
    training one = make_training(LLAMA, halved, 2);

    if (train(&one))
        check_rows(&one, halves, sizeof halves / sizeof *halves, 1);
}

/* Returns true where a layer is used: of every two sequences, one goes without the odd layers,
   and the other without every third. */
static bool by_parity(const wf_tensor *tokens, int64_t layer)
{
    wf_sequences sequences = wf_context_sequences(tokens->ctx);

    return wf_sequence_of(&sequences, tokens->start[0]) % 2 ? layer % 3 : layer % 2 == 0;
}

static wf_tensor *in_turns(wf_nn_module *m, const wf_par_batch *batch)
{
    return loss_of(m, batch, by_parity);
}

/* With groups of micro-steps ranks have neighbours in a group: a use may be missing at its end
   or its begin. */
static void layers_dropped_in_groups(void)
{
    static const row groups[] = {
        {"no_shard", .tp = 1, .dp = 2, .micro = 1, .accumulate = WF_PAR_GROUP,
         .accumulate_group = 2},
        {"full_shard", .tp = 1, .dp = 2, .micro = 1, .prefetch = 1, .accumulate = WF_PAR_GROUP,
         .accumulate_group = 2},
        {"shard_grad_op", .tp = 2, .dp = 2, .micro = 1, .prefetch = 1,
         .accumulate = WF_PAR_GROUP, .accumulate_group = 4},
        {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1, .prefetch = 1,
         .accumulate = WF_PAR_GROUP, .accumulate_group = 2},
        {"zero1", .tp = 1, .dp = 4, .micro = 1, .accumulate = WF_PAR_LOCAL},
    };
    training one = make_training(LLAMA, in_turns, 1);

    if (train(&one))
        check_rows(&one, groups, sizeof groups / sizeof *groups, 1);
}

int main(void)
{
    static const wf_test tests[] = {
        {"what is gathered in vain is given back", given_back},
        {"modules that never run", an_unused_head},
        {"layers that are dropped for a step", layers_dropped_in_a_step},
        {"layers that are dropped for some micro-steps", layers_dropped_in_micro_steps},
        {"layers that are dropped for some micro-steps of a group", layers_dropped_in_groups},
        {NULL, NULL},
    };

    return wf_test_main("unused", tests);
}
