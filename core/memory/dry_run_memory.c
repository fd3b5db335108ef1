/*
 * core/memory/dry_run_memory.c - addresses without memory, in the half of the address space
 * that belongs to the kernel: nothing is reserved for them, so no limit of the process stands
 * in the way, and any access is stopped.
 *
 * A block has as many addresses as the next power of two, and those that are given back are the
 * next ones to be taken: two blocks that are in use at one time never meet, however much comes
 * and goes.
 */
#include "core/memory/memory.h"
#include <pthread.h>
#include <stdlib.h>

enum { CLASSES = 64 };

static const uintptr_t FIRST = (uintptr_t)0xff80 << 48;
static const size_t MOST = (size_t)1 << 54;

/* Blocks of 1 << k bytes that were given back. */
typedef struct shelf {
    void **block;
    size_t count, room;
} shelf;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shelf shelves[CLASSES];
static size_t next; /* beyond every address that was ever taken */

static int class_of(size_t bytes)
{
    int k = 6; /* a cache line */

    while (k < CLASSES - 1 && (size_t)1 << k < bytes)
        k++;
    return k;
}

static void *take(void *self, size_t bytes)
{
    int k = class_of(bytes);
    size_t whole = (size_t)1 << k;
    void *block = NULL;

    (void)self;
    pthread_mutex_lock(&lock);
    if (shelves[k].count) {
        block = shelves[k].block[--shelves[k].count];
    } else if (whole <= MOST - next) {
        block = (void *)(FIRST + next);
        next += whole;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

/* Frees a block; where there is no room to remember it, its addresses are never reused. */
static void give(void *self, void *block, size_t bytes)
{
    shelf *s = &shelves[class_of(bytes)];

    (void)self;
    pthread_mutex_lock(&lock);
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        void **wider = realloc(s->block, room * sizeof *wider);

        if (wider) {
            s->block = wider;
            s->room = room;
        }
    }
    if (s->count < s->room)
        s->block[s->count++] = block;
    pthread_mutex_unlock(&lock);
}

wf_allocator wf_fake_allocator(void)
{
    return (wf_allocator){.alloc = take, .release = give, .opaque = true};
}
