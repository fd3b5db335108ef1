/* tests/cuda/emulator/fiber.h - stacks that alternate on one thread. */
#ifndef WF_TESTS_EMULATOR_FIBER_H
#define WF_TESTS_EMULATOR_FIBER_H

#include <stddef.h>

typedef struct fiber {
    void *at;    /* its stack pointer while it does not run */
    char *stack; /* NULL: the thread's own */
    size_t bytes;
    void *shadow; /* a sanitizer's state of it */
} fiber;

/* A stack of its own, on which main() begins with the first switch and never ends; NULL where
   there is no memory. It is kept for good. */
fiber *fiber_open(size_t bytes, void (*main)(void));

/* Leaves `from` where it is and continues where `to` was left. */
void fiber_switch(fiber *from, fiber *to);

/* To be called first in main(). */
void fiber_begins(void);

#endif
