/* tests/hosts/every_collective.c - see the header. */
#include "tests/hosts/every_collective.h"

void make_every_collective(wf_rank *me, wf_error *error)
{
    enum { MOST = 64 };
    wf_comm *world = me->world;
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
