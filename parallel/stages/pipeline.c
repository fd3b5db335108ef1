/* parallel/stages/pipeline.c - making a pipeline: one plan of the model, the cut, and what
   follows from both. */
#include "parallel/stages/stages_internal.h"
#include "parallel/pipeline/split.h"
#include "parallel/shard/materialize.h"
#include "parallel/shard/units_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The inputs of a plan. */
typedef struct planning {
    wf_par_options options;
    wf_par_train_options train;
    wf_par_pipeline *pipeline;
    int ranks;
} planning;

/* Modules with the steps that run them. */
static wf_status list_modules(wf_par_pipeline *p, wf_nn_module *model)
{
    wf_nn_module *m;
    int64_t n = 0;

    for (int64_t i = 0; i < p->borders.steps; i++)
        for (int k = 0; wf_nn_chain_module(model, i, k); k++)
            n++;
    p->module = calloc((size_t)n + 1, sizeof *p->module);
    if (!p->module)
        return wf_fail(model->ctx, WF_ENOMEM, "no memory for the modules of %" PRId64 " steps",
                       p->borders.steps);
    for (int64_t i = 0; i < p->borders.steps; i++)
        for (int k = 0; (m = wf_nn_chain_module(model, i, k)); k++) {
            memcpy(p->module[p->modules].path, m->path, sizeof m->path);
            p->module[p->modules++].step = i;
        }
    return WF_OK;
}

static wf_status cut(planning *plan, wf_nn_module *model, wf_error *error)
{
    wf_par_pipeline *p = plan->pipeline;
    const wf_par_chain_step *row = p->borders.step;
    const char *split = p->options.split ? p->options.split : "auto";
    wf_pipe_chain chain = {.steps = p->borders.steps};
    double *cost = calloc((size_t)chain.steps + 1, sizeof *cost);
    wf_pipe_module *list = NULL;
    wf_status status = WF_ENOMEM;

    p->first = calloc((size_t)p->stages + 1, sizeof *p->first);
    if (list_modules(p, model) == WF_OK)
        list = calloc((size_t)p->modules + 1, sizeof *list);
    if (!cost || !p->first || !list) {
        wf_error_set(error, WF_ENOMEM, "no memory to cut a model into %d stages", p->stages);
    } else if (strcmp(split, "auto") == 0 && p->stages > chain.steps) {
        status = wf_error_set(error, WF_EINVAL,
                              "%d stages are more than the model's %" PRId64
                              " steps: take fewer ranks or stages a rank, or say which stages "
                              "have no step (a split of counts)",
                              p->stages, chain.steps);
    } else {
        for (int64_t i = 0; i < chain.steps; i++)
            cost[i] = row[i].forward + row[i].backward;
        for (int64_t i = 0; i < p->modules; i++)
            list[i] = (wf_pipe_module){p->module[i].path, p->module[i].step};
        chain.modules = p->modules;
        chain.module = list;
        chain.cost = cost;
        chain.end = row[chain.steps].forward + row[chain.steps].backward;
        status = wf_pipe_split(&chain, split, p->stages, p->first, error);
    }
    free(list);
    free(cost);
    return status;
}

/* Checks that head_loss gets all that the last step leaves. No gradient comes back to stages
   that have nothing to train. */
static wf_status check_cuts(wf_par_pipeline *p, wf_error *error)
{
    const wf_par_chain_step *last = &p->borders.step[p->borders.steps - 1];

    if (p->borders.steps > 0 && last->carried != 1)
        return wf_error_set(
            error, WF_EINVAL,
            "the last step, %" PRId64
            ", leaves %d tensors, and head_loss takes one: leave the others out "
            "there",
            p->borders.steps - 1, last->carried);
    for (int s = 1; s < p->stages; s++) {
        bool wanted = false;

        for (int k = 0; k < wf_par_stage_carried(p, s); k++)
            wanted |= wf_par_stage_wants(p, s, k);
        if (!wanted)
            p->frozen = s;
    }
    return WF_OK;
}

/* All parameters of a model; NULL on errors. Owner: caller, free */
static wf_nn_parameter **parameters_of(wf_nn_module *model, int64_t *count)
{
    wf_nn_parameter **parameter = wf_nn_parameters(model, count);

    if (!parameter)
        wf_fail(model->ctx, WF_ENOMEM, "no memory for the parameters of a pipeline's model");
    return parameter;
}

/* Stages that share a parameter. */
static void find_shared(wf_par_pipeline *p, const bool *in_stage)
{
    int first = wf_par_pipeline_next_stage(p, in_stage, -1);

    for (int s = first; s >= 0; s = wf_par_pipeline_next_stage(p, in_stage, s))
        if (s != first)
            p->shares[first] = p->shares[s] = true;
}

static wf_status find_ties(wf_par_pipeline *p, wf_nn_module *model)
{
    int64_t count = 0;
    wf_nn_parameter **parameter = parameters_of(model, &count);
    bool *in_stage = parameter ? wf_par_pipeline_stages_of(p, model, count, parameter) : NULL;

    p->shares = calloc((size_t)p->stages + 1, sizeof *p->shares);
    if (!p->shares)
        wf_fail(model->ctx, WF_ENOMEM, "no memory for %d stages", p->stages);
    for (int64_t i = 0; in_stage && p->shares && i < count; i++) {
        p->tied |= !parameter[i]->frozen && p->stages > 1 && in_stage[i * p->stages] &&
                   in_stage[i * p->stages + p->stages - 1];
        find_shared(p, in_stage + i * p->stages);
    }
    free(in_stage);
    free(parameter);
    return wf_context_status(model->ctx);
}

static void find_units(wf_par_pipeline *p, const wf_par *par, const wf_nn_module *model)
{
    const wf_par_units *all = wf_par_units_of(par, model);

    p->keeps = true;
    for (int64_t u = 0; all && u < all->count; u++) {
        p->gathers |= all->unit[u].split > 0;
        p->keeps &= !all->unit[u].split || !all->unit[u].reshard || u == 0;
    }
    p->reduces = wf_par_dp(par) > 1 && !par->reduced;
}

/* On a rank that plans. */
static wf_status look_at(planning *plan, wf_par *par, wf_nn_module *model, wf_error *error)
{
    wf_par_pipeline *p = plan->pipeline;
    wf_par_trainer *trainer;

    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &plan->train);
    if (trainer &&
        wf_par_borders_new(trainer, p->input, p->options.head_loss, &p->borders) == WF_OK) {
        p->micros = (int)wf_par_micro_steps(trainer);
        find_units(p, par, model);
        if (cut(plan, model, error) == WF_OK && check_cuts(p, error) == WF_OK)
            find_ties(p, model);
    }
    wf_par_trainer_close(trainer);
    return error->code;
}

static wf_status plan_rank(wf_rank *rank, void *arg)
{
    planning *plan = arg;
    wf_par *par = wf_par_open(rank, &plan->options, &rank->error);
    wf_nn_module *model;

    if (!par)
        return rank->error.code;
    if (par->pp_axis >= 0)
        plan->ranks = wf_mesh_size(par->mesh, par->pp_axis);
    model = plan->pipeline->options.model(par, plan->pipeline->options.arg);
    if (model)
        look_at(plan, par, model, &rank->error);
    if (wf_context_status(par->ctx) != WF_OK)
        rank->error = *wf_context_error(par->ctx);
    wf_nn_free(model);
    wf_par_close(par);
    return rank->error.code;
}

/* Refuses messages in parts where tensor-parallel ranks have no activations alike. */
static wf_status check_messages(const wf_par_options *o, const wf_par_pipeline_options *how,
                                wf_error *error)
{
    if (!how->split_messages || o->axes || (o->tp > 1 && !o->sequence_parallel))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        ".pp_send split is for activations that tensor-parallel ranks have "
                        "alike, and %s; leave it out",
                        o->tp > 1 ? ".sequence_parallel splits them" : ".tp is 1");
}

static wf_status make(planning *plan, const wf_par_pipeline_options *how, wf_error *error)
{
    wf_par_pipeline *p = plan->pipeline;

    if (!how->model || !how->input || !how->head_loss)
        return wf_error_set(error, WF_EINVAL,
                            "a pipeline needs a model function, the field that step 0 takes "
                            "(input) and the loss after the last step (head_loss)");
    if (check_messages(&plan->options, how, error) != WF_OK)
        return error->code;
    snprintf(p->input, sizeof p->input, "%s", how->input);
    if (wf_par_pipeline_count(p, plan->ranks, error) != WF_OK)
        return error->code;
    plan->options.plan = true;
    plan->options.cuda_graph = false;
    plan->train.pipeline = NULL;
    if (wf_launch(&(wf_launch_options){.ranks = (int)wf_par_ranks(&plan->options),
                                       .transport = "fake"},
                  plan_rank, plan, error) != WF_OK)
        return error->code;
    if (wf_par_pipeline_schedule(p, plan->ranks, error) == WF_OK)
        wf_par_pipeline_describe(p);
    return error->code;
}

/* The size of axis pp. */
static int ranks_of(const wf_par_options *o)
{
    for (const wf_axis *a = o->axes; a && a->name; a++)
        if (strcmp(a->name, "pp") == 0)
            return a->size;
    return !o->axes && o->pp ? o->pp : 1;
}

wf_status wf_par_pipeline_new(const wf_par_options *options, const wf_par_train_options *train,
                              const wf_par_pipeline_options *how, wf_par_pipeline **pipeline,
                              wf_error *error)
{
    planning plan = {.options = *options, .train = *train, .ranks = ranks_of(options)};

    *pipeline = NULL;
    plan.pipeline = calloc(1, sizeof *plan.pipeline);
    if (!plan.pipeline)
        return wf_error_set(error, WF_ENOMEM, "no memory for a pipeline");
    plan.pipeline->options = *how;
    plan.pipeline->head.engine = &wf_par_engine_stages;
    if (make(&plan, how, error) == WF_OK)
        *pipeline = plan.pipeline;
    else
        wf_par_pipeline_free(plan.pipeline);
    return error->code;
}

void wf_par_pipeline_free(wf_par_pipeline *p)
{
    if (!p)
        return;
    wf_par_borders_free(&p->borders);
    wf_pipe_table_free(p->table);
    wf_pipe_table_free(p->given);
    free(p->first);
    free(p->shares);
    free(p->module);
    free(p);
}

int wf_par_pipeline_stages(const wf_par_pipeline *p)
{
    return p->stages;
}

int64_t wf_par_pipeline_first(const wf_par_pipeline *p, int stage)
{
    return p->first[stage];
}

const wf_pipe_table *wf_par_pipeline_table(const wf_par_pipeline *p)
{
    return p->table;
}

const wf_par_borders *wf_par_pipeline_borders(const wf_par_pipeline *p)
{
    return &p->borders;
}

const char *wf_par_pipeline_text(const wf_par_pipeline *p)
{
    return p->text;
}

/* Which of the pipeline's ranks counts a parameter: that of its first stage. */
static wf_status find_owners(const wf_par_pipeline *p, wf_nn_module *model)
{
    int64_t count = 0;
    wf_nn_parameter **parameter = parameters_of(model, &count);
    bool *in_stage = parameter ? wf_par_pipeline_stages_of(p, model, count, parameter) : NULL;

    for (int64_t i = 0; in_stage && i < count; i++) {
        int first = wf_par_pipeline_next_stage(p, in_stage + i * p->stages, -1);

        wf_par_state_of(parameter[i])->owning_rank = wf_pipe_table_rank(p->table, first);
    }
    free(in_stage);
    free(parameter);
    return wf_context_status(model->ctx);
}

wf_status wf_par_pipeline_materialize(const wf_par_pipeline *p, wf_par *par,
                                      wf_nn_module *model)
{
    int ranks = par->pp_axis < 0 ? 1 : wf_mesh_size(par->mesh, par->pp_axis);
    int mine = par->pp_axis < 0 ? 0 : wf_mesh_coordinate(par->mesh, par->pp_axis);
    wf_par_units *units;

    if (!model || wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (ranks != wf_pipe_table_shape(p->table).ranks)
        return wf_fail(par->ctx, WF_EINVAL,
                       "the pipeline was made for pp %d, and the mesh has pp %d: make it with "
                       "the options of the run",
                       wf_pipe_table_shape(p->table).ranks, ranks);
    if (find_owners(p, model) != WF_OK)
        return wf_context_status(par->ctx);
    for (int s = 0; s < p->stages; s++)
        if (wf_pipe_table_rank(p->table, s) == mine)
            wf_par_materialize_steps(par, model, p->first[s], wf_par_pipeline_end(p, s));
    units = wf_par_units_of(par, model);
    if (units)
        wf_par_units_keep_real(units);
    return wf_context_status(par->ctx);
}
