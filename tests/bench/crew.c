/* tests/bench/crew.c - threads that start the same work at once: for limits, and for callers
 * that know nothing of each other. */
#include "tests/bench/bench.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct member {
    bench_crew *crew;
    pthread_t thread;
    int index;
    double start, end;
} member;

struct bench_crew {
    int size;
    cpu_set_t allowed; /* where the caller may run */
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
static void take_core(const bench_crew *crew, int index)
{
    int place = index % CPU_COUNT(&crew->allowed);
    size_t cpu = 0;
    cpu_set_t mine;

    for (;; cpu++) {
        if (CPU_ISSET(cpu, &crew->allowed) && place-- == 0)
            break;
    }
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);
}

static void work(member *m)
{
    bench_crew *crew = m->crew;

    take_core(crew, m->index);
    atomic_fetch_add(&crew->ready, 1);
    while (atomic_load(&crew->ready) < crew->size)
        sched_yield();
    m->start = bench_now(crew->size);
    crew->fn(crew->arg, m->index);
    m->end = bench_now(crew->size);
}

static void *run(void *arg)
{
    member *m = arg;
    bench_crew *crew = m->crew;

    for (int64_t seen = 0;;) {
        pthread_mutex_lock(&crew->lock);
        while (crew->turn == seen)
            pthread_cond_wait(&crew->begin, &crew->lock);
        seen = crew->turn;
        pthread_mutex_unlock(&crew->lock);
        if (!crew->fn)
            return NULL;
        work(m);
        pthread_mutex_lock(&crew->lock);
        if (--crew->working == 0)
            pthread_cond_signal(&crew->done);
        pthread_mutex_unlock(&crew->lock);
    }
}

static void begin(bench_crew *crew, void (*fn)(void *arg, int index), void *arg)
{
    pthread_mutex_lock(&crew->lock);
    crew->fn = fn;
    crew->arg = arg;
    crew->working = crew->size - 1;
    crew->turn++;
    atomic_store(&crew->ready, 0);
    pthread_cond_broadcast(&crew->begin);
    pthread_mutex_unlock(&crew->lock);
}

bench_crew *bench_crew_open(int members, wf_error *error)
{
    bench_crew *crew = calloc(1, sizeof *crew + (size_t)members * sizeof *crew->member);

    if (!crew) {
        wf_error_set(error, WF_ENOMEM, "no memory for %d threads", members);
        return NULL;
    }
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->begin, NULL);
    pthread_cond_init(&crew->done, NULL);
    for (int i = 0; i < members; i++) {
        member *m = &crew->member[i];

        *m = (member){.crew = crew, .index = i};
        if (i > 0 && pthread_create(&m->thread, NULL, run, m) != 0) {
            wf_error_set(error, WF_ENOMEM, "only %d of %d threads could be started", i,
                         members);
            bench_crew_close(crew);
            return NULL;
        }
        crew->size = i + 1;
    }
    return crew;
}

void bench_crew_close(bench_crew *crew)
{
    if (!crew)
        return;
    begin(crew, NULL, NULL);
    for (int i = 1; i < crew->size; i++)
        pthread_join(crew->member[i].thread, NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->begin);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

int bench_crew_size(const bench_crew *crew)
{
    return crew->size;
}

double bench_crew_run(bench_crew *crew, void (*fn)(void *arg, int index), void *arg)
{
    double start, end;

    pthread_getaffinity_np(pthread_self(), sizeof crew->allowed, &crew->allowed);
    begin(crew, fn, arg);
    work(&crew->member[0]);
    pthread_setaffinity_np(pthread_self(), sizeof crew->allowed, &crew->allowed);
    pthread_mutex_lock(&crew->lock);
    while (crew->working > 0)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    start = crew->member[0].start;
    end = crew->member[0].end;
    for (int i = 1; i < crew->size; i++) {
        const member *m = &crew->member[i];

        start = m->start < start ? m->start : start;
        end = m->end > end ? m->end : end;
    }
    return end - start;
}
