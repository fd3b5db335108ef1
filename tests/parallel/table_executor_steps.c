/* tests/parallel/table_executor_steps.c - executes what ranks do together: messages, gathers,
   reductions, the end of a step; and the result of a rank alone. */
#include "tests/parallel/table_executor_internal.h"

bool executor_same_message(const message *a, const message *b)
{
    return a->forward == b->forward && a->to == b->to && a->micro == b->micro;
}

static int find(const message *list, int n, const message *what)
{
    int i = 0;

    while (i < n && !executor_same_message(&list[i], what))
        i++;
    return i < n ? i : -1;
}

static outcome begin_send(machine *m, queue *q, message what)
{
    const node *n = &m->has.node[what.forward ? what.to - 1 : what.to + 1][what.micro];

    if (find(q->sent, q->n_sent, &what) >= 0 || !(what.forward ? n->forward : n->inputs) ||
        q->n_sent - q->n_closed == ROOM)
        return WRONG;
    what.value = what.forward ? n->y : n->dx;
    q->sent[q->n_sent++] = what;
    m->reported.messages++;
    if (q->n_sent - q->n_closed > m->reported.in_flight)
        m->reported.in_flight = q->n_sent - q->n_closed;
    return DONE;
}

static outcome end_send(queue *q, const message *what)
{
    int i = find(q->sent, q->n_sent, what);

    if (i < 0 || q->closed[i])
        return WRONG;
    if (i >= q->n_taken)
        return WAITS;
    q->closed[i] = true;
    q->n_closed++;
    return DONE;
}

static outcome begin_receive(queue *q, const message *what)
{
    if (find(q->asked, q->n_asked, what) >= 0 || q->n_asked - q->n_taken == ROOM)
        return WRONG;
    q->asked[q->n_asked++] = *what;
    return DONE;
}

/* Ranks end their receives in the order in which they began them. */
static outcome end_receive(machine *m, queue *q, const message *what)
{
    node *n = &m->has.node[what->to][what->micro];

    if (q->n_taken == q->n_asked || !executor_same_message(&q->asked[q->n_taken], what))
        return WRONG;
    if (q->n_taken == q->n_sent)
        return WAITS;
    if (!executor_same_message(&q->sent[q->n_taken], what))
        return WRONG;
    if (what->forward) {
        n->input = true;
        n->x = q->sent[q->n_taken].value;
    } else {
        n->above = true;
        n->dy = q->sent[q->n_taken].value;
    }
    q->n_taken++;
    return DONE;
}

bool executor_delivery(const machine *m, int rank, const wf_pipe_action *a, delivery *d)
{
    bool goes_forward = a->kind <= WF_PIPE_RECVD_F;
    int step = (a->kind - WF_PIPE_SEND_F) % 4;
    int to = step < 2 ? a->stage + (goes_forward ? 1 : -1) : a->stage;
    int from = step < 2 ? a->stage : a->stage + (goes_forward ? -1 : 1);

    if (to < 0 || from < 0 || to >= m->shape.stages || from >= m->shape.stages ||
        rank_of(m, a->stage) != rank || rank_of(m, to) < 0 || rank_of(m, from) < 0 ||
        rank_of(m, to) == rank_of(m, from) || (!goes_forward && to < m->facts.frozen))
        return false;
    *d = (delivery){{goes_forward, to, a->micro, 0}, rank_of(m, from), rank_of(m, to), step};
    return true;
}

static outcome communicate(machine *m, int rank, const wf_pipe_action *a)
{
    delivery d;
    queue *q;

    if (!executor_delivery(m, rank, a, &d))
        return WRONG;
    q = &m->queue[d.from][d.to];
    switch (d.step) {
    case 0:
        return begin_send(m, q, d.what);
    case 1:
        return end_send(q, &d.what);
    case 2:
        return begin_receive(q, &d.what);
    default:
        return end_receive(m, q, &d.what);
    }
}

static outcome gather(machine *m, int rank, int stage, bool begin)
{
    int n = 0;

    for (int s = 0; s < m->shape.stages; s++)
        n += rank_of(m, s) == rank && m->stage[s].gathered;
    if (m->stage[stage].gathered == begin || (begin && n >= m->facts.resident))
        return WRONG;
    m->stage[stage].gathered = begin;
    return DONE;
}

/* Gradients of some micro-batches as far as they are there. */
static uint64_t sum(const machine *m, int stage, int first, int last)
{
    uint64_t all = 0;

    for (int micro = first; micro <= last; micro++)
        all += m->has.node[stage][micro].dw;
    return all;
}

/* Ranks that share the data round what they have added in a group, so other groups give other
   bits. */
static uint64_t over_ranks(uint64_t group)
{
    return mix(group, 1);
}

static outcome reduce(machine *m, const wf_pipe_action *a)
{
    if (!m->facts.group || m->stage[a->stage].reducing)
        return WRONG;
    for (int micro = a->micro; micro <= a->last; micro++) {
        node *n = &m->has.node[a->stage][micro];

        if (!n->weights || n->taken)
            return WRONG;
        n->taken = true;
    }
    m->stage[a->stage].reducing = true;
    m->stage[a->stage].first = a->micro;
    m->stage[a->stage].last = a->last;
    m->stage[a->stage].on_the_way = over_ranks(sum(m, a->stage, a->micro, a->last));
    return DONE;
}

static outcome reduced(machine *m, const wf_pipe_action *a)
{
    if (!m->stage[a->stage].reducing || m->stage[a->stage].first != a->micro ||
        m->stage[a->stage].last != a->last)
        return WRONG;
    m->stage[a->stage].reducing = false;
    m->stage[a->stage].reduced += m->stage[a->stage].on_the_way;
    return DONE;
}

uint64_t executor_gradient(const machine *m, int stage)
{
    uint64_t own =
        m->facts.group ? m->stage[stage].reduced : sum(m, stage, 0, m->shape.micro - 1);

    return own + m->stage[stage].tied;
}

bool executor_has_tie(const machine *m, int rank)
{
    int first = rank_of(m, 0), last = rank_of(m, m->shape.stages - 1);

    return m->facts.tied && first != last && (rank == first || rank == last);
}

/* The first and the last stage give each other what they have when they come to it. */
static outcome tie(machine *m, int rank)
{
    int own = rank_of(m, 0) == rank ? 0 : m->shape.stages - 1;
    int other = m->shape.stages - 1 - own;

    if (!executor_has_tie(m, rank) || m->tied[rank] || rank_of(m, other) < 0)
        return WRONG;
    if (!m->at_tie[rank]) {
        m->at_tie[rank] = true;
        m->stage[other].tied = executor_gradient(m, own) - m->stage[own].tied;
    }
    if (!m->at_tie[rank_of(m, other)])
        return WAITS;
    m->tied[rank] = true;
    return DONE;
}

uint64_t executor_norm_of(const machine *m, int rank)
{
    uint64_t own = 0;

    for (int s = 0; s < m->shape.stages; s++)
        if (rank_of(m, s) == rank)
            own += mix(executor_gradient(m, s), executor_has_tie(m, rank) && !m->tied[rank]);
    return own;
}

static outcome norm(machine *m, int rank)
{
    if (m->normed[rank])
        return WRONG;
    if (!m->at_norm[rank])
        m->norm += executor_norm_of(m, rank);
    m->at_norm[rank] = true;
    for (int r = 0; r < m->shape.ranks; r++)
        if (!m->at_norm[r])
            return WAITS;
    m->normed[rank] = true;
    return DONE;
}

static outcome update(machine *m, int rank, int stage)
{
    if (m->stage[stage].updated)
        return WRONG;
    m->stage[stage].updated = true;
    m->stage[stage].update = mix(executor_gradient(m, stage), m->normed[rank] ? m->norm : 0);
    return DONE;
}

outcome executor_meet(machine *m, int rank, const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_TIE    ? tie(m, rank)
           : a->kind == WF_PIPE_NORM ? norm(m, rank)
                                     : communicate(m, rank, a);
}

outcome executor_stage_action(machine *m, int rank, const wf_pipe_action *a)
{
    if (rank_of(m, a->stage) != rank)
        return WRONG;
    switch (a->kind) {
    case WF_PIPE_UNSHARD:
        return gather(m, rank, a->stage, true);
    case WF_PIPE_RESHARD:
        return gather(m, rank, a->stage, false);
    case WF_PIPE_REDUCE:
        return reduce(m, a);
    case WF_PIPE_REDUCED:
        return reduced(m, a);
    default:
        return update(m, rank, a->stage);
    }
}

/* The gradients of all stages as one rank has them, with a single row of stages. */
static void alone(const machine *m, uint64_t *all)
{
    int stages = m->shape.stages, group = m->facts.group ? m->facts.group : 1;
    uint64_t in_group[STAGES] = {0};

    for (int micro = 0; micro < m->shape.micro; micro++) {
        uint64_t h[STAGES], x = (uint64_t)micro + 1;

        for (int s = 0; s < stages; s++) {
            h[s] = mix(x, (uint64_t)s + 1);
            x = mix(h[s], 1);
        }
        for (int s = stages - 1; s >= 0; s--) {
            x = mix(mix(s < m->facts.frozen ? 0 : x, h[s]), (uint64_t)s + 1);
            in_group[s] += mix(mix(x, h[s]), (uint64_t)s + 1);
            if ((micro + 1) % group && micro + 1 < m->shape.micro)
                continue;
            all[s] += m->facts.group ? over_ranks(in_group[s]) : in_group[s];
            in_group[s] = 0;
        }
    }
}

bool executor_stages_end_right(const machine *m, int rank)
{
    uint64_t all[STAGES] = {0}, norm = 0;
    int last = m->shape.stages - 1;

    alone(m, all);
    if (m->facts.lowered && executor_has_tie(m, rank_of(m, 0)))
        all[0] = all[last] = all[0] + all[last];
    for (int s = 0; s <= last; s++)
        norm += mix(all[s], 0);
    for (int s = 0; s <= last; s++) {
        if (rank >= 0 && rank_of(m, s) != rank)
            continue;
        if (m->facts.lowered ? m->stage[s].update != mix(all[s], norm) || m->stage[s].gathered
                             : executor_gradient(m, s) != all[s])
            return false;
    }
    return true;
}
