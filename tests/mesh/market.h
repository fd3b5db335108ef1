/*
 * tests/mesh/market.h - two processes that meet, each a thread: what process 0 shares is
 * carried by a market.
 */
#ifndef WF_TESTS_MESH_MARKET_H
#define WF_TESTS_MESH_MARKET_H

#include "mesh/health/failure_detector_parts_internal.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void nap(int milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

/* ---- two processes that meet, each a thread here ---- */

static struct market {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shared;
    char data[4096];
} market = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* world: whether it is process 0. */
static inline wf_status share(void *world, void *data, size_t bytes, wf_error *error)
{
    (void)error;
    pthread_mutex_lock(&market.lock);
    if (*(bool *)world)
        memcpy(market.data, data, bytes);
    market.shared = market.shared || *(bool *)world;
    pthread_cond_broadcast(&market.changed);
    while (!market.shared)
        pthread_cond_wait(&market.changed, &market.lock);
    memcpy(data, market.data, bytes);
    pthread_mutex_unlock(&market.lock);
    return WF_OK;
}

static inline wf_status no_cause(void *world, int *failed_rank, wf_error *error)
{
    (void)world;
    (void)failed_rank;
    (void)error;
    return WF_OK;
}

static inline void no_failure(void *world, int failed_rank, const wf_error *cause, bool lost)
{
    (void)world;
    (void)failed_rank;
    (void)cause;
    (void)lost;
}

static const wf_transport market_transport = {
    .name = "market", .moves = true, .share = share, .cause = no_cause, .fail = no_failure};

typedef struct meeter {
    int process;
    bool alone; /* by a name of this host, not over TCP */
    pthread_t thread;
    wf_status status;
    wf_error error;
} meeter;

static inline void *meet(void *arg)
{
    meeter *m = arg;
    bool head = m->process == 0;
    wf_comm comm = {.size = 2}, *comms[1] = {&comm};
    const wf_detector_options o = {.transport = &market_transport,
                                   .world = &head,
                                   .comm = comms,
                                   .ranks = 2,
                                   .local_size = 1,
                                   .rank = &m->process,
                                   .processes = 2,
                                   .process = m->process,
                                   .limit = 10,
                                   .alone = m->alone};
    wf_detector *w = NULL;

    m->status = wf_detector_open(&o, &w, &m->error);
    if (m->status == WF_OK) {
        wf_detector_leave(w);
        wf_detector_close(w);
    }
    return NULL;
}

/* The address at which process 0 waits, as the market carries it. */
static inline detector_address address_of_head(void)
{
    detector_address address;

    pthread_mutex_lock(&market.lock);
    while (!market.shared)
        pthread_cond_wait(&market.changed, &market.lock);
    memcpy(&address, market.data, sizeof address);
    pthread_mutex_unlock(&market.lock);
    return address;
}

static inline int strange_connection(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CU_ASSERT(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

#endif
