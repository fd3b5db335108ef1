/*
 * mesh/health/rendezvous.c - process 0 gathers the others: it reads from all that connect, in
 * rounds of a bounded size, so that other programs which send nothing, or much, hold up no
 * process, and notices when one that has come disconnects. Connections are read before any is
 * dismissed for want of room, and a process whose connection was dismissed reconnects.
 */
#include "mesh/health/process_registry_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    HELLO_MS = 5000,
    STRANGERS = 512, /* connections beyond those of the processes that come */
    TURN = 128,      /* connections that are accepted in a round, before all are read */
    SEND_BYTES = 4 << 20
};

/* As long as the start may take (mesh/health/process_registry_internal.h, which sees more):
   here of all hosts. */
int wf_detector_meet_ms(const wf_detector *d)
{
    double limit = d->o.limit;

    if (limit <= 0)
        return WF_REGISTRY_MOST_S * 1000;
    return (int)(1e3 * (limit < WF_REGISTRY_LEAST_S ? WF_REGISTRY_LEAST_S
                        : limit > 1e5               ? 1e5
                                                    : limit));
}

void wf_detector_set_socket(int fd)
{
    int on = 1, bytes = SEND_BYTES;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) /* a name's, then */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* A pending connection, which has not sent all of its hello: of this job, or of another
   program. */
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
    bool here; /* the listening socket is a name of this host, for processes of this user */
    int n, most;
    guest *guest; /* [most], in the order of their coming */
    /* [1 + most + n_peers] the listening socket, pending connections, and accepted processes */
    struct pollfd *set;
} hall;

static void send_away(hall *h, int i)
{
    if (h->guest[i].fd >= 0)
        close(h->guest[i].fd);
    memmove(&h->guest[i], &h->guest[i + 1], (size_t)(--h->n - i) * sizeof *h->guest);
}

/* Accepts at most TURN connections. Where there is no room, or no descriptor, the one that has
   sent nothing for longest is closed: it was read in the round before. */
static void let_in(hall *h, int door)
{
    pid_t pid;
    int fd;

    for (int i = 0; i < TURN; i++) {
        fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && h->n) {
            send_away(h, 0);
            continue;
        }
        if (fd < 0 && errno != ECONNABORTED)
            return;
        if (fd < 0 || (h->here && !wf_names_is_peer(fd, &pid))) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        if (h->n == h->most)
            send_away(h, 0);
        h->guest[h->n++] = (guest){.fd = fd, .until = wf_detector_now() + HELLO_MS};
    }
}

/* Returns false as soon as what has come can't become a hello of this job. The token is
   compared as a whole: byte by byte the dismissals would give it away. */
static bool may_be_ours(const guest *g, const detector_place *m)
{
    const detector_head head = {DETECTOR_HELLO, sizeof(detector_hello)};
    size_t token = sizeof head + offsetof(detector_hello, token) + sizeof m->token;

    return memcmp(&g->sent.head, &head, g->got < sizeof head ? g->got : sizeof head) == 0 &&
           (g->got < token || g->sent.hello.token == m->token);
}

static bool is_ours(const wf_detector *d, const guest *g)
{
    int32_t process = g->sent.hello.process;

    return process >= 1 && process <= d->n_peers && d->peer[process - 1].fd < 0;
}

/* Reads the bytes that have come. True: the connection was accepted, or is to be closed. */
static bool listen_to(wf_detector *d, guest *g, const detector_place *m)
{
    ssize_t came =
        recv(g->fd, (char *)&g->sent + g->got, sizeof g->sent - g->got, MSG_DONTWAIT);
    detector_peer *p;

    g->got += came > 0 ? (size_t)came : 0;
    if (!may_be_ours(g, m))
        return true;
    if (g->got < sizeof g->sent &&
        (came > 0 || (came < 0 && (errno == EAGAIN || errno == EINTR))))
        return wf_detector_now() > g->until;
    if (g->got < sizeof g->sent || !is_ours(d, g))
        return true;
    p = &d->peer[g->sent.hello.process - 1];
    p->hello = g->sent.hello;
    p->hello.host[sizeof p->hello.host - 1] = '\0';
    p->fd = g->fd;
    g->fd = -1; /* it stays */
    wf_detector_set_socket(p->fd);
    wf_fd_holder_add(p->fd);
    return true;
}

/* Returns one of us that has come and does not wait for the others any more, by what poll has
   seen. */
static const detector_peer *who_has_gone(const wf_detector *d, const struct pollfd *seen)
{
    char word;

    for (int i = 0; i < d->n_peers; i++)
        if (d->peer[i].fd >= 0 && seen[i].revents &&
            recv(d->peer[i].fd, &word, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
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

/* Waits for connections and messages until a moment; returns the poll results of the peers. */
static const struct pollfd *wait_at_door(const wf_detector *d, hall *h, int door, int64_t until)
{
    int64_t left = until - wf_detector_now();
    int n = 0;

    h->set[n++] = (struct pollfd){.fd = door, .events = POLLIN};
    for (int i = 0; i < h->n; i++)
        h->set[n++] = (struct pollfd){.fd = h->guest[i].fd, .events = POLLIN};
    for (int i = 0; i < d->n_peers; i++)
        h->set[n++] = (struct pollfd){.fd = d->peer[i].fd, .events = POLLIN};
    if (poll(h->set, (nfds_t)n, left < 0 ? 0 : left > LOOK_MS ? LOOK_MS : (int)left) < 0)
        for (int i = 0; i < n; i++)
            h->set[i].revents = 0;
    return &h->set[n - d->n_peers];
}

static wf_status not_come(const wf_detector *d, const detector_place *m, int seconds,
                          wf_error *error)
{
    char who[160] = "", *at = who;

    for (int i = 0; i < d->n_peers; i++)
        if (d->peer[i].fd < 0 && at < who + sizeof who - 16)
            at += snprintf(at, 16, "%s%d", at == who ? "" : ", ", i + 1);
    if (*m->name)
        return wf_error_set(
            error, WF_ELOST, "%s %s of %d not reached process 0 on %s within %d s",
            strchr(who, ',') ? "processes" : "process", who, d->o.processes, m->host, seconds);
    return wf_error_set(
        error, WF_ELOST,
        "%s %s of %d not reached process 0 on %s, port %d, within %d s: TCP "
        "has to reach it; name its address in WEFT_DETECTOR_ADDRESS where hosts "
        "know another one",
        strchr(who, ',') ? "processes" : "process", who, d->o.processes, m->host, (int)m->port,
        seconds);
}

wf_status wf_detector_gather(wf_detector *d, int door, const detector_place *m, wf_error *error)
{
    int64_t begun = wf_detector_now(), until = begun + wf_detector_meet_ms(d);
    hall h = {.most = d->n_peers + STRANGERS, .here = *m->name != '\0'};
    const detector_peer *gone = NULL;
    wf_status status = WF_OK;

    h.guest = calloc((size_t)h.most, sizeof *h.guest);
    h.set = calloc((size_t)(1 + h.most + d->n_peers), sizeof *h.set);
    if (!h.guest || !h.set)
        status = wf_error_set(error, WF_ENOMEM, "no memory to meet %d processes", d->n_peers);
    while (status == WF_OK && !gone && count_come(d) < d->n_peers &&
           wf_detector_now() < until) {
        gone = who_has_gone(d, wait_at_door(d, &h, door, until));
        let_in(&h, door);
        for (int i = h.n - 1; i >= 0; i--)
            if (listen_to(d, &h.guest[i], m))
                send_away(&h, i);
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
