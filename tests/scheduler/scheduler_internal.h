/*
 * tests/scheduler/scheduler_internal.h - a program whose threads run one at a time, in an order
 * that a seed gives, so that an order in which something fails can be repeated (controlled
 * concurrency testing, as Coyote, Shuttle and PCT do it).
 *
 * It is linked into a program in front of the C library's threads, locks, conditions, futex,
 * clocks and sleeps (calls.c), and of every atomic operation of the files that are compiled for
 * it (atomics.c). Each of these is a point: the thread that runs may be changed there. Time is
 * virtual: it passes by points, and jumps to the first deadline where no thread can run; where
 * there is no deadline either, the program is in a deadlock, and says who waits for what.
 *
 *     WEFT_SCHEDULER=SEED        the order; without it the program runs as it always does
 *     WEFT_SCHEDULER_POINTS=N    a program that has passed this many points hangs (400,000,000)
 *     WEFT_SCHEDULER_REPORT=1      a line at the end: strategy, points, threads, a hash of the
 *                                order
 *
 * Memory is sequentially consistent here. Plain reads and writes are no points, for
 * ThreadSanitizer finds those that race.
 */
#ifndef WF_TESTS_SCHEDULER_INTERNAL_H
#define WF_TESTS_SCHEDULER_INTERNAL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#define SCHEDULER_NEVER INT64_MAX

/* Returns true where this thread is scheduled here. */
bool scheduler_on(void);

/* Another thread may run now. */
void scheduler_point(void);

/* The same, of one that has nothing to do. */
void scheduler_yield(void);

/* The thread waits for an address to be woken, until a moment of virtual time; true: that has
   come. */
bool scheduler_block(const void *on, const char *call, int64_t deadline);

/* The thread waits until one of these is ready. */
bool scheduler_poll(struct pollfd *set, nfds_t n, int64_t deadline);

/* Wakes a number of threads that wait for an address, chosen by the seed; returns how many. */
int scheduler_wake(const void *on, int most);

/* Returns ns of virtual time since the program began; every call takes a moment, so that a
   thread that polls ends. */
int64_t scheduler_now(void);

/* Returns true once in a number of calls, by the seed. */
bool scheduler_chance(uint64_t in);

/* Adds a thread, which is scheduled from its first instruction on; returns its number. -1:
   there are too many. */
int scheduler_add(void);
void scheduler_take_back(int number); /* it could not be started, or has been joined */
void scheduler_begin(int number);     /* by the new thread */
void scheduler_end(
    void); /* by a thread that ends; a thread that waits for its number's address continues */
const void *scheduler_thread(int number);
bool scheduler_ended(int number);

#endif
