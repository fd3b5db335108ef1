/* tests/scheduler/scheduler.c - chooses the thread that runs; see the header. */
#include "tests/scheduler/scheduler_internal.h"
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    THREADS = 2048,
    POINT_NS = 100,
    LOOK_NS = 20,
    DEADLOCK = 97,
    ENDLESS = 98,
    JUMP_NS = 700000000
};

typedef enum { FREE, READY, BLOCKED, ENDED } state;

typedef struct thread {
    state state;
    const void *on;
    const char *call;
    int64_t deadline;
    bool late;
    struct pollfd *set; /* its poll set; NULL: it polls nothing */
    nfds_t n_set;
    _Atomic uint32_t turn;
    uint64_t priority;
} thread;

/*
 * Each finds other failures. A walk changes threads at every point with one probability, uneven
 * gives threads very unequal shares, and priorities run the first thread that can, whose place
 * falls at moments by chance: few changes, and a thread that is left alone for very long
 * (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
 * ASPLOS 2010).
 */
typedef enum { WALK, UNEVEN, PRIORITIES } strategy;

static const char *const strategy_name[] = {"walk", "uneven", "priorities"};

static thread all[THREADS];
static int threads;
static _Thread_local int self = -1;
static _Atomic int running; /* the thread whose turn it is */
static bool on;
static strategy chosen;
static uint64_t seed, random_state, change_in, jump_in, points, most_points = 400000000, hash;
static int64_t now, first_deadline = SCHEDULER_NEVER;
static uint64_t falling = UINT64_C(1) << 62; /* the next priority that somebody falls to */

static long futex(const void *word, int what, uint32_t value)
{
    static __typeof__(&syscall) real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(SYS_futex, word, what, value, NULL, NULL, 0);
}

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool scheduler_chance(uint64_t in)
{
    return in && next_random() % in == 0;
}

/* A signal's handler may run in a thread that waits for its turn: it passes no point. */
bool scheduler_on(void)
{
    return on && self >= 0 && self == atomic_load(&running);
}

/* ---- the end of a program that cannot go on ---- */

static void end(int status, const char *what)
{
    fprintf(stderr, "scheduler: seed %llu: %s after %llu points\n", (unsigned long long)seed,
            what, (unsigned long long)points);
    for (int i = 0; i < threads; i++)
        if (all[i].state == READY || all[i].state == BLOCKED)
            fprintf(stderr, "scheduler: thread %d %s%s%s\n", i,
                    all[i].state == READY ? "could run" : "waits in ",
                    all[i].state == READY ? "" : all[i].call,
                    all[i].deadline != SCHEDULER_NEVER ? " until a deadline" : "");
    fflush(stderr);
    _exit(status);
}

/* ---- who can run ---- */

static void make_ready(thread *t, bool late)
{
    t->state = READY;
    t->late = late;
    t->on = NULL;
    t->set = NULL;
    t->deadline = SCHEDULER_NEVER;
}

static void pass_deadlines(void)
{
    if (first_deadline > now)
        return;
    first_deadline = SCHEDULER_NEVER;
    for (int i = 0; i < threads; i++) {
        if (all[i].state == BLOCKED && all[i].deadline <= now)
            make_ready(&all[i], true);
        else if (all[i].state == BLOCKED && all[i].deadline < first_deadline)
            first_deadline = all[i].deadline;
    }
}

static int poll_now(struct pollfd *set, nfds_t n)
{
    static __typeof__(&poll) real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "poll");
    return real(set, n, 0);
}

static void look_at_polls(void)
{
    for (int i = 0; i < threads; i++)
        if (all[i].state == BLOCKED && all[i].set && poll_now(all[i].set, all[i].n_set) != 0)
            make_ready(&all[i], false);
}

static int list_ready(int *list)
{
    int n = 0;

    for (int i = 0; i < threads; i++)
        if (all[i].state == READY)
            list[n++] = i;
    return n;
}

/* ---- whose turn it is ---- */

/* The share of a thread is 2^-k of the largest, k from 0 to 7, by its number and the seed. */
static uint64_t share_of(int i)
{
    return UINT64_C(1) << (all[i].priority % 8);
}

static int choose_uneven(const int *list, int n)
{
    uint64_t sum = 0, at;

    for (int i = 0; i < n; i++)
        sum += share_of(list[i]);
    at = next_random() % sum;
    for (int i = 0; i < n; i++) {
        if (at < share_of(list[i]))
            return list[i];
        at -= share_of(list[i]);
    }
    return list[n - 1];
}

static int choose_first(const int *list, int n)
{
    int best = list[0];

    for (int i = 1; i < n; i++)
        if (all[list[i]].priority > all[best].priority)
            best = list[i];
    return best;
}

/* The next one of those that can run; time jumps where there is none. */
static int choose(void)
{
    static int list[THREADS];
    int n;

    pass_deadlines();
    n = list_ready(list);
    if (n == 0) {
        look_at_polls();
        n = list_ready(list);
    }
    while (n == 0 &&
           first_deadline !=
               SCHEDULER_NEVER) { /* it may be that of a thread that has been woken since */
        now = first_deadline;
        pass_deadlines();
        n = list_ready(list);
    }
    if (n == 0)
        end(DEADLOCK, "a deadlock");
    if (chosen == WALK)
        return list[next_random() % (uint64_t)n];
    return chosen == UNEVEN ? choose_uneven(list, n) : choose_first(list, n);
}

static void wait_turn(void)
{
    while (!atomic_exchange(&all[self].turn, 0))
        futex(&all[self].turn, FUTEX_WAIT_PRIVATE, 0);
}

static void give(int next)
{
    hash = (hash ^ (uint64_t)next) * UINT64_C(0x100000001b3) + points;
    if (next == self)
        return;
    atomic_store(&running, next);
    atomic_store(&all[next].turn, 1);
    futex(&all[next].turn, FUTEX_WAKE_PRIVATE, 1);
}

static void change(void)
{
    int next = choose();

    give(next);
    if (next != self)
        wait_turn();
}

static void pass(void)
{
    now += POINT_NS;
    if (++points > most_points)
        end(ENDLESS, "no end");
    if (jump_in && next_random() % jump_in == 0)
        now += (int64_t)(next_random() % JUMP_NS);
}

void scheduler_point(void)
{
    if (!scheduler_on())
        return;
    pass();
    if (chosen == PRIORITIES) {
        if (next_random() % change_in == 0)
            all[self].priority = falling--;
        change();
    } else if (next_random() % change_in == 0) {
        change();
    }
}

void scheduler_yield(void)
{
    if (!scheduler_on())
        return;
    pass();
    if (chosen == PRIORITIES)
        all[self].priority = falling--;
    change();
}

static bool block(const void *address, const char *call, int64_t deadline)
{
    thread *t = &all[self];

    t->state = BLOCKED;
    t->on = address;
    t->call = call;
    t->deadline = deadline;
    if (deadline < first_deadline)
        first_deadline = deadline;
    change();
    return t->late;
}

bool scheduler_block(const void *address, const char *call, int64_t deadline)
{
    pass();
    all[self].set = NULL;
    return block(address, call, deadline);
}

bool scheduler_poll(struct pollfd *set, nfds_t n, int64_t deadline)
{
    pass();
    all[self].set = set;
    all[self].n_set = n;
    return block(NULL, "poll", deadline);
}

int scheduler_wake(const void *address, int most)
{
    int woken = 0, waiting = 0;

    for (int i = 0; i < threads; i++)
        waiting += all[i].state == BLOCKED && all[i].on == address;
    for (; waiting && woken < most; waiting--, woken++) {
        int skip = (int)(next_random() % (uint64_t)waiting);

        for (int i = 0; i < threads; i++)
            if (all[i].state == BLOCKED && all[i].on == address && skip-- == 0) {
                make_ready(&all[i], false);
                break;
            }
    }
    look_at_polls(); /* whoever wakes threads may have written to a descriptor as well */
    return woken;
}

int64_t scheduler_now(void)
{
    return now += LOOK_NS;
}

/* ---- threads that begin and end ---- */

int scheduler_add(void)
{
    int number = 0;
    thread *t;

    while (number < threads && all[number].state != FREE)
        number++;
    if (number == THREADS)
        return -1;
    t = &all[number];
    threads += number == threads;
    make_ready(t, false);
    t->priority = (UINT64_C(1) << 62) + next_random() % (UINT64_C(1) << 62) + 1;
    return number;
}

void scheduler_take_back(int number)
{
    all[number].state = FREE;
}

void scheduler_begin(int number)
{
    self = number;
    wait_turn();
}

const void *scheduler_thread(int number)
{
    return &all[number];
}

bool scheduler_ended(int number)
{
    return all[number].state == ENDED;
}

void scheduler_end(void)
{
    int me = self;

    all[me].state = ENDED;
    scheduler_wake(&all[me], THREADS);
    give(choose());
    self = -1;
}

/* ---- the program ---- */

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("WEFT_SCHEDULER"), *most = getenv("WEFT_SCHEDULER_POINTS");

    if (!text)
        return;
    seed = strtoull(text, NULL, 10);
    random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    if (most)
        most_points = strtoull(most, NULL, 10);
    chosen = (strategy)(next_random() % 3);
    change_in = chosen == PRIORITIES ? UINT64_C(64) << (2 * (next_random() % 6))
                                     : UINT64_C(1) << (next_random() % 10);
    jump_in = next_random() % 3 == 0 ? 1 << 16 : 0;
    self = scheduler_add();
    atomic_store(&running, self);
    on = true;
}

__attribute__((destructor)) static void report(void)
{
    if (on && getenv("WEFT_SCHEDULER_REPORT"))
        fprintf(stderr,
                "scheduler: seed %llu, %s, a change in %llu, %llu points, %d threads at most, "
                "order "
                "%016llx\n",
                (unsigned long long)seed, strategy_name[chosen], (unsigned long long)change_in,
                (unsigned long long)points, threads, (unsigned long long)hash);
}
