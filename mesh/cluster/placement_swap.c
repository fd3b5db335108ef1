/*
 * mesh/cluster/placement_swap.c - from a good placement to one that no single step makes
 * cheaper: two ranks that change seats, or a rank that takes a free one.
 *
 * A step changes the cost of the groups of these ranks alone.
 */
#include "mesh/cluster/placement_internal.h"
#include <stdlib.h>

/* A rank's seat, or an empty one (rank -1). */
typedef struct chair {
    wf_seat seat;
    int rank;
} chair;

static double group_cost(const wf_placement *p, int axis, int rank)
{
    const wf_placement_axis *a = &p->axis[axis];
    int stride = wf_placement_stride(p, axis), first = wf_placement_first(p, rank, axis);
    int worst = wf_placement_worst(p, first, a->size, stride);

    return worst < 0 ? 0 : a->bytes * a->size * p->weight[worst];
}

/* Returns the cost of all groups of two ranks, those of both once. */
static double cost_of_two(const wf_placement *p, int a, int b)
{
    double sum = 0;

    for (int axis = 0; axis < p->n_axes; axis++) {
        sum += group_cost(p, axis, a);
        if (b >= 0 && wf_placement_first(p, a, axis) != wf_placement_first(p, b, axis))
            sum += group_cost(p, axis, b);
    }
    return sum;
}

static void exchange(wf_placement *p, chair *a, chair *b)
{
    int rank = a->rank;

    a->rank = b->rank;
    b->rank = rank;
    if (a->rank >= 0)
        p->seat[a->rank] = a->seat;
    if (b->rank >= 0)
        p->seat[b->rank] = b->seat;
}

/* Exchanges two seats where that is cheaper, by more than rounding. */
static bool try_exchange(wf_placement *p, chair *a, chair *b)
{
    int one = a->rank >= 0 ? a->rank : b->rank, other = a->rank >= 0 ? b->rank : -1;
    double before, after;

    if (one < 0)
        return false;
    before = cost_of_two(p, one, other);
    exchange(p, a, b);
    after = cost_of_two(p, one, other);
    if (after < before * (1 - 1e-9))
        return true;
    exchange(p, a, b);
    return false;
}

wf_status wf_placement_swap(wf_placement *p, const wf_seat *seat, int seats, wf_error *error)
{
    chair *chairs;
    bool better = (int64_t)p->ranks * seats <= WF_PLACEMENT_SWAPS;

    if (!better)
        return WF_OK;
    chairs = malloc((size_t)seats * sizeof *chairs);
    if (!chairs)
        return wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", p->ranks);
    for (int i = 0; i < seats; i++) {
        chairs[i] = (chair){.seat = seat[i], .rank = -1};
        for (int r = 0; r < p->ranks; r++)
            if (p->seat[r].host == seat[i].host && p->seat[r].device == seat[i].device)
                chairs[i].rank = r;
    }
    while (better) {
        better = false;
        for (int i = 0; i < seats; i++)
            for (int k = 0; k < i; k++)
                better |= try_exchange(p, &chairs[i], &chairs[k]);
    }
    free(chairs);
    return WF_OK;
}
