/*
 * tests/core/test_ranges.c - the pool's ranges: cut and joined, over real memory and over
 * addresses that hold nothing.
 *
 * ctest: builds plain address thread
 */
#include "tests/core/pool_allocator.h"
#include "tests/harness.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The pool works over addresses that hold nothing, and whoever looks there is stopped. */
static void fake_memory(void)
{
    const size_t bytes = (size_t)1 << 36;
    wf_allocator fake = wf_fake_allocator();
    wf_pool *pool = wf_pool_open(&fake, 0, NULL);
    char *first, *second;
    int status = 0;
    pid_t child;

    CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
    first = wf_pool_take(pool, bytes, WF_MEMORY_PARAMETER, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_EQUAL((uintptr_t)first % 64, 0);
    wf_pool_give(pool, first, bytes, WF_MEMORY_PARAMETER);
    second = wf_pool_take(pool, bytes, WF_MEMORY_PARAMETER, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(second);
    CU_ASSERT_EQUAL(report_of(pool).peak, bytes);
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would tell the story of it */
        ((volatile char *)second)[12345] = 1;
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    wf_pool_give(pool, second, bytes, WF_MEMORY_PARAMETER);
    wf_pool_close(pool);
}

/* However much comes and goes, what is in use keeps its addresses for itself: a plan of a giant
   takes more in a step than there are addresses, and asks whether tensors overlap. */
static void fake_memory_is_nobody_elses(void)
{
    enum { KEPT = 16, TURNS = 1 << 16 };
    const size_t kept = (size_t)1 << 33, passing = ((size_t)1 << 36) + 192;
    wf_allocator fake = wf_fake_allocator();
    wf_pool *pool = wf_pool_open(&fake, 0, NULL);
    uintptr_t block[KEPT], huge;
    bool apart = true;

    CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
    for (int i = 0; i < KEPT; i++)
        block[i] = (uintptr_t)wf_pool_take(pool, kept, WF_MEMORY_PARAMETER, NULL);
    for (int turn = 0; turn < TURNS; turn++) {
        void *taken = wf_pool_take(pool, passing, WF_MEMORY_ACTIVATION, NULL);
        uintptr_t at = (uintptr_t)taken;

        for (int i = 0; i < KEPT; i++)
            apart &= block[i] + kept <= at || at + passing <= block[i];
        wf_pool_give(pool, taken, passing, WF_MEMORY_ACTIVATION);
    }
    CU_ASSERT_TRUE(apart);
    huge = (uintptr_t)wf_pool_take(pool, (size_t)1 << 46, WF_MEMORY_ACTIVATION, NULL);
    CU_ASSERT_TRUE(huge != 0); /* 64 TiB */
    for (int i = 0; i < KEPT; i++)
        CU_ASSERT_TRUE(block[i] + kept <= huge || huge + ((size_t)1 << 46) <= block[i]);
    wf_pool_close(pool);
}

/* Memory of one size serves others: cut, given back in any order, and whole again. */
static void ranges_split_and_join(void)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    const size_t whole = 40 << 20, part = 9 << 20;
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    unsigned char *all = wf_pool_take(pool, whole, WF_MEMORY_ACTIVATION, NULL);
    int64_t calls = l.calls;

    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    wf_pool_give(pool, all, whole, WF_MEMORY_ACTIVATION);
    for (int i = 0; i < 4; i++) {
        unsigned char *piece[4];

        for (int k = 0; k < 4; k++) {
            piece[k] = wf_pool_take(pool, part, WF_MEMORY_GRADIENT, NULL);
            CU_ASSERT_TRUE_FATAL(piece[k] >= all && piece[k] + part <= all + whole);
            memset(piece[k], k, part);
        }
        for (int k = 0; k < 4; k++) {
            unsigned char *p = piece[orders[i][k]];

            CU_ASSERT_EQUAL(p[0], orders[i][k]);
            CU_ASSERT_EQUAL(p[part - 1], orders[i][k]);
            wf_pool_give(pool, p, part, WF_MEMORY_GRADIENT);
        }
        CU_ASSERT_PTR_EQUAL(wf_pool_take(pool, whole, WF_MEMORY_ACTIVATION, NULL), all);
        wf_pool_give(pool, all, whole, WF_MEMORY_ACTIVATION);
    }
    CU_ASSERT_EQUAL(l.calls, calls);
    close_pool(pool, &l);
}

/* A gradient that stays lies behind what comes and goes, not in the middle of it. */
static void gradients_lie_last(void)
{
    const size_t act = 10 << 20, grad = 2 << 20, large = 37 << 20;
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    char *first = wf_pool_take(pool, 40 << 20, WF_MEMORY_ACTIVATION, NULL), *a, *g;
    int64_t calls = l.calls;

    wf_pool_give(pool, first, 40 << 20, WF_MEMORY_ACTIVATION);
    a = wf_pool_take(pool, act, WF_MEMORY_ACTIVATION, NULL);
    g = wf_pool_take(pool, grad, WF_MEMORY_GRADIENT, NULL);
    CU_ASSERT_PTR_EQUAL(a, first);
    CU_ASSERT_TRUE(g >= first + large);
    memset(g, 7, grad);
    wf_pool_give(pool, a, act, WF_MEMORY_ACTIVATION);
    a = wf_pool_take(pool, large, WF_MEMORY_ACTIVATION, NULL);
    CU_ASSERT_PTR_EQUAL(a, first);
    memset(a, 1, large);
    CU_ASSERT_EQUAL(g[0], 7);
    CU_ASSERT_EQUAL(g[grad - 1], 7);
    CU_ASSERT_EQUAL(l.calls, calls);
    wf_pool_give(pool, g, grad, WF_MEMORY_GRADIENT);
    wf_pool_give(pool, a, large, WF_MEMORY_ACTIVATION);
    CU_ASSERT_PTR_EQUAL(wf_pool_take(pool, 40 << 20, WF_MEMORY_ACTIVATION, NULL), first);
    close_pool(pool, &l);
}

/* Host memory grows where it lies: what was taken in pieces serves one that is as large as all
   of them. */
static void a_region_grows(void)
{
    enum { PIECES = 8 };
    const size_t bytes = 5 << 20, first = 4 << 20;
    wf_allocator host = wf_host_allocator();
    wf_pool *pool = wf_pool_open(&host, 0, NULL);
    char *base = wf_pool_take(pool, first, WF_MEMORY_ACTIVATION, NULL), *piece[PIECES], *all;
    size_t held;

    CU_ASSERT_PTR_NOT_NULL_FATAL(base);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = wf_pool_take(pool, bytes, WF_MEMORY_ACTIVATION, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(piece[i]);
        CU_ASSERT_TRUE(i == 0 || piece[i] > piece[i - 1]);
        memset(piece[i], i, bytes);
    }
    for (int i = 0; i < PIECES; i++) {
        CU_ASSERT_TRUE(piece[i][0] == i && piece[i][bytes - 1] == i);
        wf_pool_give(pool, piece[i], bytes, WF_MEMORY_ACTIVATION);
    }
    held = report_of(pool).cached;
    all = wf_pool_take(pool, PIECES * bytes, WF_MEMORY_ACTIVATION, NULL);
    CU_ASSERT_PTR_EQUAL(all, piece[0]);
    CU_ASSERT_EQUAL(report_of(pool).cached + PIECES * bytes, held);
    wf_pool_close(pool);
}

/* Blocks of all sizes come and go in a fixed disorder; nothing overlaps, and once warm the same
   disorder asks for nothing more. */
static void a_long_disorder(void)
{
    enum { LIVE = 60, TURNS = 20000 };
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    unsigned char *block[LIVE] = {NULL};
    size_t bytes[LIVE] = {0};
    uint32_t random = 1;
    int64_t calls = 0;
    bool intact = true;

    for (int turn = 0; turn < 3 * TURNS; turn++) {
        int i;

        if (turn % TURNS == 0)
            random = 1;
        if (turn == 2 * TURNS)
            calls = l.calls;
        random = random * 1664525 + 1013904223;
        i = (int)(random >> 8) % LIVE;
        if (block[i]) {
            intact &= block[i][0] == i && block[i][bytes[i] - 1] == i;
            wf_pool_give(pool, block[i], bytes[i], WF_MEMORY_BUFFER);
        }
        random = random * 1664525 + 1013904223;
        bytes[i] = 1 + (random >> 12) % ((size_t)1 << (random >> 4) % 20);
        block[i] = wf_pool_take(pool, bytes[i], WF_MEMORY_BUFFER, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(block[i]);
        CU_ASSERT_EQUAL_FATAL((uintptr_t)block[i] % 64, 0);
        block[i][0] = block[i][bytes[i] - 1] = (unsigned char)i;
    }
    CU_ASSERT_TRUE(intact);
    CU_ASSERT_EQUAL(l.calls, calls);
    CU_ASSERT_TRUE(l.in_use <= report_of(pool).peak + report_of(pool).peak / 2 + (1 << 20));
    for (int i = 0; i < LIVE; i++)
        if (block[i])
            wf_pool_give(pool, block[i], bytes[i], WF_MEMORY_BUFFER);
    CU_ASSERT_EQUAL(report_of(pool).in_use, 0);
    close_pool(pool, &l);
}

int main(void)
{
    static const wf_test tests[] = {
        {"memory that is none", fake_memory},
        {"memory that is none is nobody else's", fake_memory_is_nobody_elses},
        {"ranges split and join", ranges_split_and_join},
        {"gradients lie last", gradients_lie_last},
        {"a region grows", a_region_grows},
        {"a long disorder", a_long_disorder},
        {NULL, NULL}};

    return wf_test_main("ranges", tests);
}
