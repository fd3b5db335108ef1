/* parallel/stages/stages.c - a rank's row of the table, done action by action. */
#include "parallel/stages/stages_internal.h"
#include "mesh/comm/collective.h"
#include "parallel/stages/profile_internal.h"
#include "parallel/train/read_batch_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

wf_par_stage *wf_par_stage_here(const wf_par_stages *s, int stage)
{
    return s->of[stage] >= 0 ? &s->stage[s->of[stage]] : NULL;
}

/* ---- opening ---- */

static bool lies_in(const wf_par_stages *s, const wf_par_unit *u, int stage)
{
    const wf_par_trainer *t = s->t;

    for (int64_t i = 0; i < u->count; i++)
        for (int64_t k = 0; k < t->count; k++)
            if (t->parameter[k] == u->parameter[i] &&
                s->places[k * s->pipeline->stages + stage])
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
        wf_par_gradients_open(s->t->par, s->t->apart, s->t->count, s->t->parameter);
    stage->unit = calloc((size_t)all->count + 1, sizeof(wf_par_unit *));
    stage->flight = calloc((size_t)s->t->micros, sizeof *stage->flight);
    stage->again = calloc((size_t)s->t->micros, sizeof *stage->again);
    if (!stage->unit || !stage->flight || !stage->again)
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
            wf_par_stage_here(s, s->row[i].stage)->again[s->row[i].micro] = true;
}

/* Refuses a parameter that this rank's stages use and that is fake, and one that they do not use and that is
   real: it would be counted in norms and digests, and never be trained. */
static wf_status check_parameter(const wf_par_stages *s, int64_t i)
{
    const wf_nn_parameter *p = s->t->parameter[i];
    bool fake = wf_tensor_is_fake(p->tensor), used = false;

    for (int k = 0; k < s->count; k++) {
        bool here = s->places[i * s->pipeline->stages + s->stage[k].number];

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
            "uses it: call wf_par_pipeline_materialize in place of "
            "wf_par_materialize, which makes the whole model real",
            p->path, s->count);
    return WF_OK;
}

static wf_status check(const wf_par_stages *s)
{
    const wf_par_trainer *t = s->t;
    const wf_comm *world = wf_mesh_world(t->par->mesh);

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
    s->places = wf_par_pipeline_places(p, s->t->model, s->t->count, s->t->parameter);
    s->row = wf_pipe_table_row(p->table, s->rank, &s->actions);
    s->name = calloc((size_t)s->actions + 1, sizeof *s->name);
    if (!s->stage || !s->of || !s->places || !s->name)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for %d stages", p->stages);
    for (int64_t i = 0; i < s->actions; i++)
        wf_pipe_action_text(&s->row[i], s->name[i], sizeof s->name[i]);
    for (int n = 0; n < p->stages; n++) {
        s->of[n] = wf_pipe_table_rank(p->table, n) == s->rank ? s->count : -1;
        if (s->of[n] >= 0 && open_stage(s, &s->stage[s->count++], n) != WF_OK)
            return wf_context_status(par->ctx);
    }
    find_recomputed(s);
    return check(s);
}

wf_par_stages *wf_par_stages_open(wf_par_trainer *t)
{
    wf_par_stages *s = calloc(1, sizeof *s);

    if (!s) {
        wf_fail(t->par->ctx, WF_ENOMEM, "no memory for the stages of a pipeline");
        return NULL;
    }
    s->pipeline = t->options.pipeline;
    s->t = t;
    if (open_stages(s) == WF_OK)
        return s;
    wf_par_stages_close(s);
    return NULL;
}

void wf_par_stages_close(wf_par_stages *s)
{
    if (!s)
        return;
    wf_par_stages_drop(s);
    for (int k = 0; k < s->count; k++) {
        wf_par_gradients_close(s->stage[k].gradients);
        wf_par_order_free(&s->stage[k].order);
        free(s->stage[k].unit);
        free(s->stage[k].flight);
        free(s->stage[k].again);
    }
    free(s->stage);
    free(s->of);
    free(s->places);
    free(s->name);
    free(s);
}

static bool has_messages(const wf_par_stages *s)
{
    for (int k = 0; k < s->count; k++)
        for (int64_t m = 0; s->stage[k].flight && m < s->t->micros; m++)
            for (int e = 0; e < WF_PAR_EDGES; e++)
                if (s->stage[k].flight[m].message[e])
                    return true;
    return false;
}

void wf_par_stages_drop(wf_par_stages *s)
{
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

static void do_forward_again(wf_par_stages *s, wf_par_stage *stage, const wf_pipe_action *a)
{
    wf_par_stage_forward_again(s, stage, a->micro);
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
    [WF_PIPE_F] = do_forward,       [WF_PIPE_R] = do_forward_again,
    [WF_PIPE_B] = do_backward,      [WF_PIPE_I] = do_backward,
    [WF_PIPE_W] = do_weights,       [WF_PIPE_UNSHARD] = do_unshard,
    [WF_PIPE_RESHARD] = do_reshard, [WF_PIPE_REDUCE] = do_reduce,
    [WF_PIPE_REDUCED] = do_reduced, [WF_PIPE_SEND_F] = do_message,
    [WF_PIPE_SENT_F] = do_message,  [WF_PIPE_RECV_F] = do_message,
    [WF_PIPE_RECVD_F] = do_message, [WF_PIPE_SEND_B] = do_message,
    [WF_PIPE_SENT_B] = do_message,  [WF_PIPE_RECV_B] = do_message,
    [WF_PIPE_RECVD_B] = do_message, [WF_PIPE_TIE] = do_tie};

const wf_pipe_action *wf_par_stages_now(const wf_par_stages *s)
{
    return s->now;
}

int64_t wf_par_stages_order(const wf_par_stages *s)
{
    int stages = s->pipeline->stages;

    if (!s->now || s->now->kind == WF_PIPE_F)
        return s->now ? s->now->stage : 0;
    return (s->now->kind == WF_PIPE_W ? 3 : 2) * stages - 1 - s->now->stage;
}

static void begin_action(wf_par_stages *s, int64_t i)
{
    const wf_par *par = s->t->par;

    const wf_pipe_action *a = &s->row[i];

    wf_comm_action(wf_mesh_world(par->mesh), s->name[i], i + 1, s->actions);
    wf_context_action(par->ctx, s->name[i]);
    wf_context_model_share(par->ctx, a->kind > WF_PIPE_R ? 1
                                     : a->kind == WF_PIPE_R
                                         ? 0
                                         : wf_par_share_of(s->t, a->micro, a->last));
}

void wf_par_stages_come_to(wf_par_stages *s, wf_pipe_kind kind)
{
    int64_t i = 0;

    while (i < s->actions && s->row[i].kind != kind)
        i++;
    if (i < s->actions)
        begin_action(s, i);
}

void wf_par_stages_rest(wf_par_stages *s)
{
    const wf_par *par = s->t->par;

    wf_comm_action(wf_mesh_world(par->mesh), NULL, 0, 0);
    wf_context_action(par->ctx, NULL);
    wf_context_model_share(par->ctx, 1);
}

/* A reduction that has begun brings a bucket home behind each action that computes. */
static void reductions_go_on(wf_par_stages *s, const wf_pipe_action *a)
{
    if (a->kind > WF_PIPE_R)
        return;
    for (int k = 0; k < s->count; k++) {
        wf_par_profile_before(s->t->options.profile);
        wf_par_gradients_sum_go_on(s->stage[k].gradients);
        wf_par_profile_bucket(s->t->options.profile, k);
    }
}

/* A profile writes down what is done from here on, by the table and by how gradients are added. */
static void profile_begins(const wf_par_stages *s)
{
    const wf_par *par = s->t->par;

    wf_par_profile_begin(s->t->options.profile, s->pipeline->table, s->rank,
                         (wf_par_profile_sums){.exact = wf_context_exact(par->ctx),
                                               .reduced = par->reduced != 0,
                                               .group = par->group},
                         wf_context_pool(par->ctx));
}

/* NORM begins with what comes before it in no row: the loss goes to all ranks. */
wf_status wf_par_stages_run(wf_par_stages *s, const wf_par_data *data)
{
    wf_par_trainer *t = s->t;
    wf_context *ctx = t->par->ctx;
    const char *phase = wf_context_phase(ctx, "messages and gathers");

    s->data = data;
    profile_begins(s);
    wf_context_position(ctx, t->step.number,
                        wf_par_sequences(t, 0)); /* messages tell the step */
    for (int64_t i = 0; i < s->actions && wf_context_status(ctx) == WF_OK; i++) {
        const wf_pipe_action *a = &s->row[i];

        begin_action(s, i);
        if (a->kind == WF_PIPE_NORM)
            break;
        t->step.micro = a->micro;
        s->now = a;
        wf_par_profile_before(t->options.profile);
        actions[a->kind](s, wf_par_stage_here(s, a->stage), a);
        wf_par_profile_after(t->options.profile, a);
        reductions_go_on(s, a);
    }
    wf_par_profile_rest(t->options.profile);
    t->step.micro = t->micros;
    s->now = NULL;
    wf_context_phase(ctx, phase);
    return wf_context_status(ctx);
}
