/* parallel/pipeline/prove_messages.c - what one rank sends to another, as both of their rows
   have it. */
#include "parallel/pipeline/prove_internal.h"
#include "parallel/pipeline/walk_internal.h"
#include <stdlib.h>

typedef struct pairs {
    const wf_pipe_table *table;
    int64_t *first;       /* [pairs + 1] where the sends of a pair begin in `send` */
    int64_t *n[4];        /* [pairs] how many SEND, SENT, RECV and RECVD have been read */
    wf_pipe_action *send; /* by pair and in order */
} pairs;

enum { SEND, SENT, RECV, RECVD, STEPS };

/* Which of the four it is; -1: no message. */
static int step_of(const wf_pipe_action *a)
{
    if (a->kind < WF_PIPE_SEND_F || a->kind > WF_PIPE_RECVD_B)
        return -1;
    return (a->kind - WF_PIPE_SEND_F) % STEPS;
}

static int64_t pair_of(const pairs *c, const wf_pipe_action *a)
{
    int here = c->table->stage_rank[a->stage],
        there = c->table->stage_rank[wf_pipe_peer_stage(a)];
    bool sends = step_of(a) == SEND || step_of(a) == SENT;

    return (int64_t)(sends ? here : there) * c->table->shape.ranks + (sends ? there : here);
}

static void read_sends(pairs *c)
{
    const wf_pipe_table *t = c->table;
    int64_t all = (int64_t)t->shape.ranks * t->shape.ranks;

    for (int counted = 0; counted < 2; counted++) {
        for (int r = 0; r < t->shape.ranks; r++)
            for (int64_t i = 0; i < t->row[r].n; i++) {
                const wf_pipe_action *a = &t->row[r].action[i];
                int64_t pair;

                if (step_of(a) != SEND)
                    continue;
                pair = pair_of(c, a);
                if (counted)
                    c->send[c->first[pair] + c->n[SEND][pair]++] = *a;
                else
                    c->first[pair + 1]++;
            }
        for (int64_t p = 0; !counted && p < all; p++)
            c->first[p + 1] += c->first[p];
    }
    for (int64_t p = 0; p < all; p++)
        c->n[SEND][p] = 0;
}

/* The k-th RECV, and the k-th RECVD, of a pair is of its k-th SEND. */
static wf_status match(const pairs *c, const wf_pipe_action *a, int64_t pair, int64_t k,
                       wf_error *error)
{
    const wf_pipe_action *sent = &c->send[c->first[pair] + k];
    int ranks = c->table->shape.ranks;
    char here[48], there[48];

    if (wf_pipe_peer_stage(sent) == a->stage && sent->micro == a->micro &&
        wf_pipe_forward_message(sent->kind) == wf_pipe_forward_message(a->kind))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "message %lld from rank %d to rank %d is %s where it is sent, and %s "
                        "where it is received: receive in the order of the sends",
                        (long long)k, (int)(pair / ranks), (int)(pair % ranks),
                        wf_pipe_action_text(sent, there, sizeof there),
                        wf_pipe_action_text(a, here, sizeof here));
}

static wf_status read_row(pairs *c, int rank, wf_pipe_proof *proof, wf_error *error)
{
    const wf_pipe_row *row = &c->table->row[rank];
    wf_status status = WF_OK;

    for (int64_t i = 0; status == WF_OK && i < row->n; i++) {
        const wf_pipe_action *a = &row->action[i];
        int step = step_of(a);
        int64_t pair, open;

        if (step < 0)
            continue;
        pair = pair_of(c, a);
        if (step == RECV || step == RECVD)
            status = match(c, a, pair, c->n[step][pair], error);
        c->n[step][pair]++;
        open = step < RECV ? c->n[SEND][pair] - c->n[SENT][pair]
                           : c->n[RECV][pair] - c->n[RECVD][pair];
        if (step == SEND && open > proof->in_flight)
            proof->in_flight = (int)open;
        if (status == WF_OK && open > WF_PIPE_MOST_IN_FLIGHT)
            status = wf_error_set(error, WF_EINVAL,
                                  "rank %d, action %lld: more than %d messages from rank %d to "
                                  "rank %d have begun and not ended: lower with a smaller "
                                  "depth",
                                  rank, (long long)i, WF_PIPE_MOST_IN_FLIGHT,
                                  (int)(pair / c->table->shape.ranks),
                                  (int)(pair % c->table->shape.ranks));
        proof->messages += step == SEND;
    }
    return status;
}

wf_status wf_pipe_prove_messages(const wf_pipe_table *table, wf_pipe_proof *proof,
                                 wf_error *error)
{
    size_t ranks = (size_t)table->shape.ranks, all = ranks * ranks;
    size_t most = 2 * (size_t)table->shape.stages * (size_t)table->shape.micro;
    pairs c = {.table = table};
    wf_status status = WF_OK;

    c.first = calloc((1 + STEPS) * all + 1, sizeof *c.first);
    c.send = malloc(most * sizeof *c.send);
    if (!c.first || !c.send)
        status = wf_error_set(error, WF_ENOMEM, "no memory to prove %zu messages", most);
    for (int s = 0; status == WF_OK && s < STEPS; s++)
        c.n[s] = c.first + all + 1 + (size_t)s * all;
    if (status == WF_OK)
        read_sends(&c);
    for (int r = 0; status == WF_OK && r < table->shape.ranks; r++)
        status = read_row(&c, r, proof, error);
    free(c.first);
    free(c.send);
    return status;
}
