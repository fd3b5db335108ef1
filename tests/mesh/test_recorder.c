/*
 * tests/mesh/test_recorder.c - the flight recorder: what is kept of a world, when it is
 * written, and what an event costs.
 *
 * ctest: builds address thread
 */
#include "mesh/health/recorder_internal.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4 };

static char directory[WF_TEST_FOLDER];
static wf_recording kept;

static bool read_recording(int rank)
{
    char path[128];
    FILE *file;
    bool whole;

    snprintf(path, sizeof path, "%s/rank-%d.rec", directory, rank);
    file = fopen(path, "rb");
    whole = file && fread(&kept, sizeof kept, 1, file) == 1 && fgetc(file) == EOF;
    if (file)
        fclose(file);
    unlink(path);
    return whole;
}

static const wf_event *last_event(uint64_t before)
{
    return &kept.event[(kept.head.count - 1 - before) % WF_RECORDER_EVENTS];
}

/* Rank 2 stops when all have made `rounds` sums over their pairs; the others go on. */
static wf_status stop_early(wf_rank *rank, void *arg)
{
    const int *rounds = arg;
    int pair[2] = {rank->index / 2 * 2, rank->index / 2 * 2 + 1};
    wf_status status = WF_OK;
    float x[3] = {1, 2, 3};
    wf_comm *group;

    wf_comm_set_reduce(rank->world, &test_ops);
    GOOD(wf_comm_split(rank->world, "pair", pair, 2, &group, &rank->error));
    wf_recorder_position(group, 7, "block.3.attn.out");
    for (int i = 0; status == WF_OK && i < *rounds; i++)
        status = wf_all_reduce(group, WF_REDUCE_SUM, x, x, 3, &rank->error);
    if (status == WF_OK)
        status = wf_barrier(rank->world, &rank->error);
    if (status == WF_OK && rank->index == 2)
        status = wf_error_set(&rank->error, WF_ENONFINITE, "rank 2: planted");
    if (status == WF_OK)
        status = wf_barrier(group, &rank->error);
    if (status == WF_OK && rank->index == 1)
        status = wf_recv(rank->world, 4, 2, x, 1, &rank->error);
    wf_comm_close(group);
    return status;
}

static void fail_once(int rounds)
{
    wf_error error = {WF_OK, ""};
    wf_launch_options o = {.ranks = RANKS};

    CU_ASSERT_EQUAL(wf_recorder_files(directory, false, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_launch(&o, stop_early, &rounds, &error), WF_ENONFINITE);
    wf_recorder_files(NULL, false, &error);
}

static void all_ranks_write(void)
{
    fail_once(5);
    for (int r = 0; r < RANKS; r++) {
        const wf_event *e = kept.event;

        CU_ASSERT_FATAL(read_recording(r));
        CU_ASSERT(kept.head.rank == r && kept.head.ranks == RANKS && kept.head.groups == 2);
        CU_ASSERT_STRING_EQUAL(kept.group[0].name, "world");
        CU_ASSERT_STRING_EQUAL(kept.group[1].name, "pair");
        CU_ASSERT(kept.group[1].first == r / 2 * 2 && kept.group[1].size == 2);
        for (uint64_t i = 0; i < 10; i++) {
            CU_ASSERT(e[i].group == 1 && e[i].op == WF_ALL_REDUCE && e[i].step == 7);
            CU_ASSERT(e[i].sequence == i / 2 + 1 && e[i].kind == i % 2);
            CU_ASSERT(e[i].bytes == (i % 2 ? 0 : 12));
            CU_ASSERT(i == 0 || e[i].time >= e[i - 1].time);
            CU_ASSERT_STRING_EQUAL(e[i].module, "block.3.attn.out");
        }
    }
    fail_once(1);
    CU_ASSERT_FATAL(read_recording(2));
    CU_ASSERT(strstr(kept.head.cause, "planted") != NULL);
    CU_ASSERT(last_event(0)->kind == WF_EVENT_FAIL && last_event(0)->op == WF_COLLECTIVE_KINDS);
    CU_ASSERT(last_event(1)->kind == WF_EVENT_END && last_event(1)->op == WF_BARRIER);
    CU_ASSERT_FATAL(read_recording(3));
    CU_ASSERT(last_event(0)->kind == WF_EVENT_FAIL);
    for (int r = 0; r < 2; r++)
        CU_ASSERT(read_recording(r));
}

/* Rank 0 sends two messages to rank 1 and one back comes, over two groups; then all fail. */
static wf_status exchange(wf_rank *rank, void *arg)
{
    const int all[RANKS] = {0, 1, 2, 3};
    wf_comm *group;
    float x = 1;

    (void)arg;
    GOOD(wf_comm_split(rank->world, "all", all, RANKS, &group, &rank->error));
    wf_comm_position(rank->world, 5, NULL);
    wf_comm_action(rank->world, "SEND_F123.456789012345", 2, 7);
    for (int i = 0; i < 2 && rank->index < 2; i++) {
        wf_comm_buffer buffer = {.in = &x, .out = &x, .count = 1};
        wf_collective message = {.kind = rank->index ? WF_RECV : WF_SEND,
                                 .peer = !rank->index,
                                 .tag = 40 + (uint64_t)i,
                                 .n_buffers = 1,
                                 .buffers = &buffer};

        GOOD(wf_collective_run(i ? group : rank->world, &message, &rank->error));
        wf_comm_action(rank->world, i ? NULL : "F3.1", 3, 7);
    }
    if (rank->index == 1)
        GOOD(wf_send(group, sizeof x, 0, &x, 1, &rank->error));
    if (rank->index == 0)
        GOOD(wf_recv(group, sizeof x, 1, &x, 1, &rank->error));
    GOOD(wf_barrier(rank->world, &rank->error));
    wf_comm_close(group);
    return wf_error_set(&rank->error, WF_ENONFINITE, "rank %d: planted", rank->index);
}

static void is_message(const wf_event *e, uint64_t sequence, int group, int peer, uint64_t tag)
{
    CU_ASSERT(e->sequence == sequence && e->group == group);
    CU_ASSERT(e->peer == peer && e->tag == tag && e->step == 5);
}

/* Messages are counted by group, pair of ranks and direction, and events say in which action
   they are. */
static void messages_and_actions(void)
{
    wf_error error = {WF_OK, ""};

    wf_recorder_files(directory, false, &error);
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = RANKS}, exchange, NULL, &error),
                    WF_ENONFINITE);
    wf_recorder_files(NULL, false, &error);
    for (int r = 0; r < RANKS; r++) {
        const wf_event *e = kept.event;

        CU_ASSERT_FATAL(read_recording(r));
        CU_ASSERT(e[0].kind == WF_EVENT_ACTION && e[0].sequence == 2 && e[0].peer == -1);
        CU_ASSERT_STRING_EQUAL(e[0].action, "SEND_F123.456789012"); /* cut */
        if (r > 1)
            continue;
        is_message(&e[1], 1, 0, !r, 40);
        is_message(&e[2], 1, 0, !r, 40);
        CU_ASSERT(e[1].kind == WF_EVENT_BEGIN && e[2].kind == WF_EVENT_END);
        CU_ASSERT_STRING_EQUAL(e[2].action, e[0].action);
        CU_ASSERT(e[3].kind == WF_EVENT_ACTION && e[3].sequence == 3);
        CU_ASSERT_STRING_EQUAL(e[3].action, "F3.1");
        is_message(&e[4], 1, 1, !r, 41);
        CU_ASSERT_STRING_EQUAL(e[4].action, "F3.1");
        is_message(&e[6], 1, 1, !r, 0); /* the first of the other direction */
        CU_ASSERT(e[6].op == (r ? WF_SEND : WF_RECV));
        CU_ASSERT_STRING_EQUAL(e[6].action, "");
        CU_ASSERT_STRING_EQUAL(kept.head.does, "");
        CU_ASSERT_EQUAL(kept.head.wait, 0);
    }
}

/* The last 4,096 events are kept. */
static void old_events_go(void)
{
    fail_once(3000);
    CU_ASSERT_FATAL(read_recording(2));
    CU_ASSERT_EQUAL(kept.head.count, 6003);
    CU_ASSERT_EQUAL(last_event(3)->sequence, 3000);
    CU_ASSERT_EQUAL(last_event(WF_RECORDER_EVENTS - 1)->sequence, 954);
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            CU_ASSERT(read_recording(r));
}

static wf_status succeed(wf_rank *rank, void *arg)
{
    (void)arg;
    return wf_barrier(rank->world, &rank->error);
}

static void success_writes_nothing(void)
{
    wf_error error = {WF_OK, ""};
    int before = wf_recorder_written();

    wf_recorder_files(directory, false, &error);
    run_ranks(RANKS, succeed, NULL);
    CU_ASSERT_EQUAL(wf_recorder_written(), before);
    wf_recorder_files(NULL, false, &error);
    CU_ASSERT(!read_recording(0));
}

/* Rank 1 never comes to the second barrier until the others' files show that they wait
   there. */
static wf_status hang(wf_rank *rank, void *arg)
{
    struct timespec pause = {0, 20000000};

    (void)arg;
    GOOD(wf_barrier(rank->world, &rank->error));
    if (rank->index == 1) {
        nanosleep(&pause, NULL);
        raise(SIGUSR2);
    }
    return wf_barrier(rank->world, &rank->error);
}

static void signal_writes_all(void)
{
    wf_error error = {WF_OK, ""};
    int before = wf_recorder_written();

    wf_recorder_files(directory, true, &error);
    run_ranks(RANKS, hang, NULL);
    wf_recorder_files(NULL, false, &error);
    CU_ASSERT_EQUAL(wf_recorder_written(), before + RANKS);
    for (int r = 0; r < RANKS; r++) {
        CU_ASSERT_FATAL(read_recording(r));
        CU_ASSERT_EQUAL(last_event(0)->kind, r == 1 ? WF_EVENT_END : WF_EVENT_BEGIN);
        CU_ASSERT_EQUAL(last_event(0)->sequence, r == 1 ? 1 : 2);
        CU_ASSERT_STRING_EQUAL(kept.head.cause, "");
        CU_ASSERT_EQUAL(kept.head.wait != 0, r != 1);
        if (r != 1) {
            wf_recorded_wait in = wf_recorded_wait_of(kept.head.wait);

            CU_ASSERT(in.op == WF_BARRIER && in.group == 0 && in.peer == -1 &&
                      in.sequence == 2);
        }
    }
}

/* Links that somebody has put in the place of the folder and of a file are not followed. */
static void links_are_not_followed(void)
{
    char inside[WF_TEST_FOLDER + 16], link[sizeof inside], target[sizeof inside], text[8] = "";
    wf_error error = {WF_OK, ""};
    int rounds = 1, before = wf_recorder_written();
    FILE *file;

    snprintf(inside, sizeof inside, "%s/rank-2.rec", directory);
    snprintf(target, sizeof target, "%s/precious", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    file = fopen(target, "w");
    CU_ASSERT_FATAL(file && fputs("mine", file) > 0 && fclose(file) == 0);
    CU_ASSERT(symlink(target, inside) == 0 && symlink(directory, link) == 0);
    fail_once(1);
    CU_ASSERT(wf_recorder_written() > before);
    CU_ASSERT(read_recording(2)); /* a file of its own in place of the link */
    file = fopen(target, "r");
    CU_ASSERT(file && fgets(text, sizeof text, file) && strcmp(text, "mine") == 0);
    fclose(file);
    for (int r = 0; r < RANKS; r++)
        read_recording(r);
    before = wf_recorder_written();
    wf_recorder_files(link, false, &error);
    wf_launch(&(wf_launch_options){.ranks = RANKS}, stop_early, &rounds, &error);
    wf_recorder_files(NULL, false, &error);
    CU_ASSERT_EQUAL(wf_recorder_written(), before);
    CU_ASSERT(!read_recording(2));
    CU_ASSERT(unlink(link) == 0 && unlink(target) == 0);
}

/* A handle without an observer, and a group split off it, work and are recorded nowhere. */
static wf_status unobserved(wf_rank *rank, void *arg)
{
    const struct wf_comm_observer *observer = rank->world->observer;
    uint64_t count = wf_recorder_of(rank->world)->count;
    const int all[RANKS] = {0, 1, 2, 3};
    wf_comm *group;

    (void)arg;
    rank->world->observer = NULL;
    GOOD(wf_comm_split(rank->world, "all", all, RANKS, &group, &rank->error));
    wf_comm_position(group, 3, "nowhere");
    wf_comm_at_files(group, true);
    GOOD(wf_barrier(group, &rank->error));
    wf_comm_close(group);
    GOOD(wf_barrier(rank->world, &rank->error));
    rank->world->observer = observer;
    NEED(wf_recorder_of(rank->world)->count == count);
    GOOD(wf_barrier(rank->world, &rank->error));
    NEED(wf_recorder_of(rank->world)->count == count + 2);
    return WF_OK;
}

/* The module of an error's last collective is part of what is said of the collective: it is not
   where the error was. */
static wf_status located(wf_rank *rank, void *arg)
{
    wf_error error = {WF_EINVAL, "wrong"};

    (void)arg;
    wf_comm_position(rank->world, 3, "block.1.mlp");
    GOOD(wf_barrier(rank->world, &rank->error));
    wf_comm_locate(rank->world, &error);
    NEED(strstr(error.text, ", after barrier over world (collective 1, in block.1.mlp)"));
    return WF_OK;
}

static void nobody_observes(void)
{
    run_ranks(RANKS, unobserved, NULL);
    run_ranks(RANKS, located, NULL);
}

/* The best of some rounds: of an event, and of the look at the clock that it contains. */
static wf_status time_events(wf_rank *rank, void *arg)
{
    enum { EVENTS = 100000, ROUNDS = 9 };
    const wf_collective barrier = {.kind = WF_BARRIER};
    double *ns = arg;

    ns[0] = ns[1] = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double from = 1e9 * wf_test_clock(CLOCK_MONOTONIC), middle, to;

        for (int i = 0; i < EVENTS / 2; i++) {
            uint64_t sequence = wf_recorder_begin(rank->world, &barrier, 64);

            wf_recorder_end(rank->world, &barrier, sequence, false);
        }
        middle = 1e9 * wf_test_clock(CLOCK_MONOTONIC);
        for (int i = 0; i < EVENTS; i++)
            to = 1e9 * wf_test_clock(CLOCK_MONOTONIC);
        ns[0] = (middle - from) / EVENTS < ns[0] ? (middle - from) / EVENTS : ns[0];
        ns[1] = (to - middle) / EVENTS < ns[1] ? (to - middle) / EVENTS : ns[1];
    }
    return WF_OK;
}

/* Told, and held to a limit for a machine that does much else. */
static void cost(void)
{
    double ns[2] = {0};

    run_ranks(1, time_events, ns);
    printf("%.0f ns an event, %.0f of them for the clock ", ns[0], ns[1]);
    CU_ASSERT(UNDER_SANITIZER || ns[0] < 3000);
}

static const wf_test tests[] = {{"all ranks write when one fails", all_ranks_write},
                                {"messages and actions", messages_and_actions},
                                {"a handle that nobody observes", nobody_observes},
                                {"old events go", old_events_go},
                                {"success writes nothing", success_writes_nothing},
                                {"a signal writes all", signal_writes_all},
                                {"links are not followed", links_are_not_followed},
                                {"what an event costs", cost},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(directory);
    return wf_test_main("recorder", tests);
}
