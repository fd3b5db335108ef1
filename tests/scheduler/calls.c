/*
 * tests/scheduler/calls.c - wrappers of the C library's threads, locks, conditions, futex,
 * clocks and sleeps: each is a point, and a thread that would sleep is blocked in the
 * scheduler. Locks are the C library's own, which are only ever held by a thread that is not
 * scheduled.
 */
#include "tests/scheduler/scheduler_internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { STARTED = 2048, EARLY = 64 };

#define EPOCH_S 1700000000 /* virtual time begins here */

/* The C library's own function of this name. */
#define REAL(name)                                                                             \
    static __typeof__(&name) real;                                                             \
    if (!real)                                                                                 \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

/* ---- threads ---- */

typedef struct start {
    void *(*run)(void *);
    void *arg;
    int number;
} start;

static pthread_t started[STARTED]; /* by number */

static void *run_scheduled(void *arg)
{
    start s = *(start *)arg;
    void *result;

    free(arg);
    scheduler_begin(s.number);
    result = s.run(s.arg);
    scheduler_end();
    return result;
}

int pthread_create(pthread_t *restrict id, const pthread_attr_t *restrict attributes,
                   void *(*run)(void *), void *restrict arg)
{
    REAL(pthread_create);
    start *s;
    int failed;

    if (!scheduler_on())
        return real(id, attributes, run, arg);
    s = malloc(sizeof *s);
    if (!s)
        return EAGAIN;
    *s = (start){run, arg, scheduler_add()};
    if (s->number < 0) {
        free(s);
        return EAGAIN;
    }
    int number = s->number;

    failed = real(id, attributes, run_scheduled, s);
    if (failed) {
        scheduler_take_back(number);
        free(s);
        return failed;
    }
    /* Ids are used again: nobody joins a thread that had this one. */
    for (int i = 1; i < STARTED; i++)
        if (started[i] && pthread_equal(started[i], *id) && scheduler_ended(i)) {
            started[i] = 0;
            scheduler_take_back(i);
        }
    started[number] = *id;
    scheduler_point();
    return 0;
}

int pthread_join(pthread_t id, void **result)
{
    REAL(pthread_join);

    if (scheduler_on())
        for (int i = STARTED - 1; i > 0; i--)
            if (started[i] && pthread_equal(started[i], id)) {
                while (!scheduler_ended(i))
                    scheduler_block(scheduler_thread(i), "pthread_join", SCHEDULER_NEVER);
                started[i] = 0;
                scheduler_take_back(i);
                break;
            }
    return real(id, result);
}

/* ---- locks ---- */

static int take(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_trylock);
    int failed;

    while ((failed = real(lock)) == EBUSY)
        scheduler_block(lock, "pthread_mutex_lock", SCHEDULER_NEVER);
    return failed;
}

static int leave(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_unlock);
    int failed = real(lock);

    if (scheduler_on())
        scheduler_wake(lock, STARTED);
    return failed;
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_lock);

    if (!scheduler_on())
        return real(lock);
    scheduler_point();
    return take(lock);
}

int pthread_mutex_trylock(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_trylock);

    scheduler_point();
    return real(lock);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    int failed = leave(lock);

    scheduler_point();
    return failed;
}

/* ---- conditions ---- */

/* A deadline on either clock, which differ by the epoch. */
static int64_t of_timespec(const struct timespec *t)
{
    int64_t s = t->tv_sec >= EPOCH_S ? t->tv_sec - EPOCH_S : t->tv_sec;

    return s < INT64_C(4000000000) ? s * 1000000000 + t->tv_nsec : SCHEDULER_NEVER;
}

static int wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline)
{
    bool late;

    leave(lock);
    if (scheduler_chance(EARLY)) { /* as the standard allows */
        scheduler_yield();
        late = false;
    } else {
        late = scheduler_block(condition, "pthread_cond_wait", deadline);
    }
    take(lock);
    return late ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock)
{
    REAL(pthread_cond_wait);

    return scheduler_on() ? wait_for(condition, lock, SCHEDULER_NEVER) : real(condition, lock);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict until)
{
    REAL(pthread_cond_timedwait);

    return scheduler_on() ? wait_for(condition, lock, of_timespec(until))
                          : real(condition, lock, until);
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    REAL(pthread_cond_signal);

    if (!scheduler_on())
        return real(condition);
    scheduler_wake(condition, 1);
    scheduler_point();
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    REAL(pthread_cond_broadcast);

    if (!scheduler_on())
        return real(condition);
    scheduler_wake(condition, STARTED);
    scheduler_point();
    return 0;
}

/* ---- futex ---- */

static long wait_word(const uint32_t *word, uint32_t value, long on,
                      const struct timespec *limit)
{
    int64_t deadline = limit ? scheduler_now() + of_timespec(limit) : SCHEDULER_NEVER;

    scheduler_point();
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value)
        return (errno = EAGAIN), -1;
    if (scheduler_chance(EARLY)) /* as a signal would do it */
        return (errno = EINTR), -1;
    return scheduler_block((const void *)on, "futex", deadline) ? (errno = ETIMEDOUT), -1 : 0;
}

long syscall(long number, ...)
{
    REAL(syscall);
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && scheduler_on() && a[1] == FUTEX_WAIT_PRIVATE)
        return wait_word((const uint32_t *)a[0], (uint32_t)a[2], a[0],
                         (const struct timespec *)a[3]);
    /* Bit sets of a word (1, 2) are taken for addresses in it. */
    if (number == SYS_futex && scheduler_on() && a[1] == FUTEX_WAIT_BITSET_PRIVATE && !a[3])
        return wait_word((const uint32_t *)a[0], (uint32_t)a[2], a[0] + a[5] % 4, NULL);
    if (number == SYS_futex && scheduler_on() &&
        (a[1] == FUTEX_WAKE_PRIVATE || a[1] == FUTEX_WAKE_BITSET_PRIVATE)) {
        a[0] += a[1] == FUTEX_WAKE_BITSET_PRIVATE ? a[5] % 4 : 0;
        int woken = scheduler_wake((const void *)a[0], (int)a[2]);

        scheduler_point();
        return woken;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int poll(struct pollfd *set, nfds_t n, int timeout)
{
    REAL(poll);
    int64_t deadline =
        timeout < 0 ? SCHEDULER_NEVER : scheduler_now() + timeout * INT64_C(1000000);
    int ready;

    if (!scheduler_on())
        return real(set, n, timeout);
    scheduler_point();
    ready = real(set, n, 0);
    if (ready != 0 || timeout == 0)
        return ready;
    return scheduler_poll(set, n, deadline) ? 0 : real(set, n, 0);
}

/* ---- clocks and sleeps ---- */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    REAL(clock_gettime);
    int64_t now;

    if (!scheduler_on())
        return real(clock, t);
    now = scheduler_now();
    t->tv_sec = now / 1000000000 +
                (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? EPOCH_S : 0);
    t->tv_nsec = now % 1000000000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *out = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *left)
{
    REAL(clock_nanosleep);

    if (!scheduler_on())
        return real(clock, flags, t, left);
    scheduler_block(NULL, "a sleep",
                    (flags & TIMER_ABSTIME ? 0 : scheduler_now()) + of_timespec(t));
    return 0;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
    REAL(nanosleep);

    return scheduler_on() ? clock_nanosleep(CLOCK_MONOTONIC, 0, t, left) : real(t, left);
}

int usleep(useconds_t us)
{
    return nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

unsigned sleep(unsigned s)
{
    nanosleep(&(struct timespec){s, 0}, NULL);
    return 0;
}

int pause(void)
{
    REAL(pause);

    return scheduler_on() ? scheduler_block(NULL, "pause", SCHEDULER_NEVER) : real();
}

int sched_yield(void)
{
    REAL(sched_yield);

    if (!scheduler_on())
        return real();
    scheduler_yield();
    return 0;
}
