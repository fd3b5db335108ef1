/*
 * parallel/stages/stages.c - a rank's row of the table, done action by action: how a pipeline
 * runs the parts of a step.
 */
#include "parallel/stages/stages_internal.h"
#include "mesh/comm/collective.h"
#include "parallel/shard/update_internal.h"
#include "parallel/stages/profile_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/read_batch_internal.h"
#include <string.h>

static bool has_messages(const wf_par_stages *s)
{
    for (int k = 0; k < s->count; k++)
        for (int64_t m = 0; s->stage[k].flight && m < s->t->micros; m++)
            for (int e = 0; e < WF_PAR_EDGES; e++)
                for (int n = 0; n < WF_NN_CARRIED; n++)
                    if (s->stage[k].flight[m].message[e][n])
                        return true;
    return false;
}

/* Drops what a step has in flight; after an error the world is aborted, so that no rank
   waits. */
static void drop(wf_par_trainer *t)
{
    wf_par_stages *s = t->own;

    if (!s)
        return;
    if (has_messages(s))
        wf_par_abandon(s->t->par);
    for (int k = 0; k < s->count; k++) {
        for (int64_t m = 0; s->stage[k].flight && m < s->t->micros; m++)
            wf_par_flight_drop(&s->stage[k].flight[m]);
        if (s->stage[k].gradients)
            wf_par_gradients_reset(s->stage[k].gradients);
    }
    s->summed = false;
}

/* ---- actions ---- */

typedef void perform(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a);

static void do_forward(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    wf_par_stage_forward(s, stage, a->micro);
}

static void do_recompute(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    wf_par_stage_recompute(s, stage, a->micro);
}

static void do_backward(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    wf_par_stage_backward(s, stage, a->micro, a->kind == WF_PIPE_I);
}

static void do_weights(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    wf_par_stage_weights(s, stage, a->micro, a->last);
}

static void do_unshard(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    (void)a;
    wf_par_stage_unshard(s, stage);
}

static void do_reshard(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    (void)a;
    wf_par_stage_reshard(s, stage);
}

static void do_reduce(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    (void)s;
    (void)a;
    wf_par_gradients_sum_begin(stage->gradients);
}

static void do_reduced(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    (void)s;
    (void)a;
    wf_par_gradients_sum_end(stage->gradients);
}

static void do_tie(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    (void)stage;
    (void)a;
    wf_par_stages_sum(s);
}

static const struct {
    wf_pipe_kind begins, ends;
} of_edge[WF_PAR_EDGES] = {[WF_PAR_RECV_F] = {WF_PIPE_RECV_F, WF_PIPE_RECVD_F},
                           [WF_PAR_SEND_F] = {WF_PIPE_SEND_F, WF_PIPE_SENT_F},
                           [WF_PAR_RECV_B] = {WF_PIPE_RECV_B, WF_PIPE_RECVD_B},
                           [WF_PAR_SEND_B] = {WF_PIPE_SEND_B, WF_PIPE_SENT_B}};

static void do_message(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    for (int e = 0; e < WF_PAR_EDGES; e++)
        if (of_edge[e].begins == a->kind || of_edge[e].ends == a->kind)
            wf_par_stage_message(s, stage, a->micro, (wf_par_edge)e,
                                 of_edge[e].ends == a->kind);
}

/* NORM and OPT are wf_par_clip and wf_par_optimizer_step, which a training step calls. */
static perform *const actions[WF_PIPE_KINDS] = {
    [WF_PIPE_F] = do_forward,       [WF_PIPE_R] = do_recompute,
    [WF_PIPE_B] = do_backward,      [WF_PIPE_I] = do_backward,
    [WF_PIPE_W] = do_weights,       [WF_PIPE_UNSHARD] = do_unshard,
    [WF_PIPE_RESHARD] = do_reshard, [WF_PIPE_REDUCE] = do_reduce,
    [WF_PIPE_REDUCED] = do_reduced, [WF_PIPE_SEND_F] = do_message,
    [WF_PIPE_SENT_F] = do_message,  [WF_PIPE_RECV_F] = do_message,
    [WF_PIPE_RECVD_F] = do_message, [WF_PIPE_SEND_B] = do_message,
    [WF_PIPE_SENT_B] = do_message,  [WF_PIPE_RECV_B] = do_message,
    [WF_PIPE_RECVD_B] = do_message, [WF_PIPE_TIE] = do_tie};

/* Returns the position of an action among those of its micro-batch on all ranks. */
static int64_t order_of(const wf_par_stages *s, const wf_pipe_action *a)
{
    if (a->kind == WF_PIPE_F)
        return a->stage;
    return (a->kind == WF_PIPE_W ? 3 : 2) * s->pipeline->stages - 1 - a->stage;
}

/* Returns how much of an action's work is the model's: what is recomputed and what updates is
   not. */
static double model_share(const wf_par_stages *s, const wf_pipe_action *a)
{
    if (a->kind == WF_PIPE_R || a->kind == WF_PIPE_OPT)
        return 0;
    return a->kind > WF_PIPE_R ? 1 : wf_par_share_of(s->t, a->micro, a->last);
}

static void begin_action(wf_par_stages *s, int64_t i)
{
    const wf_par *par = s->t->par;
    wf_par_step_state *step = &s->t->step;
    const wf_pipe_action *a = &s->row[i];

    wf_comm_action(wf_mesh_world(par->mesh), s->name[i], i + 1, s->actions);
    if (wf_context_action_now(par->ctx) != s->name[i])
        wf_context_action(par->ctx, s->name[i]);
    wf_context_model_share(par->ctx, model_share(s, a));
    if (a->kind == WF_PIPE_NORM || a->kind == WF_PIPE_OPT)
        return;
    step->micro = a->micro;
    step->action.name = s->name[i];
    step->action.stage = a->stage;
    step->action.order = order_of(s, a);
}

static void do_action(wf_par_stages *s, int64_t i)
{
    const wf_pipe_action *a = &s->row[i];

    actions[a->kind](s, wf_par_stage_here(s, a->stage), a);
}

/* Ends a bucket of each reduction that has begun after each action that computes, and begins
   the next one. */
static void continue_reductions(wf_par_stages *s, const wf_pipe_action *a)
{
    if (a->kind > WF_PIPE_R)
        return;
    for (int k = 0; k < s->count; k++) {
        wf_par_profile_before(s->t->options.profile);
        wf_par_gradients_sum_next(s->stage[k].gradients);
        wf_par_profile_bucket(s->t->options.profile, k);
    }
}

/* Does action i of the row, or it and the next one; returns how many. NORM is left to what
   comes after a row. */
static int64_t next_actions(wf_par_stages *s, int64_t i)
{
    const wf_pipe_action *a = &s->row[i];
    wf_par_profile *profile = s->t->options.profile;
    bool both = s->beside && wf_pipe_runs_beside(a);

    if (!both)
        begin_action(s, i);
    if (a->kind == WF_PIPE_NORM)
        return s->actions - i;
    wf_par_profile_before(profile);
    if (both)
        wf_par_actions_beside(s, i, begin_action, do_action);
    else
        do_action(s, i);
    wf_par_profile_after(profile, a);
    continue_reductions(s, a);
    return both ? 2 : 1;
}

/* A profile writes down what is done from here on, by the table and by how gradients are
   added. */
static void profile_begins(const wf_par_stages *s)
{
    const wf_par *par = s->t->par;

    wf_par_profile_begin(s->t->options.profile, s->pipeline->table, s->rank,
                         (wf_par_profile_sums){.exact = wf_context_exact(par->ctx),
                                               .reduced = par->reduced != 0,
                                               .group = par->group,
                                               .beside = s->beside},
                         par->ctx);
}

/* NORM begins with what comes before it in no row: the loss goes to all ranks. */
static wf_status forward_backward(wf_par_trainer *t, const wf_par_data *data)
{
    wf_par_stages *s = t->own;
    wf_context *ctx = t->par->ctx;
    const char *phase;

    if (data) /* ranks between both ends read none */
        wf_par_step_count(t, data);
    phase = wf_context_phase(ctx, "messages and gathers");
    s->data = data;
    profile_begins(s);
    wf_context_position(ctx, t->step.number,
                        wf_par_sequences(t, 0)); /* messages carry the step */
    for (int64_t i = 0, n; i < s->actions && wf_context_status(ctx) == WF_OK; i += n)
        n = next_actions(s, i);
    wf_par_profile_stored(t->options.profile);
    t->step.micro = t->micros;
    t->step.action.name = NULL;
    t->step.action.order = 0;
    wf_context_phase(ctx, phase);
    return wf_context_status(ctx);
}

static wf_status reduce(wf_par_trainer *t, float *mean)
{
    wf_tensor *total = wf_par_losses_total(t, &t->losses);

    wf_par_stages_sum(t->own);
    wf_par_stages_share_added(t);
    return wf_par_stages_mean(t, total, mean);
}

static wf_status update(wf_par_trainer *t, float lr, float scale)
{
    wf_par_stages *s = t->own;
    int64_t i = 0;

    while (i < s->actions && s->row[i].kind != WF_PIPE_OPT)
        i++;
    if (i < s->actions)
        begin_action(s, i);
    return wf_par_update(t->par, t->optimizer, t->count, t->parameter, t->step.grad, lr, scale);
}

/* Returns a rank's coordinate on axis pp. */
static int coordinate_of(const wf_par_trainer *t, int rank)
{
    const wf_par *par = t->par;

    return par->pp_axis < 0 ? 0 : wf_mesh_coordinate_of(par->mesh, rank, par->pp_axis);
}

/* Batches are read by the first and the last stage, and by all where documents are read. */
static bool reads(const wf_par_trainer *t, int rank)
{
    const wf_par_pipeline *p = t->options.pipeline;
    int at = coordinate_of(t, rank);

    return p->options.documents || wf_pipe_table_rank(p->table, 0) == at ||
           wf_pipe_table_rank(p->table, p->stages - 1) == at;
}

static bool has(const wf_par_trainer *t, int64_t i, int rank)
{
    const wf_par_stages *s = t->own;
    int at = coordinate_of(t, rank);

    for (int k = 0; k < s->pipeline->stages; k++)
        if (s->in_stage[i * s->pipeline->stages + k] &&
            wf_pipe_table_rank(s->pipeline->table, k) == at)
            return true;
    return false;
}

const wf_par_engine wf_par_engine_stages = {.scheduled = true,
                                            .open = wf_par_stages_open,
                                            .forward_backward = forward_backward,
                                            .reduce = reduce,
                                            .evaluate = wf_par_stages_evaluate,
                                            .update = update,
                                            .drop = drop,
                                            .close = wf_par_stages_close,
                                            .reads = reads,
                                            .has = has};
