/* tests/parallel/table_threads.c - see the header. */
#include "tests/parallel/table_threads.h"
#include "mesh/cluster/launch.h"
#include "tests/parallel/table_executor_internal.h"
#include <stdio.h>
#include <string.h>

/* A message that a rank has begun, or has had. */
typedef struct post {
    message what; /* the payload is what.value */
    wf_pending *pending;
    bool sends;
    int peer;
} post;

typedef struct thread {
    wf_rank *rank;
    int posts;
    post post[2 * MESSAGES];
} thread;

static machine machines[RANKS];
static thread threads[RANKS];

/* The end that a rank comes to is in these words, which go to all. */
static outcome failed(thread *t, const wf_error *error)
{
    if (t->rank->error.code == WF_OK)
        t->rank->error = *error;
    return WRONG;
}

static uint64_t tag_of(const message *m)
{
    return ((uint64_t)m->micro << 16 | (uint64_t)m->to << 1 | m->forward) + 1;
}

/* Begin to move a number. */
static outcome begin(thread *t, wf_collective_kind kind, int peer, uint64_t tag,
                     uint64_t *value, wf_pending **pending)
{
    wf_comm_buffer buffer = {.in = value, .out = value, .count = 1};
    wf_collective what = {.kind = kind,
                          .element = sizeof *value,
                          .peer = peer,
                          .tag = tag,
                          .n_buffers = 1,
                          .buffers = &buffer};
    wf_error error = {WF_OK, ""};

    return wf_collective_begin(t->rank->world, &what, pending, &error) == WF_OK
               ? DONE
               : failed(t, &error);
}

static outcome end(thread *t, wf_pending **pending)
{
    wf_error error = {WF_OK, ""};
    wf_status status = wf_collective_end(*pending, &error);

    *pending = NULL;
    return status == WF_OK ? DONE : failed(t, &error);
}

static post *find(thread *t, const message *what, bool sends)
{
    for (int i = 0; i < t->posts; i++)
        if (t->post[i].sends == sends && executor_same_message(&t->post[i].what, what))
            return &t->post[i];
    return NULL;
}

/* Returns true for the oldest of the posts from its peer that have not ended. */
static bool is_next(const thread *t, const post *p)
{
    for (const post *q = t->post; q < p; q++)
        if (q->pending && !q->sends && q->peer == p->peer)
            return false;
    return true;
}

static outcome begin_message(machine *m, thread *t, const delivery *d)
{
    const message *what = &d->what;
    bool sends = d->step == 0;
    const node *n =
        sends ? &m->has.node[what->to + (what->forward ? -1 : 1)][what->micro] : NULL;
    post *p = &t->post[t->posts];

    if (find(t, what, sends) || (n && !(what->forward ? n->forward : n->inputs)))
        return WRONG;
    *p = (post){*what, NULL, sends, sends ? d->to : d->from};
    if (n)
        p->what.value = what->forward ? n->y : n->dx;
    t->posts++;
    return begin(t, sends ? WF_SEND : WF_RECV, p->peer, tag_of(what), &p->what.value,
                 &p->pending);
}

static outcome end_message(machine *m, thread *t, const delivery *d)
{
    post *p = find(t, &d->what, d->step == 1);
    node *n = &m->has.node[d->what.to][d->what.micro];

    if (!p || !p->pending || (!p->sends && !is_next(t, p)))
        return WRONG;
    if (end(t, &p->pending) != DONE)
        return WRONG;
    if (!p->sends && p->what.forward) {
        n->input = true;
        n->x = p->what.value;
    } else if (!p->sends) {
        n->above = true;
        n->dy = p->what.value;
    }
    return DONE;
}

static outcome tie(machine *m, thread *t, int rank)
{
    int own = rank_of(m, 0) == rank ? 0 : m->shape.stages - 1,
        other = m->shape.stages - 1 - own;
    uint64_t mine = executor_gradient(m, own), theirs = 0;
    wf_pending *sent = NULL, *received = NULL;
    const uint64_t tag = ~UINT64_C(0);

    if (!executor_has_tie(m, rank) || m->tied[rank] || rank_of(m, other) < 0 ||
        begin(t, WF_SEND, rank_of(m, other), tag, &mine, &sent) != DONE ||
        begin(t, WF_RECV, rank_of(m, other), tag, &theirs, &received) != DONE ||
        end(t, &received) != DONE || end(t, &sent) != DONE)
        return WRONG;
    m->stage[own].tied = theirs;
    m->tied[rank] = true;
    return DONE;
}

static outcome norm(machine *m, thread *t, int rank)
{
    uint64_t mine = executor_norm_of(m, rank), all[RANKS];
    int64_t cuts[RANKS + 1];
    wf_error error = {WF_OK, ""};

    if (m->normed[rank])
        return WRONG;
    for (int r = 0; r <= m->shape.ranks; r++)
        cuts[r] = r;
    if (wf_all_gather(t->rank->world, sizeof mine, &mine, all, cuts, &error) != WF_OK)
        return failed(t, &error);
    for (int r = 0; r < m->shape.ranks; r++)
        m->norm += all[r];
    m->normed[rank] = true;
    return DONE;
}

static outcome meet(machine *m, int rank, const wf_pipe_action *a)
{
    thread *t = m->meeting;
    delivery d;

    if (a->kind == WF_PIPE_TIE)
        return tie(m, t, rank);
    if (a->kind == WF_PIPE_NORM)
        return norm(m, t, rank);
    if (!executor_delivery(m, rank, a, &d))
        return WRONG;
    return d.step % 2 == 0 ? begin_message(m, t, &d) : end_message(m, t, &d);
}

/* Ends all messages that have begun, as any program has to; false: some were left. */
static bool put_away(thread *t)
{
    const wf_error cause = {WF_EINVAL, "messages are left"};
    bool none = true;

    for (int i = 0; i < t->posts; i++)
        none &= !t->post[i].pending;
    if (!none)
        wf_comm_abort(t->rank->world, &cause);
    for (int i = 0; i < t->posts; i++)
        if (t->post[i].pending)
            end(t, &t->post[i].pending);
    return none;
}

static wf_status row(wf_rank *rank, void *arg)
{
    machine *m = &machines[rank->index];
    thread *t = &threads[rank->index];
    outcome result = DONE;
    int64_t n;

    executor_begin(m, arg, meet);
    wf_pipe_table_row(arg, rank->index, &n);
    t->rank = rank;
    t->posts = 0;
    m->meeting = t;
    while (m->next[rank->index] < n && result == DONE)
        result = executor_go_on(m, rank->index);
    if (result == DONE && executor_stages_end_right(m, rank->index) && put_away(t))
        return WF_OK;
    if (rank->error.code == WF_OK)
        wf_error_set(&rank->error, WF_EINVAL, "action %lld is wrong, or the end",
                     (long long)m->next[rank->index]);
    if (result != DONE) {
        wf_comm_abort(rank->world, &rank->error);
        put_away(t);
    }
    return rank->error.code;
}

ending execute_on_threads(const wf_pipe_table *table, char *text, size_t size)
{
    const wf_launch_options options = {.ranks = wf_pipe_table_shape(table).ranks,
                                       .launcher = "threads"};
    wf_error error = {WF_OK, ""};
    wf_status status = wf_launch(&options, row, (void *)table, &error);

    snprintf(text, size, "%s", error.text);
    return status == WF_OK ? ENDS_RIGHT : status == WF_ETIMEOUT ? STANDS_STILL : GOES_WRONG;
}
