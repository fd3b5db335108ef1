/*
 * tests/mesh/test_failure_detector_meet.c - the connections between processes: how they meet, what who is lost hears,
 * and what becomes of connections when a process dies.
 */
#include "mesh/health/failure_detector_parts_internal.h"
#include "tests/mesh/ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void nap(int milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- two processes that meet, each a thread here ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shared;
    char data[4096];
} market = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* world: whether it is process 0. */
static wf_status share(void *world, void *data, size_t bytes, wf_error *error)
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

static wf_status no_cause(void *world, int *culprit, wf_error *error)
{
    (void)world;
    (void)culprit;
    (void)error;
    return WF_OK;
}

static void no_failure(void *world, int culprit, const wf_error *cause, bool lost)
{
    (void)world;
    (void)culprit;
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

static void *meet(void *arg)
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

static int strange_connection(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CU_ASSERT(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* Where process 0 waits, as the market carries it. */
static detector_place place_of_head(void)
{
    detector_place place;

    pthread_mutex_lock(&market.lock);
    while (!market.shared)
        pthread_cond_wait(&market.changed, &market.lock);
    memcpy(&place, market.data, sizeof place);
    pthread_mutex_unlock(&market.lock);
    return place;
}

static void ignore(int number)
{
    (void)number;
}

/* Strangers who say nothing, or a part, and signals to who waits hold up nobody. */
static void processes_meet(void)
{
    enum { STRANGERS = 100 };
    meeter head = {.process = 0}, other = {.process = 1};
    struct sigaction action = {.sa_handler = ignore};
    int fd[STRANGERS];
    detector_place place;
    double start;

    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&head.thread, NULL, meet, &head);
    place = place_of_head();
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = strange_connection(place.port);
        CU_ASSERT(i % 3 || send(fd[i], "hello", 5, MSG_NOSIGNAL) >= 0);
    }
    start = now();
    nap(50);
    for (int i = 0; i < 5; i++) {
        pthread_kill(head.thread, SIGUSR1);
        nap(5);
    }
    pthread_create(&other.thread, NULL, meet, &other);
    pthread_join(other.thread, NULL);
    pthread_join(head.thread, NULL);
    CU_ASSERT_EQUAL(head.status, WF_OK);
    CU_ASSERT_EQUAL(other.status, WF_OK);
    CU_ASSERT(now() - start < 4);
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
}

/* ---- a flood ---- */

enum { FLOODERS = 3, KEPT = 100 };

typedef struct flooder {
    pthread_t thread;
    detector_place place;
    int number;
    _Atomic bool stop;
    int made;
} flooder;

static void ends_at_once(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
}

/* Connects as fast as it can: silent, with a part of a hello, or with a hello whose token is wrong. */
static void *flood(void *arg)
{
    flooder *f = arg;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->place.port)};
    struct {
        detector_head head;
        detector_hello hello;
    } hello = {.head = {DETECTOR_HELLO, sizeof hello.hello},
               .hello = {.token = ~f->place.token, .process = 1}};
    int fd[KEPT];

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(fd, -1, sizeof fd);
    for (; !atomic_load(&f->stop); f->made++) {
        int *at = &fd[f->made % KEPT];

        if (*at >= 0)
            ends_at_once(*at);
        *at = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(*at, (struct sockaddr *)&a, sizeof a) == 0 || errno == EINPROGRESS)
            send(*at, &hello,
                 f->number == 0   ? 0
                 : f->number == 1 ? 11
                                  : sizeof hello,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (int i = 0; i < KEPT; i++)
        if (fd[i] >= 0)
            ends_at_once(fd[i]);
    return NULL;
}

static void meet_in_a_flood(int round)
{
    meeter head = {.process = 0}, other = {.process = 1};
    flooder f[FLOODERS] = {{.number = 0}};
    double start = now();

    market.shared = false;
    pthread_create(&head.thread, NULL, meet, &head);
    f[0].place = place_of_head();
    for (int i = 0; i < FLOODERS; i++) {
        f[i].place = f[0].place;
        f[i].number = (i + round) % FLOODERS;
        pthread_create(&f[i].thread, NULL, flood, &f[i]);
    }
    nap(30);
    pthread_create(&other.thread, NULL, meet, &other);
    pthread_join(other.thread, NULL);
    pthread_join(head.thread, NULL);
    for (int i = 0; i < FLOODERS; i++) {
        atomic_store(&f[i].stop, true);
        pthread_join(f[i].thread, NULL);
        CU_ASSERT(f[i].made > 10);
    }
    CU_ASSERT_EQUAL(head.status, WF_OK);
    CU_ASSERT_EQUAL(other.status, WF_OK);
    CU_ASSERT(now() - start < 8);
}

/* Strangers that connect without end do not push out the process that comes. */
static void processes_meet_in_a_flood(void)
{
    for (int round = 0; round < 6; round++)
        meet_in_a_flood(round);
}

/* On one host there is no port, but a name in a folder of this user's alone. */
static void processes_meet_by_name(void)
{
    meeter head = {.process = 0, .alone = true}, other = {.process = 1, .alone = true};
    detector_place place;

    market.shared = false;
    pthread_create(&head.thread, NULL, meet, &head);
    place = place_of_head();
    CU_ASSERT(memchr(place.name, 0, sizeof place.name) && *place.name);
    CU_ASSERT_EQUAL(place.port, 0);
    pthread_create(&other.thread, NULL, meet, &other);
    pthread_join(other.thread, NULL);
    pthread_join(head.thread, NULL);
    CU_ASSERT_EQUAL(head.status, WF_OK);
    CU_ASSERT_EQUAL(other.status, WF_OK);
    CU_ASSERT(wf_names_connect(place.name, &(pid_t){0}) < 0);
}

typedef struct host_of_one {
    pthread_t thread;
    bool decided;
    wf_verdict verdict;
    int peer; /* the other's end of the connection */
    bool crashes,
        sent; /* it reports as a crash does; that has been sent when wf_detector_crash_told returns */
} host_of_one;

/* Whether a message of this kind comes before the connection ends. */
static bool hears(int fd, wf_detector_kind kind)
{
    char data[sizeof(wf_verdict) + sizeof(detector_rank)];
    detector_head h = {0};

    while (recv(fd, &h, sizeof h, MSG_WAITALL) == sizeof h && h.bytes <= sizeof data)
        if (h.bytes && recv(fd, data, h.bytes, MSG_WAITALL) != (ssize_t)h.bytes)
            return false;
        else if (h.kind == kind)
            return true;
    return false;
}

/* Process 0 of two: it hears that the other is lost, and reports it. */
static void *report_a_loss(void *arg)
{
    host_of_one *h = arg;
    bool head = true;
    int rank = 0;
    wf_comm comm = {.size = 2}, *comms[1] = {&comm};
    const wf_detector_options o = {.transport = &market_transport,
                                   .world = &head,
                                   .comm = comms,
                                   .ranks = 2,
                                   .local_size = 1,
                                   .rank = &rank,
                                   .processes = 2};
    wf_detector *w = NULL;
    wf_error error = {WF_OK, ""};

    if (wf_detector_open(&o, &w, &error) != WF_OK)
        return NULL;
    h->decided = wf_detector_verdict(w, 5000, &h->verdict);
    if (h->crashes) {
        double start = now();

        wf_detector_crash_told(true);
        fcntl(h->peer, F_SETFL, O_NONBLOCK);
        h->sent = hears(h->peer, DETECTOR_REPORTED) && now() - start < 1;
    } else {
        wf_detector_reported(w);
    }
    wf_detector_leave(w);
    wf_detector_close(w);
    return NULL;
}

/* Process 1 connects, and is lost: process 0 sees the end, and this side still hears. */
static void lose_process_1(host_of_one *head)
{
    struct {
        detector_head head;
        detector_hello hello;
    } hello = {.head = {DETECTOR_HELLO, sizeof hello.hello},
               .hello = {.process = 1, .rank = 1}};
    detector_place place;

    market.shared = false;
    pthread_create(&head->thread, NULL, report_a_loss, head);
    place = place_of_head();
    head->peer = strange_connection(place.port);
    hello.hello.token = place.token;
    CU_ASSERT(send(head->peer, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
    CU_ASSERT(hears(head->peer, DETECTOR_WELCOME));
    shutdown(head->peer, SHUT_WR);
}

/* A process that was given up may go on: it hears the verdict, and that it has been reported. */
static void who_was_lost_hears_of_the_report(void)
{
    host_of_one head = {.decided = false};

    lose_process_1(&head);
    CU_ASSERT(hears(head.peer, DETECTOR_VERDICT));
    CU_ASSERT(hears(head.peer, DETECTOR_REPORTED));
    pthread_join(head.thread, NULL);
    close(head.peer);
    CU_ASSERT(head.decided);
}

/* A process that crashes ends when the others have been sent that it has reported. */
static void a_crash_waits_for_its_report(void)
{
    host_of_one head = {.crashes = true};

    lose_process_1(&head);
    pthread_join(head.thread, NULL);
    close(head.peer);
    CU_ASSERT(head.decided);
    CU_ASSERT(head.sent);
}

int main(void)
{
    static const wf_test tests[] = {
        {"processes meet", processes_meet},
        {"processes meet in a flood of strangers", processes_meet_in_a_flood},
        {"processes of one host meet by name", processes_meet_by_name},
        {"who was lost hears of the report", who_was_lost_hears_of_the_report},
        {"a crash waits for its report", a_crash_waits_for_its_report},
        {NULL, NULL}};

    return wf_test_main("failure_detector_meet", tests);
}
