/* parallel/train/open.c - opening and closing a trainer. */
#include "parallel/main.h"
#include "parallel/shard/update_internal.h"
#include "parallel/train/added_loss_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/read_batch_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/step_alike_internal.h"
#include "parallel/train/step_internal.h"
#include "parallel/train/trainer_job_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t MOST_SEQUENCES = (int64_t)1
                                      << 40; /* more in a batch would leave no room for sums */

static bool trains_something(const wf_par_trainer *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (!t->parameter[i]->frozen && !wf_nn_is_counts(t->parameter[i]))
            return true;
    return false;
}

/* Reports biases that balance experts where all of them are frozen, as beside adapters: no step
   changes them. */
static void look_at_balance(wf_par_trainer *t)
{
    const wf_nn_parameter *frozen = NULL;

    for (int64_t i = 0; i < t->count; i++) {
        if (!(t->parameter[i]->sign_step > 0))
            continue;
        if (!t->parameter[i]->frozen)
            return;
        frozen = t->parameter[i];
    }
    if (frozen)
        wf_context_warn(t->par->ctx, frozen,
                        "the biases that balance experts (bias_step) are frozen, as is %s: no "
                        "step changes them; balance by a loss, or not at all, or train them",
                        frozen->path);
}

static wf_status check_model(wf_par_trainer *t)
{
    if (!trains_something(t))
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "all parameters are frozen: a trainer needs one at least that is not");
    look_at_balance(t);
    for (int64_t i = 0; i < t->count; i++)
        if (t->parameter[i]->plan && !t->parameter[i]->frozen &&
            wf_par_state_of(t->parameter[i])->stored != WF_F32)
            return wf_fail(t->par->ctx, WF_EINVAL,
                           "parameter %s was frozen when it was planned, so that it has no f32 "
                           "master to be trained: say what is frozen before wf_par_plan",
                           t->parameter[i]->path);
    t->units = wf_par_units_of(t->par, t->model);
    if (!t->units)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "the module that is trained has no plan of its own: wf_par_plan and "
                       "wf_par_materialize take the same module as the trainer");
    return WF_OK;
}

/* A level of the sum over the batch: ranks along an axis, or micro-steps. */
typedef struct level {
    const char *axis; /* NULL: micro-steps */
    int64_t count;
} level;

/* Appends the data-parallel axes over which each micro-step sums, or the others, to n levels;
   returns how many there are then. */
static int add_axes(const wf_par *par, bool reduced, level *l, int n)
{
    for (int i = 0; i < par->n_dp; i++) {
        int axis = par->dp_axis[i], size = wf_mesh_size(par->mesh, axis);
        bool alone = size == wf_par_dp(par); /* the only one: dp by the name it was asked for */

        if ((par->reduced >> axis & 1) == reduced)
            l[n++] = (level){alone ? "dp" : wf_mesh_axis_name(par->mesh, axis), size};
    }
    return n;
}

/*
 * The numbers of sequences have digits, those of read_batch.c, and each is summed in a midpoint
 * tree of its own. All together they are the tree over the batch where a digit is a power of
 * two, or has single sequences below it: halves of c x s sequences are halves of c, unless c is
 * odd and s above 1.
 */
static void report_order(const wf_par_trainer *t)
{
    const wf_par *par = t->par;
    int64_t inside = t->per_sequence ? t->per_sequence : t->options.micro_batch;
    int64_t group = par->reduced ? par->group : 1;
    level l[WF_MAX_AXES + 2];
    int n = add_axes(par, false, l, 0);

    if (!t->per_sequence) { /* else these are one tree already */
        l[n++] = (level){NULL, t->micros / group};
        n = add_axes(par, true, l, n);
        l[n++] = (level){NULL, group};
    }
    while (n-- > 0) {
        int64_t count = l[n].count;

        if (inside > 1 && (count & (count - 1)) && l[n].axis)
            wf_context_report_inexact(
                par->ctx,
                "not layout-exact: %s %" PRId64
                " is not a power of two, and adds sums of %" PRId64
                " sequences: it is exact where it adds single ones, in micro-batches of 1 with "
                "gradients that are reduced in each micro-step",
                l[n].axis, count, inside);
        else if (inside > 1 && (count & (count - 1)))
            wf_context_report_inexact(par->ctx,
                                      "not layout-exact: %" PRId64
                                      " micro-steps are not a power of two, and have %" PRId64
                                      " sequences each",
                                      count, inside);
        inside *= count;
    }
}

/* Checks the division of a batch, the last of which is the one that the trainer has. */
static wf_status check_size(wf_par_trainer *t, int64_t batch)
{
    int64_t groups;

    if (wf_par_divide_batch(t, batch) != WF_OK)
        return wf_context_status(t->par->ctx);
    groups = t->micros / t->par->group;
    if (t->par->group > 1 && (t->micros % t->par->group || (groups & (groups - 1))))
        return wf_fail(
            t->par->ctx, WF_EINVAL,
            "gradients are summed over ranks for groups of %d micro-steps, and a step "
            "has %" PRId64 ": take a group that divides them into 1, 2, 4, .. parts",
            t->par->group, t->micros);
    report_order(t);
    return wf_context_status(t->par->ctx);
}

static wf_status check_batch(wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;

    if (o->global_batch < 1 || o->micro_batch < 0 || o->global_batch > MOST_SEQUENCES ||
        o->micro_batch > MOST_SEQUENCES)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "global batch %" PRId64 " and micro-batch %" PRId64
                       ": batch sizes must be positive, and at most %" PRId64,
                       o->global_batch, o->micro_batch, MOST_SEQUENCES);
    if (wf_par_rampup_check(t) != WF_OK)
        return wf_context_status(t->par->ctx);
    for (int64_t k = 0; k < wf_par_rampup_sizes(o); k++)
        if (check_size(t, o->rampup.start + k * o->rampup.increment) != WF_OK)
            return wf_context_status(t->par->ctx);
    return check_size(t, o->global_batch) == WF_OK ? wf_par_fields_check(t)
                                                   : wf_context_status(t->par->ctx);
}

/* Refuses what reads an optimizer's state where it is not, by name. */
static wf_status check_offload(const wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;
    const char *beside = o->redundancy                ? "copies of a buddy"
                         : o->evaluate_average        ? "evaluation with an average of weights"
                         : t->par->options.cuda_graph ? "captured steps"
                                                      : NULL;

    if (beside)
        return wf_fail(t->par->ctx, WF_EUNSUPPORTED,
                       "the optimizer's state is offloaded to host memory, and %s: not there "
                       "yet together; use one of the two",
                       beside);
    return WF_OK;
}

static wf_status check_modes(const wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;

    if (!(o->skip.loss_above >= 0))
        return wf_fail(
            t->par->ctx, WF_EINVAL,
            "steps are skipped whose loss is above %g: it is above 0, or 0 for never",
            (double)o->skip.loss_above);
    if ((unsigned)o->redundancy > WF_PAR_REDUNDANCY_BUDDY)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "redundancy %d is none of wf_par_redundancy, 0 to %d",
                       (int)o->redundancy, (int)WF_PAR_REDUNDANCY_BUDDY);
    if (o->check_replicas < 0)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "replicas compared every %" PRId64
                       " steps: give a number of steps, or 0 for never",
                       o->check_replicas);
    return t->par->options.offload_optimizer ? check_offload(t) : WF_OK;
}

/* Returns the row that runs the parts of a step. */
static const wf_par_engine *choose_engine(const wf_par *par, const wf_par_train_options *o)
{
    if (o->pipeline)
        return wf_par_pipeline_head_of(o->pipeline)->engine;
    return par->options.cuda_graph ? &wf_par_engine_graph : &wf_par_engine_eager;
}

/* Makes what a trainer has beside its options: losses, its engine's own, optimizer, copies of
   buddies. */
static wf_status make_parts(wf_par_trainer *t)
{
    wf_par *par = t->par;
    const char *phase = wf_context_phase(par->ctx, "initialisation");

    wf_par_losses_open(t, &t->losses);
    t->engine->open(t);
    t->optimizer = wf_par_optimizer_new(par, &t->options.optimizer, t->count, t->parameter);
    if (t->options.redundancy == WF_PAR_REDUNDANCY_BUDDY &&
        wf_context_status(par->ctx) == WF_OK)
        t->buddies = wf_par_buddies_open(par, t->optimizer, t->count, t->parameter);
    for (; t->held < t->count; t->held++)
        wf_tensor_retain(t->parameter[t->held]->tensor);
    wf_context_phase(par->ctx, phase);
    return wf_context_status(par->ctx);
}

/* Reports the groups of parameters, on the first rank. */
static void report_groups(const wf_par_trainer *t)
{
    int64_t parameters, elements;
    const wf_nn_group *g;

    if (wf_context_dry_run(t->par->ctx) || wf_context_rank(t->par->ctx) != 0)
        return;
    for (int k = 0; (g = wf_nn_optimizer_group(t->optimizer, k, &parameters, &elements)); k++) {
        char decay[64] = "the optimizer's";

        if (g->has_decay)
            snprintf(decay, sizeof decay, "%g", (double)g->decay);
        wf_par_report_line(NULL,
                           "group %s: %" PRId64 " tensors, %" PRId64
                           " parameters, rate x %g, weight decay %s",
                           g->pattern, parameters, elements, (double)g->lr, decay);
    }
}

static void free_trainer(wf_par_trainer *t)
{
    if (t->step.grad)
        wf_par_step_drop(t); /* a loop may have left off in the middle of a step */
    wf_par_launched_drop(t);
    wf_par_average_end(t);
    t->engine->close(t);
    for (int64_t i = 0; i < t->held; i++)
        wf_tensor_release(t->parameter[i]->tensor);
    wf_par_buddies_close(t->buddies);
    wf_nn_optimizer_free(t->optimizer);
    wf_par_losses_close(t, &t->losses);
    wf_par_added_close(t);
    free(t->alike.batch);
    free(t->step.grad);
    free(t->parameter);
    free(t);
}

wf_par_trainer *wf_par_trainer_open(wf_par *par, wf_nn_module *model,
                                    const wf_par_train_options *options)
{
    wf_context *ctx;
    wf_par_trainer *t;

    if (!par)
        return NULL;
    ctx = par->ctx;
    if (wf_context_status(ctx) != WF_OK)
        return NULL;
    if (!model || !options) {
        wf_fail(ctx, WF_EINVAL, "a trainer is opened with %s that are NULL",
                model ? "options" : "a model");
        return NULL;
    }
    t = calloc(1, sizeof *t);
    if (!t) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a trainer");
        return NULL;
    }
    t->par = par;
    t->model = model;
    t->options = *options;
    t->engine = choose_engine(par, options);
    t->parameter = wf_nn_parameters(model, &t->count);
    t->step.grad = calloc((size_t)t->count + 1, sizeof(wf_tensor *));
    if (!t->parameter || !t->step.grad)
        wf_fail(ctx, WF_ENOMEM, "no memory for %" PRId64 " parameters", t->count);
    else if (wf_par_trainer_agree(t) == WF_OK && check_model(t) == WF_OK &&
             check_batch(t) == WF_OK && check_modes(t) == WF_OK &&
             wf_par_clip_check(par, t->options.clip) == WF_OK &&
             wf_nn_schedule_check(ctx, &t->options.schedule) == WF_OK &&
             wf_par_alike_open(t) == WF_OK)
        make_parts(t);
    if (par->options.pace && wf_context_status(ctx) == WF_OK)
        wf_pace_start(&par->pace, par->options.pace);
    if (wf_context_status(ctx) != WF_OK) {
        free_trainer(t);
        return NULL;
    }
    wf_par_report_inexact(par);
    report_groups(t);
    return t;
}

/* Fails the world first where this rank has failed: what is freed may wait for a GPU, whose
   work may wait for ranks that would wait for this one. */
void wf_par_trainer_close(wf_par_trainer *t)
{
    if (!t)
        return;
    if (wf_context_status(t->par->ctx) != WF_OK && wf_mesh_ranks(t->par->mesh) > 1)
        wf_par_abandon(t->par);
    free_trainer(t);
}
