/* mesh/cluster/placement.c - the cost of a placement, the way to the cheapest, and what it
   moves. */
#include "mesh/cluster/placement.h"
#include "mesh/cluster/placement_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_placement_groups(const wf_placement *p, int axis, int count[WF_LINKS])
{
    int size = p->axis[axis].size, stride = wf_placement_stride(p, axis);

    memset(count, 0, WF_LINKS * sizeof *count);
    for (int r = 0; size > 1 && r < p->ranks; r++)
        if (wf_placement_first(p, r, axis) == r)
            count[wf_placement_worst(p, r, size, stride)]++;
}

double wf_placement_cost(const wf_placement *p)
{
    double sum = 0;

    for (int axis = 0; axis < p->n_axes; axis++) {
        int count[WF_LINKS];

        wf_placement_groups(p, axis, count);
        for (int link = 0; link < WF_LINKS; link++)
            sum += p->axis[axis].bytes * p->axis[axis].size * count[link] * p->weight[link];
    }
    return sum;
}

void wf_placement_traffic(const wf_placement *p, double bytes[WF_LINKS], double *network)
{
    memset(bytes, 0, WF_LINKS * sizeof *bytes);
    for (int h = 0; network && h < p->n_hosts; h++)
        network[h] = 0;
    for (int axis = 0; axis < p->n_axes; axis++) {
        int size = p->axis[axis].size, stride = wf_placement_stride(p, axis);
        double share = size > 1 ? p->axis[axis].bytes / (size - 1) : 0;

        for (int r = 0; r < p->ranks; r++)
            for (int i = 0, first = wf_placement_first(p, r, axis); i < size; i++) {
                int peer = first + i * stride;
                wf_link link;

                if (peer == r)
                    continue;
                link = wf_seat_link(p, p->seat[r], p->seat[peer]);
                bytes[link] += share;
                if (network && link == WF_LINK_NETWORK)
                    network[p->seat[r].host] += share;
            }
    }
}

/* Returns all seats, in the order of hosts. */
static wf_seat *all_seats(const wf_placement *p, int n)
{
    wf_seat *seat = malloc((size_t)n * sizeof *seat);
    int at = 0;

    for (int h = 0; seat && h < p->n_hosts; h++)
        for (int d = 0; d < p->host[h]->n_devices; d++)
            seat[at++] = (wf_seat){h, d};
    return seat;
}

/* Within a host, by search: its ranks on all its devices. */
static void search_host(wf_placement *p, int host)
{
    int rank[WF_PLACEMENT_EXHAUSTIVE], ranks = 0;
    wf_seat seat[WF_PLACEMENT_EXHAUSTIVE];

    if (p->host[host]->n_devices > WF_PLACEMENT_EXHAUSTIVE)
        return;
    for (int d = 0; d < p->host[host]->n_devices; d++)
        seat[d] = (wf_seat){host, d};
    for (int r = 0; r < p->ranks; r++)
        if (p->seat[r].host == host)
            rank[ranks++] = r;
    if (ranks)
        wf_placement_search(p, rank, ranks, seat, p->host[host]->n_devices);
}

/* The cheapest so far. */
typedef struct best {
    wf_placement *p;
    wf_seat *seat; /* [ranks] */
    double cost;   /* -1: none yet */
} best;

/* Pack onto these seats: every axis as the one packed first, the innermost before the
   others. */
static wf_status pack(best *b, const wf_seat *seat, int seats, wf_error *error)
{
    wf_placement *p = b->p;
    wf_status status = WF_OK;
    bool packed = false;

    for (int axis = p->n_axes - 1; status == WF_OK && axis >= 0; axis--) {
        double cost;

        if (p->axis[axis].size == 1 && packed)
            continue;
        packed = true;
        status = wf_placement_pack(p, seat, seats, axis, error);
        for (int h = 0; status == WF_OK && h < p->n_hosts; h++)
            search_host(p, h);
        cost = wf_placement_cost(p);
        if (status == WF_OK && (b->cost < 0 || cost < b->cost)) {
            b->cost = cost;
            memcpy(b->seat, p->seat, (size_t)p->ranks * sizeof *p->seat);
        }
    }
    return status;
}

static bool alike(const wf_host *a, const wf_host *b)
{
    size_t n = (size_t)a->n_devices;

    return a == b || (a->n_devices == b->n_devices && memcmp(a->link, b->link, n * n) == 0);
}

/* Sorts all hosts, those with most devices first, equal ones by number. */
static void sort_hosts(const wf_placement *p, int *host)
{
    for (int h = 0; h < p->n_hosts; h++) {
        int at = h;

        for (; at > 0 && p->host[host[at - 1]]->n_devices < p->host[h]->n_devices; at--)
            host[at] = host[at - 1];
        host[at] = h;
    }
}

/* Lists the seats of `hosts` hosts, in no order; the room is for all seats. Returns how
   many. */
static int seats_of(const wf_placement *p, const int *host, int hosts, wf_seat *seat)
{
    int n = 0;

    for (int h = 0; h < p->n_hosts; h++)
        for (int i = 0; i < hosts; i++)
            for (int d = 0; host[i] == h && d < p->host[h]->n_devices; d++)
                seat[n++] = (wf_seat){h, d};
    return n;
}

/* Packs on any one host that has room for all, or else on the fewest hosts that have. */
static wf_status pack_on_few(best *b, int *host, wf_seat *seat, wf_error *error)
{
    wf_placement *p = b->p;
    wf_status status = WF_OK;
    int few = 0, room = 0;

    sort_hosts(p, host);
    while (few < p->n_hosts && room < p->ranks)
        room += p->host[host[few++]]->n_devices;
    if (few == p->n_hosts)
        return WF_OK;
    if (few > 1)
        return pack(b, seat, seats_of(p, host, few, seat), error);
    for (int i = 0; i < p->n_hosts && p->host[host[i]]->n_devices >= p->ranks; i++)
        if (status == WF_OK && (i == 0 || !alike(p->host[host[i]], p->host[host[i - 1]])))
            status = pack(b, seat, seats_of(p, &host[i], 1, seat), error);
    return status;
}

/* Improves placements on all hosts, and on few, until no step makes them cheaper. */
static wf_status find_good(wf_placement *p, const wf_seat *seat, int seats, wf_error *error)
{
    size_t bytes = (size_t)p->ranks * sizeof *p->seat;
    best b = {.p = p, .seat = malloc(bytes), .cost = -1};
    int *host = calloc((size_t)p->n_hosts, sizeof *host);
    wf_seat *some = malloc((size_t)seats * sizeof *some);
    wf_status status = WF_OK;

    if (!b.seat || !host || !some)
        status = wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", p->ranks);
    if (status == WF_OK)
        status = pack(&b, seat, seats, error);
    if (status == WF_OK)
        status = pack_on_few(&b, host, some, error);
    if (status == WF_OK) {
        memcpy(p->seat, b.seat, bytes);
        status = wf_placement_swap(p, seat, seats, error);
        p->cost = wf_placement_cost(p);
    }
    free(b.seat);
    free(host);
    free(some);
    return status;
}

static wf_status check(const wf_placement_options *o, int *ranks, int *devices, wf_error *error)
{
    int64_t product = 1;

    if (o->n_axes < 1 || o->n_axes > WF_MAX_AXES || o->n_hosts < 1)
        return wf_error_set(
            error, WF_EINVAL,
            "a placement of %d axes on %d hosts: it has 1 to %d axes and a host", o->n_axes,
            o->n_hosts, WF_MAX_AXES);
    for (int i = 0; i < o->n_axes; i++) {
        if (o->axis[i].size < 1 || !(o->axis[i].bytes >= 0) ||
            (product *= o->axis[i].size) > WF_MAX_RANKS)
            return wf_error_set(error, WF_EINVAL,
                                "axis %s of %d ranks and %g bytes: a mesh has 1 to %d ranks, "
                                "and bytes are not negative",
                                o->axis[i].name, o->axis[i].size, o->axis[i].bytes,
                                WF_MAX_RANKS);
    }
    *ranks = (int)product;
    *devices = 0;
    for (int h = 0; h < o->n_hosts; h++)
        *devices += o->host[h]->n_devices;
    if (*devices < *ranks)
        return wf_error_set(error, WF_EINVAL,
                            "%d ranks do not fit on %d host%s with %d devices together: take "
                            "more hosts or a smaller mesh",
                            *ranks, o->n_hosts, o->n_hosts == 1 ? "" : "s", *devices);
    return WF_OK;
}

static void set_weights(wf_placement *p, double network_gbit)
{
    for (int link = 0; link < WF_LINKS; link++)
        p->weight[link] = wf_link_weight((wf_link)link);
    if (network_gbit > 0)
        p->weight[WF_LINK_NETWORK] = 8000 / network_gbit;
    /* A link that is worse costs no less: the search counts on it. */
    if (p->weight[WF_LINK_NETWORK] < p->weight[WF_LINK_HOST])
        p->weight[WF_LINK_NETWORK] = p->weight[WF_LINK_HOST];
}

wf_status wf_placement_find(const wf_placement_options *o, wf_placement *p, wf_error *error)
{
    int devices = 0, order[WF_PLACEMENT_EXHAUSTIVE];
    wf_seat *seat;
    wf_status status;

    *p = (wf_placement){.n_hosts = o->n_hosts, .host = o->host};
    status = check(o, &p->ranks, &devices, error);
    if (status != WF_OK)
        return status;
    wf_placement_axes(p, o->n_axes, o->axis);
    set_weights(p, o->network_gbit);
    seat = all_seats(p, devices);
    p->seat = calloc((size_t)p->ranks, sizeof *p->seat);
    p->exhaustive = devices <= WF_PLACEMENT_EXHAUSTIVE;
    if (!seat || !p->seat) {
        status = wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", p->ranks);
    } else if (p->exhaustive) {
        for (int r = 0; r < p->ranks; r++)
            order[r] = r;
        wf_placement_search(p, order, p->ranks, seat, devices);
        p->cost = wf_placement_cost(p);
    } else {
        status = find_good(p, seat, devices, error);
    }
    free(seat);
    if (status != WF_OK)
        wf_placement_free(p);
    return status;
}

static int by_index(const void *a, const void *b)
{
    const wf_seat *x = a, *y = b;

    return x->host != y->host ? x->host - y->host : x->device - y->device;
}

wf_status wf_placement_transposed(const wf_placement *from, wf_placement *out, wf_error *error)
{
    size_t n = (size_t)from->ranks;
    wf_seat *sorted = malloc(n * sizeof *sorted);

    *out = *from;
    out->exhaustive = false;
    out->seat = malloc(n * sizeof *out->seat);
    if (!sorted || !out->seat) {
        free(sorted);
        wf_placement_free(out);
        return wf_error_set(error, WF_ENOMEM, "no memory to place %d ranks", from->ranks);
    }
    memcpy(sorted, from->seat, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_index);
    for (int i = 0; i < from->ranks; i++) {
        int rank = 0, rest = i;

        for (int axis = 0; axis < from->n_axes; axis++) {
            rank += rest % from->axis[axis].size * wf_placement_stride(from, axis);
            rest /= from->axis[axis].size;
        }
        out->seat[rank] = sorted[i];
    }
    free(sorted);
    out->cost = wf_placement_cost(out);
    return WF_OK;
}

void wf_placement_free(wf_placement *placement)
{
    free(placement->seat);
    placement->seat = NULL;
}

static int largest_host(const wf_placement *p)
{
    int most = 0;

    for (int h = 0; h < p->n_hosts; h++)
        most = p->host[h]->n_devices > most ? p->host[h]->n_devices : most;
    return most;
}

char *wf_placement_warning(const wf_placement *p, char *text, size_t size)
{
    const wf_placement_axis *axis = &p->axis[p->n_axes - 1];
    int count[WF_LINKS], groups = p->ranks / axis->size, most = largest_host(p);
    double bytes;

    wf_placement_groups(p, p->n_axes - 1, count);
    if (!count[WF_LINK_NETWORK])
        return NULL;
    bytes = axis->bytes * axis->size * count[WF_LINK_NETWORK];
    snprintf(text, size,
             "%d of %d %s groups of %d do not sit inside one host (the largest has %d "
             "devices): %.0f bytes a step go at the network's pace, %.3g ms a rank instead of "
             "%.3g; %s",
             count[WF_LINK_NETWORK], groups, axis->name, axis->size, most, bytes,
             axis->bytes * p->weight[WF_LINK_NETWORK] * 1e-9,
             axis->bytes * p->weight[WF_LINK_HOST] * 1e-9,
             axis->size > most ? "take a smaller one"
                               : "no placement is cheaper; sizes that divide the hosts' "
                                 "devices keep it inside");
    return text;
}
