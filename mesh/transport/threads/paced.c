/*
 * mesh/transport/threads/paced.c - exchanges and messages that take the time of another machine
 * (core/pace.h). Data move as ever, at once; members continue when the data would be there.
 *
 *     in the background   an exchange begins when all have posted and the one before it is
 *                         over; a message when both ends have posted and the one before it has
 *                         passed the link
 *     else                the member that ends it moves it, from when all have posted
 */
#include "mesh/transport/threads/exchange_internal.h"
#include <stdlib.h>
#include <string.h>

static double later(double a, double b)
{
    return a > b ? a : b;
}

wf_pace *wf_threads_pace(const threads_comm *c)
{
    wf_pace *pace = c->base.pace;

    return pace && pace->machine && c->base.size > 1 ? pace : NULL;
}

void wf_threads_pace_post(threads_comm *c, slot *p)
{
    const wf_pace *pace = wf_threads_pace(c);
    group *g = c->group;

    if (!pace)
        return;
    wf_pace_sleep(pace);
    pthread_mutex_lock(&g->lock);
    p->latest = later(p->latest, pace->now);
    pthread_mutex_unlock(&g->lock);
}

void wf_threads_pace_end(threads_comm *c, const wf_exchange *x, slot *p)
{
    wf_pace *pace = wf_threads_pace(c);
    wf_pace_transfer what = {x->print.op, x->whole, c->group->members, c->base.size};
    group *g = c->group;
    double latency = 0, takes, end;

    if (!pace)
        return;
    takes = pace->machine->transfer(pace->machine->self, &what, &latency) + latency;
    pthread_mutex_lock(&g->lock);
    if (!x->background || !pace->machine->background) {
        end = later(p->latest, pace->now) + takes;
    } else {
        if (p->due <= 0)
            g->lane = p->due = later(p->latest, g->lane) + takes;
        end = p->due;
    }
    pthread_mutex_unlock(&g->lock);
    wf_pace_until(pace, end);
}

/* ---- messages ---- */

static bool in_background(const wf_pace *pace)
{
    return pace && pace->machine->background;
}

/* Posts a throttled send. A sender's buffer is free when the message would have arrived, which
   may be before its receiver takes it: so the data are copied. */
wf_status wf_threads_pace_send(threads_comm *c, wf_exchange *x, message *m, wf_error *error)
{
    const wf_pace *pace = wf_threads_pace(c);

    m->data = x->send;
    if (!pace)
        return WF_OK;
    wf_pace_sleep(pace);
    m->sent_at = pace->now;
    m->arrives = 0;
    if (!in_background(pace))
        return WF_OK;
    free(m->copy);
    m->copy = malloc(x->bytes ? x->bytes : 1);
    if (!m->copy)
        return wf_error_set(error, WF_ENOMEM, "no memory for a paced message of %zu bytes",
                            x->bytes);
    memcpy(m->copy, x->send, x->bytes);
    m->data = m->copy;
    return WF_OK;
}

void wf_threads_pace_recv(threads_comm *c, const wf_exchange *x)
{
    const wf_pace *pace = wf_threads_pace(c);
    channel *line;

    if (!pace)
        return;
    line = wf_threads_line(c, x, false);
    wf_pace_sleep(pace);
    line->ring[x->sequence % MESSAGES].received_at = pace->now;
    atomic_store(&line->posted, x->sequence + 1);
    wf_threads_wake(c->group);
}

/* Returns when a message arrives whose ends are posted, computed by the end that asks first. */
static double arrival(const threads_comm *c, const wf_exchange *x, channel *line)
{
    const wf_pace *pace = c->base.pace;
    message *m = &line->ring[x->sequence % MESSAGES];
    const int ends[2] = {c->group->members[line->from], c->group->members[line->to]};
    wf_pace_transfer what = {"send", (int64_t)x->bytes, ends, 2};
    double latency = 0, takes = pace->machine->transfer(pace->machine->self, &what, &latency);

    pthread_mutex_lock(&c->group->lock);
    if (m->arrives <= 0 && !pace->machine->background) {
        m->arrives = later(m->sent_at, pace->now) + latency + takes;
    } else if (m->arrives <= 0) {
        line->free_at = later(line->free_at, later(m->sent_at, m->received_at)) + takes;
        m->arrives = line->free_at + latency;
    }
    takes = m->arrives;
    pthread_mutex_unlock(&c->group->lock);
    return takes;
}

/* Waits, by the emulated clock, for a message to arrive: the receiver has it, or will take
   it. */
void wf_threads_pace_arrive(threads_comm *c, const wf_exchange *x, bool sends)
{
    wf_pace *pace = wf_threads_pace(c);

    if (pace)
        wf_pace_until(pace, arrival(c, x, wf_threads_line(c, x, sends)));
}

/* Returns true where the sender may continue as soon as the receiver has posted. */
bool wf_threads_pace_is_kept(const threads_comm *c)
{
    return in_background(wf_threads_pace(c));
}
