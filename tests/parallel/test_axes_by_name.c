/*
 * tests/parallel/test_axes_by_name.c - meshes whose axes have names of their own, tensor
 * parallelism over any of them, and sharding module by module: the bits of one rank on each,
 * and a clear error for what cannot be meant.
 *
 * ctest: builds plain
 */
#include "tests/parallel/parallel_harness.h"

static wf_status shard(wf_par *par, wf_nn_module *model, const char *pattern, const char *axis,
                       const char *strategy)
{
    return wf_par_shard(par, model, pattern, axis,
                        &(wf_par_shard_options){.strategy = strategy, .prefetch = 1});
}

/* Shards in torchtitan's order: tensor parallelism, then blocks, then the root. */
static wf_status blocks_and_root(wf_par *par, wf_nn_module *model)
{
    GOOD(wf_par_tensor(par, model, "tp", wf_par_gpt_plan));
    GOOD(shard(par, model, "block.*", "dp", NULL));
    return wf_par_shard(par, model, "", "dp", NULL);
}

/* The root's own parameters stay whole, as in DDP; two blocks under two strategies. */
static wf_status one_by_one(wf_par *par, wf_nn_module *model)
{
    GOOD(shard(par, model, "block.0", "dp", "shard_grad_op"));
    GOOD(shard(par, model, "block.1.attn", "dp", "full_shard"));
    return shard(par, model, "block.1.mlp", "dp", "zero1");
}

static wf_status nothing_sharded(wf_par *par, wf_nn_module *model)
{
    return wf_par_tensor(par, model, "tp", wf_par_gpt_plan);
}

/* HSDP: copies along the outer axis. */
static wf_status in_groups(wf_par *par, wf_nn_module *model)
{
    GOOD(shard(par, model, "block.*", "inner", NULL));
    return shard(par, model, "", "inner", NULL);
}

/* Sharded along the outer of two data-parallel axes, and along both by different modules. */
static wf_status both_ways(wf_par *par, wf_nn_module *model)
{
    GOOD(shard(par, model, "block.0", "outer", NULL));
    return shard(par, model, "block.1", "inner", NULL);
}

static const wf_par_rule attention_rules[] = WF_RULES(
    {"block.*.attn", WF_GROUPS}, {"block.*.attn.qkv", WF_COLUMN}, {"block.*.attn.out", WF_ROW});
static const wf_par_rule mlp_rules[] =
    WF_RULES({"?block.*.mlp.up", WF_COLUMN}, {"?block.*.mlp.gate_up", WF_COLUMN},
             {"block.*.mlp.down", WF_ROW});

/* Attention is split over one axis, the MLP over another. */
static wf_status two_tensor_axes(wf_par *par, wf_nn_module *model)
{
    GOOD(wf_par_tensor(par, model, "heads", attention_rules));
    GOOD(wf_par_tensor(par, model, "ffn", mlp_rules));
    return shard(par, model, "block.*", "data", NULL);
}

static const struct row {
    const char *what;
    const wf_axis *axes;
    const char *dp_axes;
    wf_status (*parallelize)(wf_par *par, wf_nn_module *model);
} rows[] = {
    {"blocks and root", WF_AXES({"dp", 2}, {"tp", 2}), NULL, blocks_and_root},
    {"axes in another order", WF_AXES({"tp", 2}, {"dp", 4}), NULL, blocks_and_root},
    {"one by one", WF_AXES({"dp", 4}), NULL, one_by_one},
    {"DDP", WF_AXES({"dp", 2}, {"tp", 4}), NULL, nothing_sharded},
    {"HSDP", WF_AXES({"outer", 2}, {"inner", 2}), "outer/inner", in_groups},
    {"both ways", WF_AXES({"outer", 2}, {"inner", 2}), "outer/inner", both_ways},
    {"an axis of copies", WF_AXES({"idle", 2}, {"inner", 2}), "inner", in_groups},
    {"two tensor axes", WF_AXES({"data", 2}, {"heads", 2}, {"ffn", 2}), "data",
     two_tensor_axes},
};

static void digests_equal(model_kind kind, int64_t micro, wf_par_accumulate accumulate)
{
    training one = new_training(kind, kind == LLAMA ? 3 : HEADS, 8);

    one.steps = 3;
    one.options.micro_batch = micro;
    if (!train(&one))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = one;

        t.layout = (wf_par_options){.axes = rows[i].axes,
                                    .dp_axes = rows[i].dp_axes,
                                    .accumulate = accumulate,
                                    .seed = one.layout.seed};
        t.parallelize = rows[i].parallelize;
        t.digest = 0;
        CU_ASSERT(train(&t));
        CU_ASSERT_EQUAL(t.digest, one.digest);
        CU_ASSERT_STRING_EQUAL(t.inexact, "");
        if (t.digest != one.digest || *t.inexact)
            printf("\n    %s: digest %016" PRIx64 ", not %016" PRIx64 " %s\n", rows[i].what,
                   t.digest, one.digest, t.inexact);
    }
}

static void test_gpt2(void)
{
    digests_equal(GPT2, 0, WF_PAR_AUTO);
}

static void test_micro_steps(void)
{
    digests_equal(LLAMA, 1, WF_PAR_AUTO);
    digests_equal(GPT2, 1, WF_PAR_REDUCED);
    digests_equal(GPT2, 1, WF_PAR_LOCAL);
}

/* Checks that the memory of a unit follows from its own strategy. */
static wf_status unit_sizes(part *p)
{
    wf_rank *rank = p->rank;

    GOOD(one_by_one(p->par, p->model));
    for (int64_t i = 0; i < wf_par_unit_count(p->par, p->model); i++) {
        wf_par_unit_info u = wf_par_unit_at(p->par, p->model, i);
        bool split = strcmp(u.path, "block.0") == 0 || strcmp(u.path, "block.1.attn") == 0;

        NEED((u.gathered > 0) == split);
        NEED(u.compute_bytes == (size_t)u.elements * 4);
        NEED(split ? u.shard_bytes < u.compute_bytes / 3 : u.shard_bytes == u.compute_bytes);
        NEED(u.reshard == (split && strcmp(u.path, "block.0") != 0));
    }
    return WF_OK;
}

static void test_units(void)
{
    const training t = new_training(GPT2, HEADS, 8);

    run_parts((part_test){
        .options = {.axes = WF_AXES({"dp", 4})}, .config = &t.model, .body = unit_sizes});
}

/* Every call that is wrong says what is, and leaves an error in the context. */
typedef struct mistake {
    const char *says;
    wf_status (*make)(wf_par *par, wf_nn_module *model);
} mistake;

static wf_status no_axis(wf_par *par, wf_nn_module *model)
{
    return wf_par_shard(par, model, "", "nowhere", NULL);
}

static wf_status tensor_axis(wf_par *par, wf_nn_module *model)
{
    return wf_par_shard(par, model, "", "tp", NULL);
}

static wf_status data_axis(wf_par *par, wf_nn_module *model)
{
    return wf_par_tensor(par, model, "dp", wf_par_gpt_plan);
}

static wf_status no_module(wf_par *par, wf_nn_module *model)
{
    return wf_par_shard(par, model, "blocks.*", "dp", NULL);
}

static wf_status a_member(wf_par *par, wf_nn_module *model)
{
    return wf_par_shard(par, model, "block.*.attn.qkv.q", "dp", NULL);
}

static wf_status no_strategy(wf_par *par, wf_nn_module *model)
{
    return shard(par, model, "", "dp", "zero9");
}

static wf_status real_already(wf_par *par, wf_nn_module *model)
{
    GOOD(wf_par_materialize(par, model));
    return wf_par_shard(par, model, "", "dp", NULL);
}

static const mistake mistakes[] = {
    {"the mesh has no axis nowhere: its axes are dp, tp", no_axis},
    {"axis tp is not data-parallel", tensor_axis},
    {"axis dp is data-parallel", data_axis},
    {"no module of the model is at blocks.*", no_module},
    {"module block.0.attn.qkv.q belongs to a group", a_member},
    {"there is no strategy zero9; use one of: full_shard", no_strategy},
    {"is real already", real_already},
};

static wf_status make_mistake(part *p)
{
    const mistake *m = p->arg;
    wf_rank *rank = p->rank;

    NEED(m->make(p->par, p->model) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text, m->says) != NULL);
    wf_context_clear(p->ctx);
    return WF_OK;
}

static void test_mistakes(void)
{
    const training t = new_training(GPT2, HEADS, 8);

    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        run_parts((part_test){.options = {.axes = WF_AXES({"dp", 2}, {"tp", 1})},
                              .config = &t.model,
                              .body = make_mistake,
                              .arg = (void *)&mistakes[i]});
}

static wf_status open_wrongly(wf_rank *rank, void *arg)
{
    const wf_par_options *o = arg;

    NEED(wf_par_open(rank, o, &rank->error) == NULL);
    NEED(rank->error.code == WF_EINVAL);
    rank->error = (wf_error){WF_OK, ""};
    return WF_OK;
}

static void test_meshes(void)
{
    wf_par_options wrong[] = {
        {.axes = WF_AXES({"dp", 2}), .tp = 2},
        {.axes = WF_AXES({"dp", 3})},
        {.axes = WF_AXES({"dp", 2}, {"dp", 1})},
        {.axes = WF_AXES({"a", 2}, {"b", 1}), .dp_axes = "b/a"},
        {.axes = WF_AXES({"a", 2}), .dp_axes = "c"},
        {.dp = 2, .dp_axes = "shard"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        run_ranks(2, open_wrongly, &wrong[i]);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the bits of one rank", test_gpt2},   {"in micro-steps", test_micro_steps},
        {"units of their own", test_units},    {"mistakes", test_mistakes},
        {"meshes that are none", test_meshes}, {NULL, NULL},
    };

    return wf_test_main("axes_by_name", tests);
}
