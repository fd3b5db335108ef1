/*
 * mesh/cluster/placement_pack.c - a good placement of many ranks, bottom up.
 *
 * Blocks are joined along one axis after the other: single seats to groups of the first axis,
 * these to blocks along the second, and so on. Two blocks are as far apart as the worst link
 * between members that will meet, those of the same number. A group grows from a seed by the
 * block nearest to all that it has; of all seeds the group counts whose worst link is nearest,
 * then the one that leaves the fewest others as near (so that it breaks into no larger island
 * than it must), then the first.
 */
#include "mesh/cluster/placement_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct score {
    bool known;
    wf_link worst;
    int left;
} score;

typedef struct packing {
    const wf_placement *p;
    int n, members; /* blocks, and seats of each */
    wf_seat *block; /* [n][members] */
    bool *used;     /* [n] */
    wf_link *far;   /* [n] from all that the growing group has */
    int *group;
    score *score; /* [n] of groups grown from each */
} packing;

static wf_link distance(const packing *k, int a, int b)
{
    const wf_seat *x = k->block + (size_t)a * (size_t)k->members;
    const wf_seat *y = k->block + (size_t)b * (size_t)k->members;
    wf_link worst = WF_LINK_NVLINK;

    for (int i = 0; i < k->members && worst < WF_LINK_NETWORK; i++) {
        wf_link link = wf_seat_link(k->p, x[i], y[i]);

        worst = link > worst ? link : worst;
    }
    return worst;
}

/* Returns the nearest block to all of the group so far; its distance comes up to date on the
   way. */
static int nearest(packing *k, int have)
{
    int best = -1;

    for (int i = 0; i < k->n; i++) {
        wf_link last;

        if (k->used[i])
            continue;
        last = distance(k, k->group[have - 1], i);
        k->far[i] = last > k->far[i] ? last : k->far[i];
        if (best < 0 || k->far[i] < k->far[best])
            best = i;
    }
    return best;
}

/* Fill k->group from a seed. */
static score grow(packing *k, int seed, int size)
{
    score s = {.known = true};

    memset(k->far, 0, (size_t)k->n * sizeof *k->far);
    k->group[0] = seed;
    k->used[seed] = true;
    for (int have = 1; have < size; have++) {
        int next = nearest(k, have);

        s.worst = k->far[next] > s.worst ? k->far[next] : s.worst;
        k->group[have] = next;
        k->used[next] = true;
    }
    for (int i = 0; i < k->n; i++)
        s.left += !k->used[i] && k->far[i] <= s.worst;
    for (int i = 0; i < size; i++)
        k->used[k->group[i]] = false;
    return s;
}

static bool better(const score *a, const score *b)
{
    return a->worst != b->worst ? a->worst < b->worst : a->left < b->left;
}

static int host_of(const packing *k, int block)
{
    return k->block[(size_t)block * (size_t)k->members].host;
}

/* Forgets the scores of blocks on the group's hosts and of those that reach over the network;
   scores inside other hosts stay. */
static void forget_scores(packing *k, int size)
{
    for (int i = 0; i < k->n; i++) {
        bool near = k->score[i].worst == WF_LINK_NETWORK;

        for (int g = 0; g < size && !near; g++)
            near = host_of(k, k->group[g]) == host_of(k, i);
        if (near)
            k->score[i].known = false;
    }
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Leaves the best group in k->group; last: it is all that is left, however it grows. */
static void choose_group(packing *k, int size, bool last)
{
    int best = -1;

    for (int i = 0; i < k->n && !(last && best >= 0); i++) {
        if (k->used[i])
            continue;
        if (!k->score[i].known)
            k->score[i] = grow(k, i, size);
        if (best < 0 || better(&k->score[i], &k->score[best]))
            best = i;
    }
    grow(k, best, size);
    qsort(k->group, (size_t)size, sizeof *k->group, by_number);
}

static int by_first_seat(const void *a, const void *b)
{
    const wf_seat *x = a, *y = b;

    return x->host != y->host ? x->host - y->host : x->device - y->device;
}

/* Join blocks to n groups of `size`; the next step sees them as its blocks. */
static wf_status join(packing *k, int n, int size, wf_error *error)
{
    size_t bytes = (size_t)k->members * sizeof *k->block;
    wf_seat *joined = malloc((size_t)n * (size_t)size * bytes);

    if (!joined)
        return wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", k->p->ranks);
    memset(k->used, 0, (size_t)k->n * sizeof *k->used);
    memset(k->score, 0, (size_t)k->n * sizeof *k->score);
    for (int g = 0; g < n; g++) {
        choose_group(k, size, n * size == k->n && g == n - 1);
        for (int i = 0; i < size; i++) {
            memcpy(joined + ((size_t)g * (size_t)size + (size_t)i) * (size_t)k->members,
                   k->block + (size_t)k->group[i] * (size_t)k->members, bytes);
            k->used[k->group[i]] = true;
        }
        forget_scores(k, size);
    }
    qsort(joined, (size_t)n, (size_t)size * bytes, by_first_seat);
    free(k->block);
    k->block = joined;
    k->members *= size;
    k->n = n;
    return WF_OK;
}

/* Seats are in the order of joining, the first axis fastest: bring them to ranks. */
static void assign(packing *k, wf_placement *p, const int *order)
{
    for (int i = 0; i < p->ranks; i++) {
        int rank = 0, rest = i;

        for (int o = 0; o < p->n_axes; o++) {
            int size = p->axis[order[o]].size;

            rank += rest % size * wf_placement_stride(p, order[o]);
            rest /= size;
        }
        p->seat[rank] = k->block[i];
    }
}

wf_status wf_placement_pack(wf_placement *p, const wf_seat *seat, int seats, int first,
                            wf_error *error)
{
    size_t n = (size_t)seats;
    packing k = {.p = p,
                 .n = seats,
                 .members = 1,
                 .block = malloc(n * sizeof *k.block),
                 .used = malloc(n * sizeof *k.used),
                 .far = malloc(n * sizeof *k.far),
                 .group = malloc(n * sizeof *k.group),
                 .score = malloc(n * sizeof *k.score)};
    int order[WF_MAX_AXES] = {first}, blocks = p->ranks;
    wf_status status = WF_OK;

    for (int axis = p->n_axes - 1, o = 1; axis >= 0; axis--)
        if (axis != first)
            order[o++] = axis;
    if (!k.block || !k.used || !k.far || !k.group || !k.score)
        status = wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", p->ranks);
    else
        memcpy(k.block, seat, n * sizeof *seat);
    for (int o = 0; status == WF_OK && o < p->n_axes; o++) {
        blocks /= p->axis[order[o]].size;
        status = join(&k, blocks, p->axis[order[o]].size, error);
    }
    if (status == WF_OK)
        assign(&k, p, order);
    free(k.block);
    free(k.used);
    free(k.far);
    free(k.group);
    free(k.score);
    return status;
}
