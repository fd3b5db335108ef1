/*
 * tests/parallel/test_units.c - units: which modules are units under a wrap policy, how much of
 * them is gathered at a time, and which are freed after forward.
 *
 * ctest: builds address thread
 */
#include "parallel/shard/materialize.h"
#include "parallel/train/train.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/units_gpt.h"
#include <stdlib.h>

/* Two data-parallel ranks, and a model that has been planned. */
static void on_two(wf_par_options options, wf_status (*body)(part *))
{
    options.dp = 2;
    options.seed = 3;
    run_parts((part_test){
        .options = options, .config = &tiny, .plan = wf_par_gpt_plan, .body = body});
}

static wf_status refuses(part *p, wf_status code, const char *words)
{
    return refused(p->rank, p->ctx, NULL, code, words);
}

/* Paths of the units, in order, each followed by a blank. */
static const char *paths(const part *p, char text[1024])
{
    text[0] = 0;
    for (int64_t i = 0; i < wf_par_unit_count(p->par, p->model); i++) {
        strcat(text, wf_par_unit_at(p->par, p->model, i).path);
        strcat(text, " ");
    }
    return text;
}

static int64_t elements(const part *p)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < wf_par_unit_count(p->par, p->model); i++)
        sum += wf_par_unit_at(p->par, p->model, i).elements;
    return sum;
}

enum {
    ATTENTION = 4 * (12 * 12 + 12),
    MLP = 2 * 12 * 20 + 20 + 12,
    NORM = 2 * 12,
    BLOCK = ATTENTION + MLP + 2 * NORM,
    ROOT = VOCABULARY * 12 + TOKENS * 12 + NORM
};

static wf_status by_block(part *p)
{
    wf_rank *rank = p->rank;
    char text[1024];

    NEED(strcmp(paths(p, text), " block.0 block.1 block.2 block.3 ") == 0);
    NEED(wf_par_unit_at(p->par, p->model, 0).elements == ROOT);
    NEED(wf_par_unit_at(p->par, p->model, 0).parameters == 4); /* the tied table is one */
    NEED(wf_par_unit_at(p->par, p->model, 2).elements == BLOCK);
    NEED(elements(p) == ROOT + LAYERS * BLOCK);
    return WF_OK;
}

static wf_status by_attention(part *p)
{
    wf_rank *rank = p->rank;
    char text[1024];

    NEED(strcmp(paths(p, text), " block.0.attn block.1.attn block.2.attn block.3.attn ") == 0);
    NEED(wf_par_unit_at(p->par, p->model, 1).elements == ATTENTION);
    NEED(elements(p) == ROOT + LAYERS * BLOCK);
    return WF_OK;
}

/* 460: q, k and v together (468) and not one of them, which nobody enters; mlp whole. */
static wf_status by_size(part *p)
{
    wf_rank *rank = p->rank;
    char text[1024];

    paths(p, text);
    NEED(strncmp(text, " block.0.attn.qkv block.0.mlp block.1.attn.qkv ", 47) == 0);
    NEED(wf_par_unit_count(p->par, p->model) == 1 + 2 * LAYERS);
    NEED(wf_par_unit_at(p->par, p->model, 1).elements == ATTENTION / 4 * 3);
    NEED(elements(p) == ROOT + LAYERS * BLOCK);
    return WF_OK;
}

/* 100: a table shared by embed and head stays with the root, though each is large enough. */
static wf_status shared_by_size(part *p)
{
    wf_rank *rank = p->rank;
    char text[1024];

    paths(p, text);
    NEED(!strstr(text, "embed ") && !strstr(text, "head ") && !strstr(text, "qkv.q "));
    NEED(strstr(text, "block.3.mlp.down "));
    NEED(wf_par_unit_at(p->par, p->model, 0).elements >= VOCABULARY * 12);
    NEED(elements(p) == ROOT + LAYERS * BLOCK);
    return WF_OK;
}

static wf_status whole_model(part *p)
{
    wf_rank *rank = p->rank;

    NEED(wf_par_unit_count(p->par, p->model) == 1 && elements(p) == ROOT + LAYERS * BLOCK);
    return WF_OK;
}

static void wrap_policies(void)
{
    on_two((wf_par_options){.strategy = "full_shard"}, by_block);
    on_two((wf_par_options){.strategy = "no_shard"}, by_block);
    on_two((wf_par_options){.wrap_type = "attention"}, by_attention);
    on_two((wf_par_options){.wrap_min_params = 460}, by_size);
    on_two((wf_par_options){.wrap_min_params = 100}, shared_by_size);
    on_two((wf_par_options){.wrap_min_params = 1 << 20}, whole_model);
}

static wf_status read_zeros(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    (void)self, (void)step, (void)first, (void)error;
    for (int i = 0; i < 2; i++)
        memset(field[i], 0, (size_t)(count * TOKENS) * sizeof(int32_t));
    return WF_OK;
}

static const wf_par_train_options training = {.global_batch = 4,
                                              .micro_batch = 1,
                                              .field = WF_PAR_GPT_FIELDS(TOKENS),
                                              .optimizer = {.method = WF_NN_SGD},
                                              .schedule = {.lr = 1, .steps = 9},
                                              .loss = wf_par_gpt_loss};

/* Each tensor is rounded to 64 bytes. */
static size_t gathered_bytes(const part *p, int64_t unit)
{
    int64_t n = 0;
    wf_nn_parameter **all = wf_nn_parameters(p->model, &n);
    size_t bytes = 0;

    for (int64_t i = 0; all && i < n; i++)
        if ((strncmp(all[i]->path, "block.1.", 8) == 0 && unit == 2) ||
            (strncmp(all[i]->path, "block.", 6) != 0 && unit == 0))
            bytes += ((size_t)wf_tensor_count(all[i]->tensor) * sizeof(float) + 63) / 64 * 64;
    free(all);
    return bytes;
}

/* The most that was gathered at once in a step: the root and so many blocks. */
static wf_status most_gathered(part *p, int blocks)
{
    wf_rank *rank = p->rank;
    const wf_par_data data = {.read = read_zeros};
    wf_par_trainer *trainer;
    wf_memory_report memory;
    wf_par_step step;
    size_t expected = gathered_bytes(p, 0) + (size_t)blocks * gathered_bytes(p, 2);

    GOOD(wf_par_materialize(p->par, p->model));
    trainer = wf_par_trainer_open(p->par, p->model, &training);
    for (int i = 1; i <= 2; i++) { /* the second one knows the order of units */
        wf_pool_reset_peak(wf_context_pool(p->ctx));
        NEED(trainer && wf_par_train_step(trainer, i, &data, &step) == WF_OK);
        wf_pool_report(wf_context_pool(p->ctx), &memory);
        NEED(memory.most[WF_MEMORY_GATHERED] == expected);
        NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    }
    wf_par_trainer_close(trainer);
    return WF_OK;
}

static wf_status one_block(part *p)
{
    return most_gathered(p, 1);
}

static wf_status two_blocks(part *p)
{
    return most_gathered(p, 2);
}

static wf_status three_blocks(part *p)
{
    return most_gathered(p, 3);
}

static wf_status all_blocks(part *p)
{
    return most_gathered(p, LAYERS);
}

static wf_status first_two_kept(part *p)
{
    wf_rank *rank = p->rank;

    GOOD(wf_par_reshard_unit(p->par, p->model, "block.0", false));
    GOOD(wf_par_reshard_unit(p->par, p->model, "block.1", false));
    NEED(!wf_par_unit_at(p->par, p->model, 1).reshard);
    NEED(wf_par_unit_at(p->par, p->model, 3).reshard);
    NEED(wf_par_reshard_unit(p->par, p->model, "block.9", false) == WF_EINVAL);
    GOOD(refuses(p, WF_EINVAL, "no unit of the model is at block.9"));
    return most_gathered(p, 3);
}

static wf_status nothing(part *p)
{
    wf_rank *rank = p->rank;
    const wf_par_data data = {.read = read_zeros};
    wf_par_trainer *trainer;
    wf_memory_report memory;
    wf_par_step step;

    GOOD(wf_par_materialize(p->par, p->model));
    trainer = wf_par_trainer_open(p->par, p->model, &training);
    NEED(trainer && wf_par_train_step(trainer, 1, &data, &step) == WF_OK);
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    NEED(memory.most[WF_MEMORY_GATHERED] == 0);
    wf_par_trainer_close(trainer);
    return WF_OK;
}

static void bound_on_gathered_bytes(void)
{
    on_two((wf_par_options){.prefetch = 0}, one_block);
    on_two((wf_par_options){.prefetch = 1}, two_blocks);
    on_two((wf_par_options){.prefetch = 2}, three_blocks);
    on_two((wf_par_options){.prefetch = 9}, all_blocks);
    on_two((wf_par_options){.prefetch = 0, .reshard = WF_PAR_RESHARD_NEVER}, all_blocks);
    on_two((wf_par_options){.strategy = "shard_grad_op"}, all_blocks);
    on_two((wf_par_options){.strategy = "no_shard"}, nothing);
    on_two((wf_par_options){.strategy = "zero1"}, nothing);
}

static void choice_per_unit(void)
{
    on_two((wf_par_options){.prefetch = 0}, first_two_kept);
}

/* At rest a rank has its half of everything, uneven sizes included, and no more. */
static wf_status rests_in_halves(part *p)
{
    wf_rank *rank = p->rank;
    int64_t count = 0, here = 0;
    wf_nn_parameter **all;
    wf_memory_report memory;

    GOOD(wf_par_materialize(p->par, p->model));
    all = wf_nn_parameters(p->model, &count);
    for (int64_t i = 0; i < count; i++)
        here += wf_tensor_local_count(all[i]->tensor);
    free(all);
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    /* 67 rows are 33 and 34: one row of 12 is the only difference */
    NEED(2 * here == ROOT + LAYERS * BLOCK + (rank->index ? 12 : -12));
    NEED(memory.now[WF_MEMORY_PARAMETER] < (size_t)here * 4 + 64 * (size_t)count);
    return WF_OK;
}

static void halves(void)
{
    on_two((wf_par_options){.strategy = "full_shard"}, rests_in_halves);
}

/* A block called without the model around it works; a module without its unit does not. */
static wf_status outside_of_a_unit(part *p)
{
    wf_rank *rank = p->rank;
    wf_nn_block *block = (wf_nn_block *)p->gpt->block[0];
    wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS), wf_dim_width(12)};
    wf_tensor *x;

    GOOD(wf_par_materialize(p->par, p->model));
    wf_scope_open(p->ctx);
    x = wf_tensor_new(p->ctx, WF_F32, 3, dims, wf_par_batch_layout(p->par),
                      WF_MEMORY_ACTIVATION);
    NEED(x);
    memset(x->data, 0, (size_t)wf_tensor_local_count(x) * sizeof(float));
    NEED(wf_nn_call(block, x));
    NEED(!wf_nn_call(block->mlp, x));
    wf_scope_close(p->ctx);
    return refuses(p, WF_EINVAL,
                   "parameter block.0.mlp.up.weight is used outside of the module");
}

/* On a tape, what a forward pass has kept is given back by wf_par_reshard_all, or by
   backward. */
static wf_status loop_of_ones_own(part *p)
{
    wf_rank *rank = p->rank;
    wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(TOKENS)};
    wf_tensor *tokens, *loss, *seed;
    wf_memory_report memory;
    wf_tape *tape;

    GOOD(wf_par_materialize(p->par, p->model));
    wf_scope_open(p->ctx);
    tokens = wf_tensor_new(p->ctx, WF_I32, 2, dims, wf_par_batch_layout(p->par),
                           WF_MEMORY_ACTIVATION);
    NEED(tokens);
    memset(tokens->data, 0, (size_t)wf_tensor_local_count(tokens) * sizeof(int32_t));
    tape = wf_tape_open(p->ctx);
    loss = wf_nn_gpt_loss(p->gpt, tokens, tokens, 0);
    NEED(loss);
    seed = wf_tensor_new(p->ctx, WF_F32, 2, dims, loss->layout, WF_MEMORY_ACTIVATION);
    NEED(seed);
    memset(seed->data, 0, (size_t)wf_tensor_local_count(seed) * sizeof(float));
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == gathered_bytes(p, 0));
    GOOD(wf_par_reshard_all(p->par, p->model));
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    GOOD(wf_backward(loss, seed, true)); /* gathers again what it needs */
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    NEED(!wf_nn_leaves_of(p->gpt->embed->table, NULL)->use[0]->grad);
    GOOD(wf_backward_weights(tape)); /* nothing is gathered for weights */
    wf_pool_report(wf_context_pool(p->ctx), &memory);
    NEED(memory.now[WF_MEMORY_GATHERED] == 0);
    NEED(wf_nn_leaves_of(p->gpt->embed->table, NULL)->uses == 2 &&
         wf_nn_leaves_of(p->gpt->embed->table, NULL)->use[0]->grad);
    wf_tape_close(tape);
    wf_scope_close(p->ctx);
    return WF_OK;
}

static void uses_outside(void)
{
    on_two((wf_par_options){.strategy = "full_shard"}, outside_of_a_unit);
    on_two((wf_par_options){.prefetch = 1}, loop_of_ones_own);
}

int main(void)
{
    static const wf_test tests[] = {
        {"wrap policies", wrap_policies},
        {"gathered are prefetch + 1 units and the root", bound_on_gathered_bytes},
        {"freed after forward or kept, unit by unit", choice_per_unit},
        {"a rank rests with its half", halves},
        {"uses outside of a unit, and loops of one's own", uses_outside},
        {NULL, NULL},
    };

    return wf_test_main("units", tests);
}
