/*
 * mesh/cluster/placement_search.c - the cheapest of all placements of a few ranks on a few
 * seats.
 *
 * Ranks take seats one after the other. A group's worst link only gets worse as members sit
 * down, so the cost so far is a lower bound, and what is not below the best is not followed.
 */
#include "mesh/cluster/placement_internal.h"
#include <math.h>
#include <string.h>

typedef struct search {
    wf_placement *p;
    const int *rank;
    const wf_seat *seat;
    int ranks, seats;
    int at[WF_PLACEMENT_EXHAUSTIVE], best[WF_PLACEMENT_EXHAUSTIVE]; /* seats of the ranks */
    double best_cost;
} search;

/* Returns false where rank r, one of those that move, has no seat yet at step `turn` of the
   search; else true, and its seat. */
static bool seated(const search *s, int r, int turn, wf_seat *seat)
{
    for (int i = 0; i < s->ranks; i++)
        if (s->rank[i] == r) {
            if (i > turn)
                return false;
            *seat = s->seat[s->at[i]];
            return true;
        }
    *seat = s->p->seat[r];
    return true;
}

/* Returns the weight of the worst link of a group, of those seated. */
static double group_weight(const search *s, int first, int size, int stride, int turn)
{
    int worst = -1;
    wf_seat a, b;

    for (int i = 1; i < size && worst < WF_LINK_NETWORK; i++)
        for (int j = 0; seated(s, first + i * stride, turn, &a) && j < i; j++)
            if (seated(s, first + j * stride, turn, &b)) {
                int link = (int)wf_seat_link(s->p, a, b);

                worst = link > worst ? link : worst;
            }
    return worst < 0 ? 0 : s->p->weight[worst];
}

/* Returns the cost that the rank seated at step `turn` adds to its groups. */
static double added_cost(const search *s, int turn)
{
    double sum = 0;

    for (int axis = 0; axis < s->p->n_axes; axis++) {
        const wf_placement_axis *a = &s->p->axis[axis];
        int stride = wf_placement_stride(s->p, axis);
        int first = wf_placement_first(s->p, s->rank[turn], axis);

        sum += a->bytes * a->size *
               (group_weight(s, first, a->size, stride, turn) -
                group_weight(s, first, a->size, stride, turn - 1));
    }
    return sum;
}

static void seat_from(search *s, int turn, unsigned taken, double cost)
{
    if (cost >= s->best_cost)
        return;
    if (turn == s->ranks) {
        memcpy(s->best, s->at, sizeof s->best);
        s->best_cost = cost;
        return;
    }
    for (int i = 0; i < s->seats; i++)
        if (!(taken >> i & 1)) {
            s->at[turn] = i;
            seat_from(s, turn + 1, taken | 1u << i, cost + added_cost(s, turn));
        }
}

void wf_placement_search(wf_placement *p, const int *rank, int ranks, const wf_seat *seat,
                         int seats)
{
    search s = {.p = p,
                .rank = rank,
                .seat = seat,
                .ranks = ranks,
                .seats = seats,
                .best_cost = INFINITY};

    seat_from(&s, 0, 0, 0);
    for (int i = 0; i < ranks; i++)
        p->seat[rank[i]] = seat[s.best[i]];
}
