/* tests/parallel/table_executor.c - executes rows as programs: compute actions, and ranks in a
   random order. */
#include "tests/parallel/table_executor_internal.h"
#include <stddef.h>
#include <string.h>

/* A stage's parameters, which are elsewhere where it is not gathered. */
static uint64_t parameters(const machine *m, int s)
{
    return m->facts.resident && !m->stage[s].gathered ? 0 : (uint64_t)s + 1;
}

/* Returns whether a (stage, micro-batch) can take a neighbour's result: made by the same rank,
   come by message, or, in a table without messages, made by another rank. */
static outcome take(const machine *m, int rank, int neighbour, bool made, bool came)
{
    if (rank_of(m, neighbour) == rank)
        return made ? DONE : WRONG;
    if (m->facts.lowered)
        return came ? DONE : WRONG;
    return made ? DONE : WAITS;
}

static outcome forward(machine *m, int rank, int s, int micro)
{
    node *n = &m->has.node[s][micro];

    if (n->forward)
        return WRONG;
    if (s == 0) {
        n->x = (uint64_t)micro + 1;
    } else {
        const node *before = &m->has.node[s - 1][micro];
        outcome result = take(m, rank, s - 1, before->forward, n->input);

        if (result != DONE)
            return result;
        n->x = n->input ? n->x : before->y;
    }
    n->forward = true;
    n->h = mix(n->x, parameters(m, s));
    n->y = mix(n->h, 1);
    if (++m->has.live[rank] > m->has.peak)
        m->has.peak = m->has.live[rank];
    return DONE;
}

static outcome inputs(machine *m, int rank, int s, int micro)
{
    node *n = &m->has.node[s][micro];

    if (!n->forward || n->inputs)
        return WRONG;
    if (s < m->facts.frozen) {
        n->dy = 0; /* nobody sends it */
    } else if (s == m->shape.stages - 1) {
        n->dy = n->y;
    } else {
        const node *after = &m->has.node[s + 1][micro];
        outcome result = take(m, rank, s + 1, after->inputs, n->above);

        if (result != DONE)
            return result;
        n->dy = n->above ? n->dy : after->dx;
    }
    n->inputs = true;
    n->dx = mix(mix(n->dy, n->h), parameters(m, s));
    return DONE;
}

/* Gradients of weights lie beside the gathered parameters. */
static outcome weights(machine *m, int rank, int s, int first, int last)
{
    for (int micro = first; micro <= last; micro++) {
        node *n = &m->has.node[s][micro];

        if (!n->inputs || n->weights)
            return WRONG;
        n->weights = true;
        n->dw = mix(mix(n->dx, n->h), parameters(m, s));
        m->has.live[rank]--;
    }
    return DONE;
}

/* Recomputes the values that are kept between F and I, once. */
static outcome recompute(machine *m, int s, int micro)
{
    node *n = &m->has.node[s][micro];

    if (!n->forward || n->inputs || n->again)
        return WRONG;
    n->again = true;
    n->h = mix(n->x, parameters(m, s));
    return DONE;
}

static outcome compute(machine *m, int rank, const wf_pipe_action *a)
{
    outcome result;

    if (rank_of(m, a->stage) != rank)
        return WRONG;
    switch (a->kind) {
    case WF_PIPE_F:
        return forward(m, rank, a->stage, a->micro);
    case WF_PIPE_I:
        return inputs(m, rank, a->stage, a->micro);
    case WF_PIPE_B:
        result = inputs(m, rank, a->stage, a->micro);
        return result == DONE ? weights(m, rank, a->stage, a->micro, a->micro) : result;
    case WF_PIPE_W:
        return weights(m, rank, a->stage, a->micro, a->last);
    default:
        return recompute(m, a->stage, a->micro);
    }
}

static outcome in_order(machine *m, int rank, const wf_pipe_action *first,
                        const wf_pipe_action *second)
{
    outcome result = compute(m, rank, first);

    return result == DONE ? compute(m, rank, second) : result;
}

/* Two that may overlap begin when both can, and may end in either order. */
static outcome compute_both(machine *m, int rank, const wf_pipe_action *a)
{
    outcome back, forth;

    if (a[0].kind > WF_PIPE_R || a[1].kind > WF_PIPE_R || a[1].with_next)
        return WRONG;
    m->before = m->has;
    back = in_order(m, rank, &a[1], &a[0]);
    m->has = m->before;
    forth = in_order(m, rank, &a[0], &a[1]);
    if (back == DONE && forth == DONE)
        return DONE;
    m->has = m->before;
    return back == WRONG || forth == WRONG ? WRONG : WAITS;
}

static outcome perform(machine *m, int rank, const wf_pipe_action *a)
{
    if (a->kind <= WF_PIPE_R)
        return compute(m, rank, a);
    if (!m->facts.lowered)
        return WRONG;
    if ((a->kind >= WF_PIPE_SEND_F && a->kind <= WF_PIPE_RECVD_B) || a->kind == WF_PIPE_TIE ||
        a->kind == WF_PIPE_NORM)
        return m->meet(m, rank, a);
    return executor_stage_action(m, rank, a);
}

outcome executor_go_on(machine *m, int rank)
{
    int64_t n;
    const wf_pipe_action *row = wf_pipe_table_row(m->table, rank, &n);
    const wf_pipe_action *a = &row[m->next[rank]];
    outcome result;

    if (m->next[rank] == n)
        return WAITS;
    if (a->with_next && m->next[rank] + 1 == n)
        return WRONG;
    result = a->with_next ? compute_both(m, rank, a) : perform(m, rank, a);
    if (result == DONE)
        m->next[rank] += a->with_next ? 2 : 1;
    return result;
}

static bool all_ended(const machine *m)
{
    for (int r = 0; r < m->shape.ranks; r++) {
        int64_t n;

        wf_pipe_table_row(m->table, r, &n);
        if (m->next[r] < n)
            return false;
    }
    return true;
}

void executor_begin(machine *m, const wf_pipe_table *table, executor_meeting *meet)
{
    memset(m, 0, offsetof(machine, queue));
    for (int r = 0; r < RANKS * RANKS; r++)
        memset(&m->queue[r / RANKS][r % RANKS], 0, offsetof(queue, sent));
    m->table = table;
    m->shape = wf_pipe_table_shape(table);
    m->facts = wf_pipe_table_facts(table);
    m->meet = meet;
}

/* No message is left, and each has been received. */
static bool all_delivered(const machine *m)
{
    for (int r = 0; r < m->shape.ranks * m->shape.ranks; r++) {
        const queue *q = &m->queue[r / m->shape.ranks][r % m->shape.ranks];

        if (q->n_closed != q->n_sent || q->n_taken != q->n_sent || q->n_asked != q->n_sent)
            return false;
    }
    return true;
}

execution execute_table(const wf_pipe_table *table, unsigned seed)
{
    static machine m;
    unsigned waiting = 0;

    executor_begin(&m, table, executor_meet);
    while (waiting != (1u << m.shape.ranks) - 1) {
        unsigned rank = (seed >> 16) % (unsigned)m.shape.ranks;
        outcome result = waiting >> rank & 1 ? WAITS : executor_go_on(&m, (int)rank);

        if (result == WRONG) {
            m.reported.ending = GOES_WRONG;
            return m.reported;
        }
        waiting = result == DONE ? 0 : waiting | 1u << rank;
        seed = seed * 1664525u + 1013904223u;
    }
    m.reported.peak = m.has.peak;
    m.reported.ending = !all_ended(&m)                                           ? STANDS_STILL
                        : executor_stages_end_right(&m, -1) && all_delivered(&m) ? ENDS_RIGHT
                                                                                 : GOES_WRONG;
    return m.reported;
}
