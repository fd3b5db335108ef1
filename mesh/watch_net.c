/*
 * mesh/watch_net.c - how the processes of a world find each other for the watch, and what they
 * send. Process 0 listens; its transport carries its addresses to the others, which try them in
 * turn. WEFT_WATCH_ADDRESS names the one to be used where others than the listed ones work.
 */
#include "mesh/watch_parts.h"
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
    HELLO_MS = 5000,
    MEET_MS = 60000 /* for all processes to come */
};

/* Where process 0 is; what its transport carries. */
typedef struct meeting {
    uint64_t token; /* not everybody who connects is one of us */
    int32_t port, count;
    char host[WF_WATCH_HOST];
    char address[ADDRESSES][ADDRESS_BYTES];
} meeting;

typedef struct welcome {
    watch_hello head; /* of process 0 */
    int32_t deputy;
} welcome;

/* ---- messages ---- */

void wf_watch_send(const watch_peer *p, wf_watch_kind kind, const void *data, size_t bytes)
{
    watch_head head = {(uint32_t)kind, (uint32_t)bytes};
    struct iovec part[2] = {{&head, sizeof head}, {(void *)(uintptr_t)data, bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = bytes ? 2 : 1};
    ssize_t sent = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    /* half a message would spoil all that follow: the peer sees the end instead */
    if (sent > 0 && (size_t)sent < sizeof head + bytes)
        shutdown(p->fd, SHUT_RDWR);
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

/* One message of a kind and size that are known; false: it has not come. */
static bool receive_one(int fd, int wait_ms, wf_watch_kind kind, void *data, size_t bytes)
{
    struct timeval limit = {wait_ms / 1000, wait_ms % 1000 * 1000};
    watch_head h;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, &h, sizeof h, MSG_WAITALL) == (ssize_t)sizeof h &&
           h.kind == (uint32_t)kind && h.bytes == bytes &&
           recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void send_at_once(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
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

static int listen_anywhere(int32_t *port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in6 six;
        struct sockaddr_in four;
    } a;
    socklen_t size = sizeof a;
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memset(&a, 0, sizeof a);
    a.six.sin6_family = AF_INET6;
    a.six.sin6_addr = in6addr_any;
    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
                    bind(fd, &a.any, sizeof a.six) != 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) { /* without IPv6 */
        memset(&a, 0, sizeof a);
        a.four.sin_family = AF_INET;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && bind(fd, &a.any, sizeof a.four) != 0) {
            close(fd);
            return -1;
        }
    }
    if (fd < 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, &a.any, &size) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = ntohs(a.any.sa_family == AF_INET6 ? a.six.sin6_port : a.four.sin_port);
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

static void list_addresses(meeting *m)
{
    const char *named = getenv("WEFT_WATCH_ADDRESS");
    struct ifaddrs *all = NULL;

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

/* One of ours, or a stranger, who is sent away. */
static void let_in(wf_world_watch *w, int fd, const meeting *m, int *come)
{
    watch_hello h = {0};
    watch_peer *p;

    if (!receive_one(fd, HELLO_MS, WATCH_HELLO, &h, sizeof h) || h.token != m->token ||
        h.process < 1 || h.process > w->n_peers || w->peer[h.process - 1].fd >= 0) {
        close(fd);
        return;
    }
    p = &w->peer[h.process - 1];
    h.host[sizeof h.host - 1] = '\0';
    send_at_once(fd);
    p->hello = h;
    p->fd = fd;
    wf_watch_kept(fd);
    (*come)++;
}

static wf_status gather_all(wf_world_watch *w, int door, const meeting *m, wf_error *error)
{
    struct pollfd set = {.fd = door, .events = POLLIN};
    int64_t until = wf_watch_now() + MEET_MS, left;
    int come = 0;

    while (come < w->n_peers && (left = until - wf_watch_now()) > 0) {
        int fd;

        if (poll(&set, 1, (int)left) > 0 && (fd = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0)
            let_in(w, fd, m, &come);
    }
    for (int i = 0; i < w->n_peers; i++)
        if (w->peer[i].fd < 0)
            return wf_error_set(error, WF_ELOST,
                                "process %d has not come to process 0 on %s, port %d, within "
                                "%d s: TCP has to reach it; name its address in "
                                "WEFT_WATCH_ADDRESS where hosts know another one",
                                i + 1, m->host, (int)m->port, MEET_MS / 1000);
    return WF_OK;
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
    int door = listen_anywhere(&m.port);
    wf_status status;

    if (getrandom(&m.token, sizeof m.token, 0) != sizeof m.token)
        m.token = (uint64_t)wf_watch_now() ^ (uint64_t)getpid() << 32;
    reply.head = hello_of(w, m.token);
    memcpy(m.host, reply.head.host, sizeof m.host);
    list_addresses(&m);
    m.port = door < 0 ? -1 : m.port;
    status = w->o.transport->share(w->o.world, &m, sizeof m, error);
    if (status == WF_OK && door < 0)
        status = wf_error_set(error, WF_ELOST, "process 0 cannot listen for the others: %s",
                              strerror(errno));
    if (status == WF_OK)
        status = gather_all(w, door, &m, error);
    if (door >= 0)
        close(door);
    reply.deputy = w->deputy = choose_deputy(w, m.host);
    for (int i = 0; status == WF_OK && i < w->n_peers; i++)
        wf_watch_send(&w->peer[i], WATCH_WELCOME, &reply, sizeof reply);
    return status;
}

/* ---- the others ---- */

static bool connects(int fd, const struct addrinfo *a)
{
    struct pollfd set = {.fd = fd, .events = POLLOUT};
    int failure = 0;
    socklen_t size = sizeof failure;

    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || poll(&set, 1, CONNECT_MS) <= 0))
        return false;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0 &&
           fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0;
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
    mine = hello_of(w, m.token);
    for (int pass = 0; pass < 2 && p->fd < 0; pass++)
        for (int i = 0; i < m.count && p->fd < 0; i++)
            if (is_loopback(m.address[i]) ? pass == 0 && strcmp(mine.host, m.host) == 0
                                          : pass == 1)
                p->fd = call(m.address[i], m.port);
    if (p->fd >= 0) {
        send_at_once(p->fd);
        wf_watch_send(p, WATCH_HELLO, &mine, sizeof mine);
    }
    if (p->fd < 0 || !receive_one(p->fd, MEET_MS, WATCH_WELCOME, &reply, sizeof reply))
        return wf_error_set(error, WF_ELOST,
                            "process %d on %s does not reach process 0 on %s over TCP, port %d "
                            "(%d addresses, the first %s); name one that works in "
                            "WEFT_WATCH_ADDRESS",
                            w->o.process, mine.host, m.host, (int)m.port, (int)m.count,
                            m.count ? m.address[0] : "none");
    wf_watch_kept(p->fd);
    p->hello = reply.head;
    w->deputy = reply.deputy;
    return WF_OK;
}

wf_status wf_watch_meet(wf_world_watch *w, wf_error *error)
{
    return w->o.process == 0 ? host_all(w, error) : join(w, error);
}
