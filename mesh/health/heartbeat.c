/*
 * mesh/health/heartbeat.c - how the processes of a world find each other for the watch, and what they
 * send. Process 0 listens; its transport carries its addresses to the others, which try them in
 * turn. WEFT_WATCH_ADDRESS names the one to be used where others than the listed ones work.
 */
#include "mesh/health/muster_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
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
    HELLO_MS = 5000
};

/* Where process 0 is; what its transport carries. */
typedef struct meeting {
    watch_place at;
    int32_t count;
    char address[ADDRESSES][ADDRESS_BYTES];
} meeting;

typedef struct welcome {
    watch_hello head; /* of process 0 */
    int32_t deputy;
    char deputy_host[WF_WATCH_HOST];
} welcome;

/* ---- messages ---- */

bool wf_watch_send(const watch_peer *p, wf_watch_kind kind, const void *data, size_t bytes)
{
    watch_head head = {(uint32_t)kind, (uint32_t)bytes};
    struct iovec part[2] = {{&head, sizeof head}, {(void *)(uintptr_t)data, bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = bytes ? 2 : 1};
    ssize_t sent = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    /* half a message would spoil all that follow: the peer sees the end instead */
    if (sent > 0 && (size_t)sent < sizeof head + bytes)
        shutdown(p->fd, SHUT_RDWR);
    return sent == (ssize_t)(sizeof head + bytes);
}

bool wf_watch_receive(wf_world_watch *w, watch_peer *p,
                      void (*take)(wf_world_watch *w, watch_peer *p, const watch_head *h,
                                   const void *data))
{
    size_t room = wf_watch_room(w), at = 0;
    ssize_t came = recv(p->fd, p->in + p->used, room - p->used, MSG_DONTWAIT);

    if (came < 0)
        return errno == EAGAIN || errno == EINTR;
    if (came == 0)
        return false;
    p->used += (size_t)came;
    for (;;) {
        watch_head h;

        if (p->used - at < sizeof h)
            break;
        memcpy(&h, p->in + at, sizeof h);
        if (h.bytes > room - sizeof h)
            return false; /* none of ours */
        if (p->used - at < sizeof h + h.bytes)
            break;
        take(w, p, &h, p->in + at + sizeof h);
        at += sizeof h + h.bytes;
    }
    memmove(p->in, p->in + at, p->used - at);
    p->used -= at;
    return true;
}

/* All of it, or false: it has not come in time. Signals, a debugger, SIGSTOP change nothing. */
static bool receive_all(int fd, int64_t until, void *data, size_t bytes)
{
    size_t got = 0;

    while (got < bytes) {
        struct pollfd set = {.fd = fd, .events = POLLIN};
        int64_t left = until - wf_watch_now();
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

/* One message of a kind and size that are known. */
static bool receive_one(int fd, int64_t until, wf_watch_kind kind, void *data, size_t bytes)
{
    watch_head h;

    return receive_all(fd, until, &h, sizeof h) && h.kind == (uint32_t)kind &&
           h.bytes == bytes && receive_all(fd, until, data, bytes);
}

static watch_hello hello_of(const wf_world_watch *w, uint64_t token)
{
    watch_hello h = {.token = token,
                     .process = w->o.process,
                     .pid = (int32_t)getpid(),
                     .rank = w->o.rank[0]};

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

/* Where processes of other hosts are to come, anywhere they reach; else on this host alone. */
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
    const char *named = getenv("WEFT_WATCH_ADDRESS");
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

/* Who tells of the loss of process 0: the first that would not be lost with its host. */
static int choose_deputy(const wf_world_watch *w, const char *host)
{
    for (int i = 0; i < w->n_peers; i++)
        if (strcmp(w->peer[i].hello.host, host) != 0)
            return i + 1;
    return 1;
}

static wf_status host_all(wf_world_watch *w, wf_error *error)
{
    meeting m = {.count = 0};
    welcome reply;
    int door = listen_for_all(w->o.alone, &m.at.port);
    wf_status status;

    if (getrandom(&m.at.token, sizeof m.at.token, 0) != sizeof m.at.token)
        m.at.token = (uint64_t)wf_watch_now() ^ (uint64_t)getpid() << 32;
    reply.head = hello_of(w, m.at.token);
    memcpy(m.at.host, reply.head.host, sizeof m.at.host);
    list_addresses(&m, w->o.alone);
    m.at.port = door < 0 ? -1 : m.at.port;
    status = w->o.transport->share(w->o.world, &m, sizeof m, error);
    if (status == WF_OK && door < 0)
        status = wf_error_set(error, WF_ELOST, "process 0 cannot listen for the others: %s",
                              strerror(errno));
    if (status == WF_OK)
        status = wf_watch_gather(w, door, &m.at, error);
    if (door >= 0)
        close(door);
    reply.deputy = w->deputy = choose_deputy(w, m.at.host);
    memcpy(reply.deputy_host, w->peer[w->deputy - 1].hello.host, sizeof reply.deputy_host);
    for (int i = 0; status == WF_OK && i < w->n_peers; i++)
        if (!wf_watch_send(&w->peer[i], WATCH_WELCOME, &reply, sizeof reply))
            status = wf_error_set(error, WF_ELOST, "process %d cannot be answered: %s", i + 1,
                                  strerror(errno));
    return status;
}

/* ---- the others ---- */

static bool connects(int fd, const struct addrinfo *a)
{
    struct pollfd set = {.fd = fd, .events = POLLOUT};
    int64_t until = wf_watch_now() + CONNECT_MS, left = CONNECT_MS;
    int failure = 0, ready = 1;
    socklen_t size = sizeof failure;

    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return false;
        while ((ready = poll(&set, 1, (int)left)) < 0 && errno == EINTR &&
               (left = until - wf_watch_now()) > 0)
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

static wf_status join(wf_world_watch *w, wf_error *error)
{
    meeting m = {.count = 0};
    watch_peer *p = &w->peer[0];
    watch_hello mine;
    welcome reply;
    wf_status status = w->o.transport->share(w->o.world, &m, sizeof m, error);

    if (status != WF_OK)
        return status;
    mine = hello_of(w, m.at.token);
    for (int pass = 0; pass < 2 && p->fd < 0; pass++)
        for (int i = 0; i < m.count && p->fd < 0; i++)
            if (is_loopback(m.address[i]) ? pass == 0 && strcmp(mine.host, m.at.host) == 0
                                          : pass == 1)
                p->fd = call(m.address[i], m.at.port);
    if (p->fd >= 0) {
        wf_watch_send_at_once(p->fd);
        if (!wf_watch_send(p, WATCH_HELLO, &mine, sizeof mine))
            return wf_error_set(error, WF_ELOST, "process 0 cannot be spoken to: %s",
                                strerror(errno));
    }
    if (p->fd >= 0 && !receive_one(p->fd, wf_watch_now() + wf_watch_meet_ms(w) + HELLO_MS,
                                   WATCH_WELCOME, &reply, sizeof reply))
        return wf_error_set(error, WF_ELOST,
                            "process 0 on %s has given up the start of the run, or has ended; "
                            "process %d on %s had reached it",
                            m.at.host, w->o.process, mine.host);
    if (p->fd < 0)
        return wf_error_set(error, WF_ELOST,
                            "process %d on %s does not reach process 0 on %s over TCP, port %d "
                            "(%d addresses, the first %s); name one that works in "
                            "WEFT_WATCH_ADDRESS",
                            w->o.process, mine.host, m.at.host, (int)m.at.port, (int)m.count,
                            m.count ? m.address[0] : "none");
    wf_watch_kept(p->fd);
    p->hello = reply.head;
    w->deputy = reply.deputy;
    w->with_deputy = strcmp(reply.deputy_host, mine.host) == 0;
    return WF_OK;
}

wf_status wf_watch_meet(wf_world_watch *w, wf_error *error)
{
    return w->o.process == 0 ? host_all(w, error) : join(w, error);
}
