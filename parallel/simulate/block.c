/* parallel/simulate/block.c - two actions that begin and end together. */
#include "parallel/simulate/events_internal.h"
#include <math.h>

bool wf_sim_is_block(const wf_sim_state *s, int rank, int64_t i)
{
    const wf_pipe_action *a = &s->row[rank][i];

    return a->with_next && i + 1 < s->n[rank] &&
           (s->costs->blocks || (s->costs->beside && wf_pipe_runs_beside(a)));
}

double wf_sim_hidden(const wf_sim_state *s, const wf_pipe_action *a)
{
    double exchanges[2], computed[2];

    if (!s->costs->beside || !wf_pipe_runs_beside(a))
        return 0;
    for (int i = 0; i < 2; i++) {
        const wf_sim_stage *c = &s->costs->stage[a[i].stage];
        const wf_sim_cost cost = wf_sim_cost_of(s, &a[i]);

        exchanges[i] = a[i].kind == WF_PIPE_F ? c->exchange_forward : c->exchange_back;
        computed[i] = wf_sim_total(&cost) - exchanges[i];
    }
    return fmin(exchanges[0], computed[1]) + fmin(exchanges[1], computed[0]);
}
