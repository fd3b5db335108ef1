/*
 * parallel/simulate/share.c - fewer cores than ranks: those that compute share the cores
 * evenly, so how fast each one is changes whenever one begins or ends.
 */
#include "parallel/simulate/events_internal.h"
#include <stdlib.h>

/* The current action of a rank. */
typedef struct doing {
    bool active;
    double left; /* the rest of its action, in seconds of a core of its own */
    wf_sim_turn turn;
} doing;

static const double forever = 1e300, nearly = 1e-12;

/* Everyone who is free looks at its next action; what takes no time is done at once. */
static bool start_all(wf_sim_state *s, doing *d, double now)
{
    bool moved = true, any = false;

    while (moved) {
        moved = false;
        for (int r = 0; r < s->shape.ranks; r++) {
            if (d[r].active || s->next[r] == s->n[r])
                continue;
            d[r].turn = wf_sim_look(s, r);
            if (d[r].turn.begin < 0)
                continue;
            any = moved = true;
            if (d[r].turn.duration > 0 || d[r].turn.begin > now) {
                d[r].active = true;
                d[r].left = d[r].turn.duration;
            } else {
                wf_sim_commit(s, r, &d[r].turn, d[r].turn.begin);
            }
        }
    }
    return any;
}

static int computing(const wf_sim_state *s, const doing *d, double now)
{
    int n = 0;

    for (int r = 0; r < s->shape.ranks; r++)
        n += d[r].active && d[r].turn.begin <= now && d[r].left > 0;
    return n;
}

/* The next moment at which anything begins or ends. */
static double next_moment(const wf_sim_state *s, const doing *d, double now, double rate)
{
    double next = forever;

    for (int r = 0; r < s->shape.ranks; r++) {
        double t = d[r].turn.begin > now ? d[r].turn.begin : now + d[r].left / rate;

        if (d[r].active && t < next)
            next = t;
    }
    return next;
}

static void pass_time(wf_sim_state *s, doing *d, double now, double next, double rate)
{
    for (int r = 0; r < s->shape.ranks; r++) {
        if (!d[r].active || d[r].turn.begin > now)
            continue;
        d[r].left -= (next - now) * rate;
        if (d[r].left > nearly * (d[r].turn.duration + nearly))
            continue;
        d[r].active = false;
        wf_sim_commit(s, r, &d[r].turn, next);
    }
}

bool wf_sim_share(wf_sim_state *s)
{
    doing *d = calloc((size_t)s->shape.ranks, sizeof *d);
    double now = 0;
    bool ended = d != NULL;

    while (d) {
        double rate = 1, next;
        int n;

        start_all(s, d, now);
        n = computing(s, d, now);
        if (n > s->costs->cores)
            rate = (double)s->costs->cores / n;
        next = next_moment(s, d, now, rate);
        if (next >= forever)
            break;
        pass_time(s, d, now, next, rate);
        now = next;
    }
    for (int r = 0; d && r < s->shape.ranks; r++)
        ended &= s->next[r] == s->n[r];
    free(d);
    return ended;
}
