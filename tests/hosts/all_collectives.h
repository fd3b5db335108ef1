/* tests/hosts/all_collectives.h - a collective of each kind, also of those that training does
   not need. */
#ifndef WF_TESTS_HOSTS_ALL_COLLECTIVES_H
#define WF_TESTS_HOSTS_ALL_COLLECTIVES_H

#include "mesh/comm/collective.h"
#include "mesh/transport/launcher.h"

/* One collective of each kind, over the world. */
static inline void make_all_kinds(wf_rank *me)
{
    enum { MOST = 64 };
    wf_comm *world = me->world;
    wf_error *error = &me->error;
    int n = me->size, next = (me->index + 1) % n, before = (me->index + n - 1) % n;
    float in[MOST] = {0}, out[MOST];
    int64_t cuts[MOST + 1];

    for (int i = 0; i <= n; i++)
        cuts[i] = i;
    wf_all_reduce(world, WF_REDUCE_SUM, in, out, n, error);
    wf_reduce_scatter(world, WF_REDUCE_SUM, in, out, cuts, error);
    wf_all_gather(world, sizeof(float), in, out, cuts, error);
    wf_all_to_all(world, sizeof(float), in, cuts, out, cuts, error);
    wf_broadcast(world, sizeof(float), 0, in, n, error);
    if (me->index % 2)
        wf_recv(world, sizeof(float), before, in, 1, error);
    wf_send(world, sizeof(float), next, in, 1, error);
    if (me->index % 2 == 0)
        wf_recv(world, sizeof(float), before, in, 1, error);
    wf_barrier(world, error);
}

#endif
