/* parallel/pipeline/lower_messages.c - inserts messages: their order follows from the rows of
   the ranks that send, and the others receive in that order. */
#include "parallel/pipeline/lower_internal.h"
#include <stdlib.h>

/* The channels of all pairs of ranks; the pair (from, to) is the one of index from * ranks +
   to. */
typedef struct channels {
    const wf_pipe_table *in;
    wf_pipe_table *out;
    int depth, ahead;
    int64_t *first;          /* [pairs + 1] where the messages of a pair begin in `message` */
    int64_t *begun;          /* [pairs] how many are begun by SEND, while rows are filled */
    int64_t *posted;         /* [pairs] by RECV */
    int64_t *ended;          /* [pairs] by RECVD */
    wf_pipe_action *message; /* the SEND of each, by pair and in order */
    int64_t *index;          /* [2 * stages * micro-batches] which of its pair a message is */
} channels;

int wf_pipe_sends_to(const wf_pipe_table *t, const wf_pipe_action *a)
{
    int to =
        a->kind == WF_PIPE_F ? a->stage + 1
        : (a->kind == WF_PIPE_I || a->kind == WF_PIPE_B) && wf_pipe_gradient_leaves(t, a->stage)
            ? a->stage - 1
            : -1;

    return to >= 0 && to < t->shape.stages && t->stage_rank[to] != t->stage_rank[a->stage] ? to
                                                                                           : -1;
}

int wf_pipe_takes_from(const wf_pipe_table *t, const wf_pipe_action *a)
{
    int from = a->kind == WF_PIPE_F ? a->stage - 1
               : (a->kind == WF_PIPE_I || a->kind == WF_PIPE_B) &&
                       wf_pipe_gradient_leaves(t, a->stage + 1)
                   ? a->stage + 1
                   : -1;

    return from >= 0 && from < t->shape.stages && t->stage_rank[from] != t->stage_rank[a->stage]
               ? from
               : -1;
}

int64_t wf_pipe_message_at(const wf_pipe_table *t, bool forward, int to_stage, int micro)
{
    int64_t at = wf_pipe_at(t, to_stage, micro);

    return forward ? at : at + (int64_t)t->shape.stages * t->shape.micro;
}

static int64_t pair_of(const channels *c, int from_stage, int to_stage)
{
    return (int64_t)c->in->stage_rank[from_stage] * c->in->shape.ranks +
           c->in->stage_rank[to_stage];
}

/* Numbers the messages of each pair in the order of the rows. */
static void number_messages(channels *c)
{
    const wf_pipe_table *in = c->in;
    int64_t pairs = (int64_t)in->shape.ranks * in->shape.ranks;

    for (int counted = 0; counted < 2; counted++) {
        for (int r = 0; r < in->shape.ranks; r++)
            for (int64_t i = 0; i < in->row[r].n; i++) {
                const wf_pipe_action *a = &in->row[r].action[i];
                int to = wf_pipe_sends_to(in, a);
                bool forward = a->kind == WF_PIPE_F;
                int64_t pair;

                if (to < 0)
                    continue;
                pair = pair_of(c, a->stage, to);
                if (counted) {
                    c->index[wf_pipe_message_at(in, forward, to, a->micro)] = c->begun[pair];
                    c->message[c->first[pair] + c->begun[pair]++] =
                        (wf_pipe_action){forward ? WF_PIPE_SEND_F : WF_PIPE_SEND_B, false,
                                         a->stage, a->micro, a->micro};
                } else {
                    c->first[pair + 1]++;
                }
            }
        for (int64_t p = 0; !counted && p < pairs; p++)
            c->first[p + 1] += c->first[p];
    }
    for (int64_t p = 0; p < pairs; p++)
        c->begun[p] = 0;
}

/* Adds SENT of a pair's i-th message to the row of the rank that sends. */
static void add_sent(channels *c, int rank, int64_t pair, int64_t i)
{
    wf_pipe_action a = c->message[c->first[pair] + i];

    a.kind = a.kind == WF_PIPE_SEND_F ? WF_PIPE_SENT_F : WF_PIPE_SENT_B;
    wf_pipe_table_append(c->out, rank, &a);
}

/* Adds RECV or RECVD of a pair's i-th message to the row of the rank that receives. */
static void add_receive(channels *c, int rank, int64_t pair, int64_t i, bool end)
{
    wf_pipe_action a = c->message[c->first[pair] + i];
    bool forward = a.kind == WF_PIPE_SEND_F;

    a.stage = (int16_t)(forward ? a.stage + 1 : a.stage - 1);
    a.kind = forward ? (end ? WF_PIPE_RECVD_F : WF_PIPE_RECV_F)
                     : (end ? WF_PIPE_RECVD_B : WF_PIPE_RECV_B);
    wf_pipe_table_append(c->out, rank, &a);
}

static void post(channels *c, int rank, int64_t pair, int64_t until)
{
    int64_t all = c->first[pair + 1] - c->first[pair];

    while (c->posted[pair] < until && c->posted[pair] < all)
        add_receive(c, rank, pair, c->posted[pair]++, false);
}

static void receive(channels *c, int rank, const wf_pipe_action *a)
{
    int from = wf_pipe_takes_from(c->in, a);
    int64_t pair, index;

    if (from < 0)
        return;
    pair = pair_of(c, from, a->stage);
    index = c->index[wf_pipe_message_at(c->in, a->kind == WF_PIPE_F, a->stage, a->micro)];
    while (c->ended[pair] <= index) {
        post(c, rank, pair, c->ended[pair] + 1);
        add_receive(c, rank, pair, c->ended[pair]++, true);
        post(c, rank, pair, c->ended[pair] + c->ahead);
    }
}

static void send(channels *c, int rank, const wf_pipe_action *a)
{
    int to = wf_pipe_sends_to(c->in, a);
    int64_t pair, i;

    if (to < 0)
        return;
    pair = pair_of(c, a->stage, to);
    i = c->begun[pair]++;
    if (c->depth && i >= c->depth)
        add_sent(c, rank, pair, i - c->depth);
    wf_pipe_table_append(c->out, rank, &c->message[c->first[pair] + i]);
    if (!c->depth)
        add_sent(c, rank, pair, i);
}

static void fill_row(channels *c, int rank)
{
    const wf_pipe_row *row = &c->in->row[rank];
    int ranks = c->in->shape.ranks;

    for (int from = 0; from < ranks; from++)
        post(c, rank, (int64_t)from * ranks + rank, c->ahead);
    for (int64_t i = 0, n; i < row->n; i += n) {
        n = wf_pipe_together(row, i);
        for (int64_t k = 0; k < n; k++)
            receive(c, rank, &row->action[i + k]);
        for (int64_t k = 0; k < n; k++)
            wf_pipe_table_append(c->out, rank, &row->action[i + k]);
        for (int64_t k = 0; k < n; k++)
            send(c, rank, &row->action[i + k]);
    }
    for (int to = 0; c->depth && to < ranks; to++) {
        int64_t pair = (int64_t)rank * ranks + to, all = c->begun[pair];

        for (int64_t i = all > c->depth ? all - c->depth : 0; i < all; i++)
            add_sent(c, rank, pair, i);
    }
}

wf_status wf_pipe_pass_messages(const wf_pipe_table *in, const wf_pipe_lowering *how,
                                wf_pipe_table *out)
{
    size_t pairs = (size_t)in->shape.ranks * (size_t)in->shape.ranks;
    size_t messages = 2 * (size_t)in->shape.stages * (size_t)in->shape.micro;
    channels c = {.in = in, .out = out, .depth = how->depth, .ahead = how->ahead};

    c.first = calloc(4 * pairs + 1, sizeof *c.first);
    c.message = malloc(messages * sizeof *c.message);
    c.index = malloc(messages * sizeof *c.index);
    if (!c.first || !c.message || !c.index) {
        wf_error_set(&out->error, WF_ENOMEM, "no memory for %zu messages", messages);
    } else {
        c.begun = c.first + pairs + 1;
        c.posted = c.begun + pairs;
        c.ended = c.posted + pairs;
        number_messages(&c);
        for (int r = 0; r < in->shape.ranks && out->error.code == WF_OK; r++)
            fill_row(&c, r);
    }
    free(c.first);
    free(c.message);
    free(c.index);
    return out->error.code;
}
