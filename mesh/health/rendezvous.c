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

/* Returns the time that the start may take (mesh/health/process_registry_internal.h, which sees
   more): here of all hosts. */
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
typedef struct pending_connection {
    int fd;
    int64_t until;
    size_t got;
    struct {
        detector_head head;
        detector_hello hello;
    } sent;
} pending_connection;

typedef struct accept_queue {
    bool here; /* the listening socket is a name of this host, for processes of this user */
    int n, most;
    pending_connection *pending; /* [most], in order of arrival */
    /* [1 + most + n_peers] the listening socket, pending connections, and accepted processes */
    struct pollfd *set;
} accept_queue;

static void close_pending(accept_queue *q, int i)
{
    if (q->pending[i].fd >= 0)
        close(q->pending[i].fd);
    memmove(&q->pending[i], &q->pending[i + 1], (size_t)(--q->n - i) * sizeof *q->pending);
}

/* Accepts at most TURN connections. Where there is no room, or no descriptor, the one that has
   sent nothing for longest is closed: it was read in the round before. */
static void accept_pending(accept_queue *q, int listener)
{
    pid_t pid;
    int fd;

    for (int i = 0; i < TURN; i++) {
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && q->n) {
            close_pending(q, 0);
            continue;
        }
        if (fd < 0 && errno != ECONNABORTED)
            return;
        if (fd < 0 || (q->here && !wf_names_is_peer(fd, &pid))) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        if (q->n == q->most)
            close_pending(q, 0);
        q->pending[q->n++] =
            (pending_connection){.fd = fd, .until = wf_detector_now() + HELLO_MS};
    }
}

/* Returns false as soon as what has come can't become a hello of this job. The token is
   compared as a whole: byte by byte the dismissals would give it away. */
static bool may_be_ours(const pending_connection *g, const detector_address *m)
{
    const detector_head head = {DETECTOR_HELLO, sizeof(detector_hello)};
    size_t token = sizeof head + offsetof(detector_hello, token) + sizeof m->token;

    return memcmp(&g->sent.head, &head, g->got < sizeof head ? g->got : sizeof head) == 0 &&
           (g->got < token || g->sent.hello.token == m->token);
}

static bool is_ours(const wf_detector *d, const pending_connection *g)
{
    int32_t process = g->sent.hello.process;

    return process >= 1 && process <= d->n_peers && d->peer[process - 1].fd < 0;
}

/* Reads the bytes that have come. True: the connection was accepted, or is to be closed. */
static bool read_hello(wf_detector *d, pending_connection *g, const detector_address *m)
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

/* Returns a process that connected and closed its connection since, by what poll has seen. */
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
static const struct pollfd *wait_for_connections(const wf_detector *d, accept_queue *q,
                                                 int listener, int64_t until)
{
    int64_t left = until - wf_detector_now();
    int n = 0;

    q->set[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < q->n; i++)
        q->set[n++] = (struct pollfd){.fd = q->pending[i].fd, .events = POLLIN};
    for (int i = 0; i < d->n_peers; i++)
        q->set[n++] = (struct pollfd){.fd = d->peer[i].fd, .events = POLLIN};
    if (poll(q->set, (nfds_t)n, left < 0 ? 0 : left > LOOK_MS ? LOOK_MS : (int)left) < 0)
        for (int i = 0; i < n; i++)
            q->set[i].revents = 0;
    return &q->set[n - d->n_peers];
}

static wf_status not_come(const wf_detector *d, const detector_address *m, int seconds,
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

wf_status wf_detector_gather(wf_detector *d, int listener, const detector_address *m,
                             wf_error *error)
{
    int64_t begun = wf_detector_now(), until = begun + wf_detector_meet_ms(d);
    accept_queue q = {.most = d->n_peers + STRANGERS, .here = *m->name != '\0'};
    const detector_peer *gone = NULL;
    wf_status status = WF_OK;

    q.pending = calloc((size_t)q.most, sizeof *q.pending);
    q.set = calloc((size_t)(1 + q.most + d->n_peers), sizeof *q.set);
    if (!q.pending || !q.set)
        status = wf_error_set(error, WF_ENOMEM, "no memory to meet %d processes", d->n_peers);
    while (status == WF_OK && !gone && count_come(d) < d->n_peers &&
           wf_detector_now() < until) {
        gone = who_has_gone(d, wait_for_connections(d, &q, listener, until));
        accept_pending(&q, listener);
        for (int i = q.n - 1; i >= 0; i--)
            if (read_hello(d, &q.pending[i], m))
                close_pending(&q, i);
    }
    if (gone)
        status = wf_error_set(error, WF_ELOST,
                              "process %d (pid %d, rank %d) on %s has ended while the run "
                              "started",
                              gone->process, (int)gone->hello.pid, (int)gone->hello.rank,
                              gone->hello.host);
    else if (status == WF_OK && count_come(d) < d->n_peers)
        status = not_come(d, m, (int)((until - begun) / 1000), error);
    while (q.n)
        close_pending(&q, q.n - 1);
    free(q.pending);
    free(q.set);
    return status;
}
