/*
 * kernels/cpu/thread_pool.c - a thread pool: sleeping threads that share a job's tasks. (The
 * work stealing of a product is in simd/gemm.c.) Many ranks may share few cores, so no thread
 * spins: a member that has yielded for a short while sleeps on a futex, and the caller never
 * waits for a member that has not begun; it does the work itself.
 *
 * All of the thread pool's state is one word, on which all sleep:
 *
 *     bits 0 ..   members inside the current job
 *     OPEN        the job has tasks left, so members may enter it
 *     STOP        the thread pool is being closed
 *
 * A member enters by adding one to a word that is OPEN. A thread that finds no task left clears
 * OPEN, and the job is over when no thread is inside: then the next one may be written. What
 * the caller wrote before OPEN is seen by who enters; what members wrote is seen by the caller
 * because their leaving is one chain of release operations.
 */
#include "kernels/cpu/thread_pool_internal.h"
#include "core/context.h"
#include "core/thread.h"
#include <errno.h>
#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    OPEN = 1 << 16,
    STOP = 1 << 17,
    INSIDE = OPEN - 1, /* mask of the count */
    PATIENCE_NS =
        50000, /* a member yields so long before it sleeps, which takes as long to end */
    AHEAD_BYTES = 1 << 18, /* bytes prefetched of the next job: a part of a level 2 cache */
    AHEAD_STEP = 1 << 11,  /* so much between two looks for a job */
    ORDER = 1024,          /* jobs of which is known what came after them; a power of two */
    TASKS = 8, /* tasks per member: a late member costs little, and so does handing out */
    MEMBERS_SLEEP = 1,
    CALLER_SLEEPS = 2,
    LINE = 64
};

typedef struct member {
    wf_thread_pool *pool;
    pthread_t thread;
    int worker;
} member;

/* The job that read `data` was followed by one whose second task read `second`. */
typedef struct follower {
    uintptr_t data, second;
} follower;

struct wf_thread_pool {
    _Alignas(LINE) _Atomic uint32_t state;
    _Alignas(LINE) _Atomic int64_t next; /* first index that is not taken */
    /* the job: written by the caller while no member is inside */
    _Alignas(LINE) int64_t count;
    int64_t task;
    void (*fn)(void *arg, int64_t begin, int64_t end, int worker);
    void *arg;
    fenv_t modes;
    const wf_context *running; /* the caller's */
    int size;
    /* wf_thread_pool_streams: what the last such job read, what is to be prefetched after the
       next one, and after the current */
    uintptr_t streamed, then;
    follower order[ORDER];
    _Alignas(LINE) _Atomic(uintptr_t) ahead;
    member members[]; /* size - 1 */
};

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, uint32_t who)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, NULL, NULL, who);
}

static void wake(_Atomic uint32_t *word, int64_t how_many, uint32_t who)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, (int)how_many, NULL, NULL, who);
}

/* Takes tasks until none is left, then closes the job to members that come later. */
static void work(wf_thread_pool *pool, int worker)
{
    int64_t begin;

    while ((begin = atomic_fetch_add_explicit(&pool->next, pool->task, memory_order_relaxed)) <
           pool->count) {
        int64_t left = pool->count - begin;

        pool->fn(pool->arg, begin, begin + (left < pool->task ? left : pool->task), worker);
    }
    atomic_fetch_and_explicit(&pool->state, ~(uint32_t)OPEN, memory_order_relaxed);
}

/*
 * Lets others have the core, and says whether that is worth repeating: for PATIENCE_NS in all,
 * from the first call on. Where others want the core, the first yield takes longer than that.
 */
static bool yield(int64_t *until)
{
    struct timespec t;
    int64_t now;

    clock_gettime(CLOCK_MONOTONIC, &t);
    now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    if (*until == 0)
        *until = now + PATIENCE_NS;
    return now < *until && sched_yield() == 0;
}

static void prefetch(uintptr_t at)
{
    for (int i = 0; i < AHEAD_STEP; i += LINE)
        __builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 2);
}

/* Returns the state once it is OPEN or STOP. */
static uint32_t wait_for_job(wf_thread_pool *pool)
{
    uintptr_t ahead = atomic_load_explicit(&pool->ahead, memory_order_relaxed);
    uintptr_t end = ahead ? ahead + AHEAD_BYTES : 0;
    int64_t until = 0;

    for (;;) {
        uint32_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);

        if (state & (OPEN | STOP))
            return state;
        if (ahead != end) {
            prefetch(ahead);
            ahead += AHEAD_STEP;
        } else if (!yield(&until))
            sleep_on(&pool->state, state, MEMBERS_SLEEP);
    }
}

static void *member_main(void *arg)
{
    const member *self = arg;
    wf_thread_pool *pool = self->pool;

    for (;;) {
        uint32_t state = wait_for_job(pool);

        if (state & STOP)
            return NULL;
        if (!atomic_compare_exchange_weak_explicit(&pool->state, &state, state + 1,
                                                   memory_order_acquire, memory_order_relaxed))
            continue;
        fesetenv(&pool->modes);
        wf_context_run(pool->running);
        work(pool, self->worker);
        state = atomic_fetch_sub_explicit(&pool->state, 1, memory_order_release);
        if ((state & INSIDE) == 1)
            wake(&pool->state, 1, CALLER_SLEEPS);
    }
}

static void wait_until_empty(wf_thread_pool *pool)
{
    int64_t until = 0;

    for (;;) {
        uint32_t state = atomic_load_explicit(&pool->state, memory_order_acquire);

        if ((state & INSIDE) == 0)
            return;
        if (!yield(&until))
            sleep_on(&pool->state, state, CALLER_SLEEPS);
    }
}

void wf_thread_pool_run(wf_thread_pool *pool, int64_t count, int64_t grain,
                        void (*fn)(void *arg, int64_t begin, int64_t end, int worker),
                        void *arg)
{
    int64_t members = wf_thread_pool_size(pool), tasks;

    if (pool) {
        atomic_store_explicit(&pool->ahead, pool->then, memory_order_relaxed);
        pool->then = 0;
    }
    if (count <= 0)
        return;
    if (members == 1 || count <= grain) {
        fn(arg, 0, count, 0);
        return;
    }
    pool->count = count;
    pool->task = (count / (members * TASKS) + grain - 1) / grain * grain;
    if (pool->task < grain)
        pool->task = grain;
    pool->fn = fn;
    pool->arg = arg;
    fegetenv(&pool->modes);
    pool->running = wf_context_running();
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->state, OPEN, memory_order_release);
    tasks = (count - 1) / pool->task + 1;
    wake(&pool->state, (members < tasks ? members : tasks) - 1, MEMBERS_SLEEP);
    work(pool, 0);
    wait_until_empty(pool);
}

static follower *follower_of(wf_thread_pool *pool, uintptr_t data)
{
    return &pool->order[(data >> 6) * 0x9e3779b97f4a7c15u >> 40 & (ORDER - 1)];
}

void wf_thread_pool_streams(wf_thread_pool *pool, const void *data, const void *second)
{
    const follower *next;

    if (wf_thread_pool_size(pool) == 1)
        return;
    if (pool->streamed)
        *follower_of(pool, pool->streamed) = (follower){pool->streamed, (uintptr_t)second};
    pool->streamed = (uintptr_t)data;
    next = follower_of(pool, pool->streamed);
    pool->then = next->data == pool->streamed ? next->second : 0;
}

int wf_thread_pool_size(const wf_thread_pool *pool)
{
    return pool ? pool->size : 1;
}

/* Starts members until the thread pool has `threads`, with no signal coming to any of them. */
static int start(wf_thread_pool *pool, int threads)
{
    int code = 0;

    for (pool->size = 1; pool->size < threads; pool->size++) {
        member *one = &pool->members[pool->size - 1];

        *one = (member){.pool = pool, .worker = pool->size};
        code = wf_thread_start(&one->thread, NULL, member_main, one);
        if (code != 0)
            break;
    }
    return code;
}

wf_thread_pool *wf_thread_pool_open(int threads, wf_error *error)
{
    wf_thread_pool *pool;
    size_t bytes;
    int code;

    if (threads < 1 || threads > WF_POOL_MAX) {
        wf_error_set(error, WF_EINVAL, "a thread pool has 1 to %d threads, not %d", WF_POOL_MAX,
                     threads);
        return NULL;
    }
    bytes = sizeof *pool + (size_t)(threads - 1) * sizeof(member);
    pool = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    if (!pool) {
        wf_error_set(error, WF_ENOMEM, "no memory for a thread pool of %d threads", threads);
        return NULL;
    }
    memset(pool, 0, bytes);
    code = start(pool, threads);
    if (code != 0) {
        wf_error_set(
            error, code == EAGAIN ? WF_ENOMEM : WF_EINTERNAL,
            "thread %d of a thread pool of %d did not start (%s): ask for fewer threads, or "
            "raise the limit on processes (ulimit -u)",
            pool->size, threads, strerror(code));
        wf_thread_pool_close(pool);
        return NULL;
    }
    return pool;
}

void wf_thread_pool_close(wf_thread_pool *pool)
{
    if (!pool)
        return;
    atomic_fetch_or_explicit(&pool->state, STOP, memory_order_release);
    wake(&pool->state, INT_MAX, MEMBERS_SLEEP);
    for (int i = 0; i < pool->size - 1; i++)
        pthread_join(pool->members[i].thread, NULL);
    free(pool);
}
