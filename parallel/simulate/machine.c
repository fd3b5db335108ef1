/* parallel/simulate/machine.c - links of groups, and what collectives take; see the header. */
#include "parallel/simulate/machine.h"

/* Ranks of a group that share a host. */
static int64_t members_of(const wf_sim_machine *m, int64_t ranks, int64_t stride)
{
    int64_t members = stride < m->devices ? m->devices / stride : 1;

    return members < ranks ? members : ranks;
}

wf_sim_link wf_sim_link_of(const wf_sim_machine *m, int64_t ranks, int64_t stride)
{
    return ranks * stride <= m->devices ? m->inside : m->network;
}

/* Returns how often n can be halved, rounded up: the steps of recursive doubling. */
static int steps_of(int64_t n)
{
    int steps = 0;

    while ((int64_t)1 << steps < n)
        steps++;
    return steps;
}

/* Returns the seconds of an all-gather: inside hosts, where all but a rank's own part passes
   its link; and between hosts, where all but the host's own part comes in over the links of all
   members there. */
static double pass(const wf_sim_machine *m, double bytes, int64_t ranks, int64_t stride)
{
    int64_t members = members_of(m, ranks, stride), hosts = (ranks + members - 1) / members;
    double inside =
        members > 1 ? bytes * (double)(ranks - 1) / (double)ranks / m->inside.bandwidth : 0;
    double between =
        bytes * (double)(hosts - 1) / (double)hosts / ((double)members * m->network.bandwidth);

    return inside > between ? inside : between;
}

double wf_sim_collective(const wf_sim_machine *m, wf_sim_move move, double bytes, int64_t ranks,
                         int64_t stride)
{
    wf_sim_link link = wf_sim_link_of(m, ranks, stride);
    int times = move == WF_SIM_ALL_REDUCE ? 2 : 1;

    if (ranks < 2 || bytes <= 0)
        return 0;
    if (move == WF_SIM_MESSAGE)
        return bytes / link.bandwidth + link.latency;
    if (move == WF_SIM_BROADCAST)
        return bytes / link.bandwidth + steps_of(ranks) * link.latency;
    return times * (pass(m, bytes, ranks, stride) + steps_of(ranks) * link.latency);
}
