/* parallel/stages/stages_open.c - the stages that a rank has: opening and closing them. */
#include "parallel/stages/stages_internal.h"
#include "mesh/comm/collective.h"
#include "parallel/stages/profile_internal.h"
#include "parallel/train/added_loss_internal.h"
#include <inttypes.h>
#include <stdlib.h>

wf_par_stage *wf_par_stage_here(const wf_par_stages *s, int stage)
{
    return s->of[stage] >= 0 ? &s->stage[s->of[stage]] : NULL;
}

static bool lies_in(const wf_par_stages *s, const wf_par_unit *u, int stage)
{
    const wf_par_trainer *t = s->t;

    for (int64_t i = 0; i < u->count; i++)
        for (int64_t k = 0; k < t->count; k++)
            if (t->parameter[k] == u->parameter[i] &&
                s->in_stage[k * s->pipeline->stages + stage])
                return true;
    return false;
}

static wf_status open_stage(wf_par_stages *s, wf_par_stage *stage, int number)
{
    const wf_par_pipeline *p = s->pipeline;
    wf_par_units *all = s->t->units;

    *stage = (wf_par_stage){.number = number,
                            .first = p->first[number],
                            .end = p->first[number + 1],
                            .is_first = number == 0,
                            .is_last = number + 1 == p->stages};
    stage->gradients =
        wf_par_gradients_open(s->t->par, s->t->per_sequence, s->t->count, s->t->parameter);
    stage->unit = calloc((size_t)all->count + 1, sizeof(wf_par_unit *));
    stage->flight = calloc((size_t)s->t->micros, sizeof *stage->flight);
    stage->recomputed = calloc((size_t)s->t->micros, sizeof *stage->recomputed);
    if (!stage->unit || !stage->flight || !stage->recomputed)
        return wf_fail(s->t->par->ctx, WF_ENOMEM, "no memory for stage %d of a pipeline",
                       number);
    for (int64_t u = 0; u < all->count; u++)
        if (all->unit[u].split > 0 && lies_in(s, &all->unit[u], number))
            stage->unit[stage->units++] = &all->unit[u];
    return wf_context_status(s->t->par->ctx);
}

static void find_recomputed(const wf_par_stages *s)
{
    for (int64_t i = 0; i < s->actions; i++)
        if (s->row[i].kind == WF_PIPE_R)
            wf_par_stage_here(s, s->row[i].stage)->recomputed[s->row[i].micro] = true;
}

/* Refuses a parameter that this rank's stages use and that is fake, and one that they do not
   use and that is real: it would be counted in norms and digests, and never be trained. */
static wf_status check_parameter(const wf_par_stages *s, int64_t i)
{
    const wf_nn_parameter *p = s->t->parameter[i];
    bool fake = wf_tensor_is_fake(p->tensor), used = false;

    for (int k = 0; k < s->count; k++) {
        bool here = s->in_stage[i * s->pipeline->stages + s->stage[k].number];

        used = used || here;
        if (here && fake)
            return wf_fail(s->t->par->ctx, WF_EINVAL,
                           "parameter %s of stage %d is fake: wf_par_pipeline_materialize "
                           "comes before a trainer",
                           p->path, s->stage[k].number);
    }
    if (!used && !fake)
        return wf_fail(
            s->t->par->ctx, WF_EINVAL,
            "parameter %s is materialised on a pipeline rank none of whose %d stages "
            "uses it: call wf_par_pipeline_materialize instead of wf_par_materialize, which "
            "makes the whole model real",
            p->path, s->count);
    return WF_OK;
}

static wf_status check(const wf_par_stages *s)
{
    const wf_par_trainer *t = s->t;
    const wf_comm *world = wf_mesh_world(t->par->mesh);

    if (t->par->options.cuda_graph)
        return wf_fail(t->par->ctx, WF_EUNSUPPORTED,
                       "cuda_graph captures the micro-steps of a rank that has all of the "
                       "model, and with a pipeline a schedule runs them: leave out one of "
                       "the two");
    if (s->ranks > 1 && wf_comm_groups_messages(world))
        return wf_fail(
            t->par->ctx, WF_EUNSUPPORTED,
            "transport %s sends the messages that are under way as one group, in which "
            "pipeline ranks would wait for each other: use transport mpi or threads, "
            "or pp 1",
            wf_comm_transport(world));
    if (s->pipeline->micros != t->micros)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "the pipeline was made for %d micro-batches, and a step has %" PRId64
                       ": make it with the options of the trainer",
                       s->pipeline->micros, t->micros);
    for (int64_t i = 0; i < t->count; i++)
        if (check_parameter(s, i) != WF_OK)
            return wf_context_status(t->par->ctx);
    return wf_context_status(t->par->ctx);
}

static wf_status open_stages(wf_par_stages *s)
{
    const wf_par_pipeline *p = s->pipeline;
    wf_par *par = s->t->par;

    s->ranks = par->pp_axis < 0 ? 1 : wf_mesh_size(par->mesh, par->pp_axis);
    s->rank = par->pp_axis < 0 ? 0 : wf_mesh_coordinate(par->mesh, par->pp_axis);
    s->stage = calloc((size_t)p->stages, sizeof *s->stage);
    s->of = calloc((size_t)p->stages, sizeof *s->of);
    s->in_stage = wf_par_pipeline_stages_of(p, s->t->model, s->t->count, s->t->parameter);
    s->row = wf_pipe_table_row(p->table, s->rank, &s->actions);
    s->name = calloc((size_t)s->actions + 1, sizeof *s->name);
    if (!s->stage || !s->of || !s->in_stage || !s->name)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for %d stages", p->stages);
    for (int64_t i = 0; i < s->actions; i++)
        wf_pipe_action_text(&s->row[i], s->name[i], sizeof s->name[i]);
    for (int n = 0; n < p->stages; n++) {
        s->of[n] = wf_pipe_table_rank(p->table, n) == s->rank ? s->count : -1;
        if (s->of[n] >= 0 && open_stage(s, &s->stage[s->count++], n) != WF_OK)
            return wf_context_status(par->ctx);
    }
    find_recomputed(s);
    wf_par_stages_find_exchange(s);
    for (int64_t i = 0; i < p->borders.losses; i++)
        wf_par_added_expect(s->t, p->borders.loss[i].path, p->borders.loss[i].name);
    s->t->added_are_known = true;
    return check(s);
}

wf_status wf_par_stages_open(wf_par_trainer *t)
{
    wf_par_stages *s = t->own = calloc(1, sizeof *s);

    if (!s)
        return wf_fail(t->par->ctx, WF_ENOMEM, "no memory for the stages of a pipeline");
    s->pipeline = t->options.pipeline;
    s->t = t;
    return open_stages(s);
}

void wf_par_stages_close(wf_par_trainer *t)
{
    wf_par_stages *s = t->own;

    wf_par_profile_end(t->options.profile);
    for (int k = 0; s && k < s->count; k++) {
        wf_par_gradients_close(s->stage[k].gradients);
        wf_par_order_free(&s->stage[k].order);
        free(s->stage[k].unit);
        free(s->stage[k].flight);
        free(s->stage[k].recomputed);
    }
    if (s) {
        free(s->stage);
        free(s->of);
        free(s->in_stage);
        free(s->name);
    }
    free(s);
}
