/* mesh/health/heartbeat.c - the messages between processes that have met. */
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

bool wf_detector_send(const detector_peer *p, wf_detector_kind kind, const void *data,
                      size_t bytes)
{
    detector_head head = {(uint32_t)kind, (uint32_t)bytes};
    struct iovec part[2] = {{&head, sizeof head}, {(void *)(uintptr_t)data, bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = bytes ? 2 : 1};
    struct pollfd writable = {.fd = p->fd, .events = POLLOUT};
    ssize_t sent;

    /* a repeated message may wait for the peer to read: no half of it is sent */
    if (kind == DETECTOR_STATUS && poll(&writable, 1, 0) == 0)
        return false;
    sent = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    /* half a message would spoil all that follow: the peer sees the end instead */
    if (sent > 0 && (size_t)sent < sizeof head + bytes)
        shutdown(p->fd, SHUT_RDWR);
    return sent == (ssize_t)(sizeof head + bytes);
}

bool wf_detector_receive(wf_detector *d, detector_peer *p,
                         void (*take)(wf_detector *d, detector_peer *p, const detector_head *h,
                                      const void *data))
{
    size_t room = wf_detector_room(d), at = 0;
    ssize_t came = recv(p->fd, p->in + p->used, room - p->used, MSG_DONTWAIT);

    if (came < 0)
        return errno == EAGAIN || errno == EINTR;
    if (came == 0)
        return false;
    p->used += (size_t)came;
    for (;;) {
        detector_head h;

        if (p->used - at < sizeof h)
            break;
        memcpy(&h, p->in + at, sizeof h);
        if (h.bytes > room - sizeof h)
            return false; /* none of ours */
        if (p->used - at < sizeof h + h.bytes)
            break;
        take(d, p, &h, p->in + at + sizeof h);
        at += sizeof h + h.bytes;
    }
    memmove(p->in, p->in + at, p->used - at);
    p->used -= at;
    return true;
}
