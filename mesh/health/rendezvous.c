/*
 * mesh/health/rendezvous.c - process 0 gathers the others: it listens to all that connect at once, so that
 * strangers who say nothing hold up nobody, and hears when one that has come is gone again.
 */
#include "mesh/health/muster_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    HELLO_MS = 5000,
    MEET_MS = 600000, /* for all processes to come, where nobody says */
    STRANGERS = 64    /* connections beyond those of the processes that come */
};

/* As long as the start may take (mesh/health/muster_internal.h, which sees more): here of all hosts. */
int wf_watch_meet_ms(const wf_world_watch *w)
{
    double limit = w->o.limit;

    if (limit <= 0)
        return MEET_MS;
    return (int)(1e3 * (limit < WF_MUSTER_LEAST_S ? WF_MUSTER_LEAST_S
                        : limit > 1e5             ? 1e5
                                                  : limit));
}

void wf_watch_send_at_once(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Who has connected, and has not said all of its hello: one of ours, or a stranger. */
typedef struct guest {
    int fd;
    int64_t until;
    size_t got;
    struct {
        watch_head head;
        watch_hello hello;
    } said;
} guest;

typedef struct hall {
    int n, most;
    guest *guest;       /* [most], in the order of their coming */
    struct pollfd *set; /* [1 + most + n_peers] the door, guests, and those who have come */
} hall;

static void send_away(hall *h, int i)
{
    if (h->guest[i].fd >= 0)
        close(h->guest[i].fd);
    memmove(&h->guest[i], &h->guest[i + 1], (size_t)(--h->n - i) * sizeof *h->guest);
}

/* Where strangers fill the hall, the one that has said nothing for longest goes. */
static void let_in(hall *h, int door)
{
    int fd;

    while ((fd = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (h->n == h->most)
            send_away(h, 0);
        h->guest[h->n++] = (guest){.fd = fd, .until = wf_watch_now() + HELLO_MS};
    }
}

static bool is_ours(const wf_world_watch *w, const guest *g, const watch_place *m)
{
    const watch_hello *h = &g->said.hello;

    return g->said.head.kind == WATCH_HELLO && g->said.head.bytes == sizeof *h &&
           h->token == m->token && h->process >= 1 && h->process <= w->n_peers &&
           w->peer[h->process - 1].fd < 0;
}

/* True: it has become one of us, or gone. */
static bool listen_to(wf_world_watch *w, guest *g, const watch_place *m)
{
    ssize_t came =
        recv(g->fd, (char *)&g->said + g->got, sizeof g->said - g->got, MSG_DONTWAIT);
    watch_peer *p;

    g->got += came > 0 ? (size_t)came : 0;
    if (g->got < sizeof g->said &&
        (came > 0 || (came < 0 && (errno == EAGAIN || errno == EINTR))))
        return wf_watch_now() > g->until;
    if (g->got < sizeof g->said || !is_ours(w, g, m))
        return true;
    p = &w->peer[g->said.hello.process - 1];
    p->hello = g->said.hello;
    p->hello.host[sizeof p->hello.host - 1] = '\0';
    p->fd = g->fd;
    g->fd = -1; /* it stays */
    wf_watch_send_at_once(p->fd);
    wf_watch_kept(p->fd);
    return true;
}

/* One of us that has come and does not wait for the others any more. */
static const watch_peer *who_has_gone(const wf_world_watch *w)
{
    char word;

    for (int i = 0; i < w->n_peers; i++)
        if (w->peer[i].fd >= 0 && recv(w->peer[i].fd, &word, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
            return &w->peer[i];
    return NULL;
}

static int count_come(const wf_world_watch *w)
{
    int come = 0;

    for (int i = 0; i < w->n_peers; i++)
        come += w->peer[i].fd >= 0;
    return come;
}

static void wait_at_door(const wf_world_watch *w, hall *h, int door, int64_t until)
{
    int64_t left = until - wf_watch_now();
    int n = 0;

    h->set[n++] = (struct pollfd){.fd = door, .events = POLLIN};
    for (int i = 0; i < h->n; i++)
        h->set[n++] = (struct pollfd){.fd = h->guest[i].fd, .events = POLLIN};
    for (int i = 0; i < w->n_peers; i++)
        h->set[n++] = (struct pollfd){.fd = w->peer[i].fd, .events = POLLIN};
    poll(h->set, (nfds_t)n, left < 0 ? 0 : left > LOOK_MS ? LOOK_MS : (int)left);
}

static wf_status not_come(const wf_world_watch *w, const watch_place *m, int seconds,
                          wf_error *error)
{
    char who[160] = "", *at = who;

    for (int i = 0; i < w->n_peers; i++)
        if (w->peer[i].fd < 0 && at < who + sizeof who - 16)
            at += snprintf(at, 16, "%s%d", at == who ? "" : ", ", i + 1);
    return wf_error_set(error, WF_ELOST,
                        "%s %s of %d not come to process 0 on %s, port %d, within %d s: TCP "
                        "has to reach it; name its address in WEFT_WATCH_ADDRESS where hosts "
                        "know another one",
                        strchr(who, ',') ? "processes" : "process", who, w->o.processes,
                        m->host, (int)m->port, seconds);
}

wf_status wf_watch_gather(wf_world_watch *w, int door, const watch_place *m, wf_error *error)
{
    int64_t begun = wf_watch_now(), until = begun + wf_watch_meet_ms(w);
    hall h = {.most = w->n_peers + STRANGERS};
    const watch_peer *gone = NULL;
    wf_status status = WF_OK;

    h.guest = calloc((size_t)h.most, sizeof *h.guest);
    h.set = calloc((size_t)(1 + h.most + w->n_peers), sizeof *h.set);
    if (!h.guest || !h.set)
        status = wf_error_set(error, WF_ENOMEM, "no memory to meet %d processes", w->n_peers);
    while (status == WF_OK && !gone && count_come(w) < w->n_peers && wf_watch_now() < until) {
        wait_at_door(w, &h, door, until);
        let_in(&h, door);
        for (int i = h.n - 1; i >= 0; i--)
            if (listen_to(w, &h.guest[i], m))
                send_away(&h, i);
        gone = who_has_gone(w);
    }
    if (gone)
        status = wf_error_set(error, WF_ELOST,
                              "process %d (pid %d, rank %d) on %s has ended while the run "
                              "started",
                              gone->process, (int)gone->hello.pid, (int)gone->hello.rank,
                              gone->hello.host);
    else if (status == WF_OK && count_come(w) < w->n_peers)
        status = not_come(w, m, (int)((until - begun) / 1000), error);
    while (h.n)
        send_away(&h, h.n - 1);
    free(h.guest);
    free(h.set);
    return status;
}
