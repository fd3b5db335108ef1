/*
 * tests/apps/test_recorder_diff.c - ranks that diverge, and what recorder_diff says of them.
 *
 * ctest: builds address thread, defines WEFT_RECORDER_DIFF=recorder_diff
 */
#include "mesh/health/flight_recorder.h"
#include "tests/mesh/ranks.h"
#include <unistd.h>

enum { RANKS = 4 };

static char directory[WF_TEST_FOLDER];
static char output[8192];

/* The exit status; what it prints is in output. */
static int diff_files(const char *files)
{
    char command[1024];
    size_t n;
    FILE *pipe;

    snprintf(command, sizeof command,
             "cd %s && timeout -s KILL 5 " WEFT_RECORDER_DIFF " %s 2>&1", directory, files);
    pipe = popen(command, "r");
    if (!pipe)
        return -1;
    n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    return pclose(pipe) >> 8;
}

static void remove_files(void)
{
    for (int r = 0; r < RANKS; r++) {
        char path[128];

        snprintf(path, sizeof path, "%s/rank-%d.rec", directory, r);
        unlink(path);
    }
}

typedef enum apart { OTHER_OP, OTHER_BYTES, ABSENT, TOGETHER } apart;

/* Three sums over each pair; in the third of the second pair, rank 3 does something else. */
static wf_status go_apart(wf_rank *rank, void *arg)
{
    apart how = *(const apart *)arg;
    int pair[2] = {rank->index / 2 * 2, rank->index / 2 * 2 + 1};
    bool odd = rank->index == 3;
    float x[4] = {1, 2, 3, 4};
    wf_status status = WF_OK;
    wf_comm *group;

    wf_comm_set_reduce(rank->world, &test_ops);
    GOOD(wf_barrier(rank->world, &rank->error));
    GOOD(wf_comm_split(rank->world, "pair", pair, 2, &group, &rank->error));
    for (int i = 0; status == WF_OK && i < 2; i++)
        status = wf_all_reduce(group, WF_REDUCE_SUM, x, x, 4, &rank->error);
    if (status == WF_OK && how == TOGETHER)
        status = wf_error_set(&rank->error, WF_ENONFINITE, "all of one mind");
    else if (status == WF_OK && odd && how == ABSENT)
        status = wf_error_set(&rank->error, WF_ENONFINITE, "gave up");
    else if (status == WF_OK && odd && how == OTHER_OP)
        status = wf_broadcast(group, 4, 0, x, 4, &rank->error);
    else if (status == WF_OK)
        status = wf_all_reduce(group, WF_REDUCE_SUM, x, x, odd && how == OTHER_BYTES ? 3 : 4,
                               &rank->error);
    if (status == WF_OK) /* the first pair has done no wrong; it waits for the second */
        status = wf_barrier(rank->world, &rank->error);
    wf_comm_close(group);
    return status;
}

static void run_apart(apart how)
{
    wf_error error = {WF_OK, ""};

    wf_recorder_files(directory, false, &error);
    CU_ASSERT(wf_launch(&(wf_launch_options){.ranks = RANKS}, go_apart, &how, &error) != WF_OK);
    wf_recorder_files(NULL, false, &error);
}

static void prints(const char *words)
{
    if (!strstr(output, words))
        printf("\n    not said: %s\n%s", words, output);
    CU_ASSERT(strstr(output, words) != NULL);
}

static void absent(void)
{
    run_apart(ABSENT);
    CU_ASSERT_EQUAL(diff_files("rank-*.rec"), 1);
    prints("gave up");
    prints("first disagreement: rank 3, group pair of 2 ranks from rank 2 on, collective 3: it "
           "did "
           "not begin what others did");
    prints("all_reduce of 16 bytes, failed");
    prints("did not begin it; its last one there is 2, all_reduce of 16 bytes");
    CU_ASSERT_EQUAL(diff_files("rank-0.rec rank-1.rec rank-2.rec"), 0);
    prints("no recording of rank 3: it may be");
    remove_files();
}

static void another(void)
{
    run_apart(OTHER_OP);
    CU_ASSERT_EQUAL(diff_files("rank-*.rec"), 1);
    prints("group pair of 2 ranks from rank 2 on, collective 3: it began another one");
    prints("all_reduce of 16 bytes");
    prints("broadcast of 16 bytes");
    remove_files();
    run_apart(OTHER_BYTES);
    CU_ASSERT_EQUAL(diff_files("rank-*.rec"), 1);
    prints("group pair of 2 ranks from rank 2 on, collective 3: it began another one");
    prints("all_reduce of 12 bytes");
    remove_files();
}

static void of_one_mind(void)
{
    run_apart(TOGETHER);
    CU_ASSERT_EQUAL(diff_files("rank-*.rec"), 0);
    prints("4 ranks agree");
    remove_files();
}

typedef enum lost_message { NEVER_SENT, NEVER_RECEIVED, ANOTHER_ONE } lost_message;

static wf_status message(wf_rank *rank, wf_collective_kind kind, int peer, uint64_t tag)
{
    float x = 1;
    wf_comm_buffer buffer = {.in = &x, .out = &x, .count = 1};
    wf_collective what = {
        .kind = kind, .peer = peer, .tag = tag, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(rank->world, &what, &rank->error);
}

/* Two messages go from rank 1 to rank 2; then one that either makes nothing of. */
static wf_status send_on(wf_rank *rank, void *arg)
{
    lost_message how = *(const lost_message *)arg;
    int r = rank->index, odd = how == NEVER_SENT ? 1 : 2;
    wf_status status = WF_OK;

    for (uint64_t m = 0; m < 3 && status == WF_OK && (r == 1 || r == 2); m++) {
        char name[16];

        if (m == 2 && r == odd && how != ANOTHER_ONE) {
            wf_comm_action(rank->world, "F1.2", 6, 8);
            return wf_error_set(&rank->error, WF_ENONFINITE, "gave up");
        }
        snprintf(name, sizeof name, "%s%d.%d", r == 1 ? "SEND_F" : "RECVD_F", r, (int)m);
        wf_comm_action(rank->world, name, (int64_t)m + 1, 8);
        status = r == 1 ? message(rank, WF_SEND, 2, m + 1)
                        : message(rank, WF_RECV, 1, m == 2 && r == odd ? 100 : m + 1);
    }
    return status;
}

static void messages(void)
{
    static const struct {
        lost_message how;
        const char *said, *from, *to;
    } cases[] = {
        {NEVER_SENT,
         "first disagreement: rank 1, group world of 4 ranks from rank 0 on, message 3 from "
         "rank 1 to rank "
         "2: rank 1 did not begin to send it",
         ": did not begin it; its last one there is 2, send of 4 bytes in SEND_F1.1; it was in "
         "F1.2 "
         "(action 6 of 8)",
         ": recv of 4 bytes in RECVD_F2.2, failed"},
        {NEVER_RECEIVED,
         "first disagreement: rank 2, group world of 4 ranks from rank 0 on, message 3 from "
         "rank 1 to rank "
         "2: rank 2 did not begin to receive it",
         ": send of 4 bytes in SEND_F1.2, failed",
         ": did not begin it; its last one there is 2, recv of 4 bytes in RECVD_F2.1; it was "
         "in F1.2 "
         "(action 6 of 8)"},
        {ANOTHER_ONE, "message 3 from rank 1 to rank 2: its ends are not of the same message",
         ": send of 4 bytes in SEND_F1.2, failed", ": recv of 4 bytes in RECVD_F2.2, failed"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_error error = {WF_OK, ""};
        lost_message how = cases[i].how;

        wf_recorder_files(directory, false, &error);
        CU_ASSERT(wf_launch(&(wf_launch_options){.ranks = RANKS}, send_on, &how, &error) !=
                  WF_OK);
        wf_recorder_files(NULL, false, &error);
        CU_ASSERT_EQUAL(diff_files("rank-*.rec"), 1);
        prints(cases[i].said);
        prints(cases[i].from);
        prints(cases[i].to);
        remove_files();
    }
}

/* Both recordings of a pair with one word of their own; what is said of them. */
static int diff_changed(const wf_recording *good, size_t at, uint64_t word)
{
    for (int rank = 2; rank < 4; rank++) {
        wf_recording changed = *good;
        char path[128];
        FILE *file;

        changed.head.rank = rank;
        memcpy((char *)&changed + at, &word, sizeof word);
        snprintf(path, sizeof path, "%s/rank-%d.rec", directory, rank);
        file = fopen(path, "wb");
        CU_ASSERT_FATAL(file != NULL);
        CU_ASSERT(fwrite(&changed, sizeof changed, 1, file) == 1 && fclose(file) == 0);
    }
    return diff_files("rank-2.rec rank-3.rec");
}

/* Whatever a file says, there is an end, and nothing that a terminal obeys. */
static void damaged(void)
{
    static const uint64_t words[] = {0, 1ull << 59, INT64_MAX, 0x4a325b1b4a325b1bull};
    const size_t event = offsetof(wf_recording, event), sequence = offsetof(wf_event, sequence);
    static wf_recording good;
    char path[128];
    FILE *file;

    run_apart(TOGETHER);
    snprintf(path, sizeof path, "%s/rank-2.rec", directory);
    file = fopen(path, "rb");
    CU_ASSERT_FATAL(file && fread(&good, sizeof good, 1, file) == 1);
    fclose(file);
    for (size_t at = 8; at <= offsetof(wf_recording_head, host); at += 8)
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            int status = diff_changed(&good, at, words[i]);

            CU_ASSERT(status == 0 || status == 1 || status == 3);
            CU_ASSERT(strlen(output) < 4096 && !strchr(output, '\033'));
        }
    CU_ASSERT_EQUAL(diff_changed(&good, offsetof(wf_recording_head, wait), UINT64_MAX), 3);
    prints("rank-2.rec is damaged");
    CU_ASSERT_EQUAL(
        diff_changed(&good, offsetof(wf_recording_head, version), 2 | 4096ull << 32), 3);
    prints(
        "rank-2.rec is a flight recorder of version 2, and this program reads version 3: use "
        "the recorder_diff of the run's Weft");
    CU_ASSERT_EQUAL(diff_changed(&good, offsetof(wf_recording_head, count), 1ull << 60), 3);
    prints("rank-2.rec is damaged");
    for (size_t i = 0; i < good.head.count - 1; i++)
        if (good.event[i].kind == WF_EVENT_BEGIN) {
            CU_ASSERT_EQUAL(
                diff_changed(&good, event + i * sizeof(wf_event) + sequence, 1ull << 59), 3);
            prints("rank-2.rec is damaged");
        }
    remove_files();
}

static void mistakes(void)
{
    CU_ASSERT_EQUAL(diff_files(""), 2);
    CU_ASSERT_EQUAL(diff_files("nowhere.rec"), 3);
    prints("cannot read nowhere.rec");
    CU_ASSERT_EQUAL(diff_files("/proc/self/maps"), 3);
    prints("/proc/self/maps is not a flight recorder");
    CU_ASSERT_EQUAL(diff_files("--help"), 0);
}

static const wf_test tests[] = {{"one is absent", absent},
                                {"one does another thing", another},
                                {"messages", messages},
                                {"all of one mind", of_one_mind},
                                {"one is damaged", damaged},
                                {"mistakes", mistakes},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(directory);
    return wf_test_main("recorder_diff", tests);
}
