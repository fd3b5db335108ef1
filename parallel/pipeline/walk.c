/* parallel/pipeline/walk.c - walks rows: each rank continues until it waits for another one. */
#include "parallel/pipeline/walk_internal.h"
#include "parallel/pipeline/lower_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A dependency of an action: another one, and when that ended. */
typedef struct need {
    wf_pipe_action action;
    int rank;
    int64_t time; /* -1: not yet */
} need;

int wf_pipe_peer_stage(const wf_pipe_action *a)
{
    switch (a->kind) {
    case WF_PIPE_SEND_F:
    case WF_PIPE_SENT_F:
    case WF_PIPE_RECV_B:
    case WF_PIPE_RECVD_B:
        return a->stage + 1;
    default:
        return a->stage - 1;
    }
}

bool wf_pipe_forward_message(int kind)
{
    return kind >= WF_PIPE_SEND_F && kind <= WF_PIPE_RECVD_F;
}

static int64_t message_at(const wf_pipe_walk *w, const wf_pipe_action *a)
{
    bool sends = a->kind == WF_PIPE_SEND_F || a->kind == WF_PIPE_SENT_F ||
                 a->kind == WF_PIPE_SEND_B || a->kind == WF_PIPE_SENT_B;

    return wf_pipe_message_at(w->table, wf_pipe_forward_message(a->kind),
                              sends ? wf_pipe_peer_stage(a) : a->stage, a->micro);
}

static need needs(const wf_pipe_walk *w, wf_pipe_kind kind, int stage, int micro, int64_t time)
{
    return (need){{(uint8_t)kind, false, (int16_t)stage, micro, micro},
                  w->table->stage_rank[stage],
                  time};
}

/* Returns the dependency of a compute action on the stage before it (F) or after it (I, B). */
static need from_neighbour(const wf_pipe_walk *w, const wf_pipe_action *a, int neighbour)
{
    const wf_pipe_table *t = w->table;
    bool forward = a->kind == WF_PIPE_F,
         local = t->stage_rank[neighbour] == t->stage_rank[a->stage];
    int64_t time = (forward ? w->forward : w->inputs)[wf_pipe_at(t, neighbour, a->micro)];

    if (t->facts.lowered && !local)
        return needs(w, forward ? WF_PIPE_RECVD_F : WF_PIPE_RECVD_B, a->stage, a->micro,
                     w->received[wf_pipe_message_at(t, forward, a->stage, a->micro)]);
    return needs(w, forward ? WF_PIPE_F : WF_PIPE_I, neighbour, a->micro,
                 time < 0 || local ? time : time + w->costs->message);
}

static need nothing(void)
{
    return (need){.rank = -1};
}

/* The first thing that a compute action waits for, or the last that it has. */
static need compute_need(const wf_pipe_walk *w, const wf_pipe_action *a)
{
    const wf_pipe_table *t = w->table;
    need own = nothing(), other = nothing();

    switch (a->kind) {
    case WF_PIPE_F:
        return a->stage ? from_neighbour(w, a, a->stage - 1) : own;
    case WF_PIPE_W:
        for (int m = a->micro; m <= a->last && own.time >= 0; m++)
            own = needs(w, WF_PIPE_I, a->stage, m, w->inputs[wf_pipe_at(t, a->stage, m)]);
        return own;
    default:
        own = needs(w, WF_PIPE_F, a->stage, a->micro,
                    w->forward[wf_pipe_at(t, a->stage, a->micro)]);
        if (a->kind != WF_PIPE_R && a->stage < t->shape.stages - 1 &&
            wf_pipe_gradient_leaves(t, a->stage + 1))
            other = from_neighbour(w, a, a->stage + 1);
        return own.time < 0 || other.rank < 0 || (other.time >= 0 && other.time < own.time)
                   ? own
                   : other;
    }
}

/* Returns the rank that a meeting still waits for: all ranks join NORM; the ranks of the first
   and the last stage join TIE. */
static need meeting_need(wf_pipe_walk *w, int rank, const wf_pipe_action *a)
{
    const wf_pipe_table *t = w->table;
    int m = a->kind == WF_PIPE_NORM, last = t->stage_rank[t->shape.stages - 1];

    w->met[m][rank] = true;
    if (w->clock[rank] > w->meeting[m])
        w->meeting[m] = w->clock[rank];
    for (int r = 0; r < t->shape.ranks; r++)
        if (!w->met[m][r] && (m || r == t->stage_rank[0] || r == last))
            return (need){*a, r, -1};
    return (need){*a, rank, w->meeting[m]};
}

static need find_need(wf_pipe_walk *w, int rank, const wf_pipe_action *a)
{
    int64_t time;

    switch (a->kind) {
    case WF_PIPE_F:
    case WF_PIPE_B:
    case WF_PIPE_I:
    case WF_PIPE_W:
    case WF_PIPE_R:
        return compute_need(w, a);
    case WF_PIPE_RECVD_F:
    case WF_PIPE_RECVD_B:
        time = w->sent[message_at(w, a)];
        return needs(w, a->kind == WF_PIPE_RECVD_F ? WF_PIPE_SEND_F : WF_PIPE_SEND_B,
                     wf_pipe_peer_stage(a), a->micro,
                     time < 0 ? time : time + w->costs->message);
    case WF_PIPE_SENT_F:
    case WF_PIPE_SENT_B:
        return needs(w, a->kind == WF_PIPE_SENT_F ? WF_PIPE_RECVD_F : WF_PIPE_RECVD_B,
                     wf_pipe_peer_stage(a), a->micro, w->received[message_at(w, a)]);
    case WF_PIPE_TIE:
    case WF_PIPE_NORM:
        return meeting_need(w, rank, a);
    default:
        return nothing();
    }
}

static int64_t cost(const wf_pipe_costs *c, const wf_pipe_action *a)
{
    switch (a->kind) {
    case WF_PIPE_F:
    case WF_PIPE_R:
        return c->forward;
    case WF_PIPE_I:
        return c->inputs;
    case WF_PIPE_B:
        return c->inputs + c->weights;
    case WF_PIPE_W:
        return c->weights * (a->last - a->micro + 1);
    default:
        return 0;
    }
}

static void end(wf_pipe_walk *w, const wf_pipe_action *a, int64_t time)
{
    int64_t at = wf_pipe_at(w->table, a->stage, a->micro);

    switch (a->kind) {
    case WF_PIPE_F:
        w->forward[at] = time;
        break;
    case WF_PIPE_I:
    case WF_PIPE_B:
        w->inputs[at] = time;
        break;
    case WF_PIPE_SEND_F:
    case WF_PIPE_SEND_B:
        w->sent[message_at(w, a)] = time;
        break;
    case WF_PIPE_RECVD_F:
    case WF_PIPE_RECVD_B:
        w->received[message_at(w, a)] = time;
        break;
    default:
        break;
    }
}

/* Does n actions that begin together and end together: one, or two that are a block. */
static bool step(wf_pipe_walk *w, int rank, int n, need *missing)
{
    const wf_pipe_action *a = &w->table->row[rank].action[w->next[rank]];
    int64_t begin = w->clock[rank], time;

    for (int i = 0; i < n; i++) {
        *missing = find_need(w, rank, &a[i]);
        if (missing->time < 0)
            return false;
        begin = missing->time > begin ? missing->time : begin;
    }
    time = begin;
    for (int i = 0; i < n; i++)
        time += cost(w->costs, &a[i]);
    for (int i = 0; i < n; i++) {
        end(w, &a[i], time);
        if (w->timing) {
            w->timing->start[rank][w->next[rank] + i] = begin;
            w->timing->end[rank][w->next[rank] + i] = time;
        }
    }
    w->next[rank] += n;
    w->clock[rank] = time;
    return true;
}

/* Continues a row; false: it waits for another rank. */
static bool go_on(wf_pipe_walk *w, int rank, need *missing)
{
    const wf_pipe_row *row = &w->table->row[rank];

    while (w->next[rank] < row->n) {
        int n = w->costs->blocks && row->action[w->next[rank]].with_next &&
                        w->next[rank] + 1 < row->n
                    ? 2
                    : 1;

        if (!step(w, rank, n, missing))
            return false;
    }
    return true;
}

/* Tables have I or B; a need says I. */
static void name_as_written(const wf_pipe_walk *w, need *missing)
{
    const wf_pipe_row *row = &w->table->row[missing->rank];

    if (missing->action.kind == WF_PIPE_I)
        for (int64_t i = 0; i < row->n; i++)
            if (row->action[i].kind == WF_PIPE_B &&
                row->action[i].stage == missing->action.stage &&
                row->action[i].micro == missing->action.micro)
                missing->action.kind = WF_PIPE_B;
}

/* Adds "rank 1 waits in F1.0 for F0.0 of rank 0, which waits after B0.0"; returns that other
   rank. */
static int add_link(wf_pipe_walk *w, int rank, char *text, size_t size)
{
    const wf_pipe_row *row = &w->table->row[rank], *other;
    char here[48], there[48], before[48] = "";
    const char *after = ", whose row has ended";
    need missing = nothing();

    go_on(w, rank, &missing);
    name_as_written(w, &missing);
    other = &w->table->row[missing.rank];
    if (w->next[missing.rank] < other->n) {
        after = ", which waits after ";
        wf_pipe_action_text(&other->action[w->next[missing.rank]], before, sizeof before);
    }
    snprintf(text, size, "rank %d waits in %s for %s of rank %d%s%s", rank,
             wf_pipe_action_text(&row->action[w->next[rank]], here, sizeof here),
             wf_pipe_action_text(&missing.action, there, sizeof there), missing.rank, after,
             before);
    return missing.rank;
}

/* Reports the chain of waiting ranks, from a rank on, until one comes a second time. */
static wf_status report_chain(wf_pipe_walk *w, int rank, wf_error *error)
{
    enum { LINK = 200, LINKS = 6 };
    const wf_pipe_row *row = w->table->row;
    char text[LINKS * LINK + 64] = "deadlock: ", link[LINK];
    size_t n = strlen(text);
    int links = 0;

    /* The chain may lead into a circle: only that is reported. */
    for (int i = 0; i < w->table->shape.ranks && w->next[rank] < row[rank].n; i++) {
        int other = add_link(w, rank, link, sizeof link);

        if (w->next[other] == row[other].n)
            break;
        rank = other;
    }
    memset(w->ready, 0, (size_t)w->table->shape.ranks * sizeof *w->ready);
    while (links < LINKS && !w->ready[rank] && w->next[rank] < row[rank].n) {
        w->ready[rank] = 1;
        rank = add_link(w, rank, link, sizeof link);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", links++ ? "; " : "", link);
    }
    return wf_error_set(error, WF_EINVAL, "%s%s", text,
                        links < LINKS || w->ready[rank] ? "" : "; and so on");
}

static wf_status walk(wf_pipe_walk *w, wf_error *error)
{
    int ranks = w->table->shape.ranks, n = 0, stuck = -1;

    for (int r = ranks - 1; r >= 0; r--) {
        w->waiter[r] = -1;
        w->ready[n++] = r;
    }
    while (n) {
        int rank = w->ready[--n], freed;
        int64_t before = w->next[rank];
        need missing;

        if (!go_on(w, rank, &missing)) {
            /* A rank that waits for itself waits for good. */
            w->then[rank] = w->waiter[missing.rank];
            w->waiter[missing.rank] = rank;
        }
        if (w->next[rank] == before)
            continue;
        freed = w->waiter[rank];
        w->waiter[rank] = -1;
        for (; freed >= 0; freed = w->then[freed])
            w->ready[n++] = freed;
    }
    for (int r = 0; r < ranks && stuck < 0; r++)
        stuck = w->next[r] < w->table->row[r].n ? r : -1;
    return stuck < 0 ? WF_OK : report_chain(w, stuck, error);
}

static wf_status open_walk(wf_pipe_walk *w, wf_error *error)
{
    size_t ranks = (size_t)w->table->shape.ranks;
    size_t nodes = (size_t)w->table->shape.stages * (size_t)w->table->shape.micro;
    size_t arrays = w->table->facts.lowered ? 6 : 2;

    w->forward = malloc(arrays * nodes * sizeof *w->forward);
    w->next = calloc(2 * ranks, sizeof *w->next);
    w->met[0] = calloc(2 * ranks, sizeof *w->met[0]);
    w->ready = calloc(3 * ranks, sizeof *w->ready);
    if (!w->forward || !w->next || !w->met[0] || !w->ready)
        return wf_error_set(error, WF_ENOMEM, "no memory to walk a schedule of %zu nodes",
                            nodes);
    memset(w->forward, 0xff, arrays * nodes * sizeof *w->forward);
    w->inputs = w->forward + nodes;
    if (w->table->facts.lowered) {
        w->sent = w->inputs + nodes;
        w->received = w->sent + 2 * nodes;
    }
    w->clock = w->next + ranks;
    w->met[1] = w->met[0] + ranks;
    w->waiter = w->ready + ranks;
    w->then = w->waiter + ranks;
    return WF_OK;
}

wf_status wf_pipe_walk_run(const wf_pipe_table *table, const wf_pipe_costs *costs,
                           wf_pipe_timing *timing, wf_error *error)
{
    wf_pipe_walk w = {.table = table, .costs = costs, .timing = timing};
    wf_status status = open_walk(&w, error);

    if (status == WF_OK)
        status = walk(&w, error);
    free(w.forward);
    free(w.next);
    free(w.met[0]);
    free(w.ready);
    return status;
}
