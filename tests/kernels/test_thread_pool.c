/*
 * tests/kernels/test_thread_pool.c - a thread pool calls its function once for every index,
 * whatever the counts, from as many members at once as there are, with the caller's modes;
 * thread pools don't mind being many.
 *
 * ctest: builds plain address thread
 */
#include "kernels/cpu/thread_pool_internal.h"
#include "tests/clock.h"
#include "tests/harness.h"
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 1000, RANKS = 8 };

typedef struct visit {
    int times[MOST];
    int64_t grain, count;
    int size;
    atomic_int bad; /* pieces that break a promise */
} visit;

static void mark(void *arg, int64_t begin, int64_t end, int worker)
{
    visit *v = arg;

    if (begin % v->grain != 0 || (end % v->grain != 0 && end != v->count) || begin >= end ||
        worker < 0 || worker >= v->size)
        atomic_fetch_add(&v->bad, 1);
    for (int64_t i = begin; i < end; i++)
        v->times[i]++;
}

static void once_each(wf_thread_pool *pool, int64_t count, int64_t grain)
{
    visit v = {.grain = grain, .count = count, .size = wf_thread_pool_size(pool)};

    wf_thread_pool_run(pool, count, grain, mark, &v);
    CU_ASSERT_EQUAL(atomic_load(&v.bad), 0);
    for (int64_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(v.times[i], i < count);
}

static void every_index_once(void)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 65, 999, MOST};

    once_each(NULL, 10, 3);
    for (int size = 1; size <= 5; size++) {
        wf_thread_pool *pool = wf_thread_pool_open(size, NULL);

        CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
        CU_ASSERT_EQUAL(wf_thread_pool_size(pool), size);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (int64_t grain = 1; grain <= 20; grain += 1 + grain / 2)
                once_each(pool, counts[c], grain);
        }
        wf_thread_pool_close(pool);
    }
}

/* Expected data of jobs may be freed by then, and come in any order. */
static void streams(void)
{
    for (int size = 1; size <= 3; size++) {
        wf_thread_pool *pool = wf_thread_pool_open(size, NULL);
        uint64_t order = 1;

        CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
        wf_thread_pool_streams(NULL, pool, pool);
        for (int i = 0; i < 3000; i++) {
            uintptr_t nowhere;

            order = order * 6364136223846793005u + 1442695040888963407u;
            nowhere = i < 1000 ? 4096 * (1 + (uintptr_t)i % 7) : (uintptr_t)(order >> 20);
            wf_thread_pool_streams(pool, (const void *)nowhere, (const void *)(nowhere + 4096));
            if (i % 3)
                once_each(pool, i % 100, 1);
        }
        wf_thread_pool_close(pool);
    }
}

/* Without a lock of its own, a job sees what the caller wrote before, and the caller what it
 * did. */
static void sum_into(void *arg, int64_t begin, int64_t end, int worker)
{
    int64_t *x = arg;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        x[i] += i;
}

static void many_runs(void)
{
    enum { N = 32, RUNS = 3000 };
    wf_thread_pool *pool = wf_thread_pool_open(3, NULL);
    int64_t x[N] = {0};

    for (int run = 0; run < RUNS; run++) {
        x[run % N]++;
        wf_thread_pool_run(pool, N, 1, sum_into, x);
    }
    for (int64_t i = 0; i < N; i++)
        CU_ASSERT_EQUAL(x[i], RUNS * i + RUNS / N + (i < RUNS % N));
    wf_thread_pool_close(pool);
}

/* Two members must be inside at once: each of two pieces waits for the other one. */
typedef struct meeting {
    atomic_int arrived, met;
} meeting;

static void meet(void *arg, int64_t begin, int64_t end, int worker)
{
    meeting *m = arg;
    struct timespec pause = {.tv_nsec = 1000000};

    (void)worker;
    if (end - begin != 1)
        return;
    atomic_fetch_add(&m->arrived, 1);
    for (int i = 0; i < 5000 && atomic_load(&m->arrived) < 2; i++)
        nanosleep(&pause, NULL);
    atomic_fetch_add(&m->met, atomic_load(&m->arrived) == 2);
}

static void members_work_at_once(void)
{
    wf_thread_pool *pool = wf_thread_pool_open(2, NULL);
    struct timespec pause = {.tv_nsec = 20000000};
    meeting awake = {0}, asleep = {0};

    wf_thread_pool_run(pool, 2, 1, meet, &awake);
    CU_ASSERT_EQUAL(atomic_load(&awake.met), 2);
    nanosleep(&pause, NULL); /* past the polls, so that the member sleeps */
    wf_thread_pool_run(pool, 2, 1, meet, &asleep);
    CU_ASSERT_EQUAL(atomic_load(&asleep.met), 2);
    wf_thread_pool_close(pool);
}

/* A pool that spins would use a core for all of this time. */
static void idle_costs_nothing(void)
{
    wf_thread_pool *pool = wf_thread_pool_open(4, NULL);
    struct timespec pause = {.tv_nsec = 300000000};
    int64_t x[8] = {0};
    double from, used;

    wf_thread_pool_run(pool, 8, 1, sum_into, x);
    from = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
    nanosleep(&pause, NULL);
    used = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - from;
    CU_ASSERT_TRUE(used < 0.1);
    wf_thread_pool_close(pool);
}

/* Members must round as the caller does: all meet in this job, so that none is left out. */
typedef struct modes {
    atomic_int arrived, upward;
} modes;

static void look_at_modes(void *arg, int64_t begin, int64_t end, int worker)
{
    modes *m = arg;
    struct timespec pause = {.tv_nsec = 1000000};

    (void)begin;
    (void)end;
    (void)worker;
    atomic_fetch_add(&m->arrived, 1);
    for (int i = 0; i < 5000 && atomic_load(&m->arrived) < 3; i++)
        nanosleep(&pause, NULL);
    atomic_fetch_add(&m->upward, fegetround() == FE_UPWARD);
}

static void members_round_as_the_caller(void)
{
    wf_thread_pool *pool = wf_thread_pool_open(3, NULL);
    modes up = {0}, nearest = {0};
    int before = fegetround();

    fesetround(FE_UPWARD);
    wf_thread_pool_run(pool, 3, 1, look_at_modes, &up);
    fesetround(before);
    wf_thread_pool_run(pool, 3, 1, look_at_modes, &nearest);
    CU_ASSERT_EQUAL(atomic_load(&up.upward), 3);
    CU_ASSERT_EQUAL(atomic_load(&nearest.upward), 0);
    wf_thread_pool_close(pool);
}

static void *one_rank(void *arg)
{
    wf_thread_pool *pool = wf_thread_pool_open(3, NULL);
    int64_t *x = arg;

    for (int run = 0; pool && run < 200; run++)
        wf_thread_pool_run(pool, 16, 1, sum_into, x);
    wf_thread_pool_close(pool);
    return NULL;
}

static void many_ranks(void)
{
    pthread_t ranks[RANKS];
    int64_t x[RANKS][16] = {{0}};

    for (int r = 0; r < RANKS; r++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&ranks[r], NULL, one_rank, x[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(ranks[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        for (int64_t i = 0; i < 16; i++)
            CU_ASSERT_EQUAL(x[r][i], 200 * i);
    }
}

static void bad_sizes(void)
{
    static const int sizes[] = {0, -3, WF_POOL_MAX + 1};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        wf_error error = {.code = WF_OK};

        CU_ASSERT_PTR_NULL(wf_thread_pool_open(sizes[i], &error));
        CU_ASSERT_EQUAL(error.code, WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "1 to 1024"));
    }
    CU_ASSERT_EQUAL(wf_thread_pool_size(NULL), 1);
    wf_thread_pool_close(NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"every index once", every_index_once},
        {"jobs that read memory which is gone", streams},
        {"many runs", many_runs},
        {"members work at once", members_work_at_once},
        {"members round as the caller", members_round_as_the_caller},
        {"idle costs nothing", idle_costs_nothing},
        {"many ranks", many_ranks},
        {"bad sizes", bad_sizes},
        {NULL, NULL},
    };

    return wf_test_main("thread_pool", tests);
}
