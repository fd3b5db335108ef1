/*
 * tests/parallel/test_borders.c - what a plan says of the borders between the steps of a chain
 * is what hooks see in the run: shapes, types and layouts of tensors and gradients, whether
 * there is a gradient, the numbers of uses of parameters, and work.
 *
 * ctest: builds address thread
 */
#include "nn/pass.h"
#include "parallel/pipeline/split.h"
#include "parallel/stages/borders.h"
#include "tests/parallel/parallel_harness.h"

enum { RANKS = 8, LAYERS = 3, STEPS = LAYERS + 2, USES = 128 };

/* The borders that a rank of the run sees. */
typedef struct sight {
    wf_par_carried border[STEPS];
    int64_t base, uses;
    wf_par_chain_use use[USES];
    double flops;
    wf_nn_hooks hooks[STEPS];
} sight;

static sight seen[RANKS];
static wf_par_borders found;

static wf_tensor *forward_comes(void *self, wf_nn_module *m, wf_tensor *x, wf_tensor *y)
{
    wf_par_carried *b = self;

    (void)x;
    if (wf_nn_is_recomputing(m))
        return y;
    b->dtype = y->dtype;
    b->ndim = y->ndim;
    memcpy(b->dim, y->dim, sizeof b->dim);
    wf_layout_print(y->layout, b->layout, sizeof b->layout);
    return y;
}

static wf_tensor *gradient_comes(void *self, wf_nn_module *m, wf_tensor *gradient)
{
    wf_par_carried *b = self;

    (void)m;
    b->wants_gradient = true;
    b->gradient_dtype = gradient->dtype;
    wf_layout_print(gradient->layout, b->gradient_layout, sizeof b->gradient_layout);
    return gradient;
}

/* The run's loss, which looks at the uses that the forward pass has left. */
static wf_tensor *spying_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    sight *s = &seen[wf_context_rank(model->ctx)];
    int64_t count, base = wf_nn_next_use(model->ctx);
    wf_tensor *loss = wf_par_gpt_loss(model, batch);
    wf_nn_parameter **p = wf_nn_parameters(model, &count);

    for (int64_t i = 0; p && i < count; i++) {
        const wf_nn_leaves *leaves = wf_nn_leaves_of(p[i], NULL);

        for (int slot = 0; slot < leaves->uses && s->uses < USES; slot++) {
            wf_par_chain_use *use = &s->use[s->uses++];

            memcpy(use->path, p[i]->path, sizeof use->path);
            use->number = leaves->number[slot] - base;
            use->slot = slot;
        }
    }
    free(p);
    return loss;
}

static wf_status hook_borders(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                              int step)
{
    sight *s = &seen[rank->index];
    wf_nn_module *m = &model->base;

    (void)t;
    if (step > 0) {
        s->flops += wf_context_flops(wf_par_context(par));
        return WF_OK;
    }
    *s = (sight){.flops = -wf_context_flops(wf_par_context(par))};
    for (int i = 0; i < STEPS; i++) {
        int last = wf_nn_chain_module(m, i, 1) ? 1 : 0;

        s->hooks[i] = (wf_nn_hooks){.post_forward = forward_comes,
                                    .pre_backward = gradient_comes,
                                    .self = &s->border[i]};
        GOOD(wf_nn_hook_add(wf_nn_chain_module(m, i, last), &s->hooks[i]));
    }
    return WF_OK;
}

static wf_status find_borders(part *p, wf_par_trainer *trainer)
{
    (void)p;
    return wf_par_borders_new(trainer, "tokens", wf_par_gpt_head_loss, &found);
}

static wf_status plan_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, find_borders, NULL);
}

static bool plan(training t)
{
    wf_launch_options launch = {.ranks = t.layout.tp * t.layout.dp, .transport = "fake"};
    wf_error error = {WF_OK, ""};

    t.layout.plan = true;
    wf_launch(&launch, plan_rank, &t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    plan: %s\n", error.text);
    return error.code == WF_OK;
}

static bool same_border(const wf_par_carried *a, const wf_par_carried *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim &&
                strcmp(a->layout, b->layout) == 0 && a->wants_gradient == b->wants_gradient &&
                a->gradient_dtype == b->gradient_dtype &&
                strcmp(a->gradient_layout, b->gradient_layout) == 0;

    for (int d = 0; same && d < a->ndim; d++)
        same = a->dim[d].size == b->dim[d].size && a->dim[d].grain == b->dim[d].grain &&
               a->dim[d].chunks == b->dim[d].chunks;
    return same;
}

/* On every rank of the run, what the plan of rank 0 has found; work on rank 0 alone. */
static void compare(const training *t)
{
    double flops = 0;

    CU_ASSERT_EQUAL_FATAL(found.steps, STEPS);
    for (int64_t i = 0; i <= STEPS; i++) {
        const wf_par_chain_step *row = &found.step[i];

        CU_ASSERT_EQUAL(row->carried, i < STEPS);
        flops += row->forward + row->backward;
        for (int r = 0; i < STEPS && r < t->layout.tp * t->layout.dp; r++)
            CU_ASSERT(same_border(&row->border[0], &seen[r].border[i]));
    }
    CU_ASSERT_EQUAL(flops, seen[0].flops);
    for (int r = 0; r < t->layout.tp * t->layout.dp; r++) {
        CU_ASSERT_EQUAL_FATAL(seen[r].uses, found.uses);
        for (int64_t i = 0; i < found.uses; i++) {
            CU_ASSERT_STRING_EQUAL(seen[r].use[i].path, found.use[i].path);
            CU_ASSERT_EQUAL(seen[r].use[i].number, found.use[i].number);
            CU_ASSERT_EQUAL(seen[r].use[i].slot, found.use[i].slot);
        }
    }
}

static training training_of(model_kind kind, int tp, int dp, bool sequence_parallel)
{
    training t = new_training(kind, HEADS, 4);

    t.model.layers = LAYERS;
    t.layout.tp = tp;
    t.layout.dp = dp;
    t.layout.sequence_parallel = sequence_parallel;
    t.options.loss = spying_loss;
    t.watch = hook_borders;
    return t;
}

static void plan_and_run(training t)
{
    if (plan(t) && train(&t))
        compare(&t);
}

static void as_the_run_sees(void)
{
    static const struct {
        int tp, dp;
        bool sequence_parallel;
    } layouts[] = {{1, 1, false}, {2, 1, false}, {2, 2, true}, {4, 1, true}, {3, 2, false}};
    static const struct {
        wf_dtype dtype;
        bool fp32_residual;
        wf_dtype carried;
    } stored[] = {{WF_F32, false, WF_F32}, {WF_BF16, false, WF_BF16}, {WF_BF16, true, WF_F32}};

    for (int kind = 0; kind < 2; kind++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                training t = training_of(kind ? LLAMA : GPT2, layouts[i].tp, layouts[i].dp,
                                         layouts[i].sequence_parallel);

                t.layout.dtype = stored[d].dtype;
                t.layout.fp32_residual = stored[d].fp32_residual;
                t.model.dropout = i == 2 ? 0.1f : 0;
                t.recompute = i == 3 ? "block" : NULL;
                plan_and_run(t);
                CU_ASSERT_EQUAL(found.step[1].border[0].dtype, stored[d].carried);
                CU_ASSERT_EQUAL(found.step[1].border[0].gradient_dtype, stored[d].carried);
                CU_ASSERT(found.step[1].border[0].wants_gradient);
                wf_par_borders_free(&found);
            }
}

/* With sequence parallelism a border's tokens are split over tp, and so are its gradient's. */
static void tokens_are_split(void)
{
    if (plan(training_of(GPT2, 2, 2, true))) {
        const wf_par_carried *b = &found.step[2].border[0];

        CU_ASSERT_EQUAL(b->ndim, 3);
        CU_ASSERT_EQUAL(b->dim[1].size, TOKENS);
        CU_ASSERT(strstr(b->layout, "tp") != NULL);
        CU_ASSERT_STRING_EQUAL(b->layout, b->gradient_layout);
    }
    wf_par_borders_free(&found);
}

static void freeze_below(wf_nn_gpt *model)
{
    wf_nn_freeze(&model->base, "embed");
    wf_nn_freeze(&model->base, "block.0");
}

static void frozen_below(void)
{
    training t = training_of(LLAMA, 2, 1, false);

    t.change = freeze_below;
    plan_and_run(t);
    for (int i = 0; i < STEPS; i++)
        CU_ASSERT_EQUAL(found.step[i].border[0].wants_gradient, i >= 2);
    CU_ASSERT_EQUAL(found.step[0].uses + found.step[1].uses, 0);
    CU_ASSERT_EQUAL(found.step[1].backward, 0);
    CU_ASSERT(found.step[2].backward > 0);
    wf_par_borders_free(&found);
}

/* The tied table is used by the first step and by the head; numbers ascend over the whole
   model. */
static void tied_uses(void)
{
    int64_t of_table = 0, next = 0;

    if (!plan(training_of(GPT2, 1, 1, false)))
        return;
    for (int64_t i = 0; i < found.uses; i++)
        if (strcmp(found.use[i].path, "embed.table") == 0) {
            CU_ASSERT_EQUAL(found.use[i].slot, of_table);
            CU_ASSERT_EQUAL(found.use[i].step, of_table++ ? STEPS : 0);
        }
    CU_ASSERT_EQUAL(of_table, 2);
    for (int64_t i = 0; i <= STEPS; i++) {
        CU_ASSERT_EQUAL(found.step[i].first_use, next);
        next += found.step[i].uses;
    }
    CU_ASSERT_EQUAL(next, found.uses);
    wf_par_borders_free(&found);
}

/* Work of a plan cuts a chain: with a vocabulary as dear as blocks, the last stage has less of
   them. */
static void cut_by_work(void)
{
    training t = training_of(GPT2, 1, 1, false);
    double cost[STEPS];
    wf_pipe_chain chain = {.steps = STEPS, .cost = cost};
    int64_t first[3];
    wf_error error = {WF_OK, ""};

    t.model.vocabulary = 2048;
    if (!plan(t))
        return;
    for (int i = 0; i < STEPS; i++)
        cost[i] = found.step[i].forward + found.step[i].backward;
    chain.end = found.step[STEPS].forward + found.step[STEPS].backward;
    CU_ASSERT(cost[1] > 0 && cost[1] == cost[2] && chain.end > cost[1]);
    CU_ASSERT_EQUAL(wf_pipe_split(&chain, "auto", 2, first, &error), WF_OK);
    CU_ASSERT(first[1] >= LAYERS); /* two blocks or more before the cut, the head behind it */
    wf_par_borders_free(&found);
}

static wf_status refused_in_a_run(part *p, wf_par_trainer *trainer)
{
    wf_rank *rank = p->rank;
    wf_par_borders b;

    NEED(wf_par_borders_new(trainer, "tokens", wf_par_gpt_head_loss, &b) == WF_EINVAL);
    NEED(strstr(wf_context_error(p->ctx)->text, "borders are found in a plan") != NULL);
    wf_context_clear(p->ctx);
    return WF_OK;
}

static wf_status run_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, refused_in_a_run, NULL);
}

static void only_in_a_plan(void)
{
    training t = training_of(GPT2, 1, 1, false);
    wf_error error = {WF_OK, ""};

    wf_launch(&(wf_launch_options){.ranks = 1}, run_rank, &t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a plan knows what hooks see in the run", as_the_run_sees},
        {"sequence parallelism splits borders", tokens_are_split},
        {"no gradient is wanted above frozen steps alone", frozen_below},
        {"uses of parameters are numbered over the whole model", tied_uses},
        {"work cuts a chain", cut_by_work},
        {"a run that computes is refused", only_in_a_plan},
        {NULL, NULL}};

    return wf_test_main("borders", tests);
}
