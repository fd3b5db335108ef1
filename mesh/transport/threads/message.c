/* mesh/transport/threads/message.c - messages from one thread to another, over channels of
   their own. */
#include "mesh/transport/threads/exchange_internal.h"

/* Wait until message x->sequence of the channel has come `steps` further: 0 free, 1 sent, 2
   received. */
static wf_status wait_message(threads_comm *c, wf_exchange *x, uint64_t steps, wf_error *error)
{
    message *m = x->slot;
    need n = {.group = c->group,
              .word = &m->mark,
              .target = 2 * (x->sequence / MESSAGES) + steps,
              .peer = x->peer,
              .op = x->print.op,
              .call = x->sequence};
    wf_status status = wf_threads_wait(c, &n, error);

    return status == WF_OK ? WF_OK : wf_threads_give_up(c, x, status);
}

channel *wf_threads_line(const threads_comm *c, const wf_exchange *x, bool sends)
{
    int me = c->base.rank;

    return wf_threads_channel(c->group, sends ? me : x->peer, sends ? x->peer : me);
}

/* Waits until the receiver has posted, for a paced message that moves in the background: the
   receiver need not have arrived to take it. */
static wf_status wait_posted(threads_comm *c, wf_exchange *x, wf_error *error)
{
    const channel *line = wf_threads_line(c, x, true);
    need n = {.group = c->group,
              .word = &line->posted,
              .target = x->sequence + 1,
              .peer = x->peer,
              .op = x->print.op,
              .call = x->sequence};
    wf_status status = wf_threads_wait(c, &n, error);

    return status == WF_OK ? WF_OK : wf_threads_give_up(c, x, status);
}

static wf_status finish_send(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    wf_status status =
        wf_threads_pace_is_kept(c) ? wait_posted(c, x, error) : wait_message(c, x, 2, error);

    if (status == WF_OK)
        status = wf_threads_follow(x, &((const message *)x->slot)->taken_at, error);
    if (status == WF_OK)
        wf_threads_pace_arrive(c, x, true);
    return status;
}

/* Copies a message, by a device in the order of what the receiver has it do: earlier work on
   the memory may not be over. */
static wf_status take(const wf_exchange *x, message *m, wf_error *error)
{
    const wf_copy copy = {.from = m->data, .to = x->recv, .bytes = x->bytes, .rows = 1};
    wf_status status;

    if (!x->device)
        return wf_threads_copy(x, x->recv, m->data, x->bytes, error);
    status = wf_threads_follow(x, &m->brought_at, error);
    if (status == WF_OK)
        status = x->device->memory->copy(x->device, &copy, false, error);
    return status == WF_OK ? wf_threads_mark(x, &m->taken_at, error) : status;
}

static wf_status finish_recv(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    message *m = x->slot;
    wf_status status = wait_message(c, x, 1, error);

    if (status != WF_OK)
        return status;
    status = wf_threads_begin_reading(c, x, error);
    if (status != WF_OK)
        return wf_threads_give_up(c, x, status);
    if (!wf_fingerprint_meets(&m->print, &x->print))
        return wf_threads_give_up(c, x, wf_threads_mismatch(c, x, x->peer, &m->print, error));
    wf_threads_pace_arrive(c, x, false);
    status = take(x, m, error);
    if (status != WF_OK)
        return wf_threads_give_up(c, x, status);
    wf_threads_end_reading(c, x);
    atomic_fetch_add(&m->mark, 1);
    wf_threads_wake(c->group);
    return WF_OK;
}

static wf_status open_channel(threads_comm *c, wf_exchange *x, bool sends, wf_error *error)
{
    wf_status status = wf_threads_check(c, x->print.op, c->sequence, error);
    uint64_t *mine;
    channel *line;

    if (status != WF_OK)
        return status;
    line = wf_threads_line(c, x, sends);
    if (!line)
        return wf_error_set(error, WF_ENOMEM, "no memory for a channel between ranks %d and %d",
                            c->world_rank, c->group->members[x->peer]);
    x->reading = false;
    mine = sends ? &line->sent : &line->received; /* the other count is the other end's alone */
    x->sequence = (*mine)++;
    x->slot = &line->ring[x->sequence % MESSAGES];
    return WF_OK;
}

wf_status wf_threads_send(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    wf_status status = open_channel(c, x, true, error);
    message *m = x->slot;

    if (status == WF_OK)
        status = wait_message(c, x, 0, error);
    if (status == WF_OK)
        status = wf_threads_mark(x, &m->brought_at, error);
    if (status != WF_OK)
        return status;
    x->finish = finish_send;
    status = wf_threads_pace_send(c, x, m, error);
    if (status != WF_OK)
        return status;
    m->print = x->print;
    atomic_fetch_add(&m->mark, 1);
    wf_threads_wake(c->group);
    return WF_OK;
}

wf_status wf_threads_recv(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    wf_status status = open_channel(c, x, false, error);

    x->finish = finish_recv;
    if (status == WF_OK)
        wf_threads_pace_recv(c, x);
    return status;
}
