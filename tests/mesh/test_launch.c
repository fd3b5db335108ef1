/*
 * tests/mesh/test_launch.c - a world of ranks: all start or none, and the first failure is
 * reported.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/ranks.h"
#include <math.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic int starts;
static _Atomic int seen[WF_MAX_RANKS];

static wf_status note(wf_rank *rank, void *arg)
{
    float x = 1;

    NEED(arg == &starts && wf_comm_rank(rank->world) == rank->index);
    NEED(wf_comm_size(rank->world) == rank->size);
    atomic_fetch_add(&starts, 1);
    if (strcmp(wf_comm_transport(rank->world), "fake") != 0)
        atomic_fetch_add(&seen[rank->index], 1);
    wf_comm_set_reduce(rank->world, &test_ops);
    GOOD(wf_all_reduce(rank->world, WF_REDUCE_SUM, &x, &x, 1, &rank->error));
    NEED(x == (float)rank->size || strcmp(wf_comm_transport(rank->world), "threads") != 0);
    return WF_OK;
}

static wf_status launch(int ranks, const char *transport, int rank, wf_error *error)
{
    wf_launch_options o = {.ranks = ranks, .transport = transport, .rank = rank};

    *error = (wf_error){WF_OK, ""};
    atomic_store(&starts, 0);
    return wf_launch(&o, note, &starts, error);
}

static void worlds_start(void)
{
    int many = UNDER_SANITIZER ? 100 : 1100;
    wf_error error;

    for (int ranks = 1; ranks <= many; ranks = ranks * 3 + 1) {
        for (int i = 0; i < ranks; i++)
            atomic_store(&seen[i], 0);
        CU_ASSERT_EQUAL(launch(ranks, "threads", 0, &error), WF_OK);
        CU_ASSERT_EQUAL(atomic_load(&starts), ranks);
        for (int i = 0; i < ranks; i++)
            CU_ASSERT_EQUAL(atomic_load(&seen[i]), 1);
    }
    CU_ASSERT_EQUAL(launch(3, NULL, 0, &error), WF_OK);
}

static void absurd_worlds(void)
{
    static const int counts[] = {0, -1, WF_MAX_RANKS + 1, INT32_MAX};
    wf_error error;

    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(launch(counts[i], NULL, 0, &error), WF_EINVAL);
        CU_ASSERT(strstr(error.text, "a world has 1 to 4096 ranks") != NULL);
        CU_ASSERT_EQUAL(atomic_load(&starts), 0);
    }
}

/* A timeout without an end was over at once. */
static void absurd_numbers(void)
{
    const wf_launch_options o[] = {
        {.ranks = 2, .stall_timeout = INFINITY},
        {.ranks = 2, .stall_timeout = 1e18},
        {.ranks = 2, .stall_timeout = -1},
        {.ranks = 2, .grace = NAN},
        {.ranks = 2, .grace = -1},
        {.ranks = 2, .grace = 1e9},
        {.ranks = 2, .order = (wf_rank_order)3},
        {.ranks = 2, .threads = -1},
    };

    for (size_t i = 0; i < sizeof o / sizeof *o; i++) {
        wf_error error = {WF_OK, ""};

        atomic_store(&starts, 0);
        CU_ASSERT_EQUAL(wf_launch(&o[i], note, &starts, &error), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(
            strstr(error.text, i < 3 ? "a stall timeout of" : "a launch with grace"));
        CU_ASSERT_EQUAL(atomic_load(&starts), 0);
    }
}

static void transports(void)
{
    wf_error error;

    CU_ASSERT_EQUAL(launch(2, "gloo", 0, &error), WF_EUNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(error.text, "transport gloo is not built in this version; use "
                                       ".transport threads");
    CU_ASSERT_EQUAL(launch(100000, "fake", 99999, &error), WF_OK);
    CU_ASSERT_EQUAL(atomic_load(&starts), 1);
    CU_ASSERT_EQUAL(launch(4, "fake", 4, &error), WF_EINVAL);
    CU_ASSERT(strstr(error.text, "ranks are 0 to 3") != NULL);
}

static int64_t mapped_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (f) {
        if (fscanf(f, "%ld", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

/* With address space for a few stacks only; sanitizers need the address space themselves. */
static void more_than_can_start(void)
{
    struct rlimit old, tight;
    wf_status status;
    wf_error error;

    if (UNDER_SANITIZER) {
        printf("(not under this sanitizer) ");
        return;
    }
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_AS, &old), 0);
    tight = old;
    tight.rlim_cur = (rlim_t)mapped_bytes() + (256u << 20);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_AS, &tight), 0);
    status = launch(2000, NULL, 0, &error);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_AS, &old), 0);
    CU_ASSERT_EQUAL(status, WF_ENOMEM);
    CU_ASSERT_EQUAL(atomic_load(&starts), 0);
    CU_ASSERT(strstr(error.text, "of 2000 ranks can be started here") != NULL);
    CU_ASSERT_EQUAL(launch(8, NULL, 0, &error), WF_OK);
}

/* Rank 5 fails first; rank 1, which learns of it, fails in turn with words of its own. */
static wf_status fail_in_turn(wf_rank *rank, void *arg)
{
    (void)arg;
    if (rank->index == 5)
        return wf_error_set(&rank->error, WF_ENONFINITE, "the loss is not finite");
    if (wf_barrier(rank->world, NULL) != WF_OK)
        return wf_error_set(&rank->error, WF_EIO, "rank %d came to nothing", rank->index);
    return WF_OK;
}

static wf_status fail_silently(wf_rank *rank, void *arg)
{
    (void)arg;
    return rank->index == 1 ? WF_ENOMEM : WF_OK;
}

/* The status is forgotten, the record is not. */
static wf_status fail_in_record(wf_rank *rank, void *arg)
{
    (void)arg;
    wf_error_set(&rank->error, WF_EIO, "no such file");
    return WF_OK;
}

static void first_failure_is_reported(void)
{
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 8}, fail_in_turn, NULL, &error),
                    WF_ENONFINITE);
    CU_ASSERT_EQUAL(error.code, WF_ENONFINITE);
    CU_ASSERT(strncmp(error.text, "rank 5: the loss is not finite; it was on ", 42) == 0);
    CU_ASSERT(strstr(error.text, ", before its first collective") != NULL);
    error.code = WF_OK;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 3}, fail_silently, NULL, &error),
                    WF_ENOMEM);
    CU_ASSERT(strncmp(error.text, "rank 1: out of memory; it was on ", 33) == 0);
    for (int i = 0; i < 2; i++) {
        wf_launch_options o = {.ranks = 1, .transport = i ? "fake" : "threads"};

        error.code = WF_OK;
        CU_ASSERT_EQUAL(wf_launch(&o, fail_in_record, NULL, &error), WF_EIO);
        CU_ASSERT(strncmp(error.text, "rank 0: no such file", 20) == 0);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"worlds start", worlds_start},
        {"absurd worlds", absurd_worlds},
        {"absurd numbers", absurd_numbers},
        {"transports by name", transports},
        {"more ranks than can be started", more_than_can_start},
        {"the first failure is reported", first_failure_is_reported},
        {NULL, NULL},
    };

    return wf_test_main("launch", tests);
}
