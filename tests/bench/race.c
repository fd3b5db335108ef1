/* tests/bench/race.c - alternates entrants, so that a busy machine slows all of them alike. */
#include "tests/bench/bench.h"
#include "tests/clock.h"
#include <math.h>
#include <stdlib.h>

enum { MAX_ROUNDS = 201 };

static const double standard_seconds = 2, sample_seconds = 2e-3;

double bench_now(int threads)
{
    return wf_test_clock(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

double bench_stop_clock(wf_device *gpu, int threads)
{
    if (gpu)
        gpu->memory->wait(gpu, NULL);
    return bench_now(gpu ? 2 : threads);
}

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Doubles the runs of a sample until it is long enough; a first run that is long by itself was
   the warm-up. NAN after a failure, else the seconds of one run. */
static double warm_up(bench_entrant *e, double sample, int64_t *repeat)
{
    double seconds;

    for (*repeat = 1;; *repeat *= 2) {
        seconds = e->run(e->arg, *repeat);
        if (isnan(seconds) || seconds >= sample || *repeat >= 1 << 24)
            return seconds / (double)*repeat;
    }
}

/* A limit that is over in a moment would be measured in a moment of noise, and what it is
   compared with in all of them: everyone runs for a twentieth of the longest turn at least. */
static void even_out(int count, const bench_entrant *entrant, int64_t *repeat)
{
    double longest = 0;

    for (int i = 0; i < count; i++)
        longest = fmax(longest, entrant[i].seconds * (double)repeat[i]);
    for (int i = 0; i < count; i++) {
        while (entrant[i].seconds * (double)repeat[i] < longest / 20 && repeat[i] < 1 << 24)
            repeat[i] *= 2;
    }
}

bool bench_race(const bench_options *o, int count, bench_entrant *entrant)
{
    static double times[BENCH_ENTRANTS][MAX_ROUNDS];
    double budget = o->seconds > 0 ? o->seconds
                    : o->quick     ? 0
                                   : standard_seconds,
           start, all = 0;
    int64_t repeat[BENCH_ENTRANTS];
    int rounds = 0;

    for (int i = 0; i < count; i++) {
        entrant[i].seconds =
            warm_up(&entrant[i], o->quick ? sample_seconds / 8 : sample_seconds, &repeat[i]);
        if (isnan(entrant[i].seconds))
            return false;
    }
    even_out(count, entrant, repeat);
    start = bench_now(0);
    while (rounds < MAX_ROUNDS && (rounds < 3 || all + all / rounds < budget)) {
        for (int i = 0; i < count; i++) {
            int turn = (i + rounds) % count;
            double seconds = entrant[turn].run(entrant[turn].arg, repeat[turn]);

            if (isnan(seconds))
                return false;
            times[turn][rounds] = seconds / (double)repeat[turn];
        }
        rounds++;
        all = bench_now(0) - start;
    }
    for (int i = 0; i < count; i++)
        entrant[i].seconds = bench_median(times[i], rounds);
    return true;
}
