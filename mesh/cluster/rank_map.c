/* mesh/cluster/rank_map.c - ranks to processes, by what all processes say of their hosts. */
#include "mesh/cluster/rank_map.h"
#include "mesh/cluster/affinity_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond, a placement takes seconds to find, and ranks go to one host after the other. */
enum { MOST_PLACED = 1024 };

/* What a process says of itself. */
typedef struct card {
    int32_t host;                           /* the number of the first process there */
    int32_t cores;                          /* of the host; 0: it could not be read */
    uint8_t core[WF_HOST_MOST_DEVICES / 8]; /* which of them the process may use */
} card;

typedef struct seats {
    int n_hosts, here; /* here: ranks of each process */
    card *card;        /* [processes] */
    int *host;         /* [processes] number of its host */
    int *index;        /* [processes] among those of its host */
    wf_host *machine;  /* [n_hosts] of seats: only n_devices and link are filled in */
    int *members;      /* [n_hosts] processes */
    bool *shared;      /* [n_hosts] all its processes may use the same cores */
} seats;

static wf_status no_memory(int ranks, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory to seat %d ranks", ranks);
}

static bool may_use(const card *c, int core)
{
    return c->core[core / 8] >> core % 8 & 1;
}

/* The core of a process's k-th rank of n, which share out what it may use: a core for each of
   their threads where there are so many. */
static int core_of(const card *c, int k, int n, int threads)
{
    int cores = 0, wanted;

    for (int i = 0; i < c->cores; i++)
        cores += may_use(c, i);
    wanted = threads > 0 && n * threads <= cores ? k * threads : (int)((int64_t)k * cores / n);
    for (int i = 0; i < c->cores; i++)
        if (may_use(c, i) && wanted-- == 0)
            return i;
    return 0;
}

static wf_status number_hosts(seats *s, const wf_processes *all, wf_error *error)
{
    for (int p = 0; p < all->n; p++) {
        const card *c = &s->card[p];
        int h = c->host == p ? s->n_hosts++ : s->host[c->host];

        if (c->cores < 1)
            return wf_error_set(error, WF_EIO, "process %d cannot describe its host", p);
        s->host[p] = h;
        s->index[p] = s->members[h]++;
        s->shared[h] = c->host == p || (s->shared[h] && memcmp(c->core, s->card[c->host].core,
                                                               sizeof c->core) == 0);
    }
    return WF_OK;
}

/* What lies between two seats of a host, of which `link` tells for its cores. */
static uint8_t link_between(const seats *s, const int *core, const uint8_t *link, int cores,
                            int a, int b)
{
    uint8_t between = core[a] == core[b]
                          ? (uint8_t)WF_LINK_CACHE
                          : link[(size_t)core[a] * (size_t)cores + (size_t)core[b]];

    return a / s->here != b / s->here && between < WF_LINK_NUMA ? (uint8_t)WF_LINK_NUMA
                                                                : between;
}

static wf_status fill_machine(seats *s, const wf_processes *all, int h, const uint8_t *link,
                              int threads, wf_error *error)
{
    int n = s->members[h] * s->here, cores = 0, *core = malloc((size_t)n * sizeof *core);
    uint8_t *between = malloc((size_t)n * (size_t)n);

    s->machine[h] = (wf_host){.n_devices = n, .link = between};
    if (!core || !between) {
        free(core);
        return no_memory(n, error);
    }
    for (int p = 0; p < all->n; p++)
        for (int k = 0; s->host[p] == h && k < s->here; k++) {
            int seat = s->index[p] * s->here + k;

            cores = s->card[p].cores;
            core[seat] = s->shared[h] ? core_of(&s->card[p], seat, n, threads)
                                      : core_of(&s->card[p], k, s->here, threads);
        }
    for (int i = 0; i < n * n; i++)
        between[i] = link_between(s, core, link, cores, i / n, i % n);
    free(core);
    return WF_OK;
}

/* The first process of each host tells of its links. */
static wf_status gather_machines(seats *s, const wf_processes *all, const wf_host *mine,
                                 int threads, wf_error *error)
{
    size_t cores = (size_t)mine->n_devices,
           *begin = malloc(((size_t)all->n + 1) * sizeof *begin);
    bool first = all->host == all->mine;
    char *links = NULL;
    wf_status status;

    if (!begin)
        return no_memory(all->n, error);
    status =
        all->gather(all->world, mine->link, first ? cores * cores : 0, &links, begin, error);
    for (int p = 0; status == WF_OK && p < all->n; p++)
        if (s->card[p].host == p)
            status = fill_machine(s, all, s->host[p], (const uint8_t *)links + begin[p],
                                  threads, error);
    free(links);
    free(begin);
    return status;
}

static wf_status gather_cards(seats *s, const wf_processes *all, const wf_host *mine,
                              wf_error *error)
{
    card c = {.host = all->host, .cores = mine ? mine->n_devices : 0};
    size_t *begin = malloc(((size_t)all->n + 1) * sizeof *begin);
    wf_status status;
    char *cards;

    if (!begin)
        return no_memory(all->n, error);
    if (mine && wf_places_allowed(c.core, mine->n_devices) < 1)
        c.cores = 0;
    status = all->gather(all->world, &c, sizeof c, &cards, begin, error);
    free(begin);
    if (status == WF_OK)
        s->card = (card *)(void *)cards;
    return status;
}

static void seats_free(seats *s)
{
    for (int h = 0; s->machine && h < s->n_hosts; h++)
        free(s->machine[h].link);
    free(s->machine);
    free(s->card);
    free(s->host);
    free(s->index);
    free(s->members);
    free(s->shared);
}

static wf_status find_seats(seats *s, const wf_seating_wish *wish, const wf_processes *all,
                            wf_error *error)
{
    size_t n = (size_t)all->n;
    wf_host *mine = NULL;
    wf_error unread = {WF_OK, ""};
    wf_status status;

    s->here = wish->ranks / all->n;
    s->host = calloc(n, sizeof *s->host);
    s->index = calloc(n, sizeof *s->index);
    s->machine = calloc(n, sizeof *s->machine);
    s->members = calloc(n, sizeof *s->members);
    s->shared = calloc(n, sizeof *s->shared);
    if (!s->host || !s->index || !s->machine || !s->members || !s->shared)
        return no_memory(wish->ranks, error);
    wf_host_read(&(wf_host_options){.devices = WF_DEVICES_CORES}, &mine, &unread);
    status = gather_cards(s, all, mine, error);
    if (status == WF_OK)
        status = number_hosts(s, all, error);
    if (status == WF_OK)
        status = gather_machines(s, all, mine, wish->threads, error);
    wf_host_free(mine);
    return status;
}

/* Ranks in the order in which the launcher numbers processes; or, by_hosts, host after host. */
static wf_status in_order(const seats *s, const wf_seating_wish *wish, const wf_host **host,
                          bool by_hosts, wf_placement *p, wf_error *error)
{
    int h = 0, device = 0;

    *p = (wf_placement){
        .n_hosts = s->n_hosts, .n_axes = wish->n_axes, .ranks = wish->ranks, .host = host};
    for (int i = 0; i < wish->n_axes; i++)
        p->axis[i] = wish->axis[i];
    for (int link = 0; link < WF_LINKS; link++)
        p->weight[link] = wf_link_weight((wf_link)link);
    p->seat = malloc((size_t)wish->ranks * sizeof *p->seat);
    if (!p->seat)
        return no_memory(wish->ranks, error);
    for (int r = 0; r < wish->ranks; r++, device++) {
        int process = r / s->here;

        if (device == host[h]->n_devices) {
            h++;
            device = 0;
        }
        p->seat[r] =
            by_hosts ? (wf_seat){h, device}
                     : (wf_seat){s->host[process], s->index[process] * s->here + r % s->here};
    }
    return WF_OK;
}

static wf_status transpose(wf_placement *p, wf_error *error)
{
    wf_placement from = *p;
    wf_status status = wf_placement_transposed(&from, p, error);

    wf_placement_free(&from);
    return status;
}

static wf_status place(const seats *s, const wf_seating_wish *wish, const wf_host **host,
                       wf_placement *p, wf_error *error)
{
    const wf_place_options options = {
        .n_hosts = s->n_hosts, .n_axes = wish->n_axes, .host = host, .axis = wish->axis};
    int64_t ranks = 1;
    wf_status status;

    for (int i = 0; i < wish->n_axes; i++)
        ranks *= wish->axis[i].size;
    if (wish->n_axes && ranks != wish->ranks)
        return wf_error_set(error, WF_EINVAL,
                            "the axes to be placed make %lld ranks, and the world has %d",
                            (long long)ranks, wish->ranks);
    if (wish->n_axes == 0 || wish->order == WF_ORDER_STARTED)
        return in_order(s, wish, host, false, p, error);
    status = wish->ranks > MOST_PLACED ? in_order(s, wish, host, true, p, error)
                                       : wf_placement_find(&options, p, error);
    return status == WF_OK && wish->order == WF_ORDER_TRANSPOSED ? transpose(p, error) : status;
}

/* The name of rank r when coordinates 0 and those of rank `zero` have changed places. */
static int renamed(const wf_placement *p, int r, int zero)
{
    int name = r, stride = 1;

    for (int i = p->n_axes - 1; i >= 0; i--) {
        int size = p->axis[i].size, here = r / stride % size, there = zero / stride % size;
        int now = here == there ? 0 : here == 0 ? there : here;

        name += (now - here) * stride;
        stride *= size;
    }
    return name;
}

static int rank_at_first_seat(const wf_placement *p)
{
    for (int r = 0; r < p->ranks; r++)
        if (p->seat[r].host == 0 && p->seat[r].device == 0)
            return r;
    return 0;
}

static int process_at(const seats *s, const wf_processes *all, wf_seat seat)
{
    for (int p = 0; p < all->n; p++)
        if (s->host[p] == seat.host && s->index[p] == seat.device / s->here)
            return p;
    return 0;
}

/* The text of wf_placement_warning, whose advice is that no placement is cheaper: there may be where
   another order was asked for. */
static char *warning_of(const wf_placement *p, wf_rank_order order)
{
    char text[WF_SEATING_TEXT], *advice;

    if (!p->n_axes || !wf_placement_warning(p, text, sizeof text))
        return NULL;
    advice = strrchr(text, ';');
    if (order != WF_ORDER_NEAR && advice)
        snprintf(advice, sizeof text - (size_t)(advice - text),
                 "; this order of ranks was asked for, another may keep them inside");
    return strdup(text);
}

static wf_status write_down(const seats *s, const wf_processes *all, const wf_placement *p,
                            wf_seating *out, wf_error *error)
{
    int zero = rank_at_first_seat(p), host = s->host[all->mine], *device;

    out->sharing = s->shared[host] ? s->members[host] * s->here : s->here;
    out->local = s->members[host];
    out->rank = malloc((size_t)s->here * sizeof *out->rank);
    out->seat = malloc((size_t)s->here * sizeof *out->seat);
    out->process = malloc((size_t)p->ranks * sizeof *out->process);
    device = malloc((size_t)p->ranks * sizeof *device);
    if (!out->rank || !out->seat || !out->process || !device) {
        free(device);
        return no_memory(p->ranks, error);
    }
    for (int r = 0; r < p->ranks; r++) {
        out->process[renamed(p, r, zero)] = process_at(s, all, p->seat[r]);
        device[renamed(p, r, zero)] = p->seat[r].device;
    }
    for (int r = 0; r < p->ranks; r++)
        if (out->process[r] == all->mine) {
            out->seat[out->n] = device[r];
            out->rank[out->n++] = r;
        }
    free(device);
    return WF_OK;
}

wf_status wf_seating_find(const wf_seating_wish *wish, const wf_processes *all, wf_seating *out,
                          wf_error *error)
{
    const wf_host **host = malloc((size_t)all->n * sizeof *host);
    seats s = {.n_hosts = 0};
    wf_placement placement = {.seat = NULL};
    wf_status status = host ? find_seats(&s, wish, all, error) : no_memory(wish->ranks, error);

    *out = (wf_seating){.n = 0};
    for (int h = 0; status == WF_OK && h < s.n_hosts; h++)
        host[h] = &s.machine[h];
    if (status == WF_OK)
        status = place(&s, wish, host, &placement, error);
    if (status == WF_OK)
        status = write_down(&s, all, &placement, out, error);
    if (status == WF_OK)
        out->warning = warning_of(&placement, wish->order);
    wf_placement_free(&placement);
    seats_free(&s);
    free(host);
    if (status != WF_OK)
        wf_seating_free(out);
    return status;
}

void wf_seating_free(wf_seating *seating)
{
    free(seating->rank);
    free(seating->seat);
    free(seating->process);
    free(seating->warning);
    *seating = (wf_seating){.n = 0};
}
