/* core/pace.c - see the header. */
#include "core/pace.h"
#include <errno.h>
#include <time.h>

/* The seconds below which a rank that is ahead does not sleep, since a sleep costs tens of
   microseconds; it is made up for later. */
static const double worth_a_sleep = 3e-4;

static double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double time)
{
    struct timespec t = {.tv_sec = (time_t)time};

    t.tv_nsec = (long)((time - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void wf_pace_start(wf_pace *pace, const wf_pace_machine *machine)
{
    *pace = (wf_pace){.machine = machine, .now = clock_now()};
}

void wf_pace_catch_up(wf_pace *pace)
{
    double now = clock_now();

    if (pace->machine && pace->now < now)
        pace->now = now;
}

void wf_pace_spend(wf_pace *pace, double seconds)
{
    wf_pace_until(pace, pace->now + seconds);
}

void wf_pace_until(wf_pace *pace, double time)
{
    if (!pace->machine || time <= pace->now)
        return;
    pace->now = time;
    if (time - clock_now() > worth_a_sleep)
        sleep_until(time);
}

void wf_pace_sleep(const wf_pace *pace)
{
    if (pace->machine && pace->now > clock_now())
        sleep_until(pace->now);
}
