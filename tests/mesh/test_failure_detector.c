/*
 * tests/mesh/test_failure_detector.c - ranks that hang and ranks that crash: noticed by the
 * others, named with where they were, and left running. Ranks in several processes:
 * scripts/proofs/failures.py.
 *
 * ctest: builds address thread
 */
#include "mesh/comm/transport_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include "mesh/health/recorder_internal.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[WF_TEST_FOLDER];
static _Atomic bool released;
static _Atomic int returned;

static void nap(int milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

/* Rank 2 is at work in something that does not end. */
static wf_status hang(wf_rank *rank, void *arg)
{
    wf_status status;

    (void)arg;
    GOOD(wf_barrier(rank->world, &rank->error));
    wf_recorder_coordinates(rank->world, "row 1, column 0");
    while (rank->index == 2 && !atomic_load(&released))
        nap(10);
    status = wf_barrier(rank->world, &rank->error);
    atomic_fetch_add(&returned, 1);
    return status;
}

static bool remove_recording(int rank)
{
    char path[128];

    snprintf(path, sizeof path, "%s/rank-%d.rec", directory, rank);
    return unlink(path) == 0;
}

static void a_rank_hangs(void)
{
    wf_launch_end end = {.stuck = 0};
    wf_launch_options o = {.ranks = 4, .stall_timeout = 0.5, .end = &end};
    wf_error error = {WF_OK, ""};
    double start = wf_test_clock(CLOCK_MONOTONIC);

    wf_recorder_files(directory, false, &error);
    CU_ASSERT_EQUAL(wf_launch(&o, hang, NULL, &error), WF_ETIMEOUT);
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start > 0.5 &&
              wf_test_clock(CLOCK_MONOTONIC) - start < 4);
    CU_ASSERT(strstr(error.text, "rank 2: stalled, it has done nothing for 0.") != NULL);
    CU_ASSERT(strstr(error.text, "row 1, column 0, after barrier over world (collective 1)") !=
              NULL);
    CU_ASSERT(strstr(error.text, "waits on ") != NULL);
    CU_ASSERT(strstr(error.text, ", in barrier over world (collective 2)") != NULL);
    CU_ASSERT_EQUAL(end.stuck, 1);
    CU_ASSERT(!end.reported);
    CU_ASSERT_EQUAL(atomic_load(&returned), 3);
    for (int r = 0; r < 4; r++)
        CU_ASSERT(remove_recording(r));
    wf_recorder_files(NULL, false, &error);
    /* Lets the process go on: its world has failed, and it hears of that. */
    atomic_store(&released, true);
    for (int i = 0; i < 500 && atomic_load(&returned) < 4; i++)
        nap(10);
    CU_ASSERT_EQUAL(atomic_load(&returned), 4);
}

/* Ranks 0 and 1 do much that the others wait for, longer than a stall may last. */
static wf_status work_long(wf_rank *rank, void *arg)
{
    int pair[2] = {rank->index / 2 * 2, rank->index / 2 * 2 + 1};
    wf_status status = WF_OK;
    wf_comm *group;

    (void)arg;
    GOOD(wf_comm_split(rank->world, "pair", pair, 2, &group, &rank->error));
    for (int i = 0; status == WF_OK && rank->index < 2 && i < 30; i++) {
        nap(50);
        status = wf_barrier(group, &rank->error);
    }
    wf_comm_close(group);
    return status == WF_OK ? wf_barrier(rank->world, &rank->error) : status;
}

static void slow_is_no_stall(void)
{
    wf_launch_options o = {.ranks = 4, .stall_timeout = 1};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&o, work_long, NULL, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

/* Rank 0 is at work while another process stops this one for longer than a stall may last. */
static wf_status stopped(wf_rank *rank, void *arg)
{
    int status = 0;
    pid_t child;

    (void)arg;
    GOOD(wf_barrier(rank->world, &rank->error));
    if (rank->index == 0) {
        child = fork();
        if (child == 0) {
            nap(350);
            kill(getppid(), SIGSTOP);
            nap(1400);
            kill(getppid(), SIGCONT);
            nap(350);
            _exit(0);
        }
        NEED(child > 0);
        while (waitpid(child, &status, 0) < 0)
            ;
    }
    return wf_barrier(rank->world, &rank->error);
}

static void stopped_is_no_stall(void)
{
    wf_launch_options o = {.ranks = 2, .stall_timeout = 1.2};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&o, stopped, NULL, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

/* A number is a signal that rank 1 raises; or what else happens. */
enum { ALL_CRASH = 1000, OVERFLOWS };

static int use_stack(volatile char *above)
{
    static volatile bool goes_on = true;
    volatile char room[4096];

    room[0] = above ? (char)(above[0] + 1) : 0;
    return goes_on ? use_stack(room) + room[0] : 0;
}

static wf_status crash(wf_rank *rank, void *arg)
{
    int what = *(int *)arg;

    GOOD(wf_barrier(rank->world, &rank->error));
    if (what == ALL_CRASH)
        raise(SIGSEGV);
    else if (rank->index == 1 && what == OVERFLOWS)
        use_stack(NULL);
    else if (rank->index == 1)
        raise(what);
    return wf_barrier(rank->world, &rank->error);
}

/* Runs a process whose rank 1 raises a signal; returns its status as of wait(), and its
   output. */
static int crash_in_child(int number, char *text, size_t room)
{
    int ends[2], status = 0;
    ssize_t length = 0, n;
    pid_t child;

    if (pipe(ends) != 0 || (child = fork()) < 0)
        return 0;
    if (child == 0) {
        wf_error error = {WF_OK, ""};

        wf_recorder_files(directory, true, &error);
        wf_recorder_crashes(ends[1]);
        wf_launch(&(wf_launch_options){.ranks = number == ALL_CRASH ? 8 : 2}, crash, &number,
                  &error);
        _exit(0);
    }
    close(ends[1]);
    while ((n = read(ends[0], text + length, room - 1 - (size_t)length)) > 0)
        length += n;
    text[length] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

static void a_rank_crashes(void)
{
    static const struct {
        int number;
        const char *name;
    } kinds[] = {{SIGSEGV, "rank 1: SIGSEGV, "}, {SIGABRT, "rank 1: SIGABRT, "}};

    for (int k = 0; k < 2; k++) {
        char text[1024] = "", *end;
        int status = crash_in_child(kinds[k].number, text, sizeof text);

        CU_ASSERT(UNDER_SANITIZER ? status != 0
                                  : WIFSIGNALED(status) && WTERMSIG(status) == kinds[k].number);
        CU_ASSERT(strstr(text, kinds[k].name) != NULL);
        CU_ASSERT(strstr(text, ", after barrier over world (collective 1)") != NULL);
        end = strchr(text, '\n');
        CU_ASSERT(end != NULL && end[1] == '\0'); /* one line */
        for (int r = 0; r < 2; r++)
            CU_ASSERT(remove_recording(r));
    }
}

/* One line, whoever is first, and it is whole. */
static void all_crash(void)
{
    for (int round = 0; round < (UNDER_SANITIZER ? 3 : 20); round++) {
        char text[4096] = "", *end;
        int status = crash_in_child(ALL_CRASH, text, sizeof text);

        CU_ASSERT(UNDER_SANITIZER ? status != 0
                                  : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        CU_ASSERT(strstr(text, "SIGSEGV, an invalid memory reference; it was on ") != NULL);
        end = strchr(text, '\n');
        CU_ASSERT(end != NULL && end[1] == '\0');
    }
    for (int r = 0; r < 8; r++)
        remove_recording(r);
}

/* The handler has a stack of its own. */
static void a_stack_overflows(void)
{
    char text[1024] = "";
    int status = UNDER_SANITIZER ? 1 : crash_in_child(OVERFLOWS, text, sizeof text);

    CU_ASSERT(status != 0);
    CU_ASSERT(UNDER_SANITIZER || strstr(text, "rank 1: SIGSEGV, ") != NULL);
    for (int r = 0; r < 2; r++)
        remove_recording(r);
}

static void count_failure(void *world, int failed_rank, const wf_error *cause, bool lost)
{
    (void)failed_rank, (void)cause, (void)lost;
    ++*(int *)world;
}

/* A failure detector of process 0 that has heard of three ranks, with a limit of a second. */
static wf_detector heard_of(detector_rank rank[3], const wf_transport *transport, int *failures)
{
    wf_detector d = {.o = {.ranks = 3, .limit = 1, .world = failures, .transport = transport},
                     .rank = rank};

    *failures = 0;
    pthread_mutex_init(&d.lock, NULL);
    pthread_cond_init(&d.heard, NULL);
    return d;
}

/* All wait: from when one has finished on, which does not count as one that advances later. The
   first cause is the world's. */
static void all_wait(void)
{
    const wf_transport transport = {.fail = count_failure};
    detector_rank rank[3] = {{.rank = 0, .waits = 1, .where = "in barrier"},
                             {.rank = 1, .waits = 1, .where = "in barrier"},
                             {.rank = 2, .waits = 1, .where = "in barrier"}};
    int failures;
    wf_detector d = heard_of(rank, &transport, &failures);

    for (int ms = 600; ms <= 2400; ms += 600) {
        rank[0].quiet_ms = rank[1].quiet_ms = ms;
        rank[2].finished = ms >= 1200;
        wf_detector_find_stall(&d, 600);
        CU_ASSERT_EQUAL(failures, ms == 2400);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(d.failure.text, "rank 0: deadlock, every rank has waited"));
    rank[1].waits = 0;
    wf_detector_find_stall(&d, 600);
    CU_ASSERT_EQUAL(failures, 1);
    CU_ASSERT_EQUAL(d.failure.failed_rank, 0);
}

/* Ranks of a lost process wait no more: the one that is named beside it is another's. */
static void a_process_is_lost(void)
{
    const wf_transport transport = {.fail = count_failure};
    detector_rank rank[3] = {{.rank = 0, .waits = 1, .quiet_ms = 100, .where = "in barrier"},
                             {.rank = 1, .process = 1, .where = "in forward"},
                             {.rank = 2, .process = 1, .waits = 1, .quiet_ms = 900}};
    const detector_peer peer = {.process = 1, .state = PEER_LOST, .hello.rank = 1};
    int failures;
    wf_detector d = heard_of(rank, &transport, &failures);

    d.lost = &peer;
    d.how = "has ended";
    wf_detector_decide_loss(&d);
    CU_ASSERT_EQUAL(failures, 1);
    CU_ASSERT_EQUAL(d.failure.failed_rank, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(d.failure.text, "heard of in forward; rank 0 waits in"));
}

static const wf_test tests[] = {{"all ranks wait", all_wait},
                                {"a process is lost", a_process_is_lost},
                                {"a rank crashes", a_rank_crashes},
                                {"all ranks crash", all_crash},
                                {"a stack overflows", a_stack_overflows},
                                {"slow is no stall", slow_is_no_stall},
                                {"a rank hangs", a_rank_hangs},
                                {"stopped is no stall", stopped_is_no_stall},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(directory);
    return wf_test_main("failure_detector", tests);
}
