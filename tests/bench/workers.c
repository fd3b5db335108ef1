/* tests/bench/workers.c - threads that start the same work at once: for limits, and for callers
 * that know nothing of each other. */
#include "tests/bench/bench.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct member {
    bench_workers *workers;
    pthread_t thread;
    int index;
    double start, end;
} member;

struct bench_workers {
    int size;
    cpu_set_t allowed; /* the cores on which the caller may run */
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
    int64_t turn;                     /* counts runs */
    int working;                      /* members other than the caller that are not through */
    void (*fn)(void *arg, int index); /* NULL: the thread ends */
    void *arg;
    atomic_int ready; /* members that are awake; work starts when all are */
    member member[];
};

/* Member i takes the i-th of the processors that are allowed, round and round. */
static void take_core(const bench_workers *workers, int index)
{
    int shift = index % CPU_COUNT(&workers->allowed);
    size_t cpu = 0;
    cpu_set_t mine;

    for (;; cpu++) {
        if (CPU_ISSET(cpu, &workers->allowed) && shift-- == 0)
            break;
    }
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);
}

static void work(member *m)
{
    bench_workers *workers = m->workers;

    take_core(workers, m->index);
    atomic_fetch_add(&workers->ready, 1);
    while (atomic_load(&workers->ready) < workers->size)
        sched_yield();
    m->start = bench_now(workers->size);
    workers->fn(workers->arg, m->index);
    m->end = bench_now(workers->size);
}

static void *run(void *arg)
{
    member *m = arg;
    bench_workers *workers = m->workers;

    for (int64_t seen = 0;;) {
        pthread_mutex_lock(&workers->lock);
        while (workers->turn == seen)
            pthread_cond_wait(&workers->begin, &workers->lock);
        seen = workers->turn;
        pthread_mutex_unlock(&workers->lock);
        if (!workers->fn)
            return NULL;
        work(m);
        pthread_mutex_lock(&workers->lock);
        if (--workers->working == 0)
            pthread_cond_signal(&workers->done);
        pthread_mutex_unlock(&workers->lock);
    }
}

static void begin(bench_workers *workers, void (*fn)(void *arg, int index), void *arg)
{
    pthread_mutex_lock(&workers->lock);
    workers->fn = fn;
    workers->arg = arg;
    workers->working = workers->size - 1;
    workers->turn++;
    atomic_store(&workers->ready, 0);
    pthread_cond_broadcast(&workers->begin);
    pthread_mutex_unlock(&workers->lock);
}

bench_workers *bench_workers_open(int members, wf_error *error)
{
    bench_workers *workers =
        calloc(1, sizeof *workers + (size_t)members * sizeof *workers->member);

    if (!workers) {
        wf_error_set(error, WF_ENOMEM, "no memory for %d threads", members);
        return NULL;
    }
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->begin, NULL);
    pthread_cond_init(&workers->done, NULL);
    for (int i = 0; i < members; i++) {
        member *m = &workers->member[i];

        *m = (member){.workers = workers, .index = i};
        if (i > 0 && pthread_create(&m->thread, NULL, run, m) != 0) {
            wf_error_set(error, WF_ENOMEM, "only %d of %d threads could be started", i,
                         members);
            bench_workers_close(workers);
            return NULL;
        }
        workers->size = i + 1;
    }
    return workers;
}

void bench_workers_close(bench_workers *workers)
{
    if (!workers)
        return;
    begin(workers, NULL, NULL);
    for (int i = 1; i < workers->size; i++)
        pthread_join(workers->member[i].thread, NULL);
    pthread_cond_destroy(&workers->done);
    pthread_cond_destroy(&workers->begin);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

int bench_workers_size(const bench_workers *workers)
{
    return workers->size;
}

double bench_workers_run(bench_workers *workers, void (*fn)(void *arg, int index), void *arg)
{
    double start, end;

    pthread_getaffinity_np(pthread_self(), sizeof workers->allowed, &workers->allowed);
    begin(workers, fn, arg);
    work(&workers->member[0]);
    pthread_setaffinity_np(pthread_self(), sizeof workers->allowed, &workers->allowed);
    pthread_mutex_lock(&workers->lock);
    while (workers->working > 0)
        pthread_cond_wait(&workers->done, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
    start = workers->member[0].start;
    end = workers->member[0].end;
    for (int i = 1; i < workers->size; i++) {
        const member *m = &workers->member[i];

        start = m->start < start ? m->start : start;
        end = m->end > end ? m->end : end;
    }
    return end - start;
}
