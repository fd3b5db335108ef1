/*
 * parallel/simulate/path.c - the critical path: from the last action back to what each one
 * waited for, with all of the time between them given to a term.
 */
#include "parallel/simulate/events_internal.h"
#include <stdlib.h>

static int last_rank(const wf_sim_state *s)
{
    int last = 0;

    for (int r = 1; r < s->shape.ranks; r++)
        if (s->clock[r] > s->clock[last])
            last = r;
    return last;
}

static void add_cost(const wf_sim_state *s, const wf_pipe_action *a, wf_sim_cost *cost)
{
    wf_sim_cost one = {{0}};

    if (a->kind <= WF_PIPE_R)
        one = wf_sim_cost_of(s, a);
    for (int t = 0; t < WF_SIM_TERMS; t++)
        cost->of[t] += one.of[t];
}

/* Adds the costs of actions that end together, by term, scaled to the time that they took:
   cores may have been shared. */
static void add_actions(wf_sim_state *s, int rank, int64_t i, int64_t first)
{
    wf_sim_result *r = s->result;
    int kind = s->row[rank][i].kind;
    double took = r->end[rank][i] - r->start[rank][i], all;
    wf_sim_cost cost = {{0}};

    for (int64_t k = first; k <= i; k++)
        add_cost(s, &s->row[rank][k], &cost);
    if (first < i)
        cost.of[WF_SIM_EXPERTS] -= wf_sim_hidden(s, &s->row[rank][first]);
    all = wf_sim_total(&cost);
    if (all <= 0) {
        wf_sim_term term = kind == WF_PIPE_REDUCED ? WF_SIM_REDUCE
                           : kind >= WF_PIPE_TIE   ? WF_SIM_OPTIMIZER
                                                   : WF_SIM_PIPELINE;

        r->path.of[term] += took;
        return;
    }
    if (s->costs->cores <= 0) {
        const wf_sim_cause *c = &s->cause[rank][i];

        r->path.of[WF_SIM_GATHER] += c->gathers;
        r->path.of[WF_SIM_REDUCE] += c->reductions;
        took -= c->gathers + c->reductions;
    }
    for (int t = 0; t < WF_SIM_TERMS; t++)
        r->path.of[t] += cost.of[t] * took / all;
}

static wf_status put(wf_sim_result *r, int64_t *room, int rank, int64_t i, wf_error *error)
{
    if (r->actions == *room) {
        int64_t wider = *room ? 2 * *room : 256;
        wf_sim_action *more = realloc(r->action, (size_t)wider * sizeof *more);

        if (!more)
            return wf_error_set(error, WF_ENOMEM, "no memory for a critical path");
        r->action = more;
        *room = wider;
    }
    r->action[r->actions++] = (wf_sim_action){rank, i, r->start[rank][i], r->end[rank][i]};
    return WF_OK;
}

static void turn_round(wf_sim_result *r)
{
    for (int64_t i = 0; i < r->actions / 2; i++) {
        wf_sim_action a = r->action[i];

        r->action[i] = r->action[r->actions - 1 - i];
        r->action[r->actions - 1 - i] = a;
    }
}

wf_status wf_sim_path(wf_sim_state *s, wf_error *error)
{
    wf_sim_result *r = s->result;
    int rank = last_rank(s);
    int64_t i = s->n[rank] - 1, room = 0;

    while (i >= 0 && error->code == WF_OK) {
        const wf_sim_cause *c = &s->cause[rank][i];
        double begin = r->start[rank][i];
        int64_t last = i;

        if (i > 0 && wf_sim_is_block(s, rank, i - 1))
            i--;
        if (r->end[rank][i] > begin && put(r, &room, rank, i, error) == WF_OK)
            add_actions(s, rank, last, i);
        if (c->rank >= 0 && c->index >= 0 && r->end[c->rank][c->index] <= begin) {
            r->path.of[c->term] += begin - r->end[c->rank][c->index];
            rank = c->rank;
            i = c->index;
        } else {
            i--;
        }
    }
    turn_round(r);
    return error->code;
}
