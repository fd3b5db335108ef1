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
int wf_detector_meet_ms(const wf_detector *d)
{
    double limit = d->o.limit;

    if (limit <= 0)
        return MEET_MS;
    return (int)(1e3 * (limit < WF_MUSTER_LEAST_S ? WF_MUSTER_LEAST_S
                        : limit > 1e5             ? 1e5
                                                  : limit));
}

void wf_detector_send_at_once(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Who has connected, and has not sent all of its hello: one of ours, or a stranger. */
typedef struct guest {
    int fd;
    int64_t until;
    size_t got;
    struct {
        detector_head head;
        detector_hello hello;
    } sent;
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

/* Where strangers fill the hall, the one that has sent nothing for longest goes. */
static void let_in(hall *h, int door)
{
    int fd;

    while ((fd = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (h->n == h->most)
            send_away(h, 0);
        h->guest[h->n++] = (guest){.fd = fd, .until = wf_detector_now() + HELLO_MS};
    }
}

static bool is_ours(const wf_detector *d, const guest *g, const detector_place *m)
{
    const detector_hello *h = &g->sent.hello;

    return g->sent.head.kind == DETECTOR_HELLO && g->sent.head.bytes == sizeof *h &&
           h->token == m->token && h->process >= 1 && h->process <= d->n_peers &&
           d->peer[h->process - 1].fd < 0;
}

/* True: it has become one of us, or gone. */
static bool listen_to(wf_detector *d, guest *g, const detector_place *m)
{
    ssize_t came =
        recv(g->fd, (char *)&g->sent + g->got, sizeof g->sent - g->got, MSG_DONTWAIT);
    detector_peer *p;

    g->got += came > 0 ? (size_t)came : 0;
    if (g->got < sizeof g->sent &&
        (came > 0 || (came < 0 && (errno == EAGAIN || errno == EINTR))))
        return wf_detector_now() > g->until;
    if (g->got < sizeof g->sent || !is_ours(d, g, m))
        return true;
    p = &d->peer[g->sent.hello.process - 1];
    p->hello = g->sent.hello;
    p->hello.host[sizeof p->hello.host - 1] = '\0';
    p->fd = g->fd;
    g->fd = -1; /* it stays */
    wf_detector_send_at_once(p->fd);
    wf_fd_holder_add(p->fd);
    return true;
}

/* One of us that has come and does not wait for the others any more. */
static const detector_peer *who_has_gone(const wf_detector *d)
{
    char word;

    for (int i = 0; i < d->n_peers; i++)
        if (d->peer[i].fd >= 0 && recv(d->peer[i].fd, &word, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
            return &d->peer[i];
    return NULL;
}

static int count_come(const wf_detector *d)
{
    int come = 0;

    for (int i = 0; i < d->n_peers; i++)
        come += d->peer[i].fd >= 0;
    return come;
}

static void wait_at_door(const wf_detector *d, hall *h, int door, int64_t until)
{
    int64_t left = until - wf_detector_now();
    int n = 0;

    h->set[n++] = (struct pollfd){.fd = door, .events = POLLIN};
    for (int i = 0; i < h->n; i++)
        h->set[n++] = (struct pollfd){.fd = h->guest[i].fd, .events = POLLIN};
    for (int i = 0; i < d->n_peers; i++)
        h->set[n++] = (struct pollfd){.fd = d->peer[i].fd, .events = POLLIN};
    poll(h->set, (nfds_t)n, left < 0 ? 0 : left > LOOK_MS ? LOOK_MS : (int)left);
}

static wf_status not_come(const wf_detector *d, const detector_place *m, int seconds,
                          wf_error *error)
{
    char who[160] = "", *at = who;

    for (int i = 0; i < d->n_peers; i++)
        if (d->peer[i].fd < 0 && at < who + sizeof who - 16)
            at += snprintf(at, 16, "%s%d", at == who ? "" : ", ", i + 1);
    return wf_error_set(
        error, WF_ELOST,
        "%s %s of %d not come to process 0 on %s, port %d, within %d s: TCP "
        "has to reach it; name its address in WEFT_DETECTOR_ADDRESS where hosts "
        "know another one",
        strchr(who, ',') ? "processes" : "process", who, d->o.processes, m->host, (int)m->port,
        seconds);
}

wf_status wf_detector_gather(wf_detector *d, int door, const detector_place *m, wf_error *error)
{
    int64_t begun = wf_detector_now(), until = begun + wf_detector_meet_ms(d);
    hall h = {.most = d->n_peers + STRANGERS};
    const detector_peer *gone = NULL;
    wf_status status = WF_OK;

    h.guest = calloc((size_t)h.most, sizeof *h.guest);
    h.set = calloc((size_t)(1 + h.most + d->n_peers), sizeof *h.set);
    if (!h.guest || !h.set)
        status = wf_error_set(error, WF_ENOMEM, "no memory to meet %d processes", d->n_peers);
    while (status == WF_OK && !gone && count_come(d) < d->n_peers &&
           wf_detector_now() < until) {
        wait_at_door(d, &h, door, until);
        let_in(&h, door);
        for (int i = h.n - 1; i >= 0; i--)
            if (listen_to(d, &h.guest[i], m))
                send_away(&h, i);
        gone = who_has_gone(d);
    }
    if (gone)
        status = wf_error_set(error, WF_ELOST,
                              "process %d (pid %d, rank %d) on %s has ended while the run "
                              "started",
                              gone->process, (int)gone->hello.pid, (int)gone->hello.rank,
                              gone->hello.host);
    else if (status == WF_OK && count_come(d) < d->n_peers)
        status = not_come(d, m, (int)((until - begun) / 1000), error);
    while (h.n)
        send_away(&h, h.n - 1);
    free(h.guest);
    free(h.set);
    return status;
}
