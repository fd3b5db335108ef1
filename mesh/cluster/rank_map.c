/* mesh/cluster/rank_map.c - ranks to processes, by what all processes say of their hosts. */
#include "mesh/cluster/rank_map_internal.h"
#include "mesh/cluster/affinity_internal.h"
#include "mesh/cluster/placement_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond, a placement takes seconds to find, and ranks go to one host after the other. */
enum { MOST_PLACED = 1024 };

/* A process's own description. */
typedef struct card {
    int32_t host;    /* the number of the first process there */
    int32_t cores;   /* cores of the host; 0: it could not be read */
    int32_t threads; /* threads of each rank, which want a core each; 0: not known */
    uint8_t core[WF_HOST_MOST_DEVICES / 8]; /* a bit for each that the process may use */
} card;

typedef struct hosts {
    int n_hosts, local_size; /* local_size: ranks of each process */
    card *card;              /* [processes] */
    int *host;               /* [processes] number of its host */
    int *index;              /* [processes] among those of its host */
    wf_host *machine;        /* [n_hosts] of seats: only n_devices and link are filled in */
    int *members;            /* [n_hosts] processes */
    bool *shared;            /* [n_hosts] all its processes may use the same cores */
} hosts;

static wf_status no_memory(int ranks, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory to map %d ranks to processes", ranks);
}

static bool may_use(const card *c, int core)
{
    return c->core[core / 8] >> core % 8 & 1;
}

/* Returns the first core of a process's k-th rank of n, which share out what it may use: a core
   for each of their threads where there are enough. */
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

static wf_status number_hosts(hosts *s, const wf_rank_map_peers *peers, wf_error *error)
{
    for (int p = 0; p < peers->all.n; p++) {
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

/* Returns the link between two seats of a host, given the links of its cores. */
static uint8_t link_between(const hosts *s, const int *core, const uint8_t *link, int cores,
                            int a, int b)
{
    uint8_t between = core[a] == core[b]
                          ? (uint8_t)WF_LINK_CACHE
                          : link[(size_t)core[a] * (size_t)cores + (size_t)core[b]];

    return a / s->local_size != b / s->local_size && between < WF_LINK_NUMA
               ? (uint8_t)WF_LINK_NUMA
               : between;
}

static wf_status fill_machine(hosts *s, const wf_rank_map_peers *peers, int h,
                              const uint8_t *link, wf_error *error)
{
    int n = s->members[h] * s->local_size, cores = 0, *core = malloc((size_t)n * sizeof *core);
    uint8_t *between = malloc((size_t)n * (size_t)n);

    s->machine[h] = (wf_host){.n_devices = n, .link = between};
    if (!core || !between) {
        free(core);
        return no_memory(n, error);
    }
    for (int p = 0; p < peers->all.n; p++)
        for (int k = 0; s->host[p] == h && k < s->local_size; k++) {
            int seat = s->index[p] * s->local_size + k;

            cores = s->card[p].cores;
            core[seat] = s->shared[h]
                             ? core_of(&s->card[p], seat, n, s->card[p].threads)
                             : core_of(&s->card[p], k, s->local_size, s->card[p].threads);
        }
    for (int i = 0; i < n * n; i++)
        between[i] = link_between(s, core, link, cores, i / n, i % n);
    free(core);
    return WF_OK;
}

/* Gathers the machines' descriptions: the first process of each host describes its links. */
static wf_status gather_machines(hosts *s, const wf_rank_map_peers *peers, const wf_host *mine,
                                 wf_error *error)
{
    size_t cores = (size_t)mine->n_devices,
           *begin = malloc(((size_t)peers->all.n + 1) * sizeof *begin);
    bool first = peers->all.host == peers->all.mine;
    char *links = NULL;
    wf_status status;

    if (!begin)
        return no_memory(peers->all.n, error);
    status = peers->gather(peers->world, mine->link, first ? cores * cores : 0, &links, begin,
                           error);
    for (int p = 0; status == WF_OK && p < peers->all.n; p++)
        if (s->card[p].host == p)
            status =
                fill_machine(s, peers, s->host[p], (const uint8_t *)links + begin[p], error);
    free(links);
    free(begin);
    return status;
}

static wf_status gather_cards(hosts *s, const wf_rank_map_peers *peers, const wf_host *mine,
                              int threads, wf_error *error)
{
    card c = {.host = peers->all.host, .cores = mine ? mine->n_devices : 0, .threads = threads};
    size_t *begin = malloc(((size_t)peers->all.n + 1) * sizeof *begin);
    wf_status status;
    char *cards;

    if (!begin)
        return no_memory(peers->all.n, error);
    if (mine && wf_affinity_allowed(c.core, mine->n_devices) < 1)
        c.cores = 0;
    status = peers->gather(peers->world, &c, sizeof c, &cards, begin, error);
    free(begin);
    if (status == WF_OK)
        s->card = (card *)(void *)cards;
    return status;
}

static void hosts_free(hosts *s)
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

static wf_status describe_hosts(hosts *s, const wf_rank_map_options *o,
                                const wf_rank_map_peers *peers, wf_error *error)
{
    size_t n = (size_t)peers->all.n;
    wf_host *mine = NULL;
    wf_error unread = {WF_OK, ""};
    wf_status status;

    s->local_size = o->ranks / peers->all.n;
    s->host = calloc(n, sizeof *s->host);
    s->index = calloc(n, sizeof *s->index);
    s->machine = calloc(n, sizeof *s->machine);
    s->members = calloc(n, sizeof *s->members);
    s->shared = calloc(n, sizeof *s->shared);
    if (!s->host || !s->index || !s->machine || !s->members || !s->shared)
        return no_memory(o->ranks, error);
    wf_host_read(&(wf_host_options){.devices = WF_DEVICES_CORES}, &mine, &unread);
    status = gather_cards(s, peers, mine, o->threads, error);
    if (status == WF_OK)
        status = number_hosts(s, peers, error);
    if (status == WF_OK)
        status = gather_machines(s, peers, mine, error);
    wf_host_free(mine);
    return status;
}

/* Maps ranks in the order in which the launcher numbers processes; or, by_hosts, host after
   host. */
static wf_status in_order(const hosts *s, const wf_rank_map_options *o, const wf_host **host,
                          bool by_hosts, wf_placement *p, wf_error *error)
{
    int h = 0, device = 0;

    *p = (wf_placement){.n_hosts = s->n_hosts, .ranks = o->ranks, .host = host};
    wf_placement_axes(p, o->n_axes, o->axis);
    for (int link = 0; link < WF_LINKS; link++)
        p->weight[link] = wf_link_weight((wf_link)link);
    p->seat = malloc((size_t)o->ranks * sizeof *p->seat);
    if (!p->seat)
        return no_memory(o->ranks, error);
    for (int r = 0; r < o->ranks; r++, device++) {
        int process = r / s->local_size;

        if (device == host[h]->n_devices) {
            h++;
            device = 0;
        }
        p->seat[r] = by_hosts ? (wf_seat){h, device}
                              : (wf_seat){s->host[process], s->index[process] * s->local_size +
                                                                r % s->local_size};
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

static wf_status find_placement(const hosts *s, const wf_rank_map_options *o,
                                const wf_host **host, wf_placement *p, wf_error *error)
{
    const wf_placement_options options = {
        .n_hosts = s->n_hosts, .n_axes = o->n_axes, .host = host, .axis = o->axis};
    wf_status status;
    int64_t ranks = 1;

    for (int i = 0; i < o->n_axes; i++)
        ranks *= o->axis[i].size;
    if (o->n_axes && ranks != o->ranks)
        return wf_error_set(error, WF_EINVAL,
                            "the axes to be placed make %lld ranks, and the world has %d",
                            (long long)ranks, o->ranks);
    if (o->n_axes == 0 || o->order == WF_ORDER_STARTED)
        return in_order(s, o, host, false, p, error);
    status = o->ranks > MOST_PLACED ? in_order(s, o, host, true, p, error)
                                    : wf_placement_find(&options, p, error);
    return status == WF_OK && o->order == WF_ORDER_TRANSPOSED ? transpose(p, error) : status;
}

/* Returns the new number of rank r when coordinates 0 and those of rank `zero` are swapped. */
static int renamed(const wf_placement *p, int r, int zero)
{
    int at[WF_MAX_AXES], first[WF_MAX_AXES];

    wf_grid_coordinates(p->n_axes, p->size, r, at);
    wf_grid_coordinates(p->n_axes, p->size, zero, first);
    for (int i = 0; i < p->n_axes; i++)
        at[i] = at[i] == first[i] ? 0 : at[i] == 0 ? first[i] : at[i];
    return p->n_axes ? (int)wf_grid_rank(p->n_axes, p->size, at) : r;
}

static int rank_at_first_seat(const wf_placement *p)
{
    for (int r = 0; r < p->ranks; r++)
        if (p->seat[r].host == 0 && p->seat[r].device == 0)
            return r;
    return 0;
}

static int process_at(const hosts *s, const wf_rank_map_peers *peers, wf_seat seat)
{
    for (int p = 0; p < peers->all.n; p++)
        if (s->host[p] == seat.host && s->index[p] == seat.device / s->local_size)
            return p;
    return 0;
}

/* Returns the text of wf_placement_warning, whose advice is that no placement is cheaper: there
   may be where another order was asked for. */
static char *warning_of(const wf_placement *p, wf_rank_order order)
{
    char text[WF_RANK_MAP_TEXT], *advice;

    if (!p->n_axes || !wf_placement_warning(p, text, sizeof text))
        return NULL;
    advice = strrchr(text, ';');
    if (order != WF_ORDER_NEAR && advice)
        snprintf(advice, sizeof text - (size_t)(advice - text),
                 "; this order of ranks was asked for, another may keep them inside");
    return strdup(text);
}

static wf_status write_down(const hosts *s, const wf_rank_map_peers *peers,
                            const wf_placement *p, wf_rank_map *out, wf_error *error)
{
    int zero = rank_at_first_seat(p), host = s->host[peers->all.mine], *device;

    out->sharing = s->shared[host] ? s->members[host] * s->local_size : s->local_size;
    out->local_processes = s->members[host];
    out->rank = malloc((size_t)s->local_size * sizeof *out->rank);
    out->local_rank = malloc((size_t)s->local_size * sizeof *out->local_rank);
    out->process = malloc((size_t)p->ranks * sizeof *out->process);
    device = malloc((size_t)p->ranks * sizeof *device);
    if (!out->rank || !out->local_rank || !out->process || !device) {
        free(device);
        return no_memory(p->ranks, error);
    }
    for (int r = 0; r < p->ranks; r++) {
        out->process[renamed(p, r, zero)] = process_at(s, peers, p->seat[r]);
        device[renamed(p, r, zero)] = p->seat[r].device;
    }
    for (int r = 0; r < p->ranks; r++)
        if (out->process[r] == peers->all.mine) {
            out->local_rank[out->n] = device[r];
            out->rank[out->n++] = r;
        }
    free(device);
    return WF_OK;
}

wf_status wf_rank_map_find(const wf_rank_map_options *o, const wf_rank_map_peers *peers,
                           wf_rank_map *out, wf_error *error)
{
    const wf_host **host = malloc((size_t)peers->all.n * sizeof *host);
    hosts s = {.n_hosts = 0};
    wf_placement placement = {.seat = NULL};
    wf_status status = host ? describe_hosts(&s, o, peers, error) : no_memory(o->ranks, error);

    *out = (wf_rank_map){.n = 0};
    for (int h = 0; status == WF_OK && h < s.n_hosts; h++)
        host[h] = &s.machine[h];
    if (status == WF_OK)
        status = find_placement(&s, o, host, &placement, error);
    if (status == WF_OK)
        status = write_down(&s, peers, &placement, out, error);
    if (status == WF_OK)
        out->warning = warning_of(&placement, o->order);
    wf_placement_free(&placement);
    hosts_free(&s);
    free(host);
    if (status != WF_OK)
        wf_rank_map_free(out);
    return status;
}

wf_status wf_rank_map_even(int ranks, int n, int first, int local, wf_rank_map *out,
                           wf_error *error)
{
    *out = (wf_rank_map){.n = n, .sharing = n, .local_processes = 1};
    out->rank = malloc((size_t)n * sizeof *out->rank);
    out->local_rank = malloc((size_t)n * sizeof *out->local_rank);
    out->process = malloc((size_t)ranks * sizeof *out->process);
    if (!out->rank || !out->local_rank || !out->process) {
        wf_rank_map_free(out);
        return no_memory(ranks, error);
    }
    for (int i = 0; i < n; i++) {
        out->rank[i] = first + i;
        out->local_rank[i] = local + i;
    }
    for (int r = 0; r < ranks; r++)
        out->process[r] = r / n;
    return WF_OK;
}

void wf_rank_map_free(wf_rank_map *map)
{
    free(map->rank);
    free(map->local_rank);
    free(map->process);
    free(map->warning);
    *map = (wf_rank_map){.n = 0};
}
