/*
 * tests/bench/handover.c - measures a hand-over between two cores: one thread writes a word,
 * and another one that waited for it continues. It waits as ranks do: it polls where each has a
 * core for itself, and else sleeps and is woken (futex). No collective ends before each rank
 * has heard of all: that takes one hand-over at least, and a second where a result that one
 * made is needed by all.
 */
#include "tests/bench/bench.h"
#include "core/futex.h"
#include <sched.h>
#include <stdatomic.h>

enum { LOOKS = 10000, NAP_MS = 100 };

static void wait_for(bench_handover *h, uint32_t turn)
{
    uint32_t seen;

    for (int looks = 1; (seen = atomic_load(&h->turn)) != turn; looks++) {
        if (h->sleeps)
            wf_futex_wait(&h->turn, seen, NAP_MS);
        else if (looks % LOOKS == 0)
            sched_yield(); /* somebody else may have the other's core */
        else
            wf_cpu_relax();
    }
}

static void pass(void *arg, int index)
{
    bench_handover *h = arg;

    for (int64_t n = index; index < 2 && n < 2 * h->repeat; n += 2) {
        wait_for(h, (uint32_t)n);
        atomic_store(&h->turn, (uint32_t)n + 1);
        if (h->sleeps)
            wf_futex_wake(&h->turn, 1);
    }
}

static double run(void *arg, int64_t repeat)
{
    bench_handover *h = arg;

    h->repeat = repeat;
    atomic_store(&h->turn, 0);
    return bench_workers_run(h->workers, pass, h) / 2; /* there and back */
}

bench_entrant bench_gather_to_one(bench_handover *h)
{
    return (bench_entrant){.run = run, .arg = h};
}
