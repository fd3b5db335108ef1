/* parallel/pipeline/prove_rows.c - proves rows one by one: each action is on the rank of its
   stage, once, and after what it needs; none is left out. */
#include "parallel/pipeline/prove_internal.h"
#include "parallel/pipeline/walk_internal.h"
#include <stdio.h>
#include <stdlib.h>

#define DID(kind) (UINT32_C(1) << WF_PIPE_##kind)

wf_status wf_pipe_prove_refuse(const wf_pipe_reading *p, const char *format, ...)
{
    const wf_pipe_row *row = &p->table->row[p->rank];
    char why[512], action[48];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (p->action == row->n)
        return wf_error_set(p->error, WF_EINVAL, "rank %d, at the end of its row: %s", p->rank,
                            why);
    return wf_error_set(p->error, WF_EINVAL, "rank %d, action %lld of %lld, %s: %s", p->rank,
                        (long long)p->action, (long long)row->n,
                        wf_pipe_action_text(&row->action[p->action], action, sizeof action),
                        why);
}

static uint32_t *at(const wf_pipe_reading *p, int stage, int micro)
{
    return &p->done[wf_pipe_at(p->table, stage, micro)];
}

/* Checks the input of a compute action from a neighbour: a message that has come, or a result
   of the same rank. Before messages are added, the walk checks inputs from other ranks. */
static wf_status neighbour_done(wf_pipe_reading *p, const wf_pipe_action *a, int neighbour)
{
    bool forward = a->kind == WF_PIPE_F;

    if (p->table->stage_rank[neighbour] == p->rank) {
        if (!(*at(p, neighbour, a->micro) & (forward ? DID(F) : DID(I))))
            return wf_pipe_prove_refuse(p, "it needs %s%d.%d of its own rank before it",
                                        forward ? "F" : "I", neighbour, a->micro);
        return WF_OK;
    }
    if (p->table->facts.lowered &&
        !(*at(p, a->stage, a->micro) & (forward ? DID(RECVD_F) : DID(RECVD_B))))
        return wf_pipe_prove_refuse(p, "it needs RECVD_%s%d.%d before it", forward ? "F" : "B",
                                    a->stage, a->micro);
    return WF_OK;
}

static wf_status needs_own(wf_pipe_reading *p, const wf_pipe_action *a, int micro,
                           wf_pipe_kind kind)
{
    if (*at(p, a->stage, micro) >> kind & 1)
        return WF_OK;
    return wf_pipe_prove_refuse(p, "it needs %s%d.%d before it", wf_pipe_kind_table[kind].name,
                                a->stage, micro);
}

static wf_status compute_needs(wf_pipe_reading *p, const wf_pipe_action *a)
{
    int neighbour = a->kind == WF_PIPE_F ? a->stage - 1 : a->stage + 1;
    wf_status status = WF_OK;

    if (p->table->facts.resident && !p->stage[a->stage].resident)
        return wf_pipe_prove_refuse(p, "stage %d is not gathered: UNSHARD%d is not before it",
                                    a->stage, a->stage);
    if (a->kind == WF_PIPE_W) {
        for (int m = a->micro; status == WF_OK && m <= a->last; m++)
            status = needs_own(p, a, m, WF_PIPE_I);
        return status;
    }
    if (a->kind != WF_PIPE_F)
        status = needs_own(p, a, a->micro, WF_PIPE_F);
    if (status == WF_OK && a->kind == WF_PIPE_R && *at(p, a->stage, a->micro) & DID(I))
        return wf_pipe_prove_refuse(p, "the forward is recomputed for I or B, which is before");
    if (status == WF_OK && a->kind != WF_PIPE_R && neighbour >= 0 &&
        neighbour < p->table->shape.stages &&
        (a->kind == WF_PIPE_F || wf_pipe_gradient_leaves(p->table, neighbour)))
        status = neighbour_done(p, a, neighbour);
    return status;
}

/* Checks that messages are between stages on two ranks, and end after they begin. */
static wf_status message_needs(wf_pipe_reading *p, const wf_pipe_action *a)
{
    static const wf_pipe_kind before[WF_PIPE_KINDS] = {
        [WF_PIPE_SEND_F] = WF_PIPE_F,       [WF_PIPE_SENT_F] = WF_PIPE_SEND_F,
        [WF_PIPE_RECVD_F] = WF_PIPE_RECV_F, [WF_PIPE_SEND_B] = WF_PIPE_I,
        [WF_PIPE_SENT_B] = WF_PIPE_SEND_B,  [WF_PIPE_RECVD_B] = WF_PIPE_RECV_B};
    int peer = wf_pipe_peer_stage(a);

    if (peer < 0 || peer >= p->table->shape.stages)
        return wf_pipe_prove_refuse(p, "there is no stage %d to %s", peer,
                                    a->kind == WF_PIPE_SEND_F || a->kind == WF_PIPE_SEND_B ||
                                            a->kind == WF_PIPE_SENT_F ||
                                            a->kind == WF_PIPE_SENT_B
                                        ? "send to"
                                        : "receive from");
    if (p->table->stage_rank[peer] == p->rank)
        return wf_pipe_prove_refuse(p, "stage %d is on the same rank, which needs no message",
                                    peer);
    if (!wf_pipe_forward_message(a->kind) &&
        !wf_pipe_gradient_leaves(p->table, a->stage > peer ? a->stage : peer))
        return wf_pipe_prove_refuse(p,
                                    "no gradient goes to the first %d stages, which have "
                                    "nothing to train",
                                    p->table->facts.frozen);
    if (a->kind == WF_PIPE_RECV_F || a->kind == WF_PIPE_RECV_B)
        return WF_OK;
    return needs_own(p, a, a->micro, before[a->kind]);
}

/* Sets what an action does; refuses what has been done. */
static wf_status set_done(wf_pipe_reading *p, const wf_pipe_action *a)
{
    uint32_t bits = UINT32_C(1) << a->kind;

    if (a->kind == WF_PIPE_B)
        bits = DID(I) | DID(W);
    for (int m = a->micro; m <= a->last; m++) {
        uint32_t *done = at(p, a->stage, m);

        if (*done & bits)
            return wf_pipe_prove_refuse(p, "stage %d and micro-batch %d have had that already",
                                        a->stage, m);
        *done |= bits;
        p->stage[a->stage].weights += (bits & DID(W)) != 0;
    }
    return WF_OK;
}

static wf_status on_its_rank(wf_pipe_reading *p, const wf_pipe_action *a)
{
    if (wf_pipe_kind_table[a->kind].operands == WF_PIPE_NONE ||
        p->table->stage_rank[a->stage] == p->rank)
        return WF_OK;
    return wf_pipe_prove_refuse(p, "stage %d is on rank %d", a->stage,
                                p->table->stage_rank[a->stage]);
}

/* Looks at both of two actions, or sets both, as if each were the one that is read. */
static wf_status of_both(wf_pipe_reading *p, const wf_pipe_action *a,
                         wf_status (*look)(wf_pipe_reading *, const wf_pipe_action *))
{
    wf_status status = look(p, &a[0]);

    if (status != WF_OK)
        return status;
    p->action++;
    status = look(p, &a[1]);
    p->action -= status == WF_OK;
    return status;
}

/* Reads two actions that overlap. They may end in either order: what each needs is there before
   both, and still after both. */
static wf_status read_pair(wf_pipe_reading *p, const wf_pipe_row *row)
{
    const wf_pipe_action *a = &row->action[p->action];
    wf_status status;

    if (p->action + 1 == row->n || wf_pipe_kind_table[a[1].kind].derived || a[1].with_next ||
        wf_pipe_kind_table[a->kind].derived)
        return wf_pipe_prove_refuse(p, "two compute actions may overlap, no more and no less");
    status = of_both(p, a, on_its_rank);
    if (status == WF_OK)
        status = of_both(p, a, compute_needs);
    if (status == WF_OK)
        status = of_both(p, a, set_done);
    if (status == WF_OK)
        status = of_both(p, a, compute_needs);
    p->action += status == WF_OK;
    return status;
}

static wf_status read_action(wf_pipe_reading *p, const wf_pipe_row *row)
{
    const wf_pipe_action *a = &row->action[p->action];
    const wf_pipe_kind_info *kind = &wf_pipe_kind_table[a->kind];
    wf_status status;

    if (kind->derived && !p->table->facts.lowered)
        return wf_pipe_prove_refuse(p, "lowering adds such actions; the table says nothing of "
                                       "being lowered");
    if (a->with_next)
        return read_pair(p, row);
    status = on_its_rank(p, a);
    if (status != WF_OK)
        return status;
    if (kind->derived && (a->kind < WF_PIPE_SEND_F || a->kind > WF_PIPE_RECVD_B))
        return wf_pipe_prove_stage_action(p, a);
    status = kind->derived ? message_needs(p, a) : compute_needs(p, a);
    return status == WF_OK ? set_done(p, a) : status;
}

/* Returns the actions that a (stage, micro-batch) must have had. */
static uint32_t all_of(const wf_pipe_table *t, int stage)
{
    uint32_t all = DID(F) | DID(I) | DID(W);

    if (!t->facts.lowered)
        return all;
    if (stage > 0 && t->stage_rank[stage - 1] != t->stage_rank[stage])
        all |= DID(RECV_F) | DID(RECVD_F) |
               (wf_pipe_gradient_leaves(t, stage) ? DID(SEND_B) | DID(SENT_B) : 0);
    if (stage < t->shape.stages - 1 && t->stage_rank[stage + 1] != t->stage_rank[stage])
        all |= DID(SEND_F) | DID(SENT_F) |
               (wf_pipe_gradient_leaves(t, stage + 1) ? DID(RECV_B) | DID(RECVD_B) : 0);
    return all;
}

static wf_status complete(wf_pipe_reading *p)
{
    const wf_pipe_table *t = p->table;

    for (int s = 0; s < t->shape.stages; s++) {
        uint32_t all = t->stage_rank[s] == p->rank ? all_of(t, s) : 0;

        for (int m = 0; all && m < t->shape.micro; m++)
            for (int k = 0; (*at(p, s, m) & all) != all && k < WF_PIPE_KINDS; k++)
                if ((all & ~*at(p, s, m)) >> k & 1)
                    return wf_pipe_prove_refuse(p, "%s%d.%d is not in it",
                                                wf_pipe_kind_table[k].name, s, m);
        if (all && t->facts.lowered && p->stage[s].resident)
            return wf_pipe_prove_refuse(p, "stage %d is still gathered: RESHARD%d is not in it",
                                        s, s);
        if (all && t->facts.lowered && !p->stage[s].updated)
            return wf_pipe_prove_refuse(p, "OPT%d is not in it", s);
    }
    if (t->facts.lowered && !p->normed)
        return wf_pipe_prove_refuse(p, "NORM is not in it, for which the other ranks wait");
    return WF_OK;
}

wf_status wf_pipe_prove_rows(const wf_pipe_table *table, wf_error *error)
{
    size_t stages = (size_t)table->shape.stages;
    wf_pipe_reading p = {.table = table, .error = error};
    wf_status status = WF_OK;

    p.done = calloc(stages * (size_t)table->shape.micro, sizeof *p.done);
    p.stage = calloc(stages, sizeof *p.stage);
    if (!p.done || !p.stage)
        status = wf_error_set(error, WF_ENOMEM, "no memory to prove %zu stages", stages);
    for (int s = 0; status == WF_OK && s < table->shape.stages; s++) {
        p.stage[s].open = -1;
        if (table->stage_rank[s] < 0)
            status = wf_error_set(error, WF_EINVAL, "stage %d is on no rank: place it", s);
    }
    for (p.rank = 0; status == WF_OK && p.rank < table->shape.ranks; p.rank++) {
        const wf_pipe_row *row = &table->row[p.rank];

        p.tied = p.normed = false;
        for (p.action = 0; status == WF_OK && p.action < row->n; p.action++)
            status = read_action(&p, row);
        if (status == WF_OK)
            status = complete(&p);
    }
    free(p.done);
    free(p.stage);
    return status;
}
