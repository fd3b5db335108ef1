/*
 * tests/mesh/placement_hosts.h - for the tests of placements: hosts from descriptions, and a
 * count and a cost of placements that are independent of the library's.
 */
#ifndef WF_TESTS_MESH_PLACEMENT_HOSTS_H
#define WF_TESTS_MESH_PLACEMENT_HOSTS_H

#include "mesh/cluster/placement_internal.h"
#include "tests/harness.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE_PACKAGE  "pack:1 l3:1 core:8 pu:1"
#define TWO_PACKAGES "pack:2 l3:1 core:4 pu:2"
#define TWO_NODES    "pack:2 numa:2 core:4 pu:1"
#define SMALL_CACHES "pack:1 l3:2 core:2 pu:1"

static inline wf_host *read_host(const char *source)
{
    char path[512];
    wf_error error = {WF_OK, ""};
    wf_host *host;

    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGIES, source);
    CU_ASSERT_EQUAL_FATAL(
        wf_host_read(&(wf_host_options){.source = strstr(source, ".xml") ? path : source},
                     &host, &error),
        WF_OK);
    return host;
}

/* The cost, from its definition: for every pair of ranks in a group, once. */
static inline double cost_of(const wf_placement *p, const wf_seat *seat)
{
    double sum = 0;
    int stride = p->ranks;

    for (int a = 0; a < p->n_axes; a++) {
        int size = p->axis[a].size;

        stride /= size;
        for (int r = 0; r < p->ranks; r++) {
            double worst = 0;

            if (r / stride % size)
                continue;
            for (int i = 0; i < size; i++)
                for (int j = 0; j < i; j++) {
                    wf_seat x = seat[r + i * stride], y = seat[r + j * stride];
                    double w =
                        x.host != y.host
                            ? p->weight[WF_LINK_NETWORK]
                            : p->weight[wf_host_link(p->host[x.host], x.device, y.device)];

                    worst = w > worst ? w : worst;
                }
            sum += size * p->axis[a].bytes * worst;
        }
    }
    return sum;
}

/* The least cost of all placements, and how many were looked at. */
static inline double least_cost(const wf_placement *p, wf_seat *seat, int n, int turn,
                                int64_t *seen)
{
    double least = INFINITY;

    if (turn == p->ranks) {
        ++*seen;
        return cost_of(p, seat);
    }
    for (int i = turn; i < n; i++) {
        wf_seat keep = seat[turn];
        double cost;

        seat[turn] = seat[i];
        seat[i] = keep;
        cost = least_cost(p, seat, n, turn + 1, seen);
        least = cost < least ? cost : least;
        seat[i] = seat[turn];
        seat[turn] = keep;
    }
    return least;
}

static inline int list_seats(const wf_placement *p, wf_seat *seat)
{
    int n = 0;

    for (int h = 0; h < p->n_hosts; h++)
        for (int d = 0; d < p->host[h]->n_devices; d++)
            seat[n++] = (wf_seat){h, d};
    return n;
}

static inline void no_seat_twice(const wf_placement *p)
{
    for (int r = 0; r < p->ranks; r++) {
        CU_ASSERT(p->seat[r].host >= 0 && p->seat[r].host < p->n_hosts);
        CU_ASSERT(p->seat[r].device >= 0 &&
                  p->seat[r].device < p->host[p->seat[r].host]->n_devices);
        for (int s = 0; s < r; s++)
            CU_ASSERT(p->seat[r].host != p->seat[s].host ||
                      p->seat[r].device != p->seat[s].device);
    }
}

#endif
