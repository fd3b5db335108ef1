/*
 * tests/hosts/rendezvous_faults.c - system calls of the rendezvous that fail once, in
 * gpt_train_faulty: WEFT_FAIL_CALL="NAME N PROCESS ERRNO" makes the N-th call of that name fail
 * (from 1) while processes meet (wf_detector_open); an ERRNO of 0 fails none. With
 * WEFT_FAIL_LOG=FILE each process adds a line there of what it has called: "PROCESS NAME
 * COUNT".
 */
#include "tests/hosts/rendezvous_faults.h"
#include "mesh/transport/launcher.h"
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

static const char *const names[] = {
    "socket",     "bind",        "listen",  "getsockname", "accept4",       "connect",
    "poll",       "recv",        "sendmsg", "setsockopt",  "getsockopt",    "fcntl",
    "getifaddrs", "getaddrinfo", "eventfd", "getrandom",   "pthread_create"};

enum { NAMES = sizeof names / sizeof names[0] };

static _Thread_local bool meeting;
static int counts[NAMES];

void fail_calls_from_now_on(void)
{
    meeting = true;
}

void fail_calls_no_more(void)
{
    const char *path = getenv("WEFT_FAIL_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;

    meeting = false;
    for (int i = 0; file && i < NAMES; i++)
        fprintf(file, "%d %s %d\n", wf_launcher_detected().process, names[i], counts[i]);
    if (file)
        fclose(file);
}

/* The errno of this call, or 0. */
static int fails(const char *name)
{
    const char *text = getenv("WEFT_FAIL_CALL");
    char which[24];
    int number, process, code, i = 0;

    if (!meeting)
        return 0;
    while (strcmp(names[i], name) != 0)
        i++;
    counts[i]++;
    if (!text || sscanf(text, "%23s %d %d %d", which, &number, &process, &code) != 4 ||
        strcmp(which, name) != 0 || counts[i] != number ||
        process != wf_launcher_detected().process)
        return 0;
    errno = code;
    return code;
}

#define REAL(type, name, ...)                                                                  \
    type __real_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__)

REAL(int, socket, int family, int type, int protocol)
{
    return fails("socket") ? -1 : __real_socket(family, type, protocol);
}

REAL(int, bind, int fd, const struct sockaddr *a, socklen_t size)
{
    return fails("bind") ? -1 : __real_bind(fd, a, size);
}

REAL(int, listen, int fd, int backlog)
{
    return fails("listen") ? -1 : __real_listen(fd, backlog);
}

REAL(int, getsockname, int fd, struct sockaddr *a, socklen_t *size)
{
    return fails("getsockname") ? -1 : __real_getsockname(fd, a, size);
}

REAL(int, accept4, int fd, struct sockaddr *a, socklen_t *size, int flags)
{
    return fails("accept4") ? -1 : __real_accept4(fd, a, size, flags);
}

REAL(int, connect, int fd, const struct sockaddr *a, socklen_t size)
{
    return fails("connect") ? -1 : __real_connect(fd, a, size);
}

REAL(int, poll, struct pollfd *set, nfds_t n, int wait_ms)
{
    return fails("poll") ? -1 : __real_poll(set, n, wait_ms);
}

REAL(ssize_t, recv, int fd, void *data, size_t bytes, int flags)
{
    return fails("recv") ? -1 : __real_recv(fd, data, bytes, flags);
}

REAL(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    return fails("sendmsg") ? -1 : __real_sendmsg(fd, message, flags);
}

REAL(int, setsockopt, int fd, int level, int name, const void *value, socklen_t size)
{
    return fails("setsockopt") ? -1 : __real_setsockopt(fd, level, name, value, size);
}

REAL(int, getsockopt, int fd, int level, int name, void *value, socklen_t *size)
{
    return fails("getsockopt") ? -1 : __real_getsockopt(fd, level, name, value, size);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);

int __wrap_fcntl(int fd, int command, ...)
{
    va_list more;
    long value;

    va_start(more, command);
    value = va_arg(more, long);
    va_end(more);
    return fails("fcntl") ? -1 : __real_fcntl(fd, command, value);
}

REAL(int, getifaddrs, struct ifaddrs **all)
{
    return fails("getifaddrs") ? -1 : __real_getifaddrs(all);
}

REAL(int, getaddrinfo, const char *host, const char *service, const struct addrinfo *hints,
     struct addrinfo **out)
{
    return fails("getaddrinfo") ? EAI_AGAIN : __real_getaddrinfo(host, service, hints, out);
}

REAL(int, eventfd, unsigned value, int flags)
{
    return fails("eventfd") ? -1 : __real_eventfd(value, flags);
}

REAL(ssize_t, getrandom, void *data, size_t bytes, unsigned flags)
{
    return fails("getrandom") ? -1 : __real_getrandom(data, bytes, flags);
}

REAL(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*run)(void *), void *arg)
{
    int code = fails("pthread_create");

    return code ? code : __real_pthread_create(thread, attributes, run, arg);
}
