/*
 * tests/mesh/test_watch.c - ranks that hang and ranks that crash: noticed by the others, named with
 * where they were, and left behind. Ranks in several processes: scripts/failures.py.
 */
#include "mesh/health/recorder_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include "tests/mesh/ranks.h"
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[] = "/tmp/weft-watch-XXXXXX";
static _Atomic bool released;
static _Atomic int returned;

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
    double start = now();

    wf_recorder_files(directory, false, &error);
    CU_ASSERT_EQUAL(wf_launch(&o, hang, NULL, &error), WF_ETIMEOUT);
    CU_ASSERT(now() - start > 0.5 && now() - start < 4);
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
    /* What it waited for has come: its world has failed, and it hears of that. */
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

/* What a process says whose rank 1 raises a signal; its status as of wait(). */
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
    pthread_t thread;
    wf_status status;
    wf_error error;
} meeter;

static void *meet(void *arg)
{
    meeter *m = arg;
    bool head = m->process == 0;
    wf_comm comm = {.size = 2}, *comms[1] = {&comm};
    const wf_watch_options o = {.transport = &market_transport,
                                .world = &head,
                                .comm = comms,
                                .ranks = 2,
                                .here = 1,
                                .rank = &m->process,
                                .processes = 2,
                                .process = m->process,
                                .alone = true};
    wf_world_watch *w = NULL;

    m->status = wf_watch_open(&o, &w, &m->error);
    if (m->status == WF_OK) {
        wf_watch_leave(w);
        wf_watch_close(w);
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
    watch_place place;
    double start;

    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&head.thread, NULL, meet, &head);
    pthread_mutex_lock(&market.lock);
    while (!market.shared)
        pthread_cond_wait(&market.changed, &market.lock);
    memcpy(&place, market.data, sizeof place);
    pthread_mutex_unlock(&market.lock);
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

/* A process with a connection of the watch and another one is killed. */
static pid_t kill_a_child(int *watched, int *other)
{
    int w[2], o[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, w) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, o) != 0 || (child = fork()) < 0)
        return -1;
    if (child == 0) {
        close(w[0]);
        close(o[0]);
        wf_watch_keep(1);
        wf_watch_kept(w[1]);
        raise(SIGKILL);
    }
    close(w[1]);
    close(o[1]);
    *watched = w[0];
    *other = o[0];
    return child;
}

/* Of a dead process the watch hears at once; what else was connected to it, later. */
static void connections_outlive(void)
{
    int watched = -1, other = -1;
    pid_t child = kill_a_child(&watched, &other);
    double start;
    char none;

    CU_ASSERT(child > 0);
    waitpid(child, NULL, 0);
    start = now();
    CU_ASSERT_EQUAL(read(watched, &none, 1), 0);
    CU_ASSERT(now() - start < 1);
    CU_ASSERT_EQUAL(read(other, &none, 1), 0);
    CU_ASSERT(now() - start > 1 && now() - start < 6);
    close(watched);
    close(other);
}

static const wf_test tests[] = {{"a rank crashes", a_rank_crashes},
                                {"all ranks crash", all_crash},
                                {"a stack overflows", a_stack_overflows},
                                {"processes meet", processes_meet},
                                {"connections outlive their process", connections_outlive},
                                {"slow is no stall", slow_is_no_stall},
                                {"a rank hangs", a_rank_hangs},
                                {NULL, NULL}};

int main(void)
{
    int result;

    if (!mkdtemp(directory))
        return 1;
    result = wf_test_main("watch", tests);
    rmdir(directory);
    return result;
}
