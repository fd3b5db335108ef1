/*
 * tests/mesh/test_rendezvous.c - how processes meet, among strangers that connect as well.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/market.h"
#include <errno.h>
#include <signal.h>

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
    detector_address address;
    double start;

    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&head.thread, NULL, meet, &head);
    address = address_of_head();
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = strange_connection(address.port);
        CU_ASSERT(i % 3 || send(fd[i], "hello", 5, MSG_NOSIGNAL) >= 0);
    }
    start = wf_test_clock(CLOCK_MONOTONIC);
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
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start < 4);
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
}

/* ---- a flood ---- */

enum { FLOODERS = 3, KEPT = 100 };

typedef struct flooder {
    pthread_t thread;
    detector_address address;
    int number;
    _Atomic bool stop;
    int made;
} flooder;

static void ends_at_once(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
}

/* Connects as fast as it can: silent, with a part of a hello, or with a hello whose token is
   wrong. */
static void *flood(void *arg)
{
    flooder *f = arg;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)f->address.port)};
    struct {
        detector_head head;
        detector_hello hello;
    } hello = {.head = {DETECTOR_HELLO, sizeof hello.hello},
               .hello = {.token = ~f->address.token, .process = 1}};
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
    double start = wf_test_clock(CLOCK_MONOTONIC);

    market.shared = false;
    pthread_create(&head.thread, NULL, meet, &head);
    f[0].address = address_of_head();
    for (int i = 0; i < FLOODERS; i++) {
        f[i].address = f[0].address;
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
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start < 8);
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
    detector_address address;

    market.shared = false;
    pthread_create(&head.thread, NULL, meet, &head);
    address = address_of_head();
    CU_ASSERT(memchr(address.name, 0, sizeof address.name) && *address.name);
    CU_ASSERT_EQUAL(address.port, 0);
    pthread_create(&other.thread, NULL, meet, &other);
    pthread_join(other.thread, NULL);
    pthread_join(head.thread, NULL);
    CU_ASSERT_EQUAL(head.status, WF_OK);
    CU_ASSERT_EQUAL(other.status, WF_OK);
    CU_ASSERT(wf_names_connect(address.name, &(pid_t){0}) < 0);
}

int main(void)
{
    static const wf_test tests[] = {
        {"processes meet", processes_meet},
        {"processes meet in a flood of strangers", processes_meet_in_a_flood},
        {"processes of one host meet by name", processes_meet_by_name},
        {NULL, NULL}};

    return wf_test_main("rendezvous", tests);
}
