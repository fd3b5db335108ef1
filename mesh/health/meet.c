/*
 * mesh/health/meet.c - how the processes of a world find each other for the failure detector.
 * Process 0 listens; its transport carries to the others where. On one host that is a name that
 * only processes of this user can reach (private_names_internal.h); over hosts, or where there
 * is no such name, it is addresses, which are tried one after the other. WEFT_DETECTOR_ADDRESS
 * names the one to be used where others than the listed ones work.
 */
#include "mesh/health/process_registry_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    ADDRESSES = 16,
    ADDRESS_BYTES = 48,
    CONNECT_MS = 3000, /* to one address */
    HELLO_MS = 5000,
    RETRY_MS = 20, /* between two connections of a process that was dismissed */
    ROOM_BYTES = 4 << 20
};

/* The address of process 0, as its transport carries it. */
typedef struct meeting {
    detector_address at;
    int32_t count;
    char address[ADDRESSES][ADDRESS_BYTES];
} meeting;

typedef struct welcome {
    detector_hello head; /* process 0 */
    int32_t backup;
    char backup_host[WF_DETECTOR_HOST];
} welcome;

/* Receives all bytes, or returns false: they have not come in time. Signals, a debugger,
   SIGSTOP change nothing. */
static bool receive_all(int fd, int64_t until, void *data, size_t bytes)
{
    size_t got = 0;

    while (got < bytes) {
        struct pollfd set = {.fd = fd, .events = POLLIN};
        int64_t left = until - wf_detector_now();
        ssize_t came = recv(fd, (char *)data + got, bytes - got, MSG_DONTWAIT);

        if (came > 0)
            got += (size_t)came;
        else if (came == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else if (left <= 0 || (poll(&set, 1, (int)left) < 0 && errno != EINTR))
            return false;
    }
    return true;
}

/* Receives one message of a kind and size that are known. */
static bool receive_one(int fd, int64_t until, wf_detector_kind kind, void *data, size_t bytes)
{
    detector_head h;

    return receive_all(fd, until, &h, sizeof h) && h.kind == (uint32_t)kind &&
           h.bytes == bytes && receive_all(fd, until, data, bytes);
}

static detector_hello hello_of(const wf_detector *d, uint64_t token)
{
    detector_hello h = {.token = token,
                        .process = d->o.process,
                        .pid = (int32_t)getpid(),
                        .rank = d->o.rank[0]};

    gethostname(h.host, sizeof h.host - 1);
    return h;
}

/* ---- process 0 ---- */

typedef union socket_address {
    struct sockaddr any;
    struct sockaddr_in6 six;
    struct sockaddr_in four;
} socket_address;

static int listen_at(const socket_address *a, socklen_t size)
{
    int off = 0, fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && ((a->any.sa_family == AF_INET6 &&
                     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
                    bind(fd, &a->any, size) != 0 || listen(fd, SOMAXCONN) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Listens for processes of other hosts, on all addresses; else on this host alone. */
static int listen_for_all(bool alone, int32_t *port)
{
    socket_address six = {.six = {.sin6_family = AF_INET6}},
                   four = {.four = {.sin_family = AF_INET}};
    socklen_t size = sizeof six;
    int fd = -1;

    if (alone)
        four.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        fd = listen_at(&six, sizeof six.six);
    if (fd < 0)
        fd = listen_at(&four, sizeof four.four);
    if (fd < 0 || getsockname(fd, &six.any, &size) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = ntohs(six.any.sa_family == AF_INET6 ? six.six.sin6_port : six.four.sin_port);
    return fd;
}

static void add_address(meeting *m, const struct sockaddr *a)
{
    socklen_t size =
        a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    const struct sockaddr_in6 *six = (const void *)a;

    if (m->count == ADDRESSES || (a->sa_family != AF_INET && a->sa_family != AF_INET6) ||
        (a->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)))
        return;
    if (getnameinfo(a, size, m->address[m->count], ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST) == 0)
        m->count++;
}

static void list_addresses(meeting *m, bool alone)
{
    const char *named = getenv("WEFT_DETECTOR_ADDRESS");
    struct ifaddrs *all = NULL;

    if (alone) {
        strcpy(m->address[m->count++], "127.0.0.1");
        return;
    }
    if (named && *named && strlen(named) < ADDRESS_BYTES) {
        strcpy(m->address[m->count++], named);
        return;
    }
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr)
            add_address(m, i->ifa_addr);
    freeifaddrs(all);
}

/* Who reports the loss of process 0: the first that would not be lost with its host. */
static int choose_backup(const wf_detector *d, const char *host)
{
    for (int i = 0; i < d->n_peers; i++)
        if (strcmp(d->peer[i].hello.host, host) != 0)
            return i + 1;
    return 1;
}

/* Listens under a name where all processes are on this host; -1: no name can be had. */
static int listen_here(char *name, size_t room)
{
    char why[128];
    uint64_t number;
    int fd = -1;

    if (wf_names_open(why, sizeof why) &&
        getrandom(&number, sizeof number, 0) == sizeof number) {
        snprintf(name, room, "weft-meet-%016" PRIx64, number);
        fd = wf_names_listen(name);
    }
    if (fd < 0)
        *name = '\0';
    return fd;
}

static wf_status host_all(wf_detector *d, wf_error *error)
{
    meeting m = {.count = 0};
    welcome reply;
    int listener = d->o.alone ? listen_here(m.at.name, sizeof m.at.name) : -1;
    wf_status status;

    if (listener < 0)
        listener = listen_for_all(d->o.alone, &m.at.port);
    if (listener >= 0)
        wf_fd_holder_add(listener);
    if (getrandom(&m.at.token, sizeof m.at.token, 0) != sizeof m.at.token)
        m.at.token = (uint64_t)wf_detector_now() ^ (uint64_t)getpid() << 32;
    reply.head = hello_of(d, m.at.token);
    memcpy(m.at.host, reply.head.host, sizeof m.at.host);
    list_addresses(&m, d->o.alone);
    m.at.port = listener < 0 ? -1 : m.at.port;
    status = d->o.transport->share(d->o.world, &m, sizeof m, error);
    if (status == WF_OK && listener < 0)
        status = wf_error_set(error, WF_ELOST, "process 0 cannot listen for the others: %s",
                              strerror(errno));
    if (status == WF_OK)
        status = wf_detector_gather(d, listener, &m.at, error);
    if (listener >= 0) {
        wf_fd_holder_drop(listener);
        close(listener);
    }
    if (*m.at.name)
        wf_names_remove(m.at.name);
    reply.backup = d->backup = choose_backup(d, m.at.host);
    memcpy(reply.backup_host, d->peer[d->backup - 1].hello.host, sizeof reply.backup_host);
    for (int i = 0; status == WF_OK && i < d->n_peers; i++)
        if (!wf_detector_send(&d->peer[i], DETECTOR_WELCOME, &reply, sizeof reply))
            status = wf_error_set(error, WF_ELOST, "process %d cannot be answered: %s", i + 1,
                                  strerror(errno));
    return status;
}

/* ---- the others ---- */

static bool connects(int fd, const struct addrinfo *a)
{
    struct pollfd set = {.fd = fd, .events = POLLOUT};
    int64_t until = wf_detector_now() + CONNECT_MS, left = CONNECT_MS;
    int failure = 0, ready = 1;
    socklen_t size = sizeof failure;

    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return false;
        while ((ready = poll(&set, 1, (int)left)) < 0 && errno == EINTR &&
               (left = until - wf_detector_now()) > 0)
            ;
    }
    return ready > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 &&
           failure == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0;
}

static int call(const char *address, int port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *a = NULL;
    char service[16];
    int fd;

    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &a) != 0)
        return -1;
    fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !connects(fd, a)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(a);
    return fd;
}

/* Loopback leads to process 0 on its own host alone, and there at once. */
static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static int reach_head(const meeting *m, const char *host)
{
    pid_t pid;
    int fd = *m->at.name ? wf_names_connect(m->at.name, &pid) : -1;

    for (int pass = 0; !*m->at.name && pass < 2 && fd < 0; pass++)
        for (int i = 0; i < m->count && fd < 0; i++)
            if (is_loopback(m->address[i]) ? pass == 0 && strcmp(host, m->at.host) == 0
                                           : pass == 1)
                fd = call(m->address[i], m->at.port);
    return fd;
}

static wf_status not_reached(const wf_detector *d, const meeting *m, const detector_hello *mine,
                             wf_error *error)
{
    if (*m->at.name)
        return wf_error_set(
            error, WF_ELOST,
            "process %d does not reach process 0 on %s, though both are on this "
            "host: it has ended, or they do not see the same files",
            d->o.process, m->at.host);
    return wf_error_set(error, WF_ELOST,
                        "process %d on %s does not reach process 0 on %s over TCP, port %d "
                        "(%d addresses, the first %s); name one that works in "
                        "WEFT_DETECTOR_ADDRESS",
                        d->o.process, mine->host, m->at.host, (int)m->at.port, (int)m->count,
                        m->count ? m->address[0] : "none");
}

/* Connects and says which process this is, until it is accepted: connections of other programs
   that crowd process 0 may have it dismiss this one. When process 0 has given up, or ended, it
   can't be reached any more. */
static wf_status join(wf_detector *d, wf_error *error)
{
    meeting m = {.count = 0};
    detector_peer *p = &d->peer[0];
    detector_hello mine;
    welcome reply;
    wf_status status = d->o.transport->share(d->o.world, &m, sizeof m, error);
    int64_t until = wf_detector_now() + wf_detector_meet_ms(d) + HELLO_MS;

    if (status != WF_OK)
        return status;
    mine = hello_of(d, m.at.token);
    for (bool met = false, first = true; !met; first = false) {
        p->fd = reach_head(&m, mine.host);
        if (p->fd < 0 && first)
            return not_reached(d, &m, &mine, error);
        if (p->fd < 0 || wf_detector_now() > until)
            return wf_error_set(error, WF_ELOST,
                                "process 0 on %s has given up the start of the run, or has "
                                "ended; process %d on %s had reached it",
                                m.at.host, d->o.process, mine.host);
        wf_detector_set_socket(p->fd);
        met = wf_detector_send(p, DETECTOR_HELLO, &mine, sizeof mine) &&
              receive_one(p->fd, until, DETECTOR_WELCOME, &reply, sizeof reply);
        if (!met) {
            close(p->fd);
            p->fd = -1;
            nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
        }
    }
    wf_fd_holder_add(p->fd);
    p->hello = reply.head;
    d->backup = reply.backup;
    d->with_backup = strcmp(reply.backup_host, mine.host) == 0;
    return WF_OK;
}

wf_status wf_detector_meet(wf_detector *d, wf_error *error)
{
    wf_status status = d->o.process == 0 ? host_all(d, error) : join(d, error);

    if (status == WF_OK)
        wf_registry_met();
    return status;
}
