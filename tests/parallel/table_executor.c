/* tests/parallel/table_executor.c - rows as programs over queues. */
#include "tests/parallel/table_executor.h"
#include <string.h>

enum { RANKS = 4, STAGES = 8, MICRO = 6, MESSAGES = 2 * STAGES * MICRO, ROOM = 32 };

typedef enum outcome { DONE, WAITS, WRONG } outcome;

/* What a rank has of a (stage, micro-batch). */
typedef struct node {
    bool input, forward, above, inputs, weights, again, reduced; /* above: the gradient came */
    uint64_t x, y, dy, dx;
} node;

typedef struct message {
    bool forward;
    int to, micro;
    uint64_t value;
} message;

/* From one rank to another: what was sent, and what was asked for, in order. */
typedef struct queue {
    message sent[MESSAGES], asked[MESSAGES];
    bool closed[MESSAGES]; /* the sender has ended it */
    int n_sent, n_closed, n_asked, n_taken;
} queue;

typedef struct machine {
    const wf_pipe_table *table;
    wf_pipe_shape shape;
    wf_pipe_facts facts;
    node node[STAGES][MICRO];
    queue queue[RANKS][RANKS];
    int64_t next[RANKS];
    uint64_t gradient[STAGES];
    bool gathered[STAGES], updated[STAGES];
    int reducing[STAGES][2]; /* the micro-batches of a reduction that has begun; -1 */
    bool at_tie[RANKS], tied[RANKS], at_norm[RANKS], normed[RANKS];
} machine;

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return a ^ a >> 29;
}

static int rank_of(const machine *m, int stage)
{
    return wf_pipe_table_rank(m->table, stage);
}

static bool gathers_enough(const machine *m, int stage)
{
    return !m->facts.resident || m->gathered[stage];
}

static outcome forward(machine *m, int rank, int s, int micro)
{
    node *n = &m->node[s][micro];

    if (n->forward || !gathers_enough(m, s))
        return WRONG;
    if (s == 0) {
        n->x = (uint64_t)micro + 1;
    } else if (rank_of(m, s - 1) == rank) {
        if (!m->node[s - 1][micro].forward)
            return WRONG;
        n->x = m->node[s - 1][micro].y;
    } else if (!n->input) {
        return WRONG;
    }
    n->forward = true;
    n->y = mix(n->x, (uint64_t)s);
    return DONE;
}

static outcome inputs(machine *m, int rank, int s, int micro)
{
    node *n = &m->node[s][micro];

    if (!n->forward || n->inputs || !gathers_enough(m, s))
        return WRONG;
    if (s == m->shape.stages - 1) {
        n->dy = n->y;
    } else if (rank_of(m, s + 1) == rank) {
        if (!m->node[s + 1][micro].inputs)
            return WRONG;
        n->dy = m->node[s + 1][micro].dx;
    } else if (!n->above) {
        return WRONG;
    }
    n->inputs = true;
    n->dx = mix(n->dy, n->x);
    return DONE;
}

static outcome weights(machine *m, int s, int first, int last)
{
    if (!gathers_enough(m, s))
        return WRONG;
    for (int micro = first; micro <= last; micro++) {
        node *n = &m->node[s][micro];

        if (!n->inputs || n->weights)
            return WRONG;
        n->weights = true;
        m->gradient[s] += mix(n->dx, n->dy);
    }
    return DONE;
}

static outcome compute(machine *m, int rank, const wf_pipe_action *a)
{
    node *n = &m->node[a->stage][a->micro];

    switch (a->kind) {
    case WF_PIPE_F:
        return forward(m, rank, a->stage, a->micro);
    case WF_PIPE_I:
        return inputs(m, rank, a->stage, a->micro);
    case WF_PIPE_B:
        if (inputs(m, rank, a->stage, a->micro) != DONE)
            return WRONG;
        return weights(m, a->stage, a->micro, a->micro);
    case WF_PIPE_W:
        return weights(m, a->stage, a->micro, a->last);
    default:
        if (!n->forward || n->inputs || n->again || !gathers_enough(m, a->stage))
            return WRONG;
        n->again = true;
        return DONE;
    }
}

static bool same(const message *a, const message *b)
{
    return a->forward == b->forward && a->to == b->to && a->micro == b->micro;
}

static int find(const message *list, int n, const message *what)
{
    int i = 0;

    while (i < n && !same(&list[i], what))
        i++;
    return i < n ? i : -1;
}

static outcome send(machine *m, queue *q, message what, bool end)
{
    const node *n = &m->node[what.forward ? what.to - 1 : what.to + 1][what.micro];
    int i = find(q->sent, q->n_sent, &what);

    if (end) {
        if (i < 0 || q->closed[i])
            return WRONG;
        if (i >= q->n_taken)
            return WAITS;
        q->closed[i] = true;
        q->n_closed++;
        return DONE;
    }
    if (i >= 0 || !(what.forward ? n->forward : n->inputs) || q->n_sent - q->n_closed == ROOM)
        return WRONG;
    what.value = what.forward ? n->y : n->dx;
    q->sent[q->n_sent++] = what;
    return DONE;
}

static outcome receive(machine *m, queue *q, const message *what, bool end)
{
    node *n = &m->node[what->to][what->micro];

    if (!end) {
        if (find(q->asked, q->n_asked, what) >= 0 || q->n_asked - q->n_taken == ROOM)
            return WRONG;
        q->asked[q->n_asked++] = *what;
        return DONE;
    }
    /* Ranks end their receives in the order in which they began them. */
    if (q->n_taken == q->n_asked || !same(&q->asked[q->n_taken], what))
        return WRONG;
    if (q->n_taken == q->n_sent)
        return WAITS;
    if (!same(&q->sent[q->n_taken], what))
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

static outcome communicate(machine *m, int rank, const wf_pipe_action *a)
{
    bool goes_forward = a->kind <= WF_PIPE_RECVD_F;
    int step = (a->kind - WF_PIPE_SEND_F) % 4;
    int to = step < 2 ? a->stage + (goes_forward ? 1 : -1) : a->stage;
    int from = step < 2 ? a->stage : a->stage + (goes_forward ? -1 : 1);
    message what = {goes_forward, to, a->micro, 0};

    if (to < 0 || from < 0 || to >= m->shape.stages || from >= m->shape.stages ||
        rank_of(m, to) == rank_of(m, from))
        return WRONG;
    if (step < 2)
        return send(m, &m->queue[rank][rank_of(m, to)], what, step == 1);
    return receive(m, &m->queue[rank_of(m, from)][rank], &what, step == 3);
}

static outcome gather(machine *m, int rank, int stage, bool begin)
{
    int n = 0;

    for (int s = 0; s < m->shape.stages; s++)
        n += rank_of(m, s) == rank && m->gathered[s];
    if (m->gathered[stage] == begin || (begin && n >= m->facts.resident))
        return WRONG;
    m->gathered[stage] = begin;
    return DONE;
}

/* Data-parallel ranks add the same groups, or their bits differ. */
static outcome reduce(machine *m, const wf_pipe_action *a)
{
    int *open = m->reducing[a->stage], first = 0;

    if (a->kind == WF_PIPE_REDUCED) {
        if (open[0] != a->micro || open[1] != a->last)
            return WRONG;
        open[0] = -1;
        return DONE;
    }
    if (!m->facts.group || open[0] >= 0)
        return WRONG;
    while (first + m->facts.group <= a->micro)
        first += m->facts.group;
    if (a->micro != first ||
        (a->last != first + m->facts.group - 1 &&
         !(a->last == m->shape.micro - 1 && a->last < first + m->facts.group)))
        return WRONG;
    for (int micro = a->micro; micro <= a->last; micro++) {
        node *n = &m->node[a->stage][micro];

        if (!n->weights || n->reduced)
            return WRONG;
        n->reduced = true;
    }
    open[0] = a->micro;
    open[1] = a->last;
    return DONE;
}

/* A stage's gradient is whole, and that of all data-parallel ranks. */
static bool whole(const machine *m, int stage)
{
    for (int micro = 0; micro < m->shape.micro; micro++)
        if (!m->node[stage][micro].weights ||
            (m->facts.group && !m->node[stage][micro].reduced))
            return false;
    return m->reducing[stage][0] < 0;
}

static bool has_tie(const machine *m, int rank)
{
    int first = rank_of(m, 0), last = rank_of(m, m->shape.stages - 1);

    return m->facts.tied && first != last && (rank == first || rank == last);
}

static outcome tie(machine *m, int rank)
{
    if (!has_tie(m, rank) || m->tied[rank] ||
        !whole(m, rank_of(m, 0) == rank ? 0 : m->shape.stages - 1))
        return WRONG;
    m->at_tie[rank] = true;
    if (!m->at_tie[rank_of(m, 0)] || !m->at_tie[rank_of(m, m->shape.stages - 1)])
        return WAITS;
    m->tied[rank] = true;
    return DONE;
}

static outcome norm(machine *m, int rank)
{
    if (m->normed[rank] || (has_tie(m, rank) && !m->tied[rank]))
        return WRONG;
    for (int s = 0; s < m->shape.stages; s++)
        if (rank_of(m, s) == rank && !whole(m, s))
            return WRONG;
    m->at_norm[rank] = true;
    for (int r = 0; r < m->shape.ranks; r++)
        if (!m->at_norm[r])
            return WAITS;
    m->normed[rank] = true;
    return DONE;
}

static outcome perform(machine *m, int rank, const wf_pipe_action *a)
{
    if (a->kind == WF_PIPE_TIE)
        return tie(m, rank);
    if (a->kind == WF_PIPE_NORM)
        return norm(m, rank);
    if (rank_of(m, a->stage) != rank)
        return WRONG;
    switch (a->kind) {
    case WF_PIPE_UNSHARD:
    case WF_PIPE_RESHARD:
        return gather(m, rank, a->stage, a->kind == WF_PIPE_UNSHARD);
    case WF_PIPE_REDUCE:
    case WF_PIPE_REDUCED:
        return reduce(m, a);
    case WF_PIPE_OPT:
        if (!m->normed[rank] || m->updated[a->stage])
            return WRONG;
        m->updated[a->stage] = true;
        return DONE;
    default:
        return a->kind <= WF_PIPE_R ? compute(m, rank, a) : communicate(m, rank, a);
    }
}

/* Two that may overlap can be done in either order. */
static outcome perform_both(machine *m, int rank, const wf_pipe_action *a)
{
    static machine other;

    if (a[0].kind > WF_PIPE_R || a[1].kind > WF_PIPE_R || a[1].with_next ||
        rank_of(m, a[0].stage) != rank || rank_of(m, a[1].stage) != rank)
        return WRONG;
    other = *m;
    if (compute(&other, rank, &a[1]) != DONE || compute(&other, rank, &a[0]) != DONE ||
        compute(m, rank, &a[0]) != DONE)
        return WRONG;
    return compute(m, rank, &a[1]);
}

static bool ends_right(const machine *m)
{
    for (int s = 0; s < m->shape.stages; s++) {
        uint64_t sum = 0;

        for (int micro = 0; micro < m->shape.micro; micro++) {
            uint64_t x[STAGES + 1] = {(uint64_t)micro + 1}, d;

            for (int k = 0; k < m->shape.stages; k++)
                x[k + 1] = mix(x[k], (uint64_t)k);
            d = x[m->shape.stages];
            for (int k = m->shape.stages - 1; k > s; k--)
                d = mix(d, x[k]);
            sum += mix(mix(d, x[s]), d);
        }
        if (m->gradient[s] != sum || !m->updated[s] || m->gathered[s])
            return false;
    }
    for (int from = 0; from < m->shape.ranks; from++) {
        if (!m->normed[from])
            return false;
        for (int to = 0; to < m->shape.ranks; to++) {
            const queue *q = &m->queue[from][to];

            if (q->n_closed != q->n_sent || q->n_taken != q->n_sent || q->n_asked != q->n_sent)
                return false;
        }
    }
    return true;
}

/* Goes on with one rank as far as it can; *moved: that was an action or more. */
static outcome go_on(machine *m, int rank, bool *moved)
{
    int64_t n;
    const wf_pipe_action *row = wf_pipe_table_row(m->table, rank, &n);

    while (m->next[rank] < n) {
        const wf_pipe_action *a = &row[m->next[rank]];
        outcome result;

        if (a->with_next && m->next[rank] + 1 == n)
            return WRONG;
        result = a->with_next ? perform_both(m, rank, a) : perform(m, rank, a);
        if (result != DONE)
            return result;
        m->next[rank] += a->with_next ? 2 : 1;
        *moved = true;
    }
    return DONE;
}

execution execute_table(const wf_pipe_table *table, unsigned seed)
{
    static machine m;
    int idle = 0, first;

    memset(&m, 0, sizeof m);
    m.table = table;
    m.shape = wf_pipe_table_shape(table);
    m.facts = wf_pipe_table_facts(table);
    for (int s = 0; s < m.shape.stages; s++)
        m.reducing[s][0] = -1;
    /* Ranks take turns from one to the next, or back, from any of them on. */
    first = (int)(seed % (unsigned)m.shape.ranks);
    for (int turn = first; idle < m.shape.ranks; turn += seed % 2 ? 1 : m.shape.ranks - 1) {
        bool moved = false;

        if (go_on(&m, turn % m.shape.ranks, &moved) == WRONG)
            return GOES_WRONG;
        idle = moved ? 0 : idle + 1;
    }
    for (int r = 0; r < m.shape.ranks; r++) {
        int64_t n;

        wf_pipe_table_row(table, r, &n);
        if (m.next[r] < n)
            return STANDS_STILL;
    }
    return ends_right(&m) ? ENDS_RIGHT : GOES_WRONG;
}
