/* parallel/simulate/events.c - the dependencies, costs and effects of an action. */
#include "parallel/simulate/events_internal.h"

static bool computes(int kind)
{
    return kind <= WF_PIPE_R;
}

static bool sends(int kind)
{
    return kind == WF_PIPE_SEND_F || kind == WF_PIPE_SENT_F || kind == WF_PIPE_SEND_B ||
           kind == WF_PIPE_SENT_B;
}

static bool forward(int kind)
{
    return kind <= WF_PIPE_RECVD_F;
}

static int other_stage(const wf_pipe_action *a)
{
    return sends(a->kind) == forward(a->kind) ? a->stage + 1 : a->stage - 1;
}

/* A message stands with the stage that it goes to: forward ones first. */
static wf_sim_message *message_of(const wf_sim_state *s, const wf_pipe_action *a)
{
    int to = sends(a->kind) ? other_stage(a) : a->stage;
    int64_t at = (int64_t)to * s->shape.micro + a->micro;

    return &s->message[forward(a->kind) ? at : at + (int64_t)s->shape.stages * s->shape.micro];
}

static wf_sim_node *node_of(const wf_sim_state *s, int stage, int64_t micro)
{
    return &s->node[(int64_t)stage * s->shape.micro + micro];
}

static void wait_until(wf_sim_turn *t, double time, wf_sim_cause cause)
{
    if (time <= t->begin)
        return;
    t->begin = time;
    t->cause = cause;
}

static void blocked(wf_sim_turn *t, int by)
{
    t->begin = WF_SIM_NOT_YET;
    t->awaits = by;
}

static double message_cost(const wf_sim_state *s, const wf_pipe_action *a)
{
    const wf_sim_stage *from = &s->costs->stage[sends(a->kind) ? a->stage : other_stage(a)];

    return forward(a->kind) ? from->send_forward : from->send_backward;
}

/* Returns when a posted message arrives: messages of a pair of ranks follow each other. */
static double arrival(wf_sim_state *s, const wf_pipe_action *a, wf_sim_message *m)
{
    int from = s->rank_of[sends(a->kind) ? a->stage : other_stage(a)];
    int to = s->rank_of[sends(a->kind) ? other_stage(a) : a->stage];
    double *link = &s->link[(int64_t)from * s->shape.ranks + to];
    double cost = message_cost(s, a), start = m->sent > m->received ? m->sent : m->received;

    if (m->arrives >= 0)
        return m->arrives;
    start = *link > start ? *link : start;
    *link = start + cost;
    return m->arrives = start + s->costs->latency + cost;
}

/* The end of a message: RECVD and SENT. */
static void await_message(wf_sim_state *s, const wf_pipe_action *a, wf_sim_turn *t)
{
    wf_sim_message *m = message_of(s, a);
    int peer = s->rank_of[other_stage(a)];
    bool send = sends(a->kind), later;

    if (!s->costs->background) { /* the receiver moves it */
        double known = send ? m->arrives : m->sent;

        if (known < 0) {
            blocked(t, peer);
            return;
        }
        wait_until(t, known,
                   (wf_sim_cause){.rank = peer,
                                  .index = send ? m->recv : m->send,
                                  .term = WF_SIM_PIPELINE});
        if (!send)
            t->cost.of[WF_SIM_PIPELINE] = s->costs->latency + message_cost(s, a);
        return;
    }
    if (m->sent < 0 || m->received < 0) {
        blocked(t, peer);
        return;
    }
    later = send ? m->received > m->sent : m->sent >= m->received;
    wait_until(t, arrival(s, a, m),
               (wf_sim_cause){.rank = later ? peer : s->rank_of[a->stage],
                              .index = (send == later) ? m->recv : m->send,
                              .term = WF_SIM_PIPELINE});
}

/* Waits for inputs of F from the stage before, of I and B from that after, on the same rank. */
static void await_neighbour(const wf_sim_state *s, const wf_pipe_action *a, wf_sim_turn *t)
{
    bool ahead = a->kind == WF_PIPE_F;
    int stage = ahead ? a->stage - 1 : a->stage + 1;
    const wf_sim_node *n;

    if (stage < 0 || stage >= s->shape.stages || s->rank_of[stage] != s->rank_of[a->stage] ||
        a->kind == WF_PIPE_W || a->kind == WF_PIPE_R)
        return;
    n = node_of(s, stage, a->micro);
    if ((ahead ? n->forward : n->inputs) < 0 && (ahead || stage > s->facts.frozen))
        blocked(t, s->rank_of[stage]);
}

static void add(wf_sim_cost *to, const wf_sim_cost *cost, double times)
{
    for (int i = 0; i < WF_SIM_TERMS; i++)
        to->of[i] += times * cost->of[i];
}

/* Waits for gathers of a stage that were not waited for: before the compute action, or unit by
   unit beside it. */
static void await_gathers(const wf_sim_state *s, const wf_pipe_action *a, wf_sim_turn *t)
{
    const wf_sim_stage *c = &s->costs->stage[a->stage];
    double computes = wf_sim_total(&t->cost), late, others = c->units > 1 ? c->units - 1 : 0;

    if (!s->unpaid[a->stage])
        return;
    if (s->costs->background)
        wait_until(t, s->gathered[a->stage] - others * c->unit,
                   (wf_sim_cause){.rank = s->rank_of[a->stage],
                                  .index = s->gather_at[a->stage],
                                  .term = WF_SIM_GATHER});
    late = s->costs->background
               ? s->gathered[a->stage] + computes / (others + 1) - t->begin - computes
               : c->gather;
    if (late > 0 && (others > 0 || !s->costs->background)) {
        t->cost.of[WF_SIM_GATHER] += late;
        t->cause.gathers += late;
    }
}

wf_sim_cost wf_sim_cost_of(const wf_sim_state *s, const wf_pipe_action *a)
{
    const wf_sim_stage *c = &s->costs->stage[a->stage];
    bool b = a->kind == WF_PIPE_B;
    wf_sim_cost cost = {{0}};

    if (a->kind == WF_PIPE_F || a->kind == WF_PIPE_R)
        add(&cost, &c->forward, 1);
    if (b || a->kind == WF_PIPE_I)
        add(&cost, &c->inputs, 1);
    if (b || a->kind == WF_PIPE_W)
        add(&cost, &c->weights, a->last - a->micro + 1);
    if (b)
        add(&cost, &c->joined, 1);
    if (c->group && (b || a->kind == WF_PIPE_W) && (a->last + 1) % c->group == 0)
        cost.of[WF_SIM_REDUCE] += b                    ? c->sum_joined
                                  : a->last > a->micro ? c->sum_after
                                                       : c->sum;
    return cost;
}

static void await_compute(const wf_sim_state *s, const wf_pipe_action *a, wf_sim_turn *t)
{
    wf_sim_cost cost = wf_sim_cost_of(s, a);

    await_neighbour(s, a, t);
    if (t->begin < 0)
        return;
    add(&t->cost, &cost, 1);
    await_gathers(s, a, t);
}

/* Waits, after a compute action, for the buckets of reductions that are in flight. */
static void await_buckets(const wf_sim_state *s, int rank, wf_sim_turn *t)
{
    for (int k = 0; k < s->shape.stages; k++) {
        const wf_sim_stage *c = &s->costs->stage[k];
        double late;

        if (s->left[k] == 0 || s->rank_of[k] != rank)
            continue;
        late = s->costs->background ? s->reduced[k] - t->begin - wf_sim_total(&t->cost)
                                    : c->reduce / c->buckets;
        if (late > 0) {
            t->cost.of[WF_SIM_REDUCE] += late;
            t->cause.reductions += late;
        }
    }
}

/* Waits for a reduction: a part progresses by itself, the remainder is moved here. */
static void await_reduction(const wf_sim_state *s, int rank, const wf_pipe_action *a,
                            wf_sim_turn *t)
{
    const wf_sim_stage *c = &s->costs->stage[a->stage];
    int left = c->buckets ? s->left[a->stage] : 1, under_way = s->costs->background && left > 0;

    if (under_way)
        wait_until(t, s->reduced[a->stage],
                   (wf_sim_cause){
                       .rank = rank, .index = s->reduce_at[a->stage], .term = WF_SIM_REDUCE});
    t->cost.of[WF_SIM_REDUCE] =
        (left - under_way) * (c->buckets ? c->reduce / c->buckets : c->reduce);
}

/* Waits for a meeting: all ranks join NORM; the ranks of the first and the last stage join
   TIE. */
static void await_all(wf_sim_state *s, int rank, const wf_pipe_action *a, wf_sim_turn *t)
{
    int m = a->kind == WF_PIPE_NORM, last = s->rank_of[s->shape.stages - 1];
    int members = m ? s->shape.ranks : 1 + (last != s->rank_of[0]);

    if (!s->met[m][rank]) {
        s->met[m][rank] = true;
        s->come[m]++;
        if (s->clock[rank] >= s->meeting[m]) {
            s->meeting[m] = s->clock[rank];
            s->latest[m] = rank;
            s->latest_at[m] = s->next[rank] - 1;
        }
    }
    if (s->come[m] < members) {
        blocked(t, -1);
        return;
    }
    wait_until(t, s->meeting[m],
               (wf_sim_cause){
                   .rank = s->latest[m], .index = s->latest_at[m], .term = WF_SIM_OPTIMIZER});
    t->cost.of[WF_SIM_OPTIMIZER] = m ? s->costs->norm : s->costs->tie;
}

/* Adds one action to what the turn has already. */
static void look_at(wf_sim_state *s, int rank, const wf_pipe_action *a, wf_sim_turn *t)
{
    switch (a->kind) {
    case WF_PIPE_SENT_F:
    case WF_PIPE_SENT_B:
    case WF_PIPE_RECVD_F:
    case WF_PIPE_RECVD_B:
        await_message(s, a, t);
        break;
    case WF_PIPE_REDUCED:
        await_reduction(s, rank, a, t);
        break;
    case WF_PIPE_TIE:
    case WF_PIPE_NORM:
        await_all(s, rank, a, t);
        break;
    case WF_PIPE_OPT:
        t->cost.of[WF_SIM_OPTIMIZER] = s->costs->stage[a->stage].update;
        break;
    default:
        if (computes(a->kind))
            await_compute(s, a, t);
        break;
    }
}

wf_sim_turn wf_sim_look(wf_sim_state *s, int rank)
{
    const wf_pipe_action *a = &s->row[rank][s->next[rank]];
    wf_sim_turn t = {.begin = s->clock[rank], .awaits = -1, .cause = {.rank = -1}};

    t.count = wf_sim_is_block(s, rank, s->next[rank]) ? 2 : 1;
    for (int i = 0; i < t.count && t.begin >= 0; i++)
        look_at(s, rank, &a[i], &t);
    if (t.begin >= 0 && t.count == 2)
        t.cost.of[WF_SIM_EXPERTS] -= wf_sim_hidden(s, a);
    if (t.begin >= 0 && computes(a->kind))
        await_buckets(s, rank, &t);
    t.waits = t.begin - s->clock[rank];
    t.duration = wf_sim_total(&t.cost);
    return t;
}

static void begin_on_lane(wf_sim_state *s, int rank, double *done, double cost, double time)
{
    double start = s->lane[rank] > time ? s->lane[rank] : time;

    *done = s->lane[rank] = start + cost;
}

static void commit_message(wf_sim_state *s, int rank, const wf_pipe_action *a, double end)
{
    wf_sim_message *m = message_of(s, a);

    switch (a->kind) {
    case WF_PIPE_SEND_F:
    case WF_PIPE_SEND_B:
        m->sent = end;
        m->send = s->next[rank];
        break;
    case WF_PIPE_RECV_F:
    case WF_PIPE_RECV_B:
        m->received = end;
        m->recv = s->next[rank];
        break;
    default:
        if (!s->costs->background && !sends(a->kind)) {
            m->arrives = end;
            m->recv = s->next[rank];
        }
        break;
    }
}

/* Begins the next bucket of each reduction of a rank, after an action that computes. */
static void commit_buckets(wf_sim_state *s, int rank, double end)
{
    for (int k = 0; k < s->shape.stages; k++) {
        const wf_sim_stage *c = &s->costs->stage[k];

        if (s->left[k] && s->rank_of[k] == rank && --s->left[k])
            begin_on_lane(s, rank, &s->reduced[k], c->reduce / c->buckets, end);
    }
}

static void commit_action(wf_sim_state *s, int rank, const wf_pipe_action *a, double end)
{
    const wf_sim_stage *c = &s->costs->stage[a->stage];
    wf_sim_node *n = node_of(s, a->stage, a->micro);

    if (computes(a->kind))
        s->unpaid[a->stage] = false;
    if (a->kind == WF_PIPE_F) {
        n->forward = end;
        n->forward_at = s->next[rank];
    } else if (a->kind == WF_PIPE_I || a->kind == WF_PIPE_B) {
        n->inputs = end;
        n->inputs_at = s->next[rank];
    } else if (a->kind == WF_PIPE_UNSHARD) {
        s->unpaid[a->stage] = true;
        s->gather_at[a->stage] = s->next[rank];
        begin_on_lane(s, rank, &s->gathered[a->stage], c->gather, end);
    } else if (a->kind == WF_PIPE_REDUCE) {
        s->reduce_at[a->stage] = s->next[rank];
        s->left[a->stage] = c->buckets;
        begin_on_lane(s, rank, &s->reduced[a->stage],
                      c->buckets ? c->reduce / c->buckets : c->reduce, end);
    } else if (a->kind == WF_PIPE_REDUCED) {
        s->left[a->stage] = 0;
    } else if (a->kind >= WF_PIPE_SEND_F && a->kind <= WF_PIPE_RECVD_B) {
        commit_message(s, rank, a, end);
    }
}

/* Adds a rank's wait to its category. */
static void count_wait(const wf_sim_state *s, wf_sim_rank *r, const wf_pipe_action *a,
                       double waits)
{
    (void)s;
    if (a->kind == WF_PIPE_TIE || a->kind == WF_PIPE_NORM)
        r->others += waits;
    else if (a->kind == WF_PIPE_REDUCED)
        r->reductions += waits;
    else if (computes(a->kind))
        r->gathers += waits;
    else
        r->messages += waits;
    if (r->busy == 0)
        r->fill += waits;
}

void wf_sim_commit(wf_sim_state *s, int rank, const wf_sim_turn *t, double end)
{
    const wf_pipe_action *a = &s->row[rank][s->next[rank]];
    wf_sim_rank *r = &s->result->rank[rank];

    count_wait(s, r, a, t->waits);
    add(&r->spent, &t->cost, 1);
    if (computes(a->kind)) {
        if (r->busy == 0)
            r->begin = t->begin;
        r->busy += end - t->begin;
        r->end = end;
    }
    for (int i = 0; i < t->count; i++) {
        if (s->cause) {
            s->result->start[rank][s->next[rank]] = t->begin;
            s->result->end[rank][s->next[rank]] = end;
            s->cause[rank][s->next[rank]] = t->cause;
        }
        commit_action(s, rank, &a[i], end);
        s->next[rank]++;
    }
    if (computes(a->kind))
        commit_buckets(s, rank, end);
    s->clock[rank] = end;
}
