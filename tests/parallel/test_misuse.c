/*
 * tests/parallel/test_misuse.c - programs that use the library wrongly: values that no enum
 * has, NULL, numbers out of range, changes after a plan, a loss of another model. Each is
 * refused by name, where it was taken without a word or crashed.
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "nn/children.h"
#include "nn/layers/lora.h"
#include "parallel/main.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"
#include <unistd.h>

enum { BATCH = 16 };

#define REFUSED(call, words)                                                                   \
    do {                                                                                       \
        (void)(call);                                                                          \
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, words));                                   \
    } while (0)

/* Configs that were completed as if nothing had been given. */
static wf_status wrong_configs(part *p)
{
    const training usual = new_training(LLAMA, 3, BATCH);
    wf_nn_gpt_config c[14];
    wf_rank *rank = p->rank;

    for (int i = 0; i < 14; i++)
        c[i] = usual.model;
    c[0].norm = (wf_nn_norm_kind)7;
    c[1].mlp = (wf_nn_mlp_kind)-1;
    c[2].position = (wf_nn_position_kind)2;
    c[3].order = (wf_nn_norm_order)3;
    c[4].eps = -1;
    c[5].rope_base = -1;
    c[6].logit_divisor = -8;
    c[7].embedding_scale = -2; /* -1 stands for the root of the width */
    c[8].residual_scale = -1;
    c[9].attention_scale = NAN;
    c[10].eps = INFINITY;
    c[11].rope_skip = -1;
    c[12].rotary = -0.5;
    c[13].head_dim = -4;
    for (int i = 0; i < 14; i++)
        REFUSED(wf_nn_gpt_new(p->ctx, &c[i]), i < 4 ? "is no value of its enum"
                                              : i < 11
                                                  ? "it is positive and finite, in float too"
                                                  : "none is negative");
    REFUSED(wf_nn_gpt_new(p->ctx, NULL), "without a config");
    return WF_OK;
}

static wf_status wrong_openings(part *p)
{
    const training usual = new_training(LLAMA, 3, BATCH);
    wf_par_train_options o[6];
    static const char *const words[] = {
        "an optimizer of method 99",    "is none of wf_par_redundancy",
        "replicas compared every -1",   "has an empty name",
        "batch sizes must be positive", "larger than 2^63"};
    wf_rank *rank = p->rank;

    REFUSED(wf_par_plan(p->par, NULL, wf_par_gpt_plan), "a model that is NULL");
    REFUSED(wf_par_materialize(p->par, NULL), "is NULL, though nothing failed before");
    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, p->model));
    for (int i = 0; i < 6; i++)
        o[i] = usual.options;
    o[0].optimizer.method = (wf_nn_method)99;
    o[1].redundancy = (wf_par_redundancy)9;
    o[2].check_replicas = -1;
    o[3].field[1].name = "";
    o[4].global_batch = INT64_MAX;
    o[5].field[0].dim[0] = wf_dim_width((int64_t)1 << 58);
    for (int i = 0; i < 6; i++)
        NEED(!wf_par_trainer_open(p->par, p->model, &o[i]) &&
             refused(rank, p->ctx, NULL, i < 5 ? WF_EINVAL : WF_ESHAPE, words[i]) == WF_OK);
    REFUSED(wf_par_trainer_open(p->par, NULL, &usual.options), "with a model that are NULL");
    REFUSED(wf_par_trainer_open(p->par, p->model, NULL), "with options that are NULL");
    NEED(!wf_par_trainer_open(NULL, p->model, &usual.options));
    return WF_OK;
}

/* Adapters behind a plan's back had none: a crash in the first step, or all rules forgotten. */
static wf_status adapted_late(part *p)
{
    const wf_nn_lora_options lora = {.rank = 2, .alpha = 1, .targets = "q", .site = 99};
    wf_nn_parameter *more = wf_nn_parameter_new(p->ctx, 1, (wf_dim[]){wf_dim_width(3)}, false);
    wf_nn_gpt *gpt = p->gpt;
    wf_rank *rank = p->rank;
    wf_nn_parameter *bias = gpt->head->bias;

    GOOD(wf_par_plan(p->par, p->model, wf_par_gpt_plan));
    REFUSED(wf_nn_lora(p->model, &lora), "adapt a model before wf_par_plan");
    gpt->head->bias = more;
    REFUSED(wf_par_materialize(p->par, p->model), "was added after wf_par_plan");
    gpt->head->bias = bias;
    wf_nn_parameter_free(more);
    GOOD(wf_par_materialize(p->par, p->model));
    REFUSED(wf_nn_lora(p->model, &lora), "adapt a model before wf_par_plan");
    NEED(wf_nn_lora(NULL, &lora) == WF_EINVAL && wf_nn_lora(p->model, NULL) == WF_EINVAL);
    return WF_OK;
}

/* A linear that is the root has an empty name, of which lists of names went round for ever. */
static wf_status a_lone_linear(part *p)
{
    const wf_nn_linear_options options = {.in = wf_dim_width(4), .out = wf_dim_width(4)};
    const wf_nn_lora_options lora = {.rank = 2, .alpha = 1, .targets = WF_NN_ALL_LINEAR};
    wf_nn_linear *m = wf_nn_linear_new(p->ctx, &options);
    wf_rank *rank = p->rank;

    NEED(m && wf_nn_name_tree(&m->base) == WF_OK);
    wf_nn_lora(&m->base, &lora);
    wf_context_clear(p->ctx);
    wf_nn_free(&m->base);
    return WF_OK;
}

static wf_status wrong_numbers(part *p)
{
    const wf_dim dim = wf_dim_width(4);
    wf_rank *rank = p->rank;
    wf_tensor *t;

    wf_scope_open(p->ctx);
    t = wf_tensor_new(p->ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_PARAMETER);
    REFUSED(wf_init_normal(t, 0, -1, 0), "the deviation is not negative");
    REFUSED(wf_init_normal(t, NAN, 1, 0), "all are finite");
    REFUSED(wf_init_uniform(t, 2, 1, 0), "the first bound not above the second");
    REFUSED(wf_nn_module_new(
                p->ctx, NULL, NULL,
                {"a", WF_NN_PARAMETER, wf_nn_parameter_new(p->ctx, 1, &dim, false), 0}),
            "a type without a name");
    wf_tape_close(wf_tape_open(p->ctx));
    wf_scope_close(p->ctx);
    NEED(wf_backward_weights_joined(0, NULL) == WF_EINVAL);
    NEED(!wf_nn_enter(NULL) && !wf_nn_is_recomputing(NULL) && !wf_nn_use(NULL, NULL));
    wf_nn_leave(NULL, NULL, 0, NULL);
    return WF_OK;
}

/* A trainer that could not be opened takes calls, as a model does that could not be made. */
static wf_status no_trainer(part *p)
{
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;
    wf_par_step step = {.loss = 1};
    float mean = 1;
    double norm = 1;

    NEED(wf_par_train_step(NULL, 1, &data, &step) == WF_EINVAL && step.loss == 0);
    NEED(wf_par_step_begin(NULL, 1) == WF_EINVAL && wf_par_zero_grad(NULL) == WF_EINVAL);
    NEED(!wf_par_micro_step_begin(NULL, &data) && wf_par_backward(NULL, NULL) == WF_EINVAL);
    NEED(wf_par_forward_backward(NULL, &data) == WF_EINVAL);
    NEED(wf_par_reduce(NULL, &mean) == WF_EINVAL && mean == 0);
    NEED(wf_par_clip(NULL, 1, &norm) == WF_EINVAL && norm == 0);
    NEED(wf_par_check_finite(NULL, 1, 1, &data) == WF_EINVAL);
    NEED(wf_par_optimizer_step(NULL, 1) == WF_EINVAL && !wf_par_gradient(NULL, NULL));
    NEED(wf_par_evaluate(NULL, 1, &data, NULL, &mean) == WF_EINVAL);
    NEED(wf_par_micro_steps(NULL) == 0 && wf_par_trainer_steps(NULL) == 0);
    NEED(wf_par_trainer_state(NULL).count == 0);
    return WF_OK;
}

static wf_nn_gpt *other;

static wf_tensor *loss_of_another(wf_nn_module *model, const wf_par_batch *batch)
{
    (void)model;
    return wf_par_gpt_loss(&other->base, batch);
}

/* Data that set an error and return WF_OK, as where a `return` is forgotten. */
static wf_status says_and_goes_on(void *self, int64_t step, int64_t first, int64_t count,
                                  void *const *field, wf_error *error)
{
    wf_error_set(error, WF_EDATA, "half of the file is gone");
    return count_up(self, step, first, count, field, error) == WF_OK ? WF_OK : WF_EIO;
}

static wf_status wrong_steps(part *p, wf_par_trainer *t)
{
    const training usual = new_training(LLAMA, 3, BATCH);
    const wf_par_data data = {.read = count_up}, silent = {.read = says_and_goes_on};
    wf_par_train_options o = usual.options;
    wf_rank *rank = p->rank;
    wf_par_trainer *second;
    wf_par_step step;

    GOOD(wf_par_train_step(t, 1, &data, NULL));
    NEED(wf_par_train_step(t, 2, &silent, &step) == WF_EDATA);
    GOOD(refused(rank, p->ctx, NULL, WF_EDATA, "half of the file is gone"));
    GOOD(wf_par_evaluate(t, 1, &data, NULL, NULL));
    other = wf_nn_gpt_new(p->ctx, &usual.model);
    GOOD(wf_par_plan(p->par, &other->base, wf_par_gpt_plan));
    GOOD(wf_par_materialize(p->par, &other->base));
    o.loss = loss_of_another;
    second = wf_par_trainer_open(p->par, p->model, &o);
    NEED(second);
    REFUSED(wf_par_train_step(second, 1, &data, &step),
            "no parameter of the model gets a gradient in step 1");
    wf_par_trainer_close(second);
    wf_nn_free(&other->base);
    return WF_OK;
}

static wf_status steps_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, wrong_steps, NULL);
}

static void a_model_and_a_trainer(void)
{
    static wf_status (*const bodies[])(part *) = {wrong_configs, wrong_openings, adapted_late,
                                                  a_lone_linear, wrong_numbers,  no_trainer};
    training t = new_training(LLAMA, 3, BATCH);

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        run_parts((part_test){.options = t.layout, .config = &t.model, .body = bodies[i]});
    run_ranks(1, steps_rank, &t);
}

static wf_status opens(wf_rank *rank, void *arg)
{
    wf_error error = {WF_OK, ""};

    NEED(!wf_par_open(rank, arg, &error));
    NEED(error.code == WF_EINVAL && strstr(error.text, "accumulate"));
    return WF_OK;
}

static wf_status nothing(wf_par *par, void *arg)
{
    (void)arg;
    return par ? WF_OK : WF_EINVAL;
}

static void a_run(void)
{
    wf_par_options wrong[] = {{.accumulate = (wf_par_accumulate)9},
                              {.reshard = (wf_par_reshard)-1},
                              {.dispatch = (wf_par_dispatch)3},
                              {.accumulate_group = 2}};
    char name[] = "test_misuse", *argv[] = {name, NULL};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        run_ranks(1, opens, &wrong[i]);
    CU_ASSERT_EQUAL(wf_par_main(1, argv, NULL, nothing, NULL), 2);
    CU_ASSERT_EQUAL(wf_par_main(1, argv, &(wf_par_options){.tp = 1}, NULL, NULL), 2);
}

int main(void)
{
    static const wf_test tests[] = {
        {"models and trainers", a_model_and_a_trainer}, {"runs", a_run}, {NULL, NULL}};

    return wf_test_main("misuse", tests);
}
