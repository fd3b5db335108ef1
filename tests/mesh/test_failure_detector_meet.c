/*
 * tests/mesh/test_failure_detector_meet.c - what a process that was given up receives, and one
 * that waits for a report.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/market.h"
#include <fcntl.h>
#include <sys/resource.h>

typedef struct host_of_one {
    pthread_t thread;
    bool decided;
    wf_failure failure;
    int peer; /* the other's end of the connection */
    bool crashes,
        /* it reports as a crash does; that has been sent when wf_detector_crash_reported
           returns */
        sent;
} host_of_one;

/* Returns true where a message of this kind comes before the connection ends. */
static bool hears(int fd, wf_detector_kind kind)
{
    char data[sizeof(wf_failure) + sizeof(detector_rank)];
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
    h->decided = wf_detector_failure(w, 5000, &h->failure);
    if (h->crashes) {
        double start = wf_test_clock(CLOCK_MONOTONIC);

        wf_detector_crash_reported(true);
        fcntl(h->peer, F_SETFL, O_NONBLOCK);
        h->sent =
            hears(h->peer, DETECTOR_REPORTED) && wf_test_clock(CLOCK_MONOTONIC) - start < 1;
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
    detector_address address;

    market.shared = false;
    pthread_create(&head->thread, NULL, report_a_loss, head);
    address = address_of_head();
    head->peer = strange_connection(address.port);
    hello.hello.token = address.token;
    CU_ASSERT(send(head->peer, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
    CU_ASSERT(hears(head->peer, DETECTOR_WELCOME));
    shutdown(head->peer, SHUT_WR);
}

/* A process that was given up may go on: it hears the failure cause, and that it has been
   reported. */
static void who_was_lost_hears_of_the_report(void)
{
    host_of_one head = {.decided = false};

    lose_process_1(&head);
    CU_ASSERT(hears(head.peer, DETECTOR_FAILURE));
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

/* Without a descriptor left the error says so, and not that memory is. */
static void no_descriptor_is_left(void)
{
    const wf_detector_options o = {
        .transport = &market_transport, .ranks = 1, .local_size = 1, .processes = 1};
    struct rlimit before, none;
    wf_error error = {WF_OK, ""};
    wf_detector *d = NULL;

    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    CU_ASSERT_EQUAL(wf_detector_open(&o, &d, &error), WF_EIO);
    setrlimit(RLIMIT_NOFILE, &before);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "Too many open files; raise the limit"));
    CU_ASSERT_PTR_NULL(d);
}

int main(void)
{
    static const wf_test tests[] = {
        {"who was lost hears of the report", who_was_lost_hears_of_the_report},
        {"a crash waits for its report", a_crash_waits_for_its_report},
        {"no descriptor is left", no_descriptor_is_left},
        {NULL, NULL}};

    return wf_test_main("failure_detector_meet", tests);
}
