/*
 * parallel/stages/stages_sum.c - what stages know together: gradients of parameters that lie in
 * several of them, and the loss of the last one.
 */
#include "core/memory/blocks.h"
#include "mesh/comm/collective.h"
#include "parallel/stages/stages_internal.h"
#include "parallel/train/added_loss_internal.h"
#include "parallel/train/losses_internal.h"

/* A parameter whose uses are in stages of several ranks. */
typedef struct tie {
    int64_t i;
    const bool *in_stage;
    int last; /* its last stage */
} tie;

typedef struct summing {
    wf_par_stages *s;
    tie *ties;
    int64_t count;
    wf_message **sent; /* [room] */
    int64_t n_sent;
    size_t ties_bytes, sent_bytes;
} summing;

static int rank_of(const wf_par_stages *s, int stage)
{
    return wf_pipe_table_rank(s->pipeline->table, stage);
}

static bool is_spread(const wf_par_stages *s, const bool *in_stage, int *last)
{
    int first = wf_par_pipeline_next_stage(s->pipeline, in_stage, -1), at = first;
    bool spread = false;

    for (*last = first; at >= 0; at = wf_par_pipeline_next_stage(s->pipeline, in_stage, at)) {
        spread |= rank_of(s, at) != rank_of(s, first);
        *last = at;
    }
    return spread;
}

/* Returns true where a stage of this rank has the parameter. */
static bool is_here(const wf_par_stages *s, const bool *in_stage)
{
    for (int k = 0; k < s->count; k++)
        if (in_stage[s->stage[k].number])
            return true;
    return false;
}

static wf_status find_ties(summing *m)
{
    wf_par_stages *s = m->s;
    const wf_par_trainer *t = s->t;
    wf_blocks *blocks = wf_context_blocks(t->par->ctx);

    m->ties_bytes = ((size_t)t->count + 1) * sizeof *m->ties;
    m->sent_bytes = ((size_t)(t->count * (s->count + s->ranks)) + 1) * sizeof(wf_message *);
    m->ties = wf_blocks_take(blocks, m->ties_bytes);
    m->sent = wf_blocks_take(blocks, m->sent_bytes);
    if (!m->ties || !m->sent)
        return wf_fail(t->par->ctx, WF_ENOMEM, "no memory for the tied parameters of a model");
    for (int64_t i = 0; i < t->count; i++) {
        tie one = {.i = i, .in_stage = s->in_stage + i * s->pipeline->stages};

        if (!t->parameter[i]->frozen && is_here(s, one.in_stage) &&
            is_spread(s, one.in_stage, &one.last))
            m->ties[m->count++] = one;
    }
    return WF_OK;
}

static uint64_t tag_of(const wf_par_stages *s, const tie *e, int stage)
{
    return UINT64_C(1) << 63 | (uint64_t)s->t->step.number << 37 | (uint64_t)e->i << 16 |
           (uint64_t)stage;
}

/* The sum so far comes from the rank of an earlier stage, or the whole one from that of the
   last. */
static void take(const summing *m, const tie *e, int from, int stage)
{
    wf_par_trainer *t = m->s->t;
    wf_par *par = t->par;
    wf_tensor *p = t->parameter[e->i]->tensor, *sum;
    wf_status status;

    sum = wf_tensor_new(par->ctx, par->options.reduce_dtype, p->ndim, p->dim,
                        wf_par_state_of(t->parameter[e->i])->gradient, WF_MEMORY_GRADIENT);
    status = wf_message_end(wf_message_recv(sum, par->pp_axis, from, tag_of(m->s, e, stage)));
    if (status != WF_OK)
        return;
    wf_tensor_release(t->step.grad[e->i]);
    t->step.grad[e->i] = wf_tensor_retain(sum);
}

static void give(summing *m, const tie *e, int to, int stage)
{
    wf_par_trainer *t = m->s->t;
    wf_tensor *sum = t->step.grad[e->i];

    if (!sum) {
        wf_fail(t->par->ctx, WF_EINVAL,
                "parameter %s is shared by stages of several ranks, and none up to stage %d "
                "has used it: use it in all of them, or freeze it",
                t->parameter[e->i]->path, stage);
        return;
    }
    m->sent[m->n_sent] = wf_message_send(sum, t->par->pp_axis, to, tag_of(m->s, e, stage));
    m->n_sent += m->sent[m->n_sent] != NULL;
}

/* Continues the sums from stage to stage, in the order of uses, as one rank adds them. */
static void sum_stage(summing *m, const wf_par_stage *stage)
{
    wf_par_stages *s = m->s;
    const wf_par_pipeline *p = s->pipeline;
    wf_context *ctx = s->t->par->ctx;

    for (int64_t k = 0; k < m->count && wf_context_status(ctx) == WF_OK; k++) {
        const tie *e = &m->ties[k];
        int before = -1;

        if (!e->in_stage[stage->number])
            continue;
        for (int at = wf_par_pipeline_next_stage(p, e->in_stage, -1); at < stage->number;
             at = wf_par_pipeline_next_stage(p, e->in_stage, at))
            before = at;
        if (before >= 0 && rank_of(s, before) != s->rank)
            take(m, e, rank_of(s, before), stage->number);
    }
    if (wf_context_status(ctx) == WF_OK)
        wf_par_gradients_finish(stage->gradients, s->t->step.grad);
    for (int64_t k = 0; k < m->count && wf_context_status(ctx) == WF_OK; k++) {
        const tie *e = &m->ties[k];
        int next = wf_par_pipeline_next_stage(p, e->in_stage, stage->number);

        if (e->in_stage[stage->number] && next >= 0 && rank_of(s, next) != s->rank)
            give(m, e, rank_of(s, next), next);
    }
}

/* Returns true where a rank has one of the parameter's stages. */
static bool holds(const wf_par_stages *s, const tie *e, int rank)
{
    for (int at = wf_par_pipeline_next_stage(s->pipeline, e->in_stage, -1); at >= 0;
         at = wf_par_pipeline_next_stage(s->pipeline, e->in_stage, at))
        if (rank_of(s, at) == rank)
            return true;
    return false;
}

/* The whole sum, from the rank of the last stage to the others. */
static void share(summing *m)
{
    wf_par_stages *s = m->s;

    for (int64_t k = 0; k < m->count && wf_context_status(s->t->par->ctx) == WF_OK; k++) {
        const tie *e = &m->ties[k];
        int owner = rank_of(s, e->last);

        if (owner != s->rank)
            take(m, e, owner, s->pipeline->stages);
        for (int r = 0; r < s->ranks && owner == s->rank; r++)
            if (r != owner && holds(s, e, r))
                give(m, e, r, s->pipeline->stages);
    }
}

wf_status wf_par_stages_sum(wf_par_stages *s)
{
    wf_context *ctx = s->t->par->ctx;
    summing m = {.s = s};

    if (s->summed || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_scope_open(ctx);
    if (find_ties(&m) == WF_OK) {
        for (int k = 0; k < s->count && wf_context_status(ctx) == WF_OK; k++)
            sum_stage(&m, &s->stage[k]);
        share(&m);
    }
    if (wf_context_status(ctx) != WF_OK && m.n_sent)
        wf_par_abandon(s->t->par);
    for (int64_t k = 0; k < m.n_sent; k++)
        wf_message_end(m.sent[k]);
    wf_blocks_give(wf_context_blocks(ctx), m.ties, m.ties_bytes);
    wf_blocks_give(wf_context_blocks(ctx), m.sent, m.sent_bytes);
    wf_scope_close(ctx);
    s->summed = true;
    return wf_context_status(ctx);
}

bool wf_par_stages_have_loss(const wf_par_stages *s)
{
    return s->of[s->pipeline->stages - 1] >= 0;
}

wf_status wf_par_stages_mean(wf_par_trainer *t, wf_tensor *total, float *mean)
{
    if (mean && total)
        wf_par_losses_mean(t, &t->losses, total, mean);
    wf_tensor_release(total);
    return mean ? wf_par_pipeline_share(t, mean, sizeof *mean) : wf_context_status(t->par->ctx);
}

/* Gathers n numbers of every stage's rank and adds them up here, where they lie: in the host's
   memory, for which a group of GPUs has no arithmetic. */
static wf_status sum_over_stages(const wf_par_stages *s, wf_par *par, float *x, int64_t n)
{
    const size_t ranks = (size_t)s->ranks, row = (size_t)n * sizeof *x;
    const size_t bytes = ranks * row + (ranks + 1) * sizeof(int64_t);
    int64_t *cuts = wf_blocks_take(wf_context_blocks(par->ctx), bytes);
    float *all = cuts ? (float *)(void *)(cuts + ranks + 1) : NULL;
    wf_error error = {WF_OK, ""};

    if (!cuts)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for the losses that modules add");
    for (size_t r = 0; r <= ranks; r++)
        cuts[r] = (int64_t)r * n;
    if (wf_all_gather(wf_mesh_comm(par->mesh, par->pp_axis), sizeof *x, x, all, cuts, &error) !=
        WF_OK)
        wf_fail(par->ctx, error.code, "%s", error.text);
    for (int64_t i = 0; i < n && error.code == WF_OK; i++) {
        x[i] = all[i];
        for (size_t r = 1; r < ranks; r++)
            x[i] += all[(int64_t)r * n + i];
    }
    wf_blocks_give(wf_context_blocks(par->ctx), cuts, bytes);
    return wf_context_status(par->ctx);
}

/* Each mean is of the one stage whose module adds the loss: all others have 0. */
wf_status wf_par_stages_share_added(wf_par_trainer *t)
{
    const wf_par_stages *s = t->own;
    wf_par *par = t->par;
    size_t bytes = (size_t)t->added_count * sizeof(float);
    float *mean;

    if (wf_par_added_means(t) != WF_OK || !t->added_count)
        return wf_context_status(par->ctx);
    mean = wf_blocks_take(wf_context_blocks(par->ctx), bytes);
    if (!mean)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for the losses that modules add");
    for (int64_t i = 0; i < t->added_count; i++)
        mean[i] = t->added[i]->losses.mean;
    if (s->ranks > 1)
        sum_over_stages(s, par, mean, t->added_count);
    for (int64_t i = 0; i < t->added_count; i++)
        t->added[i]->losses.mean = mean[i];
    wf_blocks_give(wf_context_blocks(par->ctx), mean, bytes);
    return wf_par_added_sum(t);
}

wf_status wf_par_pipeline_share(wf_par_trainer *t, void *data, size_t bytes)
{
    wf_par_stages *s = wf_par_stages_of(t);
    wf_par *par = t->par;
    wf_error error = {WF_OK, ""};

    if (!s)
        return wf_fail(par->ctx, WF_EINVAL,
                       "wf_par_pipeline_share is for a trainer with a pipeline");
    if (s->ranks == 1 || wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (wf_broadcast(wf_mesh_comm(par->mesh, par->pp_axis), 1,
                     rank_of(s, s->pipeline->stages - 1), data, (int64_t)bytes,
                     &error) != WF_OK)
        wf_fail(par->ctx, error.code, "%s", error.text);
    return wf_context_status(par->ctx);
}
